"""The workers of an engine in the terminal: what each is, and why one may not measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.features.cluster.records import CheckedWorker
from perfkit.units import counted, human_bytes, human_seconds

_ID_DIGITS = 12
_COLUMNS = ("worker", "machine", "python", "torch", "git", "free disk", "task", "fit")


def workers_view(workers: Sequence[CheckedWorker]) -> Group:
    """Return a table of the workers, what is to be said of each, and the decision last."""
    table = Table(box=SIMPLE, pad_edge=False)
    for name in _COLUMNS:
        # A machine is looked for by its id, so that no narrow terminal may break it.
        table.add_column(name, min_width=_ID_DIGITS if name == "machine" else None)
    for one in workers:
        table.add_row(*_cells(one))
    parts: list[RenderableType] = [table] if workers else []
    return Group(*parts, *map(Text, _remarks(workers)), _decision(workers))


def _cells(one: CheckedWorker) -> tuple[str | Text, ...]:
    fit = Text("yes", style="green") if one.fit else Text("NO", style="bold red")
    address = one.address.partition("://")[2]
    if one.facts is None:
        return (address, *("-" for _ in _COLUMNS[2:]), fit)
    facts = one.facts
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
        for problem in one.problems:
            yield f"{one.address}: {problem}"
        for condition in one.facts.conditions if one.facts else ():
            yield f"{one.address}, note: {condition}"


def decision_sentence(workers: Sequence[CheckedWorker]) -> str:
    """Return how many workers may measure, in a sentence."""
    if not workers:
        return (
            "the cluster has no worker; start one: dask worker SCHEDULER --nthreads 1 --resources measure=1"
        )
    fit = sum(one.fit for one in workers)
    classes = len({one.facts.machine for one in workers if one.fit and one.facts})
    of = "one class" if classes == 1 else f"{classes} classes"
    return f"{fit} of {counted(len(workers), 'worker')} may measure, on {of} of machines"


def _decision(workers: Sequence[CheckedWorker]) -> Text:
    are_fit = bool(workers) and all(one.fit for one in workers)
    return Text(decision_sentence(workers), style="bold green" if are_fit else "bold red")
