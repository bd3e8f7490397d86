"""The configuration has defaults, accepts values, and names each mistake in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.config import BenchmarkRule, Config, GateConfig, load_project
from perfkit.errors import ConfigError


def _write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_every_key_has_a_default(tmp_path: Path) -> None:
    project = load_project(_write(tmp_path, "[project]\nname = 'x'\n"))

    assert Config() == project.config
    assert tmp_path / "benchmarks/ledger" == project.ledger_path


def test_the_nearest_pyproject_above_gives_the_root(tmp_path: Path) -> None:
    _write(tmp_path, '[tool.perfkit]\nledger = "rows"\n')
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)

    assert tmp_path / "rows" == load_project(deep).ledger_path


def test_all_keys_are_read(tmp_path: Path) -> None:
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


def test_the_keys_of_the_gate_are_read(tmp_path: Path) -> None:
    text = """
[tool.perfkit]
copy = ["src/*.so"]
link = ["data"]
prepare = "make ext"
[tool.perfkit.gate]
alpha = 0.05
seconds_per_benchmark = 4
limit = 90
select = "loss"
preload = []
fail_on = "proven"
noise_floor = "0.3%"
inconclusive = "go on"
go_on_seconds = 600
against = "v1.2"
[[tool.perfkit.rules]]
match = "*slow*"
margin = "5%"
gate = false
limit = 0.5
"""
    config = load_project(_write(tmp_path, text)).config

    assert (("src/*.so",), ("data",), "make ext") == (config.copy, config.link, config.prepare)
    assert 0.003 == config.gate.noise_floor_share
    assert config.gate == GateConfig(
        alpha=0.05,
        seconds_per_benchmark=4,
        limit=90,
        select="loss",
        preload=(),
        fail_on="proven",
        noise_floor="0.3%",
        inconclusive="go on",
        go_on_seconds=600,
        against="v1.2",
    )
    assert (BenchmarkRule(match="*slow*", margin="5%", gate=False, limit=0.5),) == config.rules


def test_a_gate_has_defaults(tmp_path: Path) -> None:
    config = load_project(_write(tmp_path, "[[tool.perfkit.rules]]\nmatch = '*'\n")).config

    assert ((), (), None) == (config.copy, config.link, config.prepare)
    assert (0.01, 20.0, 30.0, None, None) == (
        config.gate.alpha,
        config.gate.seconds_per_benchmark,
        config.gate.limit,
        config.gate.select,
        config.gate.preload,
    )
    assert (BenchmarkRule(match="*", margin=None, gate=None, limit=None),) == config.rules
    assert ("margin", 0.005, None, 3600.0) == (
        config.gate.fail_on,
        config.gate.noise_floor_share,
        config.gate.inconclusive,
        config.gate.go_on_seconds,
    )


@pytest.mark.parametrize("margin", ["0.5%", "0.2%"])
def test_a_narrow_margin_needs_no_noise_floor_of_its_own(tmp_path: Path, margin: str) -> None:
    file = _write(tmp_path, f'[tool.perfkit]\nmargin = "{margin}"\n[tool.perfkit.gate]\nfail_on = "proven"\n')

    assert 0.005 == load_project(file).config.gate.noise_floor_share
    (file / "pyproject.toml").open("a").write(f'noise_floor = "{margin}"\n')
    assert pytest.approx(float(margin[:-1]) / 100) == load_project(file).config.gate.noise_floor_share


def test_the_noise_floor_may_be_zero(tmp_path: Path) -> None:
    file = _write(tmp_path, '[tool.perfkit.gate]\nnoise_floor = "0%"\n')

    assert 0.0 == load_project(file).config.gate.noise_floor_share


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[tool.perfkit]\nledgr = 'x'", 'unknown key "tool.perfkit.ledgr"; did you mean "ledger"?'),
        ('[tool.perfkit.exact]\ngate = ["synks"]', 'exact.gate: there is no "synks"; did you mean "syncs"?'),
        ('[tool.perfkit.exact]\ntolerance = "much"', "tool.perfkit.exact.tolerance must be a percentage"),
        ('[tool.perfkit.exact]\ntargets = ["train"]', 'exact.targets: there is no "train"'),
        (
            "[tool.perfkit]\nqqq = 1",
            (
                "copy, exact, gate, history, ledger, link, log, margin, own, prepare, prepare_for, profiles, "
                "report"
            ),
        ),
        ("[tool.perfkit.log]\nfil = 'x'", 'unknown key "tool.perfkit.log.fil"; did you mean "file"?'),
        ("[[tool.perfkit.log.columns]]\ntitel = 'x'", 'log.columns[0].titel"; did you mean "title"?'),
        ("[[tool.perfkit.log.columns]]\ntitle = 'x'", "missing required field benchmark"),
        ("[tool.perfkit]\nledger = 3", '"tool.perfkit.ledger": expected str, got int'),
        ("[tool.perfkit]\nmargin = '2'", 'tool.perfkit.margin must be a percentage above zero such as "2%"'),
        ("[tool.perfkit]\nmargin = '0%'", "margin must be a percentage above zero"),
        ("[tool.perfkit.targets]\ntrain = 'nothing'", 'target "train" must read "package.module:function"'),
        ("[tool]\nperfkit = 3", "tool.perfkit must be a table, found 3"),
        ("[tool.perfkit", "is not valid TOML"),
        ("[tool.perfkit.gate]\nalfa = 1", 'unknown key "tool.perfkit.gate.alfa"; did you mean "alpha"?'),
        ("[tool.perfkit.gate]\nalpha = 0", "tool.perfkit.gate.alpha must lie between 0 and 1, found 0"),
        ("[tool.perfkit.gate]\nalpha = 1.0", "tool.perfkit.gate.alpha must lie between 0 and 1, found 1"),
        ("[tool.perfkit.gate]\nalpha = nan", "tool.perfkit.gate.alpha must lie between 0 and 1, found nan"),
        ("[tool.perfkit.gate]\nalpha = '1%'", '"tool.perfkit.gate.alpha": expected float, got str'),
        ("[tool.perfkit.gate]\nlimit = 0", "tool.perfkit.gate.limit must be a number of seconds above zero"),
        (
            "[tool.perfkit.gate]\nfail_on = 'provn'",
            'tool.perfkit.gate.fail_on must be "margin" or "proven", found "provn"',
        ),
        ("[tool.perfkit.gate]\nfail_on = true", 'perfkit.gate.fail_on": expected str, got bool'),
        (
            "[tool.perfkit.gate]\ninconclusive = 'go'",
            'tool.perfkit.gate.inconclusive must be "fail", "pass" or "go on", found "go"',
        ),
        (
            "[tool.perfkit.gate]\nnoise_floor = '-1%'",
            'gate.noise_floor must be a percentage of at least zero such as "0.5%", found "-1%"',
        ),
        (
            "[tool.perfkit.gate]\nnoise_floor = '2.1%'",
            'gate.noise_floor must not be above tool.perfkit.margin ("2%"), found "2.1%"',
        ),
        ("[tool.perfkit.gate]\ngo_on_seconds = 0", "gate.go_on_seconds must be a number of seconds above"),
        ("[tool.perfkit.backfill]\nlimit = 0", "backfill.limit must be a number of seconds above zero"),
        ("[tool.perfkit.gate]\nlimit = inf", "gate.limit must be a number of seconds above zero, found inf"),
        (
            "[tool.perfkit.gate]\nseconds_per_benchmark = -1",
            "tool.perfkit.gate.seconds_per_benchmark must be a number of seconds above zero, found -1",
        ),
        ("[tool.perfkit.gate]\npreload = 'torch'", 'perfkit.gate.preload": expected array | null, got str'),
        ("[tool.perfkit.gate]\nselect = ['loss']", 'perfkit.gate.select": expected str | null, got array'),
        ("[tool.perfkit]\ngate = true", "tool.perfkit.gate must be a table, found True"),
        ("[tool.perfkit]\nlink = 'data'", '"tool.perfkit.link": expected array, got str'),
        ("[tool.perfkit]\ncopy = [1]", '"tool.perfkit.copy[0]": expected str, got int'),
        ("[tool.perfkit]\nprepare = ['make']", '"tool.perfkit.prepare": expected str | null, got array'),
        ("[[tool.perfkit.rules]]\nmargin = '1%'", "missing required field match"),
        ("[[tool.perfkit.rules]]\nmatch = '*'\ngates = true", 'rules[0].gates"; did you mean "gate"?'),
        ("[[tool.perfkit.rules]]\nmatch = '*'\nmargin = '2'", "rules[0].margin must be a percentage above"),
        ("[[tool.perfkit.rules]]\nmatch = '*'\nlimit = nan", "rules[0].limit must be a number of seconds"),
        ("[[tool.perfkit.rules]]\nmatch = '*'\ngate = 'no'", '.gate": expected bool | null, got str'),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_project(_write(tmp_path, text))

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("conf", "folder", "limit_s"),
    [
        ("{}", "benchmarks", 60.0),
        ('{"benchmark_dir": "perf", "default_benchmark_timeout": 5,}', "perf", 5.0),
        ('{// "benchmark_dir": "no"\n"project": "a // b", /* c */ "benchmark_dir": "perf"}', "perf", 60.0),
    ],
)
def test_a_suite_of_asv_is_found(tmp_path: Path, conf: str, folder: str, limit_s: float) -> None:
    (tmp_path / "asv_bench").mkdir()
    (tmp_path / "asv_bench/asv.conf.json").write_text(conf)
    (tmp_path / "asv_bench" / folder).mkdir()
    (tmp_path / "asv_bench" / folder / "times.py").touch()
    (tmp_path / "pyproject.toml").touch()
    project = load_project(tmp_path)
    suite = project.asv_suite()
    assert suite is not None
    assert ("asv_bench/asv.conf.json", f"asv_bench/{folder}", limit_s) == (
        suite.file,
        suite.folder,
        suite.limit_s,
    )
    assert suite.folder == project.default_benchmarks()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/test_speed.py").touch()
    assert "benchmarks" == project.default_benchmarks()


def test_a_suite_of_asv_can_be_left_alone(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "asv.conf.json").write_text("{}")
    (tmp_path / "pyproject.toml").write_text("[tool.perfkit]\nasv = false\n")
    assert load_project(tmp_path).asv_suite() is None
