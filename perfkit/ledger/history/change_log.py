"""From what launches measured to the change log."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from perfkit.errors import ConfigError
from perfkit.model import OF_PAIRS, Environment
from perfkit.model.history import (
    Cell,
    ChangeLog,
    Column,
    Entry,
    GateRatio,
    History,
    Kind,
    Measured,
    Measurements,
    SameCode,
    Table,
)
from perfkit.report.markdown_table import cell_code
from perfkit.stats.summary import paired_ratio, summarise

Key = TypeVar("Key")
# Returns where the picture of a benchmark's trend on a machine is, None where there is none.
PictureOf = Callable[[str, str], str | None]
# Returns the ratio that a gate, by its run and benchmark, found between two commits; None if it has none.
GateRatioOf = Callable[[str, str, str | None, str], GateRatio | None]

_DEFAULT_COLUMNS = 4
_UNKNOWN_TIME = datetime.max.replace(tzinfo=UTC)


def most_measured(commits: Mapping[str, int]) -> tuple[Column, ...]:
    """Return the columns of a log without configured ones: the benchmarks with the longest history."""
    names = sorted(commits, key=lambda name: (-commits[name], name))[:_DEFAULT_COLUMNS]
    return tuple(Column(title=cell_code(name.rpartition("::")[2]), benchmark=name) for name in names)


def _no_picture(_benchmark: str, _machine_id: str) -> None:
    return None


def build_change_log(
    found: Measurements,
    columns: Sequence[Column],
    history: History,
    *,
    gate_ratio_of: GateRatioOf,
    picture_of: PictureOf = _no_picture,
) -> ChangeLog:
    """Return the log of what was ``found``, with these columns."""
    _check_unambiguous(columns, {one.benchmark for one in found.measured})
    by_machine = _group(found.measured, lambda one: one.machine_id)
    return ChangeLog(
        tables=tuple(
            _table(group, tuple(columns), history, found, gate_ratio_of, picture_of)
            for group in by_machine.values()
        ),
        dirty_runs=len(found.dirty_runs),
    )


def _check_unambiguous(columns: Sequence[Column], names: Iterable[str]) -> None:
    known = sorted(names)
    for column in columns:
        meant = [name for name in known if column.shows(name)]
        if len(meant) > 1:
            raise ConfigError(
                f'log column "{column.benchmark}" could mean {" or ".join(meant[:2])}; give the whole node id'
            )


def _table(
    measured: Sequence[Measured],
    columns: tuple[Column, ...],
    history: History,
    found: Measurements,
    gate_ratio_of: GateRatioOf,
    picture_of: PictureOf,
) -> Table:
    first = {one.commit: one for one in reversed(measured)}
    ordered = sorted(first, key=lambda sha: _place(sha, first[sha], history))
    places = {sha: place for place, sha in enumerate(ordered)}
    machine_id = measured[0].machine_id
    by_name = _group(measured, lambda one: one.benchmark)
    shown = [
        _ColumnOf([one for name in by_name if column.shows(name) for one in by_name[name]], gate_ratio_of)
        for column in columns
    ]
    entries = tuple(
        Entry(
            commit=sha,
            description=history.notes.get(sha) or first[sha].subject or "",
            cells=tuple(column.cell(sha, before) or column.same_cell(sha, places) for column in shown),
        )
        for before, sha in itertools.pairwise([None, *ordered])
        if sha is not None
    )
    return Table(
        machine=found.machines[machine_id],
        environments=_shown_environments(measured, entries, found),
        columns=tuple(_with_picture(column, by_name, machine_id, picture_of) for column in columns),
        entries=entries,
    )


def _with_picture(column: Column, names: Iterable[str], machine_id: str, picture_of: PictureOf) -> Column:
    pictures = (picture_of(name, machine_id) for name in names if column.shows(name))
    return replace(column, picture=next(pictures, None))


def _shown_environments(
    measured: Sequence[Measured], entries: Sequence[Entry], found: Measurements
) -> tuple[Environment, ...]:
    shown = {cell.env_id for entry in entries for cell in entry.cells if cell is not None}
    known = dict.fromkeys(one.env_id for one in measured)
    return tuple(found.environments[env_id] for env_id in known if env_id in shown)


def _place(sha: str, one: Measured, history: History) -> tuple[float, datetime, str]:
    return (history.order.get(sha, float("inf")), one.commit_time or _UNKNOWN_TIME, sha)


class _ColumnOf:
    """What launches measured of one benchmark on one machine, by commit and by run."""

    def __init__(self, measured: Sequence[Measured], gate_ratio_of: GateRatioOf) -> None:
        self._measured, self._gate_ratio_of = measured, gate_ratio_of
        self._by_commit = _group(measured, lambda one: one.commit)
        self._version = max(measured, key=lambda one: one.recorded_at).version if measured else ""

    @functools.cached_property
    def _timed(self) -> Sequence[Measured]:
        return [one for one in self._measured if one.status == "ok" and one.n]

    @functools.cached_property
    def _timed_at(self) -> Mapping[str, Sequence[Measured]]:
        return _group(self._timed, lambda one: one.commit)

    @functools.cached_property
    def _runs(self) -> Mapping[str, Sequence[Measured]]:
        return _group(self._timed, lambda one: one.run_id)

    @functools.cached_property
    def _alternating(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (one.run_id, one.commit)
            for one in self._timed
            if (one.side == "base" if one.source in OF_PAIRS else one.block is not None)
        )

    @functools.cached_property
    def _same(self) -> SameCode:
        return SameCode.of((_kind(one), one.commit, one.same_as) for one in self._measured if one.same_as)

    def same_cell(self, sha: str, places: Mapping[str, int]) -> Cell | None:
        """Return the cell of a commit without a measurement that runs the same code as another one."""
        for kind in self._same.groups:
            measured = {one.commit: one for one in self._timed if _kind(one) == kind}
            found = self._same.nearest(kind, sha, measured, lambda one: places.get(one, math.inf))
            if found is not None:
                return Cell(same_as=found)
        return None

    def cell(self, sha: str, before: str | None) -> Cell | None:
        """Return the cell of a commit, None without a measurement; ``before`` is the commit one row up."""
        own = self._by_commit.get(sha)
        if not own:
            return None
        is_single = len(own) == 1 and own[0].source not in OF_PAIRS and own[0].block is None
        if is_single and own[0].status == "ok" and own[0].n:
            return _measured_cell(own, sha, self._version)
        newest = max(own, key=lambda one: one.recorded_at)
        failed = [one for one in own if one.run_id == newest.run_id and one.status != "ok" and one.compared]
        if failed or sha not in self._timed_at:
            failure = _failure(failed, own, newest.run_id)
            return None if failure is None else Cell(failure=failure, env_id=newest.env_id)
        run_id = self._choose_run(sha, before)
        shown = self._runs[run_id]
        if shown[0].source not in OF_PAIRS:
            ratio = paired_ratio(_pairs(shown, sha, before))
            cell = _measured_cell(shown, sha, self._version)
            return cell if ratio is None else replace(cell, ratio=ratio)
        # A gate may have run on a busy machine: its ratio holds, its times may not.
        plain = (one for one in self._timed_at[sha] if one.source not in OF_PAIRS)
        alike = _group((one for one in plain if one.version == shown[0].version), lambda one: one.run_id)
        longest = max(alike.values(), key=lambda run: (len(run), run[-1].recorded_at), default=shown)
        cell = _measured_cell(longest, sha, self._version)
        if {(one.side, one.commit) for one in shown} != {("base", before), ("head", sha)}:
            return cell
        return replace(cell, gate=self._gate_ratio_of(run_id, own[0].benchmark, before, sha))

    def _choose_run(self, sha: str, before: str | None) -> str:
        own = _group(self._timed_at[sha], lambda one: one.run_id)
        return max(
            own, key=lambda run: ((run, before) in self._alternating, len(own[run]), own[run][-1].recorded_at)
        )


def _kind(one: Measured) -> Kind:
    return Kind(one.benchmark, one.version, one.machine_id, one.env_id)


def _failure(failed: Sequence[Measured], own: Sequence[Measured], run_id: str) -> str | None:
    if not failed:
        return None
    launches = sum(one.run_id == run_id for one in own)
    first = failed[0]
    word = "skipped" if first.status == "skipped" else "failed"
    share = f" ({len(failed)} of {launches} launches)" if launches > 1 else ""
    return f"{word}{share}: {first.message or first.status}"


def _measured_cell(shown: Sequence[Measured], sha: str, version: str) -> Cell:
    own = shown if len(shown) == 1 else [one for one in shown if one.commit == sha]
    first, mean, sd = own[0], own[0].mean, own[0].sd
    if len(own) > 1 and (summary := summarise([one.mean for one in own if one.mean is not None])):
        mean, sd = summary.mean, summary.sd
    return Cell(
        mean=mean, sd=sd, launches=len(own), env_id=first.env_id, other_version=first.version != version
    )


def _pairs(shown: Sequence[Measured], sha: str, before: str | None) -> list[tuple[float, float]]:
    located = {
        (one.commit, one.block, one.version): one.mean
        for one in shown
        if one.block is not None and one.mean is not None
    }
    return [
        (located[before, block, version], mine)
        for (commit, block, version), mine in located.items()
        if before is not None and commit == sha and (before, block, version) in located
    ]


def _group(measured: Iterable[Measured], key: Callable[[Measured], Key]) -> dict[Key, list[Measured]]:
    groups: dict[Key, list[Measured]] = defaultdict(list)
    for one in measured:
        groups[key(one)].append(one)
    return dict(groups)
