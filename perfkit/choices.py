"""The words between which a person chooses, for commands to name before anything heavy is imported."""

from __future__ import annotations

from typing import Literal

# What fails a gate: a slowdown beyond the margin, or any that is proven to be above the noise floor.
FailOn = Literal["margin", "proven"]
# What a gate makes of a benchmark that its budget leaves undecided.
Inconclusive = Literal["fail", "pass", "go on"]
# The column of a ledger that holds a seed has 64 bits, one of them for the sign.
MOST_SEED = 2**63 - 1
# What runs a gate on each change.
Service = Literal["github", "gitlab", "pre-commit"]
