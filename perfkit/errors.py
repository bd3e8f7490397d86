"""The one tree of errors a person can meet, each with its exit code.

A message is one line: what happened, what was expected and found, and the next command to type.
"""

from __future__ import annotations

EXIT_PASS = 0
EXIT_REGRESSED = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_NOT_MEASURED = 4
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
# The status of a process that SIGPIPE ended, as the reader of its output has gone.
EXIT_PIPE_CLOSED = 141


class PerfkitError(Exception):
    """A mistake or failure that is reported in one line and ends the command with ``exit_code``."""

    exit_code = EXIT_USAGE


class UsageError(PerfkitError):
    """Wrong arguments, an unusable path or place, or an input file that cannot be read."""


class ConfigError(UsageError):
    """``[tool.perfkit]`` holds an unknown key or a value of the wrong type."""


class RepositoryError(UsageError):
    """There is no git commit to file a result under, or it is not the one that was claimed."""


class LedgerError(UsageError):
    """A ledger file cannot be read or written."""


class RecordingError(LedgerError):
    """A ledger that could be written at first no longer can; what a run had until then is kept."""

    exit_code = EXIT_NOT_MEASURED


class NotMeasuredError(PerfkitError):
    """Something that should have been measured could not be."""

    exit_code = EXIT_NOT_MEASURED


class SideNotMeasuredError(NotMeasuredError):
    """One side of a comparison cannot be built or collected; the other one may be fine."""

    def __init__(self, message: str, *, side: str) -> None:
        super().__init__(message)
        self.side = side


class RunInterruptedError(PerfkitError):
    """The person stopped a run; what was measured until then is kept."""

    exit_code = EXIT_INTERRUPTED


class OutOfDateError(PerfkitError):
    """A rendered file does not show what the ledger has (``--check``)."""

    exit_code = EXIT_REGRESSED
