"""The documents are true: each shell line in them runs, in a copy of this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import git
import pytest
from repositories import create_repository

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", "docs/gate.md", "docs/ledger.md", "docs/profiling.md", "docs/trust.md"]
# Nothing in these is to be typed.
TEXTS = ["docs/calibration.md", "docs/method.md"]
# Few benchmarks are enough to see that a command works; `make test` runs this very test.
FEW_BENCHMARKS = "-k 'sampler or collate'"
NOT_RUN = {"make test"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of its own with this working tree as its last two commits."""
    root = tmp_path_factory.mktemp("documents") / "perfkit"
    listed = git.Repo(ROOT).git.ls_files("--cached", "--others", "--exclude-standard").splitlines()
    for name in filter(lambda name: (ROOT / name).is_file(), listed):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    repository = create_repository(root)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "All of it")
    repository.git.commit("--quiet", "--allow-empty", "-m", "And no change")
    _lend_environment(root)
    return root


def _lend_environment(root: Path) -> None:
    """Let the copy's Makefile find this interpreter's environment installed."""
    (root / ".venv").mkdir()
    (root / ".venv/bin").symlink_to(Path(sys.executable).parent)
    (root / ".venv/.installed").touch()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_shell_line_runs(project: Path, document: str) -> None:
    """Every line of every bash block succeeds, in order."""
    for line in _shell_lines(ROOT / document):
        if line not in NOT_RUN:
            done = _run(line, project)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_python_block_runs(project: Path, document: str) -> None:
    """Every Python block succeeds as a program of its own."""
    for block in _blocks(ROOT / document, "python"):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=project, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_the_documents_have_shell_lines() -> None:
    """The check above cannot pass by finding nothing."""
    assert {"make run", "pytest benchmarks/ --benchmark-autosave"} <= set(_shell_lines(ROOT / "README.md"))
    assert all(_shell_lines(ROOT / document) for document in DOCUMENTS)
    assert not any(_shell_lines(ROOT / text) for text in TEXTS)


def test_relative_links_lead_somewhere() -> None:
    """A link to a file of this repository exists."""
    for document in [*DOCUMENTS, *TEXTS]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / document).read_text()):
            assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def _shell_lines(document: Path) -> list[str]:
    return [line for block in _blocks(document, "bash") for line in block.splitlines() if line.strip()]


def _blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def _run(line: str, project: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{project / '.venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project),
        "PYTEST_ADDOPTS": FEW_BENCHMARKS,
    }
    return subprocess.run(
        ["bash", "-c", line], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
