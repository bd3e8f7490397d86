"""Which functions moved: own time on one side against the other."""

from __future__ import annotations

from perfkit.jobs.gates.explaining import moved_functions
from perfkit.measure.lockstep.profiled import OwnTime
from perfkit.verdict.model import MovedFunction


def _own(function: str, own_s: float, *, file: str = "a.py", line: int = 1) -> OwnTime:
    return OwnTime(file=file, line=line, function=function, own_s=own_s)


def test_what_moved_most_comes_first() -> None:
    """Slower and faster functions stand in the order of how far they moved."""
    moved = moved_functions(
        {
            "base": [_own("same", 5.0), _own("faster", 4.0), _own("slower", 1.0)],
            "head": [_own("same", 5.0), _own("faster", 2.0), _own("slower", 4.0)],
        },
        at_least_s=0.5,
    )

    assert [("slower", 1.0, 4.0), ("faster", 4.0, 2.0)] == [
        (one.function, one.base_s, one.head_s) for one in moved
    ]


def test_a_function_is_known_wherever_its_line_has_moved_to() -> None:
    """Its line is the one on head."""
    (moved,) = moved_functions(
        {"base": [_own("f", 1.0, line=10)], "head": [_own("f", 2.0, line=30)]}, at_least_s=0.5
    )

    assert MovedFunction(function="f", file="a.py", line=30, base_s=1.0, head_s=2.0) == moved


def test_a_function_of_one_side_only_took_no_time_on_the_other() -> None:
    """What was added or removed moved by all of its time."""
    moved = moved_functions({"base": [_own("old", 2.0)], "head": [_own("new", 3.0)]}, at_least_s=0.5)

    assert [("new", 0.0, 3.0), ("old", 2.0, 0.0)] == [(one.function, one.base_s, one.head_s) for one in moved]


def test_functions_of_one_name_in_a_file_are_told_together() -> None:
    """Two lambdas of a file are one entry; those of two files are two."""
    moved = moved_functions(
        {
            "base": [],
            "head": [
                _own("<lambda>", 1.0, line=3),
                _own("<lambda>", 2.0, line=9),
                _own("<lambda>", 1.0, file="b.py"),
            ],
        },
        at_least_s=0.5,
    )

    assert [("a.py", 3.0), ("b.py", 1.0)] == [(one.file, one.head_s) for one in moved]


def test_the_profilers_own_noise_is_left_out() -> None:
    """What moved less than the least worth telling is not told, and no more than five are."""
    small = {"base": [_own("f", 1.0)], "head": [_own("f", 1.4)]}
    many = {"base": [], "head": [_own(f"f{place}", 1.0 + place) for place in range(8)]}

    assert () == moved_functions({"base": small["base"], "head": small["head"]}, at_least_s=0.5)
    told = moved_functions({"base": many["base"], "head": many["head"]}, at_least_s=0.5)
    assert ["f7", "f6", "f5", "f4", "f3"] == [one.function for one in told]


def test_built_in_functions_are_called_so() -> None:
    """CProfile's "~" is nothing a reader knows."""
    (moved,) = moved_functions({"base": [], "head": [_own("<sum>", 1.0, file="~", line=0)]}, at_least_s=0.5)

    assert "built-in" == moved.file
