"""Launches: fresh processes that run a pytest session each, in an order that favours no commit."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.agent import NO_COUNTS
from perfkit.agent.session import without_configuration
from perfkit.config import load_project
from perfkit.errors import ConfigError
from perfkit.model import Status
from perfkit.runner.commands import ALLOCATOR, run_command
from perfkit.temporary import temporary_folder

_TAIL_LINES = 12
_PYTEST_RAN = (0, 1)  # all passed; some failed, and each failure has a row
_NO_TESTS = 5
# A file that does not import has a section of its own in the output, the error in lines that begin with E.
_SECTION = re.compile(r"_+ ERROR collecting (.+?) _+")
_ERROR = re.compile(r"E +(\S.*)")
# Pytest cuts lines to the width of its terminal, which is 80 where it has none.
_WIDE = {"COLUMNS": "400"}


@dataclass(frozen=True, kw_only=True)
class SessionSlot:
    """One launch in the plan: which commit runs in which block, and its place in that block."""

    sha: str
    launch: int
    block: int
    order: int
    hash_seed: int


@dataclass(frozen=True, kw_only=True)
class LaunchResult:
    """How a launch ended; ``tail`` is the end of its output, or why it did not run."""

    status: Status = "ok"
    tail: str = ""
    uncollected: Mapping[str, str] = field(default_factory=dict)


def plan_launches(shas: Sequence[str], launches: int, *, seed: int) -> list[SessionSlot]:
    """Return one launch of every commit per block, their order rotated and mirrored from block to block.

    Every commit stands at every place about equally often, so that a machine that warms up or fills within
    a block favours none. Commits of one block share their hash seed.
    """
    random_source = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
    first = random_source.sample(list(shas), len(shas))
    slots = []
    for block in range(launches):
        shift = (block // 2) % len(first)
        rotated = first[shift:] + first[:shift]
        ordered = rotated if block % 2 == 0 else rotated[::-1]
        hash_seed = random_source.randrange(1, 2**32)
        slots += [
            SessionSlot(sha=sha, launch=block, block=block, order=order, hash_seed=hash_seed)
            for order, sha in enumerate(ordered)
        ]
    return slots


def run_session(
    slot: SessionSlot,
    *,
    root: Path,
    benchmarks: str,
    select: str | None,
    ledger: Path,
    environment: Mapping[str, str],
    limit_s: float,
    keeps_going: bool = False,
    left_out: Sequence[str] = (),
) -> LaunchResult:
    """Run a pytest session of the code in ``root`` in a fresh process; its rows go to ``ledger``.

    After ``limit_s`` seconds it is ended. No process of the session outlives the call. With ``keeps_going``
    it goes on where a file does not import, and ``root`` is pytest's root for any configuration. What begins
    like an id that is ``left_out`` does not run.
    """
    try:
        is_asv = _is_asv(root / benchmarks, root)
    except ConfigError as error:
        # The commit's own configuration, which nobody can mend any more, is at fault.
        return LaunchResult(status="error", tail=str(error).replace(f"{root}/", ""))
    # With "=" pytest does not take these paths for places in which to look for its root.
    places = [f"--perfkit-ledger={ledger}", f"--perfkit-prove-root={root}"]
    selection = [*(["-k", select] if select else []), *(f"--deselect={node}" for node in left_out)]
    quiet = ["--quiet"]
    if keeps_going:
        quiet += ["--continue-on-collection-errors", f"--rootdir={root}"]
        environment = {**environment, **_WIDE}
    with temporary_folder() as folder:
        # Without a cache pytest would not know options that a project may have, such as --ff.
        quiet += ["-o", f"cache_dir={folder / 'cache'}"]
        if is_asv:
            quiet += [*without_configuration(folder), f"--rootdir={root}"]
        ending = run_command(
            [sys.executable, "-m", "pytest", benchmarks, *places, *selection, *quiet],
            output=folder / "output.log",
            limit_s=limit_s,
            environment=launch_environment(environment, root=root, hash_seed=slot.hash_seed),
            folder=root,
        )
        uncollected = _uncollected(folder / "output.log") if keeps_going else {}
    if ending.status is None:
        return LaunchResult(status="timeout", tail=f"it took longer than {limit_s:g} s, the limit")
    if ending.status in _PYTEST_RAN:
        return LaunchResult(uncollected=uncollected)
    if ending.status < 0:
        return LaunchResult(status="error", tail=f"its process {ending.words}")
    if ending.status == _NO_TESTS:
        cause = f"--select {select}" if select else "python_files in pytest's settings at that commit"
        return LaunchResult(status="error", tail=f"pytest found no benchmark in {benchmarks}; see {cause}")
    return LaunchResult(status="error", tail=" | ".join(ending.tail[-_TAIL_LINES:]))


def _is_asv(place: Path, root: Path) -> bool:
    suite = load_project(root).asv_suite()
    return suite is not None and place.is_relative_to(root / suite.folder)


def _uncollected(output: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    file = None
    for line in output.read_text(encoding="utf-8", errors="replace").splitlines():
        section, error = _SECTION.fullmatch(line.strip()), _ERROR.match(line)
        if section:
            file = section[1]
            found[file] = "it does not import"
        elif error and file:
            found[file] = error[1]
        elif line.startswith("==="):
            file = None
    return found


def launch_environment(environment: Mapping[str, str], *, root: Path, hash_seed: int) -> dict[str, str]:
    """Return a launch's environment: the given one, the code of ``root`` first, a fixed allocator."""
    path = [str(root), str(root / "src"), environment.get("PYTHONPATH", "")]
    return {
        **environment,
        **ALLOCATOR,
        # Not an option: where perfkit measures itself, an older commit would not know it.
        NO_COUNTS: "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(entry for entry in path if entry),
    }
