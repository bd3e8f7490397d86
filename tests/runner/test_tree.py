"""Process trees are stopped, resumed and ended whole, processes that left the group included."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes_seen import wait_until

from perfkit.agent import processes
from perfkit.agent.processes import Process, read_process, tree

# A leader, a child in its group and a stray in a session of its own, all of them busy.
FAMILY = """
import os, subprocess, sys
burn = "print(flush=True)\\nwhile True: pass"
for alone in (False, True):
    child = subprocess.Popen([sys.executable, "-c", burn], start_new_session=alone, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
exec(burn)
"""


@dataclass(frozen=True)
class Family:
    """A real process tree."""

    leader: int
    child: int
    stray: int

    @property
    def everyone(self) -> tuple[int, int, int]:
        """All of its processes."""
        return self.leader, self.child, self.stray


def known(*pids: int) -> tuple[Process, ...]:
    return tuple(found for pid in pids if (found := read_process(pid)) is not None)


@pytest.fixture
def family() -> Iterator[Family]:
    """Start a busy tree in a session of its own, and end it."""
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child, stray = (int(process.stdout.readline()) for _ in range(2))
    process.stdout.readline()
    yield Family(process.pid, child, stray)
    processes.kill(process.pid, known(child, stray))
    process.stdout.close()
    process.wait()


def states(*pids: int) -> list[str]:
    """Return the states of processes, X for one that is gone."""
    found = [read_process(pid) for pid in pids]
    return [process.state if process else "X" for process in found]


def cpu_s(*pids: int) -> float:
    return sum(process.cpu_s for pid in pids if (process := read_process(pid)) is not None)


def spend_cpu(seconds: float) -> None:
    """Be busy here, so that processes that run could use some CPU time of their own."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_a_process_is_read_as_the_kernel_shows_it() -> None:
    spend_cpu(0.03)
    before = time.process_time()
    found = read_process(os.getpid())
    after = time.process_time()

    assert found is not None
    assert (os.getpid(), os.getppid(), os.getpgrp(), "R") == (
        found.pid,
        found.parent,
        found.group,
        found.state,
    )
    assert before - 0.03 < found.cpu_s < after + 0.03
    assert found.core in range(os.cpu_count() or 1)


def test_a_name_with_parentheses_and_spaces_confuses_nobody(tmp_path: Path) -> None:
    odd = tmp_path / "a) R (b"
    odd.symlink_to(shutil.which("cat") or "")
    with subprocess.Popen([odd], stdin=subprocess.PIPE) as process:
        found = read_process(process.pid)

        assert found is not None
        assert (os.getpid(), os.getpgrp()) == (found.parent, found.group)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(params=[True, False], ids=["listed", "searched for"])
def _children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel list the children of a process, which this one may be able to, or not."""
    monkeypatch.setattr(processes, "_CHILDREN_LISTED", processes._CHILDREN_LISTED and request.param)


@pytest.mark.usefixtures("_children")
def test_a_tree_holds_the_group_and_all_that_left_it(family: Family) -> None:
    assert set(family.everyone) == {process.pid for process in tree(family.leader)}
    strays = [process.pid for process in tree(family.leader) if process.group != family.leader]
    assert [family.stray] == strays


@pytest.mark.usefixtures("_children")
def test_the_children_of_a_process_are_its_own_alone(family: Family) -> None:
    assert {family.child, family.stray} == set(processes.children(family.leader))
    assert () == processes.children(family.child)
    with ThreadPoolExecutor(1) as threads:
        process = threads.submit(subprocess.Popen, ["sleep", "60"]).result()
        assert process.pid in processes.children(os.getpid())
    process.kill()
    process.wait()
    assert () == processes.children(process.pid)


@pytest.mark.usefixtures("_children")
def test_a_tree_holds_no_process_that_is_over(family: Family) -> None:
    os.kill(family.child, signal.SIGKILL)

    assert wait_until(lambda: states(family.child) == ["Z"])
    assert {family.leader, family.stray} == {process.pid for process in tree(family.leader)}


def test_a_stopped_tree_uses_no_cpu_until_it_is_resumed(family: Family) -> None:
    processes.stop(family.leader, known(family.stray))
    assert wait_until(lambda: states(*family.everyone) == ["T", "T", "T"])
    stopped = cpu_s(*family.everyone)
    spend_cpu(0.1)
    assert stopped == cpu_s(*family.everyone)

    processes.resume(family.leader, known(family.stray))

    assert wait_until(lambda: all(cpu_s(pid) > 0 for pid in family.everyone))
    assert wait_until(lambda: cpu_s(*family.everyone) > stopped + 0.05)
    assert not {"T", "X", "Z"} & set(states(*family.everyone))


@pytest.mark.parametrize("stopped", [True, False])
def test_a_tree_is_ended_in_any_state(family: Family, *, stopped: bool) -> None:
    if stopped:
        processes.stop(family.leader, known(family.stray))

    processes.kill(family.leader)

    assert wait_until(lambda: set(states(*family.everyone)) <= {"X", "Z"})


def test_a_known_stray_is_ended_after_its_leader_is_gone(family: Family) -> None:
    for pid in (family.leader, family.child):
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: states(family.leader) == ["Z"])

    processes.kill(family.leader, known(family.stray))

    assert wait_until(lambda: set(states(*family.everyone)) <= {"X", "Z"})


def test_a_number_that_another_process_has_by_now_is_left_alone(family: Family) -> None:
    (stray,) = known(family.stray)
    for pid in (family.leader, family.child):
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: states(family.leader) == ["Z"])

    processes.kill(family.leader, (dataclasses.replace(stray, started=stray.started - 1),))

    assert ["R"] == states(family.stray)
