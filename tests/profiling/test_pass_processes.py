"""The process of a pass, forked or fresh: the target cannot tell the difference, nor can who waits for it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.profiling.exchange import PassResult, PassSpec
from perfkit.profiling.launch import output_tail, run_pass
from perfkit.profiling.processes import Launcher
from perfkit.profiling.targets import Target

FACTS = """
import gc, json, os, signal, sys, threading

import torch


def main():
    print("to the output", flush=True)
    os.write(2, b"to the error")
    torch.ones(300, 300).matmul(torch.ones(300, 300))
    facts = {
        "leads_its_group": os.getpgid(0) == os.getpid(),
        "folder": os.getcwd(),
        "path": sys.path[:1],
        "arguments": sys.argv,
        "input": sys.stdin.read(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "main_thread": threading.current_thread() is threading.main_thread(),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "unfrozen": nothing_is_frozen(),
    }
    with open(sys.argv[1], "w") as stream:
        json.dump(facts, stream)


def nothing_is_frozen():
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    gc.collect()
    # Python 3.12 counts what lives for ever, and finds it again.
    return frozen <= gc.get_freeze_count()


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def leaves():
    os._exit(7)
"""


@pytest.fixture(scope="module", params=[True, False], ids=["forked", "fresh"])
def either(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Return a launcher that forks, then one that does not."""
    if request.param and sys.platform != "linux":
        pytest.skip("a fork is not safe here")
    with Launcher(fork=request.param) as launcher:
        yield launcher


def _spec(root: Path, call: str, *arguments: str) -> PassSpec:
    (root / "facts.py").write_text(FACTS)
    (root / "folder").mkdir()
    return PassSpec(
        name="clean",
        target=Target(name="train", place=f"facts:{call}"),
        arguments=arguments,
        root=str(root),
        own=(),
        folder=str(root / "folder"),
        artifact="profile",
        from_root=True,
    )


def _run(root: Path, call: str, launcher: Launcher, *arguments: str) -> PassResult:
    return run_pass(_spec(root, call, *arguments), lambda _: None, launcher)


def test_the_target_finds_what_a_fresh_process_has(tmp_path: Path, either: Launcher) -> None:
    """Its own group, folder, arguments and output, an empty input, and no descriptor of anybody else."""
    told = tmp_path / "facts.json"
    result = _run(tmp_path, "main", either, str(told))
    facts = json.loads(told.read_text())

    assert None is result.problem
    assert "to the output\nto the error" == output_tail(tmp_path / "folder")
    assert 4 + 1 == facts.pop("descriptors")
    assert {
        "leads_its_group": True,
        "folder": str(tmp_path),
        "path": [str(tmp_path)],
        "arguments": ["facts:main", str(told)],
        "input": "",
        "main_thread": True,
        "interrupt": True,
        "unfrozen": True,
    } == facts


def test_how_it_died_is_told(tmp_path: Path, either: Launcher) -> None:
    """A signal, or an exit status that nobody expected."""
    for call, said in (("dies", "was killed by SIGKILL"), ("leaves", "exit status 7")):
        (tmp_path / call).mkdir()
        problem = _run(tmp_path / call, call, either).problem

        assert problem is not None
        assert said in problem.message


def test_one_launcher_makes_many_passes(tmp_path: Path, either: Launcher) -> None:
    """One that dies takes nothing from the next."""
    for name, call in (("first", "dies"), ("second", "main")):
        (tmp_path / name).mkdir()
        result = _run(tmp_path / name, call, either, str(tmp_path / "facts.json"))

    assert None is result.problem
    assert (tmp_path / "facts.json").exists()


def test_a_pass_that_cannot_begin_is_over(tmp_path: Path, either: Launcher) -> None:
    """Its status is told as often as it is asked for, its pipe ends, and nothing of its group is left."""
    (tmp_path / "nothing.json").write_text("{}")
    reading, writing = os.pipe()
    with (tmp_path / "output.log").open("wb") as output:
        process = either.start(
            tmp_path / "nothing.json",
            folder=str(tmp_path),
            output=output.fileno(),
            progress=writing,
            turns=None,
        )
    os.close(writing)

    assert [1, 1] == [process.wait(60), process.poll()]
    assert b"" == os.read(reading, 10)
    assert "ValidationError" in (tmp_path / "output.log").read_text()
    os.close(reading)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
