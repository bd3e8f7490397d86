"""The difference of two profiles is rendered as a page and as markdown."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from perfkit.model.differences import Amount, Difference, Part, Section
from perfkit.report.explain.markdown import difference_markdown
from perfkit.report.explain.page import difference_page

HOSTILE = "<script>alert(1)</script>|`x`"
# Tags that HTML never closes.
VOID = frozenset({"meta", "br"})


class Outline(HTMLParser):
    """Follows a page: which tags are open, which links and sources it names, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember a tag and what it loads."""
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost tag, which must be this one."""
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.words.append(data)


@pytest.fixture
def found() -> Difference:
    """Return a difference with a hostile name, a renamed function, a callee and a phase that went."""
    slow = Part(
        name=HOSTILE,
        kind="own code",
        place="train.py:3",
        was="old_name  train.py:1",
        amount=Amount(base_s=0.01, head_s=0.04, base_calls=1, head_calls=2),
        through=(Part(name="torch.dist", kind="library", amount=Amount(base_s=0.005, head_s=0.03)),),
    )
    gone = Part(name="data wait", kind="phase", amount=Amount(base_s=0.02, head_s=0.0))
    whole = Amount(base_s=0.03, head_s=0.04)
    return Difference(
        base="before",
        head="after",
        unit="step",
        whole=whole,
        sections=(Section(title="functions", whole=whole, parts=(slow, gone)),),
        findings=("a step takes longer",),
        warnings=("2 steps against 50",),
    )


def test_the_page_is_whole_and_needs_no_other_file(found: Difference) -> None:
    """Every tag is closed, and nothing is loaded from anywhere."""
    outline = Outline()
    outline.feed(difference_page(found))

    assert [] == outline.open
    assert [] == outline.links
    assert "script" not in outline.tags


def test_the_page_says_what_moved(found: Difference) -> None:
    """Sentences, both sides' bars, parts with their times and what they were called before."""
    outline = Outline()
    outline.feed(difference_page(found))
    text = " ".join(" ".join(outline.words).split())

    for said in ("a step takes longer", "2 steps against 50", HOSTILE, "was old_name train.py:1", "+30.0 ms"):
        assert said in text
    assert "through torch.dist" in text


def test_what_no_part_explains_has_a_row(found: Difference) -> None:
    """The page and the table say what the parts lack, as the terminal does, and else say nothing."""
    (section,) = found.sections
    whole = replace(section.whole, head_s=0.05)
    lacking = replace(found, sections=(replace(section, whole=whole),))
    outline = Outline()
    outline.feed(difference_page(lacking))

    assert "remainder: what no part explains +10.0 ms all" in " ".join(" ".join(outline.words).split())
    assert "| remainder: what no part explains |  |  | +10.0 ms |  |" in difference_markdown(lacking)
    assert "remainder" not in difference_page(found) + difference_markdown(found)


def test_bars_are_of_one_scale(found: Difference) -> None:
    """The longer side fills its row, the other has its share of it, and pieces fill each bar."""
    page = difference_page(found)

    assert ["75.00", "100.00"] == re.findall(r'class="bar" style="width: ([\d.]+)%', page)
    base, head = page.split('class="bar"')[1:]
    assert pytest.approx(100, abs=0.1) == sum(map(float, re.findall(r'<span style="width: ([\d.]+)%', base)))
    assert pytest.approx(100, abs=0.1) == sum(map(float, re.findall(r'<span style="width: ([\d.]+)%', head)))


def test_markdown_has_a_table_a_section(found: Difference) -> None:
    """Names cannot break the table, and each row has as many cells as its head."""
    text = difference_markdown(found)
    rows = [line for line in text.splitlines() if line.startswith("|")]

    assert "<script>" not in text.replace(r"\<script>", "")
    assert {6} == {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert "- a step takes longer" in text
    assert "| **all** | 30.0 ms | 40.0 ms | +10.0 ms |  |" in rows
