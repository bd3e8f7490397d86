"""``make coverage`` says which lines and branches of perfkit the tests run, in whatever process.

    python tests/covered.py [--report] [--slow] [TESTS …]

Folders of tests, and the files beside them, are run one after the other under coverage, whose settings in
``pyproject.toml`` reach subprocesses, forks and what ends by ``os._exit``. What is done is kept below
``build/coverage``: a run that was ended goes on where it stood, and begins anew once perfkit has changed.
A test that fails because it is watched (some count calls, bytes or imports) is named and ends nothing.

Once all are done, a table of ``docs/reliability.md`` is written. ``uncovered.toml``, which is kept by hand,
says why a module is covered by less than nine tenths.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
REASONS = Path(__file__).with_name("uncovered.toml")
DOCUMENT = ROOT / "docs" / "reliability.md"
WORK = ROOT / "build" / "coverage"
# Where the settings in pyproject.toml have each process leave its file.
_RAW, _WHOLE, _DONE = WORK / "run", WORK / "data", WORK / "done.json"
_BEGIN, _END = "<!-- coverage -->\n", "<!-- /coverage -->\n"
_FEWEST_PERCENT = 90.0
# What pytest ends with where tests failed, and where no test was chosen.
_PASSED, _SOME_FAILED, _NONE_CHOSEN = 0, 1, 5
# How pytest runs tests in two processes: one that is replaced would make the other wait for ever.
IN_TWO = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")
_KINDS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def units() -> list[str]:
    """Return what is run at a time: each folder of tests, and each file beside them."""
    files = {file.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("test_*.py")}
    return sorted({f"tests/{file.parts[0]}" for file in files})


def run_unit(unit: str, *, slow: bool) -> dict[str, Any]:
    """Run some tests under coverage, add what they ran to the whole, and say what came of them."""
    shutil.rmtree(_RAW, ignore_errors=True)
    _RAW.mkdir(parents=True)
    began = time.monotonic()
    chosen = "" if slow else " and not slow"
    log = WORK / f"{unit.replace('/', '.')}.log"
    log.unlink(missing_ok=True)
    # As `make unit` does: most in two processes, and then those that nothing may run beside.
    statuses = [
        _run_pytest(log, [*IN_TWO, "-m", f"not alone{chosen}"], unit),
        _run_pytest(log, ["-m", f"alone{chosen}"], unit),
    ]
    processes = len(list(_RAW.iterdir()))
    if processes:
        _coverage("combine", "--append", "--quiet", f"--data-file={_WHOLE}", str(_RAW))
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if not set(statuses) <= {_PASSED, _SOME_FAILED, _NONE_CHOSEN}:
        sys.exit(f"{unit}: pytest ended with status {max(statuses)}; see {log}")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "processes": processes,
        "failed": sorted({line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))}),
    }


def _run_pytest(log: Path, options: Sequence[str], unit: str) -> int:
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-rfE", *options, unit]
    with log.open("ab") as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False
        ).returncode


def _coverage(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT, check=True)


def _digest() -> str:
    files = sorted((ROOT / "perfkit").rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _done() -> dict[str, Any]:
    """Return what came of the tests that were run of this perfkit."""
    found: dict[str, Any] = json.loads(_DONE.read_text()) if _DONE.exists() else {}
    if found.get("code") != _digest():
        shutil.rmtree(WORK, ignore_errors=True)
        found = {"code": _digest(), "units": {}}
    return found


def counts() -> dict[str, dict[str, int]]:
    """Return the statements and branches of each module, and how many of them were run."""
    file = WORK / "coverage.json"
    _coverage("json", "--quiet", f"--data-file={_WHOLE}", "-o", str(file))
    files = json.loads(file.read_text())["files"]
    return {name: {kind: one["summary"][kind] for kind in _KINDS} for name, one in files.items()}


def tables_of(found: Mapping[str, Mapping[str, int]], reasons: Mapping[str, str]) -> str:
    """Return two tables in Markdown: the packages, and the modules of which too little is run, with why."""
    packages: dict[str, Counter[str]] = {}
    for name, one in found.items():
        parts = name.split("/")
        package = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        packages.setdefault(package, Counter()).update({"modules": 1, **one})
    packages["all"] = sum(packages.values(), Counter())
    lines = ["| package | modules | lines | branches |", "| :--- | ---: | ---: | ---: |"]
    lines += [f"| `{name}` | {one['modules']} | {_shares(one)} |" for name, one in packages.items()]
    lines += ["", "| module below 90 % | lines | branches | why |", "| :--- | ---: | ---: | :--- |"]
    lines += [f"| `{name}` | {_shares(found[name])} | {reasons.get(name, '')} |" for name in _below(found)]
    return "".join(f"{line}\n" for line in lines)


def _below(found: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [name for name, one in sorted(found.items()) if _percent(one, "") < _FEWEST_PERCENT]


def _percent(one: Mapping[str, int], kind: str) -> float:
    """Return the share of lines, of branches, or (no kind) of both together that were run."""
    lines, branches = kind != "branches", kind != "lines"
    all_of = lines * one["num_statements"] + branches * one["num_branches"]
    run = lines * one["covered_lines"] + branches * one["covered_branches"]
    return 100 * run / all_of if all_of else 100.0


def _shares(one: Mapping[str, int]) -> str:
    branches = f"{_percent(one, 'branches'):.1f} %" if one["num_branches"] else "none"
    return f"{_percent(one, 'lines'):.1f} % | {branches}"


def reasons() -> dict[str, str]:
    """Return why modules are covered by less than nine tenths, by their paths."""
    told: dict[str, str] = tomllib.loads(REASONS.read_text())
    return told


def main() -> int:
    """Run what has not been run; return 1 where a module is covered by too little and nothing says why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="TESTS", help="folders or files; by default all")
    parser.add_argument("--slow", action="store_true", help="the slow tests, too")
    parser.add_argument("--report", action="store_true", help="run nothing, and tell what is known")
    said = parser.parse_args()
    done = _done()
    for unit in [] if said.report else [one.rstrip("/") for one in said.tests] or units():
        if unit not in done["units"]:
            done["units"][unit] = run_unit(unit, slow=said.slow)
            _DONE.write_text(json.dumps(done, indent=1))
        print(unit, done["units"][unit], flush=True)
    if not _WHOLE.exists():
        sys.exit("nothing was run yet, and so nothing is known: make coverage")
    found = counts()
    missing = [one for one in units() if one not in done["units"]]
    if missing:
        touched = {name: one for name, one in found.items() if one["covered_lines"]}
        print(tables_of(touched, reasons()), "of the modules that were run so far", sep="\n")
        print(f"not written to {DOCUMENT.name}, since these were not run: {' '.join(missing)}")
        return 0
    tables = tables_of(found, reasons())
    before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    DOCUMENT.write_text(before + _BEGIN + tables + _END + rest.partition(_END)[2])
    for test in (test for came in done["units"].values() for test in came["failed"]):
        print(f"{test} failed while it was watched")
    untold = [name for name in _below(found) if name not in reasons()]
    if untold:
        print(f"{REASONS.name} does not say why these are below {_FEWEST_PERCENT:g} %: {' '.join(untold)}")
    return int(bool(untold))


if __name__ == "__main__":
    sys.exit(main())
