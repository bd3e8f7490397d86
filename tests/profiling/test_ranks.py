"""Ranks are processes that train together: each is watched, and a rank that fails ends all with one line."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pass_specs import pass_spec
from processes_seen import gone

from perfkit.errors import UsageError
from perfkit.model import PassName
from perfkit.model.readings import BACKWARD, FORWARD, RANKS
from perfkit.profiling.passes.exchange import PassSpec, RankPlace
from perfkit.profiling.passes.launch import (
    PassLauncher,
    RanksResult,
    check_port,
    find_straggler,
    free_port,
    run_ranks,
)

# Its second rank is the slow one. What it does in its fourth step is the argument.
TRAINING = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Slow(nn.Linear):
    def forward(self, batch):
        if int(os.environ["RANK"]) == 1:
            time.sleep(0.3 if sys.argv[1] == "train" else 0.03)
        return super().forward(batch)

def act(deed):
    if deed == "raise":
        raise ValueError("a loss of nan")
    if deed == "exit":
        print("out of luck", flush=True)
        sys.exit(3)
    if deed == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while deed == "hang":
        signal.pause()

def main(deed):
    rank = int(os.environ["LOCAL_RANK"])
    if deed != "alone":
        dist.init_process_group("gloo", **({"world_size": 1, "rank": 0} if deed == "one" else {}))
    print("pid", os.getpid(), flush=True)
    model = Slow(8, 1)
    model = DistributedDataParallel(model) if deed != "alone" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for step in range(3 if deed == "short" and rank == 1 else 5):
            if step == 3 and rank == 1:
                act(deed)
            optimizer.zero_grad()
            model(torch.ones(4, 8)).mean().backward()
            if deed == "by hand":
                dist.all_reduce(torch.ones(3))
            optimizer.step()
    finally:
        if deed != "alone":
            dist.destroy_process_group()

main(sys.argv[1])
"""


def _specs(root: Path, name: PassName, deed: str, ranks: int = 2) -> list[PassSpec]:
    (root / "train.py").write_text(TRAINING)
    port = free_port()
    specs = [
        pass_spec(
            root,
            str(root / "train.py"),
            root / f"{name}{rank}",
            target="train.py",
            name=name,
            arguments=(deed,),
            artifact=f"x{rank}",
            rank_place=RankPlace(rank=rank, ranks=ranks, port=port),
        )
        for rank in range(ranks)
    ]
    for spec in specs:
        Path(spec.folder).mkdir()
    return specs


def _run(specs: Sequence[PassSpec], launcher: PassLauncher, stall_limit_s: float = 60.0) -> RanksResult:
    return run_ranks(specs, lambda _: None, launcher, stall_limit_s=stall_limit_s)


def _pids(specs: Sequence[PassSpec]) -> list[int]:
    outputs = [(Path(spec.folder) / "output.log").read_text() for spec in specs]
    return [int(line.split()[1]) for text in outputs for line in text.splitlines() if line.startswith("pid")]


def test_each_rank_has_its_balance_and_the_others_wait_for_the_slow_one(
    tmp_path: Path, launcher: PassLauncher
) -> None:
    specs = _specs(tmp_path, "balance", "train")
    found = _run(specs, launcher)

    assert found.problem is None
    balances = [result.balance for result in found.results if result.balance is not None]
    assert [5, 5] == [len(balance.step_s) for balance in balances]
    straggler = find_straggler(balances)
    assert straggler is not None
    assert (1, FORWARD) == (straggler.rank, straggler.phase)
    waits, backward = (balances[0].seconds_of(name)[1:] for name in (RANKS, BACKWARD))
    assert all(wait > 0.2 > own for wait, own in zip(waits, backward, strict=True))
    assert 2 == len([pid for pid in _pids(specs) if gone(pid)])


def test_an_all_reduce_that_the_loop_makes_itself_is_seen(tmp_path: Path, launcher: PassLauncher) -> None:
    found = _run(_specs(tmp_path, "balance", "by hand", ranks=1), launcher)

    assert found.problem is None
    balance = found.results[0].balance
    assert balance is not None
    assert all(seconds > 0 for seconds in balance.seconds_of(RANKS))


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("raise", r"^rank 1: train\.py raised ValueError: a loss of nan \(train\.py:16\)$"),
        ("exit", r"^rank 1: train\.py exited with code 3$"),
        ("die", r"^rank 1: the process of train\.py was killed by SIGKILL"),
        ("short", r"^rank 0: train\.py raised .*; rank 1 had ended before, after 3 steps$"),
    ],
)
def test_the_rank_that_failed_first_is_named(
    tmp_path: Path, launcher: PassLauncher, monkeypatch: pytest.MonkeyPatch, deed: str, message: str
) -> None:
    # The wait for the other one's own word is over with that, and on a busy machine it may take a while.
    monkeypatch.setattr("perfkit.profiling.passes.launch._GRACE_S", 30.0)
    specs = _specs(tmp_path, "clean", deed)
    found = _run(specs, launcher)

    assert found.problem is not None
    assert_match(message, found.problem.message)
    assert "failed" == found.problem.kind
    assert [] == [pid for pid in _pids(specs) if not gone(pid)]


def test_ranks_that_hang_are_ended_and_the_one_they_wait_for_is_named(
    tmp_path: Path, launcher: PassLauncher
) -> None:
    specs = _specs(tmp_path, "clean", "hang")
    found = _run(specs, launcher, stall_limit_s=4.0)

    assert found.problem is not None
    assert 1 == found.failed
    assert_match(
        r"^no rank of train\.py made a step for 4 s: rank 1 made 3 steps in all \(rank 0 3\) and stands at"
        r" train\.py:23 in act; --stall-limit SECONDS waits longer$",
        found.problem.message,
    )
    assert [] == [pid for pid in _pids(specs) if not gone(pid)]


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("alone", r"made a step without torch\.distributed\.init_process_group: its 2 ranks would train by"),
        ("one", r"made a group of 1 ranks, and 2 were started"),
    ],
)
def test_ranks_without_a_common_group_are_refused(
    tmp_path: Path, launcher: PassLauncher, deed: str, message: str
) -> None:
    specs = _specs(tmp_path, "clean", deed)
    if deed == "one":
        # Each rank makes a group of its own at another port.
        specs[1] = replace(specs[1], rank_place=RankPlace(rank=1, ranks=2, port=free_port()))
    found = _run(specs, launcher)

    assert found.problem is not None
    assert "usage" == found.problem.kind
    assert_match(f".*{message}", found.problem.message)


@pytest.mark.slow
def test_a_rank_that_is_not_forked_is_the_same(tmp_path: Path) -> None:
    with PassLauncher(fork=False) as fresh:
        found = _run(_specs(tmp_path, "clean", "train"), fresh)
    assert found.problem is None
    assert [5, 5] == [result.summary.steps for result in found.results if result.summary is not None]


def test_an_occupied_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError, match=f"the ranks cannot meet at port {port}: Address already in use"):
            check_port(port)
    check_port(port)
    for wrong in (70000, -1):
        with pytest.raises(UsageError, match=f"the ranks cannot meet at port {wrong}: "):
            check_port(wrong)


def assert_match(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text
    assert "\n" not in text
