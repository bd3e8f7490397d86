"""Who works in a repository."""

from __future__ import annotations

import git


def author_name(repository: git.Repo) -> str | None:
    """Return git's ``user.name`` as it holds in the repository, None where it is not set."""
    return str(repository.git.config("--get", "user.name", with_exceptions=False)) or None
