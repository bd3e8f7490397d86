"""The counts that a ledger has of two commits: alike on any machine with the same Python and torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perfkit.config import Project
from perfkit.gating.counter_verdicts import CounterPolicy, compare_counts
from perfkit.gating.rules import Rules, under_rules
from perfkit.model import Commit, Row
from perfkit.model.comparisons import ExactComparison
from perfkit.model.counters import counts_of, is_count

# Training steps that a profile counted have names that begin with this.
_PROFILED = "profile:"
_Software = tuple[str, str]


def compare_counted(
    rows: Iterable[Row], base: Commit, head: Commit, *, project: Project, rules: Rules
) -> tuple[ExactComparison, ...]:
    """Return a comparison for each count that the ledger has of both commits, from the newest run of each."""
    counted = [row for row in rows if is_count(row) and not row.commit.dirty]
    exact = project.config.exact
    policy = CounterPolicy(gating=exact.gate, tolerance=exact.tolerance_share)
    olds, news = (_newest([row for row in counted if row.commit.sha == side.sha]) for side in (base, head))
    # If head was counted with several kinds of software, the latest one is taken.
    both = {key[0]: key for key in news if key in olds and _version(olds[key]) == _version(news[key])}
    return tuple(
        one
        for name, key in both.items()
        for one in compare_counts(
            news[key][-1].outcome.benchmark,
            counts_of(olds[key]),
            counts_of(news[key]),
            policy,
            training=_is_training(name, project),
            gating=under_rules(news[key][-1].outcome.benchmark, rules).gating,
        )
    )


def _newest(rows: Sequence[Row]) -> Mapping[tuple[str, _Software], list[Row]]:
    found: dict[tuple[str, _Software], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.recorded_at):
        key = row.outcome.benchmark.name, _software(row)
        known = found.pop(key, [])
        found[key] = [*(known if known and known[-1].run_id == row.run_id else []), row]
    return found


def _software(row: Row) -> _Software:
    facts = row.environment.facts
    return facts.get("python", ""), facts.get("torch", "")


def _version(rows: Sequence[Row]) -> str:
    return rows[-1].outcome.benchmark.version


def _is_training(name: str, project: Project) -> bool:
    return name.startswith(_PROFILED) or name in project.config.targets
