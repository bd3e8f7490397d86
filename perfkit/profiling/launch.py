"""A pass in a process of its own, seen from the parent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from perfkit.profiling.exchange import (
    DONE,
    OUTPUT_FILE,
    STOPS_FILE,
    TURN_BYTES,
    WAITING,
    PassResult,
    PassSpec,
    Problem,
    read_result,
    write_spec,
)
from perfkit.profiling.processes import PassLauncher, PassProcess

_ALIVE_EVERY_S = 1.0
_FAREWELL_S = 10.0
_TAIL_LINES = 20


def run_pass(spec: PassSpec, on_steps: Callable[[int], None], launcher: PassLauncher) -> PassResult:
    """Make a pass and return what it gave; ``on_steps`` hears how many steps are done.

    What the target prints goes to a file in the pass's folder. No process of the pass outlives the call.
    """
    with running(spec, on_steps, launcher) as child:
        child.follow()
        return child.result()


@contextlib.contextmanager
def running(
    spec: PassSpec, on_steps: Callable[[int], None], launcher: PassLauncher, *, by_turns: bool = False
) -> Iterator[RunningPass]:
    """Start a pass in a process group of its own, and end whatever is left of that group."""
    reading, writing = os.pipe()
    turn_end, giving = os.pipe() if by_turns else (None, None)
    folder = Path(spec.folder)
    given = [descriptor for descriptor in (writing, turn_end) if descriptor is not None]
    ours = [descriptor for descriptor in (reading, giving) if descriptor is not None]
    write_spec(spec, folder / "spec.json")
    try:
        with (folder / OUTPUT_FILE).open("wb") as output:
            process = launcher.start(
                (folder / "spec.json").absolute(),
                folder=spec.root if spec.from_root else str(Path.cwd()),
                output=output.fileno(),
                progress=writing,
                turns=turn_end,
            )
    finally:
        for descriptor in given:
            os.close(descriptor)
    try:
        yield RunningPass(spec, process, reading, giving, on_steps)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for descriptor in ours:
            os.close(descriptor)


def output_tail(folder: Path) -> str:
    """Return the last lines that the target of a pass printed."""
    lines = (folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


class RunningPass:
    """A pass that is under way: its words, its turns, and what it leaves."""

    def __init__(
        self,
        spec: PassSpec,
        process: PassProcess,
        reading: int,
        giving: int | None,
        on_steps: Callable[[int], None],
    ) -> None:
        self._spec, self._process, self._reading, self._giving = spec, process, reading, giving
        self._on_steps = on_steps
        self._stopped_s: float | None = None

    def follow(self) -> bool:
        """Pass on step counts until the loop waits for its turn, which is True, or the pass is over.

        The end of the pipe may be held by workers, so a pass that died is looked for as well.
        """
        while True:
            readable, _, _ = select.select([self._reading], [], [], _ALIVE_EVERY_S)
            words = os.read(self._reading, 4096).decode().split() if readable else []
            counts = [int(word) for word in words if word.isdigit()]
            if counts:
                self._on_steps(counts[-1])
            if WAITING in words:
                return True
            if DONE in words or (readable and not words) or self._process.poll() is not None:
                return False

    def give_turn(self, steps: int) -> None:
        """Let the loop make so many steps."""
        assert self._giving is not None  # noqa: S101 (it was started by turns)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._giving, steps.to_bytes(TURN_BYTES, "little"))

    def stop(self) -> None:
        """Stop every process of the pass where it stands."""
        self._stopped_s = time.perf_counter()
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on, and write down for how long they stood still: their own clocks went on."""
        if self._stopped_s is not None:
            with (Path(self._spec.folder) / STOPS_FILE).open("a") as stops:
                stops.write(f"[{self._stopped_s!r}, {time.perf_counter()!r}]\n")
            self._stopped_s = None
        self._signal(signal.SIGCONT)

    def result(self) -> PassResult:
        """Return what the pass gave, once it is over."""
        status = self._farewell()
        return read_result(Path(self._spec.folder)) or _died(self._spec, status)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _farewell(self) -> int | None:
        """Give the child time for its own clean-up; threads of the target may keep it for ever."""
        try:
            return self._process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            return None


def _died(spec: PassSpec, status: int | None) -> PassResult:
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if status == -signal.SIGKILL else ""
        said = f"was killed by {name}{hint}"
    else:
        said = f"ended its process with exit status {status} before the harness could tell the times"
    return PassResult(problem=Problem(kind="failed", message=f"{spec.target.name} {said}"))
