"""The command line: one file per verb, each a door to one job."""

from __future__ import annotations

import gc
import os
import sys

from perfkit.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, PerfkitError

# A command holds on to nearly all objects that it makes, so looking for garbage among them as often as Python
# does by default takes a tenth of its time and finds nothing.
_OBJECTS_PER_COLLECTION = 200_000


def main() -> None:
    """Run the command line and end with its exit code.

    A user's mistake prints one line, an internal error a few lines, and it exits with 70. SIGTERM, SIGHUP
    and SIGQUIT do what Ctrl-C does. If the reader of the output closes it, it ends without a message.
    """
    from perfkit.invocation import ended_like_ctrl_c
    from perfkit.views.console import let_any_text_through

    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    let_any_text_through()
    with ended_like_ctrl_c():
        code = _outcome()
    sys.exit(code)


def _outcome() -> int:
    try:
        from perfkit.cli.app import run_app

        code = run_app()
        sys.stdout.flush()
    except PerfkitError as error:
        return _tell(error, str(error), code=error.exit_code)
    except KeyboardInterrupt as error:
        return _tell(error, "interrupted", code=EXIT_INTERRUPTED)
    except BrokenPipeError:
        _let_go_of_streams()
        return EXIT_PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 (whatever is wrong with perfkit, 1 would mean "regressed")
        from perfkit.internal_error import internal_error_lines

        _say(*internal_error_lines(error))
        return EXIT_INTERNAL
    return code


def _tell(error: BaseException, text: str, *, code: int) -> int:
    from perfkit.internal_error import is_debugging, notes_of

    _say(text, *notes_of(error))
    if is_debugging():
        import traceback

        traceback.print_exception(error)
    return code


def _say(*lines: str) -> None:
    """Print lines to standard error, which may be closed already; what they quote may be anybody's."""
    from perfkit.views.console import visible_lines

    try:
        for line in lines:
            print(f"perfkit: {visible_lines(line)}", file=sys.stderr, flush=True)  # noqa: T201 (the command's own voice)
    except OSError:
        _let_go_of_streams()


def _let_go_of_streams() -> None:
    """Point both streams at the null device: Python would flush them into the closed pipe once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
