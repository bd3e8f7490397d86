"""Only the marked part of a file is rewritten, and the rest, which people write, is kept."""

from __future__ import annotations

import pytest

from perfkit.errors import UsageError
from perfkit.report.markers import replace_between_markers

BEGIN = "<!-- perfkit:log begin (written by perfkit; notes outside the markers are kept) -->"
END = "<!-- perfkit:log end -->"


def test_an_empty_text_gets_markers_and_block() -> None:
    assert f"{BEGIN}\n\nrows\n\n{END}\n" == replace_between_markers("", "rows\n", name="log")


def test_notes_around_the_markers_stay() -> None:
    before = replace_between_markers("# Title\n\nmy note\n", "old", name="log") + "\nafter\n"
    assert before.replace("old", "new") == replace_between_markers(before, "new", name="log")


def test_writing_twice_changes_nothing() -> None:
    once = replace_between_markers("# Title\n", "rows", name="log")
    assert once == replace_between_markers(once, "rows", name="log")


def test_begin_marker_without_its_note_is_known() -> None:
    text = f"<!-- perfkit:log begin -->\nold\n{END}\n"
    assert f"{BEGIN}\n\nnew\n\n{END}\n" == replace_between_markers(text, "new", name="log")


def test_other_names_are_other_blocks() -> None:
    other = replace_between_markers("", "profiles", name="profiles")
    assert replace_between_markers(other, "rows", name="log").startswith(other)


def test_backslashes_in_the_block_are_text() -> None:
    once = replace_between_markers("", r"a\1b\g<0>", name="log")
    assert r"a\1b\g<0>" in replace_between_markers(once, r"a\1b\g<0>", name="log")


@pytest.mark.parametrize(
    "text",
    [
        f"{BEGIN}\nrows\n",
        f"rows\n{END}\n",
        f"{BEGIN}\n{BEGIN}\nrows\n{END}\n",
        f"{BEGIN}\nrows\n{END}\n{END}\n",
        f"{END}\nrows\n{BEGIN}\n",
    ],
)
def test_damaged_markers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="perfkit:log begin"):
        replace_between_markers(text, "new", name="log")
