"""The benchmarks of tricks, as both sides have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from perfkit.records import SIDES, Side
from perfkit.records.tricks import TrickCase

SUITE = Path(__file__).with_name("bench_tricks.py")


def said_to_sides(cases: Sequence[TrickCase]) -> dict[Side, dict[str, str]]:
    """Return the file by which each side knows the cases, and which side it is."""
    named = [[case.trick, case.size] for case in cases]
    return {side: {"cases.json": json.dumps({"side": side, "cases": named})} for side in SIDES}


def node_of(case: TrickCase) -> str:
    """Return the benchmark of a case, as pytest names it."""
    return f"{SUITE.name}::test_trick[{case.trick}-{case.size}]"
