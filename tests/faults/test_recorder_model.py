"""Two ledgers do as two dictionaries do, however much is recorded, compacted, merged and cut off."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from synthetic import START, build_row

from perfkit.ledger.files import OnStep
from perfkit.ledger.maintenance import compact, merge, repair
from perfkit.ledger.recording import Run, recover
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.model import Row

# `make slow` and `make fuzz` try more of them.
_EXAMPLES = int(os.environ.get("PERFKIT_FUZZ_EXAMPLES", "6"))
_MORE_EXAMPLES = 24
_places = st.integers(0, 1)
# At which step of an operation the power fails; most operations have fewer, and end before that.
_steps = st.integers(1, 7)


class _PowerFailure(BaseException):
    """The machine is off: what the disk held at that moment is what is left."""


@dataclass
class Place:
    """A ledger, and what it should hold: the launches of each run, and whether they are marked partial."""

    folder: Path
    filed: dict[str, tuple[tuple[int, ...], bool]] = field(default_factory=dict)
    staged: dict[str, tuple[int, ...]] = field(default_factory=dict)
    open: dict[str, Run] = field(default_factory=dict)

    def ledger(self) -> Ledger:
        """Return the ledger as a new process opens it."""
        return Ledger(self.folder)


class Recorder(RuleBasedStateMachine):
    """Operations on two ledgers, each followed by a look at all that a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self._root = Path(tempfile.mkdtemp(prefix="perfkit-model-"))
        self.places = [Place(self._root / name) for name in ("ours", "theirs")]
        for place in self.places:
            place.folder.mkdir()
        self.runs = 0

    def teardown(self) -> None:
        """Leave nothing behind."""
        for place in self.places:
            for run in place.open.values():
                run.leave()
        shutil.rmtree(self._root)

    def _rows(self, run: str, launches: tuple[int, ...]) -> list[Row]:
        minute = int(run[-4:], 16) * 17_000
        return [build_row(0.5 + launch, run=run, minute=minute, launch=launch) for launch in launches]

    @rule(at=_places)
    def begin(self, at: int) -> None:
        """Begin a run; four months hold some twelve."""
        place = self.places[at]
        if len(place.open) < 3:
            self.runs += 1
            run = f"0199{self.runs:04x}-0000-7000-8000-{self.runs:012x}"
            recorded_at = START + timedelta(minutes=self.runs * 17_000)
            place.open[run] = place.ledger().run(source="gate", run_id=run, recorded_at=recorded_at)
            place.staged[run] = ()

    @precondition(lambda self: any(place.open for place in self.places))
    @rule(data=st.data(), launches=st.integers(0, 3))
    def add(self, data: st.DataObject, launches: int) -> None:
        """Add rows, or none."""
        place, run = self._any_open(data)
        before = place.staged[run]
        added = tuple(range(len(before), len(before) + launches))
        place.open[run].add(self._rows(run, added))
        place.staged[run] = before + added

    @precondition(lambda self: any(place.open for place in self.places))
    @rule(data=st.data(), how=st.sampled_from(["publish", "fail", "discard", "leave", "tear"]))
    def end(self, data: st.DataObject, how: str) -> None:
        """End a run: as it should, by an exception, without its rows, by a kill, by one in a line."""
        place, run = self._any_open(data)
        opened = place.open.pop(run)
        rows = place.staged[run]
        if how == "publish":
            opened.publish()
        elif how == "fail":
            opened.__exit__(ValueError, ValueError(), None)
        elif how == "discard":
            opened.discard()
        else:
            opened.leave()
            if how == "tear":
                with opened.staged.open("ab") as stream:
                    stream.write(b"0123456789abcdef [{")
            return
        del place.staged[run]
        if rows and how != "discard":
            place.filed[run] = (rows, how == "fail")

    def _any_open(self, data: st.DataObject) -> tuple[Place, str]:
        choices = [(at, run) for at, place in enumerate(self.places) for run in place.open]
        at, run = data.draw(st.sampled_from(choices))
        return self.places[at], run

    @rule(at=_places)
    def recover(self, at: int) -> None:
        """What was cut off is filed as partial, and what goes on is left alone."""
        place = self.places[at]
        found = {one.run_id for one in recover(place.folder)}
        assert not found & set(place.open)
        self._expect_recovered(place)

    def _expect_recovered(self, place: Place) -> None:
        for run in set(place.staged) - set(place.open):
            if rows := place.staged.pop(run):
                place.filed[run] = (rows, True)

    @rule(at=_places)
    def compact(self, at: int) -> None:
        """Put all that is there into one file."""
        self.places[at].ledger().compact()

    @rule(at=_places)
    def compact_months(self, at: int) -> None:
        """Put the files of each month together."""
        compact(self.places[at].folder, before=None)

    @rule(at=_places)
    def merge(self, at: int) -> None:
        """Take over what the other one has."""
        ours, theirs = self.places[at], self.places[1 - at]
        assert not merge(ours.folder, theirs.folder).problems
        ours.filed = {**theirs.filed, **ours.filed}

    @rule(at=_places)
    def repair(self, at: int) -> None:
        """Repair; nothing is wrong but what was cut off."""
        assert not repair(self.places[at].folder).left
        self._expect_recovered(self.places[at])

    @rule(at=_places, step=_steps, what=st.sampled_from(["publish", "recover", "compact", "merge"]))
    def lose_power(self, at: int, step: int, what: str) -> None:
        """Lose power at a step of an operation: all that goes on in that ledger is cut off there."""
        place, other = self.places[at], self.places[1 - at]
        run = next(iter(place.open), None)
        works: dict[str, Callable[[OnStep], Any]] = {
            "publish": lambda on_step: self._publish(place, run, on_step),
            "recover": lambda on_step: recover(place.folder, on_step=on_step),
            "compact": lambda on_step: Ledger(place.folder, on_step=on_step).compact(),
            "merge": lambda on_step: merge(place.folder, other.folder, on_step=on_step),
        }
        self._until(place, step, works[what])
        seen = _seen(place.folder)
        for name, rows in list(place.staged.items()):
            # What had been published stays so; recovering marks it partial, publishing does not.
            if name in seen:
                assert seen[name][0] == rows
                place.filed[name] = seen[name]
                del place.staged[name]
        for name in seen.keys() - place.filed.keys():
            assert what == "merge"
            place.filed[name] = other.filed[name]

    def _publish(self, place: Place, run: str | None, on_step: OnStep) -> None:
        if run is not None:
            opened = place.open[run]
            opened._on_step = on_step
            opened.publish()

    def _until(self, place: Place, step: int, work: Callable[[OnStep], Any]) -> None:
        """Do something until the power fails; the disk is left as it was at that moment."""
        left = step
        disk = self._root / "disk"

        def on_step(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                shutil.copytree(place.folder, disk)
                raise _PowerFailure

        try:
            work(on_step)
        except _PowerFailure:
            for run in place.open.values():
                run.leave()
            shutil.rmtree(place.folder)
            disk.rename(place.folder)
        else:
            for run in place.open.values():
                run.leave()
        place.open.clear()

    @invariant()
    def a_reader_sees_what_was_filed(self) -> None:
        """Each row once, with its mark, and nothing else."""
        for place in self.places:
            assert place.filed == _seen(place.folder)

    @invariant()
    def nothing_is_wrong(self) -> None:
        """Verifying finds what was cut off, and what a compacting or a publishing had still to remove."""
        for place in self.places:
            found, _ = verify(place.folder)
            assert {problem.kind for problem in found.problems} <= {"staged", "temporary", "replaced"}


def _seen(folder: Path) -> dict[str, tuple[tuple[int, ...], bool]]:
    """Return the launches of each run, and whether they are marked partial."""
    found: dict[str, list[Row]] = {}
    for row in Ledger(folder).rows():
        found.setdefault(row.run_id, []).append(row)
    for rows in found.values():
        assert 1 == len({row.partial for row in rows})
        assert all(row.outcome.values == (0.5 + row.placement.launch,) for row in rows)
    return {
        run: (tuple(row.placement.launch for row in rows), rows[0].partial) for run, rows in found.items()
    }


_SETTINGS = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestRecorder = Recorder.TestCase
TestRecorder.settings = _SETTINGS


class LongerRecorder(Recorder):
    """The same operations, with more examples than the usual run has."""


TestLongerRecorder = pytest.mark.slow(LongerRecorder.TestCase)
TestLongerRecorder.settings = settings(_SETTINGS, max_examples=max(_EXAMPLES, _MORE_EXAMPLES))
