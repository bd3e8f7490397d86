"""Why a benchmark became slower: what differs between a profile of each side."""

from __future__ import annotations

from pathlib import Path

from perfkit.compare.sequential import Contender
from perfkit.explain.findings import findings_beside
from perfkit.explain.functions import function_section
from perfkit.explain.work import Work
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.measure.lockstep.profiled import ProfiledTurn, profile_sides
from perfkit.reading.names import CodeNames
from perfkit.reading.pstats_file import read_pstats
from perfkit.records import SIDES, Side
from perfkit.records.comparisons import Comparison, Explanation
from perfkit.records.readings import Reading
from perfkit.repo.checkout import Roots

_PROFILED_S = 0.5
_MOST_CALLS = 200


def explain(
    comparison: Comparison, contender: Contender, launcher: Launcher, roots: Roots
) -> Explanation | None:
    """Profile a regressed benchmark on both sides and return what moved; None where that failed."""
    name, head_s = comparison.benchmark.name, comparison.head_s or _PROFILED_S
    children = [launcher.start(side, nodes=[name]) for side in SIDES]
    calls = max(1, min(_MOST_CALLS, round(_PROFILED_S / head_s)))
    turns = profile_sides(children, calls=calls, limit_s=contender.limit_s)
    if turns is None:
        return None
    work = Work(unit="call", base=turns["base"].calls, head=turns["head"].calls)
    base, head = (_reading(side, turns[side], roots.root(side)) for side in SIDES)
    section = function_section(base, head, work)
    return Explanation(benchmark=name, section=section, findings=tuple(findings_beside(section, work)))


def _reading(side: Side, turn: ProfiledTurn, root: Path) -> Reading:
    """Read a side's profile; its own files are named by their place in it, so that both sides' are alike."""
    return read_pstats(turn.stats, side, CodeNames(root=str(root)))
