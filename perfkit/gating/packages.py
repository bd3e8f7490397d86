"""The search for the packages that changed a benchmark between two environments.

The packages that differ are upgraded one after another, so that they are places of a range, which is
searched as one of commits is. A package that alone costs nothing is searched once more, together with those
that were upgraded before it.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_PASS, NotMeasuredError
from perfkit.gating.bisecting import TIME, Meter, TimeSearch
from perfkit.gating.pairs import Earlier, PairMeter, Wanted
from perfkit.gating.rows import RunContext
from perfkit.identity import utc_now
from perfkit.ledger.store import Ledger
from perfkit.model import ABSENT, Benchmark, Environment, Row, Side
from perfkit.model.bisection import (
    BisectProgress,
    GuiltyPackages,
    LeftPackages,
    Level,
    PackageChange,
    PackagesReport,
)
from perfkit.model.comparisons import Explanation
from perfkit.model.counters import is_count
from perfkit.model.policies import GatePolicy
from perfkit.model.results import Machine
from perfkit.repo.environments import PYTHON, Environments, fact_of
from perfkit.repo.mixed import Mixtures
from perfkit.repo.sides import SidePair
from perfkit.runner.commands import fixed_environment
from perfkit.runner.machine.facts import read_environment
from perfkit.stats.bisection import Conclusion, Rules, Step
from perfkit.units import counted

Group = frozenset[str]
# This many launches are made of a found package beside the environment before it.
_CONFIRMING = 4
# Packages that only together cost so much are no more than this.
_MOST_TOGETHER = 3
# A package alone has to cost this share of what its step costs, or others are needed for it.
_ALONE = 0.5
_LEAST = math.log(1.01)
_ENDS = 2
_MOST_STEPS = 3
# The fact that identifies both environments between which a mixture lies.
_ENDS_FACT = "environments"


class PackageMeasuring(Meter, Protocol):
    """Measures pairs of environments, and describes them."""

    benchmark: Benchmark | None
    machine: Machine
    environment: Environment
    runs: list[str]
    notes: dict[str, None]

    def earlier(self, metric: str) -> Earlier:
        """Return what earlier runs measured of these environments."""

    def name(self, place: int) -> str:
        """Return how an environment is called."""

    def explain(self, base: int, head: int) -> Explanation | None:
        """Return what moved between two environments, None where that failed."""

    def levels(self, base: int, head: int) -> tuple[Level | None, Level | None]:
        """Return the times of two environments."""


# A step, its packages, and those that were upgraded before it.
_Narrowed = tuple[Step, tuple[str, ...], tuple[str, ...]]
Opening = Callable[[Sequence[Group]], AbstractContextManager[PackageMeasuring]]


@dataclass
class _Found:
    """What a search along a range of groups came to; ``steps`` count from its first place.

    Between two environments ``log_ratio`` is the median of their launches, which leans to neither side.
    """

    conclusion: Conclusion
    steps: tuple[Step, ...]
    log_ratio: float = 0.0
    levels: tuple[Level | None, Level | None] = (None, None)
    explanation: Explanation | None = None
    left: tuple[int, int, float] | None = None


@dataclass(kw_only=True)
class _BetweenEnds(TimeSearch):
    """A search between two environments that a person named: both have to be measured."""

    name: Callable[[int], str]

    def open_ends(self) -> None:
        ends = (self.first, self.last)
        if not self.unusable.keys() & ends:
            self.unusable |= self.meter.open(*ends)
        for place in ends:
            if place in self.unusable:
                raise NotMeasuredError(f"{self.name(place)} cannot be measured: {self.unusable[place]}")


@dataclass(kw_only=True)
class PackageSearch:
    """A search among the packages of mixtures; the clock is monotonic and ``deadline`` a reading of it."""

    mixtures: Mixtures
    opening: Opening
    confidence: float
    deadline: float
    progress: BisectProgress
    clock: Callable[[], float] = time.monotonic
    measured: set[Group] = field(default_factory=set)
    pairs: int = 0
    launches: int = 0
    earlier: int = 0
    runs: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    meter: PackageMeasuring | None = None

    def run(self) -> tuple[Conclusion, tuple[GuiltyPackages, ...], LeftPackages | None]:
        """Return the conclusion, the guilty packages, the largest cost first, and what an open search left.

        Raises:
            NotMeasuredError: the two environments cannot be measured.
            RecordingError: the ledger cannot be written any more.
        """
        order = self.mixtures.order()
        groups = [frozenset(order[:place]) for place in range(len(order) + 1)]
        found = self._search(groups)
        if found.conclusion.status != "found":
            left = found.left and LeftPackages(
                packages=order[found.left[0] - 1 : found.left[1]], probability=found.left[2]
            )
            return found.conclusion, (), left
        guilty = [
            self._guilty(one, part, before)
            for step in found.steps[:_MOST_STEPS]
            for one, part, before in self._narrowed(step, order)
        ]
        return found.conclusion, tuple(guilty), None

    def _narrowed(self, step: Step, order: Sequence[str], base: Group = frozenset()) -> list[_Narrowed]:
        """Return the steps within a step, each with its packages and those that were upgraded before it.

        Where the first of several packages broke the environment until the last one mended it, those between
        may have no part in that: they are tried first, then the last without the first.
        """
        part = tuple(order[place - 1] for place in step.places)
        before = (*base, *order[: step.places[0] - 1])
        first, *middle = part
        turned = self.mixtures.order(before, [*middle, first])
        groups = [frozenset((*before, *turned[:place])) for place in range(len(turned) + 1)]
        if turned != part and not all(self.mixtures.problem(one) for one in groups[1:-1]):
            found = self._search(groups, part_of=step)
            if found.conclusion.status == "found" and all(len(one.places) < len(part) for one in found.steps):
                return [
                    narrow for one in found.steps for narrow in self._narrowed(one, turned, frozenset(before))
                ]
        return [(step, part, before)]

    def _guilty(self, step: Step, part: tuple[str, ...], before: Sequence[str]) -> GuiltyPackages:
        """Return the packages of a step, with those that it needs to cost anything."""
        blamed = [part]
        needed = self.mixtures.with_needed(part)
        alone = self._search([frozenset(), needed], part_of=step)
        confirmed = _is_found(alone, step)
        while not confirmed and len(blamed) < _MOST_TOGETHER and alone.conclusion.status != "undecided":
            rest = [one for one in before if one not in needed]
            if not rest:
                break
            further = self.mixtures.order(needed, rest)
            groups = [needed | set(further[:place]) for place in range(len(further) + 1)]
            found = self._search(groups, part_of=step)
            if found.conclusion.status != "found":
                break
            _, part, before = self._narrowed(found.steps[0], further, needed)[0]
            blamed.append(part)
            needed = self.mixtures.with_needed(needed | set(blamed[-1]))
            alone = self._search([frozenset(), needed], part_of=step)
            confirmed = _is_found(alone, step)
        if not confirmed:
            names = " and ".join(itertools.chain.from_iterable(blamed))
            self.notes[
                f"not shown for {names} alone: it may cost that only beside other packages of head"
            ] = None
        shown = alone.steps[0] if confirmed else step
        log_ratio = min(max(alone.log_ratio, shown.low), shown.high) if confirmed else shown.log_ratio
        return GuiltyPackages(
            together=tuple(tuple(map(self._change, part)) for part in blamed),
            confirmed=confirmed,
            ratio=math.exp(log_ratio),
            low=math.exp(shown.low),
            high=math.exp(shown.high),
            probability=step.probability,
            before=alone.levels[0],
            after=alone.levels[1],
            explanation=alone.explanation,
        )

    def _change(self, name: str) -> PackageChange:
        base, head = self.mixtures.changes[name]
        return PackageChange(name=name, base=base, head=head)

    def _search(self, groups: Sequence[Group], *, part_of: Step | None = None) -> _Found:
        """Search along groups: for what is worth naming, or for most of a step that is known already."""
        least = _LEAST if part_of is None else max(_LEAST, _ALONE * abs(part_of.log_ratio))
        with self.opening(groups) as meter:
            self.meter = meter
            search = _BetweenEnds(
                meter=meter,
                name=meter.name,
                last=len(groups) - 1,
                deadline=self.deadline,
                on_state=self.progress.update,
                clock=self.clock,
                rules=Rules(confidence=self.confidence, confirming=_CONFIRMING, least_step=least),
            )
            # What cannot be installed together is not tried.
            problems = {place: self.mixtures.problem(groups[place]) for place in range(1, len(groups) - 1)}
            search.unusable |= {place: why for place, why in problems.items() if why is not None}
            try:
                search.open_ends()
                earlier = meter.earlier(TIME)
                search.resume(earlier.pairs, earlier.unusable)
                search.begin()
            except NotMeasuredError as error:
                if part_of is None:
                    raise
                self.notes[str(error)] = None
                return _Found(Conclusion(steps=(), status="undecided", why=str(error)), ())
            weights = [1.0] * (len(groups) - 1)
            conclusion = search.run(weights)
            for place in (one for step in conclusion.steps[:_MOST_STEPS] for one in step.places[:-1]):
                why = search.unusable.get(place)
                if why is not None and not any(note.endswith(why) for note in self.notes):
                    self.notes[f"not measured: {meter.name(place)}: {why}"] = None
            sure = conclusion.status == "found"
            found = _Found(conclusion, conclusion.steps)
            if conclusion.status == "undecided":
                low, high, _, probability = search.left(weights)
                found.left = low, high, probability
            if len(groups) == _ENDS:
                found.log_ratio = statistics.median(search.pairs[0, 1])
                found.levels = meter.levels(0, len(groups) - 1)
                found.explanation = meter.explain(0, len(groups) - 1) if sure else None
            self.measured |= {groups[place] for pair in search.pairs for place in pair}
            self.pairs += len(search.pairs)
            self.earlier += sum(len(one.log_ratios) for one in earlier.pairs)
            self.launches += sum(map(len, search.pairs.values()))
            self.runs += meter.runs
            self.notes |= meter.notes
            return found


class PackageMeter(PairMeter):
    """Measures pairs of mixtures of one commit; every place of ``groups`` is one."""

    source = "environments"

    def __init__(
        self,
        wanted: Wanted,
        ledger: Ledger,
        *,
        mixtures: Mixtures,
        groups: Sequence[Group],
        budget_s: float,
        log: Callable[[str], None],
        benchmark: Benchmark | None = None,
    ) -> None:
        super().__init__(wanted, ledger, log=log, benchmark=benchmark)
        self._mixtures, self._groups, self._budget_s = mixtures, groups, budget_s
        self._pair_places: Mapping[Side, int] = {}

    def name(self, place: int) -> str:
        """Return what a mixture has of head."""
        return group_name(self._groups[place], self._mixtures.names)

    def earlier(self, metric: str) -> Earlier:
        """Return what earlier runs measured of these mixtures of this commit."""
        rows = self._ledger.rows_on([self._sha(0)])
        kept = [
            row
            for row in rows
            if row.source == self.source
            and row.run_id not in self.runs
            and not is_count(row)
            and not row.commit.dirty
            and row.outcome.benchmark == self.benchmark
            and row.machine.machine_id == self.machine.machine_id
            and self._place_of(row) is not None
        ]
        sides: dict[str, set[str | None]] = {}
        for row in kept:
            sides.setdefault(row.run_id, set()).add(row.placement.side)
        return self._read([row for row in kept if {"base", "head"} <= sides[row.run_id]], metric)

    def _places(self, rows: Sequence[Row]) -> Mapping[tuple[str, str], int]:
        places = {(row.commit.sha, row.environment.env_id): self._place_of(row) for row in rows}
        return {where: place for where, place in places.items() if place is not None}

    def _place_of(self, row: Row) -> int | None:
        """Return the place of the environment of a row."""
        facts, now = row.environment.facts, self.environment.facts
        if facts.get(_ENDS_FACT) != self._mixtures.ends:
            return None
        settings = {name for name in {**facts, **now} if name.isupper()}.difference(self._mixtures.names)
        if any(facts.get(name) != now.get(name) for name in settings):
            return None
        found = {name: facts.get(fact_of(name)) for name in self._mixtures.names}
        for place, group in enumerate(self._groups):
            wanted = self._mixtures.versions(group)
            if found == {name: version or ABSENT for name, version in wanted.items()}:
                return place
        return None

    def _sha(self, place: int) -> str:  # noqa: ARG002 (all mixtures are of one commit)
        return self._wanted.commits.sha(0)

    def _environments(self, base: int, head: int) -> Environments:
        self._pair_places = {"base": base, "head": head}
        folder = self._wanted.folder / "environments"
        shutil.rmtree(folder, ignore_errors=True)
        return {
            side: self._mixtures.lay(self._groups[place], folder / side)
            for side, place in self._pair_places.items()
        }

    def _context(self, pair: SidePair, run_id: str, *, served: bool) -> RunContext:
        variables = fixed_environment(dict(os.environ), hash_seed=0)
        environment: dict[Side, Environment] = {
            side: read_environment(
                variables,
                torch_settings=self._settings.get(side, {}),
                installed={
                    PYTHON: self._mixtures.python,
                    _ENDS_FACT: self._mixtures.ends,
                    **{
                        fact_of(name): version or ABSENT
                        for name, version in self._mixtures.versions(self._groups[place]).items()
                    },
                },
            )
            for side, place in self._pair_places.items()
        }
        return replace(
            super()._context(pair, run_id, served=served),
            environment=environment["head"],
            base_environment=environment["base"],
            kind=functools.partial(
                GatePolicy,
                base=pair.base.commit.sha,
                budget_s=self._budget_s,
                mode="forked" if served else "fresh processes",
                as_is=False,
            ),
        )

    def _recorded(self, unusable: Mapping[int, str], metric: str = "") -> Mapping[int, str]:  # noqa: ARG002
        # A mixture that fails is named in the report; no commit is to blame for it.
        return unusable


def packages_report(
    search: PackageSearch, *, wanted: Wanted, confidence: float, budget_s: float
) -> PackagesReport:
    """Search, and return what came of it."""
    conclusion, guilty, left = search.run()
    meter = search.meter
    assert meter is not None  # noqa: S101 (a search opens a pair at least)
    assert meter.benchmark is not None  # noqa: S101
    return PackagesReport(
        recorded_at=utc_now(),
        commit=wanted.commits.commits[0],
        benchmark=meter.benchmark,
        confidence=confidence,
        answer=conclusion.status,
        why=conclusion.why,
        found=guilty,
        left=left,
        packages=len(search.mixtures.names),
        measured=len(search.measured),
        pairs=search.pairs,
        launches=search.launches,
        earlier=search.earlier,
        runs=tuple(search.runs),
        machine=meter.machine,
        environment=meter.environment,
        budget_s=budget_s,
        wall_s=0.0,
        exit_code=EXIT_INCONCLUSIVE if conclusion.status == "undecided" else EXIT_PASS,
        notes=tuple(search.notes),
    )


def _is_found(alone: _Found, step: Step) -> bool:
    """Return whether packages alone cost most of what their step costs."""
    return alone.conclusion.status == "found" and alone.steps[0].log_ratio * step.log_ratio > 0


def group_name(group: Collection[str], names: Collection[str]) -> str:
    """Return how a mixture is called."""
    if not group:
        return "base"
    if len(group) == len(names):
        return "head"
    if len(group) == 1:
        return f"base with head's {next(iter(group))}"
    return f"base with {counted(len(group), 'package')} of head"
