"""``perfkit init --for-change``: a benchmark of each changed function that no timed call runs."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath

from perfkit.commands.gate import surveyed_sides
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.init.benchmarks import benchmark_file, with_distinct_imports
from perfkit.features.init.calls import recorded, tried
from perfkit.features.init.files import StartingPlan, benchmark_place, is_collected_by_default, new_file
from perfkit.features.init.layout import read_layout
from perfkit.gating.coverage import cover
from perfkit.gating.sides import Scope
from perfkit.model.comparisons import ChangeCoverage
from perfkit.repo.sides import SidePair, resolve_sides
from perfkit.units import counted

_COMMAND = "perfkit init --for-change"


def plan_for_change(project: Project, base: str | None, *, log: Callable[[str], None]) -> StartingPlan:
    """Return a file that calls what it can as the tests do, and remarks why it does not call the rest."""
    root, layout = project.root, read_layout(project.root)
    pair = resolve_sides(root, base=base, head=None, ignored=project.output_paths)
    coverage = _coverage(project, pair, log)
    left = {(one.file, one.name): one for one in coverage.uncovered}
    calls, otherwise = recorded(root, layout, left, log) if left else ({}, "")
    kept, problems = tried(root, layout, calls)
    remarks = (
        f"`{name}` ({file}:{one.line}): {problems.get((file, name), otherwise)}"
        for (file, name), one in left.items()
        if (file, name) not in kept
    )
    folder = PurePosixPath(project.config.benchmarks.partition("::")[0])
    folder = folder.parent if folder.suffix == ".py" else folder
    stems = itertools.chain(["for_change"], (f"for_change_{number}" for number in itertools.count(2)))
    places = (benchmark_place(layout, folder=str(folder), stem=stem) for stem in stems)
    place = next(place for place in places if not (root / place).exists())
    # One test may call several functions.
    distinct = {one.attempt.body: one for one in kept.values()}
    text = benchmark_file(
        with_distinct_imports([*distinct.values()]),
        project=root.name,
        optional=is_collected_by_default(place, layout),
        command=_COMMAND,
    )
    planned = new_file(root, place, text, why=f"calls {len(kept)} of {counted(len(left), 'function')}")
    every = counted(len(coverage.functions), "changed function")
    return StartingPlan(
        root=str(root),
        found=(f"benchmarks measured {len(coverage.functions) - len(left)} of {every}",),
        files=(planned,) if planned and kept else (),
        remarks=tuple(remarks),
        next_commands=(f"perfkit gate --base {pair.base.commit.sha[:12]} --benchmarks {shlex.quote(place)}",),
    )


def _coverage(project: Project, pair: SidePair, log: Callable[[str], None]) -> ChangeCoverage:
    scope = Scope(benchmarks=None, select=None, seed=0)
    with surveyed_sides(
        pair, project, scope, margin=None, wait_s=None, log=log, stage=log, traced=True
    ) as opened:
        if opened.sides.asv is not None:
            raise UsageError(f"{_COMMAND} writes tests of pytest, and the benchmarks here are asv's")
        compared = (*opened.survey.compared, *opened.survey.numbers)
        found = cover(opened.sides, opened.survey, time_all=True, always=True, log=log).coverage
    if not compared or (found and found.not_traced):
        why = found.not_traced if found else "no benchmark can be compared; `perfkit gate` has the reasons"
        raise NotMeasuredError(f"what the benchmarks run is not known: {why}")
    return found or ChangeCoverage()
