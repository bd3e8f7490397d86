"""A cProfile is written as text and read as entries."""

from __future__ import annotations

import cProfile
import pstats
import re
from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.profiling.passes.functions import filtered_text, full_text, load_stats, portable, read_entries
from perfkit.profiling.passes.target_code import OwnCode

HERE = Path(__file__).resolve()
OWN = OwnCode(root=HERE.parent, trees=(HERE.parent,))
SHARED_PROFILE = HERE.parents[2].parent / "shared" / "data" / "first_profile.stat"


def own_work() -> float:
    """Call a function of this file and one of a library."""
    return sum(own_part(number) for number in range(20))


def own_part(number: int) -> float:
    """Call a function of the standard library."""
    return len(re.escape(str(number)))


@pytest.fixture(scope="module")
def stats() -> pstats.Stats:
    """Return the profile of some own and some library code."""
    profiler = cProfile.Profile()
    profiler.runcall(own_work)
    return pstats.Stats(profiler)


def totals(text: str) -> str:
    """Return the line with the totals."""
    found = re.search(r"\d+ function calls.*in .* seconds", text)
    assert found is not None
    return found[0]


def test_full_text_has_all_functions(stats: pstats.Stats) -> None:
    """Own, library and built-in functions are listed, longest first."""
    text = full_text(stats, OWN)
    assert "Ordered by: cumulative time" in text
    assert "escape" in text
    assert "builtins.len" in text
    assert text.index("(own_work)") < text.index("(own_part)")


def test_filtered_text_has_own_functions_under_the_same_totals(stats: pstats.Stats) -> None:
    """The header and totals of the whole profile stay above the own functions alone."""
    text = filtered_text(stats, OWN)
    assert totals(full_text(stats, OWN)) == totals(text)
    assert "ncalls  tottime  percall  cumtime  percall filename:lineno(function)" in text
    rows = text.partition("filename:lineno(function)\n")[2].splitlines()
    assert {HERE.name} == {row.split()[5].split(":")[0] for row in rows}


def test_entries_keep_calls_and_both_times(stats: pstats.Stats) -> None:
    """An entry has the profile's own numbers, a cumulative time never below the own one."""
    entries = {entry.function: entry for entry in read_entries(stats, OWN)}
    assert 20 == entries["own_part"].calls
    assert all(entry.cumulative_s >= entry.own_s for entry in entries.values())
    assert "own" == entries["own_part"].kind
    assert "library" == entries["{built-in method builtins.sum}"].kind


def test_profile_itself_is_left_alone(stats: pstats.Stats) -> None:
    """Rendering twice gives the same text."""
    assert full_text(stats, OWN) == full_text(stats, OWN)


def test_profile_round_trips_through_a_file(stats: pstats.Stats, tmp_path: Path) -> None:
    """A saved profile has the entries of the one in memory."""
    stats.dump_stats(tmp_path / "x.stat")
    assert read_entries(stats, OWN) == read_entries(load_stats(tmp_path / "x.stat"), OWN)


def test_a_portable_profile_names_no_place_of_this_machine(stats: pstats.Stats, tmp_path: Path) -> None:
    """Files are named from the project or the library on, in callers too; calls and times stay."""
    portable(stats, OWN).dump_stats(tmp_path / "x.stat")
    saved = load_stats(tmp_path / "x.stat")

    assert str(HERE.parent).encode() not in (tmp_path / "x.stat").read_bytes()
    assert totals(full_text(stats, OWN)) == totals(full_text(saved, OWN))
    assert (HERE.name, own_part.__code__.co_firstlineno, "own_part") in vars(saved)["stats"]


def test_functions_of_one_portable_name_become_one() -> None:
    """Two copies of a library count together, callers included."""
    timing = (1, 2, 0.5, 1.0, {("/a/site-packages/x.py", 1, "g"): (1, 2, 0.5, 1.0)})
    stats = pstats.Stats()
    vars(stats)["stats"] = {(f"/{place}/site-packages/x.py", 1, "f"): timing for place in ("a", "b")}

    merged = vars(portable(stats, OWN))["stats"]

    assert {("x.py", 1, "f"): (2, 4, 1.0, 2.0, {("x.py", 1, "g"): (2, 4, 1.0, 2.0)})} == merged


@pytest.mark.parametrize("content", [b"", b"no profile", b"{\x00\x00"])
def test_damaged_profile_is_told(tmp_path: Path, content: bytes) -> None:
    """A file that is no profile ends in one line with its name."""
    (tmp_path / "x.stat").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.stat is not a cProfile"):
        load_stats(tmp_path / "x.stat")


@pytest.mark.skipif(not SHARED_PROFILE.is_file(), reason="the profile of another project is not at hand")
def test_profile_of_another_project() -> None:
    """In a real profile of two steps with worker processes, the wait for data is most of the time."""
    own = OwnCode(root=Path("/content"), trees=(Path("/content/src"),))
    entries = {entry.function: entry for entry in read_entries(load_stats(SHARED_PROFILE), own)}
    assert "wait" == entries["__next__"].kind
    assert 309.7 == pytest.approx(entries["__next__"].cumulative_s, abs=0.1)
    assert "wait" == entries["{method 'acquire' of '_thread.lock' objects}"].kind
    assert "own" == entries["distance_function"].kind
    assert 80800 == entries["distance_function"].calls
    assert "in 328.638 seconds" in filtered_text(load_stats(SHARED_PROFILE), own)
