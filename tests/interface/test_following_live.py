"""What is seen of a training while it runs: a line on a terminal, the slowest rank, and the devices' use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import statistics
import struct
import termios
import time
from pathlib import Path

import pytest
from forked_scripts import run_script, start_script
from repositories import Repository

import perfkit
from perfkit.commands.training import PEAK_VARIABLE, UTILISATION
from perfkit.ledger.store import Ledger
from perfkit.model import STEP_TIME
from perfkit.profiling.passes.launch import free_port

LEDGER = Path("benchmarks/ledger")
LOOP = """
import sys, time
import torch
import perfkit
from perfkit.commands import training

training._SHOWN_EVERY_S = 0.1
print("begun")
bars = "bars" in sys.argv
if bars:
    from tqdm import tqdm
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
run = perfkit.training("net", warmup=0, steps=5, balance=0, work={"samples": 8})
for epoch in range(2):
    steps = range(400)
    for step in run(tqdm(steps, ncols=50, mininterval=0.01) if bars else steps):
        time.sleep(0.001)
        optimizer.step()
        if not bars and step == 200:
            print("loss", epoch)
    print("over", epoch)
run.finish()
"""
RANKS = """
import sys, time
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
import perfkit
from perfkit.profiling.passes import follow, rank_waits

rank_waits.EVERY_S = 0.05
follow.BLOCK_STEPS = follow._MOST_STEPS = 50
torch.set_num_threads(1)
distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = perfkit.training("net", warmup=0, steps=5, balance=0)
for _ in run(range(220)):
    time.sleep(0.04 if str(distributed.get_rank()) == sys.argv[1] else 0.02)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
run.finish()
distributed.destroy_process_group()
"""


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Path:
    repository.commit({"pyproject.toml": ""})
    monkeypatch.chdir(repository.root)
    for name in ("CI", "TQDM_DISABLE", PEAK_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return repository.root


def _on_terminal(*arguments: str) -> str:
    """Run a script whose output is a terminal, and return all that was written there."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    name = os.ttyname(end)
    script = start_script(LOOP, *arguments, out=name, err=name)
    parts: list[bytes] = []
    # Only now is it the last one that holds the terminal.
    while b"begun" not in b"".join(parts):
        parts.append(os.read(terminal, 1 << 16))
    os.close(end)
    with contextlib.suppress(OSError):
        while parts[-1]:
            parts.append(os.read(terminal, 1 << 16))
    os.close(terminal)
    script.join()
    assert script.exitcode == 0
    return b"".join(parts).decode()


def _screen(written: str) -> list[str]:
    """Return what a terminal shows in the end: of what is written there, only some signs move its cursor."""
    rows: list[list[str]] = [[]]
    row = column = 0
    for sign in re.findall(r"\x1b\[[AK]|[\s\S]", written):
        if sign == "\x1b[A":
            row -= 1
        elif sign == "\x1b[K":
            del rows[row][column:]
        elif sign == "\r":
            column = 0
        elif sign == "\n":
            row += 1
            rows += [[] for _ in range(row + 1 - len(rows))]
        else:
            rows[row] += " " * (column + 1 - len(rows[row]))
            rows[row][column] = sign
            column += 1
    return [text for text in ("".join(one).rstrip() for one in rows) if text]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("bars", [(), ("bars",)])
def test_a_terminal_has_a_live_line_that_breaks_neither_output_nor_bars(bars: tuple[str, ...]) -> None:
    written = _on_terminal(*bars)

    shown = re.findall(r"perfkit: step ([\d,]+) · [^\r\n]*samples/s", written)
    steps = [int(one.replace(",", "")) for one in shown]
    assert len(steps) >= 2
    assert sorted(steps) == steps
    begun, *screen = _screen(written)
    assert "begun" == begun
    assert not [line for line in screen if "perfkit: step" in line]
    assert [f"over {epoch}" for epoch in (0, 1)] == [line for line in screen if line.startswith("over")]
    begins = ("100%", "over", "100%", "over") if bars else ("loss", "over", "loss", "over")
    assert begins == tuple(line.split()[0].partition("|")[0] for line in screen[:4])
    assert screen[4].startswith("perfkit: training:net")


@pytest.mark.usefixtures("project")
def test_bars_that_are_turned_off_turn_off_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")

    assert "perfkit: step" not in _on_terminal()


@pytest.mark.usefixtures("project")
def test_without_a_terminal_there_is_no_line() -> None:
    done = run_script(LOOP)

    assert ["begun", "loss 0", "over 0", "loss 1", "over 1"] == done.stdout.splitlines()
    assert 1 == len(done.stderr.splitlines())


def _trained_together(slow: int) -> tuple[list[str], str]:
    """Return what rank 0 of two printed, and what is filed of all steps."""
    found = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    ranks = [
        start_script(
            RANKS, str(slow), env={**os.environ, **found, "RANK": str(rank)}, out="out", err=f"rank-{rank}"
        )
        for rank in range(2)
    ]
    for rank in ranks:
        rank.join()
    lines = [Path(f"rank-{rank}").read_text().splitlines() for rank in range(2)]
    assert [0, 0] == [rank.exitcode for rank in ranks], lines
    (row,) = [row for row in Ledger(LEDGER).rows() if row.outcome.metric.name == "all_steps"]
    return lines[0], str(row.outcome.message)


@pytest.mark.usefixtures("project")
def test_the_rank_that_others_wait_for_is_named_while_it_runs_and_at_the_end() -> None:
    (now, end), filed = _trained_together(1)

    assert [1, 1, 1] == [int(re.findall(r"rank (\d) is the slowest", text)[0]) for text in (now, end, filed)]
    (waited_ms,) = re.findall(r"wait ([\d.]+) ms", filed)
    assert 20 == pytest.approx(float(waited_ms), rel=0.3)


@pytest.mark.usefixtures("project")
def test_ranks_that_wait_for_none_in_particular_are_not_blamed() -> None:
    (end,), filed = _trained_together(2)

    assert "slowest" not in end
    assert "slowest" not in filed


@pytest.mark.usefixtures("project")
def test_the_share_of_the_devices_peak_is_filed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ("1e9", "no number"):
        monkeypatch.setenv(PEAK_VARIABLE, given)
        run = perfkit.training("net", warmup=0, steps=5, balance=0, work={"flops": 1_000_000})
        for _ in range(4):
            time.sleep(0.011)
            run.step()
        run.finish()

    # Files in the same second are in no order.
    rows = [row.outcome for row in sorted(Ledger(LEDGER).rows(), key=lambda row: row.recorded_at)]
    of_given, of_measured = (one for one in rows if one.metric == UTILISATION)
    step_s, _ = (statistics.fmean(one.values) for one in rows if one.metric == STEP_TIME)
    assert 1e6 / step_s / 1e9 == pytest.approx(of_given.values[0])
    # Any machine makes more than 1 GFLOP/s.
    assert 0 < of_measured.values[0] < of_given.values[0]
    assert "of the measured peak of this machine" in str(of_measured.message)
    assert "of the given peak" in capsys.readouterr().err
