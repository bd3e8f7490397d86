"""A claim, its check and what the check found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Answer = Literal["true", "partly true", "false", "needs CUDA"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found.

    Attributes:
        answer: Whether the claim holds; "needs CUDA" where only a CUDA device could tell.
        evidence: What was seen, as a sentence.
    """

    answer: Answer
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim.

    Attributes:
        name: What it is chosen by.
        statement: What is claimed, as a sentence.
        check: Tries the claim in little time and changes nothing.
    """

    name: str
    statement: str
    check: Callable[[], Finding]


def holds(*, here: bool, elsewhere: bool) -> Answer:
    """Return the answer to a claim that was tried in the case it is made for, and in others."""
    if not here:
        return "false"
    return "true" if elsewhere else "partly true"


def outcome(work: Callable[[], object]) -> str:
    """Return "worked", or what torch raised against the work."""
    try:
        work()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        return f"raised {type(error).__name__}"
    return "worked"


def yes(seen: object) -> str:
    """Return yes or no, for a sentence."""
    return "yes" if seen else "no"
