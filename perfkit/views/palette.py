"""The colours of verdicts in pictures."""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.records.comparisons import Verdict

NO_COLOUR = "#687082"
COLOURS: Mapping[Verdict | None, str] = {
    "REGRESSED": "#c8452f",
    "IMPROVED": "#2c8a57",
    "UNCHANGED": "#4a6fa5",
    "INCONCLUSIVE": "#b07c12",
}
