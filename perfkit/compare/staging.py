"""A suite of perfkit's own in two folders, one for each side, and the launcher that measures them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from perfkit.measure.lockstep.launcher import LAUNCHES_PER_PRELOADER, Launcher, MeasuredTrees
from perfkit.records import SIDES, Side


@contextmanager
def staged_launcher(
    suite: Path,
    folder: Path,
    *,
    environment: Mapping[str, str],
    seed: int,
    beside: Mapping[Side, Mapping[str, str]] | None = None,
    launches_per_preloader: int = LAUNCHES_PER_PRELOADER,
) -> Iterator[Launcher]:
    """Copy a file of benchmarks into a folder for each side, and yield the launcher that measures both.

    ``beside`` are the names and texts of files that lie with it on each side.
    """
    roots = {side: folder / side for side in SIDES}
    for side, root in roots.items():
        root.mkdir()
        shutil.copy(suite, root)
        (root / "pytest.ini").write_text("[pytest]\n")
        for name, text in (beside or {}).get(side, {}).items():
            (root / name).write_text(text)
    launches = folder / "launches"
    launches.mkdir()
    trees = MeasuredTrees(roots=roots, origins=(), paths=(suite.name,))
    # A user's options for pytest are for the user's own tests.
    inherited = {name: text for name, text in environment.items() if not name.startswith("PYTEST_")}
    with Launcher(
        trees,
        folder=launches,
        environment=inherited,
        as_is=False,
        seed=seed,
        launches_per_preloader=launches_per_preloader,
    ) as launcher:
        yield launcher
