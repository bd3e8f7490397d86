"""A target gets a variant's levels as arguments that it accepts, and others are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiment_targets import TRAINING

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import load_bound
from perfkit.features.experiments.records import Level
from perfkit.profiling.passes.targets import Target

NAME = "bound_training"


@pytest.fixture(autouse=True)
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the training program on the path."""
    file = tmp_path / f"{NAME}.py"
    file.write_text(TRAINING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    yield file
    sys.modules.pop(NAME, None)


def _target(name: str) -> Target:
    return Target(name=name, place=f"{NAME}:{name}")


@pytest.mark.parametrize("name", ["train", "by_keywords", "main"])
def test_levels_arrive(name: str) -> None:
    """In a configuration, by keyword, and as options."""
    result = load_bound(_target(name), {"steps": 3, "batch_size": 4})()

    assert 12 == getattr(result, "samples", None)


def test_a_script_gets_options(training: Path) -> None:
    """As if they were typed; a true one stands alone, a false one is left out."""
    call = load_bound(
        Target(name="script", place=str(training)), {"steps": 2, "verbose": True, "batch_size": 4}
    )
    call()

    assert [str(training), "--steps", "2", "--verbose", "--batch-size", "4"] == sys.argv
    load_bound(Target(name="script", place=str(training)), {"verbose": False})()
    assert [str(training)] == sys.argv


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("train", {"precison": "bf16"}, 'takes no argument "precison"; did you mean "precision"?'),
        ("train", {"depth": 2}, 'takes no argument "depth"; it takes precision, batch_size'),
        ("train", {"precision": "fp8"}, "precision: expected one of default, bf16, fp16, found fp8"),
        ("train", {"batch_size": "many"}, "batch_size: Expected int, got str"),
        ("train", {"batch_size": 0}, "refuses batch_size=0: expected batch_size of at least 1"),
        ("nothing", {}, 'there is no "nothing"'),
    ],
)
def test_what_is_refused_is_one_line(name: str, arguments: dict[str, Level], said: str) -> None:
    """A factor that the target does not take, and a level that it refuses."""
    with pytest.raises(UsageError) as caught:
        load_bound(_target(name), arguments)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
