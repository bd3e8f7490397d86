"""``perfkit backfill``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.options import JsonOption, LedgerOption, WaitOption, examples, ledger_at
from perfkit.cli.output import show, tell
from perfkit.errors import NotMeasuredError

if TYPE_CHECKING:
    from perfkit.measure.launches import Slot


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit backfill HEAD~1 HEAD",
            "perfkit backfill HEAD~3 HEAD~2 HEAD~1 HEAD --launches 8 --select training_epoch",
        )
    )(backfill)


def backfill(
    commits: list[str],
    *,
    launches: Annotated[int, typer.Option(help="Fresh processes per commit.")] = 5,
    benchmarks: Annotated[
        str | None, typer.Option(metavar="PATH", help="Default: the configured benchmarks.")
    ] = None,
    select: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Only benchmarks that match, as pytest's -k.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the order of the launches.")] = 0,
    wait: WaitOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """Measure commits in alternation, every launch in a fresh process, and file them in the ledger.

    The log then shows the ratio of each commit to the one before it.
    """
    from perfkit.config import load_project
    from perfkit.identity import short_run_id
    from perfkit.jobs.backfill import BackfillRequest, run_backfill
    from perfkit.ledger.remote import told_place
    from perfkit.views.gate.wording import after_waiting

    project = load_project(Path.cwd())
    request = BackfillRequest(
        commits=tuple(commits),
        launches=launches,
        benchmarks=benchmarks or project.default_benchmarks() or project.config.benchmarks,
        select=select,
        ledger=ledger_at(ledger or project.ledger_place),
        seed=seed,
        wait_s=wait,
    )
    result = run_backfill(
        request,
        project=project,
        progress=lambda number, of, slot: _say(number, of, slot, json),
        say=lambda text: show(text, to_json=json),
    )
    measured = f"{result.rows} rows of run {short_run_id(result.run_id)}{after_waiting(result.waited_s)}"
    tell(f"{measured} -> {told_place(result.file)}", result, json=json)
    if result.failures:
        raise NotMeasuredError("; ".join(result.failures))


def _say(number: int, of: int, slot: Slot, json: str | None) -> None:
    """Say which launch begins; nothing is redrawn while it runs, since that would take CPU time from it."""
    show(f"launch {number} of {of}: commit {slot.sha[:10]}, block {slot.block}", to_json=json)
