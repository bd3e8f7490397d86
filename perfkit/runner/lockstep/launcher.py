"""Starts the children of a run: forked from processes that have imported what they share.

A fork server has imported what both sides share. From it, a zygote of each side is forked that imports the
code of its side and collects its benchmarks. These two are zygotes: launches are forked from
them until new ones replace them. The layout of their memory biases all their launches alike, so
pairs of zygotes are a level of replication of their own. Every eighth time the fork server is replaced, too.

Zygotes that traced their imports fork only what traces benchmarks: Python's audit hooks stay for good.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self, TypeVar

from perfkit.agent.imports import preloadable
from perfkit.config import AsvSuite
from perfkit.errors import NotMeasuredError
from perfkit.model import SIDES, Side
from perfkit.runner.commands import Interpreter, fixed_environment
from perfkit.runner.lockstep.children import (
    HARNESS,
    Assignment,
    Child,
    ForkServers,
    FreshProcesses,
    Source,
    Tracing,
    Zygote,
)
from perfkit.runner.lockstep.collection import (
    Listing,
    expected_imports,
    holds_benchmarks_alone,
    ignore_log,
    loaded_plugins,
    plugins,
    read_listing,
)
from perfkit.runner.lockstep.launch import (
    LaunchRecord,
    LaunchRules,
    Slot,
    joined_records,
    other,
    replaced,
    run_alone,
    run_launch,
    warmed,
)
from perfkit.runner.lockstep.residency import DISTURBED, NO_ROOM, Residents
from perfkit.runner.lockstep.runner import BenchmarkError, Runner
from perfkit.runner.lockstep.turns import LoopPlan
from perfkit.runner.requests import ForkServerLostError

_Found = TypeVar("_Found")

# Children of one fork server share its address layout and hash seed, which bias all their times alike. Where
# there are zygotes, that bias is small against that of a pair of zygotes.
LAUNCHES_PER_FORK_SERVER = 4
_ZYGOTES_PER_FORK_SERVER = 8
_MOST_REUSE_FAULTS = 100
# Tracing has no part in these.
_ERRORS_OF_IMPORTS = ("ImportError: ", "ModuleNotFoundError: ", "SyntaxError: ")
# Two cores raise two of them in hardly longer than one, and most runs need a second one.
_STARTED_TOGETHER = 2
# Each process needs a core while it warms up; more than four pairs at once would save little.
_CORES_FOR_A_PAIR, _MOST_PAIRS = 2, 4


@dataclass(frozen=True, kw_only=True)
class MeasuredTrees:
    """What is measured: the two trees, the user's own trees that they were made from, and pytest's paths.

    ``slowdowns`` maps benchmarks to the share by which head is made slower on purpose.
    ``interpreters`` are those of the sides that are not measured by this process's own. ``asv`` is the suite
    of asv that both have, if any. The measuring ``began``, and the older tree was ``committed``, at these
    seconds since the epoch.
    """

    roots: Mapping[Side, Path]
    origins: tuple[Path, ...]
    paths: tuple[str, ...]
    select: str | None = None
    slowdowns: Mapping[str, float] = field(default_factory=dict)
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

    Methods that start children raise NotMeasuredError where two fork servers or zygotes in a row were lost.

    Args:
        trees: what is measured.
        folder: where logs and temporary files go.
        environment: the variables of all children.
        seed: the seed of an order and of layouts.
        preload: the libraries that fork servers import; None for what the benchmarks' files of both sides
            import, and what both are seen to import.
        launches_per_fork_server: how many launches are forked from one where there are no zygotes.
        cores: two fork servers are started at once where there are cores for it.

    Attributes:
        serves: whether there are zygotes.
        collected_s: how long the last zygotes took to collect the files that later ones collect as well.
        residents: the benchmarks on an accelerator, and which of them fit there on both sides.
    """

    def __init__(
        self,
        trees: MeasuredTrees,
        *,
        folder: Path,
        environment: Mapping[str, str],
        seed: int,
        preload: Sequence[str] | None = None,
        launches_per_fork_server: int = LAUNCHES_PER_FORK_SERVER,
        cores: float = _STARTED_TOGETHER,
    ) -> None:
        self.launches_per_fork_server = launches_per_fork_server
        self._started_together = 1 if trees.apart or cores < _STARTED_TOGETHER else _STARTED_TOGETHER
        self._trees, self.folder = trees, folder
        self._environment = environment
        self._random = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
        # The seed of layouts and inputs that was drawn last.
        self.layout = 0
        self._extends_preload = preload is None
        self._modules: tuple[str, ...] = ()
        shared = expected_imports(trees.roots, trees.paths) if preload is None else preload
        self._preload_also([*HARNESS, *loaded_plugins(environment), *shared])
        self.residents = Residents()
        self._stack = ExitStack()
        self._source: Source | None = None
        self._spares: list[ForkServers] = []
        self._preloaded: tuple[str, ...] = ()
        self._zygotes: dict[Side, Zygote] = {}
        # The checkouts, where listing benchmarks traces imports; zygotes that did so are for tracing alone.
        self._tops: Mapping[Side, Path] = {}
        self._traced: dict[Side, Zygote] = {}
        self._zygote_pairs = 0
        self._ready: list[dict[Side, Runner]] = []
        self._most_pairs = min(int(cores / _CORES_FOR_A_PAIR), _MOST_PAIRS)
        self._alone = False
        self._groups = 0
        self._children = 0
        self.serves = False
        self.collected_s = 0.0
        self._files_s: dict[str, float] = {}
        self._fork_servers = 0
        self._start_s = 0.0
        self.why_no_fork: str | None = None
        self.why_not_served: str | None = None
        self.allocator_kept: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_traced()
        self._end_zygotes()
        self._stack.close()

    @property
    def group(self) -> int:
        """The number of the present group of launches: those of two zygotes, or else of a fork server."""
        return self._groups

    @property
    def warms_pairs(self) -> bool:
        """Whether launches ``alone`` of a benchmark on an accelerator can warm up several at once."""
        return min(self._most_pairs, max(self.residents.room.values(), default=0)) > 1

    def root(self, side: Side) -> Path:
        """Return the tree of a side."""
        return self._trees.roots[side]

    def _preload_also(self, modules: Sequence[str]) -> None:
        wanted = preloadable(modules, tuple(self._trees.roots.values()), self._trees.origins)
        self._modules = tuple(dict.fromkeys([*self._modules, *wanted]))

    def warm_up(self, modules: Sequence[str]) -> None:
        """Add modules that both sides imported to those that fork servers import.

        Nothing happens where a list of what to preload was given. Present fork servers import them at once
        where there are no zygotes, and else before new ones are forked.
        """
        if not self._extends_preload:
            return
        self._preload_also(modules)
        # The present zygotes have imported them already, so their fork server need not do so now.
        if not self._zygotes:
            self._preload_new()

    def narrow(self, nodes: Iterable[str]) -> None:
        """Have later children collect only the files of these benchmarks, as others would only cost time."""
        files = tuple(dict.fromkeys(node.partition("::")[0] for node in nodes))
        self._trees = dataclasses.replace(self._trees, paths=files)
        dropped = [self._files_s.pop(file) for file in self._files_s.keys() - set(files)]
        self.collected_s = max(self.collected_s - math.fsum(dropped), 0.0)

    @contextlib.contextmanager
    def on_other_trees(self, roots: Mapping[Side, Path]) -> Iterator[None]:
        """Measure other trees for a while, from the same fork servers; their caches are their own."""
        trees, folder = self._trees, self.folder
        self._end_traced()
        self._end_zygotes()
        self._trees = dataclasses.replace(trees, roots=roots, slowdowns={})
        self.folder, self._alone = folder / "other", False
        self.folder.mkdir()
        try:
            yield
        finally:
            self._end_zygotes()
            self._trees, self.folder, self._alone = trees, folder, False

    def _preload_new(self) -> None:
        """Have the present fork servers import what was added since the last time."""
        news = [name for name in self._modules if name not in self._preloaded]
        if not news:
            return
        self._preloaded = self._modules
        try:
            sources = [self._source, *self._spares]
            present = [source for source in sources if isinstance(source, ForkServers)]
            _preload(present, news)
            if any(map(self._loaded_own, present)):
                self._preload_harness_only()
                self._replace_lost()
        except ForkServerLostError:
            self._replace_lost()

    def renew(self, *, alone: bool = False, whole: bool = False) -> None:
        """Begin a new group of launches: from new zygotes, or a new fork server with another hash seed.

        Where it has to be new as a ``whole``, it is a new fork server.

        A group that is one launch ``alone`` has no zygotes: its processes import and collect for themselves,
        which takes less time than zygotes of which nothing else is forked. It may be warmed up already.
        """
        self._groups += 1
        self._alone = alone
        self._zygote_pairs += alone
        if alone and self._ready:
            return
        self._end_zygotes()
        if self.serves and self._zygote_pairs < self._zygotes_per_fork_server and not whole:
            self._preload_new()
        else:
            self._replace_source()

    @property
    def _zygotes_per_fork_server(self) -> int:
        """How many pairs of zygotes a fork server has.

        Its layout biases all that is forked from it: alike on both sides where they share one. Where they do
        not, intervals can rest only on pairs of zygotes that have fork servers of their own.
        """
        return 1 if self._trees.apart else _ZYGOTES_PER_FORK_SERVER

    def _replace_source(self) -> None:
        self._zygote_pairs = 0
        if self.why_no_fork is None and not self._spares:
            self._start_fork_servers()
        if self.why_no_fork is None:
            self._source = self._spares.pop(0)
        else:
            self._source = self._fresh_processes()

    def _start_fork_servers(self) -> None:
        """Start fork servers, two at once where a core is free for the second one.

        Nothing is being timed now, so that they disturb no measurement.
        """
        first, begun = self._source is None, time.monotonic()
        self._stack.close()
        for _ in range(self._started_together):
            self._fork_servers += 1
            started = ForkServers(
                number=self._fork_servers,
                environment=self._next_environment(),
                folder=self.folder,
                interpreters=self._trees.interpreters,
            )
            self._spares.append(self._stack.enter_context(started))
        self._preloaded = self._modules
        _preload(self._spares, self._modules)
        own = self._loaded_own(self._spares[0])
        if own and self._modules != HARNESS:
            self._preload_harness_only()
            self._spares.clear()
            self._start_fork_servers()
        elif own:
            self._spares.clear()
            self._stack.close()
            self.why_no_fork = f"pytest itself needs {', '.join(own)}, so that launches import it anew"
        elif first:
            self._try(self._spares[0])
        self._start_s = time.monotonic() - begun

    def _loaded_own(self, servers: ForkServers) -> Sequence[str]:
        return servers.loaded_own(list(self._trees.roots.values()), self._trees.origins)

    def _preload_harness_only(self) -> None:
        self._modules, self._extends_preload = HARNESS, False

    def _try(self, servers: ForkServers) -> None:
        self.why_no_fork = servers.why_no_fork()
        faults = servers.faults_of_reuse
        self.allocator_kept = None if faults is None else faults < _MOST_REUSE_FAULTS

    def _replace_lost(self) -> None:
        self._spares.clear()
        self._end_traced()
        self._end_zygotes()
        self._groups += 1
        self._replace_source()

    def survey(
        self, sides: Sequence[Side] = SIDES, *, log: Callable[[str], None] = ignore_log
    ) -> Mapping[Side, Listing]:
        """Return the benchmarks that sides have now; the processes that collected them serve later launches.

        ``log`` receives a sentence now and then where that takes long. Where these processes cannot be forked
        from, each launch imports and collects for itself, and ``why_not_served`` is the reason.
        """
        found = self._repeated_once(lambda: self._collected(sides, log, tops=self._tops))
        errors = [error for one in found.values() for error in one.errors.values()]
        if self._tops and not all(error.startswith(_ERRORS_OF_IMPORTS) for error in errors):
            # Tracing is to have no part in what is reported.
            return self._repeated_once(lambda: self._collected(sides, log))
        return found

    def trace_imports(self, tops: Mapping[Side, Path]) -> None:
        """Have the processes that list benchmarks trace what they import, unless other tests are there."""
        trees = self._trees
        if trees.select is None and holds_benchmarks_alone(trees.roots["head"], trees.paths):
            self._tops = tops

    @contextlib.contextmanager
    def tracing(
        self, nodes: Iterable[str], tops: Mapping[Side, Path]
    ) -> Iterator[Callable[[Side, Sequence[str], Tracing], Child]]:
        """Yield a function that starts a child which traces some of ``nodes``.

        It is forked from a process that has traced its imports: the one that listed the benchmarks, unless
        that has imported files of other tests.
        """
        self.narrow(nodes)
        files = frozenset(self._trees.paths)
        try:
            if not all(side in self._traced and self._traced[side].files <= files for side in SIDES):
                self._repeated_once(lambda: self._collected(SIDES, tops=tops))
            if lacking := [side for side in SIDES if side not in self._traced]:
                raise NotMeasuredError(f"no benchmark of {lacking[0]} was found again")
            self.draw_layout()
            yield lambda side, part, tracing: self._start(side, nodes=tuple(part), tracing=tracing)
        finally:
            self._end_traced()

    @property
    def next_s(self) -> float:
        """About how many seconds pass until the next launch has imported the code."""
        return 0.0 if self._zygotes or self._ready else self.collected_s

    def prepare(self) -> None:
        """Start the zygotes that tracing has not left, so that a first launch takes as long as others."""
        if self.serves and not self._zygotes:
            self._repeated_once(lambda: self._collected(SIDES))

    def survey_alone(self, side: Side) -> Listing:
        """Return the benchmarks of a side while no process of the other side runs."""
        self._end_traced()
        self._end_zygotes()
        return self.survey([side])[side]

    def _collected(
        self,
        sides: Sequence[Side],
        log: Callable[[str], None] = ignore_log,
        *,
        tops: Mapping[Side, Path] = MappingProxyType({}),
    ) -> Mapping[Side, Listing]:
        """Start a child of each side that collects, all at once, and keep those that can be forked from."""
        begun = time.monotonic()
        if not tops:
            self._end_traced()
        zygotes = self._traced if tops else self._zygotes
        for side in sides:
            if side in zygotes:
                zygotes.pop(side).end()
        if not zygotes:
            self.draw_layout()
        serves = bool(tops) or self._forks
        children = {side: self._start(side, nodes=None, serves=serves, top=tops.get(side)) for side in sides}
        kept: list[Side] = []
        try:
            found = {side: read_listing(child, log) for side, child in children.items()}
            for side, one in found.items():
                if (
                    serves
                    and (one.files if tops else one.found)
                    and self._is_kept(children[side], one.files, zygotes)
                ):
                    kept.append(side)
        finally:
            for side, child in children.items():
                if side not in kept:
                    child.end()
        self.serves = self._forks and bool(self._zygotes or self._traced)
        self._zygote_pairs += not tops
        self.collected_s = time.monotonic() - begun + (self._start_s if self._trees.apart else 0.0)
        self._files_s = {
            file: max(one.seconds.get(file, 0.0) for one in found.values())
            for file in {file for one in found.values() for file in one.seconds}
        }
        return found

    @property
    def _forks(self) -> bool:
        return self.why_no_fork is None and self.why_not_served is None

    def _is_kept(self, child: Child, files: frozenset[str], zygotes: dict[Side, Zygote]) -> bool:
        """Return whether a child that has collected can be forked from, and keep it as a zygote if so.

        One that traces is kept in any case, as it finds out for itself.
        """
        zygote = Zygote(child, files)
        if self._forks and not self.serves:
            # Later zygotes import the same code as the first one, so only that one is tried.
            self.why_not_served = zygote.why_no_fork()
        if self._forks or zygotes is self._traced:
            zygotes[child.side] = zygote
            return True
        self._end_zygotes()
        return False

    def _end_zygotes(self) -> None:
        self._end_ready()
        while self._zygotes:
            self._zygotes.popitem()[1].end()

    def _end_traced(self) -> None:
        self._tops = {}
        while self._traced:
            self._traced.popitem()[1].end()

    def _end_ready(self) -> None:
        for pair in self._ready:
            for runner in pair.values():
                runner.child.end()
        self._ready.clear()

    def _repeated_once(self, attempt: Callable[[], _Found]) -> _Found:
        """Call ``attempt``; if a fork server or zygote is lost meanwhile, call it once more with new ones."""
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
        """Start a child that runs ``nodes``, or lists the benchmarks where that is None."""
        return self._repeated_once(lambda: self._start(side, nodes=None if nodes is None else tuple(nodes)))

    def start_training(self, side: Side, place: str, *, steps: int) -> Child:
        """Start a child that counts the last of ``steps`` training steps of a function or a script."""
        return self._repeated_once(lambda: self._start(side, nodes=(), training=place, steps=steps))

    def start_import(self, side: Side, files: tuple[str, ...]) -> Child:
        """Start a child that times what files of benchmarks import from the project."""
        return self._repeated_once(lambda: self._start(side, nodes=(), importing=files))

    def _start(
        self,
        side: Side,
        *,
        nodes: tuple[str, ...] | None,
        serves: bool = False,
        training: str | None = None,
        steps: int = 0,
        importing: tuple[str, ...] = (),
        top: Path | None = None,
        tracing: Tracing | None = None,
    ) -> Child:
        if self._source is None:
            self.renew()
        assert self._source is not None  # noqa: S101 (renew() set it)
        zygotes = self._zygotes if tracing is None else self._traced
        if nodes and self.serves and side not in zygotes and not self._alone:
            self._collected([one for one in SIDES if one not in zygotes])
        self._children += 1
        # Both sides have paths of the same length, since a longer path moves what follows it in memory.
        place = self.folder / f"{self._children:06}-{side}"
        assignment = Assignment(
            root=str(self._trees.roots[side]),
            origins=tuple(str(origin) for origin in self._trees.origins),
            paths=self._trees.paths,
            nodes=nodes,
            asv=self._trees.asv,
            serves=serves and (top is not None or self.why_no_fork is None),
            training=training,
            steps=steps,
            importing=importing,
            traces=None if top is None else str(top),
            tracing=tracing,
            select=self._trees.select,
            temporary=str(place),
            log=f"{place}.log",
            slowdowns=self._trees.slowdowns if side == "head" else {},
            caches=str(self.folder / f"caches-{side}"),
            began=self._trees.began,
            oldest=self._trees.oldest,
            layout=self.layout,
        )
        if side in zygotes and (nodes or tracing is not None):
            return zygotes[side].start(assignment)
        return self._source.start(side, assignment)

    def launch(
        self, slot: Slot, nodes: Sequence[str], *, plans: dict[str, LoopPlan], rules: LaunchRules
    ) -> LaunchRecord:
        """Measure ``nodes`` in a child of each side; ``plans`` of earlier launches are used and updated.

        On an accelerator, where processes take seconds to warm up, those of some launches ``alone`` do so at
        once, and are timed one launch after the other.

        A launch whose fork server or zygote is lost is made again as a whole, from new ones. Benchmarks whose
        sides have no room on a device together are measured by one side after the other, in the order of the
        slot; those that are found to be so only now are made again.
        """

        def attempt() -> LaunchRecord:
            found, begun = dict(plans), time.monotonic()
            together = [node for node in nodes if not self.residents.are_apart(node)]
            alone = [node for node in nodes if self.residents.are_apart(node)]
            records = []
            if together:
                ready = self._warmed(slot, together, found, rules)
                children = [one.child for one in ready] or self._start_both(slot, together)
                records.append(run_launch(children, together, plans=found, rules=rules, ready=ready))
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
            plans.update(found)
            return record

        return self._repeated_once(attempt)

    def _launch_alone(
        self, slot: Slot, nodes: Sequence[str], plans: dict[str, LoopPlan], rules: LaunchRules
    ) -> LaunchRecord:
        """Measure benchmarks by one side after the other, of which the one that begins is measured first."""
        self.draw_layout()
        order = (slot.begins, other(slot.begins))
        return run_alone(
            lambda side: self._start(side, nodes=tuple(nodes)), order, nodes, plans=plans, rules=rules
        )

    def _disturbed(
        self, record: LaunchRecord, plans: Mapping[str, LoopPlan], rules: LaunchRules, overhead_s: float
    ) -> list[str]:
        """Return the benchmarks of a launch that the presence of the other side was found to disturb."""
        return self.residents.check(
            record,
            lambda node, side: self._start(side, nodes=(node,)),
            plans=plans,
            rules=rules,
            overhead_s=overhead_s,
        )

    def _warmed(
        self, slot: Slot, nodes: Sequence[str], plans: Mapping[str, LoopPlan], rules: LaunchRules
    ) -> list[Runner]:
        """Return a launch's runners, warmed beside those of coming launches; none where it warms up alone."""
        node, *more = nodes
        if more or not (self._ready and self._ready[0]["base"].node == node):
            self._end_ready()
            pairs = min(self.residents.room.get(node, 0), self._most_pairs)
            if self._alone and not more and pairs > 1 and node in plans and plans[node].warmup:
                self._warm_up_pairs(slot, node, pairs, plan=plans[node], limit_s=rules.limit_s(node))
        if not self._ready:
            return []
        pair = self._ready.pop(0)
        return [pair[slot.begins], pair[other(slot.begins)]]

    def _warm_up_pairs(self, slot: Slot, node: str, pairs: int, *, plan: LoopPlan, limit_s: float) -> None:
        """Start and warm up some pairs of children; none are ready where the benchmark fails in one."""
        children: list[Child] = []
        try:
            for number in range(pairs):
                first = slot.forked_first if number % 2 == 0 else other(slot.forked_first)
                children += self._start_both(dataclasses.replace(slot, forked_first=first), [node])
            runners = warmed(children, node, plan=plan, limit_s=limit_s)
        except (BenchmarkError, ForkServerLostError) as error:
            for child in children:
                with contextlib.suppress(ForkServerLostError):
                    child.end()
            if isinstance(error, ForkServerLostError):
                raise
            return
        by_pair = zip(runners[::2], runners[1::2], strict=True)
        self._ready = [{one.side: one for one in pair} for pair in by_pair]

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
        self.layout = self._random.randrange(1 << 32)

    def _next_environment(self) -> dict[str, str]:
        hash_seed = self._random.randrange(1, 2**32)
        return fixed_environment(self._environment, hash_seed=hash_seed)


def _preload(started: Sequence[ForkServers], modules: Sequence[str]) -> None:
    servers = [server for one in started for server in one.processes]
    for server in servers:
        server.begin_preload(modules, plugins().packages)
    for server in servers:
        server.finish_preload()
