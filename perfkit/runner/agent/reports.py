"""What pytest's report of a test's phase means for a benchmark."""

from __future__ import annotations

import re
from typing import Literal

import pytest

MESSAGE_LIMIT = 300
# Errors of other processes hold their tracebacks.
_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:: |$)")


def judge(
    call: pytest.CallInfo[None], report: pytest.TestReport
) -> tuple[Literal["ok", "error", "skipped"], str | None]:
    """Return how a phase of a test ended, and in one line why it did not pass."""
    if report.passed:
        return "ok", None
    if call.excinfo is None:
        return "error", "unknown failure"
    text = str(call.excinfo.value)
    if report.skipped:
        return "skipped", " ".join(text.split())[:MESSAGE_LIMIT]
    return "error", f"{call.excinfo.typename}: {_shortened(text)}"


def _shortened(text: str) -> str:
    """Return a message in one line; of one that holds a traceback, the line that says what happened."""
    _, traceback, below = text.rpartition(_TRACEBACK)
    # Torch adds the frames of its own code to what happened.
    lines = [line for line in below.splitlines() if _ERROR.match(line)] if traceback else []
    return " ".join((lines[-1] if lines else text).split())[:MESSAGE_LIMIT]


def last_line(report: pytest.CollectReport) -> str:
    """Return the line of a failed collection's traceback that says what happened."""
    lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    said = (errors or lines or ["unknown failure"])[-1]
    return said.replace("_pytest.outcomes.Exit: ", "pytest.exit(): ")[:MESSAGE_LIMIT]
