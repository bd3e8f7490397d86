"""``perfkit engine``, and ``perfkit work``, which workers of an engine call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, log

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from perfkit.features.cluster.worker import CheckedWorker

_engine = typer.Typer(
    no_args_is_help=True,
    help="Look at the machines that `--engine dask://HOST:PORT` measures on.",
    epilog=options.examples("perfkit engine check dask://127.0.0.1:8786"),
)
_ID_DIGITS = 12
_COLUMNS = ("worker", "machine", "python", "torch", "git", "free disk", "task", "fit")


def register(app: typer.Typer) -> None:
    """Add both verbs; no help lists the second."""
    app.add_typer(_engine, name="engine")
    app.command(hidden=True)(work)


@_engine.command(
    epilog=options.examples(
        "perfkit engine check dask://127.0.0.1:8786", "perfkit engine check dask://scheduler --json -"
    )
)
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="dask://HOST:PORT of the scheduler.")],
    *,
    json: options.JsonOption = None,
) -> None:
    """Prove every worker fit before anything is measured: its software, machine, disk, and a tiny task.

    Exit code: 0 all are fit, 2 no scheduler answers, 4 a worker is not fit, or there is none.
    """
    from perfkit.features.cluster.engines import check_engine, check_exit_code

    workers = check_engine(url, log=lambda text: log(text, to_json=json))
    emit(_view(workers), workers, json=json, verdict=_decision(workers))
    sys.exit(check_exit_code(workers))


def work(
    task: Path,
    *,
    into: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the task's ledger file goes.")],
) -> None:
    """Do the task that a file holds with the code in this folder, and write the ledger file it ends in."""
    from perfkit.features.cluster.worker import run_work

    run_work(task, folder=Path.cwd(), into=into, log=typer.echo)


def _view(workers: Sequence[CheckedWorker]) -> Group:
    """Return a table of the workers, remarks on each, and the decision last."""
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for name in _COLUMNS:
        # A machine is looked for by its id, so that no narrow terminal may break it.
        table.add_column(name, min_width=_ID_DIGITS if name == "machine" else None)
    for one in workers:
        table.add_row(*_cells(one))
    all_fit = bool(workers) and all(one.fit for one in workers)
    decision = Text(_decision(workers), style="bold green" if all_fit else "bold red")
    return Group(*([table] if workers else []), *map(Text, _remarks(workers)), decision)


def _cells(one: CheckedWorker) -> tuple[str | Text, ...]:
    from rich.text import Text

    from perfkit.units import human_bytes, human_seconds

    fit = Text("yes", style="green") if one.fit else Text("NO", style="bold red")
    address, facts = one.address.partition("://")[2], one.facts
    if facts is None:
        return (address, *("-" for _ in _COLUMNS[2:]), fit)
    return (
        address,
        facts.machine.machine_id,
        facts.machine.python.rpartition(" ")[2],
        facts.machine.torch,
        facts.git.rpartition(" ")[2],
        human_bytes(facts.free_bytes),
        human_seconds(one.task_s),
        fit,
    )


def _remarks(workers: Sequence[CheckedWorker]) -> Iterator[str]:
    for one in workers:
        yield from (f"{one.address}: {problem}" for problem in one.problems)
        yield from (f"{one.address}, note: {found}" for found in (one.facts.conditions if one.facts else ()))


def _decision(workers: Sequence[CheckedWorker]) -> str:
    """Return how many workers may measure, in a sentence."""
    from perfkit.units import counted

    if not workers:
        return (
            "the cluster has no worker; start one: dask worker SCHEDULER --nthreads 1 --resources measure=1"
        )
    fit = sum(one.fit for one in workers)
    classes = len({one.facts.machine for one in workers if one.fit and one.facts})
    of = "one class" if classes == 1 else f"{classes} classes"
    return f"{fit} of {counted(len(workers), 'worker')} may measure, on {of} of machines"
