"""The command line: one file per verb, each a door to one job."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import sys
import warnings
from typing import NoReturn

from perfkit.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_NOT_MEASURED,
    EXIT_PIPE_CLOSED,
    EXIT_USAGE,
    NotMeasuredError,
    PerfkitError,
)

# A command holds on to nearly all objects that it makes, so looking for garbage among them as often as Python
# does by default takes a tenth of its time and finds nothing.
_OBJECTS_PER_COLLECTION = 200_000
_INTERRUPTED = "interrupted"
# Options for less output, and commands that have nothing to wait for.
_QUIET = frozenset({"--quiet", "-q", "--help"})
_QUICK = frozenset({"help", "schema", "work"})
# What terminals take for "show the cursor" (DECTCEM).
_CURSOR = b"\x1b[?25h"
_STANDARD_ERROR = 2
# What numpy, pyarrow and DuckDB reserve when they are loaded, far more than they use.
_LEAST_BYTES, _BYTES_PER_THREAD, _MOST_THREADS = 5 << 28, 1 << 27, 64
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_NO_MEMORY = (
    "there is not enough memory, or a limit such as `ulimit -v` allows too little of it; nothing was decided:"
    " free memory or raise the limit, then run the command again"
)


def main() -> None:
    """Run the command line and end with its exit code.

    A user's mistake prints one line, an internal error a few lines, and it exits with 70. SIGTERM, SIGHUP
    and SIGQUIT do what Ctrl-C does. If the reader of the output closes it, it ends without a message.
    """
    try:
        from perfkit.invocation import end_at_once, ended_like_ctrl_c, keep_ledger

        keep_ledger(None)
        with ended_like_ctrl_c(also_ctrl_c=True):
            code = _outcome()
            if code == EXIT_INTERRUPTED:
                # Ignore a second Ctrl-C here as well.
                _leave_at_once()
            # What is left is Python's own end, which would answer a signal with a traceback.
            end_at_once()
    except KeyboardInterrupt:
        # It came before this process listened to signals.
        _log(_INTERRUPTED)
        _leave_at_once()
    sys.exit(code)


def _outcome() -> int:
    try:
        # Only perfkit and its libraries run here: PYTHONWARNINGS is meant for the code that is measured.
        warnings.simplefilter("ignore")
        from perfkit.report.console import let_any_text_through, shown_until_output

        if not _starts_at_once():
            _check_memory_limit()
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        let_any_text_through()
        with shown_until_output(starting) if (starting := _starting()) else contextlib.nullcontext():
            from perfkit.cli.app import run_app

            code = run_app()
            sys.stdout.flush()
    except PerfkitError as error:
        return _failed(error)
    except KeyboardInterrupt as error:
        return _report(error, _INTERRUPTED, code=EXIT_INTERRUPTED)
    except BrokenPipeError:
        _let_go_of_streams()
        return EXIT_PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 (exit code 1 would mean "regressed")
        return _failed_unforeseen(error)
    return code


def _starting() -> str:
    """Return the line to show while a command imports what it needs, which may take a second."""
    verb, *others = (*sys.argv[1:], "")
    return "" if _starts_at_once() or _QUIET.intersection(others) else f"starting perfkit {verb}"


def _starts_at_once() -> bool:
    """Return whether a command imports next to nothing."""
    verb, *_ = (*sys.argv[1:], "")
    return not verb or verb.startswith("-") or verb in _QUICK or "_PERFKIT_COMPLETE" in os.environ


def _check_memory_limit() -> None:
    """Refuse a limit under which OpenBLAS, which numpy loads, ends or hangs this process."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    threads = next((os.environ[name] for name in _BLAS_THREADS if os.environ.get(name, "").isdigit()), None)
    least = _LEAST_BYTES + _BYTES_PER_THREAD * min(int(threads or os.cpu_count() or 1), _MOST_THREADS)
    if allowed != resource.RLIM_INFINITY and allowed < least:
        raise NotMeasuredError(
            f"`ulimit -v` allows {allowed >> 20} MiB, and perfkit needs at least {least >> 20} MiB here;"
            f" nothing was done: run `ulimit -v {least >> 10}`, or limit memory with a cgroup instead"
        )


def _failed(error: PerfkitError) -> int:
    """Report a failure; a signal may have made git, for example, fail."""
    from perfkit.invocation import was_interrupted

    if was_interrupted() and error.exit_code != EXIT_INTERRUPTED:
        return _report(error, f"{_INTERRUPTED}: {error}", code=EXIT_INTERRUPTED)
    return _report(error, str(error), code=error.exit_code)


def _failed_unforeseen(error: Exception) -> int:
    """Report an internal error, unless a signal or a closed terminal caused it."""
    if _is_short_of_memory(error):
        try:
            return _report(error, _NO_MEMORY, code=EXIT_NOT_MEASURED)
        except MemoryError:
            # There is not even enough to import what prints a line.
            os.write(_STANDARD_ERROR, f"perfkit: {_NO_MEMORY}\n".encode())
            os._exit(EXIT_NOT_MEASURED)
    from perfkit.invocation import was_interrupted

    if isinstance(error, OSError) and _is_hung_up():
        _let_go_of_streams()
        return EXIT_INTERRUPTED
    if was_interrupted():
        # Some libraries answer a signal with an exception of their own.
        return _report(error, _INTERRUPTED, code=EXIT_INTERRUPTED)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return _report(error, f"{error.strerror}: {error.filename}; give a shorter one", code=EXIT_USAGE)
    from perfkit.internal_error import internal_error_lines

    _log(*internal_error_lines(error))
    return EXIT_INTERNAL


def _is_short_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, as it may while a library is loaded or a thread is started."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    texts = ("Cannot allocate memory", "failed to map segment", "can't start new thread", "bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def _report(error: BaseException, text: str, *, code: int) -> int:
    from perfkit.internal_error import is_debugging, notes_of
    from perfkit.invocation import with_follow_ups

    _log(*map(with_follow_ups, (text, *notes_of(error))))
    if is_debugging():
        import traceback

        traceback.print_exception(error)
    return code


def _log(*lines: str) -> None:
    """Print lines to standard error, which may be closed already; what they quote may be anybody's."""
    from perfkit.report.console import visible_lines

    try:
        for line in lines:
            print(f"perfkit: {visible_lines(line)}", file=sys.stderr, flush=True)  # noqa: T201 (the command's own voice)
    except OSError:
        _let_go_of_streams()


def _leave_at_once() -> NoReturn:
    """End without the end of every object: one that was interrupted in the making may wait for ever there."""
    with contextlib.suppress(OSError, ValueError):
        # An interrupted library may have hidden it.
        if os.isatty(_STANDARD_ERROR) and os.environ.get("TERM", "dumb") != "dumb":
            os.write(_STANDARD_ERROR, _CURSOR)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(EXIT_INTERRUPTED)


def _is_hung_up() -> bool:
    """Return whether the terminal of this command was closed."""
    import errno
    import termios

    for stream in (sys.stdout, sys.stderr):
        try:
            termios.tcgetattr(stream.fileno())
        except termios.error as error:
            if error.args[0] == errno.EIO:
                return True
        except (OSError, ValueError):
            pass
    return False


def _let_go_of_streams() -> None:
    """Point both streams at the null device: Python would flush them into the closed pipe once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
