"""What pytest's report of a test's phase means for a benchmark."""

from __future__ import annotations

from typing import Literal

import pytest

MESSAGE_LIMIT = 300


def judge(
    call: pytest.CallInfo[None], report: pytest.TestReport
) -> tuple[Literal["ok", "error", "skipped"], str | None]:
    """Return how a phase of a test ended, and in one line why it did not pass."""
    if report.passed:
        return "ok", None
    if call.excinfo is None:
        return "error", "unknown failure"
    text = " ".join(str(call.excinfo.value).split())[:MESSAGE_LIMIT]
    if report.skipped:
        return "skipped", text
    return "error", f"{call.excinfo.typename}: {text}"


def last_line(report: pytest.CollectReport) -> str:
    """Return the line of a failed collection's traceback that says what happened."""
    lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    said = (errors or lines or ["unknown failure"])[-1]
    return said.replace("_pytest.outcomes.Exit: ", "pytest.exit(): ")[:MESSAGE_LIMIT]
