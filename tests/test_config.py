"""The configuration: defaults, values, and one clear line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.config import Config, load_project
from perfkit.errors import ConfigError


def _write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_every_key_has_a_default(tmp_path: Path) -> None:
    """A project without configuration gets the defaults."""
    project = load_project(_write(tmp_path, "[project]\nname = 'x'\n"))

    assert Config() == project.config
    assert tmp_path / "benchmarks/ledger" == project.ledger_path


def test_the_nearest_pyproject_above_gives_the_root(tmp_path: Path) -> None:
    """A command typed in a subfolder finds the project."""
    _write(tmp_path, '[tool.perfkit]\nledger = "rows"\n')
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)

    assert tmp_path / "rows" == load_project(deep).ledger_path


def test_all_keys_are_read(tmp_path: Path) -> None:
    """Targets, own packages, columns and margin arrive as they were written."""
    text = """
[tool.perfkit]
own = ["mine"]
margin = "1.5 %"
[tool.perfkit.targets]
train = "mine.training:main"
[[tool.perfkit.log.columns]]
title = "Loss"
benchmark = "bench_losses.py::test_loss"
"""
    config = load_project(_write(tmp_path, text)).config

    assert ("mine",) == config.own
    assert pytest.approx(0.015) == config.margin_share
    assert {"train": "mine.training:main"} == config.targets
    assert [("Loss", "bench_losses.py::test_loss")] == [(c.title, c.benchmark) for c in config.log.columns]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[tool.perfkit]\nledgr = 'x'", 'unknown key "tool.perfkit.ledgr"; did you mean "ledger"?'),
        ("[tool.perfkit]\nqqq = 1", "known keys: benchmarks, ledger, log, margin, own, profiles, targets"),
        ("[tool.perfkit.log]\nfil = 'x'", 'unknown key "tool.perfkit.log.fil"; did you mean "file"?'),
        ("[[tool.perfkit.log.columns]]\ntitel = 'x'", 'log.columns[0].titel"; did you mean "title"?'),
        ("[[tool.perfkit.log.columns]]\ntitle = 'x'", "missing required field benchmark"),
        ("[tool.perfkit]\nledger = 3", '"tool.perfkit.ledger": expected str, got int'),
        ("[tool.perfkit]\nmargin = '2'", 'tool.perfkit.margin must be a percentage above zero such as "2%"'),
        ("[tool.perfkit]\nmargin = '0%'", "margin must be a percentage above zero"),
        ("[tool.perfkit.targets]\ntrain = 'nothing'", 'target "train" must read "package.module:function"'),
        ("[tool]\nperfkit = 3", "tool.perfkit must be a table, found 3"),
        ("[tool.perfkit", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, text: str, expected: str) -> None:
    """The message has the key, what was expected and the nearest name, on one line."""
    with pytest.raises(ConfigError) as caught:
        load_project(_write(tmp_path, text))

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
