"""An experiment's file is read whole, and each mistake in it is named in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.errors import ConfigError, UsageError
from perfkit.features.experiments.definition import (
    parse_level,
    read_experiment,
    with_levels,
)
from perfkit.features.experiments.records import Factor

PLAIN = """
target = "training:train"
budget = "90s"
margin = "5%"

[factors]
precision = ["default", "bf16"]
batch_size = [1, 2]

[fixed]
steps = 8

[returned]
accuracy = "accuracy"
"""


def _file(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def test_a_file_is_an_experiment(tmp_path: Path) -> None:
    found = read_experiment(_file(tmp_path, PLAIN))

    assert ("mine", "training:train", 90.0, 0.05) == (
        found.name,
        found.target,
        found.budget_s,
        found.margin,
    )
    assert {"steps": 8} == found.fixed
    assert {"accuracy": "accuracy"} == found.returned
    assert [
        "precision=default, batch_size=1",
        "precision=default, batch_size=2",
        "precision=bf16, batch_size=1",
        "precision=bf16, batch_size=2",
    ] == [variant.name for variant in found.variants]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("target = [", "is not valid TOML"),
        ('factors = {a = ["x", "y"]}', "missing required field target"),
        ('target = "m:f"', "missing required field factors"),
        (PLAIN.replace("budget", "bugdet"), 'unknown key "bugdet"; did you mean "budget"?'),
        (PLAIN.replace('"90s"', '"soon"'), 'budget must be a time above zero such as "90s" or "5min"'),
        (PLAIN.replace("[1, 2]", "[1]"), "factors.batch_size: expected at least two levels, found 1"),
        (PLAIN.replace("[1, 2]", "[2, 2]"), 'factors.batch_size: the level "2" stands twice'),
        (PLAIN.replace("[1, 2]", "[[1], 2]"), "factors"),
        (PLAIN.replace("steps = 8", "precision = 8"), '"precision" is a factor and fixed as well'),
        (f'{PLAIN}[tricks]\namp = "bf16_autocast"', "tricks.amp names no factor"),
        (PLAIN.replace('margin = "5%"', "blocks = 1"), "blocks must be at least 2, found 1"),
        (PLAIN.replace('margin = "5%"', "alpha = 2.0"), "alpha must lie between 0 and 1, found 2"),
        (PLAIN.replace('margin = "5%"', "threads = 0"), "threads must be at least 1, found 0"),
        ('target = "m:f"\nfactors = {}', "expected at least one factor with two levels, found none"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, shown: str) -> None:
    file = _file(tmp_path, text)

    with pytest.raises(UsageError) as caught:
        read_experiment(file)

    assert shown in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_margin_must_be_a_percentage(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a percentage above zero"):
        read_experiment(_file(tmp_path, PLAIN.replace('"5%"', '"5"')))


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give an experiment's TOML file"):
        read_experiment(tmp_path / "none.toml")


def test_levels_can_be_changed(tmp_path: Path) -> None:
    found = read_experiment(_file(tmp_path, PLAIN))

    changed = with_levels(found, {"workers": (1, 2), "steps": (4,)}, {"batch_size": 3})

    assert (
        Factor(name="precision", levels=("default", "bf16")),
        Factor(name="workers", levels=(1, 2)),
    ) == changed.factors
    assert {"steps": 4, "batch_size": 3} == changed.fixed


@pytest.mark.parametrize(
    ("text", "level"),
    [("2", 2), ("0.5", 0.5), ("true", True), ("False", False), ("bf16", "bf16"), ("1e-3", 0.001)],
)
def test_levels_on_a_command_line(text: str, level: object) -> None:
    assert (level, type(level)) == (parse_level(text), type(parse_level(text)))
