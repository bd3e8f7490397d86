"""Starts the children of a run, from a fresh preloader every few launches."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from perfkit.agent.imports import preloadable
from perfkit.errors import NotMeasuredError
from perfkit.measure.environment import fixed_environment
from perfkit.measure.lockstep.children import (
    HARNESS,
    LIBRARIES,
    Assignment,
    Child,
    FreshProcesses,
    Preloader,
    Source,
)
from perfkit.measure.lockstep.launch import LaunchRecord, LaunchRules, run_launch
from perfkit.measure.lockstep.pace import Pace
from perfkit.measure.lockstep.schedule import Slot, other
from perfkit.processes.fork_server import ForkServerLostError
from perfkit.records import Side

_Found = TypeVar("_Found")

# Children of one preloader share its address layout and hash seed, which bias all their times alike.
LAUNCHES_PER_PRELOADER = 4
_MOST_REUSE_FAULTS = 100
_RAISED_TOGETHER = 2


@dataclass(frozen=True, kw_only=True)
class MeasuredTrees:
    """What is measured: the two trees, the user's own trees behind them, and the paths pytest is given.

    ``plants`` maps benchmarks to the share by which head is made slower on purpose.
    """

    roots: Mapping[Side, Path]
    origins: tuple[Path, ...]
    paths: tuple[str, ...]
    select: str | None = None
    plants: Mapping[str, float] = field(default_factory=dict)


class Launcher:
    """Makes children on two trees; ``folder`` takes their logs and temporary files.

    ``preload`` are the libraries that both sides share; None stands for torch, numpy and whatever both sides
    are seen to import. A preloader makes the children of ``launches_per_preloader`` launches.
    """

    def __init__(
        self,
        trees: MeasuredTrees,
        *,
        folder: Path,
        environment: Mapping[str, str],
        as_is: bool,
        seed: int,
        preload: Sequence[str] | None = None,
        launches_per_preloader: int = LAUNCHES_PER_PRELOADER,
    ) -> None:
        self._launches_per_preloader = launches_per_preloader
        self._trees, self._folder = trees, folder
        self._environment, self._as_is = environment, as_is
        self._random = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
        self._learns = preload is None
        self._modules: tuple[str, ...] = ()
        self._preload_also([*HARNESS, *(LIBRARIES if preload is None else preload)])
        self._stack = ExitStack()
        self._source: Source | None = None
        self._spares: list[Preloader] = []
        self._children = 0
        self._preloaders = 0
        self.why_no_fork: str | None = None
        self.allocator_kept: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def preloader(self) -> int:
        """The number of the present preloader."""
        return self._source.number if self._source is not None else 0

    def root(self, side: Side) -> Path:
        """The tree of a side."""
        return self._trees.roots[side]

    def _preload_also(self, modules: Sequence[str]) -> None:
        """Let later preloaders import these modules too, except those that belong to a side."""
        wanted = preloadable(modules, tuple(self._trees.roots.values()), self._trees.origins)
        self._modules = tuple(dict.fromkeys([*self._modules, *wanted]))

    def warm_up(self, modules: Sequence[str]) -> None:
        """Let the present preloader and all later ones import what was seen to be imported on both sides.

        Nothing happens where a list of what to preload was given.
        """
        if not self._learns:
            return
        known = set(self._modules)
        self._preload_also(modules)
        news = [name for name in self._modules if name not in known]
        present = [self._source, *self._spares]
        if news:
            try:
                _preload([source for source in present if isinstance(source, Preloader)], news)
            except ForkServerLostError:
                self._replace_lost()

    def renew(self) -> None:
        """Replace the preloader by a fresh one with a new hash seed and address layout."""
        if self.why_no_fork is None and not self._spares:
            self._raise_preloaders()
        if self.why_no_fork is None:
            self._source = self._spares.pop(0)
        else:
            self._source = self._fresh_processes()

    def renew_when_due(self, launches: int) -> None:
        """Renew the preloader once it has made its share of launches; ``launches`` have been run so far."""
        if launches and launches % self._launches_per_preloader == 0:
            self.renew()

    def _raise_preloaders(self) -> None:
        """Start preloaders side by side, which is quicker; nothing is timed now that it could disturb."""
        first = self._source is None
        self._stack.close()
        for _ in range(_RAISED_TOGETHER):
            self._preloaders += 1
            preloader = Preloader(
                number=self._preloaders, environment=self._next_environment(), folder=self._folder
            )
            self._spares.append(self._stack.enter_context(preloader))
        _preload(self._spares, self._modules)
        if first:
            self._try(self._spares[0])

    def _try(self, preloader: Preloader) -> None:
        """Learn from the first preloader whether it can fork, and whether the allocator keeps its memory."""
        self.why_no_fork = preloader.server.why_no_fork()
        faults = preloader.server.faults_of_reuse
        self.allocator_kept = None if faults is None else faults < _MOST_REUSE_FAULTS

    def _replace_lost(self) -> None:
        """Start new preloaders: whatever ended one of them may have ended the others too."""
        self._spares.clear()
        self.renew()

    def _repeated_once(self, attempt: Callable[[], _Found]) -> _Found:
        """Call ``use``; if the children's preloader dies meanwhile, call it once more with a fresh one.

        Raises:
            NotMeasuredError: that one was lost as well.
        """
        with contextlib.suppress(ForkServerLostError):
            return attempt()
        try:
            self._replace_lost()
            return attempt()
        except ForkServerLostError as error:
            raise NotMeasuredError(f"two in a row were lost: {error}") from error

    def _fresh_processes(self) -> FreshProcesses:
        self._preloaders += 1
        return FreshProcesses(number=self._preloaders, environment=self._next_environment())

    def start(self, side: Side, *, nodes: Sequence[str] | None) -> Child:
        """Start a child that runs ``nodes``, or lists the benchmarks where that is None.

        Raises:
            NotMeasuredError: its preloader was lost, and the one in its place, too.
        """
        return self._repeated_once(lambda: self._start(side, nodes=None if nodes is None else tuple(nodes)))

    def start_training(self, side: Side, place: str, *, steps: int) -> Child:
        """Start a child that counts steps of a training loop: "package.module:function", or a script.

        Raises:
            NotMeasuredError: its preloader was lost, and the one in its place, too.
        """
        return self._repeated_once(lambda: self._start(side, nodes=(), training=place, steps=steps))

    def _start(
        self, side: Side, *, nodes: tuple[str, ...] | None, training: str | None = None, steps: int = 0
    ) -> Child:
        if self._source is None:
            self.renew()
        assert self._source is not None  # noqa: S101 (renew() set it)
        self._children += 1
        # The paths of both sides are equally long: the length of a path shifts what lies behind it in memory.
        place = self._folder / f"{self._children:06}-{side}"
        assignment = Assignment(
            root=str(self._trees.roots[side]),
            origins=tuple(str(origin) for origin in self._trees.origins),
            paths=self._trees.paths,
            nodes=nodes,
            training=training,
            steps=steps,
            select=self._trees.select,
            temporary=str(place),
            log=f"{place}.log",
            plants=self._trees.plants if side == "head" else {},
        )
        return self._source.start(side, assignment)

    def launch(
        self, slot: Slot, nodes: Sequence[str], *, paces: dict[str, Pace], rules: LaunchRules
    ) -> LaunchRecord:
        """Measure ``nodes`` in a child of each side; ``paces`` are those of earlier launches, and change.

        A launch whose preloader is lost is made again, whole, from a fresh one.

        Raises:
            NotMeasuredError: that one was lost as well.
        """

        def attempt() -> LaunchRecord:
            found = dict(paces)
            record = run_launch(self._start_both(slot, nodes), nodes, paces=found, rules=rules)
            paces.update(found)
            return record

        return self._repeated_once(attempt)

    def _start_both(self, slot: Slot, nodes: Sequence[str]) -> list[Child]:
        """Start a child of each side in the order of a slot, and return the one that begins first."""
        children: dict[Side, Child] = {}
        try:
            for side in (slot.forked_first, other(slot.forked_first)):
                children[side] = self._start(side, nodes=tuple(nodes))
        except ForkServerLostError:
            for child in children.values():
                with contextlib.suppress(ForkServerLostError):
                    child.end()
            raise
        return [children[slot.begins], children[other(slot.begins)]]

    def _next_environment(self) -> dict[str, str]:
        hash_seed = self._random.randrange(1, 2**32)
        if self._as_is:
            return dict(self._environment)
        return fixed_environment(self._environment, hash_seed=hash_seed)


def _preload(preloaders: Sequence[Preloader], modules: Sequence[str]) -> None:
    for preloader in preloaders:
        preloader.server.begin_preload(modules)
    for preloader in preloaders:
        preloader.server.finish_preload()
