"""Every command prints something before it makes anybody wait, in a terminal and in a pipe."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from gating import PERFKIT, GitProject, benchmark, git_project, work

from perfkit.cli.app import whole_command_line
from perfkit.runner.lock import machine_lock

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "benchmarks" / "first_output"
# A command that is about to import a library reports it and ends.
PROGRAM = """
import os, sys
class Reporting:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("typer", "rich", "git", "numpy", "pyarrow", "pytest", "torch", "scipy"):
            os.write(2, f"imports {name}\\n".encode())
            os._exit(9)
sys.meta_path.insert(0, Reporting())
from perfkit.cli import main
main()
"""
MEASURING = {
    "gate": ("gate",),
    "doctor": ("doctor", "--seconds", "1"),
    "gate --plan": ("gate", "--plan"),
    "backfill": ("backfill", "HEAD", "--benchmarks", "tests"),
    "calibrate": ("calibrate", "--gates", "1", "--benchmarks", "tests"),
    "tricks": ("tricks", "--only", "item_per_step"),
    "experiment": ("experiment", "run", "experiment.toml"),
    "profile": ("profile", "training:main", "--out", "x.stat"),
    "why": ("why", "training:main"),
    "explain": ("explain", "HEAD~1", "HEAD", "--target", "training:main"),
}
SLOWER = [
    pytest.param(name, marks=[] if name in ("gate", "doctor") else pytest.mark.slow) for name in MEASURING
]
FILES = {
    "work.py": work(steady=10),
    "tests/test_speed.py": "import work\n" + benchmark("a", "work.steady"),
    "training.py": "def main(size=1):\n    pass\n",
    "experiment.toml": 'name = "none"\ntarget = "training:main"\nblocks = 2\n[factors]\nsize = [1, 2]\n',
}


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "benchmarks/faults"))
        patched.syspath_prepend(str(STUDY))
        yield importlib.import_module("first_output")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a repository in which every command finds something to measure."""
    made = git_project(tmp_path_factory.mktemp("first"), FILES)
    made.commit({"work.py": work(steady=11)})
    return made


def test_no_command_is_forgotten(study: ModuleType) -> None:
    assert set(study.commands()) == {study.command_of(verb) for verb in study.CALLS}
    assert len({verb.name for verb in study.CALLS}) == len(study.CALLS)


# One place prints the line for all commands; `make slow` tries each of them.
@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(verb, marks=[] if verb in ("gate", "history", "tricks", "help") else pytest.mark.slow)
        for verb in sorted(whole_command_line().commands)
    ],
)
def test_a_terminal_shows_a_line_before_any_library_is_imported(
    study: ModuleType, verb: str, tmp_path: Path
) -> None:
    output = study.first_words(
        [sys.executable, "-c", PROGRAM, verb],
        "terminal",
        cwd=tmp_path,
        environment={**os.environ, "TERM": "xterm"},
    )

    at_once = verb in ("help", "schema", "work")
    first = "" if at_once else f"starting perfkit {verb}"
    # Who reads late on a busy machine reads what follows as well.
    assert output.words in {first or "imports typer", f"{first}imports typer"}


@pytest.mark.parametrize("name", SLOWER)
def test_a_pipe_shows_a_line_before_it_measures(
    study: ModuleType, project: GitProject, name: str, tmp_path: Path
) -> None:
    environment = project.environment({"PERFKIT_LOCK_FOLDER": str(tmp_path)})
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PERFKIT_LOCK_FOLDER", str(tmp_path))
        with machine_lock(log=print):
            output = study.first_words(
                [str(PERFKIT), *MEASURING[name]], "pipe", cwd=project.root, environment=environment
            )

    assert output.words
    assert not output.words.startswith("perfkit: ")


def test_the_document_has_the_numbers_that_were_measured(study: ModuleType) -> None:
    results = json.loads(study.RESULTS.read_text())

    assert {verb.name for verb in study.CALLS} == set(results["calls"])
    assert study.document(results) in study.DOCUMENT.read_text()
