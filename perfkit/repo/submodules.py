"""Submodules: ``git worktree add`` leaves them empty, so they are filled from the user's own checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfkit.repo.commands import list_with_git, run_git, run_git_checkout, try_git
from perfkit.repo.filtered import StoredFile, bring_filtered
from perfkit.repo.working_tree import SUBMODULE_MODE, is_initialised, lay_working_tree, submodules
from perfkit.temporary import temporary_folder


def fill_recorded(
    source: Path, target: Path, sha: str, stored: list[StoredFile], *, within: str = ""
) -> Iterator[str]:
    """Fill the submodules of a commit, and theirs, as it records them.

    Args:
        source: the user's checkout of the repository, whatever commit it is at.
        target: a checkout of the commit.
        sha: the commit.
        stored: files whose content was found nowhere are appended here.
        within: the name of the submodule that ``source`` is, for messages.

    Yields:
        A sentence for each submodule that could not be filled.
    """
    for name, recorded in _recorded(source, sha):
        lack = _lack(source / name, recorded, within + name)
        if lack:
            yield lack
        else:
            yield from _export(source / name, recorded, target / name, stored)
            yield from fill_recorded(
                source / name, target / name, recorded, stored, within=f"{within}{name}/"
            )


def fill_as_they_are(
    source: Path, target: Path, stored: list[StoredFile], *, within: str = ""
) -> Iterator[str]:
    """Fill the submodules of the working tree, and theirs, as they are now, uncommitted changes too.

    Files whose content was found nowhere are appended to ``stored``.

    Yields:
        A sentence for each submodule that could not be filled.
    """
    for name in submodules(source):
        submodule = source / name
        lack = _lack(submodule, "HEAD", within + name)
        if lack:
            yield lack
        else:
            head = run_git(submodule, "rev-parse", "HEAD").strip()
            yield from _export(submodule, head, target / name, stored)
            lay_working_tree(submodule, target / name)
            yield from fill_as_they_are(submodule, target / name, stored, within=f"{within}{name}/")


def _recorded(source: Path, sha: str) -> list[tuple[str, str]]:
    """Return the path and the commit of each submodule of a commit."""
    entries = [entry.partition("\t") for entry in list_with_git(source, "ls-tree", "-r", "-z", sha)]
    return [(name, about.split()[2]) for about, _, name in entries if about.startswith(SUBMODULE_MODE)]


def _lack(submodule: Path, sha: str, name: str) -> str | None:
    """Return what keeps a submodule from being filled, None where nothing does."""
    if not is_initialised(submodule):
        return (
            f"submodule {name} is not initialised, so its folder is empty;"
            " `git submodule update --init --recursive` fills it"
        )
    if try_git(submodule, "cat-file", "-e", f"{sha}^{{commit}}") is None:
        return (
            f"submodule {name} lacks commit {sha[:10]}, so its folder is empty;"
            f" `git -C {name} fetch origin {sha}` brings it"
        )
    return None


def _export(submodule: Path, sha: str, target: Path, stored: list[StoredFile]) -> list[str]:
    """Write the files of a submodule's commit; `git archive` would obey export-ignore and leave some out."""
    with temporary_folder() as folder:
        index = folder / "index"
        run_git_checkout(submodule, "read-tree", sha, index=index)
        run_git_checkout(submodule, "checkout-index", "--all", "--force", f"--prefix={target}/", index=index)
        if not target.is_dir():
            return []
        git_folder = Path(run_git(submodule, "rev-parse", "--absolute-git-dir").strip())
        lacking, sentences = bring_filtered(submodule, target, git_folder=git_folder, index=index)
        stored += lacking
        return sentences
