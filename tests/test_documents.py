"""The documents are true: each shell line in them runs, in a copy of this repository."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import git
import pytest
import typer
from forked_commands import run
from repositories import create_repository

from perfkit.cli.app import whole_command_line

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    "README.md",
    "docs/counters.md",
    "docs/experiments.md",
    "docs/explain.md",
    "docs/gate.md",
    "docs/history.md",
    "docs/howto/compare-dependencies.md",
    "docs/howto/continuous-integration.md",
    "docs/json.md",
    "docs/ledger.md",
    "docs/other-tools.md",
    "docs/profiling.md",
    "docs/shared-ledger.md",
    "docs/start.md",
    "docs/training.md",
    "docs/trust.md",
]
# Its lines run in a project with a suite of asv: tests/cli/test_asv_suites.py.
# tests/test_site.py runs the tutorial from its first line to its last.
ELSEWHERE = ["docs/asv.md", "docs/tutorial.md"]
# No line of these is run: they show what is typed elsewhere, or nothing to type.
TEXTS = sorted(
    {file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md")} - {*DOCUMENTS, *ELSEWHERE}
)
# A benchmark of plain Python and little training are enough to see that a command works. A plugin that none
# uses would cost each session of pytest a second.
PYTEST_OPTIONS = "-p no:hypothesispytest --benchmark-max-time=0.1"
LITTLE_BENCHMARK = """
def test_collate(benchmark):
    benchmark(sorted, range(1000))
"""
LITTLE_TRAINING = """
import torch

def main():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(14):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
"""
# `make test` runs this very test.
NOT_RUN = {"make test"}
# Their lines measure for longer than those of all others but the README: `make slow` runs them, and the usual
# run checks that each of them could begin.
SLOW = {
    "docs/counters.md",
    "docs/gate.md",
    "docs/history.md",
    "docs/howto/compare-dependencies.md",
    "docs/ledger.md",
    "docs/other-tools.md",
    "docs/profiling.md",
    "docs/trust.md",
}
# The doctor finds no machine fit that does other work besides.
ALONE = {"docs/trust.md"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of its own with this working tree as its last two commits."""
    root = tmp_path_factory.mktemp("documents") / "perfkit"
    listed = git.Repo(ROOT).git.ls_files("--cached", "--others", "--exclude-standard").splitlines()
    for name in filter(lambda name: (ROOT / name).is_file(), listed):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    _shorten(root)
    repository = create_repository(root)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "All of it")
    repository.git.commit("--quiet", "--allow-empty", "-m", "And no change")
    _lend_environment(root)
    return root


def _shorten(root: Path) -> None:
    """Let the copy have one benchmark, a target ``train`` of a few steps, and gates that decide soon.

    No line needs the counts of a gate but one that asks for them.
    """
    for file in (root / "benchmarks").glob("bench_*.py"):
        file.unlink()
    (root / "benchmarks/conftest.py").write_text('collect_ignore = ["calibration"]\n')
    (root / "benchmarks/bench_dataloading.py").write_text(LITTLE_BENCHMARK)
    settings = root / "pyproject.toml"
    text = settings.read_text()
    for whole, little in {
        'train = "benchmarks.workloads.metric_learning.training:main"': 'train = "little_training:main"',
        "[tool.perfkit.gate]\n": "[tool.perfkit.gate]\nalpha = 0.2\npreload = []\n",
        "[tool.perfkit.log]\n": "[tool.perfkit.exact]\ncount = false\n[tool.perfkit.log]\n",
    }.items():
        assert whole in text
        text = text.replace(whole, little)
    settings.write_text(text)
    (root / "little_training.py").write_text(LITTLE_TRAINING)


def _lend_environment(root: Path) -> None:
    (root / ".venv").mkdir()
    (root / ".venv/bin").symlink_to(Path(sys.executable).parent)
    (root / ".venv/.installed").touch()


@pytest.fixture(scope="module")
def been_run() -> set[str]:
    """Return the lines that were run already, to be added to."""
    return set(NOT_RUN)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            document,
            marks=[
                mark
                for mark, those in ((pytest.mark.slow, SLOW), (pytest.mark.alone, ALONE))
                if document in those
            ],
        )
        for document in DOCUMENTS
    ],
)
def test_each_shell_line_runs(project: Path, been_run: set[str], document: str) -> None:
    for line in _shell_lines(ROOT / document):
        if line not in been_run:
            done = _run(line, project)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            been_run |= {line, *_lines_of_make(line, project)}


@pytest.mark.parametrize("document", [*DOCUMENTS, *ELSEWHERE])
def test_each_command_could_begin(document: str) -> None:
    for line in _shell_lines(ROOT / document):
        program, *words = shlex.split(re.split(r" > | \|\| ", line)[0])
        if program == "perfkit":
            _parse(words)


def test_each_shown_command_could_begin() -> None:
    shown = [block for text in TEXTS for block in _blocks(ROOT / text, "text")]
    lines = re.findall(
        r"^ *(?:\$ )?perfkit ([a-z].*)$", "\n".join(shown).replace("\\\n", " "), flags=re.MULTILINE
    )
    assert any("old.txt" in line for line in lines)
    # A table with a command for each sentence.
    cells = re.findall(r"\| `perfkit ([^`]+)` \|", (ROOT / "docs/claims.md").read_text())
    assert cells
    for line in [*lines, *cells]:
        _parse(shlex.split(re.split(r" (?:\||&&) ", line)[0], comments=True))


_whole_command_line = functools.cache(whole_command_line)


def _parse(words: list[str]) -> None:
    """Read a command line as perfkit does, down to its last verb, which is not called."""
    command: Any = _whole_command_line()
    context: Any = None
    with contextlib.suppress(typer.Exit):  # a help is shown at once
        while True:
            context = command.make_context(command.name, words, parent=context)
            words = [*getattr(context, "_protected_args", ()), *context.args]
            if not words or not hasattr(command, "resolve_command"):
                return
            _, command, words = command.resolve_command(context, words)


def test_a_mistyped_command_could_not_begin() -> None:
    for line in ("gate --selct collate", "ledger lst", "gate --budget soon"):
        with pytest.raises(Exception, match=r"No such (option|command)|expected a time"):
            _parse(line.split())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_python_block_runs(project: Path, document: str) -> None:
    for block in _blocks(ROOT / document, "python"):
        done = run([sys.executable, "-c", block], cwd=project)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_the_documents_have_shell_lines() -> None:
    assert {"make run", "pytest benchmarks/ --benchmark-autosave"} <= set(_shell_lines(ROOT / "README.md"))
    assert all(_shell_lines(ROOT / document) for document in DOCUMENTS)
    assert not any(_shell_lines(ROOT / text) for text in TEXTS)


def test_what_make_runs_is_known(project: Path) -> None:
    assert {"pytest benchmarks/ --benchmark-autosave", "perfkit log"} <= _lines_of_make("make run", project)
    assert set() == _lines_of_make("perfkit log", project)


def test_the_moving_picture_shows_the_output_in_the_readme() -> None:
    picture = ROOT / "docs/_static/first-gate.svg"
    drawn = {re.sub(r"\s", "", "".join(one.itertext())) for one in ET.parse(picture).iter()}  # noqa: S314
    shown = [block for block in _blocks(ROOT / "README.md", "text") if block.startswith("$ perfkit")]

    assert ["gate", "why"] == [block.split()[2] for block in shown]
    assert {re.sub(r"\s", "", line) for block in shown for line in block.splitlines()} <= drawn | {""}
    assert picture.stat().st_size <= 150_000


def test_relative_links_lead_somewhere() -> None:
    for document in [*DOCUMENTS, *ELSEWHERE, *TEXTS]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / document).read_text()):
            assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def _shell_lines(document: Path) -> list[str]:
    return [line for block in _blocks(document, "bash") for line in block.splitlines() if line.strip()]


def _blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def _lines_of_make(line: str, project: Path) -> set[str]:
    """Return what a call of make runs, as one types it with the environment active; else nothing."""
    if not line.startswith("make "):
        return set()
    output = _run(f"{line} --dry-run", project)
    assert 0 == output.returncode, output.stderr
    return {command.removeprefix(".venv/bin/") for command in output.stdout.splitlines()}


def _run(line: str, project: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{project / '.venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project),
        "PYTEST_ADDOPTS": PYTEST_OPTIONS,
        # As on a reader's machine: else each line would compile all of perfkit anew.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    return run(["bash", "-c", line], cwd=project, env=environment)
