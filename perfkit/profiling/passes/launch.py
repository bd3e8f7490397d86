"""A pass in a process of its own, seen from the parent."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Self

from perfkit.errors import NotMeasuredError
from perfkit.profiling.passes.exchange import (
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
from perfkit.runner.commands import (
    FAULTHANDLER,
    SAFE_PATH,
    ChildProcess,
    GuardedCommand,
    ended_in_words,
    python_command,
    tail_of,
)
from perfkit.runner.fork_server import ForkServer, ForkServerLostError
from perfkit.temporary import temporary_folder

_CHILD = "perfkit.profiling.passes.child"
# Imports torch and what the first optimizer imports. It takes seconds, once for all forked passes.
_WITH_OPTIMIZERS = ("torch", "torch._dynamo")
_ALIVE_EVERY_S = 1.0
_FAREWELL_S = 10.0


class PassLauncher:
    """Starts the processes of passes: forked from one that has imported what is ``shared``, or fresh ones.

    Forked passes share the imported modules, and with them the layout of memory and the hash seed.
    """

    def __init__(
        self, *, fork: bool = sys.platform == "linux", shared: Sequence[str] = _WITH_OPTIMIZERS
    ) -> None:
        self._fork, self._shared = fork, shared
        self._stack = contextlib.ExitStack()
        self._server: ForkServer | None = None

    def __enter__(self) -> Self:
        """Begin to import torch in the background, where passes can be forked."""
        if self._fork:
            self._raise_server()
        return self

    def __exit__(self, *_: object) -> None:
        """End the fork server."""
        self._stack.close()

    def start(
        self, spec_file: Path, *, folder: str, output: Path, progress: int, turns: int | None
    ) -> ChildProcess:
        """Start a pass in a folder; it inherits the descriptors. The caller closes its own.

        Raises:
            NotMeasuredError: the fork server was lost, and the one in its place, too.
        """
        inherited = [progress, *([turns] if turns is not None else [])]
        if self._server is None:
            with output.open("wb") as stream:
                return GuardedCommand(
                    python_command(_CHILD, str(spec_file), *map(str, inherited)),
                    output=stream.fileno(),
                    folder=Path(folder),
                    inherit=inherited,
                )
        with contextlib.suppress(ForkServerLostError):
            return self._server.start(str(spec_file), log=output, folder=folder, descriptors=inherited)
        try:
            server = self._raise_server()
            return server.start(str(spec_file), log=output, folder=folder, descriptors=inherited)
        except ForkServerLostError as error:
            raise NotMeasuredError(f"two in a row were lost: {error}") from error

    def _raise_server(self) -> ForkServer:
        """Replace the present fork server by a fresh one, if there is one."""
        self._stack.close()
        folder = self._stack.enter_context(temporary_folder())
        server = ForkServer.started(
            f"{_CHILD}:main", log=folder / "preloader.log", options=(*SAFE_PATH, *FAULTHANDLER)
        )
        self._server = self._stack.enter_context(server)
        server.begin_preload(self._shared)
        return server


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
    """Start a pass in a process group of its own, and end whatever is left of its tree."""
    reading, writing = os.pipe()
    turn_end, giving = os.pipe() if by_turns else (None, None)
    folder = Path(spec.folder)
    given = [descriptor for descriptor in (writing, turn_end) if descriptor is not None]
    ours = [descriptor for descriptor in (reading, giving) if descriptor is not None]
    write_spec(spec, folder / "spec.json")
    try:
        process = launcher.start(
            (folder / "spec.json").absolute(),
            folder=str(spec.started_in),
            output=folder / OUTPUT_FILE,
            progress=writing,
            turns=turn_end,
        )
    finally:
        for descriptor in given:
            os.close(descriptor)
    try:
        yield RunningPass(spec, process, reading, giving, on_steps)
    finally:
        # When a fork server is lost, its passes are lost with it.
        with contextlib.suppress(ForkServerLostError):
            process.end()
        for descriptor in ours:
            os.close(descriptor)


def output_tail(folder: Path) -> str:
    """Return the last lines that the target of a pass printed."""
    return "\n".join(tail_of(folder / OUTPUT_FILE))


class RunningPass:
    """A running pass: its messages, its turns and its result."""

    def __init__(
        self,
        spec: PassSpec,
        process: ChildProcess,
        reading: int,
        giving: int | None,
        on_steps: Callable[[int], None],
    ) -> None:
        self._spec, self._process, self._reading, self._giving = spec, process, reading, giving
        self._on_steps = on_steps
        self._stopped_s: float | None = None

    def follow(self) -> bool:
        """Pass on step counts until the loop waits for its turn (True) or the pass is over (False).

        Workers may keep the pipe open, so it also checks whether the process of the pass has died.
        """
        while True:
            readable, _, _ = select.select([self], [], [], _ALIVE_EVERY_S)
            said = self.hear(readable=bool(readable))
            if said != "runs":
                return said == "waits"

    def fileno(self) -> int:
        """Return the descriptor of its messages, so that several passes can be waited for at once."""
        return self._reading

    def hear(self, *, readable: bool) -> Literal["runs", "waits", "over"]:
        """Pass on the step counts of the messages that are there, and tell how the pass is doing."""
        words = os.read(self._reading, 4096).decode().split() if readable else []
        counts = [int(word) for word in words if word.isdigit()]
        if counts:
            self._on_steps(counts[-1])
        if WAITING in words:
            return "waits"
        ended = DONE in words or (readable and not words) or self._process.poll() is not None
        return "over" if ended else "runs"

    @property
    def pid(self) -> int:
        """The number of the pass's process."""
        return self._process.pid

    def give_turn(self, steps: int) -> None:
        """Let the loop make so many steps."""
        assert self._giving is not None  # noqa: S101 (it was started by turns)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._giving, steps.to_bytes(TURN_BYTES, "little"))

    def stop(self) -> None:
        """Stop every process of the pass where it stands."""
        self._stopped_s = time.perf_counter()
        self._process.stop()

    def resume(self) -> None:
        """Let them go on, and write down how long they were stopped, since their clocks went on meanwhile."""
        if self._stopped_s is not None:
            with (Path(self._spec.folder) / STOPS_FILE).open("a") as stops:
                stops.write(f"[{self._stopped_s!r}, {time.perf_counter()!r}]\n")
            self._stopped_s = None
        self._process.resume()

    def result(self) -> PassResult:
        """Return the pass's result, once it is over or has had time to clean up.

        It waits no longer, since threads of the target could keep the process running for ever.
        """
        status = self._process.wait(_FAREWELL_S)
        return read_result(Path(self._spec.folder)) or _died(self._spec, status)


def _died(spec: PassSpec, status: int | None) -> PassResult:
    how = "did not end" if status is None else ended_in_words(status)
    message = f"the process of {spec.target.name} {how} before the harness could tell the times"
    return PassResult(problem=Problem(kind="failed", message=message))
