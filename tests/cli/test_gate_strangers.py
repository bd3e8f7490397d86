"""`perfkit gate` on suites as strangers have them: a small repository for each trait, gated once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from gating import Gated, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.records.policies import judged_policy

# Time for one launch.
ONE_LAUNCH = ("--budget", "0.01")
STEADY = "import pytest\nimport work\n" + benchmark("steady", "work.steady")
FILES = {"work.py": work(steady=10), "tests/test_speed.py": STEADY}

SKIPPING = """
@pytest.fixture
def gpu():
    pytest.skip("no GPU in this machine")

def test_fixture(benchmark, gpu):
    benchmark(work.steady)

def test_body(benchmark):
    pytest.skip("needs a GPU")

@pytest.mark.skipif(not hasattr(work, "gpu"), reason="work was built without a GPU")
def test_marked(benchmark):
    benchmark(work.steady)

@pytest.mark.skipif(not hasattr(work, "old"), reason="no old way any more")
def test_gone(benchmark):
    benchmark.pedantic(work.steady, rounds=5, iterations=20)

@pytest.mark.skipif(not hasattr(work, "added"), reason="nothing was added yet")
def test_added(benchmark):
    benchmark.pedantic(work.steady, rounds=5, iterations=20)
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project and its gate."""

    project: GitProject
    gated: Gated

    @property
    def said(self) -> str:
        """What it printed for people, in one line."""
        return " ".join(self.gated.stderr.split())


@pytest.fixture(scope="module")
def skipping(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate benchmarks that are skipped in every way, beside one that runs."""
    before = {"work.py": work(steady=10, old=1), "tests/test_speed.py": STEADY + SKIPPING}
    project = git_project(tmp_path_factory.mktemp("skipped"), before)
    project.commit({"work.py": work(steady=10, added=1)})
    return Scene(project=project, gated=project.gate("--budget", "60"))


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("test_fixture", "SKIPPED", "on both sides: no GPU in this machine"),
        ("test_body", "SKIPPED", "on both sides: needs a GPU"),
        ("test_marked", "SKIPPED", "on both sides: work was built without a GPU"),
        ("test_gone", "MISSING", "skipped on head: no old way any more"),
        ("test_added", "FAILED", "skipped on base: nothing was added yet"),
        ("test_steady", "UNCHANGED", None),
    ],
)
def test_who_skips_decides(skipping: Scene, name: str, verdict: str, message: str | None) -> None:
    """What both sides skip is SKIPPED, with the reason; what one side skips was expected of it."""
    found = skipping.gated.comparisons[name]

    assert (verdict, message) == (found["verdict"], found["message"])


def test_the_exit_code_is_that_of_what_is_not_skipped(skipping: Scene) -> None:
    """What one side alone skips fails the gate, and nobody is asked to accept what both skip."""
    assert 4 == skipping.gated.exit_code
    assert "3 SKIPPED" in skipping.said
    assert "perfkit accept test_gone" in skipping.said
    assert "perfkit accept test_body" not in skipping.said


def test_a_skip_is_a_row_too(skipping: Scene) -> None:
    """The ledger keeps it with its reason and its verdict."""
    rows = {row.outcome.benchmark.name: row for row in Ledger(skipping.project.ledger).rows()}
    row = rows["tests/test_speed.py::test_body"]

    assert ("skipped", "on both sides: needs a GPU") == (row.outcome.status, row.outcome.message)
    assert "SKIPPED" == judged_policy(row).verdict


@pytest.mark.parametrize("how", [(), ("--exact-only",)], ids=["timed", "counted"])
def test_a_gate_that_skips_everything_does_not_pass(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Nothing was compared: the last lines say why."""
    project = git_project(tmp_path, {**FILES, "tests/test_speed.py": STEADY + SKIPPING})
    project.commit({"work.py": work(steady=11)})

    gated = project.gate("--select", "body", *how)

    assert (4, {"test_body": "SKIPPED"}) == (gated.exit_code, gated.verdicts)
    assert "every benchmark is skipped (on both sides: needs a GPU)" in " ".join(gated.stderr.split())


def test_instructions_of_no_benchmark_do_not_pass(tmp_path: Path) -> None:
    """They were asked for: where callgrind breaks down in each of them, that is said and nothing passes."""
    for name in ("valgrind", "callgrind_control"):
        command = tmp_path / "commands" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text("#!/bin/sh\necho 'illegal instruction' >&2\nexit 132\n")
        command.chmod(0o755)
    project = git_project(tmp_path, FILES)
    project.commit({"work.py": work(steady=11)})

    path = os.pathsep.join((str(tmp_path / "commands"), os.environ["PATH"]))
    gated = project.gate("--instructions", *ONE_LAUNCH, "--margin", "1000%", extra={"PATH": path})

    said = " ".join(gated.stderr.split())
    assert 4 == gated.exit_code
    assert "NOT MEASURED: the instructions of no benchmark could be counted" in said
    assert "illegal instruction" in said
