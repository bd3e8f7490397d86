"""Gates one commit in two environments that cost the same, again and again: ``alike.py [TIMES]``.

The environments differ in a package that no benchmark imports, so that each side has its own interpreter and
group, and nothing else to distinguish it. Each gate adds a line to ``alike.jsonl`` beside this file; those
that are there already are not made again. It exits with 1 where a gate accused or praised a side.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from perfkit.commands.gate import GateRequest, run_gate
from perfkit.config import load_project
from perfkit.gating.design import Terms
from perfkit.model.comparisons import Comparison, Quiet

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from wheels import write_wheel

KEPT = Path(__file__).with_name("alike.jsonl")
# Four quick benchmarks: each generation of such a gate imports twice, so that a gate of many takes long.
_SELECT = "sampler or collate or (200 and not 2000)"
_WRONG = ("REGRESSED", "IMPROVED")


def main() -> None:
    """Make the gates that are missing, and print how many were wrong."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    with tempfile.TemporaryDirectory(prefix="alike-") as folder:
        for seed in range(len(lines), times):
            lines.append(json.dumps(_gate(Path(folder), seed)))
            KEPT.write_text("\n".join(lines) + "\n")
            print(f"{seed + 1} of {times}: {lines[-1]}", flush=True)
    found = [json.loads(line) for line in lines]
    verdicts = [one["verdict"] for gate in found for one in gate["benchmarks"].values()]
    wrong = sum(any(one["verdict"] in _WRONG for one in gate["benchmarks"].values()) for gate in found)
    counted = ", ".join(f"{verdicts.count(one)} {one}" for one in sorted(set(verdicts)))
    print(f"{wrong} of {len(found)} gates were wrong; {counted}")
    if wrong:
        sys.exit(1)


def _gate(folder: Path, seed: int) -> dict[str, object]:
    wheels = [write_wheel(folder, "perfkit_idle", f"{number}.0", "") for number in (1, 2)]
    # The fewer threads, the steadier the machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    request = GateRequest(
        base="HEAD",
        head="HEAD",
        benchmarks=None,
        select=_SELECT,
        terms=Terms(budget_s=60.0),
        # A ledger of its own: in a common one each gate would go on with the one before it.
        ledger=folder / f"ledger-{seed}",
        seed=seed,
        environments={"base": [str(wheels[0])], "head": [str(wheels[1])]},
    )
    report = run_gate(request, project=load_project(Path(__file__).parents[2]), progress=Quiet())
    return {
        "recorded_at": report.recorded_at.isoformat(timespec="seconds"),
        "seconds": round(report.wall_s, 1),
        "benchmarks": {one.benchmark.name.rpartition("::")[2]: _summary(one) for one in report.comparisons},
    }


def _summary(one: Comparison) -> dict[str, object]:
    found = one.estimate
    if found is None:
        return {"verdict": one.verdict}
    numbers = {name: round(getattr(found, name), 5) for name in ("ratio", "low", "high")}
    return {"verdict": one.verdict, **numbers, "launches": found.launches}


if __name__ == "__main__":
    main()
