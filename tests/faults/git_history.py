"""A repository with as many commits as one likes, made in a second, and how long HEAD takes in it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfkit.repo.commits import read_commit

_LOOKS = 7
_LONGEST_S = 0.2


def long_history(folder: Path, *, commits: int) -> None:
    """Make a repository with so many commits on one branch."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=folder, check=True)
    author = "committer A Tester <tester@example.org> {time} +0000\n"
    text = "".join(
        f"commit refs/heads/main\n{author.format(time=1_700_000_000 + number)}data 6\nChange\n"
        f"M 100644 inline a.py\ndata {len(str(number)) + 1}\n{number}\n\n"
        for number in range(commits)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=text.encode(), check=True)
    subprocess.run(["git", "reset", "--quiet", "--hard"], cwd=folder, check=True)


def seconds_for_head(folder: Path) -> float:
    """Return the least of some times that it takes to say which commit is checked out, and what differs."""
    times = []
    for _ in range(_LOOKS):
        begun = time.perf_counter()
        read_commit(folder)
        times.append(time.perf_counter() - begun)
    return min(times)


def head_of_many(folder: Path, *, commits: int) -> tuple[Sequence[str], Mapping[str, float]]:
    """Look for HEAD among so many commits; return what is left to be desired, and how long it took."""
    long_history(folder, commits=commits)
    seconds = seconds_for_head(folder)
    problems = [f"HEAD took {seconds:.2f} s"] if seconds > _LONGEST_S else []
    return problems, {"commits": commits, "head_s": round(seconds, 3)}
