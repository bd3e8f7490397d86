"""These helpers make two small trees that real children measure against each other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from perfkit.model import Side
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.launch import LaunchRecord, LaunchRules, run_launch
from perfkit.runner.lockstep.launcher import Launcher, MeasuredTrees
from perfkit.runner.lockstep.turns import LoopPlan

SIDES: tuple[Side, Side] = ("base", "head")
FILE = "benchmarks/bench_it.py"
_CONFIGURATION = "[tool.pytest.ini_options]\npython_files = ['bench_*.py']\n"
_TEXTS = ("cmdline", "environ")
_LINKS = ("cwd", "fd/1")


class TwoTrees:
    """A base and a head in real folders, and a folder for their children's logs and temporary files."""

    def __init__(self, top: Path) -> None:
        self.roots: dict[Side, Path] = {side: top / side for side in SIDES}
        self.folder = top / "launches"
        self.folder.mkdir()
        for root in self.roots.values():
            root.mkdir()
        self.write({"pyproject.toml": _CONFIGURATION})

    def write(self, files: Mapping[str, str], *sides: Side) -> None:
        """Write files into the named sides, or into both."""
        for side in sides or SIDES:
            for name, text in files.items():
                path = self.roots[side] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def benchmarks(self, text: str, *sides: Side) -> None:
        """Write the file of benchmarks into the named sides, or into both."""
        self.write({FILE: text}, *sides)

    def launcher(
        self,
        *,
        preload: Sequence[str] | None = (),
        environment: Mapping[str, str] | None = None,
        cores: float = 2,
    ) -> Launcher:
        """Return a launcher for the trees."""
        return Launcher(
            MeasuredTrees(roots=self.roots, origins=(), paths=("benchmarks",)),
            folder=self.folder,
            environment=os.environ if environment is None else environment,
            seed=1,
            preload=preload,
            cores=cores,
        )

    @contextlib.contextmanager
    def borrow(self, launcher: Launcher) -> Iterator[Launcher]:
        """Let a launcher measure these trees for a while, from the fork servers that it has."""
        with on_other_trees(launcher, self.roots, self.folder):
            yield launcher

    def children(self, launcher: Launcher, *tests: str) -> list[Child]:
        """Start a child of each side that runs these tests of the file of benchmarks."""
        return [launcher.start(side, nodes=nodes(*tests)) for side in SIDES]

    def launch(
        self,
        launcher: Launcher,
        *tests: str,
        plans: dict[str, LoopPlan] | None = None,
        limits_s: Mapping[str, float] = MappingProxyType({}),
        launch_s: float = 0.04,
    ) -> LaunchRecord:
        """Measure these tests in one launch in which base begins; some may have limits of their own."""
        own_s = dict(zip(nodes(*limits_s), limits_s.values(), strict=True))
        rules = LaunchRules(launch_s=launch_s, limit_s=lambda node: own_s.get(node, 20.0))
        children = self.children(launcher, *tests)
        return run_launch(children, nodes(*tests), plans={} if plans is None else plans, rules=rules)

    def lines(self, side: Side, name: str) -> list[str]:
        """Return the lines that a side's code wrote into a file of its tree."""
        path = self.roots[side] / name
        return path.read_text().splitlines() if path.exists() else []

    def processes(self) -> list[int]:
        """Return the processes that know these trees by their command line, environment or output."""
        known = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in known if pid != os.getpid() and self._is_known_to(pid)]

    def _is_known_to(self, pid: int) -> bool:
        process, place = Path("/proc", str(pid)), str(self.folder.parent)
        try:
            texts = [(process / name).read_bytes().decode(errors="replace") for name in _TEXTS]
            texts += [str((process / name).readlink()) for name in _LINKS]
        except OSError:
            return False
        return any(place in text for text in texts)


def nodes(*tests: str) -> list[str]:
    """Return the node ids of tests in the file of benchmarks."""
    return [f"{FILE}::{test}" for test in tests]


@contextlib.contextmanager
def on_other_trees(launcher: Launcher, roots: Mapping[Side, Path], folder: Path) -> Iterator[None]:
    """Have a launcher measure other trees for a while, with logs in another folder."""
    # What was found of its own trees means nothing there.
    launcher.folder, launcher.serves, launcher.why_not_served = folder, False, None
    with launcher.on_other_trees(roots):
        yield
