"""Acceptances: findings of a gate that people let pass, with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfkit.model.comparisons import COUNTED, Verdict

SHOWN_DIGITS = 8
# What stands for a reason in the lines that perfkit offers.
_PLACEHOLDERS = {"reason", "text", "why", "…", "..."}


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A person's word, at one commit, that a finding may pass.

    ``benchmark`` is a node id or the end of one. ``verdict`` is the kind of finding that was accepted, None
    for any. ``ratio`` is head / base as it was when it was accepted, ``counts`` what grew, by metric, with
    head's count; None stands for whatever grows. ``uncounted`` names what head could not count.
    """

    benchmark: str
    reason: str
    commit: str
    author: str | None = None
    verdict: Verdict | None
    ratio: float | None = None
    counts: Mapping[str, float] | None = None
    uncounted: tuple[str, ...] = ()

    @property
    def of_counts_alone(self) -> bool:
        """Whether only counts were accepted: an accepted slowdown has a ratio, and no time is MISSING.

        An acceptance of a whole benchmark that head lacks names no counts, so it is not one of these.
        """
        named = bool(self.counts) or bool(self.uncounted)
        return named and self.ratio is None and self.verdict in COUNTED

    @property
    def text(self) -> str:
        """The reason, with who gave it and where."""
        where = self.commit[:SHOWN_DIGITS]
        return f"{self.reason} ({f'{self.author}, {where}' if self.author else where})"


def is_placeholder(reason: str) -> bool:
    """Tell whether a reason is what an offered line has in its place, so that nobody gave one."""
    return reason.strip().casefold() in _PLACEHOLDERS
