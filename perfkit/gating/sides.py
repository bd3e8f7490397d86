"""Both sides ready to be measured: laid out from commits or a suite, with the launcher of their processes."""

from __future__ import annotations

import functools
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from perfkit.config import AsvSuite, Project
from perfkit.errors import UsageError
from perfkit.gating.missing_files import Mend, MissingFiles, mend_nothing
from perfkit.gating.target_benchmark import TargetBenchmark, lay_target
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import TARGET_FILE
from perfkit.repo.changed_code import ChangedCode, changed_code
from perfkit.repo.checkout import Generated, Roots, checkouts
from perfkit.repo.commands import outside_repository
from perfkit.repo.environments import Environments
from perfkit.repo.overlay import overlay
from perfkit.repo.project_roots import project_roots, subfolder
from perfkit.repo.sides import SidePair, changed_files
from perfkit.runner.agent.session import selection_problem
from perfkit.runner.lockstep.instructed import Callgrind
from perfkit.runner.lockstep.launch import LaunchRecord, LaunchRules
from perfkit.runner.lockstep.launcher import LAUNCHES_PER_PRELOADER, Launcher, MeasuredTrees
from perfkit.runner.lockstep.pace import Pace
from perfkit.runner.lockstep.schedule import Slot
from perfkit.runner.machine.conditions import usable_cpus
from perfkit.stats.planning import launches_per_generation

# One launch spends at least this time on a benchmark, both sides together.
_LAUNCH_S = 0.05
# Launches of one generation have this variance in common, in parts of their own; docs/evidence.md says how it
# was measured. A generation has few launches even where it takes long to import.
SHARED_VARIANCE = 0.5
_MOST_PER_GENERATION = 8


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which benchmarks of both sides are compared, and how their processes are started.

    ``benchmarks`` is a path and ``select`` an expression for pytest's ``-k``, None where the configuration
    decides. ``as_is`` leaves allocator, hash seed and other settings alone. ``plants`` maps benchmarks to the
    share by which head is made slower on purpose. ``files``, in the folder ``files_from``, are laid over both
    sides. Where a ``target`` is compared, nothing else is.
    """

    benchmarks: str | None
    select: str | None
    as_is: bool
    seed: int
    plants: Mapping[str, float] = field(default_factory=dict)
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


class LockstepLaunches:
    """Makes launches in lockstep by a launcher; the pace of each benchmark is found in its first one.

    ``limit_s`` returns how many seconds a benchmark may send nothing; ``check_s`` are those that a check may
    take, whether the sides disturb one another on an accelerator. A launch is made again if ``mend`` did
    something about its failures.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        limit_s: Callable[[str], float],
        check_s: float = 0.0,
        mend: Mend = mend_nothing,
    ) -> None:
        self._launcher, self._mend = launcher, mend
        self._rules = LaunchRules(launch_s=_LAUNCH_S, limit_s=limit_s, check_s=check_s)
        self._paces: dict[str, Pace] = {}
        self._made = 0
        self._alone = False
        self._benchmark_s, self._measured = 0.0, 0
        self._shared_variance = SHARED_VARIANCE

    @property
    def preloader(self) -> int:
        """The number of the last launch's group: the launches of one generation, or else of one preloader."""
        return self._launcher.preloader

    @property
    def group_s(self) -> float:
        """The seconds that beginning a group takes for each of its launches."""
        return self._launcher.collected_s / self._share() if self._launcher.serves else 0.0

    def prepare(self) -> None:
        """Begin a new group when the present one has had its launches."""
        share = self._share()
        if self._made and self._made >= share:
            self._alone = self._launcher.serves and share == 1
            self._launcher.renew(alone=self._alone)
            self._made = 0

    def _share(self) -> int:
        """Return how many launches the present group is to make."""
        if not self._launcher.serves:
            # Where preloaders differ, a second launch of one says hardly more than its first.
            differ = self._shared_variance > SHARED_VARIANCE
            return 1 if differ else self._launcher.launches_per_preloader
        return launches_per_generation(
            generation_s=self._launcher.collected_s,
            launch_s=self._benchmark_s * self._measured,
            shared_variance=self._shared_variance,
            most=_MOST_PER_GENERATION,
        )

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Measure benchmarks on both sides in a launch, and once more if a preloader or server is lost.

        Raises:
            NotMeasuredError: that of the second attempt was lost as well.
        """
        self._made += 1
        launch = functools.partial(self._launcher.launch, slot, nodes, paces=self._paces, rules=self._rules)
        record = launch()
        while self._mend(record.failures):
            record = launch()
        self._measured = len(record.seconds)
        # What a launch that stands alone takes includes the import, which others have from their generation.
        if record.seconds and not self._alone:
            self._benchmark_s = statistics.fmean(record.seconds.values())
        return record

    def expect(self, shared_variance: float) -> None:
        """Choose the size of later groups for launches that have so much variance in common within one."""
        self._shared_variance = max(shared_variance, SHARED_VARIANCE)

    def learn(self, libraries: Sequence[str]) -> None:
        """Have preloaders import modules that both sides import."""
        self._launcher.warm_up(libraries)


def check_selection(select: str | None, project: Project) -> None:
    """Check, before the machine's lock is waited for, that pytest accepts an expression.

    Raises:
        UsageError: pytest's ``-k`` does not accept it; the message says where it is given.
    """
    place, expression = "--select", select
    if select is None:
        place, expression = "[tool.perfkit.gate] select", project.config.gate.select
    problem = selection_problem(expression) if expression else None
    if problem is not None:
        raise UsageError(
            f'{place} is not what pytest\'s -k reads: "{expression}": {problem};'
            ' it reads names with and, or, not and brackets, such as "loss and not slow"'
        )


@contextmanager
def open_sides(
    pair: SidePair, project: Project, scope: Scope, *, environments: Environments = MappingProxyType({})
) -> Iterator[OpenSides]:
    """Lay out both sides of a pair with their launcher, and remove all of it at the end.

    Raises:
        RepositoryError: a side cannot be laid out.
        UsageError: neither side has the path that was asked for.
    """
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
            plants=scope.plants,
            changed=_changed_code(project, pair, roots),
            interpreters=interpreters,
            committed=_committed(pair),
        )
        folder = laid.base.parent / "launches"
        folder.mkdir()
        environment = outside_repository(os.environ)
        with Launcher(
            trees,
            folder=folder,
            environment=environment,
            as_is=scope.as_is,
            seed=scope.seed,
            preload=project.config.gate.preload,
            launches_per_preloader=1 if trees.apart else LAUNCHES_PER_PRELOADER,
            cores=usable_cpus(),
        ) as launcher:
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
    launches_per_preloader: int = LAUNCHES_PER_PRELOADER,
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
        as_is=False,
        seed=seed,
        launches_per_preloader=launches_per_preloader,
    ) as launcher:
        yield launcher


def _select(scope: Scope, project: Project) -> str | None:
    """Return which benchmarks are asked for; what is configured is meant for those of the project."""
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


def _changed_code(project: Project, pair: SidePair, roots: Roots) -> ChangedCode:
    """Return the project's functions that differ between the sides, by file; none where that is not known."""
    folder = subfolder(project, pair, "head")
    paths = (PurePosixPath(file) for file in changed_files(pair) or ())
    files = [path.relative_to(folder).as_posix() for path in paths if path.is_relative_to(folder)]
    return changed_code(files, roots.base, roots.head)


def _missing_files(project: Project, scope: Scope, roots: Roots, *, folder: Path) -> MissingFiles:
    target = scope.target
    script, arguments = (None, ()) if target is None else (target.script, target.arguments)
    return MissingFiles(source=project.root, roots=roots, folder=folder, script=script, arguments=arguments)


def _committed(pair: SidePair) -> float | None:
    """Return when the older side was committed, None where that is not known of both."""
    times = [pair.side(side).commit.time for side in SIDES]
    known = [time.timestamp() for time in times if time is not None]
    return min(known) if len(known) == len(times) else None


def _where_it_is(path: Path, project: Project, pair: SidePair) -> str:
    """Return what to do about a path that neither side has, since it may be uncommitted."""
    if pair.head.kind == "commit" and (project.root / path).exists():
        return "your working tree has it, uncommitted: commit it, or compare with --head worktree"
    return "name one that is there"
