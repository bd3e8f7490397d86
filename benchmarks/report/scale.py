"""Measures a large site: how long it takes to write, how large it is, and when Chromium shows its pages.

python benchmarks/report/scale.py [COMMITS] [BENCHMARKS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from browser import Page, opened_browser
from synthetic_history import large_site

from perfkit.features.site.pages import site_files

_LOADS = 5
# A page is ready when its scripts have run and the browser has painted what they drew.
_READY = """
await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
return performance.now();
"""


def ready_ms(page: Page, file: Path) -> float:
    """Return the median milliseconds from the start of loading a page until it is painted."""
    found: list[float] = []
    for _ in range(_LOADS):
        page.open(file)
        found.append(page.run(_READY))
    return statistics.median(found)


def main() -> None:
    """Print what a site of so many commits and benchmarks takes."""
    commits, benchmarks = (int(word) for word in (*sys.argv[1:], "10000", "100")[:2])
    site = large_site(commits=commits, benchmarks=benchmarks)
    with tempfile.TemporaryDirectory() as place, opened_browser() as page:
        folder = Path(place)
        begin, size = time.perf_counter(), 0
        for name, text in site_files(site):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            size += file.write_bytes(text.encode())
        print(f"{commits:,} commits, {benchmarks} benchmarks")
        print(f"written in {time.perf_counter() - begin:.1f} s, {size / 1e6:.1f} MB")
        shown = [folder / "index.html", next((folder / "benchmarks").iterdir()), folder / "runs.html"]
        for file in shown:
            print(f"{file.relative_to(folder)}: ready after {ready_ms(page, file):.0f} ms")


if __name__ == "__main__":
    main()
