"""Renders ``docs/calibration.md`` from what the studies kept: ``python benchmarks/calibration/render.py``.

Verdicts are recomputed from the launches in the ledgers; nothing here is written by hand but the words. The
document is about the newer study once that has a gate. ``render.py 2026-11-23`` prints the older one's whole.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gates import Gate, read_gates
from neutral import KINDS
from plan import HARD, NEWER, OLDER, OLDER_PLANTS, PLANTS, SIX, plan_study
from readme import README, fill

from perfkit.errors import EXIT_INCONCLUSIVE
from perfkit.model.comparisons import Calls, Comparison, Estimate
from perfkit.report.gate.wording import change_text, interval_text
from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.distributions import lower_bound, upper_bound

DOCUMENT = Path(__file__).parents[2] / "docs" / "calibration.md"
PLACE = "make calibration-report"
# Of twenty plants of each kind of the newer study, so many are to be found alone.
_PROMISED = dict(zip((plant.kind for plant in PLANTS), (20, 20, 17, 19), strict=True))
_OF_TWENTY = 20


def main() -> None:
    """Write the document, and its error rates into the README; or print the document of the older study."""
    if sys.argv[1:] == [OLDER]:
        print(render_older(read_gates(OLDER)))
        return
    if sys.argv[1:]:
        raise SystemExit(f"expected nothing, or {OLDER}, found: {' '.join(sys.argv[1:])}")
    newer, older = read_gates(NEWER), read_gates(OLDER)
    DOCUMENT.write_text(render(newer, older), encoding="utf-8")
    fill(PLACE, lines_for_readme(newer, older))
    print(f"wrote {DOCUMENT}, and its error rates into {README}")


def lines_for_readme(newer: Sequence[Gate], older: Sequence[Gate]) -> list[str]:
    """Return the table of the error rates, the newer study's once that has a gate."""
    rates = _error_rates(_measured(newer)) if newer else _older_error_rates(older)
    return _table(_PROMISE, rates).splitlines()


def render(newer: Sequence[Gate], older: Sequence[Gate]) -> str:
    """Return the document as markdown, of the newer study once that has a gate."""
    return render_newer(newer, older) if newer else render_older(older)


def render_newer(gates: Sequence[Gate], older: Sequence[Gate]) -> str:
    """Return the document of the newer study, and what the older one was promised and came to."""
    measured = _measured(gates)
    six, neutral = _of_six(measured), _neutral(measured)
    alike = _alike(six)
    parts = [
        _INTRODUCTION.format(study=NEWER, **_facts(gates, len(plan_study(NEWER)))),
        "## What was promised, and what was measured\n",
        _table(_PROMISE, [*_error_rates(measured), *_speeds(six), _not_measured(gates)]),
        _WHAT_IT_MEANS,
        "## Changes that add no work\n",
        _table(_OF_KIND, [_of_kind(kind, neutral) for kind in KINDS]),
        "",
        _table(_OF_NEUTRAL, [_of_neutral(gate) for gate in neutral]),
        _HARD_ONES,
        _table(_PER_HARD, [_of_hard(name, measured) for name in HARD]),
        "\n## Plants\n",
        _table(_OF_PLANT, _plants(_planted(gates))),
        "\n## Each benchmark, in the gates of identical code\n",
        _table(_PER_BENCHMARK, [*(_of_benchmark(name, alike) for name in SIX), *_hard_alike(measured)]),
        _HISTORY,
        _BEFORE.format(study=OLDER, done=len(older)),
        _table(_PROMISE, [*_older_error_rates(older), *_older_other_promises(older)]),
        "\n## Every gate\n",
        _table(_EVERY, [_line(gate) for gate in gates]),
    ]
    return "\n".join(parts) + "\n"


def render_older(gates: Sequence[Gate]) -> str:
    """Return the document of the older study."""
    parts = [
        _OLDER_INTRODUCTION.format(**_facts(gates, len(plan_study(OLDER)))),
        "## What was promised, and what was measured\n",
        _table(_PROMISE, [*_older_error_rates(gates), *_older_other_promises(gates)]),
        "\n## Plants\n",
        _table(_OF_PLANT, _plants([*_older_planted(gates), *_rare(gates)])),
        "\n## Each benchmark, in the gates of identical code\n",
        _table(_PER_BENCHMARK, [_of_benchmark(name, _alike(gates)) for name in SIX]),
        "\n## Every gate\n",
        _table(_EVERY, [_line(gate) for gate in gates]),
    ]
    return "\n".join(parts) + "\n"


_OLDER_INTRODUCTION = """# How often the gate is wrong, measured

<!-- written by `make calibration-report` from the rows in benchmarks/calibration/ledger/ -->

A study of whole gates between real commits, with the default budget and settings, on
{machine}:
six unlike benchmarks of short calls (`benchmarks/calibration/suite/`), identical code on both
sides or a slowdown planted in one benchmark as more units of its own work. Sizes, doses and order were
settled before the first gate (`benchmarks/calibration/plan.py`); {done} of {of} gates have run. A gate is
begun while `perfkit doctor` expects that +3 % at margin 1 % would be found: {put_off} times one was put off
by a minute until then. Every gate counts that ran to its end; what is claimed is the exact binomial bound at
95 % (Clopper and Pearson 1934). `make calibration` repeats it.
"""
_INTRODUCTION = """# How often the gate is wrong, measured

<!-- written by `make calibration-report` from the rows in benchmarks/calibration/ledger/ -->

A study of whole gates between real commits, with the default budget and settings, on
{machine}:
six unlike benchmarks of short calls (`benchmarks/calibration/suite/bench_six.py`), and two hard ones in gates
of their own (`bench_hard.py`). Both sides have identical code, or head has a change that adds no work, or a
slowdown is planted in one benchmark as more units of its own work. Sizes, doses, changes and order were
settled before the first gate (`benchmarks/calibration/plan.py`, settled on {study}); {done} of {of} gates
have run. A gate is begun while `perfkit doctor` expects that +3 % at margin 1 % would be found: {put_off}
times one was put off by a minute until then. What is claimed is the exact one-sided binomial bound at 95 %
(Clopper and Pearson 1934). `make calibration` runs what is left of it.
"""
_WHAT_IT_MEANS = """
All but the last line are about the six benchmarks of short calls. Those of plants count a gate as right where
the planted benchmark is REGRESSED and no other one is REGRESSED or IMPROVED. A series is one benchmark in one
gate; series of one gate were measured together, so that the bound on their share takes them for more
independent than they are.
"""
_HARD_ONES = """
The final interval is the one that the verdict rests on, at the gate's own error rate. The 95 % interval is
made of all launches of a series by the same function, as if it were looked at once; since a gate looks
repeatedly and stops when it has decided, somewhat more than 5 % may miss.

## The hard ones

What two worker processes, or two threads, make of a call depends on the machine's scheduler, so that launches
scatter by several times as much. Nothing is promised of them but the gate's error rate; they are gated
apart, at margin 2 %, since they would use up the budget of a gate with the others.
"""
_HISTORY = """
## The history of the suite

Figures of a suite hold for what is in it. This is what was in this one, and why it changed:

- 2026-11-21: six benchmarks in 100 units of work a call. Loading read its batches by two worker processes,
  the tensor operation was large enough for two threads, the loss ran forward and backward, and the
  allocations took four tensors of 160 KB and more.
- 2026-11-23: calls of 20 units, short enough to be timed in slices. For that the tensor operation became too
  small for threads, the loss lost its backward pass, and the allocations became tensors of 16 to 20 KB.
  Loading lost its workers because launches with them scattered by 3 to 8 %. So the study of that day is one
  of easy benchmarks.
- 2026-11-25: the six are as they were. Loading with two worker processes is back as a benchmark of its own,
  and a convolution in threads with calls of some 0.3 s has come: the hard ones.
"""
_BEFORE = """## The study before

{done} gates of the six benchmarks by an earlier gate, its plan settled on {study}. Its whole is printed by
`python benchmarks/calibration/render.py {study}`.
"""
_PROMISE = ["what", "promised", "measured"]
_OF_KIND = ["change", "gates", "accused or praised", "final interval misses 0", "95 % interval misses 0"]
_OF_NEUTRAL = ["case", "change", "final interval misses 0", "95 % interval misses 0", "accused or praised"]
_OF_PLANT = ["case", "plant", "read as", "interval", "verdict", "others accused"]
_PER_HARD = [
    "benchmark",
    "identical: accused or praised",
    "UNCHANGED",
    "+5 % found",
    "half-width",
    "launches",
    "wall time of a gate of both",
]
_PER_BENCHMARK = [
    "benchmark",
    "per call",
    "UNCHANGED",
    "sd over launches: typical call",
    "all calls",
    "half-width",
    "launches",
]
_EVERY = ["case", "kind", "wall", "exit", "launches", "undecided"]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([*table_head(headings), *map(table_row, rows)])


def _facts(gates: Sequence[Gate], planned: int) -> dict[str, object]:
    """Return what an introduction names."""
    return {
        "machine": _machine(gates),
        "done": len(gates),
        "of": planned,
        "put_off": sum(gate.put_off for gate in gates),
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


def _planted(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.benchmark is not None and gate.case.rare is None]


def _older_planted(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.kind in {plant.kind for plant in OLDER_PLANTS}]


def _rare(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.rare is not None]


def _error_rates(gates: Sequence[Gate]) -> list[list[str]]:
    """Return what the newer study promised of errors, by its six benchmarks."""
    six = _of_six(gates)
    alike, neutral = _alike(six), _neutral(six)
    undecided = sum(gate.exit_code == EXIT_INCONCLUSIVE for gate in alike)
    missed = sum(len(gate.nominal_misses) for gate in neutral)
    series = sum(len(gate.series) for gate in neutral)
    bound = 100 * upper_bound(missed, series)
    return [
        ["A/A: gates with any REGRESSED or IMPROVED", "none of 50", _accusing(alike)],
        ["A/A at margin 2 %: gates with exit code 3", "at most 1 of 50", _at_most(undecided, len(alike))],
        ["changes that add no work: gates with any REGRESSED or IMPROVED", "none of 30", _accusing(neutral)],
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
    planted = [gate for gate in gates if gate.case.kind == kind]
    found = sum(gate.finds_plant for gate in planted)
    others = sum(bool(gate.accused - {gate.case.benchmark}) for gate in planted)
    promised = f"{'at least ' if least < _OF_TWENTY else ''}{least} of {_OF_TWENTY}"
    counted = f"{_at_least(found, len(planted))}; another benchmark accused or praised in {others}"
    return [f"{kind}: REGRESSED, that one and no other", promised, counted]


def _speeds(six: Sequence[Gate]) -> list[list[str]]:
    quick = [gate for gate in six if gate.case.kind == PLANTS[0].kind]
    return [
        ["wall time per benchmark, A/A at margin 2 %, set-up included", "median 3 s", _wall(_alike(six))],
        [f"wall time per benchmark, {PLANTS[0].kind}, set-up included", "median 6 s", _wall(quick)],
    ]


def _wall(gates: Sequence[Gate]) -> str:
    return f"median {_typical(gates):.1f} s, longest {_longest(gates):.1f} s" if gates else "-"


def _not_measured(gates: Sequence[Gate]) -> list[str]:
    failed = [gate for gate in gates if not gate.measured]
    named = f": case {', '.join(str(gate.case.number) for gate in failed)}" if failed else ""
    return [
        "gates that could not measure all, counted nowhere above",
        "none",
        f"{len(failed) or 'none'}{named}",
    ]


def _of_kind(kind: str, neutral: Sequence[Gate]) -> list[str]:
    gates = [gate for gate in neutral if gate.case.neutral == kind]
    series = sum(len(gate.series) for gate in gates)
    final = sum(len(gate.final_misses) for gate in gates)
    nominal = sum(len(gate.nominal_misses) for gate in gates)
    accused = sum(bool(gate.accused) for gate in gates)
    return [kind, str(len(gates)), f"{accused}", f"{final} of {series}", f"{nominal} of {series}"]


def _of_neutral(gate: Gate) -> list[str]:
    found = (gate.final_misses, gate.nominal_misses, gate.accused)
    return [str(gate.case.number), str(gate.case.neutral), *map(_names, found)]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _of_hard(name: str, gates: Sequence[Gate]) -> list[str]:
    hard = _of_hard_ones(gates)
    alike, planted = _alike(hard), [gate for gate in hard if gate.case.benchmark == name]
    accused = sum(name in gate.accused for gate in alike)
    found = sum(gate.finds_plant for gate in planted)
    _, _, unchanged, _, _, width, launches = _of_benchmark(name, alike)
    walls = [gate.wall_s for gate in hard]
    return [
        name,
        _at_most(accused, len(alike)),
        unchanged,
        _at_least(found, len(planted)),
        width,
        launches,
        f"median {statistics.median(walls):.1f} s" if walls else "-",
    ]


def _hard_alike(gates: Sequence[Gate]) -> list[list[str]]:
    """Return the hard benchmarks' rows of the table of benchmarks."""
    alike = _alike(_of_hard_ones(gates))
    return [[f"{row[0]} (hard)", *row[1:]] for row in (_of_benchmark(name, alike) for name in HARD)]


def _older_error_rates(gates: Sequence[Gate]) -> list[list[str]]:
    alike = _alike(gates)
    verdicts = [found.verdict for gate in alike for found in gate.comparisons.values()]
    unchanged = verdicts.count("UNCHANGED")
    share = unchanged / max(len(verdicts), 1)
    return [
        [
            "A/A: gates with any REGRESSED or IMPROVED",
            "at most 1 of 100",
            _accusing(alike),
        ],
        [
            "A/A at margin 2 %: verdicts that are UNCHANGED",
            "at least 90 %",
            f"{unchanged} of {len(verdicts)} ({100 * share:.1f} %)",
        ],
        *(
            _found([gate for gate in gates if gate.case.kind == kind], kind)
            for kind in (plant.kind for plant in OLDER_PLANTS)
        ),
    ]


def _older_other_promises(gates: Sequence[Gate]) -> list[list[str]]:
    walls = _walls(_alike(gates), gates)
    return [
        ["+20 % in each tenth call reads as", "+2 % ± 1", ", ".join(map(_reading, _rare(gates))) or "-"],
        ["wall time per benchmark, set-up included, in a quiet hour", "at most 10 s", walls],
    ]


def _found(gates: Sequence[Gate], kind: str) -> list[str]:
    found = sum(gate.finds_plant for gate in gates)
    others = sum(bool(gate.accused - {gate.case.benchmark}) for gate in gates)
    return [
        f"{kind}: REGRESSED, that one and no other",
        "at least 57 of 60",
        f"{found} of {len(gates)}; another benchmark accused or praised in {others}",
    ]


def _walls(alike: Sequence[Gate], gates: Sequence[Gate]) -> str:
    """Return times of gates of identical code, and of their calmer half by the scatter of their launches."""
    if not alike:
        return "-"
    calm = sorted(alike, key=_scatter)[: -(-len(alike) // 2)]
    return (
        f"A/A in the calmer half of the hours: median {_typical(calm):.1f} s, longest {_longest(calm):.1f} s;"
        f" all A/A: median {_typical(alike):.1f} s; all gates: median {_typical(gates):.1f} s,"
        f" longest {_longest(gates):.1f} s"
    )


def _scatter(gate: Gate) -> float:
    estimates = [found.estimate for found in gate.comparisons.values()]
    return statistics.median(one.launch_sd or 0.0 for one in estimates if one is not None)


def _typical(gates: Sequence[Gate]) -> float:
    return statistics.median(gate.wall_s for gate in gates) / len(gates[0].case.benchmarks)


def _longest(gates: Sequence[Gate]) -> float:
    return max(gate.wall_s for gate in gates) / len(gates[0].case.benchmarks)


def _plants(gates: Sequence[Gate]) -> list[list[str]]:
    lines = []
    for gate in gates:
        found = gate.comparisons.get(str(gate.case.benchmark))
        read = (found.estimate if gate.case.rare is None else _of_all_calls(found)) if found else None
        others = sorted(gate.accused - {gate.case.benchmark})
        lines.append(
            [
                str(gate.case.number),
                f"{gate.case.benchmark}: {gate.case.kind}",
                change_text(read) if found else "-",
                interval_text(read) if found else "-",
                found.verdict if found else "-",
                ", ".join(str(other) for other in others) or "none",
            ]
        )
    return lines


def _of_benchmark(name: str, alike: Sequence[Gate]) -> list[str]:
    found = [gate.comparisons[name] for gate in alike if name in gate.comparisons]
    estimates = [one.estimate for one in found if one.estimate is not None]
    times = [one.base_s for one in found if one.base_s is not None]
    if not estimates:
        return [name, *["-"] * (len(_PER_BENCHMARK) - 1)]
    widths = [(estimate.high - estimate.low) / 2 for estimate in estimates]
    return [
        name,
        f"{1e3 * statistics.median(times):.2f} ms",
        f"{sum(one.verdict == 'UNCHANGED' for one in found)} of {len(found)}",
        _deviation(found, "typical"),
        _deviation(found, "all"),
        f"±{100 * statistics.median(widths):.2f} %",
        f"{statistics.median(estimate.launches for estimate in estimates):g}",
    ]


def _deviation(found: Sequence[Comparison], calls: Calls) -> str:
    """Return the median sd over launches, a dash where such calls were not timed apart."""
    estimates = [one for entry in found for one in (entry.estimate, entry.other) if one is not None]
    deviations = [one.launch_sd for one in estimates if one.calls == calls and one.launch_sd is not None]
    return f"{100 * statistics.median(deviations):.2f} %" if deviations else "-"


def _line(gate: Gate) -> list[str]:
    undecided = [_open(name, found) for name, found in gate.comparisons.items() if _is_open(found)]
    rows = (row for found in gate.rows.values() for row in found)
    launches = max((row.placement.launch for row in rows), default=-1) + 1
    walls = f"{gate.wall_s:.1f} s"
    return [
        str(gate.case.number),
        _kind(gate),
        walls,
        str(gate.exit_code),
        str(launches),
        ", ".join(undecided) or "none",
    ]


def _kind(gate: Gate) -> str:
    case = gate.case
    if case.neutral is not None:
        return f"{case.kind}: {case.neutral}"
    if case.benchmark is not None:
        return f"{case.kind} in {case.benchmark}"
    return f"{case.kind} of the hard ones" if case.benchmarks == HARD else case.kind


def _is_open(comparison: Comparison) -> bool:
    return comparison.verdict not in ("REGRESSED", "IMPROVED", "UNCHANGED", "NOT SLOWER")


def _open(name: str, comparison: Comparison) -> str:
    if comparison.verdict == "INCONCLUSIVE":
        return name
    return f"{name} {comparison.verdict} ({comparison.message})"


def _reading(gate: Gate) -> str:
    whole = _of_all_calls(gate.comparisons[str(gate.case.benchmark)])
    return f"{change_text(whole)} ({interval_text(whole)})"


def _of_all_calls(found: Comparison) -> Estimate | None:
    """Return what was read of all calls: of a rare dose a typical one has nothing."""
    return next((one for one in (found.other, found.estimate) if one and one.calls == "all"), None)


def _machine(gates: Sequence[Gate]) -> str:
    rows = (row for gate in gates for found in gate.rows.values() for row in found)
    first = next(rows, None)
    facts = first.machine.facts if first is not None else {}
    size = f"{facts.get('logical_cpus')} virtual cores, {facts.get('ram_gib')} GiB"
    return f"a shared virtual machine ({facts.get('cpu')}, {size})"


if __name__ == "__main__":
    main()
