"""Takes perfkit to other people's libraries: ``strangers.py ARCHIVES WORK [NAME ...]``.

ARCHIVES holds their released source archives (``pip download --no-deps --no-binary :all: NAME==VERSION``),
WORK takes a repository of each, with two versions as its two commits. In each the suite is run without
perfkit and recorded with it, and the two commits are gated without configuration. Needs what the libraries
need. What came out is kept in outcomes.json beside this file, and the gates' launches in the ledger there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from git import Actor, Repo

from perfkit.config import Config
from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.design import Method, Terms
from perfkit.gating.plan import experience_from, foresee
from perfkit.gating.rows import NOT_TIMED
from perfkit.gating.rules import Rules, under_rules
from perfkit.ledger.store import Ledger
from perfkit.model import WALL_TIME
from perfkit.model.policies import judged_policy

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"
DOCUMENT = HERE.parents[1] / "docs" / "measured" / "case-studies.md"
LEDGER = HERE / "ledger"
_GATE = ("--base", "HEAD~1", "--head", "HEAD", "--budget=60")
AUTHOR = Actor("A stranger", "stranger@example.org")
BIN = Path(sys.executable).parent
_LIMIT_S, _SET_UP_S = 600.0, 10.0
# Rounds enough to be filed: how long they take in earnest is the suite's own business.
_SHORT = ("--benchmark-max-time=0.05", "--benchmark-min-rounds=2")
_COVERAGE = ("same", "benchmarks", "everything", "not_traced")
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed)")


def main() -> None:
    """Study the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    outcomes: dict[str, Any] = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    for case in tomllib.loads((HERE / "cases.toml").read_text())["case"]:
        if asked.names and case["name"] not in asked.names:
            continue
        root = repository(case, asked.archives, asked.work)
        outcomes[case["name"]] = {"recording": recorded(case, root), "gate": gated(case, root, *_GATE)}
        OUTCOMES.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n")
        print(case["name"], json.dumps(outcomes[case["name"]]), flush=True)
    Ledger(LEDGER).compact()
    fill(table(json.loads(OUTCOMES.read_text())), of="strangers.py")


def fill(lines: list[str], *, of: str) -> None:
    """Put a table into the document, between the marks of the script ``of`` that has it."""
    begin, end = f"<!-- begin: {of} -->", f"<!-- end: {of} -->"
    text = DOCUMENT.read_text()
    head, tail = text.partition(begin)[0], text.partition(end)[2]
    DOCUMENT.write_text("\n".join([head + begin, *lines, end]) + tail)


def table(outcomes: dict[str, Any]) -> list[str]:
    """Return the lines of the table: a library a line, in the order of the cases."""
    lines = [
        "| library | versions | tests | timed, filed | affected | the gate | seconds | exit | would find |",
        "| :--- | :--- | :--- | ---: | ---: | :--- | ---: | ---: | ---: |",
    ]
    for case in tomllib.loads((HERE / "cases.toml").read_text())["case"]:
        if case["name"] in outcomes:
            recording, gate = (outcomes[case["name"]][part] for part in ("recording", "gate"))
            came_out = listed(gate["verdicts"]) or gate["said"]
            ran = [listed(recording[one]) or "none" for one in ("plain", "with_perfkit")]
            tests = " / ".join(dict.fromkeys(ran))
            lines.append(
                f"| {case['name']} | {', '.join(case['versions'])} | {tests} | {recording['timed']},"
                f" {recording['filed']} | {affected(gate)} | {came_out} | {gate['seconds']:.0f}"
                f" | {gate['exit_code']} | {detectable(gate)} |"
            )
    return lines


def affected(gate: dict[str, Any]) -> str:
    """Return how many benchmarks of a gate run changed code, of how many."""
    coverage = gate.get("coverage")
    return f"{coverage['benchmarks'] - coverage['same']} of {coverage['benchmarks']}" if coverage else "-"


def detectable(gate: dict[str, Any]) -> str:
    """Return which slowdown of one benchmark a gate would find 19 times of 20 in the default budget.

    It is the median of the benchmarks that get a look, by the scatter and costs of the launches in a gate.
    """
    config = Config()
    rows = Ledger(LEDGER).rows_of(gate["run_id"]) if gate["run_id"] else []
    timed = {
        row.outcome.benchmark.name: row.outcome.benchmark
        for row in rows
        if row.outcome.metric == WALL_TIME and judged_policy(row).verdict not in NOT_TIMED
    }
    rules = Rules.of(config, margin=None)
    seconds = min(config.gate.seconds_per_benchmark * len(timed), config.gate.most_seconds)
    method = Method(
        policy=Terms().policy(config.gate, family=max(len(timed), 1), served=True),
        counter_policy=CounterPolicy(gating=(), tolerance=0.0, timed=True),
        rules=rules,
        budget_s=max(seconds, 60.0),
        seed=0,
        timed=True,
        counted=True,
        targets=(),
        instructions=False,
    )
    known = experience_from(rows, rows[0].machine.machine_id if rows else "")
    compared = [under_rules(one, rules) for _, one in sorted(timed.items())]
    found = foresee(compared, known, method, set_up_s=_SET_UP_S).benchmarks
    effects = [one.effect for one in found if one.effect is not None]
    if not effects:
        return "-"
    some = "" if len(effects) == len(found) else f" ({len(effects)} of {len(found)})"
    return f"+{100 * statistics.median(effects):.1f} %{some}"


def listed(counts: dict[str, int]) -> str:
    """Return how often there was what, as a text."""
    return ", ".join(f"{number} {kind}" for kind, number in counts.items())


def repository(case: dict[str, Any], archives: Path, work: Path) -> Path:
    """Return a repository whose two commits are the two versions, exactly as released."""
    root = work / str(case["name"])
    if root.exists():
        return root
    root.mkdir(parents=True)
    repo = Repo.init(root, initial_branch="main")
    for version in case["versions"]:
        for old in root.iterdir():
            if old.name != ".git":
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        with tarfile.open(archives / f"{case['name']}-{version}.tar.gz") as archive:
            archive.extractall(work / ".unpacked", filter="tar")
        unpacked = work / ".unpacked" / f"{case['name']}-{version}"
        for file in unpacked.iterdir():
            file.rename(root / file.name)
        unpacked.rmdir()
        repo.git.add("--all")
        repo.index.commit(f"{case['name']} {version}", author=AUTHOR, committer=AUTHOR)
    return root


def environment(case: dict[str, Any]) -> dict[str, str]:
    """Return what a person who knows the library would set, on top of this environment."""
    return {**os.environ, **case.get("environment", {})}


def recorded(case: dict[str, Any], root: Path) -> dict[str, Any]:
    """Run the suite as its people do, then with perfkit: how many tests passed, and timings were filed."""
    ledger, saved = root.parent / f"{case['name']}.ledger", root.parent / f"{case['name']}.json"
    pytest = [sys.executable, "-m", "pytest", "-q", *_SHORT, *case["suite"]]
    plain, plain_s = run([*pytest, "-p", "no:perfkit", f"--benchmark-json={saved}"], case, root)
    ours, ours_s = run([*pytest, "--benchmark-autosave", f"--perfkit-ledger={ledger}"], case, root)
    rows = [row for row in Ledger(ledger).rows() if row.outcome.metric == WALL_TIME]
    filed = {row.outcome.benchmark.name for row in rows if row.outcome.status == "ok"}
    timed = json.loads(saved.read_text())["benchmarks"] if saved.exists() and saved.stat().st_size else []
    return {
        "plain": dict(Counter(_counts(plain.stdout))),
        "with_perfkit": dict(Counter(_counts(ours.stdout))),
        "timed": len(timed),
        "filed": len(filed),
        "plain_s": round(plain_s, 1),
        "with_perfkit_s": round(ours_s, 1),
    }


def gated(case: dict[str, Any], root: Path, *options: str) -> dict[str, Any]:
    """Gate two commits by the command of a person, and report what came out."""
    report = root.parent / f"{case['name']}.gate.json"
    report.unlink(missing_ok=True)
    command = [
        *(str(BIN / "perfkit"), "gate", f"--ledger={LEDGER}", f"--json={report}", *options),
        *case.get("gate", []),
    ]
    done, seconds = run(command, case, root)
    found = json.loads(report.read_text()) if report.exists() else {"comparisons": [], "run_id": None}
    coverage = found.get("coverage")
    return {
        "exit_code": done.returncode,
        "seconds": round(seconds, 1),
        "run_id": found["run_id"],
        "coverage": coverage and {key: coverage[key] for key in _COVERAGE},
        "verdicts": dict(Counter(one["verdict"] for one in found["comparisons"])),
        "said": _sentence(done, has_report=report.exists()),
    }


def run(
    command: list[str], case: dict[str, Any], root: Path
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a command in a repository, and return what became of it, and the seconds it took."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment(case),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, -1, "", f"was not done within {_LIMIT_S:g} s")
    return done, time.monotonic() - begun


def _counts(output: str) -> dict[str, int]:
    lines = output.strip().splitlines()
    return {kind.rstrip("s"): int(number) for number, kind in _COUNT.findall(lines[-1] if lines else "")}


def _sentence(done: subprocess.CompletedProcess[str], *, has_report: bool) -> str:
    """Return the sentence of the decision, or the line of an error."""
    if not has_report:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    return " ".join(done.stdout.strip().partition("\n\n")[0].partition("\ngate ")[0].split())


if __name__ == "__main__":
    main()
