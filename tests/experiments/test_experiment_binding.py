"""A target gets a variant's levels as arguments that it accepts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiment_targets import TRAINING

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import load_bound, spelled, takes_key_values
from perfkit.features.experiments.definition import read_experiment
from perfkit.features.experiments.records import Level
from perfkit.profiling.passes.targets import Target

NAME = "bound_training"


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / f"{NAME}.py"
    file.write_text(TRAINING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    yield file
    sys.modules.pop(NAME, None)


def _target(name: str) -> Target:
    return Target(name=name, place=f"{NAME}:{name}")


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("name", ["train", "by_keywords", "main"])
def test_levels_arrive(name: str) -> None:
    batch_size = "batch-size" if name == "main" else "batch_size"
    result = load_bound(_target(name), {"steps": 3, batch_size: 4})()

    assert 12 == getattr(result, "samples", None)


def test_a_script_gets_options(training: Path) -> None:
    call = load_bound(
        Target(name="script", place=str(training)), {"steps": 2, "verbose": True, "batch-size": 4}
    )
    call()

    assert [str(training), "--steps", "2", "--verbose", "--batch-size", "4"] == sys.argv
    load_bound(Target(name="script", place=str(training)), {"verbose": False})()
    assert [str(training)] == sys.argv


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("train", {"precison": "bf16"}, 'takes no argument "precison"; did you mean "precision"?'),
        ("train", {"depth": 2}, 'takes no argument "depth"; it takes precision, batch_size'),
        ("train", {"precision": "fp8"}, "precision: expected one of default, bf16, fp16, found fp8"),
        ("train", {"batch_size": "many"}, "batch_size: Expected int, got str"),
        ("train", {"batch_size": 0}, "refuses batch_size=0: expected batch_size of at least 1"),
        ("nothing", {}, 'there is no "nothing"'),
    ],
)
def test_what_is_refused_is_one_line(name: str, arguments: dict[str, Level], shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_bound(_target(name), arguments)

    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 8, "log-interval": 2}, "--batch_size 8 --log-interval 2"),
        ({"-b": 8, "--lr": 0.1}, "-b 8 --lr 0.1"),
        ({"amp": True, "deep": False}, "--amp"),
        ({"compiled/no-compiled": True, "amp/no-amp": False}, "--compiled --no-amp"),
    ],
)
def test_an_option_has_the_name_of_its_argument(arguments: dict[str, Level], words: str) -> None:
    assert words.split() == spelled(arguments)


@pytest.mark.parametrize(
    "source", ["settings = OmegaConf.from_cli()\n", "@hydra.main(config_path=None)\ndef main(config): pass\n"]
)
def test_a_script_of_key_values_gets_them(tmp_path: Path, source: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)

    words = spelled({"model.lr": 0.1, "amp": False}, key_values=takes_key_values(script))

    assert ["model.lr=0.1", "amp=False"] == words


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("--{name}={value}", ["--batch_size=8", "--amp=False"]),
        ("{name}={value}", ["batch_size=8", "amp=False"]),
        ("-s {name} {value}", ["-s", "batch_size", "8", "-s", "amp", "False"]),
    ],
)
def test_a_template_spells_every_argument(template: str, words: list[str]) -> None:
    assert words == spelled({"batch_size": 8, "amp": False}, template)


def test_a_template_without_a_place_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lr.toml"
    file.write_text('target = "train.py"\nargument = "--{name}"\n[factors]\nlr = [1, 2]\n')

    with pytest.raises(UsageError, match=r"lr\.toml: argument needs \{name\} and \{value\}"):
        read_experiment(file)
