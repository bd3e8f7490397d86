"""Measures a benchmark's page in Chromium, beside the same trend drawn by plotting libraries.

    python benchmarks/report/charts.py [RUNS]

Reported of each page: its weight on disk, the time until it is ready (median of five loads), and the time
between two frames while the chart is moved. Libraries that are not installed are skipped: install them with
`pip install plotly bokeh`.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from browser import Page, opened_browser
from synthetic_history import large_site

from perfkit.features.site.pages import site_files
from perfkit.model.history import Trend

_LOADS, _FRAMES = 5, 120
_READY = "requestAnimationFrame(() => requestAnimationFrame(() => {{ window.readyAt = performance.now(); }}))"
# Moves the chart once a frame, and returns the milliseconds between frames.
_PAN = """
const move = {move};
const times = [];
await new Promise((done) => {{
  let left = {frames}, before = performance.now();
  const step = (now) => {{
    times.push(now - before);
    before = now;
    if (left-- === 0) return done();
    move(left);
    requestAnimationFrame(step);
  }};
  requestAnimationFrame(step);
}});
return times.slice(2);
"""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A page with the trend: all of its files, and a script that moves its chart by a little."""

    name: str
    page: Path
    files: tuple[Path, ...]
    set_up: str
    move: str


def own(folder: Path, runs: int) -> Candidate:
    """Return perfkit's own page."""
    for name, text in site_files(large_site(commits=runs, benchmarks=1)):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    page = next((folder / "benchmarks").glob("*.html"))
    scripts = ("theme.js", "site.js", "chart.js", "benchmark.js", "site.css")
    files = (page, folder / "data/commits.js", folder / f"data/{page.stem}.js")
    return Candidate(
        name="perfkit",
        page=page,
        files=(*files, *(folder / "assets" / name for name in scripts)),
        set_up="const c = document.getElementById('chart'); c.focus();"
        " for (let i = 0; i < 2; i++) c.dispatchEvent(new KeyboardEvent('keydown', {key: '+'}));",
        move="(left) => document.getElementById('chart').dispatchEvent(new KeyboardEvent('keydown',"
        " {key: left % 20 < 10 ? 'ArrowRight' : 'ArrowLeft', shiftKey: true}))",
    )


def nothing(folder: Path, runs: int) -> Candidate:
    """Return a page without a chart: what the browser and the machine take by themselves."""
    del runs
    page = _page(folder, [], _READY.format())
    return Candidate(name="an empty page", page=page, files=(page,), set_up="", move="() => 0")


def plotly(folder: Path, runs: int) -> Candidate | None:
    """Return the trend as plotly draws it with WebGL, its band as an area."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    found = _trend(runs)
    library = folder / "plotly.min.js"
    library.write_text(get_plotlyjs(), encoding="utf-8")
    low, high = _band(found)
    x = list(range(runs))
    line = {"width": 0}
    traces = [
        {"type": "scatter", "mode": "lines", "line": line, "x": x, "y": low},
        {"type": "scatter", "mode": "lines", "line": line, "fill": "tonexty", "x": x, "y": high},
        {"type": "scattergl", "mode": "lines+markers", "x": x, "y": found.means, "text": found.commits},
    ]
    script = f"Plotly.newPlot('chart', {json.dumps(traces)}, {{height: 380}}).then(() => {_READY.format()});"
    page = _page(folder, ["plotly.min.js"], script)
    part = 0.36 * runs
    return Candidate(
        name="plotly",
        page=page,
        files=(page, library),
        set_up=f"await Plotly.relayout('chart', {{'xaxis.range': [0, {part}]}})",
        move=f"(left) => {{ const x = left * {runs} / 200;"
        f" Plotly.relayout('chart', {{'xaxis.range': [x, x + {part}]}}); }}",
    )


def bokeh(folder: Path, runs: int) -> Candidate | None:
    """Return the trend as bokeh draws it on a canvas, its band as an area."""
    try:
        from bokeh.embed import json_item
        from bokeh.models import HoverTool
        from bokeh.plotting import figure
        from bokeh.resources import Resources
    except ImportError:
        return None
    found = _trend(runs)
    low, high = _band(found)
    x = list(range(runs))
    plot = figure(height=380, sizing_mode="stretch_width", tools="pan,xwheel_zoom,tap")
    plot.add_tools(HoverTool())
    plot.varea(x, low, high, fill_alpha=0.2)
    plot.line(x, found.means)
    plot.scatter(x, found.means, size=4)
    library = folder / "bokeh.min.js"
    library.write_text("\n".join(Resources(mode="inline", components=["bokeh"]).js_raw), encoding="utf-8")
    item = json.dumps(json_item(plot, "chart"))
    script = f"Bokeh.embed.embed_item({item}).then(() => {_READY.format()});"
    page = _page(folder, ["bokeh.min.js"], script)
    reach = "const r = Bokeh.index.roots[0].model.x_range;"
    return Candidate(
        name="bokeh",
        page=page,
        files=(page, library),
        set_up=f"{reach} r.setv({{start: 0, end: {0.36 * runs}}});",
        move=f"(left) => {{ const x = left * {runs} / 200; {reach}"
        f" r.setv({{start: x, end: x + {0.36 * runs}}}); }}",
    )


def measure(page: Page, candidate: Candidate) -> str:
    """Return a line of a table on a page."""
    ready = []
    for _ in range(_LOADS):
        page.open(candidate.page)
        page.run(
            "while (!window.readyAt && !performance.getEntriesByName('perfkit-ready').length)"
            " await new Promise((done) => setTimeout(done, 5));"
        )
        ready.append(
            page.run("return window.readyAt ?? performance.getEntriesByName('perfkit-ready')[0].startTime")
        )
    page.run(candidate.set_up)
    frames = sorted(page.run(_PAN.format(move=candidate.move, frames=_FRAMES)))
    weight = sum(file.stat().st_size for file in candidate.files) / 1000
    return (
        f"| {candidate.name} | {weight:,.0f} kB | {statistics.median(ready):,.0f} ms |"
        f" {statistics.median(frames):.1f} ms | {frames[int(0.95 * len(frames))]:.1f} ms |"
    )


def _trend(runs: int) -> Trend:
    return large_site(commits=runs, benchmarks=1).history.trends[0]


def _band(found: Trend) -> tuple[list[float], list[float]]:
    pairs = [(mean, sd or 0.0) for mean, sd in zip(found.means, found.sds, strict=True)]
    return [mean - sd for mean, sd in pairs], [mean + sd for mean, sd in pairs]


def _page(folder: Path, scripts: list[str], script: str) -> Path:
    file = folder / "index.html"
    tags = "".join(f'<script src="{name}"></script>' for name in scripts)
    body = f'<div id="chart"></div><script>{script}</script>'
    file.write_text(f'<!DOCTYPE html><meta charset="utf-8">{tags}{body}', encoding="utf-8")
    return file


def main() -> None:
    """Print a table of all pages."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    makers: tuple[Callable[[Path, int], Candidate | None], ...] = (nothing, own, plotly, bokeh)
    print(f"{runs:,} runs\n\n| page | weight | ready after | between frames, median | 95th percentile |")
    print("| :--- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder, opened_browser() as page:
        for maker in makers:
            place = Path(folder) / maker.__name__
            place.mkdir()
            candidate = maker(place, runs)
            if candidate is not None:
                print(measure(page, candidate), flush=True)


if __name__ == "__main__":
    main()
