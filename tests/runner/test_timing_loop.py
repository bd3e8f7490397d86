"""Benchmarks in real pytest sessions run as a runner orders, by pytest-benchmark's private attributes."""

from __future__ import annotations

import base64
import inspect
import marshal
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_benchmark.plugin
import pytest_benchmark.utils
from pytest_benchmark.fixture import BenchmarkFixture

from perfkit.agent import timing_loop as timing_loop_module
from perfkit.agent.benchmark_fixture import Work, install
from perfkit.agent.channel import Channel, Message
from perfkit.agent.clock import DeviceTimes
from perfkit.agent.timing_loop import RemoteTimingLoop

HOST = BenchmarkFixture


@dataclass
class ScriptedLoop:
    """Runs one untimed iteration where calls are free, then rounds of two iterations, as many as allowed."""

    works: list[Work] = field(default_factory=list)

    def time(self, work: Work) -> None:
        """Run a benchmark by the script."""
        self.works.append(work)
        loops = work.loops or 2
        if work.rounds is None:
            work.block(1)
        for _ in range(work.rounds or 3):
            work.keep(loops, work.block(loops))


@pytest.fixture
def scripted_loop(monkeypatch: pytest.MonkeyPatch) -> ScriptedLoop:
    """Return a runner that leads the sessions of this test."""
    monkeypatch.setattr(pytest_benchmark.plugin, "BenchmarkFixture", HOST)
    monkeypatch.setattr(pytest_benchmark.plugin, "get_tag", pytest_benchmark.plugin.get_tag)
    scripted = ScriptedLoop()
    install(scripted)
    return scripted


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[[str], pytest.RunResult]:
    """Return what runs a file of tests in a session of its own."""

    def run_file(text: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess("-p", "no:perfkit", "-p", "no:cacheprovider")

    return run_file


Run = Callable[[str], pytest.RunResult]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_raw", ["function_to_benchmark", "args", "kwargs"]),
        (
            "_raw_pedantic",
            ["target", "args", "kwargs", "setup", "teardown", "rounds", "warmup_rounds", "iterations"],
        ),
        ("_make_runner", ["function_to_benchmark", "args", "kwargs"]),
        ("_make_stats", ["iterations"]),
    ],
)
def test_the_host_has_what_the_adapter_overrides(name: str, parameters: list[str]) -> None:
    _, *found = inspect.signature(getattr(HOST, name)).parameters

    assert parameters == found


def test_no_session_asks_git_how_to_name_its_results(
    run: Run, scripted_loop: ScriptedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(pytest_benchmark.utils, "check_output", lambda *command, **_: asked.append(command))

    run("def test_it(benchmark): benchmark(sum, [])").assert_outcomes(passed=1)

    assert 1 == len(scripted_loop.works)
    assert [] == asked


def test_a_call_gets_its_arguments_and_returns_its_result(run: Run, scripted_loop: ScriptedLoop) -> None:
    run(
        """
        def test_it(benchmark):
            calls = []
            def work(*args, **kwargs):
                calls.append((args, kwargs))
                return len(calls)
            assert 1 + 3 * 2 + 1 == benchmark(work, 1, 2, key="word")
            assert [((1, 2), {"key": "word"})] * 8 == calls
        """
    ).assert_outcomes(passed=1)

    assert (None, None) == (scripted_loop.works[0].loops, scripted_loop.works[0].rounds)


def test_stats_hold_the_rounds_that_were_kept(run: Run, scripted_loop: ScriptedLoop) -> None:
    result = run(
        """
        def test_it(benchmark):
            benchmark(sum, range(100))
            assert 3 == benchmark.stats["rounds"] == len(benchmark.stats.stats.data)
            assert 2 == benchmark.stats["iterations"]
            assert 0 < benchmark.stats["mean"] == benchmark.stats.stats.mean
            assert benchmark.stats.stats.min <= benchmark.stats["median"] <= benchmark.stats["max"]
        """
    )

    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"Name \(time in .*", r"test_it .* 3 +2$"])
    assert 1 == len(scripted_loop.works)


def test_pedantic_with_setup_prepares_every_call(run: Run, scripted_loop: ScriptedLoop) -> None:
    run(
        """
        def test_it(benchmark):
            made = []
            def setup():
                made.append("setup")
                return (len(made),), {"key": 1}
            def work(number, key):
                made.append(("work", number, key))
                return number
            def teardown(number, key):
                made.append(("teardown", number, key))
            result = benchmark.pedantic(work, setup=setup, teardown=teardown, rounds=2, warmup_rounds=1)
            # A warm-up of its own, an untimed one, three timed ones; nobody needs one more for the result.
            expected = []
            for first in range(1, 16, 3):
                expected += ["setup", ("work", first, 1), ("teardown", first, 1)]
            assert expected == made
            assert 13 == result
        """
    ).assert_outcomes(passed=1)

    assert (1, None) == (scripted_loop.works[0].loops, scripted_loop.works[0].rounds)


# Each is refused by the host in the same words.
REFUSED = {
    "sum, args=([],), setup=lambda: (([],), {})": "TypeError: Can't use `args` or `kwargs` if",
    "sum, kwargs={'start': 1}, setup=lambda: (([],), {})": "TypeError: Can't use `args` or `kwargs` if",
    "sum, args=([],), iterations=0": "ValueError: Must have positive int for `iterations`.",
    "sum, args=([],), iterations=1.5": "ValueError: Must have positive int for `iterations`.",
    "sum, args=([],), rounds=0": "ValueError: Must have positive int for `rounds`.",
    "sum, args=([],), warmup_rounds=-1": "ValueError: Must have positive int for `warmup_rounds`.",
    "sum, setup=lambda: None, iterations=2": "ValueError: Can't use more than 1 `iterations` with a `setup`",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_conflicting_arguments_are_refused_as_the_host_does(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.setattr(pytest_benchmark.plugin, "BenchmarkFixture", HOST)
    install(ScriptedLoop())

    result = run(f"def test_it(benchmark): benchmark.pedantic({arguments})")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{REFUSED[arguments]}*"])


@pytest.mark.parametrize(
    ("rounds", "iterations", "warmup_rounds"), [(1, 1, 0), (4, 1, 2), (3, 5, 0), (2, 3, 1)]
)
def test_pedantic_without_setup_is_called_as_often_as_was_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, rounds: int, iterations: int, warmup_rounds: int
) -> None:
    monkeypatch.setattr(pytest_benchmark.plugin, "BenchmarkFixture", HOST)
    install(ScriptedLoop())
    counts = f"rounds={rounds}, iterations={iterations}, warmup_rounds={warmup_rounds}"

    result = run(
        f"""
        def test_it(benchmark):
            calls = []
            result = benchmark.pedantic(lambda: calls.append(1) or len(calls), {counts})
            expected = ({rounds} + {warmup_rounds}) * {iterations} + ({iterations} > 1)
            assert expected == len(calls) == result
            assert {rounds} == len(benchmark.stats.stats.data)
            assert {iterations} == benchmark.stats["iterations"]
        """
    )

    result.assert_outcomes(passed=1)


# What the host uses of aspectlib, which few have installed.
ASPECTLIB = """
import importlib
class weave:
    def __init__(self, target, aspect):
        module, _, self.name = target.rpartition(".")
        self.module = importlib.import_module(module)
        self.before = getattr(self.module, self.name)
        setattr(self.module, self.name, aspect(self.before))
    def rollback(self):
        setattr(self.module, self.name, self.before)
"""


def test_a_woven_function_is_measured_where_the_code_calls_it(
    pytester: pytest.Pytester, run: Run, scripted_loop: ScriptedLoop
) -> None:
    pytester.makepyfile(aspectlib=ASPECTLIB)
    run(
        """
        import textwrap
        def test_it(benchmark):
            before = textwrap.dedent
            benchmark.weave("textwrap.dedent")
            assert before is not textwrap.dedent
            assert "word" == textwrap.dedent("  word")
        def test_after():
            assert "dedent" == textwrap.dedent.__name__
        """
    ).assert_outcomes(passed=2)

    assert ["test_it"] == [work.node.partition("::")[2] for work in scripted_loop.works]


def test_what_the_users_code_raises_reaches_the_test(run: Run, scripted_loop: ScriptedLoop) -> None:
    run(
        """
        import pytest
        class Mine(Exception): pass
        def fail(): raise Mine
        @pytest.mark.parametrize("way", ["__call__", "pedantic"])
        def test_it(benchmark, way):
            with pytest.raises(Mine):
                getattr(benchmark, way)(fail)
            assert benchmark.stats is None
            assert benchmark.has_error
        """
    ).assert_outcomes(passed=2)

    assert 2 == len(scripted_loop.works)


@dataclass(frozen=True)
class Talk:
    """A benchmark under a remote runner, whose orders were all given beforehand."""

    calls: list[str]
    kept: list[tuple[int, float]]
    answers: list[Message]


@pytest.fixture
def talk() -> Iterator[Callable[..., Talk]]:
    """Return what lets a remote runner lead a benchmark that counts its calls; a call takes 2 s."""
    ours, theirs = (Channel(end) for end in socket.socketpair())

    def lead(
        *orders: dict[str, Any],
        loops: int | None = None,
        times: Callable[[int], float] = lambda iterations: 2.0 * iterations,
        call: Callable[[], object] | None = None,
    ) -> Talk:
        calls: list[str] = []
        kept: list[tuple[int, float]] = []

        def block(iterations: int) -> float:
            calls.append(f"block {iterations}")
            return times(iterations)

        for order in (*orders, {"kind": "go_on"}):
            ours.send(order)
        RemoteTimingLoop(theirs, {}, depth=3).time(
            Work(
                node="bench.py::test_it",
                block=block,
                call=call or (lambda: calls.append("call")),
                keep=lambda iterations, seconds: kept.append((iterations, seconds)),
                loops=loops,
                rounds=9,
                device=lambda values, per: DeviceTimes(host_s=(0.5,) * len(values), marks=(f"of {per}",)),
            )
        )
        return Talk(calls, kept, [ours.receive(1.0) for _ in range(len(orders) + 1)])

    yield lead
    ours.close()
    theirs.close()


def test_a_benchmark_states_what_it_allows_and_goes_on_when_asked(talk: Callable[..., Talk]) -> None:
    output = talk(loops=4)

    assert [{"kind": "ready", "node": "bench.py::test_it", "loops": 4, "rounds": 9}] == output.answers
    assert [] == output.calls


def test_an_order_to_run_is_obeyed_to_the_call(talk: Callable[..., Talk]) -> None:
    order = {"kind": "run", "untimed": 5, "loops": 3, "slices": 1, "rounds": 2, "core": None}

    output = talk(order, order)

    # The first call of all is timed by itself.
    assert ["block 1", "block 4", "block 3", "block 3", "block 5", "block 3", "block 3"] == output.calls
    assert [(3, 6.0)] * 4 == output.kept
    answer, again = output.answers[1:3]
    assert 2.0 == answer["first_s"]
    assert "first_s" not in again
    assert ("timed", 10.0, [2.0, 2.0]) == (answer["kind"], answer["untimed_s"], answer["values"])
    assert [] == answer["typical"]
    assert 0 <= answer["faults"]


def test_a_sliced_round_reports_what_a_call_typically_takes(talk: Callable[..., Talk]) -> None:
    stalls = iter([1.0, 1.0, 1.0, 1.0, 9.0])

    output = talk(
        {"kind": "run", "untimed": 0, "loops": 10, "slices": 5, "rounds": 1, "core": None},
        times=lambda iterations: next(stalls) * iterations,
    )

    assert ["block 2"] * 5 == output.calls
    assert "first_s" not in output.answers[1]
    assert [(10, 26.0)] == output.kept
    assert ([2.6], [1.0]) == (output.answers[1]["values"], output.answers[1]["typical"])


def test_rounds_on_an_accelerator_are_not_sliced(
    talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_loop_module, "uses_accelerator", lambda: True)

    output = talk({"kind": "run", "untimed": 0, "loops": 10, "slices": 5, "rounds": 1, "core": None})

    assert ["block 10"] == output.calls
    assert [] == output.answers[1]["typical"]


def test_rounds_report_what_the_accelerator_reported_of_them(
    talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_loop_module, "uses_accelerator", lambda: True)
    order = {"kind": "run", "untimed": 1, "loops": 3, "slices": 1, "core": None}

    output = talk({**order, "rounds": 2}, {**order, "rounds": 0})

    timed, warmed = output.answers[1:3]
    assert {"host_s": [0.5, 0.5], "device_s": [], "marks": ["of 3"]} == timed["device"]
    assert None is warmed["device"]


def test_an_order_may_name_the_core_to_begin_on(talk: Callable[..., Talk]) -> None:
    cores = os.sched_getaffinity(0)
    for core in (max(cores), max(cores) + 1):
        output = talk({"kind": "run", "untimed": 0, "loops": 1, "slices": 1, "rounds": 1, "core": core})

        assert ["block 1"] == output.calls
        assert 2.0 == output.answers[1]["first_s"]
        assert cores == os.sched_getaffinity(0)


def test_a_profile_holds_functions_and_no_times_of_rounds(talk: Callable[..., Talk]) -> None:
    output = talk({"kind": "profile", "calls": 2})

    assert ["call", "call"] == output.calls
    assert [] == output.kept
    stats = marshal.loads(base64.b64decode(output.answers[1]["stats"]))  # noqa: S302 (written by the test itself)
    here = {name: counts for (file, _, name), counts in stats.items() if Path(file) == Path(__file__)}
    assert {"<lambda>": 2} == {name: calls for name, (_, calls, *_) in here.items()}


def test_a_profile_omits_other_threads(talk: Callable[..., Talk]) -> None:
    def other() -> None:
        return None

    def call() -> None:
        theirs = threading.Thread(target=other)
        theirs.start()
        theirs.join()

    output = talk({"kind": "profile", "calls": 1}, call=call)

    stats = marshal.loads(base64.b64decode(output.answers[1]["stats"]))  # noqa: S302 (written by the test itself)
    assert {"call"} == {name for file, _, name in stats if Path(file) == Path(__file__)}


def test_a_benchmark_that_is_abandoned_is_skipped(talk: Callable[..., Talk]) -> None:
    with pytest.raises(pytest.skip.Exception, match="the other side failed"):
        talk({"kind": "abandon", "reason": "the other side failed"})
