"""``perfkit check``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit check",
            "perfkit check --select 'loss and not slow' --json - --quiet",
            "perfkit check --base main --budget 120",
        )
    )(check)


def check(
    *,
    base: Annotated[
        str | None, typer.Option(metavar="REF|DIR", help="Default: as `perfkit gate` chooses it.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Compare this alone, as `perfkit gate --target`.")
    ] = None,
    select: options.SelectOption = None,
    budget: Annotated[float | None, options.seconds_option("For the whole check (default: 30).")] = None,
    repo: options.RepoOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Answer in eight lines: did this change make it faster, and are its results the same?

    It is a short gate of the working tree, or of HEAD. Exit code: that of the gate.
    """
    from perfkit.commands.check import DEFAULT_BUDGET_S, check_lines, summarise
    from perfkit.commands.gate import GateRequest, run_gates
    from perfkit.errors import UsageError
    from perfkit.gating.design import Terms
    from perfkit.gating.sides import target_benchmark
    from perfkit.report.gate.terminal import GateProgress

    options.check_rates(alpha=None, budget=budget)
    if target is not None and select is not None:
        raise UsageError("--target and --select contradict each other; leave one of them out")
    project = options.project_in(repo)
    request = GateRequest(
        base=base,
        head=None,
        benchmarks=None,
        select=select,
        terms=Terms(budget_s=budget or DEFAULT_BUDGET_S),
        ledger=options.ledger_at(ledger or project.ledger_place),
        seed=0,
        target=None if target is None else target_benchmark(target, project, folder=Path.cwd()),
    )
    with GateProgress(enabled=not options.is_quiet()) as progress:
        gated = run_gates(request, "", project=project, progress=progress)
    given = (("--base", base), ("--target", target), ("--select", select))
    again = " ".join(["perfkit check", *(f"{name} {shlex.quote(text)}" for name, text in given if text)])
    found = summarise(gated.report, code=gated.exit_code, again=again)
    emit(
        "\n".join(check_lines(found)),
        found,
        json=json,
        unrecorded=gated.unrecorded,
        code=gated.exit_code,
        failure=gated.failure,
        indent=0,
    )
    sys.exit(gated.exit_code)
