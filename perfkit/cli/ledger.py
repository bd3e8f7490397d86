"""``perfkit ledger``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import ledger_branch
from perfkit.cli.options import JsonOption, LedgerOption, examples, ledger_at
from perfkit.cli.output import stages, tell
from perfkit.extensions import commands_of

_DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]

_ledger = typer.Typer(
    no_args_is_help=True,
    help="Look at the measurements kept in the ledger, and keep it small and sound.",
    epilog=examples("perfkit ledger list", "perfkit ledger show 4f0ee3ba4b6c", "perfkit ledger verify"),
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    for module in dict.fromkeys(command.module for command in commands_of("ledger")):
        importlib.import_module(module).register(_ledger)
    ledger_branch.register(_ledger)
    app.add_typer(_ledger, name="ledger")


@_ledger.command(
    "list",
    epilog=examples("perfkit ledger list", "perfkit ledger list --last 0", "perfkit ledger list --json -"),
)
def list_(
    *,
    last: Annotated[int, typer.Option(min=0, help="How many runs to print, 0 for all; JSON has all.")] = 100,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """List the runs, newest last."""
    from perfkit.commands.ledger import list_runs
    from perfkit.report.ledger_tables import runs_table
    from perfkit.units import counted

    place = _existing(ledger)
    with stages(only_drawn=True) as progress:
        progress.info("reading the ledger")
        runs = list_runs(place)
    tell(runs_table(runs, last=last), runs, json=json, verdict=counted(len(runs), "run"))


@_ledger.command(
    "show", epilog=examples("perfkit ledger show 4f0ee3ba4b6c", "perfkit ledger show 0199 --json run.json")
)
def show_(run: str, *, ledger: LedgerOption = None, json: JsonOption = None) -> None:
    """Show what one run measured; RUN is the beginning or the end of its id."""
    from perfkit.commands.ledger import show_run
    from perfkit.report.ledger_tables import rows_sentence, rows_table

    rows = show_run(_existing(ledger), run)
    tell(rows_table(rows), rows, json=json, verdict=rows_sentence(rows))


@_ledger.command(
    epilog=examples(
        "perfkit ledger compact --dry-run", "perfkit ledger compact", "perfkit ledger compact --all --json -"
    )
)
def compact(
    *,
    also_current: Annotated[
        bool, typer.Option("--all", help="Compact the files of the current month, too.")
    ] = False,
    dry_run: _DryRunOption = False,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """Put the files of each month that is over into few, which are smaller and faster to read.

    Runs may be recorded and read meanwhile. Exit code: 0 done, 4 where a file could not be read.
    """
    from perfkit.commands.ledger_upkeep import compact_ledger
    from perfkit.report.ledger_upkeep import compaction_view

    place = _existing(ledger)
    with stages() as progress:
        done = compact_ledger(place, also_current=also_current, dry_run=dry_run, progress=progress)
    tell(compaction_view(done), done, json=json)
    sys.exit(done.exit_code)


@_ledger.command(epilog=examples("perfkit ledger verify", "perfkit ledger verify --json -"))
def verify(*, ledger: LedgerOption = None, json: JsonOption = None) -> None:
    """Read every file to the last bit and say all that is wrong; nothing is changed.

    Exit code: 0 all is sound, 4 something is not.
    """
    from perfkit.commands.ledger_upkeep import verify_ledger
    from perfkit.report.ledger_upkeep import verification_view

    # Not as the other commands find it: what was cut off is told here, and not yet recovered.
    place = _untouched(ledger)
    with stages() as progress:
        found = verify_ledger(place, progress=progress)
    tell(verification_view(found), found, json=json)
    sys.exit(found.exit_code)


@_ledger.command(epilog=examples("perfkit ledger repair --dry-run", "perfkit ledger repair"))
def repair(*, dry_run: _DryRunOption = False, ledger: LedgerOption = None, json: JsonOption = None) -> None:
    """Do what can be done about what `verify` finds, without losing a row.

    Damaged and foreign files go into the ledger's hidden folder .quarantine, and none is deleted.
    Exit code: 0 all is sound now, 4 something is left.
    """
    from perfkit.commands.ledger_upkeep import repair_ledger
    from perfkit.report.ledger_upkeep import repair_view

    place = _untouched(ledger)
    with stages() as progress:
        done = repair_ledger(place, dry_run=dry_run, progress=progress)
    tell(repair_view(done), done, json=json)
    sys.exit(done.exit_code)


@_ledger.command(
    epilog=examples(
        "perfkit ledger merge ../other/benchmarks/ledger", "perfkit ledger merge s3://bucket/path --dry-run"
    )
)
def merge(
    other: str, *, dry_run: _DryRunOption = False, ledger: LedgerOption = None, json: JsonOption = None
) -> None:
    """Copy the runs, notes, acceptances and states of the ledger OTHER that are not here; OTHER is only read.

    Exit code: 0 done, 4 where a file of OTHER could not be taken over.
    """
    from perfkit.commands.ledger_upkeep import merge_ledgers
    from perfkit.config import is_url, load_project
    from perfkit.ledger.remote import ledger_folder
    from perfkit.report.ledger_upkeep import merge_view

    named = ledger or load_project(Path.cwd()).ledger_place
    # A folder that is not there was mistyped; a ledger in a store begins with its first file.
    place = ledger_at(named, to_read=not is_url(named))
    theirs = ledger_folder(other)
    with stages() as progress:
        done = merge_ledgers(place, theirs, dry_run=dry_run, progress=progress)
    tell(merge_view(done), done, json=json)
    sys.exit(done.exit_code)


def _existing(ledger: str | None) -> Path:
    """Return the ledger to read: reading one that is not there is a mistake, writing one begins it."""
    from perfkit.config import load_project

    return ledger_at(ledger or load_project(Path.cwd()).ledger_place, to_read=True)


def _untouched(place: str | Path | None) -> Path:
    """Return the folder of a ledger that is there, without recovering what was cut off.

    Raises:
        UsageError: there is no such ledger.
        LedgerError: the store cannot be read.
    """
    from perfkit.config import load_project
    from perfkit.ledger.remote import existing_folder

    return existing_folder(place if place is not None else load_project(Path.cwd()).ledger_place)
