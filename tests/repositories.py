"""These helpers make real git repositories for tests."""

from __future__ import annotations

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
