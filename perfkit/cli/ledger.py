"""``perfkit ledger``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import gate, options
from perfkit.cli.output import emit, show, stages
from perfkit.errors import UsageError
from perfkit.extensions import commands_of

_DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]
# The names of older versions, and what to call instead.
_RENAMED = {"verify": "check", "repair": "check --fix", "pull": "sync --pull-only", "push": "sync"}

_ledger = typer.Typer(
    no_args_is_help=True,
    help="List, check and share recorded measurements.",
    epilog=options.examples("perfkit ledger list", "perfkit ledger show 4f0ee3ba", "perfkit ledger check"),
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    for module in dict.fromkeys(command.module for command in commands_of("ledger")):
        importlib.import_module(module).register(_ledger)
    for name in _RENAMED:
        _ledger.command(
            name,
            hidden=True,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            add_help_option=False,
        )(_refuse_old_name)
    gate.register_judge(_ledger)
    app.add_typer(_ledger, name="ledger")


def _refuse_old_name(context: typer.Context) -> None:
    """Name the command that replaces this one."""
    old = context.info_name or ""
    raise UsageError(f"`perfkit ledger {old}` is now `perfkit ledger {_RENAMED[old]}`")


@_ledger.command(
    "list",
    epilog=options.examples(
        "perfkit ledger list", "perfkit ledger list --last 0", "perfkit ledger list --json -"
    ),
)
def list_(
    *,
    last: Annotated[int, typer.Option(min=0, help="How many runs to print, 0 for all; JSON has all.")] = 100,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """List the runs, newest last."""
    from perfkit.commands.ledger import list_runs
    from perfkit.report.ledger import runs_table
    from perfkit.units import counted

    place = options.ledger_at(_place(ledger), to_read=True)
    with stages(only_drawn=True) as progress:
        progress.info("reading the ledger")
        runs = list_runs(place)
    emit(runs_table(runs, last=last), runs, json=json, verdict=counted(len(runs), "run"))


@_ledger.command(
    "show",
    epilog=options.examples("perfkit ledger show 4f0ee3ba", "perfkit ledger show 0199 --json run.json"),
)
def show_(run: str, *, ledger: options.LedgerOption = None, json: options.JsonOption = None) -> None:
    """Show what one run measured; RUN is the beginning or the end of its id."""
    from perfkit.commands.ledger import show_run
    from perfkit.report.ledger import rows_sentence, rows_view

    rows = show_run(options.ledger_at(_place(ledger), to_read=True), run)
    emit(rows_view(rows), rows, json=json, verdict=rows_sentence(rows))


@_ledger.command(
    epilog=options.examples(
        "perfkit ledger check", "perfkit ledger check --fix --dry-run", "perfkit ledger check --fix"
    )
)
def check(
    *,
    fix: Annotated[
        bool, typer.Option("--fix", help="Also fix what can be fixed without losing a row.")
    ] = False,
    dry_run: _DryRunOption = False,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Read every file to the last bit and list all problems; nothing is changed without --fix.

    --fix recovers runs that were cut off and moves damaged files and files of other programs into the
    ledger's hidden folder .quarantine; no row is lost. Exit code: 0 all is sound, 4 a problem is left.
    """
    from perfkit.commands.ledger import check_ledger, fix_ledger
    from perfkit.ledger.remote import existing_folder
    from perfkit.report.ledger import repair_view, verification_view

    if dry_run and not fix:
        raise UsageError("--dry-run goes with --fix: without it nothing is changed")
    # Not ledger_at: runs that were cut off are listed as problems, so they must not be recovered first.
    place = existing_folder(_place(ledger))
    with stages() as progress:
        if not fix:
            found = check_ledger(place, progress=progress)
        else:
            fixed = fix_ledger(place, dry_run=dry_run, progress=progress)
    if not fix:
        emit(verification_view(found), found, json=json)
        sys.exit(found.exit_code)
    emit(repair_view(fixed), fixed, json=json)
    sys.exit(fixed.exit_code)


@_ledger.command(
    epilog=options.examples(
        "perfkit ledger compact --dry-run", "perfkit ledger compact", "perfkit ledger compact --all --json -"
    )
)
def compact(
    *,
    also_current: Annotated[
        bool, typer.Option("--all", help="Compact the files of the current month, too.")
    ] = False,
    dry_run: _DryRunOption = False,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Merge the files of each past month into a few that are smaller and faster to read.

    Runs may be recorded and read meanwhile. Exit code: 0 done, 4 where a file could not be read.
    """
    from perfkit.commands.ledger import compact_ledger
    from perfkit.report.ledger import compaction_view

    place = options.ledger_at(_place(ledger), to_read=True)
    with stages() as progress:
        done = compact_ledger(place, also_current=also_current, dry_run=dry_run, progress=progress)
    emit(compaction_view(done), done, json=json)
    sys.exit(done.exit_code)


@_ledger.command(
    epilog=options.examples(
        "perfkit ledger merge ../other/benchmarks/ledger", "perfkit ledger merge s3://bucket/path --dry-run"
    )
)
def merge(
    other: str,
    *,
    dry_run: _DryRunOption = False,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Copy the runs, notes, acceptances and states that only the ledger OTHER has; OTHER is only read.

    Exit code: 0 done, 4 where a file of OTHER could not be taken over.
    """
    from perfkit.commands.ledger import merge_ledgers
    from perfkit.config import is_url
    from perfkit.ledger.remote import ledger_folder
    from perfkit.report.ledger import merge_view

    named = _place(ledger)
    # A folder that is not there was mistyped; a ledger in a store begins with its first file.
    place = options.ledger_at(named, to_read=not is_url(named))
    theirs = ledger_folder(other)
    with stages() as progress:
        done = merge_ledgers(place, theirs, dry_run=dry_run, progress=progress)
    emit(merge_view(done), done, json=json)
    sys.exit(done.exit_code)


@_ledger.command(
    epilog=options.examples("perfkit ledger sync", "perfkit ledger sync --pull-only --branch measured")
)
def sync(
    *,
    pull_only: Annotated[
        bool, typer.Option("--pull-only", help="Fetch the branch and push nothing.")
    ] = False,
    branch: Annotated[
        str, typer.Option(metavar="NAME", help="The branch that has the ledger and nothing else.")
    ] = "perfkit-ledger",
    remote: Annotated[str, typer.Option(metavar="NAME", help="The remote that has the branch.")] = "origin",
    ledger: options.LedgerOption = None,
) -> None:
    """Exchange the ledger's files with a branch of their own: pull, then push.

    A branch that does not exist yet begins with the first push. What another job added meanwhile stays.
    """
    from perfkit.commands.ledger import pull_ledger, push_ledger
    from perfkit.config import is_url, load_project

    project = load_project(Path.cwd())
    place = ledger or project.ledger_place
    if is_url(place):
        raise UsageError(f"the ledger is in a store, {place}, which needs no branch: leave this step out")
    folder = Path(place)
    with stages(only_drawn=True) as progress:
        progress.info(f"fetching {branch} of {remote}")
        pulled = pull_ledger(project, folder, branch=branch, remote=remote)
    show(pulled)
    if pull_only:
        return
    if folder.is_dir():
        # A branch has whole files only, and what a killed command staged would be lost with a CI machine.
        options.ledger_at(folder)
    with stages(only_drawn=True) as progress:
        progress.info(f"pushing to {branch} of {remote}")
        pushed = push_ledger(project, folder, branch=branch, remote=remote)
    show(pushed)


def _place(ledger: str | None) -> str | Path:
    from perfkit.config import load_project

    return ledger or load_project(Path.cwd()).ledger_place
