"""``perfkit backfill``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, log
from perfkit.errors import NotMeasuredError

if TYPE_CHECKING:
    from perfkit.commands.backfill import BackfillRequest
    from perfkit.config import Project
    from perfkit.runner.launches import SessionSlot

_MOST_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit backfill HEAD~1 HEAD",
            "perfkit backfill HEAD~3 HEAD~2 HEAD~1 HEAD --launches 8 --select training_epoch",
            "perfkit backfill v1..HEAD --every 10",
            "perfkit backfill --around 4f0ee3ba --launches 8",
            "perfkit backfill v1.. --tags --engine dask://scheduler:8786",
        )
    )(backfill)


def backfill(
    commits: Annotated[
        list[str] | None, typer.Argument(help="Commits, or ranges such as v1..HEAD with both their ends.")
    ] = None,
    *,
    launches: Annotated[int, typer.Option(help="Fresh processes per commit.")] = 5,
    every: Annotated[
        int | None, typer.Option(metavar="N", help="Only each N-th commit of a range, and its ends.")
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(metavar="POINT", help="The commits about a change point of `perfkit history`."),
    ] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Only commits of the ranges that have a tag.")] = False,
    benchmarks: Annotated[
        str | None, typer.Option(metavar="PATH", help="Default: the configured benchmarks.")
    ] = None,
    own_benchmarks: Annotated[
        bool, typer.Option("--own-benchmarks", help="Each commit's own benchmark files, not those of today.")
    ] = False,
    select: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Only benchmarks that match, as pytest's -k.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Also what is in the ledger, runs the same code, or could not be measured before."
        ),
    ] = False,
    engine: options.EngineOption = "local",
    machine: options.MachineOption = None,
    clone: options.CloneOption = None,
    seed: Annotated[int, options.seed_option("Draws the order of the launches.")] = 0,
    wait: options.WaitOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Measure commits, every launch in a fresh process, and file them in the ledger.

    Commits named one by one are measured in alternation, and the log shows the ratio of each to the one
    before. Commits of ranges, or chosen by an option, are measured one at a time with today's benchmarks,
    except for what the ledger has, and what runs the same code as at six measured commits. If stopped, the
    same command continues.
    """
    from perfkit.commands.backfill import BackfillRequest, Choice
    from perfkit.commands.tasks import EngineChoice
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    request = BackfillRequest(
        commits=tuple(commits or ()),
        launches=launches,
        benchmarks=benchmarks or project.default_benchmarks() or project.config.benchmarks,
        select=select,
        ledger=options.ledger_at(ledger or project.ledger_place),
        seed=seed,
        wait_s=wait,
        choice=Choice(
            every=every,
            around=around,
            tags=tags,
            own_benchmarks=own_benchmarks,
            again=again,
            engine=EngineChoice(url=engine, machines=tuple(machine or ()), address=clone),
        ),
    )
    (_by_tasks if request.by_tasks else _in_alternation)(request, project, json)


def _in_alternation(request: BackfillRequest, project: Project, json: str | None) -> None:
    from perfkit.commands.backfill import run_backfill
    from perfkit.identity import shown_run_id
    from perfkit.ledger.remote import shown_place
    from perfkit.report.gate.wording import after_waiting

    result = run_backfill(
        request, project=project, progress=_Launches(json).begin, log=lambda text: log(text, to_json=json)
    )
    measured = f"{result.rows} rows of run {shown_run_id(result.run_id)}{after_waiting(result.waited_s)}"
    emit(f"{measured} -> {shown_place(result.file)}", result, json=json)
    if result.failures:
        raise NotMeasuredError("; ".join(result.failures))


def _by_tasks(request: BackfillRequest, project: Project, json: str | None) -> None:
    from perfkit.commands.backfill import run_range_backfill
    from perfkit.ledger.remote import mirrored_url
    from perfkit.units import counted, listed

    result = run_range_backfill(request, project=project, log=lambda text: log(text, to_json=json))
    known = f", {result.known} in the ledger already" if result.known else ""
    failed = f", {counted(len(result.failures), 'failure')}" if result.failures else ""
    same = f", {result.same} of them the same code as a measured one" if result.same else ""
    measured = f"{counted(result.commits, 'commit')}: {result.measured} tried{same}{known}{failed}"
    place = mirrored_url(result.ledger) or result.ledger
    emit(f"{measured}; {result.rows} rows -> {place}", result, json=json)
    if result.failures:
        raise NotMeasuredError(listed(result.failures, _MOST_SHOWN))


class _Launches:
    """Logs each launch as it begins; redrawing while it runs would take CPU time from it."""

    def __init__(self, json: str | None) -> None:
        self._json = json
        self._began_s = time.monotonic()

    def begin(self, number: int, of: int, slot: SessionSlot) -> None:
        """Log the launch, and about how long all that is left takes."""
        from perfkit.units import human_seconds

        done, since_s = number - 1, time.monotonic() - self._began_s
        left = f"; about {human_seconds(since_s / done * (of - done), digits=2)} left" if done else ""
        log(f"launch {number} of {of}: commit {slot.sha[:10]}, block {slot.block}{left}", to_json=self._json)
