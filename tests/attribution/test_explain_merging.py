"""Profiles of several processes can be merged into one."""

from __future__ import annotations

import marshal
import pstats
import re
from pathlib import Path
from typing import Any

import pytest
from explained import TickClock, call, function, read_table, reading

from perfkit.model.readings import Reading
from perfkit.profiling.diff.difference import merged


def countdown(number: int) -> int:
    """Call itself until nothing is left."""
    return countdown(number - 1) if number else 0


def table(*, times: int, escapes: bool) -> dict[Any, Any]:
    """Return what cProfile makes of one worker's work, which may be more than the other's."""
    clock = TickClock()
    take = clock.spend(3)

    def work() -> None:
        for _ in range(times):
            take()
            countdown(times)
        if escapes:
            re.escape("a.b")

    return clock.profile(work)


def told(found: Reading) -> dict[tuple[str, int, str], tuple[float, ...]]:
    """Return of each function its calls and times."""
    return {
        (one.file, one.line, one.function): (one.calls, one.primitive_calls, one.own_s, one.cumulative_s)
        for one in found.functions
    }


def edges(found: Reading) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return of each caller and callee the calls and times."""
    return {
        (found.functions[made.caller].function, one.function): (made.calls, made.own_s, made.cumulative_s)
        for one in found.functions
        for made in one.callers
    }


def test_two_profiles_add_up_as_in_pstats(tmp_path: Path) -> None:
    """Functions and their callers, also those that one process alone has, are what pstats.add makes."""
    tables = [table(times=2, escapes=False), table(times=5, escapes=True)]
    files = [tmp_path / "0.stat", tmp_path / "1.stat"]
    for file, one in zip(files, tables, strict=True):
        file.write_bytes(marshal.dumps(one))
    both: Any = pstats.Stats(*map(str, files))
    wanted = read_table(both.stats)

    found = merged([read_table(one) for one in tables], "both")

    assert set(told(wanted)) == set(told(found))
    for key, numbers in told(wanted).items():
        assert numbers == pytest.approx(told(found)[key])
    assert set(edges(wanted)) == set(edges(found))
    for pair, numbers in edges(wanted).items():
        assert numbers == pytest.approx(edges(found)[pair])
    assert (wanted.calls, "both") == (found.calls, found.name)
    assert wanted.total_s == pytest.approx(found.total_s)


def test_callers_are_found_where_they_are_now() -> None:
    """Functions stand in another order in each profile; a call still names its caller."""
    first = reading(function("a"), function("g", call(0, 1.0)))
    second = reading(function("g", call(1, 2.0, calls=3)), function("b"), function("a"))
    found = merged([first, second], "both")
    assert {("a", "g"): (1, 1.0, 1.0), ("b", "g"): (3, 2.0, 2.0)} == edges(found)


def test_functions_of_one_name_are_kept_apart_by_their_line() -> None:
    """Processes of one code have equal lines, so nothing is mixed up."""
    found = merged([reading(function("<lambda>", line=1), function("<lambda>", line=2))] * 2, "both")
    assert [(1, 2), (2, 2)] == [(one.line, one.calls) for one in found.functions]


def test_one_profile_stays_as_it_is() -> None:
    """Added to nothing, a profile says what it said."""
    alone = read_table(table(times=3, escapes=True))
    found = merged([alone], "alone")
    assert (alone.functions, alone.calls) == (found.functions, found.calls)
    assert alone.total_s == pytest.approx(found.total_s)
