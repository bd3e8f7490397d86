"""Two folders with the same benchmarks of tricks, one for each side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfkit.measure.lockstep.crew import Crew, Ground
from perfkit.records import SIDES
from perfkit.records.tricks import TrickCase

_FILE = "bench_tricks.py"


@contextmanager
def staged_crew(
    cases: Sequence[TrickCase], folder: Path, *, environment: Mapping[str, str], seed: int
) -> Iterator[Crew]:
    """Lay out both sides in a folder, and yield the crew that measures them."""
    roots = {side: folder / side for side in SIDES}
    for side, root in roots.items():
        root.mkdir()
        shutil.copy(Path(__file__).with_name(_FILE), root)
        (root / "pytest.ini").write_text("[pytest]\n")
        said = {"side": side, "cases": [[case.trick, case.size] for case in cases]}
        (root / "cases.json").write_text(json.dumps(said))
    launches = folder / "launches"
    launches.mkdir()
    ground = Ground(roots=roots, origins=(), paths=(_FILE,))
    # A user's options for pytest are for the user's own tests.
    inherited = {name: text for name, text in environment.items() if not name.startswith("PYTEST_")}
    with Crew(ground, folder=launches, environment=inherited, as_is=False, seed=seed) as crew:
        yield crew


def node_of(case: TrickCase) -> str:
    """Return the benchmark of a case, as pytest names it."""
    return f"{_FILE}::test_trick[{case.trick}-{case.size}]"
