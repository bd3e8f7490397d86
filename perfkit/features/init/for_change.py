"""``perfkit init --for-change``: a benchmark of each changed function that no timed call runs."""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec

from perfkit.commands.gate import surveyed_sides
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.init.benchmarks import benchmark_file, with_distinct_imports
from perfkit.features.init.child import Candidate, FirstBenchmark, Order, Step
from perfkit.features.init.files import StartingPlan, benchmark_place, is_collected_by_default, new_file
from perfkit.features.init.layout import Layout, project_files, read_code, read_layout
from perfkit.features.init.recording import VARIABLE, Call
from perfkit.gating.coverage import cover
from perfkit.gating.sides import Scope
from perfkit.model.comparisons import ChangeCoverage
from perfkit.repo.commits import open_repository
from perfkit.repo.sides import SidePair, resolve_sides
from perfkit.runner.commands import Ending, run_command
from perfkit.runner.requests import ask
from perfkit.temporary import temporary_folder
from perfkit.units import counted

_COMMAND = "perfkit init --for-change"
_RECORDING = "perfkit.features.init.recording"
# So long may tests and each script run, and what they call be tried.
_TESTS_S, _SCRIPT_S, _TRYING_S = 120.0, 30.0, 60.0
# Statuses of pytest: wrong usage, and an error of its own.
_PYTEST_FAILED = (3, 4)
_Key = tuple[str, str]


def plan_for_change(project: Project, base: str | None, *, log: Callable[[str], None]) -> StartingPlan:
    """Return a file that calls what it can as the tests do, and remarks why it does not call the rest."""
    root, layout = project.root, read_layout(project.root)
    pair = resolve_sides(root, base=base, head=None, ignored=project.output_paths)
    coverage = _coverage(project, pair, log)
    left = {(one.file, one.name): one for one in coverage.uncovered}
    calls, otherwise = _recorded(root, layout, left, log) if left else ({}, "")
    kept, problems = _tried(root, layout, calls)
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


def _recorded(
    root: Path, layout: Layout, left: Collection[_Key], log: Callable[[str], None]
) -> tuple[Mapping[_Key, Sequence[Call]], str]:
    """Run the tests, and scripts for the rest; return the calls by function, and why others have none."""
    calls: dict[_Key, list[Call]] = defaultdict(list)
    places = [*(str(root / source) for source in layout.sources), os.environ.get("PYTHONPATH", "")]
    top = str(open_repository(root).resolve())
    with temporary_folder() as folder:
        out = folder / "calls"

        def record(limit_s: float, *words: str) -> Ending:
            wanted = [key for key in left if not any(call.attempt for call in calls.get(key, ()))]
            order = {"root": top, "packages": [*layout.packages], "functions": wanted, "out": str(out)}
            variables = {VARIABLE: json.dumps(order), "PYTHONPATH": os.pathsep.join(filter(None, places))}
            out.write_text("")
            ending = run_command(
                [sys.executable, "-m", *words],
                output=folder / "log",
                limit_s=limit_s,
                environment={**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"},
                folder=root,
            )
            for line in out.read_text(encoding="utf-8").splitlines():
                call = msgspec.json.decode(line, type=Call)
                calls[call.file, call.name].append(call)
            return ending

        log("running the tests, to record how they call the functions")
        options = ("-p", _RECORDING, "-p", "no:cacheprovider", "-q", "--continue-on-collection-errors")
        ending = record(_TESTS_S, "pytest", *options, "--benchmark-disable", *_tests(root, layout, left))
        if ending.status in _PYTEST_FAILED:
            raise NotMeasuredError(f"the tests cannot be run: pytest {ending.words}")
        for script in layout.scripts:
            record(_SCRIPT_S, _RECORDING, script.path)
    over = ending.status is None
    return calls, f"no test called it in {_TESTS_S:.0f} s" if over else "no test or script calls it"


def _tests(root: Path, layout: Layout, left: Collection[_Key]) -> list[str]:
    """Return the files of tests, those first that mention the functions that few mention."""
    names = {part for _, name in left for part in name.split(".") if not part.startswith("__")}
    mentioned = {
        file: {name for name in names if name in (read_code(root / file) or "")}
        for file in project_files(root)
        if any(fnmatch.fnmatch(PurePosixPath(file).name, pattern) for pattern in layout.python_files)
    }
    often = Counter(name for found in mentioned.values() for name in found)
    return sorted(mentioned, key=lambda file: -sum(1 / often[name] for name in mentioned[file]))


def _tried(
    root: Path, layout: Layout, calls: Mapping[_Key, Sequence[Call]]
) -> tuple[Mapping[_Key, FirstBenchmark], Mapping[_Key, str]]:
    """Return a benchmark of each function that can be called, and why there is none of the others."""
    # Where a test as a whole was tried, why its call was not is the better reason.
    problems = {key: f"{one.by} gives it {one.problem}" for key, (one, *_) in calls.items() if one.problem}
    candidates = [*_candidates(calls)]
    order = Order(root=str(root), sources=layout.sources, candidates=tuple(candidates), every=True)
    with temporary_folder() as folder:
        reply = ask("perfkit.features.init.child:main", order, Step, limit_s=_TRYING_S, folder=folder)
    kept: dict[_Key, FirstBenchmark] = {}
    for step in reply.messages:
        candidate = candidates[step.candidate]
        key, attempt = (candidate.file, candidate.name), candidate.attempts[step.attempt]
        if step.call_s is not None:
            attempt = replace(attempt, body=attempt.anew) if step.is_anew else attempt
            kept[key] = FirstBenchmark(candidate=candidate, attempt=attempt, call_s=step.call_s)
        elif step.problem:
            problems.setdefault(key, f"called as the tests do, it ends with {step.problem}")
    return kept, problems


def _candidates(calls: Mapping[_Key, Sequence[Call]]) -> Iterator[Candidate]:
    """Yield the ways to call each function, those with the most data first, and tests as a whole last."""
    for (file, name), found in calls.items():
        ranked = sorted(found, key=lambda call: (not call.direct, -len(str(call.attempt))))
        if attempts := tuple(call.attempt for call in ranked if call.attempt):
            yield Candidate(module=found[0].module, name=name, file=file, attempts=attempts)
