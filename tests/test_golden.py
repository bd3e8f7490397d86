"""What each command prints is a file in tests/golden, of kept measurements: nothing is timed.

The files are written anew by `python tests/test_golden.py`, and so are those of the views in
tests/report.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from forked_commands import run_here
from repositories import Repository, create_repository
from synthetic import build_row

from perfkit.ledger.store import Ledger
from perfkit.model import Metric

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).with_name("golden")
STUDY = "--ledger benchmarks/calibration/ledger/2026-11-25"
RUN = "0192aaaa-0000-7000-8000-{:012}"
OPERATORS = Metric(name="operators", unit="1", exact=True)
OTHERS = "--ledger benchmarks/strangers/ledger"
# By the name of a file: where its commands run, and these. The checkout keeps what was measured once; the
# project has the commits, rows and profiles that are made below.
COMMANDS = {
    "gate": (
        "checkout",
        f"ledger judge 01a2123a-52d6 {STUDY} --markdown OUT/comment.md",
        "ledger judge 47d0c85f",
        "ledger judge 47d0c85f --verbose",
        f"ledger judge 8982253b {STUDY}",
        f"ledger judge 0b52c4e8 {OTHERS} --markdown OUT/comment.md",
    ),
    "comment": (
        "checkout",
        f"ledger judge 8982253b {STUDY} --json OUT/gate.json --quiet",
        "comment --from OUT/gate.json --github-summary",
    ),
    "experiment": ("checkout", "experiment show be965eb87fe7"),
    "tricks": ("checkout", "tricks --from-ledger --run b2ab779c"),
    "show": ("checkout", "show profiles/whole_tensors.stat", "show profiles/tensor_losses.json"),
    "explain": ("checkout", "explain profiles/naive_form.stat profiles/tensor_losses.stat"),
    "history": ("project", "history", "history test_model", "history --metric operators"),
    "compare": ("project", "compare HEAD~1 HEAD"),
    "log": ("project", "log note HEAD 'Reuse the | matrix'", "log --out OUT/log.md"),
    "ledger": (
        "project",
        "ledger list",
        "ledger show 000000000003",
        "ledger check",
        "ledger compact --dry-run",
    ),
    "report": ("project", "report --out OUT/site", "report --trends OUT/trends"),
    "accept": (
        "project",
        "accept test_model --reason 'Exact distances'",
        "history accept 5b76ff71 --reason 'Exact distances'",
    ),
    "init": ("project", "init --dry-run"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project of twenty commits, each measured once; the eleventh made its model slower."""
    root = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patched:
        _make_project(Repository(root, create_repository(root)), patched)
    return root


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the project, two days after it was last measured."""
    monkeypatch.setattr("perfkit.commands.history.utc_now", lambda: datetime(2026, 1, 26, tzinfo=UTC))
    return Path(shutil.copytree(template, tmp_path / "project"))


def _make_project(made: Repository, patched: pytest.MonkeyPatch) -> None:
    files = {
        ".gitignore": "benchmarks/\n",
        "pyproject.toml": '[project]\nname = "acme"\n[tool.perfkit]\nmargin = "3%"\n'
        '[[tool.perfkit.log.columns]]\ntitle = "Model"\nbenchmark = "bench_model.py::test_model"\n',
        "tests/bench_model.py": "def test_model(benchmark): ...\n",
    }
    for number in range(20):
        at = datetime(2026, 1, 5, 9, 0, tzinfo=UTC) + timedelta(days=number)
        patched.setenv("GIT_AUTHOR_DATE", at.isoformat())
        patched.setenv("GIT_COMMITTER_DATE", at.isoformat())
        sha = made.commit({**files, "model.py": f"N = {number}\n"}, f"Change {number} of | 20")
        rows = []
        for launch in range(3):
            level = (0.012 if number < 10 else 0.0134) * (1 + 0.001 * (7 * number % 5) + 0.0005 * launch)
            times = {"test_model": (level, 1.01 * level), "test_loss": (2e-6 * (1 + 0.002 * (number % 3)),)}
            rows += [
                build_row(
                    *values,
                    name=f"tests/bench_model.py::{name}",
                    sha=sha,
                    run=RUN.format(number),
                    launch=launch,
                )
                for name, values in times.items()
            ]
        last = rows[-1].outcome
        count = replace(last, metric=OPERATORS, values=(100.0 if number < 15 else 120.0,))
        rows.append(replace(rows[-1], outcome=count))
        Ledger(made.root / "benchmarks/ledger").append([replace(row, recorded_at=at) for row in rows])


@pytest.fixture(autouse=True)
def _far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Print in another time zone and language than the files were written in."""
    for name, text in {
        "COLUMNS": "80",
        "TZ": "Pacific/Chatham",
        "LC_ALL": "tr_TR.UTF-8",
        "NO_COLOR": "1",
    }.items():
        monkeypatch.setenv(name, text)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_is_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    place, *commands = COMMANDS[name]
    folder = request.getfixturevalue("project") if place == "project" else ROOT
    if not (folder / ".git").exists():
        pytest.skip("this is no git checkout of perfkit")
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(out / "summary.md"))
    text = "".join(_transcript(command, folder, out) for command in commands)
    file = GOLDEN / f"{name}.txt"
    if "PERFKIT_WRITE_GOLDEN" in os.environ:
        file.write_text(text)

    assert file.read_text().splitlines() == text.splitlines()


def _transcript(command: str, folder: Path, out: Path) -> str:
    """Run a command; return it, what it prints, its exit code, and the markdown that it writes."""
    before = {file: file.read_text() for file in out.rglob("*.md")}
    done = run_here(*shlex.split(command.replace("OUT", str(out))), cwd=folder)
    lines = [
        f"$ perfkit {command}",
        *(done.stdout + done.stderr).splitlines(),
        f"[exit code {done.returncode}]",
    ]
    for file in sorted(out.rglob("*.md")):
        if before.get(file) != file.read_text():
            lines += [f"[{file.relative_to(out)}]", *file.read_text().splitlines()]
    known = {str(out): "OUT", str(folder): "PROJECT"}
    text = re.sub(r"states/\S+\.json", "states/STATE.json", "".join(f"{line.rstrip()}\n" for line in lines))
    for place, word in known.items():
        text = text.replace(place, word)
    return text + "\n"


if __name__ == "__main__":
    os.environ["PERFKIT_WRITE_GOLDEN"] = "1"
    tests = [__file__, str(Path(__file__).with_name("report"))]
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], check=False).returncode)
