"""These helpers make real git repositories for tests."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import git


@dataclass(frozen=True)
class Repository:
    """A real repository with files committed by ``commit``."""

    root: Path
    git: git.Repo

    def commit(self, files: dict[str, str], subject: str = "Change things") -> str:
        """Write files, commit them and return the commit."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git.git.add("--all")
        self.git.git.commit("--quiet", "--allow-empty", "-m", subject)
        return self.git.head.commit.hexsha


def create_repository(root: Path) -> git.Repo:
    """Return a new repository in a folder, with an author and a main branch."""
    created = git.Repo.init(root, initial_branch="main")
    with created.config_writer() as config:
        config.set_value("user", "name", "A Tester")
        config.set_value("user", "email", "tester@example.org")
    return created


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
