"""The words between which a person chooses, for commands to name before anything heavy is imported."""

from __future__ import annotations

from typing import Literal

from perfkit.errors import UsageError

# What fails a gate: a slowdown beyond the margin, or any that is proven to be above the noise floor.
FailOn = Literal["margin", "proven"]
# What a gate makes of a benchmark that its budget leaves undecided.
Inconclusive = Literal["fail", "pass", "go on"]
# What becomes of a gate of which changed functions are not measured.
Uncovered = Literal["note", "fail"]
# Whose configuration and markers decide a gate.
RulesOf = Literal["base", "head"]
# The column of a ledger that holds a seed has 64 bits, one of them for the sign.
MOST_SEED = 2**63 - 1
# What runs a gate on each change.
Service = Literal["github", "gitlab", "pre-commit"]


def check_seed(name: str, seed: int, *, most: int = MOST_SEED) -> None:
    """Check that the rows of a run can hold a seed."""
    if not 0 <= seed <= most:
        raise UsageError(f"{name} must be from 0 to {most}, found {seed}")
