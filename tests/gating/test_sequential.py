"""The sequential comparison is tested with a clock that is set by hand and launches that measure nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from synthetic import START

from perfkit.errors import NotMeasuredError
from perfkit.gating.design import Forecast
from perfkit.gating.explain import disturbed_launches, doubtful_assumptions, why_not_measured
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import BenchmarkState, MeasuredLaunch, SequentialComparison
from perfkit.model import Benchmark, Side
from perfkit.model.comparisons import Comparison, LaunchPair, Policy, Quiet
from perfkit.model.policies import Disturbance
from perfkit.runner.lockstep.launch import Failure, LaunchRecord, SideReport, Slot, schedule
from perfkit.runner.lockstep.turns import LoopPlan, Timing

PLAN = LoopPlan(loops=1, rounds=1, untimed=0, turns=5, most_turns=5, first_untimed=0)
POLICY = Policy(alpha=0.01, family=2, looks=(4, 6, 10))
LAUNCHES_PER_FORK_SERVER = 2


@dataclass
class HandTurnedClock:
    """Stands still until it is turned."""

    seconds: float = 7.0

    def __call__(self) -> float:
        """Return what it shows."""
        return self.seconds


@dataclass
class FakeLaunches:
    """Gives what each launch is set to give, and turns the clock by what it takes.

    ``ratios`` are head / base of each benchmark, with a scatter of 0.1 % around them, and ``bias`` is what
    every second group has on top; ``instead`` is what happens in the launch of that number, where something
    is to go wrong, and ``overheads_s`` what else such a launch takes.
    """

    clock: HandTurnedClock
    ratios: Mapping[str, float]
    seconds: float = 1.0
    bias: float = 0.0
    instead: Mapping[int, Callable[[LaunchRecord], LaunchRecord]] = field(default_factory=dict)
    overheads_s: Mapping[int, float] = field(default_factory=dict)
    import_s: float = 0.0
    made: list[tuple[str, ...]] = field(default_factory=list)
    learned: list[tuple[str, ...]] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)

    @property
    def group(self) -> int:
        """Two launches have the same one."""
        return 1 + (len(self.made) - 1) // LAUNCHES_PER_FORK_SERVER

    @property
    def group_s(self) -> float:
        """Beginning a group takes no time."""
        return 0.0

    @property
    def next_s(self) -> float:
        """The next launch begins when processes have imported for so long."""
        return self.import_s

    def prepare(self) -> None:
        """Be ready."""

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Return what was agreed on."""
        self.made.append(tuple(nodes))
        self.clock.seconds += self.seconds * len(nodes) + self.overheads_s.get(len(self.made), 0.0)
        record = LaunchRecord(
            timings={
                node: _timing(self.ratios[node] + self.bias * (self.group % 2), slot.launch) for node in nodes
            },
            failures=(),
            reports={side: SideReport(foreign={}, loaded=(f"{side}.py",)) for side in ("base", "head")},
            seconds=dict.fromkeys(nodes, self.seconds),
        )
        happens = self.instead.get(len(self.made))
        return happens(record) if happens else record

    def learn(self, libraries: Sequence[str]) -> None:
        """Note what is to be imported."""
        self.learned.append(tuple(libraries))

    def expect(self, shared_variance: float) -> None:
        """Note what groups have in common."""
        self.expected.append(shared_variance)


def _timing(ratio: float, launch: int) -> Timing:
    wobble = 1 + 0.001 * math.sin(7.0 * launch)
    return Timing(
        base_s=(0.1,) * 5,
        head_s=(0.1 * ratio * wobble,) * 5,
        plan=PLAN,
        faults_per_iteration={"base": 0.0, "head": 0.0},
    )


def _benchmark(name: str, *, prior: tuple[LaunchPair, ...] = ()) -> ComparedBenchmark:
    return ComparedBenchmark(
        benchmark=Benchmark(name=name, version="v1"),
        margin=0.02,
        gating=True,
        limit_s=30.0,
        changed=not name.startswith("elsewhere"),
        prior=prior,
    )


@dataclass
class Setting:
    """A comparison of fakes, and what was handed out of it."""

    comparison: SequentialComparison
    launches: FakeLaunches
    kept: list[MeasuredLaunch]

    def run(self) -> dict[str, str]:
        """Run it to its end and return the verdicts."""
        self.comparison.run(schedule(seed=1), Quiet())
        return {one.benchmark.name: one.verdict for one in self.comparison.comparisons()}


def _setting(
    ratios: Mapping[str, float],
    *,
    budget_s: float = 1000.0,
    instead: Mapping[int, Callable[[LaunchRecord], LaunchRecord]] | None = None,
    prior: tuple[LaunchPair, ...] = (),
) -> Setting:
    clock = HandTurnedClock()
    launches = FakeLaunches(clock=clock, ratios=ratios, instead=instead or {})
    kept: list[MeasuredLaunch] = []
    comparison = SequentialComparison(
        launches=launches,
        states={name: BenchmarkState(_benchmark(name, prior=prior)) for name in ratios},
        policy=POLICY,
        deadline=clock() + budget_s,
        keep=kept.extend,
        clock=clock,
        now=lambda: START,
    )
    return Setting(comparison=comparison, launches=launches, kept=kept)


def _without(node: str, failure: Failure) -> Callable[[LaunchRecord], LaunchRecord]:

    def lose(record: LaunchRecord) -> LaunchRecord:
        return LaunchRecord(
            timings={name: timing for name, timing in record.timings.items() if name != node},
            failures=(failure,),
            reports=record.reports,
            seconds=record.seconds,
        )

    return lose


def test_a_decided_benchmark_leaves_later_launches() -> None:
    setting = _setting({"clear": 1.5, "close": 1.0202})

    verdicts = setting.run()

    assert "REGRESSED" == verdicts["clear"]
    assert [("clear", "close")] * 4 == setting.launches.made[:4]
    assert {("close",)} == set(setting.launches.made[4:])


def test_verdicts_are_given_at_looks_only() -> None:
    setting = _setting({"clear": 1.5})
    seen: list[tuple[int, str]] = []

    class Watching(Quiet):
        def update(self, states: Sequence[Comparison], *_: float | None) -> None:
            seen.extend((len(setting.launches.made), one.verdict) for one in states)

    setting.comparison.run(schedule(seed=1), Watching())

    assert [*((number, "NOT REACHED") for number in range(4)), (4, "REGRESSED")] == seen


def test_no_launch_is_begun_that_leads_to_no_look_in_time() -> None:
    setting = _setting({"clear": 1.5}, budget_s=3.0)

    assert {"clear": "NOT REACHED"} == setting.run()
    assert 3 > len(setting.launches.made)
    assert len(setting.launches.made) == len(setting.kept)


def test_a_suspect_gets_the_time_that_is_too_short_for_all() -> None:
    setting = _setting({"quiet": 1.0185, "suspect": 1.0205}, budget_s=11.0)

    setting.run()

    assert {("suspect",)} == set(setting.launches.made[4:])


def test_a_budget_for_few_decides_few_and_does_not_reach_the_others() -> None:
    names = [*(f"elsewhere{number:02}" for number in range(26)), "a", "b", "c", "d"]
    setting = _setting(dict.fromkeys(names, 1.0), budget_s=60.0)

    verdicts = setting.run()

    decided = {name for name, verdict in verdicts.items() if verdict == "UNCHANGED"}
    assert {"a", "b", "c", "d"} < decided
    assert 10 < len(decided) < 20
    assert {"UNCHANGED", "NOT REACHED"} == set(verdicts.values())
    assert 60 - POLICY.looks[0] < sum(map(len, setting.launches.made)) <= 60


def test_no_launch_begins_whose_processes_would_import_until_long_after_the_budget() -> None:
    setting = _setting({"clear": 1.5}, budget_s=60.0)
    setting.launches.import_s = 95.0
    setting.comparison.late_s = 10.0

    verdicts = setting.run()

    assert ({"clear": "NOT REACHED"}, []) == (verdicts, setting.launches.made)
    assert setting.comparison.forecast().enough_s(60.0) > setting.launches.import_s
    (note,) = why_not_measured(setting.comparison, budget_s=60.0)
    assert "before any launch" in note


def test_a_launch_may_begin_a_little_after_the_budget() -> None:
    setting = _setting({"clear": 1.5}, budget_s=60.0)
    setting.launches.import_s = 65.0
    setting.comparison.late_s = 10.0

    assert setting.run() == {"clear": "REGRESSED"}


def test_time_is_kept_for_what_follows() -> None:
    setting = _setting({"close": 1.02}, budget_s=11.0)
    setting.comparison.after_s = lambda state: 2 * (state.launch_s or 0.0)

    assert {"close": "INCONCLUSIVE"} == setting.run()
    assert POLICY.looks[1] == len(setting.launches.made)


def _regressed(found: Sequence[Comparison]) -> bool:
    return any(one.verdict == "REGRESSED" for one in found)


def test_the_first_regression_may_be_enough() -> None:
    names = {"close": 1.0202, "clear": 1.5, **{f"elsewhere{number:02}": 1.0 for number in range(12)}}
    setting = _setting(names)
    setting.comparison.is_enough = _regressed

    verdicts = setting.run()

    assert setting.comparison.stopped
    assert POLICY.looks[0] == len(setting.launches.made)
    assert ("REGRESSED", "INCONCLUSIVE") == (verdicts["clear"], verdicts["close"])
    assert "NOT REACHED" in verdicts.values()


def test_the_budget_that_decides_the_rest_is_that_of_those_not_reached() -> None:
    setting = _setting(
        dict.fromkeys(["a", "elsewhere b", *(f"elsewhere {n}" for n in range(98))], 1.0), budget_s=30
    )
    setting.run()

    (note,) = why_not_measured(setting.comparison, budget_s=30)

    reached = sum(one.verdict != "NOT REACHED" for one in setting.comparison.comparisons())
    (changed,) = [one for one in setting.comparison.states if one == "a"]
    assert "NOT REACHED" != setting.comparison.judge(changed).verdict
    assert f"{100 - reached} of 100 benchmarks were not reached, since the budget of 30.0 s was over." in note
    assert "Those that may run changed code come first, and all of these were reached" in note
    named = setting.comparison.forecast().enough_s(30)
    assert (100 - reached) * 6 <= named <= 30 + (100 - reached) * 10 + 10


def test_measuring_may_go_on_after_the_budget() -> None:
    setting = _setting(dict.fromkeys(map(str, range(12)), 1.0), budget_s=20.0)
    begun = setting.launches.clock.seconds
    announced: list[tuple[float, Forecast]] = []
    setting.comparison.go_on_s = 1000.0
    setting.comparison.announce_going_on = lambda forecast: announced.append(
        (setting.launches.clock.seconds - begun, forecast)
    )

    verdicts = setting.run()

    assert {"UNCHANGED"} == set(verdicts.values())
    ((at_s, forecast),) = announced
    assert at_s <= 20
    assert 0 < len(forecast.costs_s) <= 12
    assert sum(map(len, setting.launches.made)) < 1000


def test_what_is_open_when_going_on_is_over_stays_open() -> None:
    setting = _setting({"clear": 1.5}, budget_s=3.0)
    announced: list[Forecast] = []
    setting.comparison.go_on_s = 0.5
    setting.comparison.announce_going_on = announced.append

    assert {"clear": "NOT REACHED"} == setting.run()
    assert 1 == len(announced)


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_failure_on_either_side_costs_its_benchmark_alone(side: Side) -> None:
    failure = Failure(node="broken", side=side, status="error", message="ValueError: no", raised=True)
    setting = _setting({"broken": 1.0, "good": 1.5}, instead={3: _without("broken", failure)})

    verdicts = setting.run()

    assert failure == setting.comparison.states["broken"].failure
    assert {"good": "REGRESSED"} == verdicts
    assert [None, "REGRESSED"] == [setting.comparison.verdict(node) for node in ("broken", "good")]
    assert {("good",)} == set(setting.launches.made[3:])
    assert 2 == sum(one.node == "broken" for one in setting.kept)


def test_what_contradicts_an_assumption_is_noted() -> None:
    alike, differing = _setting({"b.py::close": 1.02}), _setting({"b.py::close": 1.02, "b.py::near": 1.02})
    for setting, bias in ((alike, 0.0), (differing, 0.1)):
        setting.comparison.policy = replace(POLICY, looks=(4, 6, 14))
        setting.launches.bias = bias
        setting.run()

    assert [] == list(doubtful_assumptions(alike.comparison))
    (note,) = doubtful_assumptions(differing.comparison)
    assert note.startswith("close, near: launches from one process resemble each other")


def test_what_disturbed_launches_is_kept_and_noted() -> None:
    def stands_still(record: LaunchRecord) -> LaunchRecord:
        timings = {
            node: replace(timing, head_s=(3.0, *timing.head_s[1:]), stood_still_s={"head": 2.94})
            for node, timing in record.timings.items()
        }
        return replace(record, timings=timings)

    setting = _setting({"b.py::same": 1.0}, instead={2: stands_still, 3: stands_still})
    happened = iter([(Disturbance(what="clock set", amount=3600.0),)])
    setting.comparison.watch = lambda: next(happened, ())

    assert {"b.py::same": "UNCHANGED"} == setting.run()
    assert ["clock set", "stood still", "stood still"] == [
        one.what for launch in setting.kept for one in launch.disturbed
    ]
    assert {2.9} == {
        one.amount for launch in setting.kept for one in launch.disturbed if one.what == "stood still"
    }
    (note,) = disturbed_launches(setting.comparison)
    assert note.startswith(
        "the machine was disturbed: the machine's clock was set by +3600.0 s (in 1 launch);"
        " a side stood still for 2.9 s in the midst of a round (in 2 launches). "
    )


def test_a_lost_fork_server_ends_it_and_what_was_measured_stays() -> None:
    def die(_: LaunchRecord) -> LaunchRecord:
        raise NotMeasuredError("the fork server was killed")

    setting = _setting({"clear": 1.5}, instead={3: die})

    with pytest.raises(NotMeasuredError, match="fork server was killed"):
        setting.run()
    assert [0, 1] == [one.slot.launch for one in setting.kept]


def test_an_interruption_keeps_what_was_measured() -> None:
    def interrupt(_: LaunchRecord) -> LaunchRecord:
        raise KeyboardInterrupt

    setting = _setting({"one": 1.5, "two": 1.5}, instead={2: interrupt})

    with pytest.raises(KeyboardInterrupt):
        setting.run()
    assert ["one", "two"] == [one.node for one in setting.kept]
    assert 1 == len(setting.comparison.states["one"].own)


def test_a_continued_comparison_counts_the_launches_before_it() -> None:
    prior = tuple(
        LaunchPair(launch=number, group=1, base_s=(1.0,) * 5, head_s=(1.5,) * 5) for number in range(3)
    )
    setting = _setting({"clear": 1.5}, prior=prior)

    assert {"clear": "REGRESSED"} == setting.run()
    assert 1 == len(setting.launches.made)
    assert [1, 1, 1, 2] == [pair.group for pair in setting.comparison.states["clear"].pairs]


def test_a_comparison_that_was_decided_before_makes_no_launch() -> None:
    prior = tuple(
        LaunchPair(launch=number, group=1 + number // 2, base_s=(1.0,) * 5, head_s=(1.5,) * 5)
        for number in range(POLICY.looks[0])
    )
    setting = _setting({"clear": 1.5}, prior=prior)

    assert {"clear": "REGRESSED"} == setting.run()
    assert [] == setting.launches.made


@pytest.mark.parametrize("number", [1, 3])
def test_every_launch_has_to_prove_its_code(number: int) -> None:
    def from_elsewhere(record: LaunchRecord) -> LaunchRecord:
        reports = {**record.reports, "head": SideReport(foreign={"mine": "/elsewhere/mine.py"})}
        return LaunchRecord(timings=record.timings, failures=(), reports=reports, seconds=record.seconds)

    setting = _setting({"close": 1.02}, instead={number: from_elsewhere})

    with pytest.raises(NotMeasuredError, match="wrong code imported on head: mine came from /elsewhere"):
        setting.run()
    assert number - 1 == len(setting.kept)


def _unproven(record: LaunchRecord, *failures: Failure) -> LaunchRecord:
    failed = {one.node for one in failures}
    timings = {node: timing for node, timing in record.timings.items() if node not in failed}
    reports: dict[Side, SideReport] = {"base": record.reports["base"]}
    return replace(
        record,
        timings=timings,
        failures=failures,
        reports=reports,
        unproven=frozenset(record.timings),
        silent={"head": "KeyError: 'lazy'"},
    )


def test_a_launch_that_a_benchmark_ended_keeps_its_failure_and_no_times() -> None:
    killed = Failure(node="killed", side="head", status="oom", message="its process was killed")
    setting = _setting({"clear": 1.5, "killed": 1.0}, instead={1: lambda record: _unproven(record, killed)})

    assert {"clear": "REGRESSED"} == setting.run()
    assert killed == setting.comparison.states["killed"].failure
    assert [("clear", "killed"), ("clear",)] == setting.launches.made[:2]
    assert [one.slot.launch for one in setting.kept] == [*range(1, len(setting.launches.made))]
    assert POLICY.looks[0] == len(setting.kept)


def test_a_launch_that_does_not_prove_its_code_in_time_is_made_up_for() -> None:
    setting = _setting({"clear": 1.5}, instead={2: _unproven, 4: _unproven})

    assert {"clear": "REGRESSED"} == setting.run()
    assert [0, 2, 4] == [one.slot.launch for one in setting.kept][:3]
    assert POLICY.looks[0] + 2 == len(setting.launches.made)


@pytest.mark.parametrize("first", [1, 2])
def test_two_launches_in_a_row_that_do_not_prove_their_code_end_the_comparison(first: int) -> None:
    setting = _setting({"clear": 1.5}, instead={first: _unproven, first + 1: _unproven})

    with pytest.raises(NotMeasuredError, match="the processes of head ended 2 launches in a row") as raised:
        setting.run()
    assert str(raised.value).endswith("; their last words: KeyError: 'lazy'")
    assert (first + 1, first - 1) == (len(setting.launches.made), len(setting.kept))


def test_a_launch_that_was_spoilt_is_kept_beside_the_one_that_counts() -> None:
    spoilt = _timing(3.0, 0)

    def make_again(record: LaunchRecord) -> LaunchRecord:
        return replace(record, set_aside=(replace(record, timings={"clear": spoilt}),))

    setting = _setting({"clear": 1.5, "other": 1.5}, instead={1: make_again})

    assert {"clear": "REGRESSED", "other": "REGRESSED"} == setting.run()
    first, *others = setting.kept
    expected = MeasuredLaunch(node="clear", slot=first.slot, group=1, timing=spoilt, at=START)
    assert replace(expected, set_aside=True) == first
    assert replace(expected, timing=_timing(1.5, 0)) == others[0]
    assert [POLICY.looks[0]] * 2 == [len(one.own) for one in setting.comparison.states.values()]


def test_later_launches_import_beforehand_what_both_sides_did() -> None:
    def imports(record: LaunchRecord) -> LaunchRecord:
        reports = {
            side: replace(report, libraries=("json", f"only_{side}"), torch={"threads": "2"})
            for side, report in record.reports.items()
        }
        return replace(record, reports=reports)

    setting = _setting({"clear": 1.5}, instead={2: lambda record: imports(_unproven(record)), 3: imports})
    used: list[bool] = []
    setting.comparison.announce = lambda _: used.append(setting.comparison.uses_torch)

    setting.run()

    assert [(), ("json",)] == setting.launches.learned[:2]
    assert ([False], True) == (used, setting.comparison.uses_torch)
