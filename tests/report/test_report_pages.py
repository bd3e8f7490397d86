"""The pages of a history hold what the records state, escaped, in the same bytes each time."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from synthetic_history import (
    MACHINE,
    OPERATORS,
    history,
    hostile_site,
    large_site,
    lively_site,
    run_of,
    sha_of,
    step_of,
    trend,
)

from perfkit.features.site.answers import judged_of
from perfkit.features.site.pages import site_files
from perfkit.features.site.series import Series, Site, series_of, state_of
from perfkit.model.history import HistoryReport, Rise, Shift, Trend
from perfkit.report.change_log import slug_of
from perfkit.report.chart import DARK, LIGHT
from perfkit.report.history import history_verdict, ratio_text


class _Reader(HTMLParser):
    """Keeps the tags of a page with their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data)


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    return reader


def _words(page: str) -> str:
    return " ".join("".join(_read(page).texts).split())


def _named(script: str) -> dict[str, Any]:
    """Return the value that a data file gives to its name."""
    found: dict[str, Any] = json.loads(script[script.index("=") + 1 : script.rindex(";")])
    return found


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Return the files of a site on which everything occurs."""
    return dict(site_files(lively_site()))


def test_equal_records_give_equal_files(files: dict[str, str]) -> None:
    assert files == dict(site_files(lively_site()))


def test_each_page_forbids_all_but_the_sites_own_files(files: dict[str, str]) -> None:
    for name, text in files.items():
        if not name.endswith(".html"):
            continue
        tags = _read(text).tags
        policy = next(
            attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy"
        )
        handlers = [attribute for _, attrs in tags for attribute in attrs if attribute.startswith("on")]
        styles = [tag for tag, attrs in tags if tag == "style" or "style" in attrs]
        inline = [tag for tag, attrs in tags if tag == "script" and not attrs.get("src")]
        assert policy is not None
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert ([], [], []) == (handlers, styles, inline), name


def test_each_link_between_files_leads_somewhere(files: dict[str, str]) -> None:
    for name, text in files.items():
        folder = name.rpartition("/")[0]
        for _, attrs in _read(text).tags if name.endswith(".html") else []:
            place = attrs.get("src") or attrs.get("href") or ""
            if not place or place.startswith(("https:", "#")):
                continue
            path = place.partition("#")[0].removeprefix("./")
            path = path.removeprefix("../") if path.startswith("../") else f"{folder}/{path}".lstrip("/")
            assert path in files, f"{name} names {place}"


def test_a_rise_that_a_person_sees_is_not_called_steady() -> None:
    found = trend("bench.py::test_part", runs=20)
    rise = Rise(
        benchmark=found.benchmark, machine_id=MACHINE, since=found.commits[0],
        until=found.commits[-1], ratio=1.18,
    )  # fmt: skip
    page = dict(site_files(Site(project="rise", history=history([found], rises=(rise,)))))["index.html"]

    text = _words(page)
    assert '<tr data-kind="unclear"' in page
    assert "Needs attention: 1 finding" in text
    assert "rose +18.0 %, cause unclear" in text
    assert f"perfkit gate --base {found.commits[0][:10]} --head {found.commits[-1][:10]}" in text
    assert "steady" not in text


def test_what_benchmarks_do_together_needs_attention() -> None:
    trends = [trend(f"bench.py::test_{name}", runs=20) for name in "ab"]
    rises = tuple(
        Rise(
            benchmark=one.benchmark, machine_id=MACHINE, since=one.commits[15],
            until=one.commits[16], ratio=0.8 + 0.01 * number, runs=4, kind="step",
        )
        for number, one in enumerate(trends)
    )  # fmt: skip
    report = history(trends, rises=rises)
    page = dict(site_files(Site(project="together", history=report)))["index.html"]

    text = _words(page)
    assert "Needs attention: 1 finding" in text
    assert text.count("2 more runs should show") == 1
    assert f"19.5 % faster since {trends[0].commits[16][:10]}, 4 runs ago" in text
    assert "Either the machine changed or shared code did" in text
    assert "steady" not in text
    assert "2 benchmarks probably changed" in history_verdict(report)
    data = _named(
        dict(site_files(Site(project="marked", history=report)))[f"data/{slug_of(trends[0].benchmark)}.js"]
    )
    assert [16, "20.0 % faster"] == data["series"][0]["likely"]
    levels = _named(dict(site_files(Site(project="marked", history=report)))["data/levels.js"])
    assert [[16], [16]] == [one["named"] for one in levels["series"]]


def test_a_change_is_shown_where_its_runs_are() -> None:
    """Two environments by turns have a series each, of which the first has a run alone."""
    long = trend(runs=20)
    short = replace(trend(runs=1), env_ids=("0" * 12,))
    rise = Rise(
        benchmark=long.benchmark, machine_id=MACHINE, since=long.commits[15], until=long.commits[16],
        ratio=1.2, runs=4, kind="step",
    )  # fmt: skip
    files = dict(site_files(Site(project="two", history=history([short, long], rises=(rise,)))))

    levels = _named(files["data/levels.js"])
    assert [[], [16]] == sorted(one["named"] for one in levels["series"])
    data = _named(files[f"data/{slug_of(long.benchmark)}.js"])
    assert [None, 16] == [one["likely"] and one["likely"][0] for one in data["series"]]


def test_without_a_forge_commits_are_no_links() -> None:
    site = replace(lively_site(), commit_url=None, range_url=None)

    pages = "".join(text for name, text in site_files(site) if name.endswith(".html"))

    assert "https:" not in pages
    assert f'<code class="sha">{sha_of(40)[:10]}</code>' in pages


def test_hostile_names_stay_text() -> None:
    files = dict(site_files(hostile_site()))
    known = {"img", "b", "i", "u", "s", "em", "q", "mark", "ins", "h6", "v1", "machine"}

    for name, text in files.items():
        assert name.isascii()
        assert re.fullmatch(r"[\w./-]+", name)
        text.encode("utf-8")
        # Ends of lines are the templates' own.
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u2028\u202e]", text), name
        if name.endswith((".html", ".svg")):
            tags = _read(text).tags
            assert not {tag for tag, _ in tags if tag in known} - {"img"}
            assert not [attrs for tag, attrs in tags if tag == "img" and attrs.get("src") == "x"]
            assert not [attribute for _, attrs in tags for attribute in attrs if attribute.startswith("on")]
            assert not [attrs for _, attrs in tags if (attrs.get("href") or "").startswith("javascript")]
            assert "49" not in _words(text).replace("&#", "") or "7 * 7" in _words(text)
        if name.startswith("data/"):
            assert "<" not in text
            _named(text)


def test_a_document_is_linked_by_a_path_alone() -> None:
    page = dict(site_files(hostile_site()))["profiles.html"]

    assert 'href="./javascript%3Aalert%281%29/a%20b%3Fc%23d.html"' in page


def test_data_gives_back_what_was_measured(files: dict[str, str]) -> None:
    found = trend(steps={40: 1.124}, runs=60, environment_from=25)
    data = _named(files[f"data/{slug_of(found.benchmark)}.js"])
    series = next(one for one in data["series"] if one["metric"] == "time" and one["machine"] == MACHINE)
    runs = data["runs"]
    commits = _named(files["data/commits.js"])

    means = series["mean"]
    numbers = _summed(series["run"])
    shas = [commits["sha"][_summed(runs["commit"])[number]] for number in numbers]
    assert found.means == pytest.approx(means, rel=1e-5)
    assert [sd if sd is None else pytest.approx(sd, rel=1e-3) for sd in found.sds] == series["sd"]
    assert list(found.commits) == shas
    assert [int(at.timestamp()) for at in found.recorded_at] == [
        _summed(runs["time"])[one] for one in numbers
    ]
    assert [run[-8:] for run in found.run_ids] == [runs["id"][number] for number in numbers]


def test_levels_of_a_comparison_are_those_that_were_measured(files: dict[str, str]) -> None:
    found = trend("bench_dataloading.py::test_collate", level=0.0031, runs=60)
    data, commits = _named(files["data/levels.js"]), _named(files["data/commits.js"])

    (number,) = (at for at, one in enumerate(data["benchmarks"]) if one["name"] == "test_collate")
    (series,) = (one for one in data["series"] if one["benchmark"] == number)
    assert found.levels == pytest.approx([math.exp(one / 1e5) for one in _summed(series["level"])], rel=1e-5)
    assert list(found.commits) == [commits["sha"][one] for one in _summed(series["commit"])]
    assert series["noise"] == pytest.approx(math.exp(1.96 * math.sqrt(2) * 0.008), abs=1e-5)


def test_a_comparison_begins_where_other_software_or_another_version_does() -> None:
    old = trend(runs=20, environment_from=12)
    new = trend(runs=20, first=20, version="v2")
    data = _named(dict(site_files(Site(project="p", history=history([old, new]))))["data/levels.js"])

    (series,) = data["series"]
    assert [[0, "0"], [12, "0"], [20, "1"]] == [[at, version] for at, version, _ in series["kinds"]]
    assert series["kinds"][0][2] == series["kinds"][2][2] != series["kinds"][1][2]


def test_fewer_than_three_commits_have_no_heat_map() -> None:
    two, three = (
        dict(site_files(Site(project="p", history=history([trend(runs=runs)]))))["index.html"]
        for runs in (2, 3)
    )

    assert 'id="heat"' not in two
    assert 'id="heat"' in three


def _summed(column: list[int]) -> list[int]:
    total, found = 0, []
    for by in column:
        total += by
        found.append(total)
    return found


def test_a_step_that_was_taken_back_is_no_alarm_any_more() -> None:
    found = trend(steps={20: 1.3, 35: 1 / 1.3}, runs=60)
    lost = step_of(found, 20, until=35)

    (undone,) = series_of(history([found], [lost, step_of(found, 35, since=20)]), ())
    (alive,) = series_of(history([found], [lost]), ())

    assert "undone" == state_of(undone).kind
    assert "worse" == state_of(alive).kind


def test_a_dip_that_is_over_is_neither_a_loss_nor_a_gain() -> None:
    found = trend(steps={20: 1.46, 30: 1.015 / 1.46}, runs=60)
    points = [step_of(found, 20, until=30, shift="0123abcd"), step_of(found, 30, since=20)]
    shift = Shift(
        machine_id=MACHINE, last_before=found.commits[19], first_after=found.commits[20],
        at=found.recorded_at[20], benchmarks=1, ratio=1.46, low=1.4, high=1.5, shift_id="0123abcd",
    )  # fmt: skip
    page = dict(site_files(Site(project="p", history=history([found], points, shifts=(shift,)))))[
        "index.html"
    ]

    text = _words(page)
    assert "Nothing needs attention" in text
    assert "All at once" not in text
    assert "Improvements" not in text
    assert "for 10 runs, which is over" in text


def _every_second(found: Trend) -> Trend:
    columns = (
        "run_ids",
        "commits",
        "recorded_at",
        "sources",
        "env_ids",
        "launches",
        "means",
        "sds",
        "levels",
    )
    return replace(found, **{name: getattr(found, name)[1::2] for name in columns})


def test_the_same_change_on_two_machines_is_one() -> None:
    here = trend(steps={20: 1.2}, runs=40)
    # The other machine has measured every second commit, so that two may have made the change there.
    there = _every_second(trend(steps={20: 1.2}, runs=40, machine="77aa77aa77aa"))
    other = trend("bench.py::test_b", steps={30: 1.2}, runs=40)
    points = [step_of(here, 20), step_of(there, 10, commits=2), step_of(other, 30)]

    page = dict(site_files(Site(project="p", history=history([here, there, other], points))))["index.html"]

    text = _words(page)
    assert "Needs attention: 2 finding" in text
    assert 1 == text.count("with " + here.commits[20][:10])


def test_a_red_cell_of_the_newest_commit_is_not_denied() -> None:
    found = trend(steps={39: 1.2}, runs=40)
    text = _words(dict(site_files(Site(project="p", history=history([found]))))["index.html"])

    assert "1 benchmark slower in the newest run alone" in text
    assert "Nothing needs attention" not in text


def test_an_empty_ledger_gives_pages_that_state_what_to_do() -> None:
    files = dict(site_files(Site(project="empty", history=HistoryReport(trends=()))))

    assert "Nothing is measured yet" in _words(files["index.html"])
    assert "pytest --benchmark-autosave" in _words(files["index.html"])
    assert "There are no gates yet" in _words(files["gates.html"])


def test_long_lists_have_pages_and_lose_nothing() -> None:
    files = dict(site_files(large_site(commits=1201, benchmarks=1)))

    pages = [files[name] for name in ("runs.html", "runs-2.html", "runs-3.html")]
    assert [500, 500, 201] == [page.count("<tr><td data-sort") for page in pages]
    assert run_of(1200)[-8:] in pages[0]
    assert run_of(0)[-8:] in pages[2]


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (1.124, "+12.4 %"),
        (0.9, "-10.0 %"),
        (1.0, "0 %"),
        (1.00001, "0 %"),
        (1.0021, "+0.21 %"),
        (12.34, "×12.3"),
        (0.05, "×0.05"),
    ],
)
def test_a_ratio_is_reported_in_percent_or_as_a_factor(ratio: float, shown: str) -> None:
    assert shown == ratio_text(ratio)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_on_their_paper(colours: dict[str, str]) -> None:
    for name in ("ink", "dim", "calm", "worse", "better", "warn"):
        for paper in ("paper", "card"):
            assert _contrast(colours[name], colours[paper]) >= 4.5, (name, paper)


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2, "contrast ratio")."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_tables_and_fields_state_what_they_are(files: dict[str, str]) -> None:
    for name, text in files.items():
        tags = _read(text).tags if name.endswith(".html") else []
        assert not [attrs for tag, attrs in tags if tag == "th" and "scope" not in attrs], name
        assert not [attrs for tag, attrs in tags if tag == "img" and "alt" not in attrs], name
        labels = re.findall(r"<label[^>]*>.*?</label>", text, re.DOTALL)
        fields = re.findall(r"<(?:input|select)\b", text)
        assert len(fields) == sum(len(re.findall(r"<(?:input|select)\b", label)) for label in labels), name


def test_gates_and_other_runs_have_charts_of_their_own() -> None:
    found = trend(runs=20, steps={10: 1.2})
    gates = replace(found, lockstep=True)
    point = step_of(found, 10)
    again = replace(point, point_id="0123abcd")

    alone, by_gates = series_of(history([found, gates], [point, again]))

    assert ["", "gates"] == [alone.label, by_gates.label]
    assert [[point], [again]] == [[one.point for one in found.placed] for found in (alone, by_gates)]


def test_a_count_that_nobody_watches_raises_no_alarm() -> None:
    found = trend(metric=OPERATORS, level=1000, runs=20, steps={10: 1.2}, noise=0.0)
    site = Site(project="p", history=history([found], [step_of(found, 10)]))

    quiet, loud = (
        _words(dict(site_files(one))["index.html"])
        for one in (site, replace(site, watched=frozenset({"operators"})))
    )

    assert "Nothing needs attention" in quiet
    assert "more since 2026-01-08" in quiet
    assert "Needs attention: 1 finding" in loud


def test_the_overview_counts_what_is_judged_and_gives_the_reasons_for_the_rest() -> None:
    trends = [
        trend("bench.py::test_old", runs=20),
        trend("bench.py::test_young", runs=3, first=17),
        trend("bench.py::test_new", runs=1, first=19),
        trend("bench.py::test_edited", runs=18),
        trend("bench.py::test_edited", runs=2, first=18, version="v2"),
    ]
    by_benchmark: dict[str, list[Series]] = {}
    for one in series_of(history(trends)):
        by_benchmark.setdefault(one.benchmark, []).append(one)

    judged = judged_of(by_benchmark)

    assert (1, 4) == (judged.benchmarks, judged.whole)
    assert 3 == len(judged.reasons)
    text = _words(dict(site_files(Site(project="p", history=history(trends))))["index.html"])
    assert "Nothing needs attention in the 1 benchmark judged; 3 of 4 cannot be judged yet" in text
    assert "perfkit backfill HEAD~11..HEAD" in text


def test_a_level_that_moves_with_the_environment_is_not_called_steady() -> None:
    found = trend(runs=30, steps={20: 1.1}, environment_from=20)
    site = Site(project="p", history=history([found]))
    (series,) = series_of(site.history)

    assert "moved" == state_of(series).kind
    border = series.border
    assert border is not None
    assert (found.commits[19], found.commits[20]) == (border.before, border.commit)
    assert (("torch", "2.8.0", "2.9.1"),) == border.facts
    assert 1.1 == pytest.approx(border.ratio, rel=0.01)
    files = dict(site_files(site))
    page = _words(files[f"benchmarks/{slug_of(found.benchmark)}.html"])
    assert "torch 2.8.0 → 2.9.1" in page
    assert f"perfkit gate --base {border.before[:10]} --head {border.commit[:10]}" in page
    assert "steady" not in _words(files["index.html"])


@pytest.mark.parametrize("place", [14, 26])
def test_a_level_that_moves_beside_a_change_of_the_environment_did_not_move_with_it(place: int) -> None:
    (series,) = series_of(history([trend(runs=40, steps={place: 1.1}, environment_from=20)]))

    assert series.border is not None
    assert not series.border.is_clear


def test_a_benchmark_page_answers_first_whether_it_changed_and_what_to_do() -> None:
    found = trend(runs=40, steps={20: 1.2})
    lost = step_of(found, 20)
    changed = Site(project="p", history=history([found], [lost]))
    steady = Site(project="p", history=history([trend(runs=40)]))
    few = Site(project="p", history=history([trend(runs=4)]))

    answers = [_answers(site, found.benchmark) for site in (changed, steady, few)]

    assert f"by {lost.first_after[:10]}" in answers[0]
    assert f"perfkit gate --base {lost.last_before[:10]} --head {lost.first_after[:10]}" in answers[0]
    assert f"perfkit history accept {lost.point_id}" in answers[0]
    assert "perfkit" not in answers[1]
    assert "perfkit backfill" in answers[2]


def _answers(site: Site, benchmark: str) -> str:
    page = dict(site_files(site))[f"benchmarks/{slug_of(benchmark)}.html"]
    return _words(page.partition('<dl class="answers">')[2].partition("</dl>")[0])
