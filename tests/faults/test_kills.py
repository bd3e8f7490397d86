"""A command that is killed loses nothing that was complete, and the next one leaves nothing of it behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import KINDS, Kind, first_moment, kill_once

# Stopped as by Ctrl-Z before it is killed, and the command that would sweep up after it is killed too.
_HARDEST = "gate"
# A session of pytest is killed by tests/plugin as well; experiments continue in tests/experiments.
_USUAL = ("gate", "backfill", "compact")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind.name in _USUAL else [pytest.mark.slow], id=kind.name)
        for kind in KINDS
    ],
)
def test_a_kill_loses_nothing_and_leaves_nothing(tmp_path: Path, kind: Kind) -> None:
    hardest = kind.name == _HARDEST
    outcome = kill_once(kind, tmp_path, first_moment(kind), stop=hardest, again=1.5 if hardest else None)

    assert () == outcome.problems
    assert outcome.published if kind.runs else outcome.staged
