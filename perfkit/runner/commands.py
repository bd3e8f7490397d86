"""Commands in processes of their own, each under a guard: none of its processes outlives it or perfkit."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit import agent
from perfkit.agent import processes
from perfkit.temporary import with_mark

# glibc returns freed memory above these sizes to the kernel. They are raised, so that page faults, which
# come and go by chance, do not decide how long a round takes.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def fixed_environment(environment: Mapping[str, str], *, hash_seed: int) -> dict[str, str]:
    """Return ``environment`` with fixed values for what would otherwise make launches differ."""
    return {
        **environment,
        **ALLOCATOR,
        "PYTHONHASHSEED": str(hash_seed),
        # Without it, asking whether there is a GPU may initialise CUDA, and forked children could not use it.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


# The agent is loaded from its folder under a private name, so that it can measure other versions of perfkit.
AGENT = "_perfkit_agent"
_BOOTSTRAP = f"""
import importlib.util, sys
folder, entry, *arguments = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    {AGENT!r}, folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[{AGENT!r}] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from {AGENT} import bootstrap
getattr(bootstrap, entry)(*arguments)
"""
# A guard needs no installed package and ignores Python's environment variables.
_GUARD_OPTIONS = ("-I", "-S")
# With -P the current folder shadows none of the modules that the harness needs before a target runs.
SAFE_PATH = ("-P",)
FAULTHANDLER = ("-X", "faulthandler")
_END_LIMIT_S = 20.0
_PID_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A command for Python, by default this one, and the variables of the environment that it needs."""

    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)


class ChildProcess(ABC):
    """A process that leads a group of its own, with all that descends from it."""

    def __init__(self) -> None:
        self._strays: tuple[processes.Process, ...] = ()

    @property
    @abstractmethod
    def pid(self) -> int:
        """The number of the process, and of its group."""

    @abstractmethod
    def wait(self, limit_s: float | None = None) -> int | None:
        """Wait, ``limit_s`` seconds at most, and return its exit status (negative: a signal), or None."""

    @abstractmethod
    def end(self) -> int:
        """End it with its whole tree, if it has not ended, and return its exit status."""

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self.wait(0)

    def stop(self) -> None:
        """Stop the whole tree; processes that left the group are those that ``look`` found last."""
        processes.stop(self.pid, self._strays)

    def resume(self) -> None:
        """Let the whole tree go on."""
        processes.resume(self.pid, self._strays)

    def kill(self) -> None:
        """End the whole tree without waiting."""
        processes.kill(self.pid, self._strays)

    def look(self) -> tuple[processes.Process, ...]:
        """Return the tree; processes that left the group are stopped with it from now on."""
        found = processes.tree(self.pid)
        self._strays = tuple(process for process in found if process.group != self.pid)
        return found


class GuardedCommand(ChildProcess):
    """A command under a guard, which ends all its processes when this end of a socket closes for any reason.

    It has a session of its own and an empty standard input; its output goes to the descriptor ``output``. It
    inherits the descriptors in ``inherit``, of which the caller closes its own copies.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: int,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        inherit: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self._end, theirs = socket.socketpair()
        with theirs:
            self._guard = subprocess.Popen(
                agent_command("guard", str(theirs.fileno()), *command, options=_GUARD_OPTIONS),
                env=with_mark(os.environ if environment is None else environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno(), *inherit],
                start_new_session=True,
            )
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """The number of the command's process, and its group's; the guard has another."""
        if self._pid is None:
            sent = self._end.recv(_PID_BYTES)
            # A guard that failed before it could start the command has ended: no group has its number.
            self._pid = int(sent) if sent else self._guard.pid
        return self._pid

    def wait(self, limit_s: float | None = None) -> int | None:
        """Return the command's exit status once the whole tree is over; None if that takes longer."""
        if self._guard.returncode is None:
            _ = self.pid
            # The guard sends nothing more, so the socket becomes readable only when the guard has ended.
            readable, _, _ = select.select([self._end], [], [], limit_s)
            if not readable:
                return None
            self._end.close()
        return self._guard.wait()

    def end(self) -> int:
        """End the whole tree, if it has not ended, and return the command's exit status."""
        self._end.close()
        try:
            return self._guard.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            return self._guard.wait()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a command ended: its exit status, None where its time was over, and its last lines of output."""

    status: int | None
    tail: tuple[str, ...]

    @property
    def words(self) -> str:
        """How it ended, to be read after "its process", with its last line where it ended by itself."""
        if self.status is None:
            return "was ended when its time was over"
        last = self.tail[-1].strip() if self.tail and self.status >= 0 else ""
        return "; ".join(filter(None, (ended_in_words(self.status), last)))

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed by SIGKILL, as the kernel does when memory runs out."""
        return self.status == -signal.SIGKILL


def run_command(
    command: Sequence[str],
    *,
    output: Path,
    limit_s: float | None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ending:
    """Run a command for at most ``limit_s`` seconds, and end all of its processes."""
    with output.open("wb") as stream:
        process = GuardedCommand(command, output=stream.fileno(), environment=environment, folder=folder)
        try:
            status = process.wait(limit_s)
        finally:
            process.end()
    return Ending(status=status, tail=tail_of(output))


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of perfkit as a child, and prints a traceback if it crashes."""
    return [sys.executable, *SAFE_PATH, *FAULTHANDLER, "-m", module, *arguments]


def agent_command(
    entry: str, *arguments: str, options: Sequence[str] = SAFE_PATH, python: str = sys.executable
) -> list[str]:
    """Return the command that calls a function of ``perfkit.agent.bootstrap`` in a new process."""
    folder = str(Path(agent.__path__[0]))
    return [python, *options, "-c", _BOOTSTRAP, folder, entry, *arguments]


def ended_in_words(status: int) -> str:
    """Return how a process ended, to be read after "its process"."""
    if status >= 0:
        return f"ended with exit status {status}"
    hint = " (out of memory?)" if status == -signal.SIGKILL else ""
    return f"was killed by {signal_name(-status)}{hint}"


def signal_name(number: int) -> str:
    """Return a signal's name, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail_of(output: Path, lines: int = 20) -> tuple[str, ...]:
    """Return the last lines that a process printed to a file, none where there is no file."""
    try:
        text = output.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(text.rstrip().splitlines()[-lines:])


def last_line(output: Path) -> str:
    """Return the last line that a process printed to a file, empty where there is none."""
    return (tail_of(output, 1) or ("",))[0].strip()
