"""A cProfile that any program wrote can be read."""

from __future__ import annotations

import cProfile
import pstats
import re
from pathlib import Path
from typing import Any

import pytest
from foreign_profiles import ADAM, ENGINE, MAIN, SCHEDULER, SITE, WRAPPER, pstats_bytes, reading_of, row

from perfkit.model.readings import FunctionTime, Reading, StepTimes

OTHER = (f"{SITE}/torch/optim/sgd.py", 60, "step")


def own_work() -> int:
    """Call a function of this file, which calls itself, and one of a library."""
    return countdown(4) + len(re.escape("a.b"))


def countdown(number: int) -> int:
    return countdown(number - 1) if number else 0


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    file = tmp_path / "real.prof"
    profiler = cProfile.Profile()
    profiler.runcall(own_work)
    profiler.dump_stats(file)
    return file


def named(reading: Reading, function: str) -> FunctionTime:
    (found,) = (one for one in reading.functions if one.function == function)
    return found


def test_a_real_profile_is_read_as_pstats_reads_it(dumped: Path) -> None:
    stats: Any = pstats.Stats(str(dumped))
    reading = reading_of(dumped.read_bytes())

    assert (stats.total_calls, len(stats.stats)) == (reading.calls, len(reading.functions))
    assert stats.total_tt == pytest.approx(reading.total_s)
    countdown, length = named(reading, "countdown"), named(reading, "{built-in method builtins.len}")
    assert (5, 1) == (countdown.calls, countdown.primitive_calls)
    kinds = [named(reading, name).kind for name in ("own_work", "escape")]
    assert ["own", "library", "builtin", ""] == [*kinds, length.kind, length.file]
    (call,) = named(reading, "escape").callers
    assert ("own_work", 1) == (reading.functions[call.caller].function, call.calls)


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        (("src/train.py", f"{SITE}/torch/nn/init.py"), ["own", "library"]),
        (("mine/train.py", "torch/nn/init.py"), ["library", "library"]),
    ],
    ids=["a script as it was typed", "perfkit's portable form"],
)
def test_relative_names_are_own_beside_absolute_ones(files: tuple[str, str], kinds: list[str]) -> None:
    table = {(file, 1, "f"): row() for file in files}
    assert kinds == [one.kind for one in reading_of(pstats_bytes(table)).functions]


def test_a_caller_without_its_own_entry_is_left_out() -> None:
    (found,) = reading_of(pstats_bytes({MAIN: row(callers={ADAM: (1, 1, 0.1, 0.1)})})).functions
    assert () == found.callers


def test_an_empty_profile_is_reported() -> None:
    reading = reading_of(pstats_bytes({}))
    assert (0.0, ("the profile holds no function",)) == (reading.total_s, reading.warnings)


def test_letters_that_steer_a_terminal_are_replaced() -> None:
    (found,) = reading_of(pstats_bytes({("/a/b\udcff.py", 1, "\x1b[2Jf\n"): row()})).functions
    assert ("a/b\ufffd.py", "\ufffd[2Jf\ufffd") == (found.file, found.function)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({MAIN: row(), ADAM: row(7), SCHEDULER: row(20)}, StepTimes(count=7, sign="optimizer.step")),
        ({MAIN: row(), WRAPPER: row(6), ENGINE: row(12)}, StepTimes(count=6, sign="optimizer.step")),
        ({ADAM: row(4), OTHER: row(2)}, StepTimes(count=4, sign="optimizer.step")),
        ({MAIN: row(), ENGINE: row(5), SCHEDULER: row(9)}, StepTimes(count=5, sign="run_backward")),
        ({MAIN: row(), SCHEDULER: row(9)}, None),
        ({MAIN: row(), ("/home/me/env.py", 9, "step"): row(99)}, None),
    ],
    ids=[
        "an optimizer",
        "a wrapper",
        "two optimizers",
        "a backward pass",
        "a schedule alone",
        "a step of another kind",
    ],
)
def test_steps_are_reported_by_what_a_step_cannot_do_without(
    table: dict[Any, Any], expected: StepTimes | None
) -> None:
    assert expected == reading_of(pstats_bytes(table)).steps
