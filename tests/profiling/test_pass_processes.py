"""A target cannot find out whether the process of its pass was forked or fresh, nor can what waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from processes_seen import DEADLY, gone, read_pids, wait_until

from perfkit.agent.channel import ChannelClosedError
from perfkit.agent.processes import read_process
from perfkit.errors import NotMeasuredError
from perfkit.model import PassName
from perfkit.profiling.passes.exchange import PassResult, PassSpec
from perfkit.profiling.passes.launch import PassLauncher, output_tail, run_pass
from perfkit.profiling.passes.targets import Target
from perfkit.runner.commands import ChildProcess

FACTS = """
import gc, json, os, signal, sys, threading


def main():
    import torch

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


def lingers():
    import subprocess
    wait = [sys.executable, "-c", "import signal; signal.pause()"]
    daemon = "import subprocess as s, sys; print(s.Popen(sys.argv[1:], process_group=0, stdout=-3).pid)"
    stray = subprocess.Popen(wait, start_new_session=True)
    daemon = int(subprocess.check_output([sys.executable, "-c", daemon, *wait]))
    os.kill(stray.pid, signal.SIGSTOP)
    print(stray.pid, daemon, os.getpid(), flush=True)
    signal.pause()


def leaves():
    os._exit(7)


def ends():
    open(sys.argv[1], "w").close()


def waits():
    signal.pause()
"""


@pytest.fixture(scope="module", params=[True, False], ids=["forked", "fresh"])
def either(request: pytest.FixtureRequest) -> Iterator[PassLauncher]:
    """Return a launcher that forks, then one that does not."""
    if request.param and sys.platform != "linux":
        pytest.skip("a fork is not safe here")
    with PassLauncher(fork=request.param) as launcher:
        yield launcher


def _spec(root: Path, call: str, *arguments: str) -> PassSpec:
    (root / "facts.py").write_text(FACTS)
    (root / "folder").mkdir(exist_ok=True)
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


def _run(root: Path, call: str, launcher: PassLauncher, *arguments: str) -> PassResult:
    return run_pass(_spec(root, call, *arguments), lambda _: None, launcher)


def test_the_target_finds_what_a_fresh_process_has(tmp_path: Path, either: PassLauncher) -> None:
    """Its own group, folder, arguments and output, an empty input, and no descriptor of anybody else."""
    written = tmp_path / "facts.json"
    result = _run(tmp_path, "main", either, str(written))
    facts = json.loads(written.read_text())

    assert None is result.problem
    assert "to the output\nto the error" == output_tail(tmp_path / "folder")
    assert 4 + 1 == facts.pop("descriptors")
    assert {
        "leads_its_group": True,
        "folder": str(tmp_path),
        "path": [str(tmp_path)],
        "arguments": ["facts:main", str(written)],
        "input": "",
        "main_thread": True,
        "interrupt": True,
        "unfrozen": True,
    } == facts


@pytest.mark.parametrize("either", [True], indirect=True, ids=["forked"])
def test_a_pass_that_dies_is_reported_and_takes_nothing_from_the_next(
    tmp_path: Path, either: PassLauncher
) -> None:
    """It ends by a signal, or with an exit status that nobody expected; a fresh one has nothing to take."""
    for call, ended in (("dies", "was killed by SIGKILL"), ("leaves", "exit status 7")):
        (tmp_path / call).mkdir()
        problem = _run(tmp_path / call, call, either).problem

        assert problem is not None
        assert ended in problem.message

    assert None is _run(tmp_path, "ends", either, str(tmp_path / "ended")).problem
    assert (tmp_path / "ended").exists()


def test_a_pass_that_cannot_begin_is_over(tmp_path: Path, either: PassLauncher) -> None:
    """Its status can be read repeatedly, its channel ends, and nothing of its group is left."""
    child = either.start(replace(_spec(tmp_path, "main"), name=cast("PassName", "unknown")))

    assert [1, 1] == [child.process.wait(60), child.process.poll()]
    with pytest.raises(ChannelClosedError):
        child.receive()
    assert "ValidationError" in output_tail(tmp_path / "folder")
    with pytest.raises(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    child.end()


@contextlib.contextmanager
def _started(root: Path, launcher: PassLauncher) -> Iterator[ChildProcess]:
    """Start a pass that goes on until it is ended."""
    child = launcher.start(_spec(root, "waits"))
    yield child.process
    child.end()


def _parent(process: ChildProcess) -> int:
    found = read_process(process.pid)
    assert found is not None
    return found.parent


@pytest.mark.skipif(sys.platform != "linux", reason="a fork is not safe here")
def test_a_fork_server_that_is_lost_takes_its_pass_along_and_is_replaced(tmp_path: Path) -> None:
    """The pass was killed with it, and the next one comes from a fresh one."""
    with PassLauncher(shared=()) as launcher:
        with _started(tmp_path, launcher) as first:
            server = _parent(first)
            os.kill(server, signal.SIGKILL)

            assert -signal.SIGKILL == first.wait(20)
            assert wait_until(lambda: gone(server))
        with _started(tmp_path, launcher) as second:
            assert _parent(second) != server


@pytest.mark.skipif(sys.platform != "linux", reason="a fork is not safe here")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_fork_server_that_dies_in_a_fork_is_replaced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """The second one in a row ends it, with its last words and what to do."""
    site, flag = tmp_path / "site", tmp_path / "flag"
    site.mkdir()
    flag.write_text("x" * deaths)
    (site / "deadly.py").write_text(DEADLY.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", str(site))
    with PassLauncher(shared=["deadly"]) as launcher:
        if deaths == 1:
            with _started(tmp_path, launcher) as process:
                assert _parent(process)
        else:
            with (
                pytest.raises(NotMeasuredError, match="two in a row were lost") as lost,
                _started(tmp_path, launcher),
            ):
                pass
            assert "it was killed by SIGKILL (out of memory?); see what" in str(lost.value)

    assert "" == flag.read_text()


COORDINATOR = """
import sys
from pathlib import Path
import test_pass_processes as here
with here.PassLauncher(shared=()) as launcher:
    here._run(Path(sys.argv[1]), "lingers", launcher)
"""


def test_nothing_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    """The pass, its stopped child in another session and its daemon end with the parent of them all."""
    # What is killed leaves its folder, which the next perfkit on this machine would sweep up and report.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TMPDIR": str(temporary),
    }
    log = tmp_path / "folder/output.log"
    with subprocess.Popen([sys.executable, "-c", COORDINATOR, str(tmp_path)], env=environment) as coordinator:
        try:
            assert wait_until(lambda: read_pids(log))
            assert not any(map(gone, read_pids(log)))
        finally:
            coordinator.kill()

    assert 3 == len(read_pids(log))
    assert wait_until(lambda: all(map(gone, read_pids(log))))
