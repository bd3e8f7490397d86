"""Interrupts every command at moments drawn by lot, on a real terminal, and looks at what is left of it.

``make faults`` runs it at length, and it goes on where it stood: what is done is kept in a journal, a line a
case. ``--report`` puts the sums into a file and into a table of the document.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import git
import pyarrow.parquet as pq
from forked_commands import run_perfkit
from gating import CONFIGURATION, PERFKIT, benchmark, work
from kills import EXPERIMENT, TRAINING, Scene, row_key
from ledger_files import add_run
from repositories import Repository

Kind = Literal["ctrl-c", "SIGTERM", "SIGHUP", "closed terminal", "closed stdout", "closed stderr"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_ETX = b"\x03"
_HIDDEN, _SHOWN = "\x1b[?25l", "\x1b[?25h"
_TRACEBACK = "Traceback (most recent call last)"
# The line of the installed command by which Python finds perfkit.
_FINDING = "from perfkit.cli import main\r\n"
# What Python prints when interrupted before it could show where, and the key that did it.
_BEFORE_PYTHON = "^CKeyboardInterrupt"
_LINES, _COLUMNS = 40, 120
_INTERRUPTED, _PIPE_CLOSED = 130, 141
# pytest's own exit code and word for an interrupted session.
_PYTEST_INTERRUPTED, _PYTEST_WORD = 2, "KeyboardInterrupt"
# Writing its summary to what is closed raises, which Python ends with 1.
_PYTEST_MUTE = 1
# An interrupted command may tidy up for so long, on a busy machine.
_ENDS_WITHIN_S = 20.0
# A signal that comes so shortly before the end may find nothing left to interrupt.
_UNHEARD_S = 2.0
LIMIT_S = 180.0
_POLL_S = 0.02
KILOBYTE = 1 << 10
FILES = {
    "pyproject.toml": CONFIGURATION,
    "work.py": work(steady=20),
    "training.py": TRAINING,
    "experiment.toml": EXPERIMENT,
    "tests/test_speed.py": "import work\n" + benchmark("a", "work.steady") + benchmark("b", "work.steady"),
}
_CHECK = ("ledger", "check")
_PYTEST = (
    "-m",
    "pytest",
    "tests",
    "--benchmark-autosave",
    "--benchmark-max-time=0.05",
    "-p",
    "no:cacheprovider",
)
# These hold for whole processes, also for that of which others are forked.
FIXED = {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
SIDES = ("--base", "HEAD~1", "--head", "HEAD")
TESTS = ("--benchmarks", "tests")
# PASS, REGRESSED and INCONCLUSIVE.
ANSWERS = (0, 1, 3)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command that is interrupted, as short as can be, and what comes after it.

    ``folder`` is where it runs, below the scene's; ``word`` is its word for an interruption, and
    ``code`` its exit code then. ``answers`` are the exit codes between which noise decides where nobody
    interrupts it. ``mute_code`` is the one with
    which it may end where its terminal or its output was closed, so that it cannot report how it ended.
    """

    name: str
    arguments: tuple[str, ...]
    after: tuple[tuple[str, ...], ...] = (_CHECK,)
    folder: str = "project"
    word: str = "interrupted"
    code: int = _INTERRUPTED
    answers: tuple[int, ...] = ()
    mute_code: int = _INTERRUPTED


PYTEST = Verb(
    name="pytest", arguments=_PYTEST, word=_PYTEST_WORD, code=_PYTEST_INTERRUPTED, mute_code=_PYTEST_MUTE
)
GATE = Verb(name="gate", arguments=("gate", *SIDES, *TESTS, "--budget", "15"), answers=ANSWERS)
COMPACT = Verb(name="ledger compact", arguments=("ledger", "compact", "--all"))


@dataclass(frozen=True, kw_only=True)
class Usual:
    """How a command ends that nobody interrupts: its time, its exit code, and the bytes of both outputs."""

    seconds: float
    code: int
    stdout: int
    stderr: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """What came of one case; all is well without ``problems``.

    ``at`` are the seconds, or the bytes, after which the fault came. It was ``reached`` if the command was
    still running then, and ``interrupted`` if it ended the command.
    """

    verb: str
    kind: Kind
    number: int
    at: float
    code: int | None = None
    reached: bool = False
    interrupted: bool = False
    ended_after_s: float = 0.0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Copied(Scene):
    """A scene that is a copy of another one, so that nothing is measured for it anew."""

    template: Path

    def __post_init__(self) -> None:
        shutil.copytree(self.template, self.folder, symlinks=True, dirs_exist_ok=True)
        root = self.folder / "project"
        object.__setattr__(self, "repository", Repository(root, git.Repo(root)))

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the whole command line."""
        return [sys.executable if arguments[0].startswith("-") else str(PERFKIT), *arguments]

    def environment(self) -> dict[str, str]:
        """Return the variables of its commands; each names a folder of the scene, by which they are found."""
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
        return {
            **inherited,
            "TMPDIR": str(self.temporary),
            "PERFKIT_LOCK_FOLDER": str(self.machine),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "TERM": "xterm-256color",
            **FIXED,
        }

    def run(self, arguments: Sequence[str], *, folder: str = "project") -> subprocess.CompletedProcess[str]:
        """Run a command to its end; what imports most of perfkit need not be imported each time."""
        if not arguments[0].startswith("-"):
            return run_perfkit(*arguments, cwd=self.folder / folder, env=self.environment())
        return subprocess.run(
            self.command(arguments),
            cwd=self.folder / folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def safe(self) -> list[Mapping[str, Any]]:
        """Return the rows that are staged or recorded by now, quickly: those of the template are known."""
        known = {file.name for file in ledger_of(self.template).glob("*.parquet")}
        new = [file for file in self.ledger.glob("*.parquet") if file.name not in known]
        rows = [*rows_of(self.template), *self.staged()]
        for file in new:
            # What is compacted goes into another file meanwhile.
            with contextlib.suppress(FileNotFoundError):
                rows += pq.read_table(file).to_pylist()
        return rows

    def internal_errors(self) -> Iterator[str]:
        """Yield what perfkit kept of its own mistakes."""
        for file in (self.folder / "cache/perfkit/errors").glob("*.txt"):
            yield f"internal error: {file.read_text(errors='replace')[-2 * KILOBYTE :]}"

    def held(self) -> Iterator[str]:
        """Yield each lock that somebody holds, and each that git would wait for in vain."""
        yield from (f"git's lock: {file}" for file in (self.root / ".git").rglob("*.lock"))
        for file in (*self.machine.glob("*.lock"), *self.ledger.rglob("*"), *self.temporary.glob("*.owner")):
            if file.is_file():
                with file.open("rb") as stream:
                    try:
                        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        yield f"held: {file}"


def ledger_of(template: Path) -> Path:
    """Return the ledger of a template."""
    return template / "project/benchmarks/ledger"


@functools.cache
def rows_of(template: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the rows that are in the ledger before a command is started."""
    return tuple(
        row for file in ledger_of(template).glob("*.parquet") for row in pq.read_table(file).to_pylist()
    )


class Terminal:
    """A command that leads the session of a terminal of its own, and its output.

    One of its outputs may be a pipe instead, whose reader ends after so many bytes.
    """

    def __init__(self, scene: Copied, verb: Verb, *, pipe: Literal["stdout", "stderr"] | None = None) -> None:
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        self.modes = termios.tcgetattr(self._slave)
        reading, writing = os.pipe()
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            scene.command(verb.arguments),
            cwd=scene.folder / verb.folder,
            env=scene.environment(),
            stdin=self._slave,
            stdout=writing if pipe == "stdout" else self._slave,
            stderr=writing if pipe == "stderr" else self._slave,
            start_new_session=True,
            preexec_fn=_lead_terminal,  # noqa: PLW1509 (nothing but calls of the kernel)
        )
        os.close(writing)
        self._open = {self._master: bytearray(), reading: bytearray()}
        self._terminal, self._pipe = self._open[self._master], self._open[reading]
        self._reading = reading

    @property
    def output(self) -> str:
        """What it wrote to the terminal, and to the pipe."""
        return (self._terminal + self._pipe).decode(errors="replace")

    @property
    def piped(self) -> int:
        """How many bytes came through the pipe."""
        return len(self._pipe)

    def read(self, limit_s: float) -> None:
        """Read its output until it ends, for so many seconds at most."""
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None and (left := deadline - time.monotonic()) > 0:
            self._take(min(left, _POLL_S))
        while self.process.poll() is not None and self._take(0.0):
            pass

    def read_piped(self, most: int) -> bool:
        """Read so many bytes of the pipe, close it, and return whether the command still ran by then."""
        deadline = self.begun + LIMIT_S
        while self.piped < most and self.process.poll() is None and time.monotonic() < deadline:
            self._take(_POLL_S, most=most - self.piped)
        ran = self.process.poll() is None
        self.close_pipe()
        return ran

    def close_pipe(self) -> None:
        """End the reader of the pipe."""
        if self._open.pop(self._reading, None) is not None:
            os.close(self._reading)

    def press_ctrl_c(self) -> None:
        """Have the terminal interrupt the group in its foreground."""
        os.write(self._master, _ETX)

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed."""
        del self._open[self._master]
        os.close(self._master)

    def problems(self) -> Iterator[str]:
        """Yield what is not as it was before."""
        if self._master in self._open:
            if termios.tcgetattr(self._slave) != self.modes:
                yield "the terminal's modes were changed"
            if self.output.rfind(_HIDDEN) > self.output.rfind(_SHOWN):
                yield "the cursor stays hidden"

    def close(self) -> None:
        """End what is still there of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for descriptor in (*self._open, self._slave):
            os.close(descriptor)
        self._open.clear()

    def _take(self, seconds: float, most: int = KILOBYTE << 6) -> bool:
        """Take what there is to read, once somewhere there is something; return whether there was."""
        ready, _, _ = select.select([*self._open], [], [], seconds)
        for descriptor in ready:
            with contextlib.suppress(OSError):
                output = os.read(descriptor, most if descriptor == self._reading else KILOBYTE << 6)
                self._open[descriptor] += output
                if not output:
                    self.close_pipe()
        return bool(ready)


def _lead_terminal() -> None:
    """Begin as what a person starts in a terminal does, also where this study runs in the background."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def interrupt_once(
    verb: Verb,
    kind: Kind,
    template: Path,
    folder: Path,
    *,
    at: float,
    usual: Usual,
    again: bool,
    number: int = 0,
) -> Case:
    """Interrupt a command and return what that left to be desired; with ``again`` it is run once more.

    ``at`` are seconds after its start; where the reader of an output leaves, the bytes that it has read.
    """
    scene = Copied(folder, template)
    case = Case(verb=verb.name, kind=kind, number=number, at=round(at, 3))
    pipe = kind.removeprefix("closed ")
    terminal = Terminal(scene, verb, pipe=pipe if pipe in ("stdout", "stderr") else None)  # type: ignore[arg-type]
    try:
        before = _strike(terminal, scene, kind, at)
        struck = time.monotonic()
        reached = before is not None
        # One that writes nothing more goes on as if nothing had happened, and takes its usual time.
        terminal.read(_ENDS_WITHIN_S + (3 * usual.seconds if pipe in ("stdout", "stderr") else 0.0))
        code = terminal.process.poll()
        if code is None:
            # It prints a traceback then.
            terminal.process.send_signal(signal.SIGABRT)
            terminal.read(_ENDS_WITHIN_S)
        case = replace(case, code=code, reached=reached, ended_after_s=round(time.monotonic() - struck, 3))
        case = replace(case, interrupted=reached and code not in (usual.code, *verb.answers))
        problems = [*_of_the_end(case, verb, usual, terminal.output), *terminal.problems()]
    finally:
        terminal.close()
    problems += [*_left(scene), *scene.internal_errors(), *_of_what_follows(scene, verb, usual, again=again)]
    if before is not None:
        problems += _of_rows(before, scene.recorded(), still_staged=[*scene.staged()])
    return replace(case, problems=tuple(problems))


def _strike(terminal: Terminal, scene: Copied, kind: Kind, at: float) -> list[Mapping[str, Any]] | None:
    """Do it at its moment; return the rows that were safe before, None where the command had ended."""
    if kind in ("closed stdout", "closed stderr"):
        return [] if terminal.read_piped(int(at)) else None
    terminal.read(at - (time.monotonic() - terminal.begun))
    if terminal.process.poll() is not None:
        return None
    before = scene.safe()
    if kind == "ctrl-c":
        terminal.press_ctrl_c()
    elif kind == "closed terminal":
        terminal.hang_up()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(terminal.process.pid, getattr(signal, kind))
    return before


def _of_the_end(case: Case, verb: Verb, usual: Usual, output: str) -> Iterator[str]:
    """Yield what is wrong with how a command ended and with its output."""
    number = {"ctrl-c": signal.SIGINT, "SIGTERM": signal.SIGTERM}.get(case.kind, signal.SIGHUP)
    # A signal that comes before perfkit's first line is Python's or the kernel's to answer.
    by_signal = (-number, 128 + number)
    piped = case.kind in ("closed stdout", "closed stderr")
    expected = (_PIPE_CLOSED, verb.code) if piped else (verb.code, *by_signal)
    if case.kind.startswith("closed"):
        expected = (*expected, verb.mute_code)
    if (_TRACEBACK in output and _is_before_perfkit(case, output)) or output.strip() == _BEFORE_PYTHON:
        return
    if case.code is None:
        yield f"it did not end within {case.ended_after_s} s: {output[-4 * KILOBYTE :]!r}"
    elif case.code not in (*expected, usual.code, *verb.answers):
        yield f"it ended with {case.code}: {output[-300:]!r}"
    if _TRACEBACK in output:
        yield f"it printed a traceback: {output[output.index(_TRACEBACK) :][-2 * KILOBYTE :]!r}"
    if case.reached and not case.interrupted and not piped and case.ended_after_s > _UNHEARD_S:
        yield f"it went on for {case.ended_after_s} s as if nothing had happened"
    spoken = verb.word in output or case.code in by_signal or case.kind == "closed terminal"
    if case.interrupted and not piped and case.code == verb.code and not spoken:
        yield f"it did not report that it was interrupted: {output[-300:]!r}"


def _is_before_perfkit(case: Case, output: str) -> bool:
    """Return whether a traceback is of Python's own start, until perfkit is found, or of pytest's start."""
    traceback = output[output.index(_TRACEBACK) :]
    is_python = f"{os.sep}perfkit{os.sep}" not in traceback or _FINDING in traceback
    # Python ends with 1 where it was interrupted before it could run anything.
    return case.code in (-signal.SIGINT, 1) and (is_python or case.verb == "pytest")


def _left(scene: Copied) -> list[str]:
    """Return what stays behind although a patient person waited for it to go."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while (left := [*scene.left_behind(), *scene.held()]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def _of_what_follows(scene: Copied, verb: Verb, usual: Usual, *, again: bool) -> Iterator[str]:
    """Yield what is wrong with the commands that come after, and with the same one where it is run again."""
    for arguments in verb.after:
        done = scene.run(arguments)
        if done.returncode != 0 or _TRACEBACK in done.stderr:
            output = f"{done.stdout[-300:]} {done.stderr[-300:]}"
            yield f"{' '.join(arguments)} ended with {done.returncode}: {output}"
    if again:
        done = scene.run(verb.arguments, folder=verb.folder)
        # What was measured before counts, so that a gate may decide what it could not before.
        if done.returncode not in (usual.code, 0, 1, 3) or _TRACEBACK in done.stderr:
            yield f"run again it ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}"


def _of_rows(
    before: Sequence[Mapping[str, Any]],
    recorded: Sequence[Mapping[str, Any]],
    *,
    still_staged: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """Yield each row that was safe before and is in the ledger no more, or there twice.

    What the same command goes on with, as an experiment does, is ``still_staged``.
    """
    found = Counter(map(row_key, recorded))
    kept = {*found, *map(row_key, still_staged)}
    yield from (f"lost: {key}" for key in {row_key(row) for row in before} - kept)
    yield from (f"recorded {times} times: {key}" for key, times in found.items() if times > 1)


def make_template(folder: Path) -> Scene:
    """Make a repository with three commits and a ledger."""
    folder.mkdir()
    scene = Scene(folder)
    scene.repository.commit(
        {**FILES, ".gitignore": "benchmarks/\n*.stat\n*.json\nsite/\nperf_log.md\n"}, "Begin"
    )
    scene.repository.commit({"work.py": work(steady=21)}, "Change")
    scene.repository.commit({"work.py": work(steady=60)}, "Slow down")
    for number in range(30):
        add_run(scene.ledger, number, month=number // 10)
    return scene
