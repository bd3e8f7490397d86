"""``perfkit bisect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, text_step
from perfkit.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit bisect v1.2 HEAD --benchmark bench_losses.py::test_triplet",
            "perfkit bisect HEAD~64 HEAD --benchmark test_triplet --budget 600",
            "perfkit bisect HEAD~64 HEAD --benchmark test_triplet --metric syncs",
            "perfkit bisect main~200 main --benchmark test_step --metric allocations --all-parents",
            "perfkit bisect v1.2 HEAD --benchmark test_triplet --engine dask://scheduler:8786",
            "perfkit bisect --from-history 4f0ee3ba --markdown found.md",
            "perfkit bisect --base-with old.lock --head-with new.lock --benchmark test_triplet",
        )
    )(bisect)


def bisect(
    good: Annotated[
        str | None, typer.Argument(metavar="GOOD", help="The older commit, before the change.")
    ] = None,
    bad: Annotated[str | None, typer.Argument(metavar="BAD", help="A later one, after the change.")] = None,
    *,
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", metavar="ID", help="A node id, or the end of one.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="What changed: time, or a counter such as operators, allocations or syncs.")
    ] = "time",
    from_history: Annotated[
        str | None,
        typer.Option(
            metavar="POINT", help="Take range, benchmark and metric from a change point of `perfkit history`."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="How probable the found commit has to be.", metavar="SHARE")
    ] = 0.95,
    budget: Annotated[
        float, options.seconds_option("How long the search may take; it can be continued.")
    ] = 1200.0,
    all_parents: Annotated[
        bool, typer.Option("--all-parents", help="Look into merges, too; each is one commit otherwise.")
    ] = False,
    base_with: options.BaseWithOption = None,
    head_with: options.HeadWithOption = None,
    engine: options.EngineOption = "local",
    machine: options.MachineOption = None,
    clone: options.CloneOption = None,
    wait: options.WaitOption = None,
    repo: options.RepoOption = None,
    markdown: Annotated[
        Path | None, options.output_option("Write the result as markdown.", "--markdown")
    ] = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Find the commit between GOOD and BAD that made a benchmark slower, or faster; or the package.

    Pairs of commits are interleaved until one commit is probable enough; commits that cannot be built or
    lack the benchmark are skipped. If stopped, the same command continues. Exit code: 0 found, or no change
    between both ends, 3 undecided, 4 nothing can be measured.
    """
    from perfkit.commands.bisect import BisectRequest, PackagesRequest, run_bisect, run_package_bisect
    from perfkit.commands.tasks import EngineChoice
    from perfkit.report.bisect import (
        BisectLine,
        bisection_markdown,
        bisection_view,
        packages_markdown,
        packages_view,
    )

    options.check_rates(alpha=None, budget=budget)
    if not 0.5 <= confidence < 1:  # noqa: PLR2004 (below a half, no commit need be the likeliest)
        raise UsageError(f"--confidence must be at least 0.5 and below 1, found {confidence:g}")
    project = options.project_in(repo)
    place = options.ledger_at(ledger or project.ledger_place)
    if base_with or head_with:
        given = {
            "GOOD": good,
            "--from-history": from_history,
            "--all-parents": all_parents,
            "--engine": engine != "local",
            "--metric": metric != "time",
        }
        for name, is_given in given.items():
            if is_given:
                raise UsageError(
                    f"{name} is for ranges of commits; leave it or --base-with and --head-with out"
                )
        wanted = PackagesRequest(
            wanted={"base": base_with or [], "head": head_with or []},
            benchmark=benchmark,
            confidence=confidence,
            budget_s=budget,
            ledger=place,
            wait_s=wait,
        )
        with BisectLine(enabled=not options.is_quiet()) as progress:
            found = run_package_bisect(wanted, project=project, progress=progress)
        write = text_step(markdown, lambda: packages_markdown(found), "--markdown")
        emit(packages_view(found), found, json=json, then=(write,))
        sys.exit(found.exit_code)
    request = BisectRequest(
        good=good,
        bad=bad,
        benchmark=benchmark,
        point=from_history,
        metric="allocated" if metric == "allocations" else metric,
        confidence=confidence,
        budget_s=budget,
        all_parents=all_parents,
        ledger=place,
        wait_s=wait,
        engine=EngineChoice(url=engine, machines=tuple(machine or ()), address=clone),
    )
    with BisectLine(enabled=not options.is_quiet()) as progress:
        report = run_bisect(request, project=project, progress=progress)

    write = text_step(markdown, lambda: bisection_markdown(report), "--markdown")
    emit(bisection_view(report), report, json=json, then=(write,))
    sys.exit(report.exit_code)
