"""Renders ``docs/measured/peers.md`` from the tools' kept outcomes: ``python benchmarks/peers/table.py``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from contest import LEDGERS, read_outcomes
from pairs import AGAIN, NEWER, QUICK_PYPERF, Pair, plan_pairs
from plan import HARD, SIX

from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.interval import lower_bound, upper_bound

DOCUMENT = Path(__file__).parents[2] / "docs" / "measured" / "peers.md"
_TRUE_CHANGE = 0.05
_COLUMNS = (
    "tool and rule",
    "identical pairs flagged (at most)",
    "only the slowdown found (at least)",
    "undecided pairs",
    "error",
    "seconds",
)
Outcome = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a rule found of a pair: ``benchmark`` is the slowed one, ``of`` how many were measured.

    ``undecided`` is None where the rule knows no such answer.
    """

    rule: str
    benchmark: str | None
    of: int
    slower: Sequence[str]
    faster: Sequence[str]
    undecided: Sequence[str] | None
    ratios: Mapping[str, float]
    wall_s: float

    @property
    def named(self) -> int:
        """How many benchmarks it accuses or praises."""
        return len(self.slower) + len(self.faster)

    @property
    def finds_slowdown(self) -> bool:
        """Whether it accuses the slowed benchmark, and no other, and praises none."""
        return list(self.slower) == [self.benchmark] and not self.faster


def main() -> None:
    """Write the document."""
    machines = name_machines(Ledger(LEDGERS / NEWER).rows())
    text = render(read_outcomes(NEWER), machines, read_again())
    DOCUMENT.write_text(text, encoding="utf-8")
    print(f"wrote {DOCUMENT}")


def read_again() -> dict[str, list[Outcome]]:
    """Return what perfkit and asv found each time that they met alone."""
    return {contest: [*read_outcomes(contest)] for contest in AGAIN}


def render(
    outcomes: Sequence[Outcome],
    machines: str,
    again: Mapping[str, Sequence[Outcome]] = MappingProxyType({}),
) -> str:
    """Return the document as markdown; a tool that broke is counted as neither right nor wrong, and named."""
    notes = [f"- pair {one['pair']}, {one['tool']}: {one['error']}" for one in outcomes if "error" in one]
    broken = ["", "Not measured:", "", *notes] if notes else []
    head = _INTRODUCTION.format(
        contest=NEWER,
        done=_pairs_done(outcomes, plan_pairs()),
        of=len(plan_pairs()),
        machines=machines,
        best=", ".join(_best(outcomes)) or "none",
    )
    parts = [head, *_table(outcomes, SIX), _HARD_ONES, *_table(outcomes, HARD), *broken, _RULES]
    return "\n".join([*parts, *_once_more(again)])


def _best(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the rules that flag no identical code of the six benchmarks and find each slowdown."""
    judged = [*_judged(one for one in outcomes if list(one["benchmarks"]) == list(SIX))]
    right = {one.rule: True for one in judged}
    for one in judged:
        right[one.rule] &= one.finds_slowdown if one.benchmark else not one.named
    return [rule for rule, always in right.items() if always]


def _once_more(again: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield what came of perfkit and asv alone."""
    if not any(again.values()):
        return
    yield from _ONCE_MORE.format(day=AGAIN[0]).splitlines()
    yield from table_head(_COLUMNS)
    for contest, outcomes in again.items():
        yield from (table_row([f"{contest}: {rule}", *cells]) for rule, *cells in _lines(_judged(outcomes)))
    yield ""


def name_machines(rows: Iterable[Row]) -> str:
    """Return the processors, and how many of perfkit's gates ran on each."""
    processors = {row.run_id: str(row.machine.facts.get("cpu")) for row in rows}
    return ", ".join(f"{count} on {cpu}" for cpu, count in Counter(processors.values()).items())


_INTRODUCTION = """# How do other tools judge the same commits?

<!-- written by `make peers` from benchmarks/peers/outcomes.jsonl -->

The same benchmarks and pairs of commits went through perfkit, three other tools and a plain t-test. Rules
that flagged no identical code and found every slowdown of the six benchmarks of short calls: {best}.

```text
make peers   # runs what is left of the contest, and writes this page: 80 minutes in all
```

**Method.** Half of the pairs are identical code; in the others one benchmark does 5 % more of its own work.
The tools take turns on the same machine ({machines}), in environments built beforehand, with the
same allocator settings. Pairs and order were fixed on {contest}. {done} of {of} pairs have run. Flagged means
called slower or faster. Brackets: exact one-sided binomial bounds at 95 %. The error is the median absolute
difference between the ratio of the slower benchmark and 1.05; seconds are wall time per benchmark.

## Six benchmarks of short calls
"""
_HARD_ONES = """
## Two noisy benchmarks

Two loader workers, and calls of 0.3 s in threads:
"""
_RULES = """
## The rules

- perfkit: the gate at margin 2 % with its defaults, checkouts included in its time. A pair is undecided where
  a benchmark is INCONCLUSIVE or NOT REACHED.
- asv: `asv continuous -a rounds=4 --interleave-rounds`, with its default factor of 1.1 and with 1.02.
  Undecided is what lies beyond the factor and is not significant ("~").
- pytest-benchmark: `--benchmark-compare-fail` by mean and by minimum. It never calls anything faster.
- pyperf: `pyperf compare_to --min-speed=2`; `--fast`, on every second pair, since it takes as long as all
  others together.
- t-test: twenty fresh processes of each side in turns, and Welch's test of the logarithms at 1 %.

None but perfkit corrects for many benchmarks.
"""
_ONCE_MORE = """## perfkit and asv once more

On {day}, when a launch cost perfkit less, on an Intel Xeon and on an AMD EPYC as above. perfkit measures
until it can decide, so its time follows the noise.

"""


def _pairs_done(outcomes: Sequence[Outcome], plan: Iterable[Pair]) -> int:
    """Return how many pairs have had all the tools that are planned for them."""
    had = {(one["pair"], one["tool"]) for one in outcomes}
    return sum(all((pair.number, tool) in had for tool in pair.tools) for pair in plan)


def _table(outcomes: Sequence[Outcome], benchmarks: Sequence[str]) -> list[str]:
    """Return the table of the pairs of some benchmarks: a line for each rule."""
    judged = _judged(one for one in outcomes if list(one["benchmarks"]) == list(benchmarks))
    return [*table_head(_COLUMNS), *map(table_row, _lines(judged))]


def _lines(judged: Iterable[Judged]) -> Iterator[list[str]]:
    """Yield the cells of each rule, in the order of the tools."""
    ordered = sorted(judged, key=_place)
    for rule in dict.fromkeys(one.rule for one in ordered):
        yield [rule, *_cells([one for one in ordered if one.rule == rule])]


def _place(judged: Judged) -> int:
    """Return the place of a rule's line: that of its tool."""
    beginnings = ("perfkit", "asv", "pytest-benchmark", "t-test", QUICK_PYPERF, "pyperf")
    return next(place for place, begin in enumerate(beginnings) if judged.rule.startswith(begin))


def _judged(outcomes: Iterable[Outcome]) -> Iterator[Judged]:
    """Yield what each rule found of a contest's outcomes."""
    for one in outcomes:
        for judgement in one.get("judgements", ()):
            # Without a margin pyperf answers another question, and flags as many.
            if not judgement["rule"].endswith("compare_to"):
                yield Judged(
                    **judgement, benchmark=one["benchmark"], of=len(one["benchmarks"]), wall_s=one["wall_s"]
                )


def _cells(judged: Sequence[Judged]) -> list[str]:
    alike = [one for one in judged if one.benchmark is None]
    slowed = [one for one in judged if one.benchmark is not None]
    accused = sum(bool(one.named) for one in alike)
    hits = sum(one.finds_slowdown for one in slowed)
    return [
        f"{accused}/{len(alike)} ({100 * upper_bound(accused, len(alike)):.0f} %)",
        f"{hits}/{len(slowed)} ({100 * lower_bound(hits, len(slowed)):.0f} %)",
        _undecided(judged),
        _error(slowed),
        f"{statistics.median(one.wall_s / one.of for one in judged):.1f}",
    ]


def _undecided(judged: Sequence[Judged]) -> str:
    answers = [one.undecided for one in judged if one.undecided is not None]
    return f"{sum(map(bool, answers))}/{len(answers)}" if answers else "-"


def _error(slowed: Sequence[Judged]) -> str:
    read = [one.ratios.get(str(one.benchmark)) for one in slowed]
    errors = [abs(ratio - 1 - _TRUE_CHANGE) for ratio in read if ratio is not None]
    return f"{100 * statistics.median(errors):.1f} %" if errors else "-"


if __name__ == "__main__":
    main()
