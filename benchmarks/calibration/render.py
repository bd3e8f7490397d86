"""Renders ``docs/calibration.md`` from what the study kept: ``python benchmarks/calibration/render.py``.

Verdicts are recomputed from the launches in the ledger; nothing here is written by hand but the words.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plan import BENCHMARKS, PLANTS, Case, plan_study
from readme import README, fill
from study import DEFAULT_LEDGER, read_outcomes

from perfkit.ledger.store import Ledger
from perfkit.records import Row
from perfkit.records.comparisons import Calls, Comparison, Estimate
from perfkit.stats.binomial import upper_bound
from perfkit.verdict.from_rows import comparison_of
from perfkit.views.gate.wording import change_text, interval_text
from perfkit.views.markdown_table import table_head, table_row

DOCUMENT = Path(__file__).parents[2] / "docs" / "calibration.md"
PLACE = "make calibration-report"
_ACCUSING = ("REGRESSED", "IMPROVED")
_PLANTED = tuple(kind for kind, *_ in PLANTS)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A case that ran: its verdicts by benchmark, its wall time in seconds, and its rows.

    ``put_off`` is how often the machine was unfit for it before.
    """

    case: Case
    exit_code: int
    wall_s: float
    put_off: int
    comparisons: dict[str, Comparison]
    rows: tuple[Row, ...]

    @property
    def accused(self) -> set[str]:
        """The benchmarks judged REGRESSED or IMPROVED."""
        return {name for name, found in self.comparisons.items() if found.verdict in _ACCUSING}

    @property
    def finds_plant(self) -> bool:
        """Whether the planted benchmark was judged REGRESSED, and nothing else accused or praised."""
        planted = self.case.benchmark
        return self.accused == {planted} and self.comparisons[str(planted)].verdict == "REGRESSED"


def main() -> None:
    """Write the document, and its error rates into the README."""
    gates = read_gates(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_LEDGER)
    DOCUMENT.write_text(render(gates), encoding="utf-8")
    fill(PLACE, lines_for_readme(gates))
    print(f"wrote {DOCUMENT}, and its error rates into {README}")


def read_gates(ledger: Path) -> list[Gate]:
    """Return the gates that ran, in the order of the plan."""
    rows: dict[str, list[Row]] = {}
    for row in Ledger(ledger).rows():
        rows.setdefault(row.run_id, []).append(row)
    outcomes = {outcome["subject"]: outcome for outcome in read_outcomes(ledger)}
    return [
        _gate(case, outcomes[case.subject], rows.get(str(outcomes[case.subject]["run_id"]), []))
        for case in plan_study()
        if case.subject in outcomes
    ]


def lines_for_readme(gates: Sequence[Gate]) -> list[str]:
    """Return the table of the error rates."""
    return _table(_PROMISE, _error_rates(gates)).splitlines()


def render(gates: Sequence[Gate]) -> str:
    """Return the document as markdown."""
    alike, planted, rare = _alike(gates), _planted(gates), _rare(gates)
    parts = [
        _INTRODUCTION.format(
            machine=_machine(gates),
            done=len(gates),
            of=len(plan_study()),
            put_off=sum(gate.put_off for gate in gates),
        ),
        "## What was promised, and what was measured\n",
        _table(_PROMISE, [*_error_rates(gates), *_other_promises(gates)]),
        "\n## Plants\n",
        _table(_OF_PLANT, _plants([*planted, *rare])),
        "\n## Each benchmark, in the gates of identical code\n",
        _table(_PER_BENCHMARK, [_of_benchmark(name, alike) for name in BENCHMARKS]),
        "\n## Every gate\n",
        _table(["case", "kind", "wall", "exit", "launches", "undecided"], [_line(gate) for gate in gates]),
    ]
    return "\n".join(parts) + "\n"


_INTRODUCTION = """# How often the gate is wrong, measured

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
_PROMISE = ["what", "promised", "measured"]
_OF_PLANT = ["case", "plant", "read as", "interval", "verdict", "others accused"]
_PER_BENCHMARK = [
    "benchmark",
    "per call",
    "UNCHANGED",
    "sd over launches: typical call",
    "all calls",
    "half-width",
    "launches",
]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([*table_head(headings), *map(table_row, rows)])


def _alike(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.kind == "A/A"]


def _planted(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.kind in _PLANTED]


def _rare(gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.case.rare is not None]


def _error_rates(gates: Sequence[Gate]) -> list[list[str]]:
    alike = _alike(gates)
    accusing = sum(bool(gate.accused) for gate in alike)
    verdicts = [found.verdict for gate in alike for found in gate.comparisons.values()]
    unchanged = verdicts.count("UNCHANGED")
    bound = upper_bound(accusing, len(alike))
    share = unchanged / max(len(verdicts), 1)
    return [
        [
            "A/A: gates with any REGRESSED or IMPROVED",
            "at most 1 of 100",
            f"{accusing} of {len(alike)} (at most {100 * bound:.1f} %)",
        ],
        [
            "A/A at margin 2 %: verdicts that are UNCHANGED",
            "at least 90 %",
            f"{unchanged} of {len(verdicts)} ({100 * share:.1f} %)",
        ],
        *(_found([gate for gate in gates if gate.case.kind == kind], kind) for kind in _PLANTED),
    ]


def _other_promises(gates: Sequence[Gate]) -> list[list[str]]:
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
    return statistics.median(gate.wall_s for gate in gates) / len(BENCHMARKS)


def _longest(gates: Sequence[Gate]) -> float:
    return max(gate.wall_s for gate in gates) / len(BENCHMARKS)


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
    launches = max((row.placement.launch for row in gate.rows), default=-1) + 1
    kind = gate.case.kind if gate.case.benchmark is None else f"{gate.case.kind} in {gate.case.benchmark}"
    walls = f"{gate.wall_s:.1f} s"
    return [
        str(gate.case.number),
        kind,
        walls,
        str(gate.exit_code),
        str(launches),
        ", ".join(undecided) or "none",
    ]


def _is_open(comparison: Comparison) -> bool:
    return comparison.verdict not in (*_ACCUSING, "UNCHANGED")


def _open(name: str, comparison: Comparison) -> str:
    if comparison.verdict == "INCONCLUSIVE":
        return name
    return f"{name} {comparison.verdict} ({comparison.message})"


def _gate(case: Case, outcome: dict[str, object], rows: Sequence[Row]) -> Gate:
    by_benchmark: dict[str, list[Row]] = {}
    for row in rows:
        by_benchmark.setdefault(row.outcome.benchmark.name.rpartition("test_")[2], []).append(row)
    return Gate(
        case=case,
        exit_code=int(str(outcome["exit_code"])),
        wall_s=float(str(outcome["wall_s"])),
        put_off=int(str(outcome["put_off"])),
        comparisons={name: comparison_of(found) for name, found in by_benchmark.items()},
        rows=tuple(rows),
    )


def _reading(gate: Gate) -> str:
    whole = _of_all_calls(gate.comparisons[str(gate.case.benchmark)])
    return f"{change_text(whole)} ({interval_text(whole)})"


def _of_all_calls(found: Comparison) -> Estimate | None:
    """Return what was read of all calls: of a rare dose a typical one has nothing."""
    return next((one for one in (found.other, found.estimate) if one and one.calls == "all"), None)


def _machine(gates: Sequence[Gate]) -> str:
    facts = next((gate.rows[0].machine.facts for gate in gates if gate.rows), {})
    size = f"{facts.get('logical_cpus')} virtual cores, {facts.get('ram_gib')} GiB"
    return f"a shared virtual machine ({facts.get('cpu')}, {size})"


if __name__ == "__main__":
    main()
