"""Judges the gate by public commits that promise a speed-up: ``speedups.py [--again PATTERN]``.

Each case of speedups.toml is a commit of a library and a benchmark as a user of it would write it. The real
command gates the commit against its parent, and 20 processes time both by hand, without perfkit. What came
out is kept in outcomes.json beside this file, a case that is there already is not run again, and
docs/measured/speedups.md is filled from it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "referee"))
from fakes import ROOT, Outcome, filled, gate  # noqa: E402
from repositories import Repository, create_repository  # noqa: E402

OUTCOMES = HERE / "outcomes.json"
DOCUMENT = ROOT / "docs/measured/speedups.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfkit-speedups"

_SPEED = "test_speed"
# No code of a library that its users would import.
_LEFT_OUT = re.compile(r"(tests?|docs?|examples|benchmarks)|(setup|conftest|test_.*)\.py")
_PROCESSES = 10
# Of Student's distribution with nine degrees of freedom, for an interval of 95 %.
_QUANTILE = 2.262
# The hand's own error: what its interval may miss a gain or a loss by.
_ALMOST = 0.005
_AGREEMENTS = ("agrees", "open", "contradicts")

Case = Mapping[str, Any]


def read_cases() -> list[dict[str, Any]]:
    """Return all cases."""
    return list(tomllib.loads((HERE / "speedups.toml").read_text())["speedup"])


def read_outcomes() -> dict[str, Outcome]:
    """Return what came out so far."""
    found: dict[str, Outcome] = json.loads(OUTCOMES.read_text())
    return found


def repository_of(case: Case, repositories: Path | None) -> Path:
    """Return the git directory of a case's library, with its commits fetched where none is given."""
    name = str(case["repository"]).replace("/", "+")
    if repositories is not None:
        found = [repositories / name / folder for folder in (".", ".git", "repo", "repo/.git")]
        return next(one for one in found if (one / "objects").is_dir())
    place = CACHE / "repositories" / name
    subprocess.run(["git", "init", "--quiet", "--bare", place], check=True)
    commits = [case["commit"], *([case["base"]] if "base" in case else [])]
    address = f"https://github.com/{case['repository']}.git"
    fetch = ["git", "--git-dir", place, "fetch", "--quiet", "--depth", "2", address, *commits]
    subprocess.run(fetch, check=True)
    return place


def installed(packages: Sequence[str]) -> Path:
    """Return the folder that has these packages alone, without what they need in turn."""
    place = CACHE / "packages" / hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:16]
    if not place.exists():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part)]
        if packages:
            subprocess.run([*pip, *packages], check=True)
        part.rename(place)
    return place


def check_out(repository: Path, case: Case, commit: str, folder: Path) -> None:
    """Replace what a folder has by a commit's packages and the benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = commit if case["path"] == "." else f"{commit}:{case['path']}"
    git = ["git", "--git-dir", str(repository)]
    names = subprocess.run([*git, "ls-tree", "--name-only", tree], check=True, capture_output=True, text=True)
    wanted = [name for name in names.stdout.splitlines() if not _LEFT_OUT.fullmatch(name)]
    packed = subprocess.run([*git, "archive", tree, *wanted], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(unpacked, filter="data")
        for old in folder.iterdir():
            if old.name != ".git":
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        for entry in Path(unpacked).iterdir():
            if entry.suffix == ".py" or (entry / "__init__.py").exists():
                entry.rename(folder / entry.name)
    (folder / f"{_SPEED}.py").write_text(case["speed"])


def judge(case: Case, repositories: Path | None, place: Path) -> Outcome:
    """Gate a commit, time it by hand, and return both outcomes."""
    repository, packages = repository_of(case, repositories), installed(case["packages"])
    commits = {"base": case.get("base") or f"{case['commit']}^", "head": case["commit"]}
    root = place / "project"
    root.mkdir(parents=True)
    gated = Repository(root, create_repository(root))
    for side, commit in commits.items():
        check_out(repository, case, commit, place / side)
        check_out(repository, case, commit, root)
        gated.commit({".gitignore": "__pycache__\n.perfkit\n"}, f"The {side} of {case['commit']}")
    found = gate(root, "--benchmarks", f"{_SPEED}.py", paths=[packages])
    if not found.report:
        raise RuntimeError(f"the gate fails: {found.printed.strip()[-2000:]}")
    by_hand = timed_by_hand(place, packages, seed=case["commit"])
    verdicts, ratios, agreements = {}, {}, set()
    for one in found.comparisons:
        name, estimate = one["benchmark"]["name"].rpartition("::")[2], one["estimate"]
        verdicts[name] = one["verdict"]
        if estimate:
            ratios[name] = [round(estimate[key], 4) for key in ("ratio", "low", "high")]
        meant = one["verdict"] == "OTHER RESULT" and case.get("other_result", False)
        agreements.add(
            "agrees" if meant else agreement(one["verdict"], by_hand[name], one["margin"], ratios.get(name))
        )
    return {
        "verdicts": verdicts,
        "ratios": ratios,
        "by_hand": by_hand,
        # The worst of its benchmarks.
        "agreement": max(agreements, key=_AGREEMENTS.index, default="contradicts"),
        "doubts": found.doubts,
        "other_result": "OTHER RESULT" in verdicts.values(),
        "exit_code": found.exit_code,
        "wall_s": round(found.report.get("wall_s") or 0.0, 1),
    }


def timed_by_hand(place: Path, packages: Path, *, seed: str) -> dict[str, list[float]]:
    """Return the ratio of both sides' times and its limits, from processes that take turns."""
    taken: dict[str, list[dict[str, float]]] = {"base": [], "head": []}
    drawn = random.Random(seed)  # noqa: S311
    for _ in range(_PROCESSES):
        for side in drawn.sample(sorted(taken), 2):
            path = os.pathsep.join(map(str, (place / side, packages)))
            done = subprocess.run(
                [sys.executable, "-P", HERE / "by_hand.py", _SPEED],
                cwd=place / side,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{side} fails by hand: {done.stderr.strip()[-2000:]}")
            taken[side].append(json.loads(done.stdout.splitlines()[-1]))
    found = {}
    for name in taken["head"][0]:
        pairs = zip(taken["base"], taken["head"], strict=True)
        logs = [math.log(head[name] / base[name]) for base, head in pairs]
        half = _QUANTILE * statistics.stdev(logs) / math.sqrt(len(logs))
        middle = statistics.fmean(logs)
        found[name] = [round(math.exp(middle + by), 4) for by in (0.0, -half, half)]
    return found


def agreement(
    verdict: str, by_hand: Sequence[float], margin: float, gate: Sequence[float] | None = None
) -> str:
    """Return one of _AGREEMENTS for a verdict beside the ratio by hand and its limits, and the gate's own."""
    _, low, high = by_hand
    if verdict in ("INCONCLUSIVE", "NOT REACHED"):
        return "open"
    agrees = {
        "IMPROVED": high < 1 + _ALMOST,
        "NOT SLOWER": low <= 1 + margin,
        "UNCHANGED": low <= 1 + margin and high >= 1 - margin,
        "SAME CODE": low <= 1 + margin and high >= 1 - margin,
        "REGRESSED": low > 1 - _ALMOST,
    }
    if agrees.get(verdict, False):
        return "agrees"
    # Processes by hand that differ more than both sides do decide nothing.
    is_wide = gate is not None and low <= 1 <= high and low <= gate[2] and gate[1] <= high
    return "open" if is_wide else "contradicts"


def table(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return the lines of the page's tables."""
    lines = ["| commit | gate | | by hand | |", "| :--- | :--- | ---: | ---: | :--- |"]
    for name, one in outcomes.items():
        for number, (benchmark, verdict) in enumerate(one["verdicts"].items()):
            ratio = one["ratios"].get(benchmark)
            cells = [
                "" if number else name,
                verdict,
                change(ratio) if ratio else "",
                change(one["by_hand"][benchmark]),
                "" if number or one["agreement"] == "agrees" else one["agreement"],
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| | commits |", "| :--- | ---: |", f"| all | {len(outcomes)} |"]
    counted = Counter(one["agreement"] for one in outcomes.values())
    lines += [f"| {word} | {counted[word]} |" for word in _AGREEMENTS]
    lines.append(f"| another result | {sum(one['other_result'] for one in outcomes.values())} |")
    lines.append(f"| doubted | {sum(bool(one['doubts']) for one in outcomes.values())} |")
    return lines


def change(ratio: Sequence[float]) -> str:
    """Return a ratio as a change in percent with half of its interval."""
    middle, low, high = (100 * (one - 1) for one in ratio)
    return f"{middle:+.1f} ± {(high - low) / 2:.1f} %"


def main() -> None:
    """Run the cases that are missing, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", default="", metavar="PATTERN", help="run these cases anew, and no others")
    parser.add_argument("--repositories", type=Path, help="a folder of OWNER+NAME, instead of GitHub")
    asked = parser.parse_args()
    failed = False
    for case in read_cases():
        name, outcomes = case["name"], read_outcomes()
        if not re.search(asked.again, name) if asked.again else name in outcomes:
            continue
        with tempfile.TemporaryDirectory(prefix="speedups-") as folder:
            try:
                found = judge(case, asked.repositories, Path(folder))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                failed = True
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
        print(f"{name}: {json.dumps(found)}", flush=True)
        # Others may run at the same time.
        outcomes = read_outcomes() | {name: found}
        rows = ",\n".join(f"{json.dumps(one)}: {json.dumps(outcomes[one])}" for one in sorted(outcomes))
        OUTCOMES.write_text(f"{{\n{rows}\n}}\n")
        DOCUMENT.write_text(filled(DOCUMENT.read_text(), table(outcomes)))
    sys.exit(failed)


if __name__ == "__main__":
    main()
