"""``perfkit watch`` names the line that a running training spends its time in, and where it hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked_commands import PERFKIT, run_perfkit

from perfkit.commands.schemas import document_named, schema_of

pytestmark = pytest.mark.skipif(
    not PERFKIT.with_name("py-spy").exists() and shutil.which("py-spy") is None, reason="needs py-spy"
)
HEAD = """
import threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.randn(8)

def train(loader):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        print("ready", flush=True)

"""
LOOP_LINE = HEAD.splitlines().index("    for x in loader:") + 1
DATA_LINE = HEAD.splitlines().index("        time.sleep(0.02)") + 1
HUNG = """
import threading, time
lock = threading.Lock()
def wait():
    with lock:
        print("ready", flush=True)
        with lock:
            pass
wait()
"""
RANKS = """
import os, threading, torch, torch.distributed as dist, torch.multiprocessing as mp
def rank(index):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=index, world_size=2)
    print("ready", flush=True)
    if index:
        threading.Event().wait()
    dist.all_reduce(torch.zeros(1))
if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
"""
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that starts a script and waits until it trains."""
    begun: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: str) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(text)
        process = subprocess.Popen(
            [sys.executable, "train.py", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        return process

    yield start
    for process in begun:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _watched(process: subprocess.Popen[str], folder: Path) -> tuple[dict[str, Any], str]:
    done = run_perfkit("watch", str(process.pid), "--for", "2s", "--json", "watch.json", cwd=folder)
    assert 0 == done.returncode, done.stderr
    report = json.loads((folder / "watch.json").read_text())
    jsonschema.validate(report, schema_of(document_named("watch")))
    assert done.stdout.startswith(report["verdict"])
    assert f"\nnext: {report['next']}" in done.stdout
    assert process.poll() is None
    return report, done.stderr


def test_a_slow_loader_is_named_with_its_line(begin: Begin, tmp_path: Path) -> None:
    process = begin(HEAD + "train(DataLoader(Slow(), batch_size=4))", "--epochs", "3")

    report, shown = _watched(process, tmp_path)

    first = report["lines"][0]
    assert not report["hangs"]
    assert ("data wait", f"train.py:{DATA_LINE}", "Slow.__getitem__") == (
        *(first["part"], first["place"], first["function"]),
    )
    assert "data wait" == max(report["parts"], key=report["parts"].__getitem__)
    assert "perfkit why train.py -- --epochs 3" == report["next"]
    assert "watching" in shown


def test_workers_of_a_loader_are_watched(begin: Begin, tmp_path: Path) -> None:
    few = "torch.utils.data.Subset(Slow(), range(80))"
    epoch = f"    train(DataLoader({few}, batch_size=4, num_workers=2))"
    process = begin(f"{HEAD}while True:\n{epoch}")

    report, _ = _watched(process, tmp_path)

    # Each epoch has two of its own.
    assert (1, 2, False) == (report["processes"], report["workers"], report["hangs"])
    places = {one["who"]: one["place"] for one in reversed(report["lines"])}
    assert {"training": f"train.py:{LOOP_LINE}", "loader workers": f"train.py:{DATA_LINE}"} == places


def test_a_hung_process_is_named_with_the_line_that_waits(begin: Begin, tmp_path: Path) -> None:
    report, _ = _watched(begin(HUNG), tmp_path)

    assert report["hangs"]
    assert ["train.py:7"] == [one["place"] for one in report["lines"]]
    assert "wait" == report["lines"][0]["function"]


def test_where_each_rank_waits_is_shown(begin: Begin, tmp_path: Path) -> None:
    report, _ = _watched(begin(RANKS), tmp_path)

    assert (True, 2) == (report["hangs"], report["processes"])
    assert "train.py:8" == report["lines"][0]["place"]
    assert {"train.py:8", "train.py:9"} <= {one["place"] for one in report["lines"]}


def test_ctrl_c_shows_what_was_seen(begin: Begin, tmp_path: Path) -> None:
    process = begin(HEAD + "train(DataLoader(Slow(), batch_size=4))")
    watching = subprocess.Popen(
        [PERFKIT, "watch", str(process.pid), "--for", "10min"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr is not None
    assert "watching" in watching.stderr.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        watching.wait(2)

    watching.send_signal(signal.SIGINT)
    shown, _ = watching.communicate()

    assert 0 == watching.returncode
    assert f"train.py:{DATA_LINE}" in shown.splitlines()[0]
    assert process.poll() is None


def test_what_cannot_be_watched_is_not_measured(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    try:
        done = [run_perfkit("watch", str(one.pid), "--for", "1s", cwd=tmp_path) for one in (other, gone)]
    finally:
        other.kill()
        other.wait()

    assert [4, 4] == [one.returncode for one in done]
    assert [str(other.pid) in done[0].stderr, str(gone.pid) in done[1].stderr] == [True, True]
