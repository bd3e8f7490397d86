"""A gate shows its verdict first, even where the terminal, disk or repository then fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from gating import SLOWER, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.profiling.read.summary_file import load_summary

ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
DECISION = "FAIL: test_loss is "
# A disk that is full once the file of the ledger is written: by then all is measured.
FULL = """
import errno, sys
from perfkit.cli import main
from perfkit.ledger import recording

def fail(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

recording._write_run = fail
sys.argv = sys.argv[1:]
main()
"""
TRAINING = """
import torch

def main():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(8):
        parameter.sum().backward()
        optimizer.step()
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project whose head is slower, and the output of its gate in a locale that knows ASCII alone."""

    project: GitProject
    output: subprocess.CompletedProcess[str]

    def run(
        self, *arguments: str, extra: Mapping[str, str] | None = None, stdout: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Judge the gate of the scene anew."""
        return _run(self.project, [*self.again, *arguments], extra=extra, stdout=stdout)

    @property
    def again(self) -> list[str]:
        """The command that judges the gate of the scene anew."""
        return self.project.judge_command(Ledger(self.project.ledger).rows()[0].run_id)


def _gate(
    project: GitProject,
    *arguments: str,
    extra: Mapping[str, str] | None = None,
    stdout: int | None = None,
    program: str | None = None,
) -> subprocess.CompletedProcess[str]:
    command = project.command(*arguments)
    if program is not None:
        command = [sys.executable, "-c", program, *command]
    return _run(project, command, extra=extra, stdout=stdout)


def _run(
    project: GitProject, command: list[str], *, extra: Mapping[str, str] | None, stdout: int | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=project.root,
        env=project.environment(extra),
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a slowdown, with a commit's subject that ASCII cannot spell."""
    files = {
        "work.py": work(loss=20),
        "tests/test_speed.py": "import work\n" + benchmark("loss", "work.loss"),
    }
    project = git_project(tmp_path_factory.mktemp("hard"), files)
    project.commit({"work.py": work(loss=20 * SLOWER)}, "Größere Verluste → µ")
    output = _gate(project, "--budget", "60", "--markdown", "comment.md", extra=ASCII)
    (project.root / "comment.md").rename(project.root.with_name("comment.md"))
    return Scene(project=project, output=output)


def test_ascii_spells_signs_out(scene: Scene) -> None:
    assert 1 == scene.output.returncode, scene.output.stderr
    assert scene.output.stdout.isascii()
    assert scene.output.stderr.isascii()
    assert DECISION in scene.output.stdout
    assert "Gr??ere Verluste -> u" in scene.output.stdout
    assert '--reason "..."' in scene.output.stdout
    comment = scene.project.root.with_name("comment.md").read_text(encoding="utf-8")
    assert "Größere Verluste → µ" in comment


def test_json_is_utf_8_in_any_locale(scene: Scene) -> None:
    done = scene.run("--json", "-", extra={"PYTHONIOENCODING": "latin-1"})

    assert 1 == done.returncode, done.stderr
    assert "Größere Verluste → µ" == json.loads(done.stdout)["head"]["subject"]


def test_a_verdict_is_shown_before_files_are_written(scene: Scene) -> None:
    done = scene.run("--markdown", "/dev/full", "--json", "/dev/full")

    full = "cannot write /dev/full (No space left on device); make room or choose another with"
    assert 2 == done.returncode
    assert DECISION in done.stdout
    assert [f"perfkit: {full} --markdown", f"perfkit: {full} --json"] == done.stderr.splitlines()


def test_files_are_written_though_nobody_takes_the_view(scene: Scene, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = scene.run("--markdown", str(tmp_path / "full.md"), stdout=full.fileno())
    reading, writing = os.pipe()
    os.close(reading)
    closed = scene.run("--markdown", str(tmp_path / "closed.md"), stdout=writing)
    os.close(writing)

    assert (2, 141) == (done.returncode, closed.returncode)
    assert ["perfkit: cannot write to standard output (No space left on device);"] == [
        line.partition(" lead ")[0] for line in done.stderr.splitlines()
    ]
    assert "" == closed.stderr
    for name in ("full.md", "closed.md"):
        assert DECISION in (tmp_path / name).read_text(encoding="utf-8")


def test_a_verdict_is_shown_though_the_ledger_is_full(scene: Scene, tmp_path: Path) -> None:
    ledger, report = tmp_path / "ledger", tmp_path / "gate.json"
    done = _gate(
        scene.project, "--ledger", str(ledger), "--budget", "60", "--json", str(report), program=FULL
    )

    (staged,) = (ledger / ".staged").glob("*.jsonl")
    shown = json.loads(report.read_text(encoding="utf-8"))
    last = done.stderr.splitlines()[-1]
    assert 1 == done.returncode == shown["exit_code"], done.stderr
    assert DECISION in done.stdout
    assert "It could not be recorded." in " ".join(done.stdout.split())
    assert last.startswith("perfkit: cannot write the ledger file")
    assert "(No space left on device); its " in last
    assert f"rows are kept in {staged}: the next perfkit command on that ledger recovers them" in last
    assert shown["unrecorded"] in last

    again = _run(
        scene.project,
        [*scene.project.judge_command(shown["run_id"]), "--ledger", str(ledger)],
        extra=None,
        stdout=None,
    )
    assert "rows are recovered in" in again.stderr
    assert 1 == again.returncode
    assert DECISION in again.stdout


def test_a_repository_that_takes_no_worktree_is_reported(scene: Scene) -> None:
    listing = scene.project.root / ".git/worktrees"
    assert not listing.exists()
    listing.write_text("")

    done = _gate(scene.project)

    listing.unlink()
    last = done.stderr.splitlines()[-1]
    assert 2 == done.returncode
    assert f"git must list the checkout in the repository, and {listing} cannot be written" in last
    assert f"or run this in a clone of your own: git clone {scene.project.root} FOLDER" in last
    assert "Traceback" not in done.stderr
    assert set() == scene.project.left_behind()


def test_a_profile_is_there_though_the_ledger_is_full(tmp_path: Path) -> None:
    project = git_project(tmp_path, {"training.py": TRAINING})
    command = ["perfkit", "profile", "training:main", "--passes", "clean", "--out", "x.stat"]

    done = subprocess.run(
        [sys.executable, "-c", FULL, *command],
        cwd=project.root,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    *_, failure, place = done.stderr.splitlines()
    assert 4 == done.returncode
    assert failure.startswith("perfkit: cannot write the ledger file")
    assert "perfkit: the profile itself is in x.json: `perfkit show x.json` shows it" == place
    assert 8 == load_summary(project.root / "x.json").main_pass.steps
