"""``perfkit ledger pull`` and ``push``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import LedgerOption, examples, ledger_at
from perfkit.cli.output import show, stages
from perfkit.errors import UsageError

_BRANCH = "perfkit-ledger"
_BranchOption = Annotated[
    str, typer.Option("--branch", metavar="NAME", help="The branch that has the ledger and nothing else.")
]
_RemoteOption = Annotated[str, typer.Option("--remote", metavar="NAME", help="Where the branch is.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("pull", epilog=examples("perfkit ledger pull", "perfkit ledger pull --branch measured"))(pull)
    app.command("push", epilog=examples("perfkit ledger push", "perfkit ledger push --branch measured"))(push)


def pull(
    *, branch: _BranchOption = _BRANCH, remote: _RemoteOption = "origin", ledger: LedgerOption = None
) -> None:
    """Bring the ledger's files from a branch of its own; no branch yet is no mistake."""
    from perfkit.commands.ledger_branch import pull_ledger
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    place = _folder(ledger or project.ledger_place)
    with stages(only_drawn=True) as progress:
        progress.info(f"fetching {branch} of {remote}")
        told = pull_ledger(project, place, branch=branch, remote=remote)
    show(told)


def push(
    *, branch: _BranchOption = _BRANCH, remote: _RemoteOption = "origin", ledger: LedgerOption = None
) -> None:
    """Add the ledger's files to a branch of its own; what another job added meanwhile stays."""
    from perfkit.commands.ledger_branch import push_ledger
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    place = _folder(ledger or project.ledger_place)
    if place.is_dir():
        # What a killed command has staged goes with the machine otherwise: a branch has whole files alone.
        ledger_at(place)
    with stages(only_drawn=True) as progress:
        progress.info(f"pushing to {branch} of {remote}")
        told = push_ledger(project, place, branch=branch, remote=remote)
    show(told)


def _folder(place: str | Path) -> Path:
    """Return the folder of a ledger.

    Raises:
        UsageError: it is a store, which many machines share by itself.
    """
    from perfkit.config import is_url

    if is_url(place):
        raise UsageError(f"the ledger is in a store, {place}, which needs no branch: leave this step out")
    return Path(place)
