"""What to say of a target that failed: one line, and the traceback without the harness's frames."""

from __future__ import annotations

import traceback
from types import TracebackType

from perfkit.model import Status
from perfkit.profiling.passes.exchange import Problem
from perfkit.profiling.passes.own_code import OwnCode, is_harness

_OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError")


def describe_failure(error: BaseException, name: str, own: OwnCode) -> Problem:
    """Return the problem of a target that raised: "train raised ValueError: why (file:line)"."""
    frames = _without_harness(error.__traceback__)
    details = "".join(traceback.format_exception(type(error), error, frames))
    return Problem(
        kind="failed",
        message=f"{name} raised {_in_a_line(error)}{_location(error, frames, own)}",
        status=_status(type(error).__name__),
        details=details,
    )


def describe_exit(error: SystemExit, name: str) -> Problem:
    """Return the problem of a target that ended itself with a code other than 0."""
    code = error.code if isinstance(error.code, int) else 1
    said = f": {error.code}" if isinstance(error.code, str) else ""
    return Problem(kind="failed", message=f"{name} exited with code {code}{said}")


def describe_internal_failure(error: Exception) -> Problem:
    """Return the problem of a pass in which perfkit's own code raised."""
    details = "".join(traceback.format_exception(error))
    return Problem(kind="internal", message=f"perfkit raised {_in_a_line(error)}", details=details)


def _in_a_line(error: BaseException) -> str:
    kind = type(error).__name__
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = next(iter(text.splitlines()), "")
    return f"{kind}: {first_line}" if first_line else kind


def _status(kind: str) -> Status:
    return "oom" if kind in _OUT_OF_MEMORY else "error"


def _without_harness(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the target's own frame on."""
    while frames is not None and _leads_in(frames):
        frames = frames.tb_next
    return frames


def _leads_in(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    return is_harness(file) or "importlib" in file


def _location(error: BaseException, frames: TracebackType | None, own: OwnCode) -> str:
    """Return the innermost place in the user's own code, or the innermost place at all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({own.shown(error.filename)}:{error.lineno})"
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(frames)]
    mine = [place for place in places if own.owns(place[0])] or places
    return f" ({own.shown(mine[-1][0])}:{mine[-1][1]})" if mine else ""
