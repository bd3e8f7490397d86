"""Ask `perfkit why` about each loop of the family, and measure by turns what the change really gives.

python benchmarks/why/why_study.py [--only mlp-sync] [--steps 300] [--out benchmarks/why/outcomes.json]
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from family import LOOPS, line_of, text_of

_SETUP, _AHEAD = 0.1, 4
# What the machine's noise leaves unknown of a measured gain.
_Z = 2.0
# Loops are measured anew, up to so often, until so much time has passed.
_MOST_TIMES, _ENOUGH_S = 3, 20.0


def main() -> None:
    """Try all loops, print a line for each, and write what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = []
    for model, fault in LOOPS:
        if given.only and f"{model}-{fault}" not in given.only:
            continue
        found.append(_tried(model, fault, given.steps))
        sys.stdout.write(json.dumps(found[-1]) + "\n")
        sys.stdout.flush()
        if given.out:
            given.out.write_text("[\n" + ",\n".join(json.dumps(one) for one in found) + "\n]\n")
    named, foreseen = (sum(one[key] for one in found) for key in ("named_first", "within"))
    sys.stdout.write(f"of {len(found)}: named first {named}, gain within its interval {foreseen}\n")


def _tried(model: str, fault: str, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = text_of(model, fault, faulty=True)
        (folder / "train.py").write_text(text)
        env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        command = [
            sys.executable,
            "-m",
            "perfkit",
            "why",
            "train.py",
            "--steps",
            str(steps),
            "--json",
            "why.json",
        ]
        begun = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        took_s = time.perf_counter() - begun
        if done.returncode:
            return {
                "loop": f"{model}-{fault}",
                "named_first": False,
                "within": False,
                "error": done.stderr[-500:],
            }
        report = json.loads((folder / "why.json").read_text())
        none: dict[str, Any] = {"name": "", "place": "", "gain": [0, 0, 0], "change": ""}
        first = next(iter(report["causes"]), none)
        line = line_of(text)
        place = first["place"].rpartition(":")[2]
        is_named = first["name"] == fault and (
            not line or fault in ("loader", "float64") or place == str(line)
        )
        workers = next(
            (
                word[12:]
                for word in first["change"].replace(",", "").split()
                if word.startswith("num_workers=")
            ),
            "1",
        )
        (folder / "clean.py").write_text(text_of(model, fault, faulty=False, workers=workers))
        share, sure = _measured(folder, steps)
        low, likely, high = first["gain"]
        return {
            "loop": f"{model}-{fault}",
            "named": f"{first['name']} {first['place']}",
            "named_first": is_named,
            "step_ms": round(1e3 * report["step_s"], 3),
            "foreseen": [round(low, 3), round(likely, 3), round(high, 3)],
            "measured": round(share, 3),
            "sure_to": round(sure, 3),
            "within": is_named and low <= share <= high,
            "others": [f"{one['name']} {one['place']} {one['gain'][1]:.3f}" for one in report["causes"][1:3]],
            "took_s": round(took_s, 1),
            "load": round(os.getloadavg()[1], 1),
        }


def _measured(folder: Path, steps: int) -> tuple[float, float]:
    """Return the share of a step that goes with the fault, and to how much that is sure."""
    sys.path.insert(0, str(folder))
    for name in ("train", "clean"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    # Workers find what they run in the module of this name.
    modules: list[Any] = [importlib.import_module(name) for name in ("train", "clean")]
    begun, pairs = time.perf_counter(), []
    for _ in range(_MOST_TIMES):
        pairs += _by_turns(modules, steps)
        if time.perf_counter() - begun > _ENOUGH_S:
            break
    sys.path.remove(str(folder))
    share = 1 - sum(clean for _, clean in pairs) / sum(faulty for faulty, _ in pairs)
    ratios = [1 - clean / faulty for faulty, clean in pairs]
    return share, _Z * statistics.stdev(ratios) / len(ratios) ** 0.5


def _by_turns(modules: Sequence[Any], steps: int) -> list[tuple[float, float]]:
    """Return the seconds of each turn of both loops, after the set-up."""
    loops = [(module.THREADS, module.train(steps)) for module in modules]
    first = round(_SETUP * steps)
    size = max(1, first // 3)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(steps // (size + _AHEAD)):
        order = (0, 1) if number % 2 else (1, 0)
        for side in order:
            threads, loop = loops[side]
            torch.set_num_threads(threads)
            # What workers made ahead while the other side had its turn is none of this turn.
            for _ in itertools.islice(loop, _AHEAD):
                pass
            begun = time.perf_counter()
            for _ in itertools.islice(loop, size):
                pass
            times[side].append(time.perf_counter() - begun)
    return list(zip(*times, strict=True))[first // (size + _AHEAD) :]


if __name__ == "__main__":
    main()
