"""Earlier gates on the same pair, whose tests a new gate continues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from perfkit.gating.filing import RunContext
from perfkit.gating.from_rows import joined_pairs, pairs_of
from perfkit.gating.sequential import ComparedBenchmark
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, TYPICAL_TIME, WALL_TIME, Row, Source
from perfkit.model.comparisons import LaunchPair
from perfkit.model.policies import JudgedPolicy
from perfkit.repo.sides import SidePair


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The rows of earlier gates whose test is continued, by run, oldest first."""

    runs: dict[str, list[Row]] = field(default_factory=dict)

    def pairs_for(self, one: ComparedBenchmark) -> tuple[LaunchPair, ...]:
        """Return the earlier launches of this version of a benchmark; a changed version has none."""
        found = [
            [row for row in rows if row.outcome.benchmark == one.benchmark] for rows in self.runs.values()
        ]
        return joined_pairs([pairs_of(rows) for rows in found])

    def continued(self, compared: Iterable[ComparedBenchmark]) -> tuple[ComparedBenchmark, ...]:
        """Return benchmarks with their earlier launches."""
        return tuple(replace(one, prior=self.pairs_for(one)) for one in compared)


def earlier_rows(ledger: Ledger, pair: SidePair, *, source: Source = "gate") -> list[Row]:
    """Return the rows of the gates that were made of a pair of commits, in the order of recording.

    Those of environments are another ``source``.
    """
    commits = {(side, pair.side(side).commit.sha) for side in SIDES}
    runs: dict[str, list[Row]] = {}
    for row in ledger.rows_on({sha for _, sha in commits}):
        if row.source == source:
            runs.setdefault(row.run_id, []).append(row)
    of_pair = (rows for rows in runs.values() if {_side(row) for row in rows} == commits)
    return [row for rows in of_pair for row in rows]


def continued_seed(seed: int, earlier: Sequence[Row]) -> int:
    """Return the seed of a gate that comes after others on its pair; it is ``seed`` itself after none.

    With the same seed, a gate that continues another's test would draw the same hash seeds and orders again,
    so that its launches would have the same bias.
    """
    runs = dict.fromkeys(row.run_id for row in earlier)
    if not runs:
        return seed
    digest = hashlib.sha256(repr((seed, *runs)).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def find_prior(rows: Sequence[Row], context: RunContext) -> Prior:
    """Return the gates of the same pair under the same rules, on the same machine and environment.

    A side with uncommitted changes or without a commit may have held other code then, so its gates are never
    continued.
    """
    runs: dict[str, list[Row]] = {}
    if any(commit.dirty for commit in context.commits.values()):
        return Prior()
    for row in rows:
        if row.source == context.source and _fits(row, context):
            runs.setdefault(row.run_id, []).append(row)
    pair = {(side, commit.sha) for side, commit in context.commits.items()}
    return Prior(runs={run: found for run, found in runs.items() if {_side(row) for row in found} == pair})


def _fits(row: Row, context: RunContext) -> bool:
    return (
        row.outcome.metric in (WALL_TIME, TYPICAL_TIME)
        and bool(row.outcome.values)
        and not row.commit.dirty
        and row.machine.machine_id == context.machine.machine_id
        and row.environment.env_id == context.environment_of(row.placement.side).env_id
        and isinstance(row.policy, JudgedPolicy)
        and row.policy.rules.tests_like(context.policy)
    )


def _side(row: Row) -> tuple[str | None, str]:
    return row.placement.side, row.commit.sha
