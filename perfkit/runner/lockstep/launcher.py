"""Starts the children of a run: forked from processes that have imported what they share.

A preloader has imported what both sides share. From it, a server of each side is forked that imports the
code of its side and collects its benchmarks. These two servers are a generation: launches are forked from
them until a new generation replaces them. The layout of their memory biases all their launches alike, so
generations are a level of replication of their own. Every eighth time the preloader is replaced, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from perfkit.config import AsvSuite
from perfkit.errors import NotMeasuredError
from perfkit.model import SIDES, Side
from perfkit.runner.agent.imports import preloadable
from perfkit.runner.commands import Interpreter, fixed_environment
from perfkit.runner.fork_server import ForkServerLostError
from perfkit.runner.lockstep.children import (
    HARNESS,
    Assignment,
    Child,
    ForkServers,
    FreshProcesses,
    Source,
    Zygote,
)
from perfkit.runner.lockstep.collection import Scouted, expected_imports, ignore_log, plugins, read_listing
from perfkit.runner.lockstep.launch import (
    LaunchRecord,
    LaunchRules,
    Slot,
    joined_records,
    other,
    replaced,
    run_alone,
    run_launch,
)
from perfkit.runner.lockstep.residency import DISTURBED, NO_ROOM, Residents
from perfkit.runner.lockstep.turns import Pace

_Found = TypeVar("_Found")

# Children of one preloader share its address layout and hash seed, which bias all their times alike. Where
# there are servers, that bias is small against that of a generation.
LAUNCHES_PER_PRELOADER = 4
_GENERATIONS_PER_PRELOADER = 8
_MOST_REUSE_FAULTS = 100
# Two cores raise two of them in hardly longer than one, and most runs need a second one.
_RAISED_TOGETHER = 2


@dataclass(frozen=True, kw_only=True)
class MeasuredTrees:
    """What is measured: the two trees, the user's own trees that they were made from, and pytest's paths.

    ``plants`` maps benchmarks to the share by which head is made slower on purpose. ``changed`` are the
    functions that differ between the trees, by file relative to their roots, where that is known.
    ``interpreters`` are those of the sides that are not measured by this process's own. ``asv`` is the suite
    of asv that both have, if any. The measuring ``began``, and the older tree was ``committed``, at these
    seconds since the epoch.
    """

    roots: Mapping[Side, Path]
    origins: tuple[Path, ...]
    paths: tuple[str, ...]
    select: str | None = None
    plants: Mapping[str, float] = field(default_factory=dict)
    changed: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    interpreters: Mapping[Side, Interpreter] = field(default_factory=dict)
    asv: AsvSuite | None = None
    began: float = field(default_factory=time.time)
    committed: float | None = None

    @property
    def oldest(self) -> float:
        """When the code of the oldest tree was written, as far as that is known."""
        return self.began if self.committed is None else min(self.began, self.committed)

    @property
    def apart(self) -> bool:
        """Whether the sides have interpreters that differ, so that no process can have imported for both."""
        own = [self.interpreters.get(side, Interpreter()) for side in SIDES]
        return own[0] != own[1]


class Launcher:
    """Starts children on two trees; their logs and temporary files are in ``folder``.

    ``preload`` are the libraries that preloaders import; None stands for what the benchmarks' files of both
    sides import, and whatever else both are seen to import. Where there are no servers,
    ``launches_per_preloader`` launches are forked from a preloader. ``serves`` says whether there are;
    ``collected_s`` is how long the last generation took to collect. ``residents`` are the benchmarks on an
    accelerator, as far as launches have shown which of them have room there on both sides. Preloaders are
    raised in pairs where there are ``cores`` for it.
    """

    def __init__(
        self,
        trees: MeasuredTrees,
        *,
        folder: Path,
        environment: Mapping[str, str],
        seed: int,
        preload: Sequence[str] | None = None,
        launches_per_preloader: int = LAUNCHES_PER_PRELOADER,
        cores: float = _RAISED_TOGETHER,
    ) -> None:
        self.launches_per_preloader = launches_per_preloader
        self._raised_together = 1 if trees.apart or cores < _RAISED_TOGETHER else _RAISED_TOGETHER
        self._trees, self._folder = trees, folder
        self._environment = environment
        self._random = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
        self._layout = 0
        self._learns = preload is None
        self._modules: tuple[str, ...] = ()
        autoload = not environment.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
        shared = expected_imports(trees.roots, trees.paths) if preload is None else preload
        self._preload_also([*HARNESS, *(plugins().modules if autoload else ()), *shared])
        self.residents = Residents()
        self._stack = ExitStack()
        self._source: Source | None = None
        self._spares: list[ForkServers] = []
        self._taught: tuple[str, ...] = ()
        self._servers: dict[Side, Zygote] = {}
        self._generations = 0
        self._alone = False
        self._groups = 0
        self._children = 0
        self.serves = False
        self.collected_s = 0.0
        self._preloaders = 0
        self._raised_s = 0.0
        self.why_no_fork: str | None = None
        self.why_not_served: str | None = None
        self.allocator_kept: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._end_servers()
        self._stack.close()

    @property
    def preloader(self) -> int:
        """The number of the present group of launches: those of a generation, or else of a preloader."""
        return self._groups

    def root(self, side: Side) -> Path:
        """Return the tree of a side."""
        return self._trees.roots[side]

    def _preload_also(self, modules: Sequence[str]) -> None:
        """Add modules for preloaders to import, except a side's own."""
        wanted = preloadable(modules, tuple(self._trees.roots.values()), self._trees.origins)
        self._modules = tuple(dict.fromkeys([*self._modules, *wanted]))

    def warm_up(self, modules: Sequence[str]) -> None:
        """Add modules that both sides imported to those that preloaders import.

        Nothing happens where a list of what to preload was given. The present preloader imports them at once
        where there are no servers, and else before a new generation is forked from it.
        """
        if not self._learns:
            return
        self._preload_also(modules)
        # The present servers have imported them already, so their preloader need not do so now.
        if not self._servers:
            self._teach()

    def narrow(self, nodes: Iterable[str]) -> None:
        """Have later children collect only the files of these benchmarks, as others would only cost time."""
        files = tuple(dict.fromkeys(node.partition("::")[0] for node in nodes))
        self._trees = dataclasses.replace(self._trees, paths=files)

    def _teach(self) -> None:
        """Have the present preloaders import what was added since they were last told."""
        news = [name for name in self._modules if name not in self._taught]
        if not news:
            return
        self._taught = self._modules
        try:
            sources = [self._source, *self._spares]
            present = [source for source in sources if isinstance(source, ForkServers)]
            _preload(present, news)
            if any(map(self._own_loaded, present)):
                self._unlearn()
                self._replace_lost()
        except ForkServerLostError:
            self._replace_lost()

    def renew(self, *, alone: bool = False) -> None:
        """Begin a new group of launches: from a new generation, or a new preloader with another hash seed.

        A group that is one launch ``alone`` has no servers: its processes import and collect for themselves,
        which takes less time than a generation of which nothing else is forked.
        """
        self._end_servers()
        self._groups += 1
        self._alone = alone
        self._generations += alone
        if self.serves and self._generations % self._generations_per_preloader:
            self._teach()
        else:
            self._replace_source()

    @property
    def _generations_per_preloader(self) -> int:
        """How many generations a preloader has.

        The layout of a preloader biases all that is forked from it. Where both sides share one, that bias is
        alike on both. Where they do not, a generation that has its own is what intervals can rest on.
        """
        return 1 if self._trees.apart else _GENERATIONS_PER_PRELOADER

    def _replace_source(self) -> None:
        if self.why_no_fork is None and not self._spares:
            self._raise_preloaders()
        if self.why_no_fork is None:
            self._source = self._spares.pop(0)
        else:
            self._source = self._fresh_processes()

    def _raise_preloaders(self) -> None:
        """Start preloaders, two at once where a core is free for the second one.

        Nothing is being timed now, so that they disturb no measurement.
        """
        first, begun = self._source is None, time.monotonic()
        self._stack.close()
        for _ in range(self._raised_together):
            self._preloaders += 1
            preloader = ForkServers(
                number=self._preloaders,
                environment=self._next_environment(),
                folder=self._folder,
                interpreters=self._trees.interpreters,
            )
            self._spares.append(self._stack.enter_context(preloader))
        self._taught = self._modules
        _preload(self._spares, self._modules)
        own = self._own_loaded(self._spares[0])
        if own and self._modules != HARNESS:
            self._unlearn()
            self._spares.clear()
            self._raise_preloaders()
        elif own:
            self._spares.clear()
            self._stack.close()
            self.why_no_fork = f"pytest itself needs {', '.join(own)}, so that launches import it anew"
        elif first:
            self._try(self._spares[0])
        self._raised_s = time.monotonic() - begun

    def _own_loaded(self, preloader: ForkServers) -> Sequence[str]:
        """Return the sides' own names that a preloader has imported, which its forks could not measure."""
        return preloader.loaded_own(list(self._trees.roots.values()), self._trees.origins)

    def _unlearn(self) -> None:
        """Preload only the harness from now on: a library has imported a copy of a side's own code."""
        self._modules, self._learns = HARNESS, False

    def _try(self, preloader: ForkServers) -> None:
        """Find out whether forks of the first preloader can compute, and whether memory is kept for reuse."""
        self.why_no_fork = preloader.why_no_fork()
        faults = preloader.faults_of_reuse
        self.allocator_kept = None if faults is None else faults < _MOST_REUSE_FAULTS

    def _replace_lost(self) -> None:
        """Start a new preloader and drop all others: what ended one of them may have ended these too."""
        self._spares.clear()
        self._end_servers()
        self._groups += 1
        self._replace_source()

    def survey(
        self, sides: Sequence[Side] = SIDES, *, log: Callable[[str], None] = ignore_log
    ) -> Mapping[Side, Scouted]:
        """Return the benchmarks that sides have now; the processes that collected them serve later launches.

        ``log`` receives a sentence now and then where that takes long. Where these processes cannot be forked
        from, each launch imports and collects for itself, and ``why_not_served`` says why.

        Raises:
            NotMeasuredError: pytest cannot collect a side, or two preloaders in a row were lost.
        """
        return self._repeated_once(lambda: self._collected(sides, log))

    def survey_alone(self, side: Side) -> Scouted:
        """Return the benchmarks of a side while no process of the other side runs.

        Raises:
            NotMeasuredError: pytest cannot collect it, or two preloaders in a row were lost.
        """
        self._end_servers()
        return self.survey([side])[side]

    def _collected(
        self, sides: Sequence[Side], log: Callable[[str], None] = ignore_log
    ) -> Mapping[Side, Scouted]:
        """Start a child of each side that collects, all at once, and keep those that can be forked from."""
        begun = time.monotonic()
        self.draw_layout()
        for side in sides:
            if side in self._servers:
                self._servers.pop(side).end()
        serves = self.why_not_served is None
        children = {side: self._start(side, nodes=None, serves=serves) for side in sides}
        kept: list[Side] = []
        try:
            found = {side: read_listing(child, log) for side, child in children.items()}
            if self.why_no_fork is None and serves:
                kept += [side for side in sides if found[side].found and self._is_kept(children[side])]
        finally:
            for side, child in children.items():
                if side not in kept:
                    child.end()
        self.serves = bool(self._servers)
        self._generations += 1
        self.collected_s = time.monotonic() - begun + (self._raised_s if self._trees.apart else 0.0)
        return found

    def _is_kept(self, child: Child) -> bool:
        """Tell whether a child that has collected can be forked from, and keep it as a server if so."""
        if self.why_not_served is None:
            server = Zygote(child)
            # Later generations import the same code as the first one, so only that one is tried.
            self.why_not_served = None if self.serves else server.why_no_fork()
            if self.why_not_served is None:
                self._servers[child.side] = server
                return True
        self._end_servers()
        return False

    def _end_servers(self) -> None:
        while self._servers:
            self._servers.popitem()[1].end()

    def _repeated_once(self, attempt: Callable[[], _Found]) -> _Found:
        """Call ``attempt``; if a preloader or server is lost meanwhile, call it once more with new ones.

        Raises:
            NotMeasuredError: those were lost as well.
        """
        with contextlib.suppress(ForkServerLostError):
            return attempt()
        try:
            self._replace_lost()
            return attempt()
        except ForkServerLostError as error:
            raise NotMeasuredError(f"two in a row were lost: {error}") from error

    def _fresh_processes(self) -> FreshProcesses:
        return FreshProcesses(environment=self._next_environment(), interpreters=self._trees.interpreters)

    def start(self, side: Side, *, nodes: Sequence[str] | None) -> Child:
        """Start a child that runs ``nodes``, or lists the benchmarks where that is None.

        Raises:
            NotMeasuredError: two preloaders or generations in a row were lost.
        """
        return self._repeated_once(lambda: self._start(side, nodes=None if nodes is None else tuple(nodes)))

    def start_training(self, side: Side, place: str, *, steps: int) -> Child:
        """Start a child that counts the last of ``steps`` training steps of a function or a script.

        Raises:
            NotMeasuredError: two preloaders in a row were lost.
        """
        return self._repeated_once(lambda: self._start(side, nodes=(), training=place, steps=steps))

    def _start(
        self,
        side: Side,
        *,
        nodes: tuple[str, ...] | None,
        serves: bool = False,
        training: str | None = None,
        steps: int = 0,
    ) -> Child:
        if self._source is None:
            self.renew()
        assert self._source is not None  # noqa: S101 (renew() set it)
        if nodes and self.serves and not self._servers and not self._alone:
            self._collected(SIDES)
        self._children += 1
        # Both sides have paths of the same length, since a longer path moves what follows it in memory.
        place = self._folder / f"{self._children:06}-{side}"
        assignment = Assignment(
            root=str(self._trees.roots[side]),
            origins=tuple(str(origin) for origin in self._trees.origins),
            paths=self._trees.paths,
            nodes=nodes,
            changed=self._trees.changed,
            asv=self._trees.asv,
            serves=serves and self.why_no_fork is None,
            training=training,
            steps=steps,
            select=self._trees.select,
            temporary=str(place),
            log=f"{place}.log",
            plants=self._trees.plants if side == "head" else {},
            caches=str(self._folder / f"caches-{side}"),
            began=self._trees.began,
            oldest=self._trees.oldest,
            layout=self._layout,
        )
        if nodes and side in self._servers:
            return self._servers[side].start(assignment)
        return self._source.start(side, assignment)

    def launch(
        self, slot: Slot, nodes: Sequence[str], *, paces: dict[str, Pace], rules: LaunchRules
    ) -> LaunchRecord:
        """Measure ``nodes`` in a child of each side; ``paces`` of earlier launches are used and updated.

        A launch whose preloader or server is lost is made again as a whole, from new ones. Benchmarks whose
        sides have no room on a device together are measured by one side after the other, in the order of the
        slot; those that are found to be so only now are made again.

        Raises:
            NotMeasuredError: those were lost as well.
        """

        def attempt() -> LaunchRecord:
            found, begun = dict(paces), time.monotonic()
            together = [node for node in nodes if not self.residents.are_apart(node)]
            alone = [node for node in nodes if self.residents.are_apart(node)]
            records = []
            if together:
                children = self._start_both(slot, together)
                records.append(run_launch(children, together, paces=found, rules=rules))
            if alone:
                records.append(self._launch_alone(slot, alone, found, rules))
            record = joined_records(records)
            wall_s = time.monotonic() - begun
            why, again = NO_ROOM, self.residents.learn(record)
            if not again:
                overhead_s = wall_s - sum(record.seconds.values())
                why, again = DISTURBED, self._disturbed(record, found, rules, overhead_s)
            if again:
                made = self._launch_alone(slot, again, found, rules)
                record = replaced(record, again, made, why=why)
            paces.update(found)
            return record

        return self._repeated_once(attempt)

    def _launch_alone(
        self, slot: Slot, nodes: Sequence[str], paces: dict[str, Pace], rules: LaunchRules
    ) -> LaunchRecord:
        """Measure benchmarks by one side after the other, of which the one that begins is measured first."""
        self.draw_layout()
        order = (slot.begins, other(slot.begins))
        return run_alone(
            lambda side: self._start(side, nodes=tuple(nodes)), order, nodes, paces=paces, rules=rules
        )

    def _disturbed(
        self, record: LaunchRecord, paces: Mapping[str, Pace], rules: LaunchRules, overhead_s: float
    ) -> list[str]:
        """Return the benchmarks of a launch that the presence of the other side was found to disturb."""
        return self.residents.check(
            record,
            lambda node, side: self._start(side, nodes=(node,)),
            paces=paces,
            rules=rules,
            overhead_s=overhead_s,
        )

    def _start_both(self, slot: Slot, nodes: Sequence[str]) -> list[Child]:
        """Start a child of each side in the order of a slot, and return the one that begins first."""
        children: dict[Side, Child] = {}
        self.draw_layout()
        try:
            for side in (slot.forked_first, other(slot.forked_first)):
                children[side] = self._start(side, nodes=tuple(nodes))
        except ForkServerLostError:
            for child in children.values():
                with contextlib.suppress(ForkServerLostError):
                    child.end()
            raise
        return [children[slot.begins], children[other(slot.begins)]]

    def draw_layout(self) -> None:
        """Draw the seed of layouts and inputs for both sides, which are as alike then as their code."""
        self._layout = self._random.randrange(1 << 32)

    def _next_environment(self) -> dict[str, str]:
        hash_seed = self._random.randrange(1, 2**32)
        return fixed_environment(self._environment, hash_seed=hash_seed)


def _preload(preloaders: Sequence[ForkServers], modules: Sequence[str]) -> None:
    for preloader in preloaders:
        preloader.begin_preload(modules, plugins().packages)
    for preloader in preloaders:
        preloader.finish_preload()
