"""``perfkit init``: from a repository without benchmarks to its first gate."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from perfkit.choices import Service
from perfkit.commands.text_files import replace_texts
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RepositoryError, UsageError
from perfkit.features.init.benchmarks import (
    Tried,
    benchmark_file,
    find_candidates,
    longest_calls,
    notebook_runs,
    recorded,
    tried,
    try_candidates,
    with_distinct_imports,
)
from perfkit.features.init.files import (
    PlannedFile,
    StartingPlan,
    benchmark_place,
    configuration,
    configured,
    existing_benchmarks,
    ignoring,
    is_collected_by_default,
    needs_configuration,
    new_file,
    read_as_is,
    service_files,
    unwritable,
)
from perfkit.features.init.layout import Layout, read_code, read_layout
from perfkit.features.init.recording import MOST_CHARACTERS
from perfkit.model.comparisons import ChangeCoverage
from perfkit.repo.environments import why_not_found
from perfkit.repo.git import try_git
from perfkit.repo.sides import SidePair, resolve_sides
from perfkit.runner.commands import run_command
from perfkit.temporary import temporary_folder
from perfkit.units import counted, listed

_MOST_NAMED = 4
_PYTEST_LIMIT_S = 60.0
_FOR_CHANGE = "perfkit init --for-change"


def plan_start(
    project: Project, *, services: Sequence[Service] = (), log: Callable[[str], None]
) -> StartingPlan:
    """Look at a repository, try which of its code can be called, and return what would be written."""
    root = project.root
    if try_git(root, "rev-parse", "--show-toplevel") is None:
        raise RepositoryError(
            f"{root} is in no git repository, and a gate compares commits; run `git init`, commit, then"
            " `perfkit init`"
        )
    log("looking at the files")
    layout = read_layout(root)
    if layout.nested_projects and not layout.packages and not layout.installable:
        first = layout.nested_projects[0]
        raise UsageError(
            f"{root} is no Python project itself, and holds {listed(layout.nested_projects, _MOST_NAMED)};"
            f" run `cd {shlex.quote(first)} && perfkit init` in the one to measure"
        )
    settings = (read_as_is(root / "pyproject.toml") or "").replace("\r\n", "\n")
    started = "perfkit" in tomllib.loads(settings).get("tool", {})
    benchmarks = project.config.benchmarks if started else existing_benchmarks(layout)
    files: list[PlannedFile | None] = []
    remarks = list(_remarks(root, layout, started=started))
    tried = None
    if not started and benchmarks is None and not layout.benchmark_files:
        calls, source, too_large = longest_calls(root, layout, log)
        if too_large:
            remarks.append(
                f"{counted(len(too_large), 'function')} called with an argument of more than"
                f" {MOST_CHARACTERS:,} characters of code, so without a benchmark:"
                f" {listed(too_large, _MOST_NAMED)}; write one by hand"
            )
        tried = Tried(kept=calls, tried=len(calls), source=source)
        if not calls and not layout.packages:
            runs = notebook_runs(root, layout)
            tried = Tried(kept=runs, tried=len(runs), source="notebooks")
        if not calls and layout.packages:
            log("reading which functions there are")
            tried = try_candidates(find_candidates(root, layout), root=root, sources=layout.sources, log=log)
        place = benchmark_place(layout)
        if tried.kept:
            benchmarks = str(Path(place).parent)
            files.append(_first_benchmarks(root, place, tried, layout))
            remarks += [] if files[-1] else [f"{place} is there already and stays as it is"]
        else:
            remarks.append(_nothing_called(root, tried, layout))
    # A file is begun for settings only where a gate needs one.
    needs = not started and needs_configuration(layout, benchmarks=benchmarks)
    if needs or (not started and (root / "pyproject.toml").exists()):
        files.append(configured(root, configuration(layout, benchmarks=benchmarks)))
    files.append(ignoring(root))
    for service in services:
        planned, hints = service_files(service, root, layout)
        files += planned
        remarks += [line for line in hints if line not in remarks]
    log("asking pytest whether it takes this project's options")
    remarks += _pytest_problem(root, layout.pytest_file)
    has_benchmarks = bool(
        layout.benchmark_files or layout.asv_benchmarks or (tried and tried.kept) or started
    )
    written = tuple(file for file in files if file is not None)
    return StartingPlan(
        root=str(root),
        found=tuple(_found(layout, benchmarks, tried)),
        files=written,
        remarks=tuple(remarks),
        next_commands=tuple(_next(root, layout, written, has_benchmarks=has_benchmarks, needs=needs)),
    )


def write_plan(plan: StartingPlan) -> None:
    """Write what was planned; no file that was there loses a line."""
    root = Path(plan.root)
    blocked = list(unwritable(root, plan.files))
    if blocked:
        raise UsageError(
            f"cannot write {listed(blocked, _MOST_NAMED)} in {root}: no permission; make the folder writable"
            " and run `perfkit init --yes` again"
        )
    for file in plan.files:
        if read_as_is(root / file.path) != file.before:
            raise UsageError(f"{root / file.path} has changed since it was read; run `perfkit init` again")
    texts = {root / file.path: file.after for file in plan.files}
    replace_texts(texts, option="another folder", makes_folder=True)


def _first_benchmarks(root: Path, place: str, tried: Tried, layout: Layout) -> PlannedFile | None:
    text = benchmark_file(
        with_distinct_imports(tried.kept), project=root.name, optional=is_collected_by_default(place, layout)
    )
    why = f"{counted(len(tried.kept), 'benchmark')}; each has run"
    return new_file(root, place, text, why=why)


def _script(root: Path, layout: Layout) -> str | None:
    """Return a script that can be measured as a whole, a training first."""
    whole = (one for one in sorted(root.glob("*.py")) if "__main__" in (read_code(one) or ""))
    return next(iter((*(one.path for one in layout.scripts), *(one.name for one in whole))), None)


def _nothing_called(root: Path, tried: Tried, layout: Layout) -> str:
    """Return why there is no first benchmark, and what is measured instead."""
    if tried.import_problem:
        why = f"no first benchmark could be made: {tried.import_problem}"
        if "No module named" in tried.import_problem:
            missing = tried.import_problem.rpartition("named ")[2].strip("'")
            install = f"install it (`pip install {missing.partition('.')[0]}`) and run `perfkit init` again"
            why += f"; {why_not_found(missing) or install}"
    elif tried.tried:
        why = f"none of {tried.tried} functions and classes could be called"
    else:
        why = "no public function or class was found whose arguments can be made up"
    if script := _script(root, layout):
        return f"{why}; a script can be measured as it is: `perfkit gate --target {shlex.quote(script)}`"
    return f"{why}; measure a script or a function as it is with `perfkit gate --target SCRIPT.py`"


def _found(layout: Layout, benchmarks: str | None, tried: Tried | None) -> Iterator[str]:
    packages = [f"{name} ({place})" if name != place else name for name, place in layout.packages.items()]
    yield f"code: {listed(packages, _MOST_NAMED)}" if packages else "code: no package and no module to import"
    if layout.scripts:
        scripts = [f"{one.path} ({one.kind})" for one in layout.scripts]
        yield f"training scripts: {listed(scripts, _MOST_NAMED)}"
    if layout.benchmark_files:
        yield f"benchmarks of pytest-benchmark: {listed(layout.benchmark_files, _MOST_NAMED)}"
    if layout.asv_benchmarks:
        yield f"an asv suite: {layout.asv_benchmarks}"
    if tried is not None and tried.kept:
        names = [one.candidate.name for one in tried.kept]
        how = {"": "can be called with data that is made up", "notebooks": "notebooks that run"}.get(
            tried.source, f"{tried.source} call longest"
        )
        yield f"{how}: {listed(names, _MOST_NAMED + 1)}"
    elif benchmarks is None and tried is None:
        yield "benchmarks in several folders"
    if layout.services:
        yield f"continuous integration: {listed(layout.services, _MOST_NAMED)}"


def _remarks(root: Path, layout: Layout, *, started: bool) -> Iterator[str]:
    if started:
        yield "[tool.perfkit] is in pyproject.toml already and stays as it is"
    if layout.version_files:
        files = listed(layout.version_files, _MOST_NAMED)
        yield f"{files}, which a build writes, comes into each checkout without any setting"
    if layout.benchmark_files and existing_benchmarks(layout) is None:
        yield "the benchmarks lie in several folders, so a gate asks pytest for all of them"
    if layout.benchmark_files and layout.asv_benchmarks:
        yield f"the asv suite in {layout.asv_benchmarks} is left out: one path of benchmarks is configured"
    if try_git(root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
        yield "there is no commit yet, and a gate compares two: commit before you change something"
    elif try_git(root, "rev-parse", "--is-shallow-repository") == "true":
        yield "this clone is shallow, so older commits are missing: run `git fetch --unshallow` before a gate"


def _pytest_problem(root: Path, settings: str | None) -> Iterator[str]:
    """Yield why pytest refuses this project's options, such as a missing plugin."""
    if settings is None:
        return
    with temporary_folder() as folder:
        (folder / "test_nothing.py").write_text("def test_nothing(): pass\n")
        ending = run_command(
            [
                *(sys.executable, "-m", "pytest", "--collect-only", "-q"),
                *("-o", f"cache_dir={folder / 'cache'}"),
                *("-c", str(root / settings), f"--rootdir={folder}", str(folder)),
            ],
            output=folder / "output.log",
            limit_s=_PYTEST_LIMIT_S,
            folder=folder,
        )
    errors = [line.strip() for line in ending.tail if re.search(r"error: |Error\b|Warning\b", line)]
    if ending.status not in (0, None) and errors:
        error = errors[-1].removeprefix("E ").rpartition("error: ")[2].strip()
        yield f"pytest refuses this project's options ({error}): install what they need before a gate"


def _next(
    root: Path, layout: Layout, files: Sequence[PlannedFile], *, has_benchmarks: bool, needs: bool
) -> Iterator[str]:
    """Yield the commands that lead to a first verdict, with the reason for each that has no name for it."""
    if files:
        names = " ".join(shlex.quote(file.path) for file in files)
        yield f'git add {names} && git commit -m "Measure performance with perfkit"'
    script = _script(root, layout) or "SCRIPT.py"
    # A whole run scatters more than a function.
    target = f"perfkit gate --target {shlex.quote(script)} --margin 10%"
    gate = "perfkit gate" if has_benchmarks else target
    if try_git(root, "rev-parse", "--verify", "--quiet", "HEAD~1") is not None:
        # Commits from before have no settings.
        rules = " --rules head" if needs else ""
        yield f"{gate} --base HEAD~{2 if files else 1}{rules}  # what the last change cost"
    yield f"{gate}  # after your next change"


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
        command=_FOR_CHANGE,
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
    # Imported late: only this measures.
    from perfkit.commands.gate import surveyed_sides
    from perfkit.gating.coverage import cover
    from perfkit.gating.sides import Scope

    scope = Scope(benchmarks=None, select=None, seed=0)
    with surveyed_sides(
        pair, project, scope, margin=None, wait_s=None, log=log, stage=log, traced=True
    ) as opened:
        if opened.sides.asv is not None:
            raise UsageError(f"{_FOR_CHANGE} writes tests of pytest, and the benchmarks here are asv's")
        compared = (*opened.survey.compared, *opened.survey.numbers)
        found = cover(opened.sides, opened.survey, time_all=True, always=True, log=log).coverage
    if not compared or (found and found.not_traced):
        why = found.not_traced if found else "no benchmark can be compared; `perfkit gate` has the reasons"
        raise NotMeasuredError(f"what the benchmarks run is not known: {why}")
    return found or ChangeCoverage()
