"""Judges the gate by fake gains, by loops that keep memory, and by identical code: ``fakes.py [PART ...]``.

The parts are ``fakes``, ``loops`` and ``same``; all of them where none is named. Each case is a repository of
two commits that is gated by the real command. What came out is kept in fakes.json beside this file, a case
that is there already is not run again, and docs/measured/referee.md is filled from it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from repositories import Repository, create_repository

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUTCOMES = HERE / "fakes.json"
DOCUMENT = ROOT / "docs/measured/referee.md"

# These words name a fake of each kind, in the first lines, the notes or a benchmark's doubts.
_RESULT = ("other result", "another result")
NAMED: dict[str, tuple[str, ...]] = {
    "memo by id": ("cache", "fresh input", "same object", "first call"),
    "memo by value or on disk": ("cache", "fresh input", "same value", "first call"),
    "patched clock": ("clock", "perf_counter"),
    "work put off": ("outside the clock", "more cpu time", "thread", "after the call", "put off", *_RESULT),
    "fewer rows": _RESULT,
    "lower precision": _RESULT,
    "dead code": (*_RESULT, "argument", "gradient"),
    "work moved out of the calls": ("cache", "import time", "first call", "set-up"),
    "noticing": ("notices", "pytest_current_test", "sys.modules"),
    "benchmark edited": ("test_speed.py", "conftest.py", "new benchmark", "benchmark files"),
}
_OUTCOMES = ("refused", "named", "doubted", "no gain", "FOOLED")
_FIRST_LINES = 12
_UNDECIDED = {"INCONCLUSIVE", "NOT REACHED"}
_PRAISE = ("IMPROVED", "NOT SLOWER")
# The counter of bytes that a call keeps, in exact comparisons.
_KEPT = re.compile("kept|grow")
_THINGS = {"256 B": "bytes(223)", "4 KiB": "bytearray(4096)", "a tensor": "torch.ones(256)"}
_KEEPS = """import torch

{state}


def call():
    thing = {thing}
    {keep}
    return len(thing)
"""
_RULE = '[[tool.perfkit.rules]]\nmatch = "*"\nresult = false\n'
# The times of fewer gates scatter too much to mean anything.
_FEWEST_TIMED = 50
_SEEDS = 3

Outcome = dict[str, Any]
Cases = Mapping[str, Callable[[Path], Outcome]]


@dataclass(frozen=True)
class Gated:
    """A gate's exit code, printed lines, JSON document and CPU time."""

    exit_code: int
    printed: str
    report: dict[str, Any]
    cpu_s: float

    @property
    def comparisons(self) -> list[dict[str, Any]]:
        """The timed comparisons."""
        return list(self.report.get("comparisons", ()))

    @property
    def verdicts(self) -> dict[str, int]:
        """How many benchmarks have each verdict."""
        return dict(Counter(one["verdict"] for one in self.comparisons))

    @property
    def doubts(self) -> list[str]:
        """All doubts, each with its kind first."""
        return [f"{it['kind']}: {it['text']}" for one in self.comparisons for it in one.get("doubts", ())]


def gate(root: Path, *options: str, paths: Sequence[Path] = ()) -> Gated:
    """Gate the last commit of a repository with a ledger of its own."""
    place = root.parent
    written = place / "gate.json"
    written.unlink(missing_ok=True)
    shutil.rmtree(place / "ledger", ignore_errors=True)
    (place / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "perfkit", "gate", "--base", "HEAD~1", "--head", "HEAD"]
    command += ["--ledger", str(place / "ledger"), "--json", str(written), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(place / "tmp"), "COLUMNS": "100"}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else {}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = json.loads(written.read_text()) if written.exists() else {}
    (place / "printed.txt").write_text(done.stdout + done.stderr)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Gated(done.returncode, done.stdout + ("" if report else done.stderr), report, round(cpu_s, 2))


def commit_pair(place: Path, base: Mapping[str, str], head: Mapping[str, str]) -> Path:
    """Return a new repository with two commits of these files, and of what is there already."""
    root = place / "project"
    root.mkdir(parents=True, exist_ok=True)
    repository = Repository(root, create_repository(root))
    repository.commit({".gitignore": "__pycache__\n.perfkit\n", **base}, "Begin")
    repository.commit(dict(head), "Make it faster")
    return root


def read_cases(file: str) -> dict[str, Any]:
    """Return the tables of a file beside this one."""
    return tomllib.loads((HERE / file).read_text())


def fakes() -> Cases:
    """Return the fake gains."""
    return {case["name"]: partial(judge_fake, case) for case in read_cases("fakes.toml")["fake"]}


def judge_fake(case: Mapping[str, Any], place: Path) -> Outcome:
    """Gate a fake gain, longer where that decides it."""
    changed = case["app"]
    for old, new in case["changes"]:
        assert changed.count(old) == 1, (case["name"], old)
        changed = changed.replace(old, new)
    base = {"app.py": case["app"], "test_speed.py": case["speed"], **case.get("base", {})}
    root = commit_pair(place, base, {"app.py": changed, **case.get("head", {})})
    return outcome(case, gate_long_enough(root))


def gate_long_enough(
    root: Path, *options: str, open_ones: AbstractSet[str] = _UNDECIDED, paths: Sequence[Path] = ()
) -> Gated:
    """Gate with a budget of 10 s, and again with 40 s where that leaves benchmarks open."""
    found = gate(root, "--margin", "10%", "--budget", "10", *options, paths=paths)
    if open_ones & found.verdicts.keys():
        found = gate(root, "--margin", "10%", "--budget", "40", *options, paths=paths)
    return found


def outcome(case: Mapping[str, Any], found: Gated) -> Outcome:
    """Return what a gate made of a fake gain, as one of _OUTCOMES with its reasons."""
    first = " ".join(line.strip() for line in found.printed.splitlines()[:_FIRST_LINES])
    edited = [one["path"] for one in found.report.get("measuring", ())]
    texts = [first, *found.report.get("notes", ()), *found.doubts, *edited]
    words = [*NAMED[case["kind"]], *case.get("named", ())]
    named = sorted({word for word in words if any(word in text.lower() for text in texts)})
    gained = case.get("hides", False) or any(one in _PRAISE for one in found.verdicts)
    ratios = [one["estimate"]["ratio"] for one in found.comparisons if one["estimate"]]
    passed = "doubted" if found.doubts else "FOOLED" if gained else "no gain"
    return {
        "kind": case["kind"],
        "outcome": "refused" if found.exit_code else "named" if named else passed,
        "named": named,
        "exit_code": found.exit_code,
        "verdicts": found.verdicts,
        "ratio": round(min(ratios), 4) if ratios else None,
        "doubts": sorted({text.partition(":")[0] for text in found.doubts}),
    }


def loops() -> Cases:
    """Return the loops: each case is a repository of many."""
    read = read_cases("loops.toml")
    nothing = {
        one["name"]: (f"{one['code']}\nVERSION = 1\n", f"{one['code']}\nVERSION = 2\n")
        for one in read["nothing"]
    }
    found = {"nothing": partial(judge_loops, nothing)}
    for thing, made in _THINGS.items():
        ways = [one for one in read["keeps"] if not one.get("tensor")]
        if thing == "a tensor":
            more = [one for one in read["keeps"] if one.get("tensor")]
            ways = [*ways[: -len(more)], *more]
        weights = "WEIGHTS = torch.ones(256, requires_grad=True)"
        code = partial(_KEEPS.format, thing=made)
        sides = {
            way["name"]: tuple(
                code(state=f"{weights}\n{way['state'].strip()}", keep=keep)
                for keep in ("pass", way["keep"].strip())
            )
            for way in ways
        }
        found[thing] = partial(judge_loops, sides)
    return found


def judge_loops(sides: Mapping[str, tuple[str, ...]], place: Path) -> Outcome:
    """Count what loops keep, and return which of them were accused of it, and of what else."""
    modules = {name: f"loop_{number:02}" for number, name in enumerate(sides)}
    calls = "".join(
        f"\n\ndef test_{one}(benchmark):\n    from loops import {one}\n\n    benchmark({one}.call)\n"
        for one in modules.values()
    )
    base, head = (
        {f"loops/{module}.py": sides[name][side] for name, module in modules.items()} for side in (0, 1)
    )
    root = commit_pair(place, {"loops/__init__.py": "", "test_speed.py": calls, **base}, head)
    found = gate(root, "--exact-only")
    of = {f"test_{module}": name for name, module in modules.items()}
    grown: dict[str, list[str]] = {}
    for one in found.report.get("exact", ()):
        if one["verdict"] == "REGRESSED":
            name = of[one["benchmark"]["name"].rpartition("::")[2]]
            grown.setdefault(name, []).append(one["metric"]["name"])
    accused = sorted(name for name, metrics in grown.items() if any(map(_KEPT.search, metrics)))
    keeps = "VERSION" not in next(iter(sides.values()))[0]
    return {
        "loops": len(sides),
        "accused": len(accused),
        "wrong": sorted(sides.keys() - set(accused)) if keeps else accused,
        "otherwise": {name: metrics for name, metrics in sorted(grown.items()) if name not in accused},
        "exit_code": found.exit_code,
        "cpu_s": found.cpu_s,
    }


def same(libraries: Path | None = None) -> Cases:
    """Return the gates of identical code, those of libraries where their folder is known."""
    read = read_cases("awkward.toml")
    found: dict[str, Callable[[Path], Outcome]] = {}
    for seed in range(_SEEDS):
        found |= {f"{one['name']}, {seed}": partial(judge_suite, one, seed) for one in read["suite"]}
    for seed in range(2):
        if libraries is not None:
            for one in read["library"]:
                found[f"{one['name']}, {seed}"] = partial(judge_library, one, seed, libraries)
    return found


def judge_suite(suite: Mapping[str, Any], seed: int, place: Path) -> Outcome:
    """Gate a suite of awkward results against itself, with results compared and without."""
    calls = re.findall(r"^def (call_\w+)", suite["code"], re.MULTILINE)
    tests = "".join(f"\n\ndef test_{one[5:]}(benchmark):\n    benchmark(app.{one})\n" for one in calls)
    files = {"app.py": f"{suite['code']}\nVERSION = 1\n", "test_speed.py": f"import app\n{tests}"}
    roots = {
        name: commit_pair(
            place / name, {**files, "pyproject.toml": rule}, {"app.py": f"{suite['code']}\nVERSION = 2\n"}
        )
        for name, rule in (("with", ""), ("without", _RULE))
    }
    return judge_same(roots, seed)


def judge_library(library: Mapping[str, Any], seed: int, libraries: Path, place: Path) -> Outcome:
    """Gate a library's own benchmarks, or perfkit's, against themselves."""
    source = ROOT if library["folder"] == "." else libraries / library["folder"]
    roots = {}
    for name, rule in (("with", ""), ("without", _RULE)):
        root = place / name / "project"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".perfkit", "ledger")
        shutil.copytree(source, root, ignore=ignored)
        settings = root / "pyproject.toml"
        written = settings.read_text() if settings.exists() else ""
        roots[name] = commit_pair(
            place / name, {"pyproject.toml": f"{written}\n{rule}"}, {"VERSION.txt": "2\n"}
        )
    options = ["--time-all", "--benchmarks", library["benchmarks"]]
    options += ["--select", library["select"]] if "select" in library else []
    paths = [libraries / "site", libraries / "site2"]
    return judge_same(roots, seed, *options, paths=paths)


def judge_same(roots: Mapping[str, Path], seed: int, *options: str, paths: Sequence[Path] = ()) -> Outcome:
    """Gate twice, in turns which first, and return what was called another result and what both took."""
    found: dict[str, Gated] = {}
    for name in sorted(roots, reverse=bool(seed % 2)):
        terms = ("--seed", str(seed), *options)
        found[name] = gate_long_enough(roots[name], *terms, open_ones={"NOT REACHED"}, paths=paths)
    other = [
        one["benchmark"]["name"].rpartition("::")[2]
        for one in found["with"].comparisons
        if one["verdict"] == "OTHER RESULT"
        or any(it["kind"] == "other result" for it in one.get("doubts", ()))
    ]
    return {
        "other": sorted(other),
        "doubts": dict(Counter(text.partition(":")[0] for text in found["with"].doubts)),
        "verdicts": {name: one.verdicts for name, one in found.items()},
        "exit_codes": {name: one.exit_code for name, one in found.items()},
        "wall_s": {name: round(one.report.get("wall_s") or 0.0, 2) for name, one in found.items()},
        "cpu_s": {name: one.cpu_s for name, one in found.items()},
    }


def table(outcomes: Mapping[str, Mapping[str, Outcome]]) -> list[str]:
    """Return the lines of the page's tables."""
    headings = dict(
        zip(_OUTCOMES, ("refused", "named", "otherwise doubted", "no gain", "fooled"), strict=True)
    )
    lines = [
        f"| 40 fakes, four of each | {' | '.join(headings.values())} |",
        "| :--- |" + " ---: |" * len(headings),
    ]
    counted = {kind: Counter[str]() for kind in NAMED}
    for one in outcomes.get("fakes", {}).values():
        counted[one["kind"]][one["outcome"]] += 1
    for kind, of in (*counted.items(), ("all", sum(counted.values(), Counter[str]()))):
        lines.append(f"| {kind} | {' | '.join(str(of[one]) for one in headings)} |")
    lines += ["", "| loops that keep | accused |", "| :--- | ---: |"]
    lines += [
        f"| {name} | {one['accused']} of {one['loops']} |"
        for name, one in sorted(outcomes.get("loops", {}).items())
    ]
    gates = outcomes.get("same", {}).values()
    lines += ["", "| identical code | |", "| :--- | ---: |", f"| gates | {len(gates)} |"]
    lines.append(f"| with another result | {sum(bool(one['other']) for one in gates)} |")
    for unit, word in (("wall_s", "wall"), ("cpu_s", "CPU")):
        more = [one[unit]["with"] / one[unit]["without"] - 1 for one in gates if one[unit]["without"]]
        if len(more) >= _FEWEST_TIMED:
            lines.append(
                f"| {word} time added by comparing, median | {100 * statistics.median(more):+.0f} % |"
            )
    return lines


def filled(text: str, lines: Sequence[str]) -> str:
    """Return a page with these lines as its tables."""
    head, begin, rest = text.partition("<!-- figures -->\n")
    _, end, tail = rest.partition("<!-- end of figures -->")
    return head + begin + "\n".join(lines) + "\n" + end + tail


def main() -> None:
    """Run the cases that are missing, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="fakes, loops or same")
    parser.add_argument("--again", default="", metavar="PATTERN", help="run these cases anew, and no others")
    parser.add_argument("--work", type=Path, help="keep the repositories in this folder")
    parser.add_argument("--libraries", type=Path, help="the folder of libraries that are gated as well")
    asked = parser.parse_args()
    libraries = asked.libraries.absolute() if asked.libraries else None
    parts: dict[str, Callable[[], Cases]] = {"fakes": fakes, "loops": loops, "same": partial(same, libraries)}
    outcomes: dict[str, dict[str, Outcome]] = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    with tempfile.TemporaryDirectory(prefix="referee-") as folder:
        for part in asked.parts or parts:
            kept = outcomes.setdefault(part, {})
            for name, judge in parts[part]().items():
                if not re.search(asked.again, name) if asked.again else name in kept:
                    continue
                place = (asked.work or Path(folder)).absolute() / re.sub(r"\W+", "-", f"{part}-{name}")
                shutil.rmtree(place, ignore_errors=True)
                kept[name] = judge(place)
                print(f"{part}: {name}: {json.dumps(kept[name])}", flush=True)
                OUTCOMES.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n")
                DOCUMENT.write_text(filled(DOCUMENT.read_text(), table(outcomes)))


if __name__ == "__main__":
    main()
