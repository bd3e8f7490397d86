"""``perfkit ledger``."""

from __future__ import annotations

from pathlib import Path

import typer

from perfkit.cli import ledger_exchange
from perfkit.cli.options import JsonOption, LedgerOption, examples, ledger_at
from perfkit.cli.output import tell

_ledger = typer.Typer(
    no_args_is_help=True,
    help="Look at the measurements kept in the ledger.",
    epilog=examples("perfkit ledger list", "perfkit ledger show 4f0ee3ba4b6c"),
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    ledger_exchange.register(_ledger)
    app.add_typer(_ledger, name="ledger")


@_ledger.command("list", epilog=examples("perfkit ledger list", "perfkit ledger list --json -"))
def list_(*, ledger: LedgerOption = None, json: JsonOption = None) -> None:
    """List the runs, newest last."""
    from perfkit.jobs.ledger import list_runs
    from perfkit.views.ledger_tables import runs_table

    runs = list_runs(_existing(ledger))
    tell(runs_table(runs), runs, json=json)


@_ledger.command(
    "show", epilog=examples("perfkit ledger show 4f0ee3ba4b6c", "perfkit ledger show 0199 --json run.json")
)
def show_(run: str, *, ledger: LedgerOption = None, json: JsonOption = None) -> None:
    """Show what one run measured; RUN is the beginning or the end of its id."""
    from perfkit.jobs.ledger import show_run
    from perfkit.views.ledger_tables import rows_table

    rows = show_run(_existing(ledger), run)
    tell(rows_table(rows), rows, json=json)


def _existing(ledger: Path | None) -> Path:
    """Return the ledger to read: reading one that is not there is a mistake, writing one begins it."""
    from perfkit import open_ledger

    return ledger_at(open_ledger(ledger).path)
