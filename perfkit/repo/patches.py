"""Name a change by its content, which a rebase or a squash leaves as it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from perfkit.repo.commands import list_with_git, run_git, try_git
from perfkit.repo.working_tree import is_code, without_outputs

_DIGITS = 40
_HUNK = re.compile(r"@@ -[0-9,]+ \+[0-9,]+ @@", re.MULTILINE)
_BLOBS = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
_TREE = ("diff-tree", "-r", "--no-renames")
# What the user's settings could change is named.
_PATCH = ("-p", "-U3", "--binary", "--full-index", "--diff-algorithm=myers", "--no-color", "--no-ext-diff")


def patch_of(top: Path, first: str, last: str, *, ignored: Sequence[Path]) -> str | None:
    """Return a hash of the edits between two commits to files that may be code, None where there are none.

    Edits have three lines around them and count with their white space; where in a file they are does not.

    Raises:
        RepositoryError: git does not know one of the commits.
    """
    names = list_with_git(top, *_TREE, "-z", "--name-only", first, last)
    code = sorted(filter(is_code, without_outputs(top, names, ignored)))
    if not code:
        return None
    patch = run_git(top, "--literal-pathspecs", *_TREE, *_PATCH, "--no-textconv", first, last, "--", *code)
    edits = _BLOBS.sub("", _HUNK.sub("@@", patch))
    return hashlib.sha256(edits.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def patches_of(top: Path, shas: Sequence[str], *, ignored: Sequence[Path]) -> tuple[str, ...]:
    """Return the patches of some commits, each against its only parent; merges and roots have none."""
    found = []
    for sha in shas:
        parents = (try_git(top, "rev-list", "--parents", "--max-count=1", sha) or "").split()[1:]
        patch = patch_of(top, parents[0], sha, ignored=ignored) if len(parents) == 1 else None
        if patch is not None:
            found.append(patch)
    return tuple(found)


def whole_patch(top: Path, base: str, head: str, *, ignored: Sequence[Path]) -> str | None:
    """Return the patch of all that ``head`` has changed since it left ``base``."""
    begin = try_git(top, "merge-base", base, head)
    return patch_of(top, begin, head, ignored=ignored) if begin else None
