"""The pages work in a real browser, from a disk: chart, search, keys, themes, narrow screens, many runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Page, browser_programs, opened_browser
from synthetic_history import MACHINE, history, hostile_site, large_site, lively_site, sha_of, trend

from perfkit.features.site.pages import site_files
from perfkit.features.site.series import Site
from perfkit.report.change_log import slug_of

pytestmark = pytest.mark.skipif(
    browser_programs() is None, reason="chromium and chromedriver are not installed"
)

TRIPLET = f"benchmarks/{slug_of('bench_losses.py::test_triplet[200]')}.html"
LARGE = f"benchmarks/{slug_of('bench_part0.py::test_operation[0]')}.html"
_FRAME = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
# Milliseconds of drawing in each of some frames, while keys move the chart.
_PAN = """
const chart = document.getElementById("chart"), times = [];
chart.focus();
for (const key of "++") chart.dispatchEvent(new KeyboardEvent("keydown", { key }));
for (let frame = 0; frame < 24; frame += 1) {
  const key = frame % 8 < 4 ? "ArrowLeft" : "ArrowRight";
  chart.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey: true }));
  const now = await new Promise(requestAnimationFrame);
  times.push(performance.now() - now);
}
return times;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    """Return a browser that all tests of this file share."""
    with opened_browser() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """Return the browser with a wide and light page; anything that its console reports fails the test."""
    browser.size(1280, 900)
    browser.prefer(dark=False)
    browser.errors()
    yield browser
    assert [] == browser.errors()


def _written(site: Site, folder: Path) -> Path:
    for name, text in site_files(site):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return folder


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site on which everything occurs."""
    return _written(lively_site(), tmp_path_factory.mktemp("lively site"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site with 2,000 runs of a benchmark."""
    return _written(large_site(commits=2_000, benchmarks=1), tmp_path_factory.mktemp("large"))


def test_no_page_has_an_error_or_is_wider_than_a_narrow_screen(page: Page, lively: Path) -> None:
    page.size(360, 800)

    for file in sorted(lively.rglob("*.html")):
        page.open(file)
        assert page.run("return document.documentElement.scrollWidth") <= 360, file.name


def test_a_click_on_a_run_shows_its_commit(page: Page, lively: Path) -> None:
    page.open(lively / TRIPLET)

    # The middle of the runs 30 of 60, between the axis of values and the right end.
    page.click("#chart", *_place(page, 30))

    shown = page.text("#picked")
    for part in (sha_of(30)[:10], "Reuse the distance matrix (30)", "9.90 ms", "Ada", "torch 2.9.1", "gate"):
        assert part in shown


def _place(page: Page, run: int, runs: int = 60) -> tuple[float, float]:
    """Return where a run lies in a chart of all runs, in pixels from its left and top."""
    width = page.run("return document.getElementById('chart').clientWidth") - 76 - 14
    free = 0.015 * (runs - 1)
    return 76 + width * (run + free) / (runs - 1 + 2 * free), 200


def test_two_clicks_compare_two_runs(page: Page, lively: Path) -> None:
    page.open(lively / TRIPLET)

    page.click("#chart", *_place(page, 20))
    page.click("#chart", *_place(page, 50))

    shown = page.text("#picked .compared")
    assert "% slower than A" in shown
    assert "Software or settings differ: torch 2.8.0 → 2.9.1." in shown
    command = f"perfkit gate --base {sha_of(20)[:10]} --head {sha_of(50)[:10]}"
    assert f"{command} --benchmarks bench_losses.py --select test_triplet" in shown
    page.press("Escape")
    assert page.text("#picked") == ""


def test_a_run_names_commits_that_run_the_same_code(page: Page, tmp_path: Path) -> None:
    found = replace(trend(runs=8), same_code={sha_of(20): sha_of(3), sha_of(21): sha_of(3)})
    folder = _written(Site(project="p", history=history([found])), tmp_path)
    page.open(folder / TRIPLET)

    page.click("#chart", *_place(page, 3, runs=8))

    assert f"{sha_of(20)[:10]}, {sha_of(21)[:10]}" in page.text("#picked")
    assert "same code" in page.text("#meaning")


def _compared(page: Page) -> list[list[str]]:
    page.run(_FRAME)
    found: list[list[str]] = page.run(
        "return [...document.querySelectorAll('#compared tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return found


def _selected(page: Page, field: str, value: str) -> None:
    """Choose what begins with a text, as keys in the list do."""
    page.run(
        "const list = document.getElementById(a[0]);"
        "list.value = [...list.options].find((one) => one.text.startsWith(a[1])).value;"
        "list.dispatchEvent(new Event('input'))",
        field,
        value,
    )


def test_two_commits_are_compared_with_the_interval_of_their_gate(page: Page, lively: Path) -> None:
    page.open(lively / "compare.html", f"#base={sha_of(39)[:10]}&head={sha_of(40)[:10]}")

    rows = _compared(page)
    assert rows[0][:3] == ["test_triplet[200]", "▲ +11.9 %", "+10.9 % to +12.9 %"]
    assert [row[0] for row in rows if row[1].startswith("≈")] == [row[0] for row in rows[1:]]
    assert "1 worse and 0 better of 6 benchmarks" in page.text("#found")
    assert f"perfkit gate --base {sha_of(39)[:10]} --head {sha_of(40)[:10]}" == page.text("#command")

    page.press("x")
    rows = _compared(page)
    assert rows[0][:3] == ["test_triplet[200]", "▼ -10.6 %", "-11.4 % to -9.8 %"]
    assert f"base={sha_of(40)[:10]}&head={sha_of(39)[:10]}" in page.run("return location.hash")


def test_the_address_keeps_which_commits_are_compared(page: Page, lively: Path) -> None:
    page.open(lively / "compare.html")
    _selected(page, "base", sha_of(10)[:10])
    page.run(_FRAME)
    _selected(page, "head", sha_of(50)[:10])
    rows = _compared(page)
    address = page.run("return location.hash")

    by_name = {name: change for name, change, *_ in rows}
    assert by_name["test_triplet[200]"].startswith("▲")
    assert by_name["test_triplet[200]"].endswith("*")
    assert by_name["test_sampler"].startswith("?")
    page.open(lively / "compare.html", address)
    assert rows == _compared(page)

    page.open(lively / "compare.html", "#base=v1.1&head=deadbeef00")
    assert sha_of(28)[:10] in page.text("#command")
    assert "deadbeef00" in page.text("#found")


def test_two_machines_are_compared_at_one_commit(page: Page, lively: Path) -> None:
    sha = sha_of(30)[:10]
    page.open(
        lively / "compare.html",
        f"#base={sha}&head={sha}&base-machine={MACHINE}&head-machine=77aa77aa77aa",
    )

    (row,) = _compared(page)
    assert row[0] == "test_triplet[200]"
    assert row[1].startswith("▼ -5")
    assert not page.run("return document.getElementById('no-command').hidden")
    assert page.run("return document.getElementById('command').parentElement.hidden")


def test_the_command_is_copied(page: Page, lively: Path) -> None:
    page.open(lively / "compare.html")

    page.click("#copy")

    assert page.text("#command") == page.run("return String(getSelection())")
    assert "Copied" == page.text("#copy")


def test_keys_go_through_the_heat_map_and_open_a_benchmark(page: Page, lively: Path) -> None:
    page.open(lively / "index.html")
    page.run("document.getElementById('heat').focus()")

    page.press("Left", "Left", "Left")

    shown = page.text("#cell")
    assert shown.startswith("test_collate")
    assert sha_of(57)[:10] in shown
    assert "%" in shown
    assert shown == page.run("return document.getElementById('heat').title")
    page.press("Enter")
    page.run(_FRAME)
    assert "test_collate" in page.text("h1")


def test_many_benchmarks_are_folded_by_file(page: Page, tmp_path: Path) -> None:
    page.open(_written(large_site(commits=20, benchmarks=40), tmp_path) / "index.html")
    heads = [f"bench_part{number}.py 10 rows" for number in range(4)]

    def shown() -> list[str]:
        return [one.replace("▸ ", "").replace("▾ ", "") for one in _shown(page)]

    assert heads == [one.partition(",")[0] for one in shown()]
    page.press("j", "Enter", "j")
    assert "test_operation[0]" == page.run("return document.querySelector('tr.at th').innerText")
    assert len(shown()) == 14
    page.press("/", *"operation[39]")
    assert ["test_operation[39]"] == shown()
    page.press("Escape")
    page.click("#benchmarks th button.sort")
    assert len(shown()) == 40


def test_metrics_and_machines_are_shown_apart(page: Page, lively: Path) -> None:
    page.open(lively / TRIPLET)
    page.run(
        "const s = document.getElementById('series');"
        " s.value = [...s.options].findIndex((one) => one.text.startsWith('operators'));"
        " s.dispatchEvent(new Event('input'))"
    )

    assert "1,302" in page.text(".summary:not([data-other])")
    assert "5.0 % more" in page.text(".steps")
    assert "slower" not in page.text(".steps")


def test_the_table_has_all_runs_a_hundred_at_a_time(page: Page, large: Path) -> None:
    page.open(large / LARGE)
    page.click("#runs summary")
    page.run(_FRAME)

    assert "runs 1 to 100 of 2000" in page.text("#range")
    assert sha_of(1999)[:10] in page.text("#points tbody tr")
    page.run("for (let i = 0; i < 120; i += 1) document.getElementById('older').click()")
    assert sha_of(0)[:10] in page.text("#points tbody tr:last-child")


def _shown(page: Page) -> list[str]:
    found: list[str] = page.run(
        "return [...document.querySelectorAll('#benchmarks tbody tr')].filter(r => !r.hidden)"
        ".map(r => r.cells[0].innerText.trim())"
    )
    return found


def test_search_and_filters_narrow_the_table(page: Page, lively: Path) -> None:
    page.open(lively / "index.html")
    assert len(_shown(page)) == len({*_shown(page)}) == 8

    page.run("const rows = document.getElementById('machine'); rows.value = 'all'")
    page.run("document.getElementById('machine').dispatchEvent(new Event('input'))")
    assert len(_shown(page)) == 9
    page.press("/", *"trip 200")
    assert ["test_triplet[200]", "test_triplet[200]"] == _shown(page)
    assert "2 of 10 rows" in page.text("#shown")
    page.press("Escape")
    page.run("document.activeElement.blur()")
    page.press("a")
    assert ["test_decode", "test_cdist[400-64]", "test_triplet[200]"] == _shown(page)
    page.press("/", *"nothing")
    assert [] == _shown(page)
    page.click("#clear")
    assert len(_shown(page)) == 10


def test_the_overview_is_used_by_keys_alone(page: Page, lively: Path) -> None:
    page.open(lively / "index.html")

    page.press("?")
    assert page.run("return document.getElementById('keys').open")
    page.press("Escape", "j", "j", "k", "j", "Enter")
    page.run(_FRAME)
    assert "test_decode" in page.text("h1")
    page.press("u")
    page.run(_FRAME)
    assert "metric-learning" in page.text("h1")


def test_the_theme_follows_the_system_until_one_is_chosen(page: Page, lively: Path) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    page.prefer(dark=True)
    page.open(lively / "index.html")
    assert "rgb(23, 27, 36)" == page.run(paper)

    page.press("t")
    assert "rgb(255, 255, 255)" == page.run(paper)
    page.open(lively / TRIPLET)
    assert "rgb(255, 255, 255)" == page.run(paper)
    page.press("t", "t")
    assert "rgb(23, 27, 36)" == page.run(paper)


def test_without_scripts_the_numbers_are_still_there(page: Page, lively: Path) -> None:
    page.scripts(allowed=False)
    try:
        page.open(lively / "index.html")
        overview = page.source()
        page.open(lively / TRIPLET)
        benchmark = page.source()
    finally:
        page.scripts(allowed=True)

    assert "test_training_epoch" in overview
    assert "12.4 % slower" in benchmark
    assert "Theme" not in benchmark


@pytest.mark.slow
def test_ten_thousand_runs_stay_smooth(page: Page, lively: Path, tmp_path: Path) -> None:
    page.open(lively / TRIPLET)
    few = min(page.run(_PAN))

    page.open(_written(large_site(commits=10_000, benchmarks=1), tmp_path) / LARGE)
    many = min(page.run(_PAN))

    # What is quickest is disturbed least by other work; the clock of a page has steps of a tenth.
    assert many < 25 * max(few, 0.1)


def test_hostile_texts_run_nothing(page: Page, tmp_path: Path) -> None:
    folder = _written(hostile_site(), tmp_path / "hostile")

    for file in sorted(folder.rglob("*.html")):
        page.open(file)
        assert (
            page.run("return document.querySelectorAll('script:not([src]), img[src=x], [onerror]').length")
            == 0
        )
    (file,) = (folder / "benchmarks").iterdir()
    page.open(file)
    page.click("#chart", *_place(page, 3, runs=8))

    page.open(folder / "compare.html")
    assert "<script>" in page.text("#compared tbody")
    assert "onerror=alert(1)" in page.text("#base")
    page.open(folder / "index.html")
    page.run("document.getElementById('heat').focus()")
    page.press("Left")
    assert "<script>" in page.text("#cell")
    page.open(file)
    page.click("#chart", *_place(page, 3, runs=8))

    assert "<img src=x onerror=alert(1)>" in page.text("#picked")
    assert "<script>" in page.text("h1")


def test_names_may_have_signs_of_any_kind(page: Page, tmp_path: Path) -> None:
    name = "bench_\N{CRAB}.py::test_größe[<b>\N{CRAB}</b>]"
    folder = _written(Site(project="\N{CRAB}", history=history([trend(name, runs=4)])), tmp_path)

    page.open(folder / "compare.html")
    assert "test_größe[<b>\N{CRAB}</b>]" in page.text("#compared tbody")
    page.open(folder / "index.html")
    page.run("document.getElementById('heat').focus()")
    page.press("Left", "Enter")
    page.run(_FRAME)
    assert "<b>\N{CRAB}</b>" in page.text("h1")
    page.click("#chart", *_place(page, 0, runs=4))
    page.click("#chart", *_place(page, 3, runs=4))
    assert "--benchmarks 'bench_\N{CRAB}.py' --select 'test_größe'" in page.text("#picked")
