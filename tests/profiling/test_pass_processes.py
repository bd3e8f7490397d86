"""A target cannot see whether the process of its pass was forked or fresh, nor can what waits for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pass_specs import pass_spec
from processes_seen import DEADLY, gone, read_pids, wait_until

from perfkit.errors import NotMeasuredError
from perfkit.profiling.passes.exchange import PassResult, PassSpec
from perfkit.profiling.passes.launch import PassLauncher, output_tail, run_pass
from perfkit.runner.agent.processes import read_process
from perfkit.runner.commands import ChildProcess

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
    (root / "folder").mkdir()
    return pass_spec(root, f"facts:{call}", root / "folder", arguments=arguments)


def _run(root: Path, call: str, launcher: PassLauncher, *arguments: str) -> PassResult:
    return run_pass(_spec(root, call, *arguments), lambda _: None, launcher)


def test_the_target_finds_what_a_fresh_process_has(tmp_path: Path, either: PassLauncher) -> None:
    shown = tmp_path / "facts.json"
    result = _run(tmp_path, "main", either, str(shown))
    facts = json.loads(shown.read_text())

    assert None is result.problem
    assert "to the output\nto the error" == output_tail(tmp_path / "folder")
    assert 4 + 1 == facts.pop("descriptors")
    assert {
        "leads_its_group": True,
        "folder": str(tmp_path),
        "path": [str(tmp_path)],
        "arguments": ["facts:main", str(shown)],
        "input": "",
        "main_thread": True,
        "interrupt": True,
        "unfrozen": True,
    } == facts


def test_how_it_died_is_reported(tmp_path: Path, either: PassLauncher) -> None:
    for call, stated in (("dies", "was killed by SIGKILL"), ("leaves", "exit status 7")):
        (tmp_path / call).mkdir()
        problem = _run(tmp_path / call, call, either).problem

        assert problem is not None
        assert stated in problem.message


def test_one_launcher_makes_many_passes(tmp_path: Path, either: PassLauncher) -> None:
    for name, call in (("first", "dies"), ("second", "main")):
        (tmp_path / name).mkdir()
        result = _run(tmp_path / name, call, either, str(tmp_path / "facts.json"))

    assert None is result.problem
    assert (tmp_path / "facts.json").exists()


def test_a_pass_that_cannot_begin_is_over(tmp_path: Path, either: PassLauncher) -> None:
    (tmp_path / "nothing.json").write_text("{}")
    reading, writing = os.pipe()
    process = either.start(
        tmp_path / "nothing.json",
        folder=str(tmp_path),
        output=tmp_path / "output.log",
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


def _start(folder: Path, launcher: PassLauncher) -> ChildProcess:
    """Start a pass that waits for what it is to do, and is over when that turns out to be nothing."""
    spec = folder / "spec.json"
    spec.unlink(missing_ok=True)
    os.mkfifo(spec)
    reading, writing = os.pipe()
    try:
        return launcher.start(
            spec, folder=str(folder), output=folder / "output.log", progress=writing, turns=None
        )
    finally:
        os.close(reading)
        os.close(writing)


def _parent(process: ChildProcess) -> int:
    found = read_process(process.pid)
    assert found is not None
    return found.parent


@pytest.mark.skipif(sys.platform != "linux", reason="a fork is not safe here")
def test_a_fork_server_that_is_lost_takes_its_pass_along_and_is_replaced(tmp_path: Path) -> None:
    with PassLauncher(shared=()) as launcher:
        first = _start(tmp_path, launcher)
        server = _parent(first)
        os.kill(server, signal.SIGKILL)

        assert -signal.SIGKILL == first.wait(20)
        assert wait_until(lambda: gone(server))
        second = _start(tmp_path, launcher)
        assert _parent(second) != server
        (tmp_path / "spec.json").write_text("{}")
        assert 1 == second.wait(20)


@pytest.mark.skipif(sys.platform != "linux", reason="a fork is not safe here")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_fork_server_that_dies_in_a_fork_is_replaced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    site, flag = tmp_path / "site", tmp_path / "flag"
    site.mkdir()
    flag.write_text("x" * deaths)
    (site / "deadly.py").write_text(DEADLY.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", str(site))
    with PassLauncher(shared=["deadly"]) as launcher:
        if deaths == 1:
            assert _parent(_start(tmp_path, launcher))
        else:
            with pytest.raises(NotMeasuredError, match="two in a row were lost") as shown:
                _start(tmp_path, launcher)
            assert "it was killed by SIGKILL (out of memory?); see what" in str(shown.value)

    assert "" == flag.read_text()


COORDINATOR = """
import sys
from pathlib import Path
import test_pass_processes as here
with here.PassLauncher(shared=()) as launcher:
    here._run(Path(sys.argv[1]), "lingers", launcher)
"""


def test_nothing_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    # What is killed leaves its folder, which the next perfkit on this machine would sweep up and report.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    log = tmp_path / "folder/output.log"
    with subprocess.Popen([sys.executable, "-c", COORDINATOR, str(tmp_path)], env=environment) as coordinator:
        try:
            assert wait_until(lambda: read_pids(log))
            assert not any(map(gone, read_pids(log)))
        finally:
            coordinator.kill()

    assert 3 == len(read_pids(log))
    assert wait_until(lambda: all(map(gone, read_pids(log))))
