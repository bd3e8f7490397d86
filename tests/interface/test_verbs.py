"""The functions of ``import perfkit`` do what the commands do, and their results show themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from gating import CONFIGURATION
from repositories import Repository

import perfkit
from perfkit.errors import PerfkitError, UsageError
from perfkit.interface import verbs

pytestmark = pytest.mark.usefixtures("one_launcher")
PASSES: verbs.Passes = ("clean", "cprofile")
BENCHMARK = "def test_sum(benchmark):\n    benchmark(lambda: sum(range(3_000)))\n"
SLOWER = BENCHMARK.replace("3_000", "9_000")
TRAINING = """
import torch

def train():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture(autouse=True)
def _project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a repository whose last commit makes a benchmark slower, and go there."""
    ini = f'{CONFIGURATION}[tool.pytest.ini_options]\npython_files = ["bench_*.py"]\n'
    repository.commit({"pyproject.toml": ini, "benchmarks/bench_sum.py": BENCHMARK, "training.py": TRAINING})
    repository.commit({"README.md": "A model.\n"})
    repository.commit({"benchmarks/bench_sum.py": SLOWER})
    monkeypatch.chdir(repository.root)


def test_a_gate_is_a_result_that_shows_itself(capsys: pytest.CaptureFixture[str]) -> None:
    found = perfkit.gate("HEAD~2", "HEAD~1", exact_only=True, progress=False)

    assert found.passed
    assert 0 == found.exit_code
    assert str(found).startswith("PASS")
    assert "PASS" in found._repr_html_()
    assert found._repr_html_().startswith("<pre")
    assert "PASS" in found.to_markdown()
    assert "" == capsys.readouterr().err
    assert found.report.run_id in repr(found)


def test_a_gate_times_both_sides() -> None:
    found = perfkit.gate("HEAD~1", "HEAD", progress=False, budget_s=60)

    (name,) = found.verdicts
    assert name.endswith("::test_sum")
    ratio, low, high = found.ratios[name]
    assert low <= ratio <= high
    assert found.report.run_id in {run.run_id for run in perfkit.open_ledger().runs()}


def test_a_profile_states_where_its_files_are() -> None:
    found = perfkit.profile(
        "training:train", out="here/first.stat", passes=("clean", "cprofile"), progress=False
    )

    assert Path("here") == found.folder
    assert Path("here/first.stat") in found.files
    assert all(file.is_file() for file in found.files)
    assert "training:train" in str(found)
    assert "<pre" in found._repr_html_()
    assert "<perfkit profile in here>" == repr(found)


@pytest.mark.slow
def test_two_profiles_are_explained() -> None:
    for name in ("a", "b"):
        perfkit.profile(
            "training:train",
            out=f"here/{name}.stat",
            passes=("clean", "cprofile"),
            record=False,
            progress=False,
        )
    found = perfkit.explain("here/a.stat", "here/b.stat", progress=False)

    assert str(found)
    assert "<html" in found.to_html()
    assert found.to_markdown()
    assert "<pre" in found._repr_html_()


def test_mistakes_are_exceptions_with_the_exit_code_of_the_command() -> None:
    with pytest.raises(PerfkitError, match="nowhere") as raised:
        perfkit.gate("nowhere", progress=False)
    assert raised.value.exit_code not in (0, 1)
    with pytest.raises(UsageError, match="seed must be from 0 to 9223372036854775807, found -1"):
        perfkit.gate(seed=-1, progress=False)
    with pytest.raises(UsageError, match="missing"):
        perfkit.profile("missing:train", progress=False)
    with pytest.raises(PerfkitError):
        perfkit.explain("no.stat", "none.stat", progress=False)
