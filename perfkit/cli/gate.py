"""``perfkit gate``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.choices import FailOn, Inconclusive, RulesOf
from perfkit.cli.options import (
    AlphaOption,
    BenchmarksOption,
    JsonOption,
    LedgerOption,
    MarginOption,
    RepoOption,
    SelectOption,
    WaitOption,
    check_rates,
    chosen,
    examples,
    is_quiet,
    ledger_at,
    margin_share,
    output_option,
    project_in,
    seed_option,
)
from perfkit.cli.output import tell
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.model import Side


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit gate",
            "perfkit gate --base v1.2 --margin 1% --markdown comment.md",
            "perfkit gate --base HEAD~3 --select 'loss and not slow' --json gate.json",
            "perfkit gate --base ../before --head ../after --benchmarks tests/test_speed.py",
            "perfkit gate --fail-on proven --fail-fast",
            "perfkit gate --inconclusive pass --budget 120",
            "perfkit gate --inconclusive 'go on'",
            "perfkit gate --target 'train.py --epochs 1'",
            "perfkit gate --target package.module:function --exact-only",
            "perfkit gate --exact-only",
            "perfkit gate --exact-only --instructions --select collate",
            "perfkit gate --against v1.2",
            "perfkit gate --against-release",
            "perfkit gate --plan --budget 600",
            "perfkit gate --base-with torch==2.12.1 --head-with torch==2.13.0",
            "perfkit gate --from-ledger 3f2a",
        )
    )(gate)


def gate(
    *,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REF|DIR",
            help="Default: where head left the main branch, or head's parent on the main branch itself.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="REF|DIR|worktree", help="Default: HEAD, or the working tree when its code has changes."
        ),
    ] = None,
    base_with: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REQUIREMENT|FILE|DIR",
            help="Measure base with this package (torch==2.12.1), file of requirements or lock, or existing"
            " environment; may be given often. Both sides are then the same commit, unless they are named.",
        ),
    ] = None,
    head_with: Annotated[
        list[str] | None,
        typer.Option(metavar="REQUIREMENT|FILE|DIR", help="The same for head (default: as it is here)."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="Compare head with this release as well, with a budget and a verdict of its own.",
        ),
    ] = None,
    against_release: Annotated[
        bool,
        typer.Option("--against-release", help="As --against, with the last tag before HEAD."),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Compare this alone, without any benchmark file: a script (with its arguments, in quotes),"
            " package.module:function, or a configured name.",
        ),
    ] = None,
    benchmarks: BenchmarksOption = None,
    select: SelectOption = None,
    margin: MarginOption = None,
    alpha: AlphaOption = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="For the whole gate, set-up included (default: 20 for each benchmark, 60 to 240 in all).",
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="margin|proven",
            help="Fail what is slower by more than the margin, or (proven) whatever is proven to be slower by"
            " more than neutral changes cost; undecided benchmarks then pass (default: margin).",
        ),
    ] = None,
    inconclusive: Annotated[
        str | None,
        typer.Option(
            metavar="fail|pass|'go on'",
            help="What becomes of a benchmark that the budget leaves undecided: exit code 3, or 0, or it is"
            " measured past the budget (default: fail).",
        ),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="base|head",
            help="Whose pyproject.toml and markers decide: base's, so that no change judges itself, or (on"
            " one's own machine) head's (default: base).",
        ),
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop measuring at the first benchmark that REGRESSED.")
    ] = False,
    exact_only: Annotated[
        bool, typer.Option("--exact-only", help="Time nothing: count what repeats to the digit.")
    ] = False,
    instructions: Annotated[
        bool,
        typer.Option(
            "--instructions",
            help="Count the instructions of each benchmark, too, by Valgrind's callgrind: minutes for each.",
        ),
    ] = False,
    wait: WaitOption = None,
    repo: RepoOption = None,
    seed: Annotated[int, seed_option("Draws the order of launches and sides.")] = 0,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Time nothing: say which slowdown the gate would find in its budget."),
    ] = False,
    from_ledger: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Measure nothing: judge the kept launches of a run anew."),
    ] = None,
    markdown: Annotated[
        Path | None, output_option("Write a comment for a pull request.", "--markdown")
    ] = None,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """Compare two versions of the code, and say with known error rates whether the change may be merged.

    Both sides take turns in lockstep, launch after launch, until every benchmark is decided or the budget
    is spent. Exit code: 0 pass, 1 regressed, 3 inconclusive, 4 something could not be measured.
    """
    from perfkit.commands.gate import Gated, GateRequest, last_release, plan_gates, run_gates
    from perfkit.commands.text_files import replace_text
    from perfkit.gating.design import Terms
    from perfkit.report.gate.decision import both_sentence
    from perfkit.report.gate.live import GateProgress
    from perfkit.report.gate.markdown import render_comment
    from perfkit.report.gate.plan import plan_markdown, plan_view
    from perfkit.report.gate.table import gate_view

    check_rates(alpha=alpha, budget=budget)
    environments: dict[Side, list[str]] = {"base": base_with or [], "head": head_with or []}
    with_packages = {f"--{side}-with": bool(wanted) for side, wanted in environments.items()}
    _refuse_together(
        *(
            {option: given, "--from-ledger": from_ledger is not None}
            for option, given in {
                "--target": target is not None,
                "--plan": plan,
                "--against": bool(against),
                "--against-release": against_release,
                **with_packages,
                "--base": base is not None,
                "--head": head is not None,
                "--benchmarks": benchmarks is not None,
                "--select": select is not None,
                "--margin": margin is not None,
                "--alpha": alpha is not None,
                "--budget": budget is not None,
                "--exact-only": exact_only,
                "--instructions": instructions,
                "--seed": seed != 0,
            }.items()
        ),
        {"--target": target is not None, "--benchmarks": benchmarks is not None},
        {"--target": target is not None, "--select": select is not None},
        {"--plan": plan, "--exact-only": exact_only},
        {"--plan": plan, "--instructions": instructions},
        {"--fail-fast": fail_fast, "--exact-only": exact_only},
        {"--against-release": against_release, "--against": against is not None},
        *(
            {option: given, other: bool(value)}
            for option, given in with_packages.items()
            for other, value in (
                ("--against", against),
                ("--against-release", against_release),
                ("--plan", plan),
            )
        ),
    )
    project = project_in(repo)
    # A whole run may take long, and measuring ends once it is decided.
    whole_budget = project.config.gate.most_seconds if target is not None else None
    terms = Terms(
        margin=margin_share(margin),
        alpha=alpha,
        budget_s=whole_budget if budget is None else budget,
        fail_on=chosen(fail_on, FailOn, "--fail-on"),
        inconclusive=chosen(inconclusive, Inconclusive, "--inconclusive"),
        fail_fast=fail_fast,
    )
    place = ledger_at(ledger or project.ledger_place)
    if against_release:
        against = last_release(project)

    def write(text: str) -> None:
        if markdown is not None:
            replace_text(markdown, text, option="--markdown")

    if from_ledger is not None:
        from perfkit.commands.past import with_past
        from perfkit.gating.recompute import recompute_gate

        if fail_on or inconclusive or fail_fast or rules:
            raise UsageError(
                "--from-ledger judges a run by the rules that it was measured under:"
                " leave --fail-on, --inconclusive, --fail-fast and --rules out"
            )
        report = recompute_gate(from_ledger, ledger=place, project=project)
        report = with_past(report, ledger=place, root=project.root)
        gated = Gated(report=report, exit_code=report.exit_code)
    else:
        from perfkit.gating.sides import target_benchmark

        request = GateRequest(
            base=base,
            head=head,
            benchmarks=benchmarks,
            select=select,
            terms=terms,
            ledger=place,
            seed=seed,
            exact_only=exact_only,
            instructions=instructions,
            wait_s=wait,
            environments=environments,
            rules=chosen(rules, RulesOf, "--rules") or "base",
            target=None if target is None else target_benchmark(target, project, folder=Path.cwd()),
        )
        with GateProgress(enabled=not is_quiet()) as progress:
            if plan:
                planned = plan_gates(request, against, project=project, progress=progress)
            else:
                gated = run_gates(request, against, project=project, progress=progress)
    if plan:
        tell(plan_view(planned), planned, json=json, then=(lambda: write(plan_markdown(planned)),))
        return
    report = gated.report
    tell(
        gate_view(report),
        report,
        json=json,
        verdict=None if report.against is None else both_sentence(report),
        then=(lambda: write(render_comment(report)),),
        unrecorded=gated.unrecorded,
        code=gated.exit_code,
        failure=gated.failure,
    )
    sys.exit(gated.exit_code)


def _refuse_together(*pairs: Mapping[str, bool]) -> None:
    """Refuse options that contradict each other, each pair with whether it was given.

    Raises:
        UsageError: both of a pair were.
    """
    for pair in pairs:
        if all(pair.values()):
            raise UsageError(f"{' and '.join(pair)} contradict each other; leave one of them out")
