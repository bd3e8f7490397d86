"""``perfkit tricks``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit
from perfkit.errors import UsageError
from perfkit.extras import need

# Default budgets, within which most tricks are decided on two cores.
_ALONE_S, _ON_LOOP_S = 240.0, 180.0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit tricks",
            "perfkit tricks --apply-to train --set epochs=2",
            "perfkit tricks train.py --set batches=20 --only channels_last --only adam_fused",
            "perfkit tricks --only channels_last --only item_per_step --sweep",
            "perfkit tricks --only adam_foreach --size 4 --size 64 --size 512",
            "perfkit tricks --from-ledger --markdown docs/tricks.md",
        )
    )(tricks)


def tricks(
    target: Annotated[
        str | None,
        typer.Argument(help="A training loop to try them on too: a configured name, a function or a script."),
    ] = None,
    *,
    apply_to: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Only on this loop, not by themselves.")
    ] = None,
    fixed: options.SetOption = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this trick; may be given often.")
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option(metavar="N", help="At this size; may be given often.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="At all sizes that a trick knows.")] = False,
    margin: options.MarginOption = None,
    alpha: options.AlphaOption = None,
    budget: Annotated[
        float | None,
        options.seconds_option("For all tricks together (default: 240, and 180 on a loop)."),
    ] = None,
    wait: options.WaitOption = None,
    repo: options.RepoOption = None,
    seed: Annotated[int, options.seed_option("Draws the order of launches and sides.")] = 0,
    ledger: options.LedgerOption = None,
    from_ledger: Annotated[
        bool, typer.Option("--from-ledger", help="Show the last run of the ledger; nothing is measured.")
    ] = False,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Show this run of the ledger; nothing is measured.")
    ] = None,
    markdown: options.DocumentOption = None,
    json: options.JsonOption = None,
) -> None:
    """Measure which speed tricks pay on this machine and for a training loop, each against going without.

    Both sides are checked to give the same results and measured interleaved. Exit code: 0 tried, 4 a trick
    failed or its results differ.
    """
    # Even to show what was recorded, the catalogue is read, whose tricks are code for torch.
    need("torch", by="perfkit tricks")
    from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS
    from perfkit.features.experiments.definition import parse_level
    from perfkit.features.tricks.command import (
        TricksRequest,
        codes,
        recorded_tricks,
        run_tricks,
        write_document,
    )
    from perfkit.features.tricks.report import counts_sentence, tricks_view
    from perfkit.report.gate.terminal import GateProgress

    options.check_rates(alpha=alpha, budget=budget)
    if target and apply_to:
        raise UsageError(f'expected one loop, found "{target}" and "{apply_to}"; leave one of them out')
    if fixed and not (target or apply_to):
        raise UsageError("--set is for a loop's arguments; name the loop with --apply-to")
    assigned = [options.assignment(text, "--set") for text in fixed or ()]
    project = options.project_in(repo)
    place = options.ledger_at(ledger or project.ledger_place)
    if from_ledger or run is not None:
        report = recorded_tricks(run, ledger=place)
    else:
        request = TricksRequest(
            only=tuple(only or ()),
            sizes=tuple(size or ()),
            sweep=sweep,
            target=apply_to or target,
            arguments={name: parse_level(value) for name, value in assigned},
            by_themselves=apply_to is None,
            margin=options.margin_share(margin),
            alpha=alpha,
            budget_s=budget or (_ON_LOOP_S if target or apply_to else _ALONE_S),
            ledger=place,
            seed=seed,
            wait_s=wait,
        )
        with GateProgress(enabled=not options.is_quiet()) as progress:
            report = run_tricks(request, project=project, progress=progress)

    def write() -> None:
        if markdown is not None:
            write_document(report, markdown)

    emit(
        tricks_view(report, codes(report)),
        report,
        json=json,
        verdict=counts_sentence(report),
        then=(write,),
        unrecorded=report.unrecorded,
    )
    failed = any(one.answer in {"failed", "not the same"} for one in report.results)
    sys.exit(EXIT_NOT_MEASURED if failed else EXIT_PASS)
