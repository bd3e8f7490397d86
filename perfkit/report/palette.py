"""The colours of verdicts in pictures, and of all that pages and pictures are drawn with."""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.model.comparisons import Verdict

NO_COLOUR = "#687082"
COLOURS: Mapping[Verdict | None, str] = {
    "REGRESSED": "#c8452f",
    "IMPROVED": "#2c8a57",
    "UNCHANGED": "#4a6fa5",
    "NOT SLOWER": "#4a6fa5",
    "INCONCLUSIVE": "#b07c12",
}
# Colours of pages by what they are for, on light and on dark paper.
LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "card": "#f7f8fa",
    "ink": "#1d2330",
    "dim": "#5d6577",
    "line": "#e0e4eb",
    "calm": "#4a6fa5",
    "band": "#4a6fa52e",
    "worse": "#c8452f",
    "better": "#237a4b",
    "warn": "#8f640c",
    "focus": "#1a6cd6",
}
DARK: Mapping[str, str] = {
    "paper": "#171b24",
    "card": "#1f2430",
    "ink": "#e6e8ee",
    "dim": "#a0a9ba",
    "line": "#333a48",
    "calm": "#86aee6",
    "band": "#86aee633",
    "worse": "#f28670",
    "better": "#63c98f",
    "warn": "#e3b557",
    "focus": "#7fb4ff",
}
