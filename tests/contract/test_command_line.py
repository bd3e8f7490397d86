"""What scripts rely on: the exit code of each command, and the JSON document that it writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked_commands import run_perfkit
from gating import SLOWER, GitProject, benchmark, git_project, work

SCHEMAS = Path(__file__).parents[1] / "schemas"
TRAIN = """
import torch
def main(steps=6):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    main()
"""
DONE, REGRESSED, REFUSED, UNDECIDED, NOT_MEASURED = 0, 1, 2, 3, 4


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project with two commits, both recorded, a gate of the two that fails, and two profiles."""
    speed = "import work\n" + benchmark("steady", "work.steady") + benchmark("slower", "work.slower")
    files = {
        "work.py": work(steady=10, slower=5),
        "tests/test_speed.py": speed,
        "train.py": TRAIN,
        ".gitignore": "*.stat\n*.json\n",
    }
    made = git_project(tmp_path_factory.mktemp("contract"), files)
    _record(made)
    made.commit({"work.py": work(steady=10, slower=5 * SLOWER)})
    _record(made)
    assert REGRESSED == made.gate().exit_code
    command = ("profile", "train.py", "--passes", "clean,cprofile", "--out", "a.stat")
    profiled = run_perfkit(*command, cwd=made.root)
    assert DONE == profiled.returncode, profiled.stderr
    shutil.copy(made.root / "a.stat", made.root / "b.stat")
    return made


def _record(project: GitProject) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "tests", f"--perfkit-ledger={project.ledger}"]
    subprocess.run([*command, "--benchmark-max-time=0.05"], cwd=project.root, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "code", "document"),
    [
        ("ledger list", DONE, "runs"),
        ("history", DONE, "history"),
        ("history test_steady", DONE, "history"),
        ("log --out log.md", DONE, "log"),
        ("compare HEAD~1 HEAD", UNDECIDED, "compare"),
        ("show a.stat", DONE, "show"),
        ("explain a.stat b.stat", DONE, "explain"),
        ("accept test_slower --reason wanted", DONE, "accept"),
        ("report --out site", DONE, "report"),
    ],
)
def test_a_command_writes_its_document(project: GitProject, arguments: str, code: int, document: str) -> None:
    found, done = _run(project, *arguments.split())

    assert code == done.returncode, done.stderr
    jsonschema.validate(found, json.loads((SCHEMAS / f"{document}.json").read_text()))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("gate --base nowhere", REFUSED),
        ("gate --margin lots", REFUSED),
        ("gate --select nothing_is_called_so", REFUSED),
        ("gate --benchmarks missing", REFUSED),
        ("profile missing.py --out x.stat", REFUSED),
        ("profile train:missing --out x.stat", REFUSED),
        ("show missing.stat", REFUSED),
        ("show work.py", REFUSED),
        ("explain a.stat missing.stat", REFUSED),
        ("history test_missing", NOT_MEASURED),
        ("compare HEAD nowhere", REFUSED),
        ("bisect nowhere HEAD --benchmark test_slower", REFUSED),
        ("ledger show nothing", REFUSED),
        ("ledger verify", REFUSED),
        ("ledger push --branch x", REFUSED),
        ("accept test_missing --reason wanted", REFUSED),
        ("schema nothing", REFUSED),
        ("nothing", REFUSED),
        ("gate --nothing", REFUSED),
        ("compare HEAD", REFUSED),
    ],
)
def test_a_mistake_is_one_line(project: GitProject, arguments: str, code: int) -> None:
    words = arguments.split()
    if words[0] in ("history", "ledger", "gate", "accept", "compare"):
        words += ["--ledger", str(project.ledger)]
    done = run_perfkit(*words, cwd=project.root)

    assert code == done.returncode, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("perfkit: "), done.stderr
    assert "Traceback" not in done.stderr


def _run(project: GitProject, *words: str) -> tuple[Any, subprocess.CompletedProcess[str]]:
    file = project.root / f"{words[0]}.json"
    ledger = () if words[0] in ("show", "explain") else ("--ledger", str(project.ledger))
    done = run_perfkit(*words, *ledger, "--json", str(file), cwd=project.root)
    return json.loads(file.read_text()), done


def test_a_quiet_gate_prints_its_verdict_alone(tmp_path: Path) -> None:
    speed = (
        "import pytest, work\n"
        '@pytest.mark.parametrize("number", range(60))\n'
        "def test_many(benchmark, number):\n"
        "    benchmark(work.steady)\n"
    )
    project = git_project(tmp_path, {"work.py": work(steady=1), "tests/test_speed.py": speed})
    project.commit({"work.py": work(steady=2)})

    done = run_perfkit("gate", "-q", "--exact-only", "--ledger", str(project.ledger), cwd=project.root)

    assert 1 == len(done.stdout.splitlines())
    assert "<" not in done.stdout
