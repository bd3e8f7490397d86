"""Both sides ready to be measured: laid out from commits or a suite, and what their checkouts lack."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from perfkit.agent.session import selection_problem
from perfkit.config import AsvSuite, Project
from perfkit.errors import UsageError
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import TARGET_FILE, Comparison
from perfkit.profiling.passes.targets import Target, resolve_target, target_on
from perfkit.repo.checkout import Generated, Roots, checkouts, project_roots
from perfkit.repo.environments import Environments, why_not_found
from perfkit.repo.files import is_code_file, overlay
from perfkit.repo.git import outside_repository, try_git
from perfkit.repo.prepare import build_command
from perfkit.repo.sides import SidePair
from perfkit.repo.working_tree import ignored_files
from perfkit.runner.lockstep.launch import Failure
from perfkit.runner.lockstep.launcher import LAUNCHES_PER_FORK_SERVER, Launcher, MeasuredTrees
from perfkit.runner.lockstep.untimed import Callgrind
from perfkit.runner.machine.conditions import usable_cpus
from perfkit.temporary import short_name
from perfkit.units import listed

_FILE = re.compile(r"No such file or directory: '([^']+)'|(\S+) not found\.?$", re.MULTILINE)
_INPUT = re.compile(r"data|input", re.IGNORECASE)
_MOST_NAMED = 3
_LONGEST = 255
# Does something about failures, and returns whether they may be gone now.
Mend = Callable[[Sequence[Failure]], bool]
_MODULE = re.compile(r"No module named '([\w.]+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_UNFOUND = re.compile(r"No such file or directory: '([^']+)'")
_COMPILED = (".so", ".pyd", ".dylib")
# Compiled modules have such source files beside the place that they are imported from.
_SOURCES = (".pyx", ".c", ".cc", ".cpp", ".cu", ".f90")


def mend_nothing(failures: Sequence[Failure]) -> bool:  # noqa: ARG001 (the signature is that of a Mend)
    """Leave failures as they are."""
    return False


@dataclass(kw_only=True)
class MissingFiles:
    """Links what failed benchmarks did not find, where git ignores it or it lies beside the repository.

    ``source`` is the project in the user's tree and ``roots`` the same in both checkouts, which lie in
    ``folder``. Where an error names no file, paths of data are sought in a ``script`` and its ``arguments``.
    """

    source: Path
    roots: Roots
    folder: Path
    script: str | None = None
    arguments: Sequence[str] = ()
    linked: dict[str, Path] = field(default_factory=dict)

    def bring(self, failures: Sequence[Failure]) -> bool:
        """Link what these benchmarks did not find, and return whether there was anything."""
        before = len(self.linked)
        for failure in failures:
            named = [match[1] or match[2] for match in _FILE.finditer(failure.message)]
            for name in dict.fromkeys(named or self._literals()):
                self._link(self._relative(name, failure))
        return len(self.linked) > before

    def notes(self) -> Iterator[str]:
        """Yield a note on what was linked."""
        if self.linked:
            names = listed(sorted(self.linked), _MOST_NAMED)
            yield (
                f"{names}: no checkout has it, so both sides read and write that of your tree;"
                " `link` under [tool.perfkit] names it for good"
            )

    def _relative(self, name: str, failure: Failure) -> str:
        path, root = Path(name), self.roots.root(failure.side)
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else name

    def _literals(self) -> Iterator[str]:
        """Yield the paths of data in a target's arguments and script, where an error names none.

        Others are left alone: a target may write into them.
        """
        if self.script is None:
            return
        yield from filter(_INPUT.search, (one.rpartition("=")[2] for one in self.arguments))
        try:
            tree = ast.parse((self.source / self.script).read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError, RecursionError):
            return
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and len(text) < _LONGEST and _INPUT.search(text):
                yield text

    def _link(self, name: str) -> None:
        """Link a file, or the first folder on the way to it that the checkouts lack."""
        if not name.strip("./") or os.path.isabs(name) or "\0" in name or "\n" in name:  # noqa: PTH117
            return
        for place in [*reversed(Path(os.path.normpath(name)).parents), Path(os.path.normpath(name))]:
            if place.name in ("", ".."):
                continue
            targets = [Path(os.path.normpath(self.roots.root(side) / place)) for side in SIDES]
            original = self.source / place
            if not original.exists() or not all(target.is_relative_to(self.folder) for target in targets):
                return
            if not all(map(os.path.lexists, targets)):
                if self._is_data(place, original):
                    for target in targets:
                        if not os.path.lexists(target):
                            target.symlink_to(original.resolve())
                    self.linked[place.as_posix()] = original
                return

    def _is_data(self, place: Path, original: Path) -> bool:
        if original.is_file() and is_code_file(place.name):
            return False
        outside = place.parts[0] == ".." and not _is_in_repository(self.source, original)
        return outside or try_git(self.source, "check-ignore", "--quiet", "--", str(place)) is not None


def _is_in_repository(source: Path, original: Path) -> bool:
    top = try_git(source, "rev-parse", "--show-toplevel")
    return top is not None and original.resolve().is_relative_to(Path(top).resolve())


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What to do; ``of_checkout`` means that only checkouts may lack the file."""

    words: str
    of_checkout: bool = False


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Finds what to do about an import error on a side of a pair.

    ``folder`` is the project's place in the sides, ``prepared`` means that a `prepare` command is configured,
    ``overruled`` that head's is another one, which does not count.
    """

    pair: SidePair
    folder: Path
    prepared: bool
    overruled: bool = False

    def of(self, message: str, side: Side) -> Hint | None:
        """Return what to do about an error that an import raised on a side, None where that is not known."""
        found = self.pair.side(side)
        top = found.source / self.folder
        wanted = list(_wanted(message, top))
        if not wanted:
            return _not_installed(message, top)
        ignored = [] if found.kind == "directory" else ignored_files(top, _patterns(wanted))
        compiled = [name for name in ignored if name.endswith(_COMPILED)]
        if compiled or any(_has_sources(top, place) for place in wanted):
            return self._build(compiled, top)
        if ignored:
            setting = json.dumps(ignored[:_MOST_NAMED])
            words = (
                f"{listed(ignored, _MOST_NAMED)} {'is' if len(ignored) == 1 else 'are'} ignored by git, so"
                f" that checkouts lack what your tree has: set copy = {setting} under [tool.perfkit]"
            )
            return Hint(words=words, of_checkout=True)
        return None

    def _build(self, compiled: Sequence[str], top: Path) -> Hint:
        """Return the advice to build a compiled module in each checkout."""
        named = f"{listed(compiled, _MOST_NAMED)}, which git ignores, " if compiled else "it "
        if self.overruled:
            words = (
                f"{named}has to be compiled, and base's settings decide, not head's tool.perfkit.prepare: add"
                " --rules head"
            )
        elif self.prepared:
            words = (
                f"{named}has to be compiled, and tool.perfkit.prepare did not: check that it builds in place"
            )
        else:
            command = build_command(top)
            words = (
                f"{named}has to be compiled in each checkout: set prepare = {json.dumps(command)}"
                " under [tool.perfkit], or another command that builds in place"
                if command
                else f"{named}has to be in each checkout: set prepare under [tool.perfkit] to a command that"
                " brings it"
            )
        return Hint(words=words, of_checkout=True)


def _wanted(message: str, top: Path) -> Iterator[str]:
    dotted = [match[1] for match in _MODULE.finditer(message)]
    # A folder of stubs is imported in the place of a compiled module of its name that is missing.
    for match in _NAME.finditer(message):
        dotted += [f"{match[2]}.{match[1]}", *([match[2]] if _is_stub(top, match[2]) else [])]
    yield from (name.replace(".", "/") for name in dotted if _is_own(name.partition(".")[0], top))
    yield from (match[1] for match in _UNFOUND.finditer(message) if not match[1].startswith(("/", "..")))


def _is_stub(top: Path, module: str) -> bool:
    places = (top, top / "src", *(place for place in top.iterdir() if place.is_dir()))
    folders = [folder for place in places if (folder := place.joinpath(*module.split("."))).is_dir()]
    return bool(folders) and not any((folder / "__init__.py").is_file() for folder in folders)


def _is_own(name: str, top: Path) -> bool:
    places = (top, top / "src", *(place for place in top.iterdir() if place.is_dir()))
    return any((place / name).is_dir() or any(place.glob(f"{name}.*")) for place in places)


def _patterns(wanted: Sequence[str]) -> Iterator[str]:
    for place in wanted:
        if PurePosixPath(place).suffix:
            yield f":(glob)**/{place}"
        else:
            yield from (f":(glob)**/{place}{ending}" for ending in (".py", "/__init__.py"))
            yield from (f":(glob)**/{place}*{ending}" for ending in _COMPILED)


def _has_sources(top: Path, place: str) -> bool:
    files = (top / folder / f"{place}{ending}" for folder in ("", "src") for ending in _SOURCES)
    return any(file.is_file() for file in files)


def _not_installed(message: str, top: Path) -> Hint | None:
    match = _MODULE.search(message)
    if match is None or _is_own(match[1].partition(".")[0], top):
        return None
    install = f"install what provides it here: `pip install {match[1].partition('.')[0]}`"
    return Hint(words=why_not_found(match[1]) or install)


def with_install(one: Comparison, top: Path) -> Comparison:
    """Return a benchmark that failed with what installs the package that it lacks, if it lacks one."""
    message = one.message or ""
    hint = _not_installed(message, top) if one.verdict == "FAILED" and "`pip install" not in message else None
    return replace(one, message=f"{message}; {hint.words}") if hint else one


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
    sides. Where a ``target`` is compared, nothing else is. ``overruled`` are settings of head that do not
    count.
    """

    benchmarks: str | None
    select: str | None
    seed: int
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    files_from: Path = Path()
    target: TargetBenchmark | None = None
    overruled: AbstractSet[str] = frozenset()


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
