"""Search for the guilty package between real lock files: ``python benchmarks/bisect/upgrades.py``.

Each case of ``upgrades.toml`` is two lock files and a benchmark. It is timed without perfkit, with only the
guilty package exchanged; then ``perfkit bisect`` has five minutes. Outcomes go into ``upgrades.json``, the
missing ones are made, and the table goes into docs/measured/bisect.md. It needs uv and a package index, and
exits with 1 where fewer than nine searches in ten were right.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
STUDY = Path(__file__).parent
DOCUMENT = STUDY.parents[1] / "docs/measured/bisect.md"
OUTCOMES = STUDY / "upgrades.json"
BEGIN, END = "<!-- upgrades -->\n", "<!-- end of upgrades -->"
LIMIT_S = 300
_NAME = "bench_upgrade.py"
_BENCHMARK = "\n\ndef test_upgrade(benchmark):\n    benchmark(run)\n"
_SETTINGS = '[tool.pytest.ini_options]\npython_files = ["bench_*.py"]\n'
_TIMED = """
import statistics, time
from bench_upgrade import run
run()
ends, times = time.perf_counter() + 0.5, []
while time.perf_counter() < ends:
    began = time.perf_counter()
    run()
    times.append(time.perf_counter() - began)
print(statistics.quantiles(times, n=4)[0])
"""
_TURNS = 5


def read_cases() -> dict[str, dict[str, Any]]:
    """Return the cases by name, each with the versions of its packages."""
    content = tomllib.loads((STUDY / "upgrades.toml").read_text())
    for case in content["case"]:
        known = content["versions"] | case.get("versions", {})
        case["versions"] = {name: known[name] for name in case["packages"].split()}
    return {case["name"]: case for case in content["case"]}


def lock(case: Mapping[str, Any], new: Sequence[str]) -> str:
    """Return a file of requirements with some packages in head's version."""
    pairs = {name: pair[name in new] for name, pair in case["versions"].items()}
    return "".join(f"{name}=={version}\n" for name, version in pairs.items() if version)


def _ran(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout


def timed_by_hand(case: Mapping[str, Any], folder: Path) -> dict[str, float]:
    """Return how many times as long the benchmark takes with the guilty package alone, and with all."""
    guilty = [*case["guilty"].split(), *case.get("along", "").split()]
    kinds = {"base": [], "alone": guilty, "all": [*case["versions"]]}
    for kind, new in kinds.items():
        (folder / f"{kind}.txt").write_text(lock(case, new))
        _ran("uv", "venv", "-q", "-p", sys.executable, kind, cwd=folder)
        _ran("uv", "pip", "install", "-q", "-p", f"{kind}/bin/python", "-r", f"{kind}.txt", cwd=folder)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(_TURNS):
        for kind, own in times.items():
            own.append(float(_ran(f"{kind}/bin/python", "-c", _TIMED, cwd=folder)))
    middle = {kind: statistics.median(own) for kind, own in times.items()}
    return {kind: round(middle[kind] / middle["base"], 3) for kind in ("alone", "all")}


def search(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run the command between both lock files, and return what it found."""
    (folder / "old.txt").write_text(lock(case, []))
    (folder / "new.txt").write_text(lock(case, [*case["versions"]]))
    command = [sys.executable, "-m", "perfkit", "bisect", "--base-with", "old.txt", "--head-with", "new.txt"]
    command += ["--benchmark", f"{_NAME}::test_upgrade", "--budget", str(LIMIT_S), "--json", "found.json"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    print(done.stdout, flush=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    report = json.loads((folder / "found.json").read_text())
    kept = ("answer", "packages", "measured", "pairs", "launches")
    found = [
        {"together": [[change["name"] for change in part] for part in one["together"]]}
        | {name: round(one[name], 3) for name in ("ratio", "low", "high")}
        for one in report["found"]
    ]
    return {"seconds": round(seconds, 1), "found": found} | {name: report[name] for name in kept}


def is_right(case: Mapping[str, Any], outcome: Mapping[str, Any]) -> bool:
    """Return whether the guilty package was named, and no other but those that move along; or none."""
    named = [{name for part in one["together"] for name in part} for one in outcome["found"]]
    if not case["guilty"]:
        return bool(outcome["answer"] == "no change")
    allowed = {case["guilty"], *case.get("along", "").split()}
    return len(named) == 1 and case["guilty"] in named[0] <= allowed


def filled(document: str, outcomes: Mapping[str, Any]) -> str:
    """Return the document with the table of these outcomes."""
    heads = (
        "guilty, and what it changed",
        "by hand",
        "differ",
        "found",
        "seconds",
    )
    lines = [f"| {' | '.join(heads)} |", "| :--- | ---: | ---: | :--- | ---: |"]
    for name, case in read_cases().items():
        one = outcomes[name]
        versions = " to ".join(case["versions"].get(name, ()))
        found = "; ".join(
            f"{' with '.join(' or '.join(part) for part in found['together'])} {_change(found['ratio'])}"
            for found in one["found"]
        )
        cells = (
            f"{' '.join(filter(None, (name, versions)))}: {case['known']}",
            _change(one["by_hand"]["alone"]),
            *(one["packages"], found or one["answer"], round(one["seconds"])),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    before, _, rest = document.partition(BEGIN)
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


def _change(ratio: float) -> str:
    return f"{round(100 * (ratio - 1)) or 0:+} %"


def main() -> None:
    """Make the searches that are missing, and fill the table."""
    outcomes = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    cases = read_cases()
    for name, case in cases.items():
        if name in outcomes:
            continue
        with tempfile.TemporaryDirectory(prefix="upgrade-") as place:
            folder = Path(place)
            (folder / _NAME).write_text(case["benchmark"].lstrip() + _BENCHMARK)
            (folder / "pyproject.toml").write_text(_SETTINGS)
            _ran("git", "init", "-q", cwd=folder)
            _ran("git", "add", "--all", cwd=folder)
            _ran("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "All", cwd=folder)
            outcomes[name] = {"by_hand": timed_by_hand(case, folder), **search(case, folder)}
        OUTCOMES.write_text(json.dumps(outcomes, indent=1) + "\n")
        print(name, outcomes[name], is_right(case, outcomes[name]), flush=True)
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), outcomes))
    right = sum(is_right(case, outcomes[name]) for name, case in cases.items())
    print(f"{right} of {len(cases)} searches were right")
    if right < 0.9 * len(cases):
        sys.exit(1)


if __name__ == "__main__":
    main()
