"""``perfkit gate``, ``check`` and ``accept``."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.choices import FailOn, Inconclusive, RulesOf, Uncovered
from perfkit.cli import options
from perfkit.cli.output import emit, text_step
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.commands.gate import Gated
    from perfkit.model import Side
if TYPE_CHECKING:
    from perfkit.commands.accept import Accepted


_MarkdownOption = Annotated[
    Path | None, options.output_option("Write a comment for a pull request.", "--markdown")
]
_VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show every benchmark, count and note, not the 25 main lines.")
]
# Options that contradict each other.
_CONTRADICTIONS = (
    ("--target", "--benchmarks"),
    ("--target", "--select"),
    ("--plan", "--exact-only"),
    ("--plan", "--instructions"),
    ("--fail-fast", "--exact-only"),
    ("--against-release", "--against"),
    *itertools.product(("--base-with", "--head-with"), ("--against", "--against-release", "--plan")),
)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(
        epilog=options.examples(
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
        )
    )(gate)
    app.command(
        epilog=options.examples(
            'perfkit accept bench_loss.py::test_loss --reason "Exact distances cost 4 %, wanted"',
            'perfkit accept test_sort --reason "Gone with its feature" --commit HEAD~1',
            'git commit -m "Compute exact distances" '
            '--trailer "Perf-Accept: bench_loss.py::test_loss: Exact distances cost 4 %, wanted"',
        )
    )(accept)
    app.command(
        epilog=options.examples(
            "perfkit check",
            "perfkit check --select 'loss and not slow' --json - --quiet",
            "perfkit check --base main --budget 120",
        )
    )(check)


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
    base_with: options.BaseWithOption = None,
    head_with: options.HeadWithOption = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="Compare head with this release as well, with a budget and a verdict of its own.",
        ),
    ] = None,
    against_release: Annotated[
        bool, typer.Option("--against-release", help="As --against, with the last tag before HEAD.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Compare this alone, without any benchmark file: a script (with its arguments, in quotes),"
            " package.module:function, or a configured name.",
        ),
    ] = None,
    benchmarks: options.BenchmarksOption = None,
    select: options.SelectOption = None,
    margin: options.MarginOption = None,
    alpha: options.AlphaOption = None,
    budget: Annotated[
        float | None,
        options.seconds_option(
            "For the whole gate, set-up included (default: 20 for each benchmark, 60 to 240 in all)."
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="margin|proven",
            help="Fail what is slower by more than the margin, or (proven) what is proven to be slower by"
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
    time_all: Annotated[
        bool,
        typer.Option("--time-all", help="Time benchmarks that run the same code on both sides as well."),
    ] = False,
    uncovered: Annotated[
        str | None,
        typer.Option(
            metavar="note|fail",
            help="What becomes of a gate where no timed call runs some changed function: a line in the"
            " report, or exit code 4 (default: note).",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="End with exit code 4 where the change edits how it is measured, until a person accepts"
            " measuring.",
        ),
    ] = False,
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
    wait: options.WaitOption = None,
    repo: options.RepoOption = None,
    seed: Annotated[int, options.seed_option("Draws the order of launches and sides.")] = 0,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Time nothing: show which slowdown the gate would find in its budget."),
    ] = False,
    from_ledger: Annotated[str | None, typer.Option(hidden=True)] = None,
    verbose: _VerboseOption = False,
    markdown: _MarkdownOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Compare two versions of the code: may the change be merged, at known error rates?

    Both sides take turns in lockstep, launch after launch, until every benchmark is decided or the budget
    is spent. Exit code: 0 pass, 1 regressed, 3 inconclusive, 4 something could not be measured.
    """
    from perfkit.commands.gate import GateRequest, last_release, plan_gates, run_gates
    from perfkit.gating.design import Terms
    from perfkit.gating.sides import target_benchmark
    from perfkit.report.gate.plan import plan_markdown, plan_view
    from perfkit.report.gate.terminal import GateProgress

    if from_ledger is not None:
        raise UsageError(f"--from-ledger is a command now: `perfkit ledger judge {from_ledger}`")
    options.check_rates(alpha=alpha, budget=budget)
    environments: dict[Side, list[str]] = {"base": base_with or [], "head": head_with or []}
    given = {
        "--against": bool(against) or (against_release and against is not None),
        "--against-release": against_release,
        "--base-with": bool(base_with),
        "--benchmarks": benchmarks is not None,
        "--exact-only": exact_only,
        "--fail-fast": fail_fast,
        "--head-with": bool(head_with),
        "--instructions": instructions,
        "--plan": plan,
        "--select": select is not None,
        "--target": target is not None,
    }
    for one, other in _CONTRADICTIONS:
        if given[one] and given[other]:
            raise UsageError(f"{one} and {other} contradict each other; leave one of them out")
    project = options.project_in(repo)
    # A whole run may take long, and measuring ends once it is decided.
    whole_budget = project.config.gate.most_seconds if target is not None else None
    terms = Terms(
        margin=options.margin_share(margin),
        alpha=alpha,
        budget_s=whole_budget if budget is None else budget,
        fail_on=options.chosen(fail_on, FailOn, "--fail-on"),
        inconclusive=options.chosen(inconclusive, Inconclusive, "--inconclusive"),
        fail_fast=fail_fast,
    )
    if against_release:
        against = last_release(project)

    request = GateRequest(
        base=base,
        head=head,
        benchmarks=benchmarks,
        select=select,
        terms=terms,
        ledger=options.ledger_at(ledger or project.ledger_place),
        seed=seed,
        exact_only=exact_only,
        instructions=instructions,
        wait_s=wait,
        environments=environments,
        rules=options.chosen(rules, RulesOf, "--rules") or "base",
        time_all=time_all,
        strict=strict,
        uncovered=options.chosen(uncovered, Uncovered, "--uncovered") or "note",
        target=None if target is None else target_benchmark(target, project, folder=Path.cwd()),
    )
    with GateProgress(enabled=not options.is_quiet()) as progress:
        if plan:
            planned = plan_gates(request, against, project=project, progress=progress)
        else:
            gated = run_gates(request, against, project=project, progress=progress)
    if plan:
        write = text_step(markdown, lambda: plan_markdown(planned), "--markdown")
        emit(plan_view(planned), planned, json=json, then=(write,))
        return
    _show(gated, verbose=verbose, markdown=markdown, json=json)


def register_judge(app: typer.Typer) -> None:
    """Add the verb of the ledger that judges a gate anew."""
    app.command(
        epilog=options.examples(
            "perfkit ledger judge 3f2a", "perfkit ledger judge 3f2a --markdown comment.md"
        )
    )(judge)


def judge(
    run: str,
    *,
    repo: options.RepoOption = None,
    verbose: _VerboseOption = False,
    markdown: _MarkdownOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Judge the kept launches of a gate anew, by the rules it was measured under; nothing is measured.

    RUN is the beginning or the end of its id. Exit code: that of the gate.
    """
    from perfkit.commands.gate import judge_run

    project = options.project_in(repo)
    gated = judge_run(run, ledger=options.ledger_at(ledger or project.ledger_place), project=project)
    _show(gated, verbose=verbose, markdown=markdown, json=json)


def _show(gated: Gated, *, verbose: bool, markdown: Path | None, json: str | None) -> None:
    """Print a gate's report, write what was asked for, and end with its exit code."""
    from perfkit.report.gate.decision import both_sentence
    from perfkit.report.gate.markdown import render_comment
    from perfkit.report.gate.terminal import gate_view

    report = gated.report
    emit(
        gate_view(report, verbose=verbose),
        report,
        json=json,
        verdict=None if report.against is None else both_sentence(report),
        then=(text_step(markdown, lambda: render_comment(report), "--markdown"),),
        unrecorded=gated.unrecorded,
        code=gated.exit_code,
        failure=gated.failure,
    )
    sys.exit(gated.exit_code)


def accept(
    benchmark: Annotated[str, typer.Argument(help="Its node id, or as much of the end as names one.")],
    *,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="Why it may pass; shown by every gate it lets pass."),
    ],
    commit: Annotated[str, typer.Option("--commit", metavar="REF", help="The gate's head.")] = "HEAD",
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Let one finding that a gate listed pass, in later gates of its commit or of the same edits.

    The newest gate of the commit counts. Another kind of finding, or a clearly worse regression, still fails.
    The trailer "Perf-Accept: BENCHMARK: reason" in a commit's message accepts all findings of that benchmark;
    " -- " may stand for the second ": ".
    """
    from perfkit.commands.accept import accept_finding
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    kept = accept_finding(
        project=project,
        ledger=options.ledger_at(ledger or project.ledger_place, to_read=True),
        benchmark=benchmark,
        reason=reason,
        ref=commit,
    )
    emit(_sentence(kept), kept.acceptance, json=json)


def _sentence(kept: Accepted) -> str:
    from perfkit.ledger.remote import mirrored_url, shown_place

    acceptance = kept.acceptance
    ratio = f" ×{acceptance.ratio:.3f}" if acceptance.ratio else ""
    bound = ", for the uncommitted changes that the gate measured" if acceptance.diff_hash else ""
    if acceptance.code:
        bound += " and for a commit of the same code"
    shared = mirrored_url(kept.file.parent.parent)
    place = (
        f"{shown_place(kept.file)}: later gates on that ledger read it"
        if shared
        else f"{kept.file}: commit this file with your code, so that later gates read it"
    )
    alone = (
        "\nIt holds for those changes alone, which are not here as they were measured: once you have"
        " committed, run `perfkit gate` and accept what that finds."
        if acceptance.diff_hash and not acceptance.code
        else ""
    )
    what = "counters of " if acceptance.of_counts_alone else ""
    text = f"accepted {what}{acceptance.benchmark}: {acceptance.verdict}{ratio}{bound}: {acceptance.text}"
    if acceptance.of_counts_alone:
        text += "; its time is not covered"
    return f"{text}\n{place}{alone}"


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
