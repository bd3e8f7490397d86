"""Measuring pairs of commits one after another; each pair is recorded as a run."""

from __future__ import annotations

import functools
import os
import statistics
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Self

from perfkit.agent.counters.model import INSTRUCTIONS, Counts
from perfkit.config import Project
from perfkit.errors import SideNotMeasuredError, UsageError
from perfkit.gating.compare import recorded
from perfkit.gating.coverage import find_changed, tops_of
from perfkit.gating.design import gate_policy
from perfkit.gating.explain import explain_benchmark, on_the_device
from perfkit.gating.judge import pair_location
from perfkit.gating.rows import RunContext, finding_row, finished_row, launch_rows, pairs_of, side_count_rows
from perfkit.gating.rules import ComparedBenchmark, Rules, finding_on, judged_as
from perfkit.gating.run import LockstepLaunches, MeasuredLaunch, launch_pair
from perfkit.gating.sides import OpenSides, Scope, open_sides
from perfkit.gating.survey import prove_code, proven, refuse_single
from perfkit.identity import new_run_id, utc_now
from perfkit.ledger.recording import Run
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, WALL_TIME, Benchmark, Environment, Row, Side
from perfkit.model.bisection import Level
from perfkit.model.comparisons import Explanation, LaunchPair
from perfkit.model.counters import count_of, is_count
from perfkit.model.policies import BisectPolicy
from perfkit.model.results import Source, meant_by
from perfkit.repo.commits import BenchmarkSource, CommitRange, lay_benchmark
from perfkit.repo.environments import Environments
from perfkit.repo.files import restore
from perfkit.repo.sides import SidePair, named_side
from perfkit.runner.commands import fixed_environment
from perfkit.runner.lockstep.collection import EVERYTHING, Found, Listing
from perfkit.runner.lockstep.launch import NOT_PROVEN, UNPROVEN_IN_A_ROW, Slot, schedule, shared_libraries
from perfkit.runner.lockstep.tracing import NotTracedError, trace_sides
from perfkit.runner.lockstep.untimed import count_benchmarks
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.stats.bisection import MeasuredPair
from perfkit.stats.summary import summarise

_VALGRIND_LIMIT_S = 300.0
_MOST_NAMED = 3
_SHOWN_DIGITS = 10
_TRACE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One benchmark along a range of commits.

    Attributes:
        folder: Holds ``files``, the benchmark's own file and its conftest files, which every commit is given.
        alpha: Written into the rows as the error of intervals that are made of them later.
    """

    project: Project
    commits: CommitRange
    benchmark: str
    source: BenchmarkSource
    folder: Path
    files: tuple[str, ...]
    alpha: float

    @classmethod
    def laid(
        cls,
        project: Project,
        commits: CommitRange,
        benchmark: str,
        source: BenchmarkSource,
        folder: Path,
        *,
        alpha: float,
    ) -> Wanted:
        """Write the benchmark's files into a folder, and return what to measure."""
        return cls(
            project=project,
            commits=commits,
            benchmark=benchmark,
            source=source,
            folder=folder,
            files=lay_benchmark(project.root, source, folder),
            alpha=alpha,
        )


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """Results of earlier runs of the same bisection: pairs, counts by place, and failures by place."""

    pairs: tuple[MeasuredPair, ...] = ()
    counts: Mapping[int, float] = field(default_factory=dict)
    unusable: Mapping[int, str] = field(default_factory=dict)


@dataclass
class OpenPair:
    """A pair of checked-out commits with the benchmark found on both sides, and its open run."""

    sides: OpenSides
    compared: ComparedBenchmark
    context: RunContext
    run: Run
    launches: LockstepLaunches
    slots: Iterator[Slot]

    def launch(self) -> LaunchPair | Mapping[Side, str]:
        """Make and record a launch of both sides; return the reasons if one failed.

        Raises:
            NotMeasuredError: a side imported other code than its own.
            RecordingError: it cannot be recorded.
        """
        slot, node = next(self.slots), self.compared.benchmark.name
        for _ in range(UNPROVEN_IN_A_ROW):
            self.launches.prepare()
            record = self.launches.make(slot, [node])
            prove_code(record.reports)
            if record.failures:
                return {one.side: f"{one.status}: {one.message}" for one in record.failures}
            if node not in record.unproven:
                break
        else:
            return dict.fromkeys(record.silent, f"error: {NOT_PROVEN}")
        if len(record.reports) == len(SIDES):
            self.launches.learn(shared_libraries(record.reports["base"], record.reports["head"]))
        timing = record.timings[node]
        group = self.launches.group
        aside = [
            MeasuredLaunch(
                node=node,
                slot=slot,
                group=group,
                timing=spoilt.timings[node],
                at=utc_now(),
                marks=spoilt.marks,
                set_aside=True,
            )
            for spoilt in record.set_aside
            if node in spoilt.proven
        ]
        one = MeasuredLaunch(node=node, slot=slot, group=group, timing=timing, at=utc_now())
        self.run.add(list(launch_rows([*aside, one], {node: self.compared}, self.context)))
        return launch_pair(timing, slot, group)

    def count(self, sides: Sequence[Side], *, instructions: bool) -> Mapping[Side, Counts | str]:
        """Count and record the benchmark on some sides; a side that failed has the reason.

        Raises:
            NotMeasuredError: a side imported other code than its own.
            RecordingError: it cannot be recorded.
        """
        node, failures = self.compared.benchmark.name, {}
        if instructions:
            counts = dict(self.sides.callgrind.count(node, limit_s=_VALGRIND_LIMIT_S, sides=sides))
        else:
            found = count_benchmarks(
                self.sides.launcher,
                [node],
                limit_s=lambda _: self.compared.limit_s,
                on_benchmark=lambda _: None,
                names=sides,
            )
            prove_code(found.reports)
            counts = {side: found.counts[side][node] for side in sides if node in found.counts[side]}
            failures = {one.side: f"{one.status}: {one.message}" for one in found.failures}
        self.run.add(list(side_count_rows(self.compared.benchmark, counts, self.context)))
        return {**failures, **counts}


class PairMeter:
    """Measures pairs of places of a range; a pair stays open until another one is opened.

    ``benchmark`` and ``environment`` are known after the first pair; a benchmark that is passed in is the
    only one that is measured. ``profiles`` is whether a pair can be explained.
    """

    profiles = True
    source: Source = "bisect"

    def __init__(
        self,
        wanted: Wanted,
        ledger: Ledger,
        *,
        log: Callable[[str], None],
        benchmark: Benchmark | None = None,
    ) -> None:
        self._wanted, self._ledger, self._log = wanted, ledger, log
        self._stack = ExitStack()
        self._pair: OpenPair | None = None
        self.open_pair: tuple[int, int] | None = None
        self.benchmark = benchmark
        self.environment = _environment({})
        self._settings: Mapping[Side, Mapping[str, str]] = {}
        self.machine = read_machine()
        self.launched: dict[tuple[int, int], list[tuple[float, float]]] = {}
        self.counts: dict[int, Counts] = {}
        self.runs: list[str] = []
        self.notes: dict[str, None] = {}
        self._call_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        # The run sees the exception, so that it is marked partial.
        self._stack.__exit__(*raised)  # type: ignore[arg-type]

    def open(self, base: int, head: int) -> Mapping[int, str]:
        """Open a pair of places unless it is open; return why places of it cannot be measured.

        A place that stands on both sides is opened once.

        Raises:
            NotMeasuredError: other code would be measured than a commit's own, or nothing can be started.
            RecordingError: the ledger cannot be written any more.
        """
        if self.open_pair == (base, head):
            return {}
        self.close()
        places: dict[Side, int] = {"base": base, "head": head}
        names = [self.name(place) for place in dict.fromkeys((base, head))]
        self._log(f"opening {' and '.join(names)}")
        run_id = new_run_id()
        try:
            sides = self._stack.enter_context(self._laid(base, head, run_id))
            found, failures = self._listed(sides, SIDES if base != head else SIDES[1:])
        except SideNotMeasuredError as error:
            failures = {"head" if error.side == "head" else "base": str(error)}
        if failures:
            self.close()
            return self._recorded({places[side]: why for side, why in failures.items()})
        self._begin(sides, found["head"], run_id)
        self.open_pair = base, head
        return {}

    def launch(self) -> float | Mapping[int, str]:
        """Make a launch of the open pair and return its log ratio, or why places cannot be measured.

        Raises:
            NotMeasuredError: other code was measured than a commit's own, or nothing can be started.
            RecordingError: the ledger cannot be written any more.
        """
        pair, places = self._opened()
        launched = pair.launch()
        self.notes.update(dict.fromkeys(on_the_device(pair.sides.launcher.residents)))
        if not isinstance(launched, LaunchPair):
            return self._failed(launched)
        self._keep(*places, launched)
        return pair_location(launched)

    def count(self, places: Sequence[int], metric: str) -> Mapping[int, float | str]:
        """Count one or two places, both at once; one that cannot be counted has the reason.

        Raises:
            NotMeasuredError: other code was counted than a commit's own, or nothing can be started.
            RecordingError: the ledger cannot be written any more.
        """
        unusable = self.open(places[0], places[-1])
        if unusable:
            return unusable
        pair, _ = self._opened()
        sides = SIDES if len(places) > 1 else SIDES[1:]
        found = pair.count(sides, instructions=metric == INSTRUCTIONS)
        values: dict[int, float | str] = {}
        failures: dict[Side, str] = {}
        for side, place in zip(sides, places, strict=True):
            one = found.get(side, "its process gave no counts")
            value = one if isinstance(one, str) else _value(one, metric)
            if isinstance(one, str) or isinstance(value, str):
                failures[side] = str(value)
            else:
                values[place], self.counts[place] = value, one
        return {**values, **self._failed(failures, metric)}

    def ran(self) -> frozenset[tuple[str, str]]:
        """Return the functions that the benchmark runs at either end of the open pair, none if that failed.

        They have their file, relative to the project's root, and qualified name; what runs at import, and
        modules themselves, are among them.
        """
        pair, _ = self._opened()
        node, tops = pair.compared.benchmark.name, tops_of(pair.sides)
        folder = pair.sides.roots.head.relative_to(tops["head"])
        self._log("tracing what the benchmark runs at both ends")
        try:
            traces = trace_sides(
                pair.sides.launcher, [node], tops, seconds=_TRACE_S, limit_s=pair.compared.limit_s
            )
        except NotTracedError as error:
            self.notes[f"what the benchmark runs could not be traced: {error}"] = None
            return frozenset()
        if any(trace.imported.unknown or node not in trace.ran for trace in traces.values()):
            return frozenset()
        codes = {
            code
            for trace in traces.values()
            for code in trace.imported.codes | trace.ran[node].codes
            if PurePosixPath(code[0]).is_relative_to(folder)
        }
        return frozenset(
            (str(PurePosixPath(file).relative_to(folder)), name.partition(".<locals>")[0])
            for file, name, _ in codes
        )

    def explain(self, base: int, head: int) -> Explanation | None:
        """Profile the benchmark at two places and return what moved, None where that failed."""
        if self.open(base, head):
            return None
        pair, _ = self._opened()
        changed = find_changed(pair.sides, (), pair.sides.project.output_paths)
        return explain_benchmark(pair.compared, pair.sides, changed=changed, call_s=self._call_s)

    def name(self, place: int) -> str:
        """Return how a place is called."""
        return self._sha(place)[:_SHOWN_DIGITS]

    def levels(self, base: int, head: int) -> tuple[Level | None, Level | None]:
        """Return the times of two places, from launches side by side or else from all of them."""
        together = self.launched.get((base, head))
        if together is not None:
            return _level([one for one, _ in together]), _level([other for _, other in together])
        return self._level_of(base), self._level_of(head)

    def _level_of(self, place: int) -> Level | None:
        return _level(
            [
                means[place == head]
                for (base, head), launches in self.launched.items()
                for means in launches
                if place in (base, head)
            ]
        )

    def earlier(self, metric: str) -> Earlier:
        """Return what earlier runs measured of the same ends, benchmark, machine and environment."""
        places, ends = self._wanted.commits.places(), (self._sha(0), self._sha(-1))
        rows = self._ledger.rows_on(places)
        return self._read(
            [row for row in rows if row.run_id not in self.runs and self._fits(row, ends)], metric
        )

    def _read(self, rows: Sequence[Row], metric: str) -> Earlier:
        """Return the results in rows of this bisection, and keep the times and counts for the report."""
        places = self._places(rows)
        pairs: list[MeasuredPair] = []
        for run in dict.fromkeys(row.run_id for row in rows):
            own = [row for row in rows if row.run_id == run and not is_count(row)]
            sides = {row.placement.side: places[_where(row)] for row in own if row.outcome.values}
            found = pairs_of(own)
            if found:
                base, head = sides["base"], sides["head"]
                logs = tuple(map(pair_location, found))
                pairs.append(MeasuredPair(base=base, head=head, log_ratios=logs))
                for pair in found:
                    self._keep(base, head, pair)
        counted = [row for row in rows if is_count(row) and row.outcome.metric.name == metric]
        values = {places[_where(row)]: count for row in counted if (count := count_of(row))}
        # A commit without one counter can still be timed, and may have another.
        failed = [
            row
            for row in rows
            if row.outcome.status == "skipped"
            and not is_count(row)
            and row.outcome.metric.name in (WALL_TIME.name, metric)
        ]
        for place, one in values.items():
            self.counts.setdefault(place, Counts(counts=(one,), not_counted={}))
        return Earlier(
            pairs=tuple(pairs),
            counts={place: _middle(one.values) for place, one in values.items()},
            unusable={places[_where(row)]: row.outcome.message or "not known" for row in failed},
        )

    def _places(self, rows: Sequence[Row]) -> Mapping[tuple[str, str], int]:
        """Return the place of the commit and environment of each row."""
        places = self._wanted.commits.places()
        return {_where(row): places[row.commit.sha] for row in rows}

    def _sha(self, place: int) -> str:
        return self._wanted.commits.commits[place].sha

    def _fits(self, row: Row, ends: tuple[str, str]) -> bool:
        one = row.outcome.benchmark
        return (
            isinstance(row.policy, BisectPolicy)
            and (row.policy.good, row.policy.bad) == ends
            and (one == self.benchmark or (one.is_file and one.name == self._wanted.source.file))
            and row.machine.machine_id == self.machine.machine_id
            and self._same_environment(row)
        )

    def _same_environment(self, row: Row) -> bool:
        """Return whether a row is of this environment; a failed import leaves torch's settings unknown."""
        if row.environment.env_id == self.environment.env_id:
            return True
        old, now = row.environment.facts, self.environment.facts
        return row.outcome.status == "skipped" and old.items() <= now.items()

    def _keep(self, base: int, head: int, pair: LaunchPair) -> None:
        base_s, head_s = map(statistics.median, pair.sides("typical"))
        self.launched.setdefault((base, head), []).append((base_s, head_s))
        self._call_s = min(pair.head_s)

    def _failed(self, failures: Mapping[Side, str], metric: str = WALL_TIME.name) -> Mapping[int, str]:
        """Close the pair, record which of its places cannot be measured, and return them."""
        if not failures:
            return {}
        _, (base, head) = self._opened()
        places: dict[Side, int] = {"base": base, "head": head}
        self.close()
        return self._recorded({places[side]: why for side, why in failures.items()}, metric)

    def _opened(self) -> tuple[OpenPair, tuple[int, int]]:
        """Return the open pair and its places."""
        if self._pair is None or self.open_pair is None:
            raise RuntimeError("no pair is open")
        return self._pair, self.open_pair

    def close(self) -> None:
        """End the run of the open pair, and remove what was laid out for it."""
        self._pair, self.open_pair = None, None
        self._stack.close()

    @contextmanager
    def _laid(self, base: int, head: int, run_id: str) -> Iterator[OpenSides]:
        wanted = self._wanted
        root = wanted.project.root
        pair = SidePair(base=named_side(root, self._sha(base)), head=named_side(root, self._sha(head)))
        scope = Scope(
            benchmarks=wanted.source.file,
            select="",
            seed=run_seed(run_id),
            files=wanted.files,
            files_from=wanted.folder,
        )
        environments = self._environments(base, head)
        with open_sides(pair, wanted.project, scope, environments=environments) as sides:
            yield sides

    def _environments(self, base: int, head: int) -> Environments:  # noqa: ARG002 (others have some)
        """Return the environments of two places, none where it is the present one."""
        return {}

    def _listed(self, sides: OpenSides, names: Sequence[Side]) -> tuple[dict[Side, Found], dict[Side, str]]:
        """Return each side's benchmark, or why it has none; a side that fails gets its own files once."""
        launcher = sides.launcher
        listed = {side: proven(one, side) for side, one in launcher.survey(names).items()}
        if len(names) == len(SIDES):
            refuse_single(launcher, listed)
        found, failures = self._sorted(listed)
        broken = [side for side in failures if self._restored(sides.roots.root(side))]
        if broken:
            again = {side: proven(one, side) for side, one in launcher.survey(broken).items()}
            listed |= again
            own, own_failures = self._sorted(again)
            found |= own
            failures = {side: why for side, why in failures.items() if side not in own}
            failures |= {side: why for side, why in own_failures.items() if why == _OTHER_SOURCE}
        if not failures:
            launcher.warm_up(shared_libraries(*(listed[side].report for side in (names[0], names[-1]))))
            launcher.narrow([found["head"].benchmark.name])
            self._settings = {side: one.report.torch for side, one in listed.items()}
            self.environment = _environment(self._settings["head"])
            if launcher.why_no_fork:
                self.notes[f"fresh processes instead of forked ones, slower: {launcher.why_no_fork}"] = None
        return found, failures

    def _sorted(self, listed: Mapping[Side, Listing]) -> tuple[dict[Side, Found], dict[Side, str]]:
        found: dict[Side, Found] = {}
        failures: dict[Side, str] = {}
        for side in reversed(SIDES):
            if side not in listed:
                continue
            one = self._found(listed[side])
            if isinstance(one, str):
                failures[side] = one
            else:
                self.benchmark = self.benchmark or one.benchmark
                found[side] = one
        return found, failures

    def _found(self, listed: Listing) -> Found | str:
        """Return a side's benchmark, or why it is not there."""
        wanted = self.benchmark.name if self.benchmark else self._wanted.benchmark
        names = meant_by(wanted, listed.found)
        if not names and self.benchmark is None:
            names = tuple(one for one in listed.found if meant_by(wanted, [one.partition("[")[0]]))
        if len(names) > 1:
            raise UsageError(
                f'--benchmark "{wanted}" could mean {", ".join(names[:_MOST_NAMED])}; give more of it'
            )
        if names:
            one = listed.found[names[0]]
            if one.number:
                raise UsageError(
                    f"{names[0]} measures memory or a value of its own; only times and counts are bisected,"
                    " and `perfkit gate` compares two commits"
                )
            return one if self.benchmark in (None, one.benchmark) else _OTHER_SOURCE
        errors = {**listed.errors, **listed.skipped}
        message = (
            errors.get(EVERYTHING)
            or errors.get(self._wanted.source.file)
            or next(iter(errors.values()), None)
        )
        return (
            f"does not import: {message.removeprefix('E ').strip()}" if message else "has no such benchmark"
        )

    def _restored(self, root: Path) -> bool:
        """Give a side its own files back; return whether it has a file of the benchmark."""
        for file in self._wanted.files:
            restore(root, file)
        return (root / self._wanted.source.file).is_file()

    def _begin(self, sides: OpenSides, found: Found, run_id: str) -> None:
        """Begin the run of a pair."""
        context = self._context(sides.pair, run_id, served=sides.launcher.serves)
        recording = recorded(
            self._ledger, source=self.source, run_id=context.run_id, recorded_at=context.recorded_at
        )
        run = self._stack.enter_context(recording)
        self.runs.append(context.run_id)
        compared = judged_as(found, Rules.of(self._wanted.project.config, margin=None))
        began = time.monotonic()
        self._stack.push(functools.partial(_publish, run, began))
        self._pair = OpenPair(
            sides=sides,
            compared=compared,
            context=context,
            run=run,
            launches=LockstepLaunches(sides.launcher, limit_s=lambda _: compared.limit_s),
            slots=schedule(seed=context.seed),
        )

    def _context(self, pair: SidePair, run_id: str, *, served: bool) -> RunContext:
        return RunContext(
            source=self.source,
            run_id=run_id,
            recorded_at=utc_now(),
            commits={side: pair.side(side).commit for side in SIDES},
            machine=self.machine,
            environment=self.environment,
            # Launches of a pair that is opened again have other orders and hash seeds than before.
            seed=run_seed(run_id),
            policy=gate_policy(alpha=self._wanted.alpha, family=1, served=served),
            kind=functools.partial(BisectPolicy, good=self._sha(0), bad=self._sha(-1)),
        )

    def _recorded(self, unusable: Mapping[int, str], metric: str = WALL_TIME.name) -> Mapping[int, str]:
        """Record why commits cannot be measured, each in a run of its own, and return the reasons."""
        benchmark = self.benchmark or Benchmark(name=self._wanted.source.file, version="")
        one = ComparedBenchmark(benchmark=benchmark, margin=0.0, gating=False, limit_s=0.0)
        for place, why in unusable.items():
            side = named_side(self._wanted.project.root, self._sha(place))
            context = self._context(SidePair(base=side, head=side), new_run_id(), served=False)
            row = finding_row(finding_on(one, "SKIPPED", why), context)
            outcome = replace(row.outcome, metric=replace(row.outcome.metric, name=metric))
            self._ledger.append([replace(row, outcome=outcome)])
        return unusable


def _where(row: Row) -> tuple[str, str]:
    return row.commit.sha, row.environment.env_id


_OTHER_SOURCE = "its own source of the benchmark differs, and the newer one does not import there"


def _publish(run: Run, began: float, kind: object, *_: object) -> bool:
    """Publish the run of a pair that ended regularly; others are published as partial elsewhere."""
    if kind is None:
        run.publish(lambda row: finished_row(row, {}, wall_s=time.monotonic() - began))
    return False


def _level(seconds: Sequence[float]) -> Level | None:
    found = summarise(seconds)
    return None if found is None else Level(mean=found.mean, sd=found.sd, launches=found.n)


def run_seed(run_id: str) -> int:
    """Return the seed of a run, by its id."""
    return zlib.crc32(run_id.encode())


def _environment(torch: Mapping[str, str]) -> Environment:
    return read_environment(fixed_environment(dict(os.environ), hash_seed=0), torch_settings=torch)


def _value(counts: Counts, metric: str) -> float | str:
    """Return a count, or why there is none."""
    found = next((_middle(one.values) for one in counts.counts if one.metric == metric), None)
    if found is not None:
        return found
    return f"{metric} not counted: {counts.not_counted.get(metric, 'it has none of it')}"


def _middle(values: Collection[float]) -> float:
    """Return a count, or the mean of its values where it did not repeat."""
    distinct = set(values)
    return next(iter(distinct)) if len(distinct) == 1 else sum(values) / len(values)
