"""The flame graph of a difference: what it shows adds up, and everyone can read it without a script."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import browser_programs, opened_browser

from perfkit.commands.show import read_profiles
from perfkit.config import load_project
from perfkit.model import Side
from perfkit.model.differences import FlameFrame
from perfkit.model.readings import Call, FunctionTime, Reading, StepTimes
from perfkit.profiling.diff.difference import explain
from perfkit.profiling.diff.flames import flames_of
from perfkit.report.explain.flames import Graph, drawn_flames
from perfkit.report.explain.page import difference_page

PROFILES = Path(__file__).parents[2] / "profiles"
HOSTILE = "<script>alert(1)</script>\"'&"
SIDES: tuple[Side, Side] = ("base", "head")
# Percent of a graph's width: a millionth of the whole.
CLOSE = 1e-4


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


def _reading(name: str, functions: Sequence[FunctionTime], steps: int = 2) -> Reading:
    return Reading(
        name=name,
        origin="cProfile",
        total_s=sum(one.own_s for one in functions),
        steps=StepTimes(count=steps, sign="optimizer.step"),
        functions=tuple(functions),
    )


@pytest.fixture
def small() -> tuple[Reading, Reading]:
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
def real() -> tuple[Reading, Reading]:
    """Return two real profiles, of which the second one lacks calls of the first."""
    files = [PROFILES / "tensor_losses.stat", PROFILES / "whole_tensors.stat"]
    base, head = read_profiles(files, project=load_project(PROFILES.parent))
    return base, head


def _tree(pair: tuple[Reading, Reading]) -> FlameFrame:
    root = flames_of(*pair)
    assert root is not None
    return root


def _all(frame: FlameFrame) -> Iterator[FlameFrame]:
    yield frame
    for inner in frame.inner:
        yield from _all(inner)


def _page(pair: tuple[Reading, Reading], widths: Side = "head") -> str:
    return difference_page(explain(*pair), flames=_tree(pair), widths=widths)


def _kinds(graph: Graph) -> dict[str, str]:
    return {one.told[0]: one.kind for one in graph.frames}


@dataclass(frozen=True)
class Box:
    """A frame as the page draws it, in percent of the width and pixels from the top."""

    left: float
    width: float
    top: int


class Graphs(HTMLParser):
    """Reads the boxes of each graph from a page, its tags and its texts."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes: list[list[Box]] = []
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a graph, or a box in it."""
        self.tags.add(tag)
        given = {name: value or "" for name, value in attrs}
        if tag == "svg" and given.get("class") == "flames":
            self.boxes.append([])
        elif tag == "svg":
            left, width = (float(given[name].removesuffix("%")) for name in ("x", "width"))
            self.boxes[-1].append(Box(left, width, int(given["y"])))

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.words.append(data)


def _graphs(page: str) -> Graphs:
    found = Graphs()
    found.feed(page)
    return found


def _own_widths(boxes: Sequence[Box]) -> list[float]:
    """Return of each box the width that no box right below it covers."""
    rows = sorted({box.top for box in boxes})
    row_px = rows[1] - rows[0] if len(rows) > 1 else 0
    own = []
    for box in boxes:
        below = [
            one
            for one in boxes
            if one.top == box.top + row_px
            and box.left - CLOSE <= one.left
            and one.left + one.width <= box.left + box.width + CLOSE
        ]
        own.append(box.width - math.fsum(one.width for one in below))
    return own


@pytest.mark.parametrize("widths", SIDES)
def test_widths_add_up_to_the_whole(real: tuple[Reading, Reading], widths: Side) -> None:
    """The outermost frame is all of a step, no frame outgrows its caller, and own widths are the whole."""
    main, *others = _graphs(_page(real, widths)).boxes

    assert Box(0.0, 100.0, main[0].top) == main[0]
    own = _own_widths(main)
    assert min(own) > -CLOSE
    assert pytest.approx(100.0, abs=CLOSE) == math.fsum(own)
    whole_s = explain(*real).whole
    seconds = whole_s.base_s if widths == "base" else whole_s.head_s
    root = _tree(real).amount
    assert pytest.approx(seconds, rel=1e-6) == (root.base_s if widths == "base" else root.head_s)
    assert all(
        0 <= box.left <= box.left + box.width <= 100 + CLOSE for boxes in (main, *others) for box in boxes
    )


def test_differences_add_up_to_the_difference_of_totals(real: tuple[Reading, Reading]) -> None:
    """Each frame is itself and what it called, on both sides; own differences are that of the totals."""
    root = _tree(real)

    for frame in _all(root):
        for side in ("base_s", "head_s"):
            parts = [getattr(frame.own, side), *(getattr(one.amount, side) for one in frame.inner)]
            assert pytest.approx(getattr(frame.amount, side), abs=1e-12) == math.fsum(parts)
    moved_s = math.fsum(frame.own.moved_s for frame in _all(root))
    assert pytest.approx(explain(*real).whole.moved_s, rel=1e-6) == moved_s


@pytest.mark.parametrize("widths", SIDES)
def test_both_graphs_together_make_the_difference(real: tuple[Reading, Reading], widths: Side) -> None:
    """The first graph's width is one total; less what moved in it and in the second one, it is the other."""
    root = _tree(real)
    graphs = _graphs(_page(real, widths)).boxes
    other: Side = "base" if widths == "head" else "head"
    whole = {"base": root.amount.base_s, "head": root.amount.head_s}
    scale_s = whole[widths] / 100

    lacking_s = math.fsum(own * scale_s for own in _own_widths(graphs[1])) if graphs[1:] else 0.0
    own = [
        (frame.own.base_s, frame.own.head_s)
        for frame in _all(root)
        if (frame.amount.head_s if widths == "head" else frame.amount.base_s) > 0
    ]
    kept_s = math.fsum(base_s if other == "base" else head_s for base_s, head_s in own)
    assert pytest.approx(whole[other], rel=1e-6) == kept_s + lacking_s


def test_frames_say_in_signs_and_words_what_moved(small: tuple[Reading, Reading]) -> None:
    """Slower, faster, new and gone are told apart by sign and word; the parts of the sum have their signs."""
    flames = drawn_flames(_tree(small), unit="step", widths="head")

    main, gone = flames.graphs
    assert {"all": "shrank", "main": "shrank", "load": "grew", "step": "shrank", HOSTILE: "new"} == _kinds(
        main
    )
    assert {"log_everything": "gone"} == _kinds(gone)
    assert [
        "+500 ms in 1 frame slower",
        "+500 ms in 1 frame only in head",
        "-500 ms in 1 frame faster",
        "-1.00 s in 1 frame only in base",
    ] == [share.text for share in flames.shares]
    assert "-500 ms" == flames.whole.text
    load = next(one for one in main.frames if one.told[0] == "load")
    assert "+ load  +500 ms" == load.label
    assert (
        "load",
        "data.py:1  called by all → main",
        "base 2.00 s → head 2.50 s: +500 ms, slower; 55.6 % of head",
        "in itself: base 2.00 s → head 2.50 s: +500 ms",
    ) == load.told
    assert "only in base: 1.00 s a step that head does not spend" == gone.title


def test_widths_of_base_show_what_head_has_besides(small: tuple[Reading, Reading]) -> None:
    """What vanished has its width in the first graph then, and what is new a graph of its own."""
    main, new = drawn_flames(_tree(small), unit="step", widths="base").graphs

    assert "gone" == _kinds(main)["log_everything"]
    assert {HOSTILE: "new"} == _kinds(new)
    assert "100.000000000" == main.frames[0].width


def test_a_renamed_function_is_one_frame(small: tuple[Reading, Reading]) -> None:
    """It is neither gone nor new, and says what it was called before."""
    base, _ = small
    renamed = [
        _function(
            "log_little" if one.function == "log_everything" else one.function,
            one.own_s,
            one.cumulative_s,
            one.callers[0].caller if one.callers else None,
            one.file,
        )
        for one in base.functions
    ]

    flames = drawn_flames(_tree((base, _reading("after", renamed))), unit="step", widths="head")

    assert 1 == len(flames.graphs)
    assert {"same"} == {one.kind for one in flames.graphs[0].frames}
    assert "log_little  (was log_everything  log.py)" in [one.told[0] for one in flames.graphs[0].frames]


def test_what_is_too_small_belongs_to_its_caller(small: tuple[Reading, Reading]) -> None:
    """A frame that nobody could see is not drawn, and its time is its caller's own."""
    base, head = (
        _reading(one.name, [*one.functions, _function("tiny", 0.01, 0.01, 1, "tiny.py")]) for one in small
    )

    root = _tree((base, head))

    assert "tiny" not in [frame.name for frame in _all(root)]
    load = next(frame for frame in _all(root) if frame.name == "load")
    assert pytest.approx((2.005, 2.505)) == (load.own.base_s, load.own.head_s)


def test_the_page_needs_no_script_and_escapes_names(small: tuple[Reading, Reading]) -> None:
    """A hostile name is text, in the frame, in its tooltip and in what is told; frames can have the focus."""
    page = _page(small)
    found = _graphs(page)

    assert "script" not in found.tags
    assert HOSTILE in " ".join(found.words)
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href|url)\s*[=(]", page)
    assert page.count('tabindex="0"') == sum(map(len, found.boxes))
    assert page.count("<title>") == 1 + sum(map(len, found.boxes))


def test_a_profile_without_calls_has_no_graph(small: tuple[Reading, Reading]) -> None:
    """A trace does not say who called whom in this form, so its page has no graph."""
    trace = Reading(name="trace.json", origin="torch trace", total_s=1.0)

    assert flames_of(trace, trace) is None
    assert "flames" not in _graphs(difference_page(explain(*small))).tags
    assert [] == _graphs(difference_page(explain(*small))).boxes


@pytest.mark.skipif(browser_programs() is None, reason="chromium and chromedriver are not installed")
def test_a_browser_shows_it_on_wide_and_narrow_screens(real: tuple[Reading, Reading], tmp_path: Path) -> None:
    """Nothing is refused by the page's policy; Tab reaches a frame, which tells of itself; pixels add up."""
    file = tmp_path / "page.html"
    file.write_text(_page(real), encoding="utf-8")
    told = (
        "return [...document.querySelectorAll('.told')]"
        ".filter(one => getComputedStyle(one).display != 'none').length"
    )

    with opened_browser() as page:
        for width in (1200, 600):
            page.size(width, 900)
            page.open(file)
            assert [] == page.errors()
            assert page.run("return document.documentElement.scrollWidth") <= width
            assert 0 == page.run(told)
            page.run("document.querySelector('.graph summary').focus()")
            page.press("\ue004")
            assert "all" == page.run(
                "return document.activeElement.querySelector('title').textContent.split('\\n')[0]"
            )
            assert 1 == page.run(told)
            first, whole = page.run(
                "const of = (name) => document.querySelector(name).getBoundingClientRect().width;"
                " return [of('.frame .box'), of('svg.flames')]"
            )
            assert pytest.approx(whole, abs=0.5) == first
