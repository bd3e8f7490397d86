"""The difference of two profiles is rendered for a terminal."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from perfkit.model.differences import Amount, Difference, Part, Section
from perfkit.report.explain.terminal import (
    calls_text,
    difference_view,
    shown_parts,
    telling_callees,
)
from perfkit.units import signed_seconds

LONG = "a_function_with_a_name_" * 8


def moved(by_s: float, base_s: float = 1.0, calls: float | None = 1.0) -> Amount:
    """Return an amount that moved."""
    return Amount(base_s=base_s, head_s=base_s + by_s, base_calls=calls, head_calls=calls)


def own(name: str, by_s: float, *through: Part, base_s: float = 1.0) -> Part:
    """Return a function of one's own that moved."""
    return Part(
        name=name, kind="own code", place="src/train.py:7", amount=moved(by_s, base_s), through=through
    )


def section(*parts: Part, title: str = "functions", missing_s: float = 0.0) -> Section:
    """Return parts as a whole, and what the whole moved beyond them."""
    whole = Amount(
        base_s=sum(one.amount.base_s for one in parts),
        head_s=sum(one.amount.head_s for one in parts) + missing_s,
    )
    return Section(title=title, whole=whole, parts=parts)


def difference(
    *sections: Section, findings: tuple[str, ...] = (), warnings: tuple[str, ...] = ()
) -> Difference:
    """Return sections as what differs."""
    return Difference(
        base="before.stat",
        head="after.stat",
        unit="step",
        whole=moved(0.5),
        sections=sections,
        findings=findings,
        warnings=warnings,
    )


def shown(found: Difference) -> str:
    """Return what a terminal of 80 columns shows."""
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False).print(difference_view(found))
    return stream.getvalue()


def rows(found: Difference) -> list[str]:
    """Return the lines without their runs of blanks."""
    return [" ".join(line.split()) for line in shown(found).splitlines() if line.strip()]


PHASES = section(
    *(
        Part(name=name, kind="phase", amount=moved(by_s))
        for name, by_s in [("data wait", -0.5), ("forward", 0.0), ("backward", 0.3), ("residual", 0.0)]
    ),
    title="phases",
)


@pytest.mark.parametrize(
    "found",
    [
        difference(section(own(LONG, 3.0, Part(name=LONG, kind="library", amount=moved(3.0))))),
        difference(section(Part(name="f", kind="own code", was=LONG, place=LONG, amount=moved(1.0)))),
        difference(section(own("f", 1.0)), findings=(LONG, "word " * 60), warnings=("word " * 60, LONG)),
        difference(section(own("f", 1e-10, base_s=3.2e-9)), PHASES),
        Difference(base=LONG, head=LONG, unit="whole run", whole=moved(1.0), sections=(), findings=()),
    ],
    ids=["long names", "long places", "long sentences", "short times", "long files"],
)
def test_the_view_fits_80_columns(found: Difference) -> None:
    """No line is longer than a terminal is wide."""
    assert max(cell_len(line) for line in shown(found).splitlines()) <= 80


def test_a_long_name_is_cut_and_its_numbers_are_not() -> None:
    """The columns beside a name stay whole."""
    (line,) = (row for row in rows(difference(section(own(LONG, 3.0)))) if row.startswith("a_function"))
    assert line.endswith("… 1.00 s 4.00 s +3.00 s 1")


def test_files_and_sentences_stand_at_the_top() -> None:
    """What is compared in which unit, what matters most, and what to mind."""
    found = difference(section(own("f", 1.0)), findings=("it is slower",), warnings=("few steps",))
    assert ["before.stat -> after.stat, per step", "- it is slower", "- note: few steps"] == rows(found)[:3]


def test_a_long_sentence_goes_on_below_its_beginning() -> None:
    """Lines of one sentence are told apart from the next one's."""
    lines = shown(difference(findings=("word " * 30,))).splitlines()
    assert lines[2].startswith("- word")
    assert lines[3].startswith("  word")


def test_phases_stand_in_order_and_all() -> None:
    """As a step goes through them, also those that did not move."""
    assert [
        "phases base head moved calls",
        "data wait 1.00 s 500 ms -500 ms 1",
        "forward 1.00 s 1.00 s +0 s 1",
        "backward 1.00 s 1.30 s +300 ms 1",
        "residual 1.00 s 1.00 s +0 s 1",
        "all 4.00 s 3.80 s -200 ms",
    ] == rows(difference(PHASES))[1:]


def test_functions_stand_by_their_move_and_the_rest_in_a_line() -> None:
    """Ten at most, and what hardly moved in none; the rest is added up, so that nothing is missing."""
    many = section(*(own(f"f{number}", -0.1 * number) for number in range(12, 0, -1)), own("still", 1e-6))
    told = rows(difference(many))
    assert "f12 src/train.py:7 1.00 s -200 ms -1.20 s 1" == told[2]
    assert [f"f{number}" for number in range(12, 2, -1)] == [row.split()[0] for row in told[2:12]]
    assert "3 more, together 3.00 s 2.70 s -300 ms" == told[12]
    assert "all 13.0 s 5.20 s -7.80 s" == told[13]


def test_nothing_left_is_no_row() -> None:
    """A section whose parts are all shown has neither a rest nor a remainder."""
    told = rows(difference(section(own("f", 1.0))))
    assert not [row for row in told if "more, together" in row or "remainder" in row]


def test_parts_that_are_equal_are_counted_each() -> None:
    """Two that look alike are two: one that is shown does not hide one of the rest."""
    parts, rest, count = shown_parts(section(*(own("f", 1.0) for _ in range(12))))
    assert (10, 2) == (len(parts), count)
    assert (2.0, 4.0) == (rest.base_s, rest.head_s)


@pytest.mark.parametrize(("missing_s", "sign"), [(0.5, "+"), (-0.5, "-")])
def test_the_remainder_has_a_row(missing_s: float, sign: str) -> None:
    """What the whole moved beyond its parts is said, with its sign."""
    told = rows(difference(section(own("f", 1.0), missing_s=missing_s)))
    assert f"remainder: what no part explains {sign}500 ms" == told[-2]


def test_a_whole_of_no_time_has_no_remainder() -> None:
    """Nothing of nothing is missing."""
    told = rows(difference(section(own("f", 0.0, base_s=0.0))))
    assert not [row for row in told if "remainder" in row]


def test_a_remainder_of_what_is_new_has_a_row() -> None:
    """A base of no time hides nothing that came, nor shows what rounding left."""
    fresh = section(own("f", 1.0, base_s=0.0), missing_s=1e-9)
    assert not [row for row in rows(difference(fresh)) if "remainder" in row]


def test_callees_that_took_the_move_are_named_below() -> None:
    """Two at most, each a fifth of the move at least; waits have rows of their own."""
    part = own(
        "f",
        1.0,
        Part(name="lock.acquire", kind="wait", amount=moved(0.9)),
        Part(name="conv", kind="library", amount=moved(0.6)),
        Part(name="relu", kind="library", amount=moved(0.1)),
        Part(name="norm", kind="library", amount=moved(0.3)),
    )
    assert ["conv"] == [callee.name for callee in telling_callees(part)]
    told = rows(difference(section(part)))
    assert "through conv 1.00 s 1.60 s +600 ms 1" == told[3]


def test_a_part_that_did_not_move_names_no_callee() -> None:
    """Nothing took a part of nothing."""
    still = own("f", 0.0, Part(name="conv", kind="library", amount=moved(0.0)))
    assert [] == list(telling_callees(still))


def test_where_it_was_stands_beside_it() -> None:
    """A function under another name shows the old one."""
    renamed = Part(name="g", kind="own code", place="a.py:1", was="f  a.py:1", amount=moved(1.0))
    assert "g a.py:1 was f a.py:1 1.00 s 2.00 s +1.00 s 1" in rows(difference(section(renamed)))


@pytest.mark.parametrize(("by_s", "text"), [(1.5, "+1.50 s"), (-2e-3, "-2.00 ms"), (0.0, "+0 s")])
def test_a_move_has_a_sign(by_s: float, text: str) -> None:
    """Slower is plus, faster minus."""
    assert text == signed_seconds(moved(by_s, base_s=0.0 if by_s >= 0 else 1.0).moved_s)


@pytest.mark.parametrize(
    ("base", "head", "text"),
    [(2.0, 2.0, "2"), (1.0, 2.5, "1 -> 2.5"), (0.0, 3.0, "0 -> 3"), (None, 3.0, ""), (3.0, None, "")],
)
def test_calls_stand_once_where_they_are_equal(base: float | None, head: float | None, text: str) -> None:
    """Both where they differ, none where they are not known."""
    assert text == calls_text(Amount(base_s=0.0, head_s=0.0, base_calls=base, head_calls=head))


def test_a_name_with_brackets_is_no_markup() -> None:
    """What looks like rich's own marks is shown as it stands."""
    found = difference(section(own("f[bold]", 1.0), title="[red]x[/]"), findings=("[red]y[/]",))
    assert all(text in shown(found) for text in ("f[bold]", "[red]x[/]", "[red]y[/]"))
