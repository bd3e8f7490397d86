"""Renders ``docs/measured/calibration.md`` from the rows of the study, by ``make calibration-report``.

Verdicts are recomputed from the launches in the ledger; only the words are written by hand.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from gates import Gate, read_gates
from neutral import KINDS
from plan import HARD, NEWER, SIX, SLOWDOWNS, plan_study
from readme import README, fill

from perfkit.errors import EXIT_INCONCLUSIVE
from perfkit.model.comparisons import Calls, Comparison
from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.interval import lower_bound, upper_bound

DOCUMENT = Path(__file__).parents[2] / "docs" / "measured" / "calibration.md"
PLACE = "make calibration-report"
# How many of twenty injected slowdowns of each kind were promised to be found, with nothing else flagged.
_PROMISED = dict(zip((one.kind for one in SLOWDOWNS), (20, 20, 17, 19), strict=True))
_OF_TWENTY = 20
# The kind of injected slowdown that the README shows, by its place in the plan.
_README_SLOWDOWN = 2


def main() -> None:
    """Write the document, and the error rates into the README."""
    gates = list(read_gates(NEWER))
    DOCUMENT.write_text(render(gates), encoding="utf-8")
    fill(PLACE, lines_for_readme(gates))
    print(f"wrote {DOCUMENT}, and its error rates into {README}")


def lines_for_readme(gates: Sequence[Gate]) -> list[str]:
    """Return the two error rates that the README shows: of identical code, and of an injected slowdown."""
    six = _of_six(_measured(gates))
    kind = SLOWDOWNS[_README_SLOWDOWN].kind
    rows = [
        ["50 gates of identical code: any verdict of faster or slower", _accusing(_alike(six))],
        [f"20 injected slowdowns of {kind}: found, and no other benchmark flagged", _found_alone(six, kind)],
    ]
    return _table(["whole gates between real commits", "measured"], rows).splitlines()


def render(gates: Sequence[Gate]) -> str:
    """Return the document as markdown."""
    measured = _measured(gates)
    six = _of_six(measured)
    alike = _alike(six)
    parts = [
        _INTRODUCTION.format(study=NEWER, **_facts(gates, len(plan_study(NEWER)))),
        "## Promised and measured\n",
        _table(_PROMISE, [*_error_rates(measured), *_speeds(six), _not_measured(gates)]),
        _WHAT_IT_MEANS.format(kinds=", ".join(KINDS)),
        _table(_PER_HARD, [_of_hard(name, measured) for name in HARD]),
        "\n## Noise of each benchmark\n",
        _table(_PER_BENCHMARK, [*(_of_benchmark(name, alike) for name in SIX), *_hard_alike(measured)]),
    ]
    return "\n".join(parts) + "\n"


_INTRODUCTION = """# How often is the gate wrong?

<!-- written by `make calibration-report` from the rows in benchmarks/calibration/ledger/ -->

{accused} gates of identical code flagged a benchmark, and {found} of {injected} slowdowns injected
into benchmarks of short calls were found.

```text
make calibration          # runs what is left of the study: 100 minutes in all
make calibration-report   # recomputes every verdict from the kept launches, and writes this page
```

**Method.** {done} of {of} planned gates between real commits have run, with the gate's defaults,
on {machine}:
identical code (A/A), changes that add no work, and slowdowns injected into one of six benchmarks of short
calls, which then do more units of their own work. Sizes, changes and order were fixed on {study}. A gate
starts once `perfkit doctor` expects that it would find +3 % at margin 1 %; {put_off} times one was postponed.
Brackets: exact one-sided binomial bounds at 95 %.
"""
_WHAT_IT_MEANS = """
Flagged means REGRESSED or IMPROVED. Found means that the slower benchmark is REGRESSED and no other is
flagged. The changes that add no work are
{kinds}.
Their 95 % intervals are computed as if all launches were looked at once; since a gate stops when it has
decided, slightly more than 5 % may miss. A series is one benchmark in one gate; the series of a gate share
its noise, so their bound is too narrow.

## Noisy benchmarks

Two loader workers, and two threads, at margin 2 %. Their launches scatter several times as much:
"""
_PROMISE = ["what", "promised", "measured"]
_PER_HARD = [
    "benchmark",
    "A/A: flagged",
    "+5 % found",
    "wall time of a gate of both",
]
_PER_BENCHMARK = [
    "benchmark",
    "per call",
    "UNCHANGED",
    "sd over launches: lower-quartile call",
    "all calls",
    "launches",
]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([*table_head(headings), *map(table_row, rows)])


def _facts(gates: Sequence[Gate], planned: int) -> dict[str, object]:
    """Return what an introduction names."""
    six = _of_six(_measured(gates))
    injected = [gate for gate in six if gate.case.benchmark]
    return {
        "machine": _machine(gates),
        "done": len(gates),
        "of": planned,
        "put_off": sum(gate.put_off for gate in gates),
        "accused": _accusing(_alike(six)),
        "found": sum(gate.finds_slowdown for gate in injected),
        "injected": len(injected),
    }


def _measured(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.measured]


def _of_six(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.benchmarks == SIX]


def _of_hard_ones(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.benchmarks == HARD]


def _alike(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.kind == "A/A"]


def _neutral(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.neutral is not None]


def _error_rates(gates: Sequence[Gate]) -> list[list[str]]:
    """Return what the newer study promised of errors, by its six benchmarks."""
    six = _of_six(gates)
    alike, neutral = _alike(six), _neutral(six)
    undecided = sum(gate.exit_code == EXIT_INCONCLUSIVE for gate in alike)
    missed = sum(len(gate.nominal_misses) for gate in neutral)
    series = sum(len(gate.series) for gate in neutral)
    bound = 100 * upper_bound(missed, series)
    return [
        ["A/A: gates with any benchmark flagged", "none of 50", _accusing(alike)],
        ["A/A at margin 2 %: gates with exit code 3", "at most 1 of 50", _at_most(undecided, len(alike))],
        ["changes that add no work: gates with any benchmark flagged", "none of 30", _accusing(neutral)],
        [
            "changes that add no work: 95 % intervals that miss 0",
            "at most 8 % of series",
            f"{missed} of {series} ({100 * missed / max(series, 1):.1f} %; at most {bound:.1f} %)",
        ],
        *(_found_of_twenty(six, kind, least) for kind, least in _PROMISED.items()),
    ]


def _accusing(gates: Sequence[Gate]) -> str:
    return _at_most(sum(bool(gate.accused) for gate in gates), len(gates))


def _at_least(count: int, of: int) -> str:
    return f"{count} of {of} (at least {100 * lower_bound(count, of):.1f} %)"


def _at_most(count: int, of: int) -> str:
    return f"{count} of {of} (at most {100 * upper_bound(count, of):.1f} %)"


def _found_of_twenty(gates: Sequence[Gate], kind: str, least: int) -> list[str]:
    slowed = [gate for gate in gates if gate.case.kind == kind]
    others = sum(bool(gate.accused - {gate.case.benchmark}) for gate in slowed)
    promised = f"{'at least ' if least < _OF_TWENTY else ''}{least} of {_OF_TWENTY}"
    more = f"; another benchmark flagged in {others}" if others else ""
    return [f"{kind}: found", promised, f"{_found_alone(gates, kind)}{more}"]


def _found_alone(gates: Sequence[Gate], kind: str) -> str:
    slowed = [gate for gate in gates if gate.case.kind == kind]
    return _at_least(sum(gate.finds_slowdown for gate in slowed), len(slowed))


def _speeds(six: Sequence[Gate]) -> list[list[str]]:
    quick = [gate for gate in six if gate.case.kind == SLOWDOWNS[0].kind]
    return [
        ["wall time per benchmark, A/A at margin 2 %, set-up included", "median 3 s", _wall(_alike(six))],
        [f"wall time per benchmark, {SLOWDOWNS[0].kind}, set-up included", "median 6 s", _wall(quick)],
    ]


def _wall(gates: Sequence[Gate]) -> str:
    return f"median {_typical(gates):.1f} s, longest {_longest(gates):.1f} s" if gates else "-"


def _not_measured(gates: Sequence[Gate]) -> list[str]:
    failed = [gate for gate in gates if not gate.measured]
    named = f": case {', '.join(str(gate.case.number) for gate in failed)}" if failed else ""
    return [
        "gates that could not measure all, not counted above",
        "none",
        f"{len(failed) or 'none'}{named}",
    ]


def _of_hard(name: str, gates: Sequence[Gate]) -> list[str]:
    hard = _of_hard_ones(gates)
    alike, slowed = _alike(hard), [gate for gate in hard if gate.case.benchmark == name]
    accused = sum(name in gate.accused for gate in alike)
    found = sum(gate.finds_slowdown for gate in slowed)
    walls = [gate.wall_s for gate in hard]
    return [
        name,
        _at_most(accused, len(alike)),
        _at_least(found, len(slowed)),
        f"median {statistics.median(walls):.1f} s" if walls else "-",
    ]


def _hard_alike(gates: Sequence[Gate]) -> list[list[str]]:
    """Return the hard benchmarks' rows of the table of benchmarks."""
    alike = _alike(_of_hard_ones(gates))
    return [[f"{row[0]} (noisy)", *row[1:]] for row in (_of_benchmark(name, alike) for name in HARD)]


def _typical(gates: Sequence[Gate]) -> float:
    return statistics.median(gate.wall_s for gate in gates) / len(gates[0].case.benchmarks)


def _longest(gates: Sequence[Gate]) -> float:
    return max(gate.wall_s for gate in gates) / len(gates[0].case.benchmarks)


def _of_benchmark(name: str, alike: Sequence[Gate]) -> list[str]:
    found = [gate.comparisons[name] for gate in alike if name in gate.comparisons]
    estimates = [one.estimate for one in found if one.estimate is not None]
    times = [one.base_s for one in found if one.base_s is not None]
    if not estimates:
        return [name, *["-"] * (len(_PER_BENCHMARK) - 1)]
    return [
        name,
        f"{1e3 * statistics.median(times):.2f} ms",
        f"{sum(one.verdict == 'UNCHANGED' for one in found)} of {len(found)}",
        _deviation(found, "typical"),
        _deviation(found, "all"),
        f"{statistics.median(estimate.launches for estimate in estimates):g}",
    ]


def _deviation(found: Sequence[Comparison], calls: Calls) -> str:
    """Return the median sd over launches, a dash where such calls were not timed apart."""
    estimates = [one for entry in found for one in (entry.estimate, entry.other) if one is not None]
    deviations = [one.launch_sd for one in estimates if one.calls == calls and one.launch_sd is not None]
    return f"{100 * statistics.median(deviations):.2f} %" if deviations else "-"


def _machine(gates: Sequence[Gate]) -> str:
    rows = (row for gate in gates for found in gate.rows.values() for row in found)
    first = next(rows, None)
    facts = first.machine.facts if first is not None else {}
    size = f"{facts.get('logical_cpus')} virtual cores, {facts.get('ram_gib')} GiB"
    return f"a shared virtual machine ({facts.get('cpu')}, {size})"


if __name__ == "__main__":
    main()
