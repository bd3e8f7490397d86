"""The memory pass names the lines that allocate, and those whose memory stays."""

from __future__ import annotations

import importlib.util
import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from forked_commands import run_perfkit

from perfkit.commands.profile import DEFAULT_PASSES, ProfileRequest, run_profile
from perfkit.config import load_project
from perfkit.errors import UsageError
from perfkit.model import LineMemory, MemoryProfile, PassSummary
from perfkit.model.readings import PhaseMemory
from perfkit.profiling.passes.balance import PhaseClock
from perfkit.profiling.passes.exchange import PassSpec
from perfkit.profiling.passes.instruments import MemoryByLine
from perfkit.profiling.passes.memory import MemoryWatch, PeakWatch
from perfkit.profiling.passes.target_code import OwnCode
from perfkit.profiling.passes.targets import Target
from perfkit.profiling.read.summary_file import load_summary
from perfkit.report.memory import memory_text

SAVED = Path(__file__).parents[2] / "profiles" / "tensor_losses.json"
# The numbers of the lines are in what the tests expect.
CODE = """
import tracemalloc

import torch

kept, log = [], []


class Node:
    pass


def steady():
    return torch.ones(1000) + torch.ones(1000)


def keep_tensor():
    kept.append(torch.ones(500))


def keep_bytes():
    log.append(bytearray(50_000))


def leave_a_cycle():
    one, other = Node(), Node()
    one.other, other.one = other, one
    one.payload = bytearray(100_000)


def fill_once():
    if not log:
        log.append(bytearray(70_000))


def end_tracing():
    tracemalloc.stop()
"""
SCRIPT = """
import torch
from torch import nn

kept = []
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(7):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    kept.append(torch.zeros(2500))
    optimizer.step()
"""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[ModuleType]:
    """Return a module of the user's own, fresh for each test."""
    file = tmp_path / "code.py"
    file.write_text(CODE)
    spec = importlib.util.spec_from_file_location("memory_code", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    assert not tracemalloc.is_tracing()


def _watched(root: Path, step: Callable[[], object], steps: int = 6) -> MemoryProfile:
    with MemoryWatch(root, OwnCode(root=root, trees=(root,))) as watch:
        for _ in range(steps):
            step()
            watch.end_step()
    return watch.memory()


def _line(found: MemoryProfile, kind: str, place: str) -> LineMemory:
    return next(line for line in found.lines if (line.kind, line.place) == (kind, place))


def test_a_line_has_the_bytes_of_its_tensors(code: ModuleType, tmp_path: Path) -> None:
    found = _watched(tmp_path, code.steady)

    line = _line(found, "tensors", "code.py:14")
    assert (12_000,) * 6 == line.allocated
    assert (0,) * 6 == line.alive
    assert (12_000, 0, 0, False) == (line.step_bytes, line.stays_bytes, line.growth_bytes, line.leaks)
    assert "return torch.ones(1000) + torch.ones(1000)" == line.text


def test_tensors_that_stay_are_a_leak(code: ModuleType, tmp_path: Path) -> None:
    line = _line(_watched(tmp_path, code.keep_tensor), "tensors", "code.py:18")

    assert tuple(2000 * step for step in range(1, 7)) == line.alive
    assert (2000, 2000, "aten::ones", True) == (line.step_bytes, line.growth_bytes, line.what, line.leaks)


def test_objects_that_stay_are_a_leak(code: ModuleType, tmp_path: Path) -> None:
    found = _watched(tmp_path, code.keep_bytes)

    line = _line(found, "Python", "code.py:22")
    assert line.step_bytes is None
    assert pytest.approx(50_000, rel=0.01) == line.growth_bytes
    assert line.leaks
    # Python's objects are traced from the end of the first step on.
    assert (0, 5) == (line.alive[0], len(found.peak))
    assert found.peak[-1] >= 250_000


@pytest.mark.parametrize("step", ["leave_a_cycle", "fill_once"])
def test_what_is_freed_or_made_once_is_no_leak(step: str, code: ModuleType, tmp_path: Path) -> None:
    found = _watched(tmp_path, getattr(code, step))

    assert [] == [line for line in found.lines if line.leaks]
    assert all(line.stays_bytes < 80_000 for line in found.lines)


def test_few_steps_show_no_growth(code: ModuleType, tmp_path: Path) -> None:
    found = _watched(tmp_path, code.keep_bytes, steps=4)

    assert not found.shows_growth
    assert not _line(found, "Python", "code.py:22").leaks


def test_a_target_that_ends_tracing_is_reported(code: ModuleType, tmp_path: Path) -> None:
    def step() -> None:
        code.keep_tensor()
        code.end_tracing()

    found = _watched(tmp_path, step)

    assert "Python's objects, since the target stopped tracemalloc" == found.not_seen
    assert _line(found, "tensors", "code.py:18").leaks


def test_a_run_without_steps_is_watched_as_one(code: ModuleType, tmp_path: Path) -> None:
    with MemoryWatch(tmp_path, OwnCode(root=tmp_path, trees=(tmp_path,))) as watch:
        code.keep_tensor()
        watch.end_run()

    found = watch.memory()
    assert 0 == found.steps
    assert "no step ended" in found.not_seen
    assert (2000,) == _line(found, "tensors", "code.py:18").allocated
    assert "which is the whole run, since no optimizer step was seen" in memory_text(found)


def _spec(root: Path, **changes: Any) -> PassSpec:  # noqa: ANN401 (any field of a spec)
    target = Target(name="train.py", place=str(root / "train.py"))
    spec = PassSpec(
        name="memory", target=target, arguments=(), root=str(root), own=(), folder=str(root), artifact="train"
    )
    return replace(spec, **changes)


def test_the_instrument_writes_a_table(code: ModuleType, tmp_path: Path) -> None:
    instrument = MemoryByLine(_spec(tmp_path))
    summary = PassSummary(name="memory", total_s=1.0, step_s=(0.1,) * 6, samples=None)

    def loop() -> None:
        for _ in range(6):
            code.keep_tensor()
            instrument.end_step()

    instrument.run(loop)
    found = instrument.write(summary)

    assert ("train_memory.txt",) == found.files
    table = (tmp_path / "train_memory.txt").read_text()
    leak = next(line for line in table.splitlines() if "code.py:18" in line and "tensors" in line)
    assert leak.split() == [
        *("1.95", "KiB", "11.7", "KiB", "+1.95", "KiB", "tensors", "code.py:18", "aten::ones"),
        *("kept.append(torch.ones(500))", "grows"),
    ]
    assert found.memory is not None
    assert 6 == found.memory.steps


@pytest.mark.parametrize(("asked", "limit"), [(None, 12), (5, 5), (400, 50)])
def test_so_many_steps_are_watched(asked: int | None, limit: int, tmp_path: Path) -> None:
    assert limit == MemoryByLine(_spec(tmp_path, steps=asked)).step_limit


def test_a_summary_of_an_earlier_version_has_no_memory() -> None:
    assert load_summary(SAVED).memory is None


@pytest.mark.slow
def test_the_command_makes_the_pass_and_flame_graphs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = "profile train.py --passes cprofile,memory --no-ledger --out train.stat --firefox flames.json"

    done = run_perfkit(*command.split(), cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    shown = run_perfkit("show", "train.json", cwd=tmp_path)
    assert "leak: train.py:12 (tensors, aten::zeros)" in shown.stdout
    assert "aten::zeros  kept.append(torch.zeros(2500))  grows" in (tmp_path / "train_memory.txt").read_text()
    memory = load_summary(tmp_path / "train.json").memory
    assert memory is not None
    assert 7 == memory.steps
    written = json.loads((tmp_path / "flames.json").read_text())
    assert ["train.stat"] == [thread["name"] for thread in written["threads"]]
    assert "train.py" in written["shared"]["stringArray"]


def test_an_unknown_pass_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    request = ProfileRequest(target="x.py", out=tmp_path / "x.stat", passes=("leaks",))  # type: ignore[arg-type]
    (tmp_path / "x.py").write_text("")

    with pytest.raises(UsageError, match="passes are clean, balance, counts, cprofile, torch, lines, memory"):
        run_profile(replace(request, target=str(tmp_path / "x.py")), project=load_project(tmp_path))
    assert "memory" not in DEFAULT_PASSES


@dataclass
class FakeAllocator:
    """Counts as torch's allocator does; ``hold`` takes memory, or gives it back."""

    held: int = 0
    peak: int = 0
    reserved: int = 0
    retries: int = 0
    asked: list[str] = field(default_factory=list)

    def hold(self, size: int) -> None:
        """Take or give back so many bytes."""
        self.held += size
        self.peak = max(self.peak, self.held)
        self.reserved = max(self.reserved, self.held)

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """Return the counters by torch's names."""
        self.asked.append("stats")
        return {
            "allocated_bytes": {"all": {"peak": self.peak}},
            "reserved_bytes": {"all": {"peak": self.reserved}},
            "inactive_split_bytes": {"all": {"current": self.reserved - self.held}},
            "num_alloc_retries": self.retries,
        }

    def reset_peak_memory_stats(self) -> None:
        """Begin anew."""
        self.asked.append("reset")
        self.peak = self.held


def test_a_phase_has_its_own_peak() -> None:
    allocator = FakeAllocator()
    watch = PeakWatch(lambda: allocator)
    clock = PhaseClock(watch=watch.change)
    clock.start_step()
    allocator.hold(10)
    for phase, takes, gives in (("forward", 50, 0), ("backward", 30, 75), ("optimizer", 5, 0)):
        clock.begin(phase)
        allocator.hold(takes)
        allocator.hold(-gives)
        clock.end()
    clock.end_step()

    assert (
        PhaseMemory(name="forward", allocated=60, reserved=60, unusable=0, retries=0),
        PhaseMemory(name="backward", allocated=90, reserved=90, unusable=75, retries=0),
        PhaseMemory(name="optimizer", allocated=20, reserved=90, unusable=70, retries=0),
    ) == watch.phases()


def test_over_steps_the_largest_counts_and_retries_add_up() -> None:
    allocator = FakeAllocator(retries=3)
    watch = PeakWatch(lambda: allocator)
    for size, retries in ((40, 1), (20, 2)):
        watch.change("forward")
        allocator.hold(size)
        allocator.hold(-size)
        allocator.retries += retries
        watch.change(None)
        allocator.retries += 7

    (forward,) = watch.phases()
    assert (40, 3) == (forward.allocated, forward.retries)


def test_without_a_device_nothing_is_noted() -> None:
    used: list[FakeAllocator] = []
    watch = PeakWatch(lambda: used[0] if used else None)
    watch.change("forward")
    watch.change("backward")
    used.append(FakeAllocator())
    watch.change("optimizer")
    used[0].hold(8)
    watch.change(None)

    assert [("optimizer", 8)] == [(one.name, one.allocated) for one in watch.phases()]
