"""Both sides ready to be measured: laid out from commits or a suite, with the launcher of their processes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from perfkit.agent.session import selection_problem
from perfkit.config import AsvSuite, Project
from perfkit.errors import UsageError
from perfkit.gating.missing import MissingFiles
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import TARGET_FILE
from perfkit.profiling.passes.targets import Target, resolve_target, target_on
from perfkit.repo.checkout import Generated, Roots, checkouts, project_roots
from perfkit.repo.environments import Environments
from perfkit.repo.files import overlay
from perfkit.repo.git import outside_repository
from perfkit.repo.sides import SidePair
from perfkit.runner.lockstep.launcher import LAUNCHES_PER_FORK_SERVER, Launcher, MeasuredTrees
from perfkit.runner.lockstep.untimed import Callgrind
from perfkit.runner.machine.conditions import usable_cpus
from perfkit.temporary import short_name

# A whole training may be silent for this many seconds.
_LIMIT_S = 600
_HEADING = '"""Written by perfkit for a gate of a target; no checkout keeps it."""\n'
_SCRIPT = """
import contextlib
import io
import random
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SCRIPT = ROOT / {script!r}
CODE = compile(SCRIPT.read_bytes(), str(SCRIPT), "exec")


def run():
    random.seed(0)
    for library, seeded in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if library in sys.modules:
            function = sys.modules[library]
            for name in seeded.split("."):
                function = getattr(function, name)
            function(0)
    module = types.ModuleType("__main__")
    module.__file__ = str(SCRIPT)
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            exec(CODE, module.__dict__)
    except SystemExit as end:
        if end.code not in (None, 0):
            last = (errors.getvalue().strip().splitlines() or ["without a word"])[-1]
            raise RuntimeError(f"{{SCRIPT.name}} ended with exit status {{end.code}}: {{last}}") from end
    finally:
        sys.modules["__main__"] = before


@pytest.mark.perfkit(limit={limit})
def test_{name}(benchmark, monkeypatch):
    # They stand here, since benchmarks of the same name whose text differs are not taken for the same.
    monkeypatch.setattr(sys, "argv", [str(ROOT / {script!r}), *{arguments!r}])
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.chdir(ROOT)
    benchmark(run)
"""
_FUNCTION = """
import pytest

from {module} import {first}


@pytest.mark.perfkit(limit={limit})
def test_{name}(benchmark):
    benchmark({function})
"""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which benchmarks of both sides are compared, and how their processes are started.

    ``benchmarks`` is a path and ``select`` an expression for pytest's ``-k``, None where the configuration
    decides. ``slowdowns`` maps benchmarks to the share by which
    head is made slower on purpose. ``files``, in the folder ``files_from``, are laid over both
    sides. Where a ``target`` is compared, nothing else is.
    """

    benchmarks: str | None
    select: str | None
    seed: int
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    files_from: Path = Path()
    target: TargetBenchmark | None = None


@dataclass(frozen=True, kw_only=True)
class OpenSides:
    """The folders of both sides, the launchers of their processes, and head's suite of asv if it has one.

    ``environments`` are those of the sides, nothing where both are measured in the present one. ``missing``
    links data that checkouts lack.
    """

    project: Project
    scope: Scope
    pair: SidePair
    roots: Roots
    launcher: Launcher
    callgrind: Callgrind
    missing: MissingFiles
    environments: Environments = field(default_factory=dict)
    asv: AsvSuite | None = None


def check_selection(select: str | None, project: Project) -> None:
    """Check, before the machine's lock is waited for, that pytest accepts an expression."""
    place, expression = "--select", select
    if select is None:
        place, expression = "[tool.perfkit.gate] select", project.config.gate.select
    problem = selection_problem(expression) if expression else None
    if problem is not None:
        raise UsageError(
            f'{place} is not what pytest\'s -k reads: "{expression}": {problem};'
            ' it reads names with and, or, not and brackets, such as "loss and not slow"'
        )


# A launch has a temporary folder below the one for all: its number, its side and its number in a zygote.
_BELOW = 30


@contextmanager
def open_sides(
    pair: SidePair, project: Project, scope: Scope, *, environments: Environments = MappingProxyType({})
) -> Iterator[OpenSides]:
    """Lay out both sides of a pair with their launcher, and remove all of it at the end."""
    interpreters = {side: one.interpreter for side, one in environments.items()}
    pythons = {side: one.python for side, one in interpreters.items()}
    with checkouts(pair, generated=Generated.of(project), pythons=pythons) as laid:
        roots = project_roots(project, pair, laid)
        for side in SIDES:
            overlay(scope.files, source=scope.files_from, target=roots.root(side))
        if scope.target is not None:
            lay_target(scope.target, roots)
        suite = project.asv_suite(roots.head)
        trees = MeasuredTrees(
            roots={side: roots.root(side) for side in SIDES},
            asv=suite,
            origins=tuple(dict.fromkeys(pair.side(side).source for side in SIDES)),
            paths=_paths(scope, project, pair, roots),
            select=_select(scope, project),
            slowdowns=scope.slowdowns,
            interpreters=interpreters,
            committed=_committed(pair),
        )
        folder = laid.base.parent / "launches"
        folder.mkdir()
        environment = outside_repository(os.environ)
        with (
            short_name(folder, below=_BELOW) as named,
            Launcher(
                trees,
                folder=named,
                environment=environment,
                seed=scope.seed,
                preload=project.config.gate.preload,
                launches_per_fork_server=1 if trees.apart else LAUNCHES_PER_FORK_SERVER,
                cores=usable_cpus(),
            ) as launcher,
        ):
            callgrind = Callgrind(trees=trees, folder=folder, environment=environment)
            yield OpenSides(
                project=project,
                scope=scope,
                pair=pair,
                roots=roots,
                launcher=launcher,
                callgrind=callgrind,
                missing=_missing_files(project, scope, roots, folder=laid.base.parent),
                environments=environments,
                asv=suite,
            )


@contextmanager
def staged_launcher(
    suite: Path,
    folder: Path,
    *,
    environment: Mapping[str, str],
    seed: int,
    beside: Mapping[Side, Mapping[str, str]] | None = None,
    launches_per_fork_server: int = LAUNCHES_PER_FORK_SERVER,
) -> Iterator[Launcher]:
    """Copy a file of benchmarks into a folder for each side, and yield the launcher that measures both.

    ``beside`` are the names and texts of files that lie with it on each side.
    """
    roots = {side: folder / side for side in SIDES}
    for side, root in roots.items():
        root.mkdir()
        shutil.copy(suite, root)
        (root / "pytest.ini").write_text("[pytest]\n")
        for name, text in (beside or {}).get(side, {}).items():
            (root / name).write_text(text)
    launches = folder / "launches"
    launches.mkdir()
    trees = MeasuredTrees(roots=roots, origins=(), paths=(suite.name,))
    # A user's options for pytest are meant for the user's own tests.
    inherited = {name: text for name, text in environment.items() if not name.startswith("PYTEST_")}
    with Launcher(
        trees,
        folder=launches,
        environment=inherited,
        seed=seed,
        launches_per_fork_server=launches_per_fork_server,
    ) as launcher:
        yield launcher


def _select(scope: Scope, project: Project) -> str | None:
    if scope.target is not None:
        return None
    return project.config.gate.select if scope.select is None else scope.select


def _paths(scope: Scope, project: Project, pair: SidePair, roots: Roots) -> tuple[str, ...]:
    """Return what pytest is given: the path asked for, the configured one if it is there, or nothing."""
    if scope.target is not None:
        return (TARGET_FILE,)
    if scope.benchmarks is None:
        default = project.default_benchmarks(roots.head)
        return () if default is None else (default,)
    path = Path(scope.benchmarks)
    if path.is_absolute() and path.is_relative_to(project.root):
        path = path.relative_to(project.root)
    if not (roots.head / path).exists() and not (roots.base / path).exists():
        raise UsageError(
            f"--benchmarks {scope.benchmarks}: neither side has such a file or folder; "
            + _where_it_is(path, project, pair)
        )
    return (path.as_posix(),)


def _missing_files(project: Project, scope: Scope, roots: Roots, *, folder: Path) -> MissingFiles:
    target = scope.target
    script, arguments = (None, ()) if target is None else (target.script, target.arguments)
    return MissingFiles(source=project.root, roots=roots, folder=folder, script=script, arguments=arguments)


def _committed(pair: SidePair) -> float | None:
    times = [pair.side(side).commit.time for side in SIDES]
    known = [time.timestamp() for time in times if time is not None]
    return min(known) if len(known) == len(times) else None


def _where_it_is(path: Path, project: Project, pair: SidePair) -> str:
    if pair.head.kind == "commit" and (project.root / path).exists():
        return "your working tree has it, uncommitted: commit it, or compare with --head worktree"
    return "name one that is there"


@dataclass(frozen=True, kw_only=True)
class TargetBenchmark:
    """A target, the words that follow its script on a command line, and its benchmark's text.

    ``script`` is its path from the project's root, None for a function, and ``arguments`` are those words.
    """

    target: Target
    text: str
    script: str | None = None
    arguments: tuple[str, ...] = ()


def target_benchmark(words: str, project: Project, *, folder: Path) -> TargetBenchmark:
    """Return the benchmark of "package.module:function", a configured name, or "train.py --epochs 1"."""
    try:
        name, *arguments = shlex.split(words)
    except ValueError as error:
        raise UsageError(f'--target is not what a shell reads: "{words}": {error}') from error
    target = resolve_target(name, project, folder=folder)
    called = re.sub(r"\W+", "_", Path(name).stem if target.is_script else name).strip("_")
    if not target.is_script:
        if arguments:
            raise UsageError(
                f'--target "{words}": a function is called without arguments; name a function that needs none'
            )
        module, _, function = target.place.partition(":")
        first = function.partition(".")[0]
        text = _FUNCTION.format(module=module, first=first, function=function, name=called, limit=_LIMIT_S)
        return TargetBenchmark(target=target, text=_HEADING + text)
    target_on(target, project.root, project=project.root)
    script = Path(target.place).relative_to(project.root).as_posix()
    text = _SCRIPT.format(script=script, arguments=arguments, name=called, limit=_LIMIT_S)
    return TargetBenchmark(target=target, text=_HEADING + text, script=script, arguments=tuple(arguments))


def lay_target(benchmark: TargetBenchmark, roots: Roots) -> None:
    """Write a target's benchmark on both sides."""
    for side in SIDES:
        root = roots.root(side)
        if benchmark.script is not None and not (root / benchmark.script).is_file():
            raise UsageError(
                f"{side} has no {benchmark.script}, so there is nothing to compare; commit it, or name"
                f" another commit with --{side}"
            )
        (root / TARGET_FILE).write_text(benchmark.text, encoding="utf-8")
