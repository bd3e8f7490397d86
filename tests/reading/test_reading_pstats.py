"""A cProfile that any program wrote can be read."""

from __future__ import annotations

import cProfile
import profile
import pstats
import re
from pathlib import Path
from typing import Any

import pytest
from foreign_profiles import ADAM, ENGINE, MAIN, SCHEDULER, SITE, WRAPPER, pstats_bytes, reading_of, row

from perfkit.model.readings import FunctionTime, Reading, StepTimes


def own_work() -> int:
    """Call a function of this file, which calls itself, and one of a library."""
    return countdown(4) + len(re.escape("a.b"))


def countdown(number: int) -> int:
    """Call itself until nothing is left."""
    return countdown(number - 1) if number else 0


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    """Return the file of a real cProfile."""
    file = tmp_path / "real.prof"
    profiler = cProfile.Profile()
    profiler.runcall(own_work)
    profiler.dump_stats(file)
    return file


def named(reading: Reading, function: str) -> FunctionTime:
    """Return the one function of this name."""
    (found,) = (one for one in reading.functions if one.function == function)
    return found


def test_totals_and_calls_are_those_of_pstats(dumped: Path) -> None:
    """The whole and the number of calls are what pstats prints of the same file."""
    stats: Any = pstats.Stats(str(dumped))
    reading = reading_of(dumped.read_bytes())
    assert stats.total_calls == reading.calls
    assert stats.total_tt == pytest.approx(reading.total_s)
    assert len(stats.stats) == len(reading.functions)


def test_recursion_keeps_both_counts_of_calls(dumped: Path) -> None:
    """A function that calls itself has all its calls, and the one that came from outside."""
    found = named(reading_of(dumped.read_bytes()), "countdown")
    assert (5, 1) == (found.calls, found.primitive_calls)


def test_each_function_says_whose_it_is(dumped: Path) -> None:
    """What this file defines is own, the standard library's a library's, and C's built in."""
    reading = reading_of(dumped.read_bytes())
    kinds = [named(reading, name).kind for name in ("own_work", "escape", "{built-in method builtins.len}")]
    assert ["own", "library", "builtin"] == kinds
    assert not named(reading, "{built-in method builtins.len}").file


def test_callers_point_to_their_place(dumped: Path) -> None:
    """A caller is found in the list under the place that the call names."""
    reading = reading_of(dumped.read_bytes())
    (call,) = named(reading, "escape").callers
    assert "own_work" == reading.functions[call.caller].function
    assert 1 == call.calls


def test_the_module_profile_counts_calls_alone(tmp_path: Path) -> None:
    """A profile of the older module is read, whose callers have no times."""
    file = tmp_path / "old.prof"
    profiler = profile.Profile()
    profiler.runcall(own_work)
    profiler.dump_stats(file)
    reading = reading_of(file.read_bytes())
    (call,) = named(reading, "own_work").callers
    assert (1, 0.0) == (call.calls, call.cumulative_s)
    assert 5 == named(reading, "countdown").calls


def test_a_caller_without_its_own_entry_is_left_out() -> None:
    """A profile that was cut by hand keeps what it has."""
    (found,) = reading_of(pstats_bytes({MAIN: row(callers={ADAM: (1, 1, 0.1, 0.1)})})).functions
    assert () == found.callers


def test_an_empty_profile_says_so() -> None:
    """A profile without functions is no error; it has a warning."""
    reading = reading_of(pstats_bytes({}))
    assert (0.0, ("the profile holds no function",)) == (reading.total_s, reading.warnings)


def test_letters_that_steer_a_terminal_are_replaced() -> None:
    """Neither an escape sequence nor half a letter of a file's name gets out of a profile."""
    (found,) = reading_of(pstats_bytes({("/a/b\udcff.py", 1, "\x1b[2Jf\n"): row()})).functions
    assert ("a/b\ufffd.py", "\ufffd[2Jf\ufffd") == (found.file, found.function)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({MAIN: row(), ADAM: row(7), SCHEDULER: row(20)}, StepTimes(count=7, sign="optimizer.step")),
        ({MAIN: row(), WRAPPER: row(6), ENGINE: row(12)}, StepTimes(count=6, sign="optimizer.step")),
        ({MAIN: row(), ENGINE: row(5), SCHEDULER: row(9)}, StepTimes(count=5, sign="run_backward")),
        ({MAIN: row(), SCHEDULER: row(9)}, None),
        ({MAIN: row(), ("/home/me/env.py", 9, "step"): row(99)}, None),
    ],
    ids=["an optimizer", "a wrapper", "a backward pass", "a schedule alone", "a step of another kind"],
)
def test_steps_are_told_by_what_a_step_cannot_do_without(
    table: dict[Any, Any], expected: StepTimes | None
) -> None:
    """An optimizer's step counts, else its wrapper's, else the backward pass; a schedule's never."""
    assert expected == reading_of(pstats_bytes(table)).steps


def test_two_optimizers_of_one_loop_are_one_step() -> None:
    """The optimizer that steps most often sets the pace."""
    other = (f"{SITE}/torch/optim/sgd.py", 60, "step")
    steps = reading_of(pstats_bytes({ADAM: row(4), other: row(2)})).steps
    assert StepTimes(count=4, sign="optimizer.step") == steps


def test_a_relative_script_among_absolute_libraries_is_own() -> None:
    """`python -m cProfile src/train.py` names the script as it was typed."""
    table = {("src/train.py", 1, "<module>"): row(), (f"{SITE}/torch/nn/init.py", 2, "fill"): row()}
    assert ["own", "library"] == [one.kind for one in reading_of(pstats_bytes(table)).functions]


def test_relative_names_alone_are_perfkits_portable_form() -> None:
    """Where every file is relative, a folder that the project does not have is a library's."""
    table = {("mine/train.py", 1, "main"): row(), ("torch/nn/init.py", 2, "fill"): row()}
    assert ["library", "library"] == [one.kind for one in reading_of(pstats_bytes(table)).functions]
