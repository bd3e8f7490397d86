"""Takes over the runs of another ledger that this one lacks, and what people said beside them.

Files come over as they are, byte for byte, and none that is here is written again. The other ledger is only
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfkit.errors import LedgerError, UsageError
from perfkit.identity import short_run_id
from perfkit.ledger.files import (
    STAGED_FOLDER,
    OnStep,
    compacted_name,
    copy_bytes,
    ignore_log,
    is_compacted,
    list_files,
    listed,
    run_end,
)
from perfkit.ledger.soundness import (
    STATEMENTS,
    FileCheck,
    UnsoundError,
    abandoned_files,
    check_content,
    check_file,
    run_digests,
    sound_content,
)
from perfkit.ledger.statements import Statements
from perfkit.ledger.upkeep import alone, removed_leftovers
from perfkit.model.upkeep import Merge, Problem


def merge(
    ledger: Path,
    other: Path,
    *,
    dry_run: bool = False,
    on_step: OnStep = ignore_log,
    tell: Callable[[float], None] = lambda _: None,
) -> Merge:
    """Copy the files of another ledger whose runs are not here, and its notes, acceptances and states.

    Each is looked at before it is copied. What is damaged, foreign or of a newer perfkit stays where it is,
    and so does a file that tells of a run otherwise than this ledger. Where a compacted file holds runs that
    are here in files of their own, these are removed once it is here. ``tell`` hears which share is done.

    Raises:
        UsageError: the other one is no folder, or the same.
        LedgerError: a folder cannot be read or written.
    """
    if not other.is_dir():
        raise UsageError(f"there is no ledger at {other}; name the folder that holds its parquet files")
    if ledger.exists() and ledger.samefile(other):
        raise UsageError(f"{other} is this very ledger; name another one")
    with alone(ledger):
        if not dry_run:
            for file in abandoned_files(ledger):
                file.unlink(missing_ok=True)
        taker = _Taker(ledger, other, dry_run=dry_run, on_step=on_step)
        for number, file in enumerate(taker.theirs.present):
            if number % (len(taker.theirs.present) // 100 + 1) == 0:
                tell(number / len(taker.theirs.present))
            taker.take_file(file)
        for kind in STATEMENTS:
            for file in kind.files(other):
                taker.take_statement(file, kind)
        removed = () if dry_run else tuple(removed_leftovers(ledger, dry_run=False, on_step=on_step))
    return Merge(
        ledger=str(ledger),
        other=str(other),
        dry_run=dry_run,
        copied=tuple(taker.copied),
        runs=taker.runs,
        known=taker.known,
        statements=taker.statements,
        removed=removed,
        staged=len(listed(other / STAGED_FOLDER, "*.jsonl")),
        problems=tuple(taker.problems),
    )


def _is_partial(file: Path) -> bool:
    """Tell whether all rows of a file are of runs that were cut off; of a damaged one nobody can say so."""
    try:
        return bool(pc.all(pq.read_table(file, columns=["partial"])["partial"]).as_py())
    except (OSError, pa.ArrowException):
        return False


class _Taker:
    """Takes files over, and counts what was taken and what was known; with ``dry_run`` it only counts."""

    def __init__(self, ledger: Path, other: Path, *, dry_run: bool, on_step: OnStep) -> None:
        self.theirs = list_files(other)
        self.copied: list[str] = []
        self.problems: list[Problem] = []
        self.runs = self.known = self.statements = 0
        self._ledger = ledger
        self._dry_run = dry_run
        self._on_step = on_step
        ours = list_files(ledger)
        # A file of its own, where a run has one, comes after those that hold it beside others.
        self._of_runs = {
            run_end(run): file
            for file in sorted(ours.present, key=lambda one: not is_compacted(one.name))
            for run in ours.runs_of(file.name)
            if run_end(run) not in ours.present[file]
        }
        self._digests: dict[Path, Mapping[str, str]] = {}
        # The files of runs whose rows are here, in files of their own or in others.
        self._held = {name for name in ours.names | ours.replaced if not is_compacted(name)}

    def take_file(self, file: Path) -> None:
        """Copy a file if it has a run that is not here, or all of one of which a part is here."""
        runs = self.theirs.runs_of(file.name)
        completes = self._completes(file)
        lacking = runs if completes else runs - self._held
        self.known += len(runs) - len(lacking)
        try:
            if not lacking:
                self._compare_same_name(file)
                return
            content = sound_content(file)
            check = check_content(file, content, replaces=self.theirs.replaces.get(file.name, ()))
            problems = check.problems or (() if completes else tuple(self._differing(check)))
        except UnsoundError as error:
            problems = (error.problem,)
        except FileNotFoundError:
            raise LedgerError(f"{file} went while it was read; do the same again") from None
        if problems:
            self.problems += problems
            return
        self._copy(content, self._free_name(file))
        self._held |= lacking
        self.runs += len(lacking)

    def _completes(self, file: Path) -> bool:
        """Tell whether a file has all of a run that was taken for cut off, and that this ledger has only so.

        It says that it takes the place of the part.
        """
        runs = self.theirs.runs_of(file.name)
        if len(runs) != 1 or not is_compacted(file.name):
            return False
        (run,) = runs
        ours = self._of_runs.get(run_end(run))
        return ours is not None and ours.name == run and _is_partial(ours) and not _is_partial(file)

    def take_statement(self, file: Path, kind: Statements[Any]) -> None:
        """Copy a note or an acceptance that is not here."""
        target = self._ledger / kind.folder / file.name
        name = f"{kind.folder}/{file.name}"
        try:
            kind.read_one(file)
            content = file.read_bytes()
        except (LedgerError, OSError):
            what = f"it is not a readable {kind.noun}"
            self.problems.append(Problem(kind="statement", file=name, what=what, advice=f"see {file}"))
            return
        if not target.exists():
            self._copy(content, target)
            self.statements += 1
        elif target.read_bytes() != content:
            what, advice = f"{target} says something else", "see which is right, and remove the other"
            self.problems.append(Problem(kind="differs", file=name, what=what, advice=advice))

    def _free_name(self, file: Path) -> Path:
        """Return where a file goes: names of older perfkits do not tell what a compacted file holds."""
        target = self._ledger / file.name
        if target.exists():
            return self._ledger / compacted_name(file.name, self.theirs.replaces.get(file.name, ()))
        return target

    def _copy(self, content: bytes, target: Path) -> None:
        if not self._dry_run:
            copy_bytes(content, target, on_step=self._on_step)
        self.copied.append(str(target.relative_to(self._ledger)))

    def _compare_same_name(self, file: Path) -> None:
        """Tell of a run's file whose rows are others here."""
        ours = self._of_runs.get(run_end(file.name))
        if ours is None or is_compacted(ours.name) or is_compacted(file.name):
            return
        if ours.read_bytes() == file.read_bytes():
            return
        check = check_file(file)
        self.problems += check.problems or tuple(self._differing(check))

    def _differing(self, check: FileCheck) -> Iterator[Problem]:
        """Yield what a file of the other ledger says otherwise than the file that has that run here."""
        ends = {run: run_end(short_run_id(run)) for run in check.runs}
        both = {run: self._of_runs[end] for run, end in ends.items() if end in self._of_runs}
        theirs = run_digests(check.file, both) if both else {}
        for run, ours in both.items():
            if self._digests_in(ours)[run] != theirs[run]:
                what = f"it has other rows of the run {run} than {ours}"
                advice = "see which is right, and move the other out of its ledger"
                yield Problem(kind="differs", file=check.file.name, what=what, advice=advice)

    def _digests_in(self, ours: Path) -> Mapping[str, str]:
        """Return a hash of each run in a file of this ledger, which is read once, however many it holds."""
        if ours not in self._digests:
            self._digests[ours] = run_digests(ours, check_file(ours).runs)
        return self._digests[ours]
