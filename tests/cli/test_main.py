"""The command ends as documented on internal errors, closed pipes and signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import run

from perfkit.invocation import Invocation, ended_like_ctrl_c

# A command whose job fails in a way that nobody foresaw.
PROGRAM = """
import sys
import perfkit.ledger.store
from perfkit.cli import main

def fail(self):
    error = {error}
    error.add_note("its 3 rows so far are in x.jsonl")
    raise error

perfkit.ledger.store.Ledger.runs = fail
sys.argv = ["perfkit", "ledger", "list", "--ledger", "."]
main()
"""


def _run(error: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    program = [sys.executable, "-c", PROGRAM.format(error=error)]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_checkout_of_a_library_is_not_imported_for_it(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich/__init__.py").write_text("raise SystemExit(70)")
    program = [sys.executable, "-m", "perfkit", "gate", "--base", "HEAD"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 2 == done.returncode, done.stderr


@pytest.mark.parametrize(
    "error",
    ["OSError(5, 'Input/output error')", 'RuntimeError("one\\ntwo")'],
)
def test_an_internal_error_is_no_verdict(tmp_path: Path, error: str) -> None:
    done = _run(error, tmp_path, PERFKIT_DEBUG="0")

    (file,) = (tmp_path / "cache/perfkit/errors").iterdir()
    lines = done.stderr.splitlines()
    assert 70 == done.returncode, done.stderr
    assert "" == done.stdout
    assert lines[0].startswith(f"perfkit: internal error: {error.partition('(')[0]}")
    assert lines[0].endswith("; it is perfkit's mistake, and no verdict")
    assert "perfkit: its 3 rows so far are in x.jsonl" == lines[1]
    assert f"perfkit: the full traceback is in {file}; PERFKIT_DEBUG=1 prints it" == lines[2]
    assert lines[3].startswith("perfkit: please report it")
    assert 4 == len(lines)
    kept = file.read_text()
    assert "Traceback (most recent call last)" in kept
    assert "ledger list --ledger ." in kept


@pytest.mark.parametrize("error", ["OSError(12, 'x')", 'RuntimeError("can\'t start new thread")'])
def test_a_lack_of_memory_is_no_mistake_of_perfkits(tmp_path: Path, error: str) -> None:
    done = _run(error, tmp_path)

    assert 4 == done.returncode, done.stderr
    assert "not enough memory" in done.stderr.splitlines()[0]
    assert "perfkit: its 3 rows so far are in x.jsonl" == done.stderr.splitlines()[1]


def test_the_traceback_is_kept_somewhere(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    (tmp_path / "tmp").mkdir()

    done = _run("KeyError(1)", tmp_path, TMPDIR=str(tmp_path / "tmp"))

    (file,) = (tmp_path / "tmp/perfkit-errors").iterdir()
    assert f"the full traceback is in {file}" in done.stderr
    assert "KeyError: 1" in file.read_text()


def test_tracebacks_are_shown_to_who_asks(tmp_path: Path) -> None:
    internal, mistake = (
        _run(error, tmp_path, PERFKIT_DEBUG="1")
        for error in ("KeyError(1)", 'perfkit.errors.UsageError("wrong")')
    )

    assert (70, 2) == (internal.returncode, mistake.returncode)
    assert "perfkit: wrong" in mistake.stderr
    assert [True, True] == ["Traceback" in done.stderr for done in (internal, mistake)]


@pytest.mark.parametrize("arguments", [("--version",), ("ledger", "list")])
def test_a_reader_that_leaves_ends_the_command_quietly(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "benchmarks/ledger").mkdir(parents=True)
    reading, writing = os.pipe()
    os.close(reading)
    program = Path(sys.executable).with_name("perfkit")
    done = subprocess.run(
        [program, *arguments], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)

    assert (141, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_ends_is_an_interruption(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt, match=number.name), ended_like_ctrl_c():
        signal.raise_signal(number)

    assert signal.SIG_DFL == signal.getsignal(number)


def test_a_second_signal_does_not_end_the_tidying_up() -> None:
    tidied = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
                tidied.append(number)

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), ended_like_ctrl_c(also_ctrl_c=True):
        work()

    assert [signal.SIGHUP, signal.SIGINT, signal.SIGTERM] == tidied
    assert signal.default_int_handler == signal.getsignal(signal.SIGINT)


# Interrupts the command in the midst of an import of its own, before it listens to signals.
EARLY = """
import os, signal, sys
import perfkit.cli

class Early:
    def find_spec(self, name, *_):
        if name == "perfkit.invocation":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Early())
perfkit.cli.main()
"""
# Interrupts the command when it has done everything and Python takes its leave.
LATE = """
import atexit, os, signal, sys
import perfkit.cli

atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["perfkit", "--version"]
perfkit.cli.main()
"""


@pytest.mark.parametrize(
    ("program", "code", "expected"), [(EARLY, 130, "perfkit: interrupted\n"), (LATE, -2, "")]
)
def test_ctrl_c_at_the_edges_prints_no_traceback(program: str, code: int, expected: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (code, expected) == (done.returncode, done.stderr)


@pytest.mark.parametrize(("arguments", "code"), [(("--version",), 130), (("ledger", "list"), 2)])
def test_a_terminal_that_was_closed_is_no_mistake_of_perfkits(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    (tmp_path / "benchmarks/ledger").mkdir(parents=True)
    master, slave = pty.openpty()
    os.close(master)
    done = subprocess.run(
        [Path(sys.executable).with_name("perfkit"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=slave,
        stderr=slave,
        check=False,
    )
    os.close(slave)

    assert code == done.returncode
    assert not (tmp_path / "cache/perfkit/errors").exists()


INTERRUPTED = """
import os, signal, sys, threading, time
import perfkit.commands.ledger
from perfkit.cli import main

{code}
perfkit.commands.ledger.check_ledger = interrupted
sys.argv = ["perfkit", "ledger", "check", "--ledger", "."]
main()
"""
# Interrupts the command right after a bar has hidden the cursor, before anything would show it again.
HIDDEN = """
def interrupted(*_, progress):
    progress._bar.live.stop = lambda: os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
"""
# Interrupts the command in the end of an object, from which no exception gets out.
LOST = """
class Ends:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def interrupted(*_, progress):
    Ends()
    while True:
        time.sleep(0.01)
"""
# An error in place of the interruption.
FAILS = """
import perfkit.errors

def interrupted(*_, progress):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise {error}
"""
# Something that was interrupted while it was made, and waits for ever where Python ends it at last.
HANGS = """
class Hangs:
    def __del__(self):
        threading.Event().wait()

def interrupted(*_, progress):
    perfkit.commands.ledger.kept = Hangs()
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("RuntimeError('Query interrupted')", ""),
        ("perfkit.errors.LedgerError('cannot read')", ": cannot read"),
    ],
)
def test_what_fails_by_an_interruption_is_no_mistake(tmp_path: Path, error: str, expected: str) -> None:
    program = INTERRUPTED.format(code=FAILS.format(error=error))

    done = run([sys.executable, "-c", program], cwd=tmp_path)

    assert (130, f"perfkit: interrupted{expected}") == (done.returncode, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("code", [LOST, HANGS], ids=["forgotten by Python", "never ending"])
def test_an_interrupted_command_ends_with_all_it_began(tmp_path: Path, code: str) -> None:
    done = run([sys.executable, "-c", INTERRUPTED.format(code=code)], cwd=tmp_path, timeout=60)

    assert (130, "perfkit: interrupted") == (done.returncode, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


def test_the_cursor_is_shown_again(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(code=HIDDEN)],
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        check=False,
    )
    output = os.read(master, 1 << 16)
    os.close(master)
    os.close(slave)

    assert 130 == done.returncode
    assert -1 < output.rfind(b"\x1b[?25l") < output.rfind(b"\x1b[?25h")


FORKED = """
import os, signal, sys
from perfkit.invocation import Invocation, ended_like_ctrl_c

with ended_like_ctrl_c():
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_process_dies_of_the_signal() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)

    assert f"{-signal.SIGTERM}" == done.stdout.strip()


def test_a_command_is_text_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["perfkit", "profile", os.fsdecode("tr\u00e4n.py".encode()), "x\udcff"])

    assert "perfkit profile 'tr\u00e4n.py' 'x\ufffd'" == Invocation.this().command


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_signal_that_is_spoken_for_stays_as_it_is(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with ended_like_ctrl_c():
            assert handler == signal.getsignal(signal.SIGHUP)
        assert handler == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
