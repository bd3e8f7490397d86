"""The study for a machine with a GPU works: what can run on the CPU does, and without a device it says so."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from repositories import Repository

from perfkit.compare.sequential import ComparedBenchmark
from perfkit.compare.survey import _with_marker
from perfkit.factorial.definition import read_experiment
from perfkit.ledger.store import Ledger
from perfkit.records import Benchmark

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "benchmarks" / "gpu"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the study's script."""
    monkeypatch.syspath_prepend(str(STUDY))
    yield importlib.import_module("gpu_study")
    sys.modules.pop("gpu_study", None)


def test_without_a_device_it_says_so(study: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and exit code 2, and nothing is written."""
    if torch.cuda.is_available():
        pytest.skip("there is a device")

    assert 2 == study.main([])
    told = capsys.readouterr()
    assert ("", f"{study.NO_DEVICE}\n") == (told.out, told.err)


def test_the_study_of_operators_and_overhead_can_be_rehearsed(
    study: ModuleType, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tables are written; each operator has a row for its calls and one for those in a row."""
    repository.commit({"pyproject.toml": ""})
    monkeypatch.chdir(repository.root)
    out = tmp_path / "out"

    code = study.main(["--rehearse", "--part", "operators", "--part", "overhead", "--out", str(out)])

    names = {row.outcome.benchmark.name for row in Ledger(out / "ledger").rows()}
    table = (out / "operators.md").read_text().splitlines()
    assert 0 == code
    assert len(study.operators("cpu", 32)) == 10 == len(names) // 2
    assert 2 + 10 == sum(line.startswith("| ") for line in table)
    assert "The instrumented step takes" in (out / "overhead.md").read_text()


@pytest.mark.slow
def test_the_study_of_sides_on_one_device_and_of_first_calls_can_be_rehearsed(
    study: ModuleType, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One benchmark beside itself and by turns; four first calls, two of which compile."""
    repository.commit({"pyproject.toml": ""})
    monkeypatch.chdir(repository.root)
    out = tmp_path / "out"

    code = study.main(["--rehearse", "--part", "residency", "--part", "cold", "--out", str(out)])

    assert 0 == code
    (row,) = (out / "residency.md").read_text().splitlines()[2:3]
    assert "| test_matmul | 0 B |" in row
    assert 4 == row.count(" % |")
    cold = [line.split(" | ") for line in (out / "cold.md").read_text().splitlines()[2:]]
    assert [False, False, True, True] == [cells[2] not in {"-", "0 s"} for cells in cold]


def test_what_is_measured_is_not_measured_again(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study that was stopped goes on where it stood."""
    (tmp_path / "operators.md").write_text("a table\n")

    assert 0 == study.main(["--rehearse", "--part", "operators", "--out", str(tmp_path)])
    assert "measured already" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["precision_images", "precision_text_train", "precision_text_infer"])
def test_the_experiments_are_ones(name: str) -> None:
    """Each file defines an experiment on the device, of the sizes that the document names."""
    experiment = read_experiment(STUDY / f"{name}.toml")
    fixed = tomllib.loads((STUDY / f"{name}.toml").read_text())["fixed"]

    assert ("default", "bf16", "fp16") == experiment.factors[0].levels
    wanted = (256, 256) if name == "precision_images" else (16, 512)
    size = fixed["image_size"] if name == "precision_images" else fixed["max_length"]
    assert ("cuda", *wanted) == (fixed["device"], fixed["batch_size"], size)


@pytest.mark.slow
def test_the_suite_runs_on_the_cpu_as_well() -> None:
    """Its benchmarks are those that the study counts on."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(STUDY / "gpu_suite.py"), "-q", "--benchmark-disable"),
            *("-p", "no:hypothesispytest"),
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "6 passed" in done.stdout, done.stdout


def test_a_gate_understands_the_markers_of_the_suite() -> None:
    """Emptying the cache is a setting of the benchmark itself, and changes nothing of how it is judged."""
    benchmark = ComparedBenchmark(
        benchmark=Benchmark(name="gpu_suite.py::test_sum_without_cache", version="v1"),
        margin=0.02,
        gating=True,
        limit_s=30.0,
    )

    assert benchmark == _with_marker(benchmark, {"flush_l2": "True"})


@pytest.mark.slow
def test_the_whole_study_can_be_rehearsed(study: ModuleType, tmp_path: Path) -> None:
    """Gates and experiments too, through the commands that a person would type."""
    assert 0 == study.main(["--rehearse", "--part", "precision", "--out", str(tmp_path)])
    assert 3 == (tmp_path / "precision.md").read_text().count("## precision")
