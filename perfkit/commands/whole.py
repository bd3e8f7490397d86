"""``perfkit profile --whole``: runs a program unchanged, and files every step of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.commands.profile import TORCHRUN
from perfkit.config import Project
from perfkit.errors import EXIT_INTERRUPTED, NotMeasuredError, RunInterruptedError, UsageError
from perfkit.identity import shown_run_id
from perfkit.invocation import follow_up
from perfkit.ledger.remote import mirror_at
from perfkit.ledger.store import Ledger
from perfkit.profiling.passes.targets import LOADER, Target, Unit, find_step_line, resolve_target
from perfkit.repo.commits import read_commit
from perfkit.runner.commands import ended_in_words
from perfkit.temporary import short_temporary, temporary_folder

NO_STEP = (
    "no step was found: no optimizer stepped, nothing went backward and no loader gave batches; name a line "
    "that each step runs: --step-at FILE:LINE"
)
_MODULE = "perfkit.interface.whole"
# Options of torchrun that take no value.
_AS_MODULE = ("-m", "--module")
_REFUSED = ("--no-python", "--no_python", "--run-path", "--run_path")
_FLAGS = ("--standalone", *_AS_MODULE, *_REFUSED)
# The room that is kept for a result from the start on, so that a disk that is full later does no harm.
RESULT_BYTES = 1 << 14


@dataclass(frozen=True, kw_only=True)
class WholeRequest:
    """A target to run to its end; ``target`` may be "torchrun", with its own options in the ``arguments``."""

    target: str
    arguments: tuple[str, ...] = ()
    ranks: int | None = None
    step_at: str | None = None
    ledger: str | Path


@dataclass(frozen=True, kw_only=True)
class WholeSpec:
    """What the process of the target, or of each rank, is given; paths are absolute."""

    name: str
    target: Target
    root: str
    unit: Unit
    ledger: str
    result: str


@dataclass(frozen=True, kw_only=True)
class WholeResult:
    """The runs of a target that were filed, none where nothing could be, and what was found in lines.

    Until it ``is_over``, there may be more. ``refused`` has the reason why it was not run at all.
    """

    name: str
    runs: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    is_over: bool = True
    refused: str = ""


def run_whole(request: WholeRequest, *, project: Project) -> WholeResult:
    """Run the target on this terminal, and return what was filed of it.

    Raises:
        NotMeasuredError: it failed, and the exit code is its own, or no step was found; what was filed until
            then is in the message.
    """
    launcher, named, arguments = _launched(request)
    target = resolve_target(named, project, folder=Path.cwd(), any_kind=True)
    if target.is_notebook:
        raise UsageError(
            f'"{target.name}" is a notebook, and --whole takes a script or a function; profile it without'
            " --whole, or convert it with `jupyter nbconvert --to script`"
        )
    unit = Unit(loader=request.step_at == LOADER)
    if request.step_at is not None and not unit.loader:
        unit = Unit(line=find_step_line(request.step_at, Path.cwd()))
    read_commit(project.root)
    # The program may go to another folder. What is at a URL is written beside it.
    ledger = str(request.ledger)
    if mirror_at(request.ledger) is None:
        ledger = str(Path(request.ledger).absolute())
        Ledger(Path(ledger)).check_writable()
    with temporary_folder() as folder:
        file = folder / "result.json"
        file.write_bytes(b" " * RESULT_BYTES)
        spec = WholeSpec(
            name=Path(target.place).stem if target.is_script else target.name,
            target=target,
            root=str(project.root),
            unit=unit,
            ledger=ledger,
            result=str(file),
        )
        text = msgspec.json.encode(spec).decode()
        with short_temporary():
            code = _run([sys.executable, *launcher, "-m", _MODULE, text, *arguments])
        left = file.read_bytes().strip()
        result = msgspec.json.decode(left, type=WholeResult) if left else None
    if result is not None and result.refused:
        raise UsageError(result.refused)
    filed = "nothing was filed" if result is None else result.lines[0]
    if result is not None and not result.is_over:
        filed += "; its later steps were not, since it ended at once"
    if result is not None and result.runs:
        filed += f"; `{follow_up(f'perfkit ledger show {shown_run_id(result.runs[-1])}')}` has what was filed"
    if code in (EXIT_INTERRUPTED, -signal.SIGINT):
        raise RunInterruptedError(f"{target.name} was interrupted: {filed}")
    if code or result is None or not result.is_over:
        ended = ended_in_words(code) if code else "ended at once, by os._exit"
        failure = NotMeasuredError(f"{target.name} {ended}: {filed}")
        failure.exit_code = (code if code >= 0 else 128 - code) or failure.exit_code
        raise failure
    if not result.runs:
        raise NotMeasuredError(filed)
    return result


def _launched(request: WholeRequest) -> tuple[list[str], str, tuple[str, ...]]:
    """Return what starts the ranks, the target, and its arguments."""
    if request.target == TORCHRUN:
        words = request.arguments
        at = _script_place(words)
        if at is None:
            raise UsageError("torchrun: no script is named; `perfkit profile --whole torchrun … train.py`")
        if set(words[:at]) & set(_REFUSED):
            raise UsageError("torchrun: only scripts and modules are followed; name one")
        given = [word for word in words[:at] if word not in _AS_MODULE]
        return ["-m", "torch.distributed.run", *given], words[at], words[at + 1 :]
    if request.ranks is None:
        return [], request.target, request.arguments
    started = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.ranks}"]
    return started, request.target, request.arguments


def _script_place(words: Sequence[str]) -> int | None:
    at = 0
    while at < len(words):
        if not words[at].startswith("-"):
            return at
        at += 1 if "=" in words[at] or words[at] in _FLAGS else 2
    return None


def _run(command: Sequence[str]) -> int:
    """Run a command on this terminal to its end, and return its code."""
    with subprocess.Popen(command) as process, _passing_signals(process) as pressed:
        code = process.wait()
    # torchrun ends otherwise.
    return EXIT_INTERRUPTED if code and pressed else code


@contextlib.contextmanager
def _passing_signals(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Leave it to the program how it ends: a terminal sends it Ctrl-C by itself, and each is in the list."""
    pressed: list[int] = []
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, _: pressed.append(number)),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        yield pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
