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
    " report/gate/decision stats/planning",
    "occasions": "gating/judge model/comparisons report/gate/wording",
    "plant": "cli/calibrate commands/calibrate gating/aa_runs model/calibration model/policies"
    " report/calibration",
    "plants": "commands/calibrate",
    "planted": "commands/calibrate gating/aa_runs model/policies",
    "rehearsal": "commands/calibrate commands/tasks gating/aa_runs gating/compare ledger/schema"
    " model/policies",
    "creep": "commands/history features/site/series ledger/history/alarms model/history report/history",
    "creeps": "commands/history features/site/series model/history report/history",
    "claims": "features/tricks/command features/tricks/report features/tricks/trick",
    "settle": "interface/timing",
    "settled": "agent/clock",
    "told": "agent/clock",
    "tell": "features/tricks/report",
}
# Tests and studies make and read those names, the folder of a study and the keys of its outcomes. The text of
# a benchmark is its version, so that a word changed there would begin a new series.
_FIELDS = {
    "preloader",
    "preloaders",
    "occasions",
    "plant",
    "planted",
    "rehearsal",
    "creep",
    "creeps",
    "claims",
}
_FIELDS |= {"settle", "strangers"}
_KEPT = {
    "told": "tests/gating/test_filing tests/gating/test_gate_on_a_device benchmarks/bench_perfkit",
    "tell": "tests/asv_project tests/tricks/test_trick_results",
    "said": "benchmarks/strangers/newcomers benchmarks/strangers/strangers",
    "stranger": "benchmarks/bench_losses benchmarks/strangers/strangers",
    "fellow": "benchmarks/bench_losses",
    "whatever": "benchmarks/bench_perfkit",
}


@pytest.mark.parametrize("folder", ["perfkit", "tests", "benchmarks"])
def test_private_words_are_left_in_stored_names_alone(folder: str) -> None:
    found = []
    for file in set((ROOT / folder).rglob("*.py")) - {Path(__file__)}:
        place = file.relative_to(ROOT).with_suffix("").as_posix()
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            for word in map(str.lower, _PRIVATE.findall(line)):
                if folder == "perfkit":
                    stored = place.removeprefix("perfkit/") in _STORED.get(word, "").split()
                else:
                    stored = word in _FIELDS or place in _KEPT.get(word, "").split()
                if not stored:
                    found.append(f"{place}.py:{number}: {line.strip()}")

    assert [] == found
