"""The difference of two profiles is shown in a terminal, as markdown, and as a page with flames."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import browser_programs, opened_browser
from rendered import rendered
from rich.cells import cell_len

from perfkit.commands.show import read_profiles
from perfkit.config import load_project
from perfkit.model import Side
from perfkit.model.profiles import Amount, Difference, FlameFrame, Part, Section
from perfkit.model.readings import Call, FunctionTime, Reading, StepTimes
from perfkit.profiling.diff.difference import explain
from perfkit.profiling.diff.flames import flames_of
from perfkit.report.explain import difference_markdown, difference_page, difference_view, slower_callee

PROFILES = Path(__file__).parents[2] / "profiles"
LONG = "a_function_with_a_name_" * 8
HOSTILE = "<script>alert(1)</script>|`x`\"'&"
SIDES: tuple[Side, Side] = ("base", "head")
# Percent of a graph's width: a millionth of the whole.
CLOSE = 1e-4


def moved(by_s: float, base_s: float = 1.0, calls: float | None = 1.0) -> Amount:
    return Amount(base_s=base_s, head_s=base_s + by_s, base_calls=calls, head_calls=calls)


def own(name: str, by_s: float, *through: Part, base_s: float = 1.0) -> Part:
    amount = moved(by_s, base_s)
    return Part(name=name, kind="own code", place="src/train.py:7", amount=amount, through=through)


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
    return rendered(difference_view(found))


def rows(found: Difference) -> list[str]:
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
    assert max(cell_len(line) for line in shown(found).splitlines()) <= 80
    cut = [row for row in rows(found) if row.startswith("a_function") and row.endswith(" 1")]
    assert all(row.endswith("… 1.00 s 4.00 s +3.00 s 1") for row in cut)


@pytest.mark.parametrize(
    ("missing_s", "base_s", "row"),
    [(0.5, 1.0, "+500 ms"), (-0.5, 1.0, "-500 ms"), (0.0, 1.0, None), (1e-9, 0.0, None)],
)
def test_the_remainder_has_a_row(missing_s: float, base_s: float, row: str | None) -> None:
    found = difference(section(own("f", 1.0, base_s=base_s), missing_s=missing_s))
    name = "remainder: what no part explains"
    assert (f"{name} {row}" in rows(found)) == (row is not None)
    for text in (shown(found), difference_markdown(found), difference_page(found)):
        assert (name in text) == (row is not None)


def test_a_function_has_a_row_in_itself_and_the_whole_is_not_repeated() -> None:
    callee = Part(name="cdist", kind="library", amount=moved(0.3, 0.2))
    lines = rows(difference(section(own("accuracy", 0.5, callee))))

    assert [["accuracy", "1.00"], ["through", "200"], ["in", "800"]] == [
        [line.split()[0], re.findall(r"\d[\d.]*(?= m?s)", line)[0]] for line in lines[-3:]
    ]


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
    parts = Section(title="functions", whole=whole, parts=(slow, gone))
    return replace(difference(parts, findings=("a step takes longer",), warnings=("2 steps",)), whole=whole)


def test_markdown_has_a_table_a_section(found: Difference) -> None:
    text = difference_markdown(found)
    table = [line for line in text.splitlines() if line.startswith("|")]

    assert "<script>" not in text.replace(r"\<script>", "")
    assert {6} == {len(re.findall(r"(?<!\\)\|", row)) for row in table}
    assert "- a step takes longer" in text
    assert "| **all** | 30.0 ms | 40.0 ms | +10.0 ms |  |" in table


@dataclass(frozen=True)
class Box:
    """A frame as the page draws it, in percent of the width and pixels from the top."""

    left: float
    width: float
    top: int


class Page(HTMLParser):
    """A page as a browser reads it: open tags, links, words, and each graph's boxes and details."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.boxes: list[list[Box]] = []
        self.kinds: list[list[str]] = []
        self.details: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag, what it loads, and a frame of a graph."""
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.links += [value for name, value in given.items() if name in ("src", "href")]
        if tag not in ("meta", "rect"):
            self.open.append(tag)
        kind = given.get("class", "").split()
        if kind == ["flames"]:
            for graphs in (self.boxes, self.kinds, self.details):
                graphs.append([])
        elif kind[:1] == ["frame"]:
            self.kinds[-1].append(kind[1])
        elif tag == "svg":
            left, width = (float(given[name].removesuffix("%")) for name in ("x", "width"))
            self.boxes[-1].append(Box(left, width, int(given["y"])))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost tag, which must be this one."""
        if tag != "rect":
            assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        """Keep the text, and that of a frame's title."""
        self.words.append(data)
        if self.open[-2:] == ["g", "title"]:
            self.details[-1].append(data)

    @property
    def text(self) -> str:
        """All words, without their runs of blanks."""
        return " ".join(" ".join(self.words).split())

    def named(self, graph: int) -> dict[str, str]:
        """Return the kind of each frame of a graph by its name."""
        names = [one.partition("\n")[0] for one in self.details[graph]]
        return dict(zip(names, self.kinds[graph], strict=True))


def test_the_page_is_whole_and_needs_no_other_file(found: Difference) -> None:
    page = Page(difference_page(found))

    assert ([], []) == (page.open, page.links)
    assert not {"script", "flames"} & page.tags
    for text in ("a step takes longer", "2 steps", HOSTILE, "was old_name train.py:1", "+30.0 ms"):
        assert text in page.text
    assert "through torch.dist" in page.text


def _function(name: str, own_s: float, all_s: float, caller: int | None, file: str) -> FunctionTime:
    calls = () if caller is None else (Call(caller=caller, calls=1, own_s=own_s, cumulative_s=all_s),)
    return FunctionTime(
        file=file,
        line=1,
        function=name,
        kind="own",
        calls=1,
        primitive_calls=1,
        own_s=own_s,
        cumulative_s=all_s,
        callers=calls,
    )


def _reading(name: str, functions: Sequence[FunctionTime]) -> Reading:
    return Reading(
        name=name,
        origin="cProfile",
        total_s=sum(one.own_s for one in functions),
        steps=StepTimes(count=2, sign="optimizer.step"),
        functions=tuple(functions),
    )


Pair = tuple[Reading, Reading]


@pytest.fixture
def small() -> Pair:
    """Return two profiles of two steps: one function grew, one shrank, one went, one came."""
    base = _reading(
        "before",
        [
            _function("main", 1.0, 10.0, None, "train.py"),
            _function("load", 4.0, 4.0, 0, "data.py"),
            _function("step", 3.0, 5.0, 0, "train.py"),
            _function("log_everything", 2.0, 2.0, 2, "log.py"),
        ],
    )
    head = _reading(
        "after",
        [
            _function("main", 1.0, 9.0, None, "train.py"),
            _function("load", 5.0, 5.0, 0, "data.py"),
            _function("step", 2.0, 3.0, 0, "train.py"),
            _function(HOSTILE, 1.0, 1.0, 2, "new.py"),
        ],
    )
    return base, head


@pytest.fixture(scope="module")
def real() -> Pair:
    """Return two real profiles, of which the second one lacks calls of the first."""
    files = [PROFILES / "tensor_losses.stat", PROFILES / "whole_tensors.stat"]
    base, head = read_profiles(files, project=load_project(PROFILES.parent))
    return base, head


def _tree(pair: Pair) -> FlameFrame:
    root = flames_of(*pair)
    assert root is not None
    return root


def _all(frame: FlameFrame) -> Iterator[FlameFrame]:
    yield frame
    for inner in frame.inner:
        yield from _all(inner)


def _page(pair: Pair, widths: Side = "head") -> str:
    return difference_page(explain(*pair), flames=_tree(pair), widths=widths)


def _of_side(amount: Amount, side: Side) -> float:
    return amount.base_s if side == "base" else amount.head_s


def _own_widths(boxes: Sequence[Box]) -> list[float]:
    """Return of each box the width that no box right below it covers."""
    tops = sorted({box.top for box in boxes})
    row_px = tops[1] - tops[0] if len(tops) > 1 else 0

    def is_inside(one: Box, box: Box) -> bool:
        right = box.left + box.width + CLOSE
        return one.top == box.top + row_px and box.left - CLOSE <= one.left and one.left + one.width <= right

    return [box.width - math.fsum(one.width for one in boxes if is_inside(one, box)) for box in boxes]


@pytest.mark.parametrize("widths", SIDES)
def test_widths_add_up_to_the_whole(real: Pair, widths: Side) -> None:
    root, (main, *others) = _tree(real), Page(_page(real, widths)).boxes
    other: Side = "base" if widths == "head" else "head"

    assert Box(0.0, 100.0, main[0].top) == main[0]
    own_widths = _own_widths(main)
    assert min(own_widths) > -CLOSE
    assert pytest.approx(100.0, abs=CLOSE) == math.fsum(own_widths)
    assert pytest.approx(_of_side(explain(*real).whole, widths), rel=1e-6) == _of_side(root.amount, widths)
    assert all(
        0 <= box.left <= box.left + box.width <= 100 + CLOSE for boxes in (main, *others) for box in boxes
    )
    scale_s = _of_side(root.amount, widths) / 100
    lacking_s = math.fsum(one * scale_s for boxes in others for one in _own_widths(boxes))
    kept_s = math.fsum(
        _of_side(frame.own, other) for frame in _all(root) if _of_side(frame.amount, widths) > 0
    )
    assert pytest.approx(_of_side(root.amount, other), rel=1e-6) == kept_s + lacking_s


def test_differences_add_up_to_the_difference_of_totals(real: Pair) -> None:
    root = _tree(real)

    for frame in _all(root):
        for side in SIDES:
            parts = [_of_side(frame.own, side), *(_of_side(one.amount, side) for one in frame.inner)]
            assert pytest.approx(_of_side(frame.amount, side), abs=1e-12) == math.fsum(parts)
    moved_s = math.fsum(frame.own.moved_s for frame in _all(root))
    assert pytest.approx(explain(*real).whole.moved_s, rel=1e-6) == moved_s


def test_a_renamed_function_is_one_frame(small: Pair) -> None:
    base, _ = small
    renamed = [
        replace(one, function="log_little") if one.function == "log_everything" else one
        for one in base.functions
    ]

    page = Page(_page((base, _reading("after", renamed))))

    assert 1 == len(page.boxes)
    assert {"same"} == {*page.kinds[0]}
    assert "log_little  (was log_everything  log.py)" in page.named(0)


def test_what_is_too_small_belongs_to_its_caller(small: Pair) -> None:
    base, head = (
        _reading(one.name, [*one.functions, _function("tiny", 0.01, 0.01, 1, "tiny.py")]) for one in small
    )

    frames = {frame.name: frame for frame in _all(_tree((base, head)))}

    assert "tiny" not in frames
    assert pytest.approx((2.005, 2.505)) == (frames["load"].own.base_s, frames["load"].own.head_s)


def test_the_graph_needs_no_script_and_escapes_names(small: Pair) -> None:
    source = _page(small)
    page = Page(source)

    assert "script" not in page.tags
    assert HOSTILE in " ".join(page.words)
    assert "default-src 'none'" in source
    assert not re.search(r"(?:src|href|url)\s*[=(]", source)
    assert source.count('tabindex="0"') == sum(map(len, page.boxes))
    assert source.count("<title>") == 1 + sum(map(len, page.boxes))


def test_a_profile_without_calls_has_no_graph(small: Pair) -> None:
    trace = Reading(name="trace.json", origin="torch trace", total_s=1.0)

    assert flames_of(trace, trace) is None
    assert [] == Page(difference_page(explain(*small))).boxes


@pytest.mark.slow
@pytest.mark.skipif(browser_programs() is None, reason="chromium and chromedriver are not installed")
def test_a_browser_shows_it_on_wide_and_narrow_screens(real: Pair, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(_page(real), encoding="utf-8")
    details = (
        "return [...document.querySelectorAll('.details')]"
        ".filter(one => getComputedStyle(one).display != 'none').length"
    )

    with opened_browser() as page:
        for width in (1200, 600):
            page.size(width, 900)
            page.open(file)
            assert [] == page.errors()
            assert page.run("return document.documentElement.scrollWidth") <= width
            assert 0 == page.run(details)
            page.run("document.querySelector('.graph summary').focus()")
            page.press("\ue004")
            assert "all" == page.run(
                "return document.activeElement.querySelector('title').textContent.split('\\n')[0]"
            )
            assert 1 == page.run(details)
            first, whole = page.run(
                "const of = (name) => document.querySelector(name).getBoundingClientRect().width;"
                " return [of('.frame .box'), of('svg.flames')]"
            )
            assert pytest.approx(whole, abs=0.5) == first


def test_what_is_called_more_often_made_a_function_slower() -> None:
    """A profile on a busy machine has other callees move by chance, up or down."""
    gone = Part(name="gone", kind="library", amount=moved(-0.6))
    chance = Part(name="chance", kind="library", amount=moved(0.5))
    more = Amount(base_s=0.0, head_s=0.4, base_calls=0.0, head_calls=1.0)
    new = Part(name="new", kind="library", amount=more)
    assert "partly in new" == slower_callee(own("f", 1.0, gone, chance, new))
    assert "in chance" == slower_callee(own("f", 1.0, gone, chance))
    assert slower_callee(own("f", 1.0, gone)) is None
