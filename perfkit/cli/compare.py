"""``perfkit compare``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit compare v1.2 HEAD",
            "perfkit compare HEAD~5 HEAD --margin 5%",
            "perfkit compare main feature --json - | jq .exit_code",
        )
    )(compare)


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A commit that the ledger has times of.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="Another one; ratios are head / base.")],
    *,
    margin: options.MarginOption = None,
    alpha: options.AlphaOption = None,
    repo: options.RepoOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Compare two commits by the runs that the ledger already has; nothing is measured.

    Each commit needs three sessions, an hour or more apart; intervals are widened by how much these differ.
    Exit code: 0 pass, 1 regressed, 3 inconclusive, 4 something has no times.
    """
    from perfkit.commands.compare import run_compare
    from perfkit.report.gate.terminal import compare_decision, compare_view

    options.check_rates(alpha=alpha)
    project = options.project_in(repo)
    share, place = options.margin_share(margin), options.ledger_at(ledger or project.ledger_place)
    with stages(only_drawn=True) as progress:
        progress.info("reading the ledger")
        report = run_compare(base, head, margin=share, alpha=alpha, ledger=place, project=project)
    emit(compare_view(report), report, json=json, verdict=compare_decision(report))
    sys.exit(report.exit_code)
