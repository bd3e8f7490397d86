"""Sixty columns are enough: every help and every report fits there, with whole names."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from perfkit.cli.app import app, whole_command_line
from perfkit.cli.output import show
from perfkit.ledger.store import Ledger

COLUMNS = 60
ROOT = Path(__file__).parent.parent.parent
PROFILES = ROOT / "profiles"
# What sets the colour of letters or of what is behind them; bold and dim are no colours.
_COLOUR = re.compile("\x1b\\[(?:[0-9]+;)*(?:3[0-7]|9[0-7]|38|4[0-7])[;m]")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every command a terminal of 60 columns."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return perfkit's own measurements and settings in a folder of their own."""
    root = tmp_path_factory.mktemp("narrow")
    shutil.copytree(ROOT / "benchmarks/ledger", root / "benchmarks/ledger")
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def _commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*path, name))


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with contextlib.suppress(SystemExit):
        typer.main.get_command(app).main(list(arguments), prog_name="perfkit", standalone_mode=False)
    return capsys.readouterr().out


def _too_long(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > COLUMNS]


def test_every_help_fits(capsys: pytest.CaptureFixture[str]) -> None:
    reported = 0
    root = whole_command_line()
    for path, command in _commands(root):
        if command.hidden:
            # The old name of a command, which shows the new one.
            continue
        with contextlib.suppress(SystemExit):
            root.main([*path, "--help"], prog_name="perfkit", standalone_mode=False)
        shown = capsys.readouterr().out
        visible = [param for param in command.params if not getattr(param, "hidden", False)]
        names = {name for param in visible for name in param.opts if name.startswith("--")}
        names |= {name for name, one in getattr(command, "commands", {}).items() if not one.hidden}
        assert [] == _too_long(shown), path
        assert not path or f"$ {' '.join(('perfkit', *path))}" in " ".join(shown.split()), path
        assert set() == names - set(shown.replace(",", " ").split()), path
        reported += 1
    assert reported > 35


def test_no_colour_means_none(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = _printed(capsys, "show", "env", "5f26b8cf")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = _printed(capsys, "show", "env", "5f26b8cf")

    assert _COLOUR.search(coloured)
    assert not _COLOUR.search(plain)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("ledger", "list", "--last", "3"), None),
        (("ledger", "show", "5f26b8cf"), "bench_start.py::test_version"),
        (("history",), "test_epoch_of_batches[cached-0] (gates) (machine 8f9f)"),
        (("ledger", "judge", "47d0c85f", "--verbose"), "test_precompute_pairwise_distances[200-64]"),
        (("show", str(PROFILES / "naive_form.stat")), "precompute_pairwise_distances"),
        (
            ("explain", str(PROFILES / "naive_form.stat"), str(PROFILES / "tensor_losses.stat")),
            "compute_intercluster_metrics …/metrics.py:32",
        ),
        (("schema",), "backfill-range"),
    ],
)
def test_reports_fit(
    project: Path,
    arguments: tuple[str, ...],
    name: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT if arguments[0] == "gate" else project)

    shown = _printed(capsys, *arguments)

    assert [] == _too_long(shown)
    if name is None:
        runs = json.loads(_printed(capsys, *arguments[:2], "--json", "-"))
        assert [one["run_id"][-8:] for one in runs[-3:]] == [
            line for line in shown.splitlines() if len(line.strip()) == 8 and line == line.strip()
        ]
    else:
        assert name in " ".join(shown.split())


class _Terminal(io.TextIOWrapper):
    """A stream that acts as a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_a_text_is_folded_between_words_in_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/".join(["a-long-folder"] * 6)
    text = f"accepted {'word ' * 20}with [brackets]\n{path}: commit this file"
    printed = {}
    for kind in (_Terminal, io.TextIOWrapper):
        stream = kind(io.BytesIO(), encoding="utf-8")
        monkeypatch.setattr(sys, "stdout", stream)
        show(text)
        printed[kind] = stream.buffer.getvalue().decode()  # type: ignore[attr-defined]

    lines = printed[_Terminal].splitlines()
    assert text.split() == printed[_Terminal].split()
    assert [f"{path}:"] == [line for line in lines if len(line) > COLUMNS]
    assert f"{text}\n" == printed[io.TextIOWrapper]


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (("ledger", "list"), "{runs} runs\n"),
        (("ledger", "check"), "SOUND: "),
        (("history",), r"(Nothing to look at: |\d+ benchmarks? (probably|may have) changed)"),
        (("ledger", "judge", "47d0c85f"), "PASS: none of 12 benchmarks "),
        (("show", str(PROFILES / "naive_form.stat")), "naive_form.stat: 20.6608 s, cProfile, "),
    ],
)
def test_quiet_leaves_the_verdict(
    project: Path,
    arguments: tuple[str, ...],
    verdict: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT if arguments[0] == "gate" else project)

    with contextlib.suppress(SystemExit):
        typer.main.get_command(app).main([*arguments, "--quiet"], standalone_mode=False)
    reported = capfd.readouterr()

    assert re.match(verdict.format(runs=len(Ledger(project / "benchmarks/ledger").runs())), reported.out)
    assert (1, "") == (reported.out.count("\n"), reported.err)
