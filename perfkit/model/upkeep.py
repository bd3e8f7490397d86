"""What the upkeep of a ledger found and did: compacting, verifying, repairing and merging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS

ProblemKind = Literal[
    "damaged",  # its bytes are not those that were written, or it cannot be decoded
    "unreadable",  # the system does not let it be read
    "foreign",  # a parquet file that is not part of a ledger
    "newer",  # of a newer perfkit
    "misnamed",  # its name is that of another run than its rows
    "impossible",  # rows that no perfkit writes
    "twice",  # another file has the same rows of the same run
    "differs",  # another file has other rows of the same run
    "replaced",  # another file has taken its place
    "hidden",  # another file lists it as replaced, and cannot be read or does not have its rows
    "temporary",  # of a process that was killed
    "staged",  # a run that was cut off
    "staged damage",  # a staged file that cannot be read whole
    "statement",  # a note or an acceptance that cannot be read
]
ActionKind = Literal["recovered", "quarantined", "removed", "rewritten"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong with a file, named from the ledger's folder, and what to do about it."""

    kind: ProblemKind
    file: str
    what: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What is in a ledger and all that is wrong with it; ``unsealed`` files have no checksum."""

    ledger: str
    files: int
    rows: int
    runs: int
    unsealed: int
    statements: int
    quarantined: int
    problems: tuple[Problem, ...]

    @property
    def exit_code(self) -> int:
        """Whether all is well."""
        return EXIT_NOT_MEASURED if self.problems else EXIT_PASS


@dataclass(frozen=True, kw_only=True)
class Part:
    """Files that one ``file`` replaces, with their bytes.

    ``month`` reads as 2026-01; None where files of several months become one.
    """

    month: str | None
    files: tuple[str, ...]
    bytes_before: int
    rows: int | None = None
    file: str | None = None
    bytes_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """What a compaction did, or would do; ``problems`` prevented it for some files.

    ``removed`` files had been replaced before; ``in_git`` is whether git keeps what was removed.
    """

    ledger: str
    dry_run: bool
    parts: tuple[Part, ...]
    files_before: int
    files_after: int
    removed: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    in_git: bool = False

    @property
    def exit_code(self) -> int:
        """Whether all was done."""
        return EXIT_NOT_MEASURED if self.problems else EXIT_PASS


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a repair did with a file, and why; ``to`` is the file that has what it held."""

    kind: ActionKind
    file: str
    why: str
    to: str | None = None


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What a repair did, or would do, and what it ``left``; that is not known before it is done.

    Git has a version of the ``tracked`` ones of the files that were moved into quarantine.
    """

    ledger: str
    dry_run: bool
    actions: tuple[Action, ...]
    left: tuple[Problem, ...]
    in_git: bool = False
    tracked: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Whether all is well now."""
        return EXIT_NOT_MEASURED if self.left else EXIT_PASS


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What was copied from another ledger, and its ``problems``; ``removed`` files are now held twice."""

    ledger: str
    other: str
    dry_run: bool
    copied: tuple[str, ...]
    known: int
    statements: int
    runs: int
    removed: tuple[str, ...] = ()
    staged: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def exit_code(self) -> int:
        """Whether all could be taken over."""
        return EXIT_NOT_MEASURED if self.problems else EXIT_PASS
