"""Takes the pictures of pages in the documents, from this repository's own ledger: `make screenshots`.

Of another site all pages are taken, light and dark, wide and narrow:

    python benchmarks/report/screenshots.py SITE FOLDER [PART OF A BENCHMARK'S NAME]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from browser import Page, opened_browser

from perfkit.config import load_project
from perfkit.features.site.command import read_site
from perfkit.features.site.pages import site_files
from perfkit.report.change_log import slug_of

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/_static"
# What a page of the documents shows legibly.
_WIDTH, _HEIGHT, _OVERVIEW_HEIGHT = 1040, 760, 1190
# Others with as many runs are so much slower in the first one that nothing else of them can be seen.
_BENCHMARK = "benchmarks/bench_losses.py::test_batch_all_triplet_loss[200]"


def for_documents(page: Page, folder: Path) -> None:
    """Write the overview's beginning, and a benchmark with many runs."""
    project = load_project(ROOT)
    site, _ = read_site(project=project, ledger=project.path(project.config.ledger))
    for name, text in site_files(site):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    page.size(_WIDTH, _OVERVIEW_HEIGHT)
    show(page, folder / "index.html")
    page.picture(PICTURES / "history-overview.png")
    page.size(_WIDTH, _HEIGHT)
    show(page, folder / f"benchmarks/{slug_of(_BENCHMARK)}.html")
    page.picture(PICTURES / "history-benchmark.png")


def show(page: Page, file: Path) -> None:
    """Open a page, and wait until it is painted: in the second frame at the latest."""
    page.open(file)
    page.run("await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    for error in page.errors():
        print(f"{file.name}: {error}")


def take(page: Page, file: Path, folder: Path) -> None:
    """Write four pictures of a page."""
    for width, height, dark in ((1280, 900, False), (1280, 900, True), (400, 860, False), (400, 860, True)):
        page.size(width, height)
        page.prefer(dark=dark)
        show(page, file)
        kind = f"{'narrow' if width < height else 'wide'}-{'dark' if dark else 'light'}"
        page.picture(folder / f"{file.stem}-{kind}.png")


def main() -> None:
    """Take the overview, the other lists, and one benchmark."""
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as place, opened_browser() as page:
            for_documents(page, Path(place))
        return
    site, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    chosen = sys.argv[3] if len(sys.argv) > 3 else ""
    benchmarks = sorted((site / "benchmarks").glob(f"*{chosen}*.html" if chosen else "*.html"))[:1]
    with opened_browser() as page:
        for file in [*sorted(site.glob("*.html")), *benchmarks]:
            take(page, file, folder)


if __name__ == "__main__":
    main()
