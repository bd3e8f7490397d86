"""The commits of a range, and the findings that their messages accept.

A trailer, in the last paragraph of a commit's message, reads ``Perf-Accept: BENCHMARK: reason`` or
``Perf-Accept: BENCHMARK -- reason``. BENCHMARK is a node id or the end of one. It ends at the first ": " or
" -- " right behind its last part: a Python name, with parameters up to the first "]" that one of the two
follows. So parameters may hold spaces, colons and brackets, and the reason may hold anything.

A patch names a change by its content, which a rebase or a squash leaves as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from perfkit.errors import RepositoryError
from perfkit.model.comparisons import SHOWN_DIGITS, Acceptance, is_placeholder
from perfkit.repo.files import is_code
from perfkit.repo.git import list_with_git, printable, run_git, try_git
from perfkit.repo.working_tree import without_outputs

KEY = "Perf-Accept"
# The prefix "file::" is matched as little as possible, so that a "::" in the reason does not belong to it.
_VALUE = re.compile(r"(?P<benchmark>(?:[^\[]+?::)??\w+(?:\[.*?\])?)(?::|\s--)\s+(?P<reason>.+)")
# "unfold" makes a trailer one line; an author's name is always one line.
_FORMAT = f"%H%n%an%n%(trailers:key={KEY},valueonly,unfold)"
_DIGITS = 40
_HUNK = re.compile(r"@@ -[0-9,]+ \+[0-9,]+ @@", re.MULTILINE)
_BLOBS = re.compile(r"^index [0-9a-f]+\.\.[0-9a-f]+.*\n", re.MULTILINE)
_TREE = ("diff-tree", "-r", "--no-renames")
# What the user's settings could change is named.
_PATCH = ("-p", "-U3", "--binary", "--full-index", "--diff-algorithm=myers", "--no-color", "--no-ext-diff")


def commits_in(top: Path, base_sha: str, head_sha: str) -> tuple[str, ...]:
    """Return head and the other commits of base..head, newest first."""
    return tuple(dict.fromkeys([head_sha, *_log(top, base_sha, head_sha, "%H")]))


def accepted_in(top: Path, base_sha: str, head_sha: str) -> tuple[tuple[Acceptance, ...], tuple[str, ...]]:
    """Return the acceptances in the messages of base..head, newest first, and warnings on unreadable ones."""
    read = [
        read_acceptance(sha, author, value)
        for record in _log(top, base_sha, head_sha, _FORMAT)
        for sha, author, trailers in [record.split("\n", 2)]
        for value in trailers.split("\n")[:-1]
    ]
    acceptances = tuple(found for found in read if isinstance(found, Acceptance))
    return acceptances, tuple(found for found in read if isinstance(found, str))


def read_acceptance(sha: str, author: str, value: str) -> Acceptance | str:
    """Return the acceptance that a trailer's value holds, or a warning where it holds none."""
    match = _VALUE.fullmatch(value.strip())
    if match is None or is_placeholder(match["reason"]):
        expected = f'expected "{KEY}: BENCHMARK: reason"'
        hint = expected if match is None else f"write your own reason in place of {match['reason']}"
        return f'commit {sha[:SHOWN_DIGITS]}: the trailer "{KEY}: {value}" accepts nothing; {hint}'
    return Acceptance(
        benchmark=match["benchmark"], reason=match["reason"], commit=sha, author=author or None, verdict=None
    )


def _log(top: Path, base_sha: str, head_sha: str, form: str) -> list[str]:
    options = ["-z", "--no-show-signature", "--encoding=UTF-8", f"--format={form}"]
    try:
        text = run_git(top, "log", *options, f"{base_sha}..{head_sha}", "--")
    except RepositoryError as error:
        raise RepositoryError(
            f"git cannot list the commits from {base_sha[:10]} to {head_sha[:10]};"
            " `git fetch --unshallow` brings history that a shallow clone lacks"
        ) from error
    return printable(text).split("\0")[:-1]


def patch_of(top: Path, first: str, last: str, *, ignored: Sequence[Path]) -> str | None:
    """Return a hash of the edits between two commits to files that may be code, None where there are none.

    Edits have three lines around them and count with their white space; where in a file they are does not.
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
