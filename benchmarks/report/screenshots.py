"""Takes pictures of a site's pages, light and dark, wide and narrow.

python benchmarks/report/screenshots.py SITE FOLDER [PART OF A BENCHMARK'S NAME]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from browser import Page, opened_browser


def take(page: Page, file: Path, folder: Path, *, fragment: str = "") -> None:
    """Write four pictures of a page."""
    for width, height, dark in ((1280, 900, False), (1280, 900, True), (400, 860, False), (400, 860, True)):
        page.size(width, height)
        page.prefer(dark=dark)
        page.open(file, fragment)
        # The page is painted in the second frame at the latest.
        page.run("await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        kind = f"{'narrow' if width < height else 'wide'}-{'dark' if dark else 'light'}"
        page.picture(folder / f"{file.stem}-{kind}.png")
        for error in page.errors():
            print(f"{file.name}: {error}")


def main() -> None:
    """Take the overview, the other lists, and one benchmark."""
    site, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    chosen = sys.argv[3] if len(sys.argv) > 3 else ""
    benchmarks = sorted((site / "benchmarks").glob(f"*{chosen}*.html" if chosen else "*.html"))[:1]
    with opened_browser() as page:
        for file in [*sorted(site.glob("*.html")), *benchmarks]:
            take(page, file, folder)


if __name__ == "__main__":
    main()
