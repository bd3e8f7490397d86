"""How a comparison is made: its looks and error rates, its budget, and which benchmarks get the time left."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from perfkit.choices import FailOn, Inconclusive
from perfkit.config import GateConfig, Project
from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.judge import LEAST_SD
from perfkit.gating.rules import Rules
from perfkit.gating.survey import Survey
from perfkit.model.comparisons import Policy
from perfkit.profiling.passes.targets import Target
from perfkit.stats.interval import TRIMMED_FROM
from perfkit.stats.planning import deciding_look
from perfkit.units import counted, human_seconds

# Launches of one generation have this variance in common, in parts of their own (docs/measured/evidence.md).
# A generation has few launches even where it takes long to import.
SHARED_VARIANCE = 0.5
# A benchmark's log ratios usually have this standard deviation over launches, shared variance of generations
# included. It is assumed while there are too few launches to show the benchmark's own.
USUAL_SD = 0.015
# At most this share of the time that is left is kept for counting.
MOST_KEPT = 0.25
# The first three looks decide large changes. They have a twentieth of alpha, so that the later looks, which
# decide nearly all small changes, lose very little.
_EARLY_LOOKS = (3, 4, 6)
_EARLY_SHARE = 0.05
# Later looks follow one another without end: each has three tenths more launches than the one before it, and
# nine tenths of its share of alpha. All shares are finite together, so a look is left whenever there is time.
# With fewer than twelve launches, all of them may agree by chance where each side is fast or slow by lot.
# No gate has time for more than some thousands of launches, so the list of looks ends there.
_FIRST_LATE_LOOK, _GROWTH, _SHARE_OF_THE_LAST, _NEVER_REACHED = 12, 1.3, 0.9, 4000
_LEAST_BUDGET_S = 60.0
# Counting a benchmark takes about as long as this many of its launches and this many of its calls. The budget
# keeps that time.
_COUNTED_AS_LAUNCHES, _COUNTED_AS_CALLS = 2, 60
# This many are measured together, so that they share the cost of a generation. The others wait until one of
# these is decided: by then it is known better how many can be decided in the time that is left. Where there
# is no time for all, fewer are, so that some are decided before it is over.
_TOGETHER, _FEW_TOGETHER = 10, 4
# A first look at all of them may take this share of the time that is left.
_SWEPT = 0.4


@functools.cache
def usual_look(policy: Policy, margin: float) -> int:
    """Return the look that decides identical code with the usual scatter, the last one where none does."""
    errors = {look: policy.error_at(look) for look in policy.looks}
    found = deciding_look(
        0.0,
        USUAL_SD,
        errors=errors,
        margin=margin,
        trimmed_from=policy.trimmed_from,
        one_sided=policy.one_sided,
    )
    return found or policy.looks[-1]


def gate_policy(*, alpha: float, family: int, served: bool) -> Policy:
    """Return the rules by which a gate judges ``family`` comparisons.

    ``served`` means that launches are forked after the import of the code that they measure.
    """
    early = (_EARLY_SHARE / len(_EARLY_LOOKS),) * len(_EARLY_LOOKS)
    late = tuple(_late_looks())
    first_share = (1 - _EARLY_SHARE) * (1 - _SHARE_OF_THE_LAST)
    return Policy(
        alpha=alpha,
        family=family,
        looks=_EARLY_LOOKS + late,
        shares=early + tuple(first_share * _SHARE_OF_THE_LAST**place for place in range(len(late))),
        shared_variance=SHARED_VARIANCE if served else 0.0,
        least_sd=LEAST_SD,
        trimmed_from=TRIMMED_FROM,
    )


def _late_looks() -> Iterator[int]:
    launches = float(_FIRST_LATE_LOOK)
    while launches < _NEVER_REACHED:
        yield round(launches)
        launches *= _GROWTH


def counting_s(launch_s: float, call_s: float) -> float:
    """Return about how long counting takes of a benchmark whose launches and calls take this many seconds."""
    return _COUNTED_AS_LAUNCHES * launch_s + _COUNTED_AS_CALLS * call_s


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms on which a person wants two sides compared; what is None follows from the configuration.

    ``margin`` and ``alpha`` are shares, ``budget_s`` seconds for setting up, timing and counting. With
    ``fail_fast`` measuring stops at the first slowdown that fails the gate.
    """

    margin: float | None = None
    alpha: float | None = None
    budget_s: float | None = None
    fail_on: FailOn | None = None
    inconclusive: Inconclusive | None = None
    fail_fast: bool = False

    def policy(self, config: GateConfig, *, family: int, served: bool) -> Policy:
        """Return the rules by which ``family`` comparisons are judged."""
        proven = (self.fail_on or config.fail_on) == "proven"
        return dataclasses.replace(
            gate_policy(alpha=self.alpha or config.alpha, family=family, served=served),
            fail_on="proven" if proven else "margin",
            noise_floor=config.noise_floor_share if proven else 0.0,
            inconclusive=self.inconclusive or config.inconclusive or ("pass" if proven else "fail"),
            one_sided=True,
        )


@dataclass(frozen=True, kw_only=True)
class Method:
    """How the benchmarks of two sides are compared, decided before anything is measured.

    ``budget_s`` are the seconds for setting up, timing and counting benchmarks; counting steps of ``targets``
    and instructions is not part of it. ``counted`` means that benchmarks and targets are counted,
    ``instructions`` that callgrind counts as well. Without ``timed`` nothing is timed, and the counts decide.
    For ``go_on_s`` seconds after the budget measuring goes on while anything is undecided. With ``fail_fast``
    it stops at the first slowdown that fails the gate.
    """

    policy: Policy
    counter_policy: CounterPolicy
    rules: Rules
    budget_s: float
    seed: int
    timed: bool
    counted: bool
    targets: tuple[Target, ...]
    instructions: bool
    go_on_s: float = 0.0
    fail_fast: bool = False


def choose_method(
    project: Project,
    surveyed: Survey,
    terms: Terms,
    *,
    seed: int,
    timed: bool = True,
    counted: bool,
    targets: tuple[Target, ...] = (),
    instructions: bool = False,
    of_environments: bool = False,
) -> Method:
    """Return the method for what a survey found: margin, alpha and budget as given, or as configured.

    The default budget is more than most suites need; measuring ends as soon as all is decided. Counts of
    sides ``of_environments`` are of different versions of libraries, which may do the same by other
    operators. They show what changed, and fail a gate only where nothing is timed.
    """
    config = project.config
    compared = (*surveyed.compared, *surveyed.numbers)
    gating = [one for one in compared if one.gating] or compared
    shared_out = config.gate.seconds_per_benchmark * len(compared)
    most_s = max(min(shared_out, config.gate.most_seconds), _LEAST_BUDGET_S)
    policy = terms.policy(config.gate, family=max(len(gating), 1), served=surveyed.served)
    return Method(
        policy=policy,
        counter_policy=CounterPolicy(
            gating=() if of_environments and timed else config.exact.gate,
            tolerance=config.exact.tolerance_share,
            timed=timed,
        ),
        rules=Rules.of(config, margin=terms.margin),
        budget_s=terms.budget_s or most_s,
        seed=seed,
        timed=timed,
        counted=counted,
        targets=targets,
        instructions=instructions,
        go_on_s=config.gate.go_on_seconds if policy.inconclusive == "go on" else 0.0,
        fail_fast=terms.fail_fast,
    )


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An undecided benchmark, and about how many seconds it needs.

    ``next_look_s`` are the seconds to its next look, ``decision_s`` those to the look that will decide it if
    its ratio and scatter stay as they are, None where none would. It is ``suspect`` where its ratio is above
    what is allowed, ``changed`` where it may run code that differs between the sides, ``begun`` where it has
    had a launch in this run, and ``swept`` where it has had its first look.
    """

    node: str
    next_look_s: float
    decision_s: float | None
    suspect: bool
    changed: bool
    begun: bool
    swept: bool


def share_out(candidates: Iterable[Candidate], left_s: float) -> set[str]:
    """Return the nodes that get a launch now, when ``left_s`` seconds are left for all of them.

    Each benchmark in turn reserves the time to its decision, and the next ones share what remains. Where
    there is no time for all, but some to look at each of them once, that comes first, as it shows which are
    much slower. This choice does not change error rates, since each look of each benchmark has its own share
    of alpha.
    """
    found, chosen = list(candidates), set[str]()
    needed_s = sum(one.next_look_s if one.decision_s is None else one.decision_s for one in found)
    together = _TOGETHER if needed_s <= left_s else _FEW_TOGETHER
    unseen = [one for one in found if not one.swept]
    if unseen and needed_s > left_s and math.fsum(one.next_look_s for one in unseen) <= _SWEPT * left_s:
        ordered = sorted(unseen, key=lambda one: (not one.changed, not one.begun))
        return {one.node for one in ordered[:_TOGETHER]}
    for one in sorted(found, key=lambda one: _order(one, left_s)):
        if one.next_look_s <= left_s and len(chosen) < together:
            left_s -= _affordable_decision_s(one, left_s) or one.next_look_s
            chosen.add(one.node)
    return chosen


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """About how many seconds each undecided benchmark still needs, and how many seconds are left.

    ``after_s`` are kept for what follows, and not part of those that are left. ``changed_costs_s`` are those
    of benchmarks that may run changed code.
    """

    costs_s: Collection[float]
    changed_costs_s: Collection[float] = ()
    left_s: float
    after_s: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds that all of them need, and what follows."""
        return math.fsum(self.costs_s) + self.after_s

    @property
    def affordable(self) -> int:
        """How many of them can be decided in the time that is left, the cheapest first."""
        spent, number = 0.0, 0
        for cost in sorted(self.costs_s):
            spent += cost
            number += spent <= self.left_s
        return number

    def announced(self, margins: str, *, budget_s: float, goes_on: bool = False) -> str:
        """Return a sentence on how long measuring takes, and what a budget that is too small leaves out.

        Where measuring ``goes_on`` after the budget, nothing is left out.
        """
        text = (
            f"measuring {counted(len(self.costs_s), 'benchmark')}: about"
            f" {human_seconds(self.seconds, digits=2)} at {margins}"
        )
        if self.seconds - self.after_s <= self.left_s:
            return text
        others = "after which measuring goes on for the others" if goes_on else self._hint(budget_s)
        if self.left_s <= 0:
            return f"{text}, but the budget of {human_seconds(budget_s)} is used up ({others})"
        return (
            f"{text}; the {human_seconds(self.left_s, digits=2)} that are left are enough for about"
            f" {self.affordable}, those of changed code first ({others})"
        )

    def going_on(self, *, budget_s: float, most_s: float) -> str:
        """Return a sentence on what is measured after the budget, for ``most_s`` seconds at most."""
        return (
            f"the budget of {human_seconds(budget_s)} is over: going on with"
            f" {counted(len(self.costs_s), 'undecided benchmark')}, which takes about"
            f" {human_seconds(self.seconds, digits=2)} and {human_seconds(most_s)} at most"
            ' (inconclusive = "go on")'
        )

    def not_reached(self, number: int, *, of: int, changed: int | None, budget_s: float) -> str:
        """Return a sentence on the benchmarks that were not reached.

        ``changed`` of them may run code that differs between the sides, None where all may, or none.
        """
        text = (
            f"{number} of {counted(of, 'benchmark')} {'was' if number == 1 else 'were'} not reached, since"
            f" the budget of {human_seconds(budget_s)} was over"
        )
        if not any(self.costs_s):
            # No launch has shown what they take.
            return f"{text} before any launch"
        if changed is not None:
            left = (
                f"{changed} of them {'was' if changed == 1 else 'were'} not"
                if changed
                else "all of these were"
            )
            text += f". Those that may run changed code come first, and {left} reached"
            if changed:
                text += f"; --budget {self._enough_s(self.changed_costs_s, budget_s)} reaches these"
        return text

    @property
    def beyond_s(self) -> float | None:
        """The seconds that deciding all of them takes beyond what is left, None where nothing is known."""
        needed_s = math.fsum(self.costs_s) - self.left_s
        return max(needed_s, 0.0) if any(self.costs_s) else None

    def enough_s(self, budget_s: float) -> int:
        """Return the budget that decides all of them, to ten seconds."""
        return self._enough_s(self.costs_s, budget_s)

    def _enough_s(self, costs_s: Collection[float], budget_s: float) -> int:
        return math.ceil((budget_s + math.fsum(costs_s) - self.left_s) / 10) * 10

    def _hint(self, budget_s: float) -> str:
        return f"--budget {self.enough_s(budget_s)} for all, or --select to measure fewer"


def _order(one: Candidate, left_s: float) -> tuple[bool, bool, bool, bool, float]:
    decision_s = _affordable_decision_s(one, left_s)
    soonest_s = decision_s or one.next_look_s
    return (decision_s is None, not one.suspect, not one.changed, not one.begun, soonest_s)


def _affordable_decision_s(one: Candidate, left_s: float) -> float | None:
    return one.decision_s if one.decision_s is not None and one.decision_s <= left_s else None
