"""The clock of blocks waits for the device at both ends, and asks it for its own time."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest
from fake_devices import PREPARE, FakeAccelerator, can_build
from forked_commands import run

from perfkit.agent import clock as clock_module
from perfkit.agent.clock import (
    LAUNCH_BOUND,
    UNSYNCHRONISED,
    BlockClock,
    DeviceTimes,
    Span,
    TorchAccelerator,
    accelerator_in_use,
)


@pytest.fixture
def device() -> FakeAccelerator:
    return FakeAccelerator()


@pytest.fixture
def clock(device: FakeAccelerator) -> BlockClock:
    return BlockClock(device.read_clock, lambda: device)


def test_a_block_waits_once_at_both_ends(device: FakeAccelerator, clock: BlockClock) -> None:
    clock.read()
    device.happened.clear()
    device.launch(0.1, 0.5)
    clock.read()

    assert ["launched", "event", "clock", "synchronised", "clock", "event"] == device.happened


def test_a_block_has_three_times(device: FakeAccelerator, clock: BlockClock) -> None:
    begun = clock.read()
    device.launch(0.1, 0.5)
    device.launch(0.1, 0.5)
    ended = clock.read()

    (span,) = clock.spans
    assert (1.1, 0.2, 1.1) == pytest.approx((span.wall_s, span.host_s, span.device_s))
    assert span.wall_s == ended - begun


def test_values_are_per_iteration(device: FakeAccelerator, clock: BlockClock) -> None:
    begun = clock.read()
    for _ in range(4):
        device.launch(0.0625, 0.5)
    value = (clock.read() - begun) / 4

    found = clock.times([value], loops=4)

    assert found is not None
    assert ((0.0625,), (0.515625,)) == (found.host_s, found.device_s)


def test_rounds_of_another_clock_are_marked(device: FakeAccelerator, clock: BlockClock) -> None:
    begun = device.read_clock()
    device.launch(0.1, 0.5)
    unsynchronised = device.read_clock() - begun
    assert device.done_s > device.now_s
    assert DeviceTimes(marks=(UNSYNCHRONISED,)) == clock.times([unsynchronised])

    clock.read()
    device.launch(0.1, 0.5)
    clock.read()
    assert DeviceTimes(marks=(UNSYNCHRONISED,)) == clock.times([unsynchronised])


def test_without_an_accelerator_nothing_is_kept() -> None:
    seconds = iter([1.0, 3.0])
    clock = BlockClock(lambda: next(seconds), lambda: None)

    assert (1.0, 3.0) == (clock.read(), clock.read())
    assert None is clock.times([2.0])


def test_a_device_without_events_still_is_waited_for(device: FakeAccelerator, clock: BlockClock) -> None:
    device.has_events = False
    begun = clock.read()
    device.launch(0.25, 0.5)
    value = clock.read() - begun

    assert DeviceTimes(host_s=(0.25,)) == clock.times([value])


def test_a_device_first_used_inside_a_block_is_waited_for_at_its_end(device: FakeAccelerator) -> None:
    used: list[FakeAccelerator] = []
    clock = BlockClock(device.read_clock, lambda: used[0] if used else None)

    clock.read()
    used.append(device)
    device.launch(0.25, 0.5)
    clock.read()

    assert [Span(wall_s=0.75, host_s=0.25, device_s=None)] == list(clock.spans)


@pytest.mark.parametrize(
    ("host_s", "device_s", "bound"), [(0.1, 0.5, False), (0.5, 0.0, True), (0.5, 0.01, True)]
)
def test_a_launch_bound_benchmark_is_marked(
    device: FakeAccelerator, clock: BlockClock, host_s: float, device_s: float, *, bound: bool
) -> None:
    begun = clock.read()
    for _ in range(10):
        device.launch(host_s, device_s)
    value = clock.read() - begun

    found = clock.times([value])

    assert found is not None
    assert bound == (LAUNCH_BOUND in found.marks)


def test_flushed_blocks_are_joined_without_what_lies_between(
    device: FakeAccelerator, clock: BlockClock
) -> None:
    """The cache is emptied before each call, outside of its block; the round is the sum of its calls.

    The device works on the flush until the call is launched, so that it does not wait for the launch.
    """
    for _ in range(3):
        clock.flush()
        clock.read()
        device.launch(0.125, 0.5)
        clock.read()

    seconds = clock.join(3)
    assert seconds is not None
    found = clock.times([seconds / 3], loops=3)
    assert found is not None
    assert [1.5, 0.125, 0.5] == pytest.approx([seconds, *found.host_s, *found.device_s])
    assert 3 == device.happened.count("flushed")


def _torch_of(kind: str, module: object) -> types.SimpleNamespace:
    """Return what stands for a torch that was built for a kind of accelerator."""
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_initialized=lambda: False),
        accelerator=types.SimpleNamespace(current_accelerator=lambda: types.SimpleNamespace(type=kind)),
        get_device_module=lambda _: module,
    )


@pytest.mark.parametrize(("initialised", "found"), [(True, "xpu"), (False, None)])
def test_only_an_accelerator_that_was_used_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, found: str | None, *, initialised: bool
) -> None:
    torch = _torch_of("xpu", types.SimpleNamespace(is_initialized=lambda: initialised))
    monkeypatch.setitem(sys.modules, "torch", torch)
    clock_module._of_kind.cache_clear()

    in_use = accelerator_in_use()

    clock_module._of_kind.cache_clear()
    assert found == (in_use.kind if in_use else None)


def test_nothing_waits_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", _torch_of("xpu", module))
    clock_module._of_kind.cache_clear()

    assert None is accelerator_in_use()
    clock_module._of_kind.cache_clear()


def test_each_device_that_holds_memory_is_waited_for() -> None:
    waited: list[int | None] = []
    module = types.SimpleNamespace(
        synchronize=lambda index=None: waited.append(index),
        device_count=lambda: 3,
        current_device=lambda: 0,
        memory_reserved=lambda index: {0: 1 << 20, 1: 1 << 20, 2: 0}[index],
    )

    TorchAccelerator(_torch_of("xpu", module), "xpu").synchronise()

    assert [None, 1] == waited


# The clock, the phases of a step and a recorded session on a backend that torch takes for a real device.
ON_THE_BACKEND = """
import json
from perfkit.agent.clock import BlockClock, accelerator_in_use
from perfkit.profiling.passes.balance import PhaseClock, choose_clock

clock = BlockClock(fake.read_clock)
fake.launch(0.5, 2.0)
clock.read()
fake.take_happened()
fake.launch(0.125, 0.5)
fake.launch(0.125, 0.5)
clock.read()
happened, span = fake.take_happened(), clock.spans[-1]
phases = PhaseClock(choose_clock)
phases.start_step()
for phase, seconds in (("forward", 0.5), ("backward", 1.5)):
    phases.begin(phase)
    fake.launch(0.0, seconds)
    phases.end()
phases.end_step()
torch.accelerator.synchronize()
balance = phases.balance()
print(json.dumps({
    "kind": accelerator_in_use().kind,
    "happened": happened,
    "span": [span.wall_s, span.host_s, span.device_s],
    "phases": {one.name: one.seconds[0] for one in balance.phases},
}))
"""
SUITE = """
import pytest

def test_device(benchmark):
    benchmark.pedantic(fake.launch, args=(0.0, 0.005), rounds=3, iterations=2)

def test_host(benchmark):
    benchmark.pedantic(sum, args=(range(1000),), rounds=3, iterations=2)

def test_own_timer(benchmark):
    import time
    benchmark._timer = time.perf_counter
    benchmark.pedantic(fake.launch, args=(0.0, 0.005), rounds=3, iterations=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not can_build(), reason="a C++ compiler and ninja build the backend")
def test_a_real_backend_of_torch_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from repositories import create_repository

    from perfkit.ledger.store import Ledger

    build = tmp_path / "build"
    build.mkdir()
    done = run([sys.executable, "-c", PREPARE + ON_THE_BACKEND, str(build)])
    assert 0 == done.returncode, done.stderr
    output = json.loads(done.stdout.splitlines()[-1])
    assert "fakedev" == output["kind"]
    assert ["launched", "launched", "event", "clock", "synchronised", "clock", "event"] == output["happened"]
    assert [1.125, 0.25, 1.125] == output["span"]
    # What no hook saw between the two is a loss.
    assert {"forward": 0.5, "loss": 0.0, "backward": 1.5} == output["phases"]

    project = tmp_path / "project"
    project.mkdir()
    prepare = PREPARE.replace("sys.argv[1]", repr(str(build)))
    (project / "test_suite.py").write_text(prepare + SUITE)
    repository = create_repository(project)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "All of it")
    monkeypatch.chdir(project)
    recorded = run([sys.executable, "-m", "pytest", "-q", "--perfkit-ledger=rows", "--perfkit-no-counts"])
    assert 0 == recorded.returncode, recorded.stdout
    rows = {
        (row.outcome.benchmark.name.partition("::")[2], row.outcome.metric.name): row
        for row in Ledger(project / "rows").rows()
    }
    assert (0.005,) * 3 == pytest.approx(rows["test_device", "device time"].outcome.values)
    assert () == rows["test_device", "time"].policy.marks
    assert (LAUNCH_BOUND,) == rows["test_host", "time"].policy.marks
    assert (UNSYNCHRONISED,) == rows["test_own_timer", "time"].policy.marks
    assert ("test_own_timer", "device time") not in rows
