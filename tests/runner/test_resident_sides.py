"""Sides share a device where there is room, measured with real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared_device import SHARED_DEVICE
from two_trees import FILE, SIDES, TwoTrees, nodes

from perfkit.agent.clock import DeviceMemory
from perfkit.model import Side
from perfkit.runner.lockstep.launch import LaunchRecord, LaunchRules, Slot, other
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.residency import (
    DISTURBED,
    NO_ROOM,
    Residents,
    Room,
    effect_of,
    residency,
    why_alone,
)
from perfkit.runner.lockstep.turns import LoopPlan
from perfkit.runner.lockstep.untimed import count_benchmarks, profile_sides

SUITE = """
import fake_device, pytest
on_device = pytest.mark.benchmark(timer=fake_device.clock)
def own(what):
    with open(f"{what}.txt") as file:
        return file.read()
@on_device
def test_device(benchmark):
    fake_device.allocate(int(own("gib")))
    fake_device.note(own("side"))
    benchmark(fake_device.work)
@on_device
def test_few_rounds(benchmark):
    fake_device.allocate(int(own("gib")))
    benchmark.pedantic(fake_device.work, rounds=3)
def test_skipped(benchmark):
    fake_device.allocate(1)
    pytest.skip("not here")
@on_device
def test_skipped_on_base(benchmark):
    fake_device.allocate(1)
    if own("side") == "base":
        pytest.skip("not on base")
    benchmark(fake_device.work)
def test_host(benchmark):
    benchmark(sum, range(1000))
"""
# In place of torch, which each fork server would take seconds to import.
TORCH = """
import sys
from unittest.mock import MagicMock
torch = MagicMock()
torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
torch.Event.side_effect = RuntimeError
torch.cuda.is_initialized.return_value = False
torch.get_float32_matmul_precision.return_value = "highest"
sys.modules["torch"] = torch
"""
GIB = 1 << 30


class Scene:
    """Two trees whose benchmarks hold memory of one device, and the launcher that measures them."""

    def __init__(self, top: Path) -> None:
        self.trees = TwoTrees(top)
        self.place = top / "device"
        self.place.mkdir()
        self.trees.benchmarks(SUITE)
        self.trees.write({"fake_device.py": SHARED_DEVICE})
        self.plans: dict[str, LoopPlan] = {}
        self.needs(10, 10)

    def launcher(self, *, cores: float = 2, torch: str = TORCH) -> Launcher:
        """Return a launcher whose fork servers have imported torch, or the text that is given for it."""
        environment = {**os.environ, "FAKE_DEVICE": str(self.place)}
        if torch:
            (self.place / "torch.py").write_text(torch)
            environment["PYTHONPATH"] = str(self.place)
        return self.trees.launcher(preload=["torch"], environment=environment, cores=cores)

    def needs(self, base: int, head: int) -> None:
        """Set how many GiB each side allocates from now on."""
        for side, gib in zip(SIDES, (base, head), strict=True):
            self.trees.write({"gib.txt": str(gib), "side.txt": side}, side)

    def launch(
        self,
        launcher: Launcher,
        *tests: str,
        begins: Side = "base",
        check_s: float = 0.0,
        number: int = 0,
    ) -> LaunchRecord:
        """Make a launch in the order of a slot."""
        slot = Slot(launch=number, block=0, forked_first=begins, begins=begins)
        rules = LaunchRules(launch_s=0.04, limit_s=lambda _: 30.0, check_s=check_s)
        return launcher.launch(slot, nodes(*tests), plans=self.plans, rules=rules)

    def output(self) -> list[tuple[str, bool]]:
        """Return which side allocated, in order, and whether the other one held memory then."""
        file = self.place / "seen.txt"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(side, int(gib) > 0) for side, _, gib in lines]


@pytest.fixture(scope="module")
def preloading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Launcher]]:
    """Return a scene and its launcher, for most tests of this file."""
    scene = Scene(tmp_path_factory.mktemp("trees"))
    with scene.launcher() as launcher:
        yield scene, launcher


@pytest.fixture
def scene(preloading: tuple[Scene, Launcher]) -> Scene:
    scene, launcher = preloading
    for name in ("seen.txt", "disturbs"):
        (scene.place / name).unlink(missing_ok=True)
    scene.plans.clear()
    scene.needs(10, 10)
    launcher.residents = Residents()
    return scene


@pytest.fixture
def launcher(preloading: tuple[Scene, Launcher]) -> Launcher:
    return preloading[1]


NODE = f"{FILE}::test_device"


def test_sides_that_have_room_stay_together(scene: Scene, launcher: Launcher) -> None:
    scene.needs(10, 20)

    record = scene.launch(launcher, "test_device")

    timing = record.timings[NODE]
    assert ((), (), False) == (record.failures, record.set_aside, timing.alone)
    assert {"base": 10 * GIB, "head": 20 * GIB} == {
        side: found.peak for side, (found,) in timing.memory.items()
    }
    assert list(SIDES) == sorted(side for side, _ in scene.output())
    assert any(beside for _, beside in scene.output())
    assert {} == launcher.residents.alone


def test_sides_without_room_alternate(scene: Scene, launcher: Launcher) -> None:
    scene.needs(38, 38)

    first = scene.launch(launcher, "test_host", "test_device")
    (scene.place / "seen.txt").unlink()
    second = scene.launch(launcher, "test_host", "test_device", begins="head", number=1)

    assert ((), (), ()) == (first.failures, second.failures, second.set_aside)
    (set_aside,) = first.set_aside
    assert ((NO_ROOM,), [NODE]) == (set_aside.marks, list(set_aside.timings))
    for record in (first, second):
        assert {"test_device": True, "test_host": False} == {
            node.partition("::")[2]: timing.alone for node, timing in record.timings.items()
        }
        assert len(record.timings[NODE].base_s) == len(record.timings[NODE].head_s)
        assert {(FILE, "fake_device.py")} == {
            tuple(sorted(report.loaded)) for report in record.reports.values()
        }
    assert [("head", False), ("base", False)] == scene.output()


def test_what_does_not_fit_alone_fails(scene: Scene, launcher: Launcher) -> None:
    scene.needs(10, 90)

    record = scene.launch(launcher, "test_host", "test_device")

    assert [("head", "oom", True)] == [(one.side, one.status, one.device_full) for one in record.failures]
    assert "CUDA out of memory" in record.failures[0].message
    assert nodes("test_host") == list(record.timings)


def test_sides_that_cannot_share_the_device_keep_limits_and_report_skips(
    scene: Scene, launcher: Launcher
) -> None:
    scene.needs(50, 50)
    skipped = nodes("test_skipped", "test_skipped_on_base")
    launcher.residents.alone.update(dict.fromkeys(skipped, "of this test"))

    record = scene.launch(launcher, "test_few_rounds", "test_skipped", "test_skipped_on_base", "test_host")

    assert {*nodes("test_few_rounds", "test_host")} == {*record.timings}
    few_rounds = record.timings[f"{FILE}::test_few_rounds"]
    assert (3, 3, 0) == (len(few_rounds.base_s), len(few_rounds.head_s), few_rounds.plan.begins_with)
    assert {} == few_rounds.cold
    assert ((), True) == (record.set_aside, few_rounds.alone)
    # A skip is reported as where both sides are together.
    assert [(skipped[0], "base", "skipped", True), (skipped[1], "base", "skipped", False)] == [
        (one.node, one.side, one.status, one.both) for one in record.failures
    ]


def test_the_first_call_is_a_cold_start_and_times_are_steady_before_they_count(
    scene: Scene, launcher: Launcher
) -> None:
    record = scene.launch(launcher, "test_device")
    again = scene.launch(launcher, "test_device", number=1)

    for one in (record, again):
        timing = one.timings[NODE]
        assert 3 <= timing.plan.warmup <= timing.plan.begins_with
        assert {"base": 0.061, "head": 0.061} == pytest.approx(
            {side: cold.total_s for side, cold in timing.cold.items()}
        )


def test_coming_launches_warm_up_at_once_where_the_device_has_room(tmp_path: Path) -> None:
    """What three launches need is allocated before the first of them is timed; each has its own processes."""
    scene = Scene(tmp_path)
    with scene.launcher(cores=16) as launcher:
        launcher.survey()
        records, groups = [], []
        for number, begins in enumerate((*SIDES, "base")):
            if number:
                launcher.renew(alone=True)
            records.append(scene.launch(launcher, "test_device", number=number, begins=begins))
            groups.append(launcher.group)
        allocated = len(scene.output())
        # One is left to be timed, and a launch of more than its benchmark has processes of its own.
        launcher.renew(alone=True)
        several = scene.launch(launcher, "test_device", "test_host", number=3)

    assert () == several.failures
    assert nodes("test_device", "test_host") == list(several.timings)
    assert several.timings[NODE].cold
    timings = [record.timings[NODE] for record in records]
    assert [True, False, False] == [bool(timing.cold) for timing in timings]
    assert all(value == pytest.approx(0.001) for timing in timings for value in timing.base_s)
    assert all(len(one.base_s) == len(one.head_s) == len(timings[0].base_s) for one in timings)
    assert all(set(SIDES) == set(record.reports) for record in records)
    # The first launch was alone, and three had room at once.
    assert allocated == 2 + 2 * 3
    assert {3} == set(launcher.residents.room.values())
    assert len(set(groups)) == len(records)


def test_a_check_proves_that_the_other_side_does_not_disturb(scene: Scene, launcher: Launcher) -> None:
    record = scene.launch(launcher, "test_host", "test_device", check_s=60.0)
    found = launcher.residents.presence
    scene.launch(launcher, "test_device", check_s=60.0, number=1)

    assert found is not None
    assert found is launcher.residents.presence
    assert (NODE, False, True) == (found.node, found.disturbs, found.is_small)
    assert () == record.set_aside


def test_a_check_that_would_take_too_long_is_not_made(scene: Scene, launcher: Launcher) -> None:
    scene.launch(launcher, "test_device", check_s=0.001)

    assert launcher.residents.presence is None
    assert launcher.residents.not_checked.endswith("are spared for it")


def test_sides_that_disturb_one_another_alternate(scene: Scene, launcher: Launcher) -> None:
    (scene.place / "disturbs").touch()

    record = scene.launch(launcher, "test_device", check_s=60.0)

    found = launcher.residents.presence
    assert found is not None, (launcher.residents, record.failures)
    assert found.disturbs, found
    assert all(0.49 < one.low <= one.high < 0.51 for one in found.effects.values()), found
    assert record.timings[NODE].alone
    assert [(DISTURBED,)] == [one.marks for one in record.set_aside]
    assert {NODE: "the other side on the device disturbs"} == launcher.residents.alone


def test_sides_without_room_are_counted_and_profiled_one_after_the_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.needs(50, 50)

    with scene.launcher(torch="") as launcher:
        counted = count_benchmarks(
            launcher, nodes("test_device", "test_host"), limit_s=lambda _: 20.0, on_benchmark=lambda _: None
        )
        turns = profile_sides(
            NODE, lambda side: launcher.start(side, nodes=[NODE]), calls=5, limit_s=20.0, apart=True
        )

    assert () == counted.failures
    assert {"base": 2, "head": 2} == {side: len(found) for side, found in counted.counts.items()}
    assert turns is not None
    assert set(SIDES) == set(turns)
    assert all(not beside for _, beside in scene.output())
    assert other("base") == "head"


@pytest.mark.parametrize(
    ("free", "base", "head", "decided"),
    [
        (80, 10, 10, "together"),
        (80, 35, 35, "together"),
        (80, 35, 36, "by turns"),
        (80, 60, 20, "by turns"),
        (40, 15, 16, "by turns"),
        (80, None, 10, "by turns"),
        (80, 10, None, "by turns"),
        (0, 0, 0, "by turns"),
    ],
)
def test_measured_peaks_decide(free: int, base: int | None, head: int | None, decided: str) -> None:
    room = Room(total=80 * GIB, free=free * GIB)
    peaks = [None if peak is None else peak * GIB for peak in (base, head)]

    assert decided == residency(room, *peaks)


def _held(peak: int, *, index: int = 0, free: int) -> DeviceMemory:
    """Return the memory of a side that reserves so many GiB of a device of 80, with so many free now."""
    return DeviceMemory(index=index, total=80 * GIB, free=free * GIB, reserved=peak * GIB, peak=peak * GIB)


@pytest.mark.parametrize(
    ("base", "head", "apart"),
    [
        ((_held(30, free=18),), (_held(30, free=18),), False),
        ((_held(38, free=2),), (_held(38, free=2),), True),
        # Somebody else has half of it.
        ((_held(20, free=4),), (_held(16, free=4),), True),
        # They are on two devices, and only one of them is nearly full.
        ((_held(75, free=4),), (_held(10, index=1, free=69),), True),
        ((_held(60, free=19),), (_held(60, index=1, free=19),), False),
        # A side that uses none is in nobody's way.
        ((_held(60, free=19),), (), False),
    ],
)
def test_what_both_reported_beside_one_another_decides(
    base: tuple[DeviceMemory, ...], head: tuple[DeviceMemory, ...], *, apart: bool
) -> None:
    memory: dict[Side, tuple[DeviceMemory, ...]] = {"base": base, "head": head}

    assert apart == (why_alone(memory) is not None)


def test_a_drift_is_not_taken_for_the_other_side() -> None:
    found = effect_of([1.0] * 8, [1.02] * 8, [1.0404] * 8)

    assert found.low < 0 < found.high
    assert (False, False) == (found.disturbs, found.is_small)


def test_the_effect_of_the_other_side_has_an_interval() -> None:
    steady = effect_of([1.0], [1.01], [1.0])
    assert (0.01, 0.01) == pytest.approx((steady.low, steady.high))
    assert effect_of([1.0] * 8, [1.01] * 8, [1.0] * 8).disturbs
    assert effect_of([1.0] * 8, [1.001] * 8, [1.0] * 8).is_small
    scattered = effect_of([1.0, 1.2] * 4, [1.05, 1.25] * 4, [1.0, 1.2] * 4)
    assert (False, False) == (scattered.disturbs, scattered.is_small)
