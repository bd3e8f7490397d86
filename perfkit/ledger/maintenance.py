"""Compact, repair and merge ledgers.

Nothing goes before what takes its place is durable and sound, so a kill at any moment loses nothing; and a
new file names those whose place it takes, so nothing counts twice. One process at a time does any of this;
others may record runs and read meanwhile. Another ledger is only read: its files come over byte for byte.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perfkit.errors import LedgerError, UsageError
from perfkit.identity import short_run_id
from perfkit.invocation import signals_put_off
from perfkit.ledger.annotations import Annotations
from perfkit.ledger.files import (
    COMPACTED_FILES,
    QUARANTINE_FOLDER,
    STAGED_FOLDER,
    Listing,
    OnStep,
    begin_hidden_folder,
    compacted_name,
    copy_bytes,
    end_hidden_folder,
    ignore_log,
    is_compacted,
    list_files,
    listed,
    new_file,
    only_one,
    remove_temporary,
    run_end,
    sync_folder,
)
from perfkit.ledger.recording import recover
from perfkit.ledger.schema import SCHEMA
from perfkit.ledger.soundness import (
    ANNOTATIONS,
    ROWS_AT_ONCE,
    FileCheck,
    UnsoundError,
    abandoned_files,
    check_content,
    check_file,
    is_sound,
    run_digests,
    runs_in_several,
    sound_content,
    sound_tables,
    verify,
)
from perfkit.model.upkeep import Action, ActionKind, Compaction, Merge, Part, Problem, Repair

# What goes into one part: read into memory as a whole where its checksum is looked at.
PART_BYTES = 128_000_000
_TIME = re.compile(r"(\d{4})(\d{2})\d{2}T\d{6}Z-")
# Moving one file away may bring back others, which are looked at in the next round.
_MOST_ROUNDS = 4
_MOVED = {"damaged", "foreign", "statement", "staged damage"}


def compact_all(ledger: Path, *, on_step: OnStep = ignore_log) -> None:
    """Put the rows of all files into one; the old ones go only when it is safely written."""
    if not ledger.is_dir():
        return
    with alone(ledger):
        deque(removed_leftovers(ledger, dry_run=False, on_step=on_step, refuse=True), maxlen=0)
        listing = list_files(ledger)
        if len(listing.present) > 1:
            _put_together(tuple(listing.present), listing, on_step=on_step)


def compact(
    ledger: Path,
    *,
    before: str | None,
    dry_run: bool = False,
    part_bytes: int = PART_BYTES,
    on_step: OnStep = ignore_log,
    progress: Callable[[float], None] = lambda _: None,
) -> Compaction:
    """Put the files of each month together, in parts of at most ``part_bytes`` that later ones leave alone.

    ``before`` is the first month to leave as it is, as in 2026-01; None for none. Files whose names do not
    begin with a time are left alone. ``progress`` is called with the share of bytes done.
    """
    with alone(ledger):
        files_before = len(list_files(ledger).names)
        removed = tuple(removed_leftovers(ledger, dry_run=dry_run, on_step=on_step))
        listing = list_files(ledger)
        parts, problems = [], []
        planned = _plan(listing, before, part_bytes)
        total = sum(part.bytes_before for part in planned) or 1
        done = 0
        for part in planned:
            try:
                parts.append(part if dry_run else _compact_part(part, listing, on_step))
            except UnsoundError as error:
                problems.append(error.problem)
            done += part.bytes_before
            progress(done / total)
        fewer = sum(len(part.files) - 1 for part in parts)
    return Compaction(
        ledger=str(ledger),
        dry_run=dry_run,
        parts=tuple(parts),
        files_before=files_before,
        files_after=files_before - fewer - len(removed),
        removed=removed,
        problems=tuple(problems),
    )


@contextmanager
def alone(ledger: Path) -> Iterator[None]:
    """Lock out other maintenance; errors of the disk become one line."""
    try:
        with only_one(ledger):
            yield
    except BrokenPipeError:
        # Not the disk: the reader of the progress has closed its pipe.
        raise
    except OSError as error:
        raise LedgerError(f"cannot change the ledger {ledger} ({error.strerror or error})") from error


def _plan(listing: Listing, before: str | None, part_bytes: int) -> list[Part]:
    planned = []
    for month, files in itertools.groupby(listing.present, key=lambda file: month_of(file.name)):
        if month is not None and (before is None or month < before):
            planned += [_part(month, group) for group in _groups(files, part_bytes) if len(group) > 1]
    return planned


def month_of(name: str) -> str | None:
    """Return the month of a file's name, as in 2026-01, None where it does not begin with a time."""
    found = _TIME.match(name)
    return f"{found[1]}-{found[2]}" if found else None


def _groups(files: Iterator[Path], part_bytes: int) -> Iterator[list[tuple[Path, int]]]:
    group: list[tuple[Path, int]] = []
    total = 0
    for file in files:
        size = file.stat().st_size
        if group and total + size > part_bytes:
            yield group
            group, total = [], 0
        group.append((file, size))
        total += size
    yield group


def _part(month: str, group: Sequence[tuple[Path, int]]) -> Part:
    return Part(
        month=month, files=tuple(file.name for file, _ in group), bytes_before=sum(size for _, size in group)
    )


def _compact_part(part: Part, listing: Listing, on_step: OnStep) -> Part:
    files = [listing.folder / name for name in part.files]
    target, rows = _put_together(files, listing, on_step=on_step)
    return dataclasses.replace(part, rows=rows, file=target.name, bytes_after=target.stat().st_size)


def _put_together(
    files: Sequence[Path], listing: Listing, *, without: Collection[str] = (), on_step: OnStep = ignore_log
) -> tuple[Path, int]:
    """Write the rows of files into one that takes their place, and remove them; return it and its rows."""
    left_out = {file: listing.present[file] | frozenset(without) for file in files}
    _check_holders(files, listing)
    names = {file.name for file in files}
    for file in files:
        names |= {name for name in listing.runs_of(file.name) if run_end(name) not in left_out[file]}
    remove_temporary(listing.folder, COMPACTED_FILES)
    target = listing.folder / compacted_name(files[-1].name, names)
    with ExitStack() as replacing:
        with new_file(target, SCHEMA, replaces=names, on_step=on_step) as writer:
            rows = 0
            for table in _in_groups(_tables(left_out)):
                writer.write_table(table)
                rows += table.num_rows
            if not rows:
                # Otherwise only files that list these runs would be left.
                raise _without_rows(files[0])
            # Who interrupts it now need not find the replaced files beside the one in their place.
            replacing.enter_context(signals_put_off())
        for file in files:
            file.unlink()
            on_step("replaced file removed")
        sync_folder(listing.folder)
    return target, rows


def _without_rows(file: Path) -> UnsoundError:
    what = "it has no row of the runs that it lists"
    return UnsoundError(file, "damaged", what, f"bring it back with `git checkout -- {file}`")


def _check_holders(files: Sequence[Path], listing: Listing) -> None:
    twice = frozenset[str]().union(*(listing.present[file] for file in files))
    for holder in set(listing.present) - set(files) if twice else ():
        if twice & set(map(run_end, listing.runs_of(holder.name))):
            deque(sound_tables(holder), maxlen=0)


def _tables(left_out: Mapping[Path, Collection[str]]) -> Iterator[pa.Table]:
    for file, ends in left_out.items():
        for table in sound_tables(file):
            yield without_runs(table, ends)


def without_runs(table: pa.Table, ends: Collection[str]) -> pa.Table:
    """Return a table without the rows of runs whose ids end so."""
    if not ends:
        return table
    return table.filter(pa.array([short_run_id(run) not in ends for run in table["run_id"].to_pylist()]))


def _in_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= ROWS_AT_ONCE:
            whole = pa.concat_tables(waiting)
            for begin in range(0, rows - rows % ROWS_AT_ONCE, ROWS_AT_ONCE):
                yield whole.slice(begin, ROWS_AT_ONCE)
            rows %= ROWS_AT_ONCE
            waiting = [whole.slice(whole.num_rows - rows)]
    if rows:
        yield pa.concat_tables(waiting)


def removed_leftovers(ledger: Path, *, dry_run: bool, on_step: OnStep, refuse: bool = False) -> Iterator[str]:
    """Yield the files whose place others have taken, and remove each where those are sound."""
    listing = list_files(ledger)
    sound: dict[Path, bool] = {}
    for name in listing.leftovers:
        holders = listing.holders(name)
        for holder in holders:
            if holder not in sound:
                sound[holder] = is_sound(holder)
                if refuse and not sound[holder]:
                    deque(sound_tables(holder), maxlen=0)
        if listing.is_held(name, [holder for holder in holders if sound[holder]]):
            if not dry_run:
                (ledger / name).unlink(missing_ok=True)
                on_step("replaced file removed")
            yield name


def repair(
    ledger: Path,
    *,
    dry_run: bool = False,
    log: Callable[[str], None] = ignore_log,
    progress: Callable[[float], None] = lambda _: None,
) -> Repair:
    """Do what can be done about a ledger's problems without losing a row, and return what is left.

    Damaged and foreign files go into quarantine, replaced and half-written ones are removed, runs that were
    cut off are recovered, and of files with the same rows of a run one stays.
    """
    actions: list[Action] = []
    with alone(ledger):
        if not dry_run:
            actions += [
                Action(
                    kind="recovered",
                    file=f"{STAGED_FOLDER}/{one.staged.name}",
                    why="its run was cut off",
                    to=one.file.name,
                )
                for one in recover(ledger)
                if one.file is not None
            ]
        for _ in range(_MOST_ROUNDS):
            found, checks = verify(ledger, log=log, progress=progress)
            done = list(_Repairer(ledger, checks, dry_run=dry_run).actions(found.problems))
            actions += done
            if dry_run or not done:
                break
    return Repair(
        ledger=str(ledger),
        dry_run=dry_run,
        actions=tuple(actions),
        left=found.problems if not dry_run else _untouched(found.problems, actions),
    )


def _untouched(problems: Sequence[Problem], actions: Sequence[Action]) -> tuple[Problem, ...]:
    files = {action.file for action in actions}
    return tuple(problem for problem in problems if problem.file not in files and problem.kind != "hidden")


class _Repairer:
    """One round of a repair; with ``dry_run`` it only lists the actions."""

    def __init__(self, ledger: Path, checks: Sequence[FileCheck], *, dry_run: bool) -> None:
        self._ledger = ledger
        self._checks = checks
        self._dry_run = dry_run

    def actions(self, problems: Sequence[Problem]) -> Iterator[Action]:
        """Yield each action once it is done."""
        if self._dry_run:
            yield from (
                self._action("recovered", self._ledger / problem.file, problem.what)
                for problem in problems
                if problem.kind == "staged"
            )
        for file in abandoned_files(self._ledger):
            yield self._remove(file, "a process that was killed left it half written")
        listing = list_files(self._ledger)
        readable = [check.file for check in self._checks if check.is_readable]
        gone: set[str] = set()
        for name in listing.leftovers:
            holders = [file for file in listing.holders(name) if file in readable]
            if listing.is_held(name, holders):
                gone.add(name)
                yield self._remove(self._ledger / name, f"{holders[0].name} has taken its place")
        for name, why in list(self._moved(problems, listing, gone)):
            gone.add(name)
            yield self._quarantine(self._ledger / name, why)
        yield from self._made_single(gone)

    def _moved(
        self, problems: Sequence[Problem], listing: Listing, gone: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        for problem in problems:
            if problem.kind in _MOVED and problem.file not in gone:
                yield problem.file, problem.what
        for name in listing.leftovers:
            # Two files that list each other as replaced hide their rows from all readers.
            by = [one for one, names in listing.replaces.items() if name in names]
            if by and not listing.is_held(name, listing.holders(name)) and name not in gone:
                yield by[0], f"it lists {name} as replaced, and does not have its rows"
                return

    def _made_single(self, gone: Collection[str]) -> Iterator[Action]:
        listing = list_files(self._ledger)
        checks = [check for check in self._checks if check.file.name not in gone]
        drop: dict[Path, set[str]] = {}
        for one in runs_in_several(checks, listing):
            if one.is_same:
                drop.setdefault(one.file, set()).add(one.run)
        held = {check.file: set(check.runs) for check in self._checks}
        for file, runs in drop.items():
            which = f"the run {min(runs)}" if len(runs) == 1 else f"{len(runs)} runs"
            why = f"another file has the same rows of {which}"
            shown = {run for run in held[file] if short_run_id(run) not in listing.present[file]}
            if runs == shown:
                yield self._quarantine(file, why)
            else:
                yield self._rewrite(file, runs, why, listing)

    def _remove(self, file: Path, why: str) -> Action:
        if not self._dry_run:
            file.unlink(missing_ok=True)
        return self._action("removed", file, why)

    def _quarantine(self, file: Path, why: str) -> Action:
        folder = self._ledger / QUARANTINE_FOLDER
        target = folder / file.relative_to(self._ledger)
        numbers = itertools.count(2)
        while target.exists():
            target = target.with_name(f"{file.name}.{next(numbers)}")
        if not self._dry_run:
            begin_hidden_folder(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
            sync_folder(target.parent)
            sync_folder(file.parent)
            if file.parent.name == STAGED_FOLDER:
                end_hidden_folder(file.parent)
        return self._action("quarantined", file, why, str(target.relative_to(self._ledger)))

    def _rewrite(self, file: Path, runs: Collection[str], why: str, listing: Listing) -> Action:
        if self._dry_run:
            return self._action("rewritten", file, why)
        ends = {short_run_id(run) for run in runs}
        target, _ = _put_together([file], listing, without=ends)
        return self._action("rewritten", file, why, target.name)

    def _action(self, kind: ActionKind, file: Path, why: str, to: str | None = None) -> Action:
        return Action(kind=kind, file=str(file.relative_to(self._ledger)), why=why, to=to)


def merge(
    ledger: Path,
    other: Path,
    *,
    dry_run: bool = False,
    on_step: OnStep = ignore_log,
    progress: Callable[[float], None] = lambda _: None,
) -> Merge:
    """Copy the files of another ledger whose runs are not here, and its annotations.

    Each is checked first: what is damaged, foreign, newer or has other rows of a run than this ledger stays.
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
                progress(number / len(taker.theirs.present))
            taker.take_file(file)
        for kind in ANNOTATIONS:
            for file in kind.files(other):
                taker.take_annotation(file, kind)
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
        runs = self.theirs.runs_of(file.name)
        if len(runs) != 1 or not is_compacted(file.name):
            return False
        (run,) = runs
        ours = self._of_runs.get(run_end(run))
        return ours is not None and ours.name == run and _is_partial(ours) and not _is_partial(file)

    def take_annotation(self, file: Path, kind: Annotations[Any]) -> None:
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
            what, advice = f"{target} differs", "see which is right, and remove the other"
            self.problems.append(Problem(kind="differs", file=name, what=what, advice=advice))

    def _free_name(self, file: Path) -> Path:
        target = self._ledger / file.name
        if target.exists():
            return self._ledger / compacted_name(file.name, self.theirs.replaces.get(file.name, ()))
        return target

    def _copy(self, content: bytes, target: Path) -> None:
        if not self._dry_run:
            copy_bytes(content, target, on_step=self._on_step)
        self.copied.append(str(target.relative_to(self._ledger)))

    def _compare_same_name(self, file: Path) -> None:
        ours = self._of_runs.get(run_end(file.name))
        if ours is None or is_compacted(ours.name) or is_compacted(file.name):
            return
        if ours.read_bytes() == file.read_bytes():
            return
        check = check_file(file)
        self.problems += check.problems or tuple(self._differing(check))

    def _differing(self, check: FileCheck) -> Iterator[Problem]:
        ends = {run: run_end(short_run_id(run)) for run in check.runs}
        both = {run: self._of_runs[end] for run, end in ends.items() if end in self._of_runs}
        theirs = run_digests(check.file, both) if both else {}
        for run, ours in both.items():
            if self._digests_in(ours)[run] != theirs[run]:
                what = f"it has other rows of the run {run} than {ours}"
                advice = "see which is right, and move the other out of its ledger"
                yield Problem(kind="differs", file=check.file.name, what=what, advice=advice)

    def _digests_in(self, ours: Path) -> Mapping[str, str]:
        if ours not in self._digests:
            self._digests[ours] = run_digests(ours, check_file(ours).runs)
        return self._digests[ours]
