"""perfkit is written in the words of its field; words of its own are left only in stored names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_PRIVATE = re.compile(
    r"(?<![a-zA-Z])(preloaders?|plants?|planted|rehears\w+|pace|paces|factorial|strangers?|cures?|creeps?|occasions?"
    r"|claims?|settled?|settles|settling|fellows?|conductor|seam|scouts?|scouted|tally|tallies|lore|told|tells?"
    r"|telling|says?|said|hears?|heard|speaks?|whoever|whatever)(?![a-zA-Z])",
    re.IGNORECASE,
)
# Names in ledgers, JSON documents, options and marks, each in the files that read or write it.
_STORED = {
    "preloader": "gating/rows ledger/schema model/results",
    "preloaders": "gating/judge gating/run model/calibration model/comparisons report/calibration"
    " report/gate/decision stats/components",
    "occasions": "gating/unpaired model/comparisons report/gate/wording",
    "plant": "cli/calibrate commands/calibrate gating/aa_runs model/calibration model/policies"
    " report/calibration",
    "plants": "commands/calibrate",
    "planted": "commands/calibrate gating/aa_runs model/policies",
    "rehearsal": "commands/calibrate commands/tasks gating/aa_runs gating/compare ledger/policies"
    " model/policies",
    "creep": "commands/history features/site/series ledger/history/alarms model/history report/history",
    "creeps": "commands/history features/site/series model/history report/history",
    "claims": "features/tricks/command features/tricks/records features/tricks/verdict",
    "settle": "interface/timing",
    "settled": "agent/clock",
    "told": "agent/clock",
    "tell": "features/tricks/report features/tricks/verdict",
}
_SOURCES = sorted((ROOT / "perfkit").rglob("*.py"))


@pytest.mark.parametrize("folder", sorted({file.relative_to(ROOT / "perfkit").parts[0] for file in _SOURCES}))
def test_private_words_are_left_in_stored_names_alone(folder: str) -> None:
    found = [
        f"{place}.py:{number}: {line.strip()}"
        for file in _SOURCES
        if (place := file.relative_to(ROOT / "perfkit").with_suffix("").as_posix()).split("/")[0]
        == folder.removesuffix(".py")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        for word in _PRIVATE.findall(line)
        if place not in _STORED.get(word.lower(), "").split()
    ]

    assert [] == found
