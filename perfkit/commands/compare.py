"""``perfkit compare``: two commits by the runs that the ledger has, without measuring anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RepositoryError
from perfkit.gating.counter_verdicts import CounterPolicy, compare_counts
from perfkit.gating.judge import compare_unpaired
from perfkit.gating.rules import Rules, finding_on, under_rules
from perfkit.identity import shown_run_id
from perfkit.invocation import follow_up
from perfkit.ledger.store import Ledger
from perfkit.model import OF_CHANGED_CODE, WALL_TIME, Benchmark, Commit, Row
from perfkit.model.comparisons import ApartReport, Comparison, ExactComparison, Policy, exit_code
from perfkit.model.counters import counts_of, is_count
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.git import reading_only
from perfkit.units import counted

_SHA_DIGITS = 10
_SAME = "a gate found that it runs the same code on both sides"
_REPORTED = ("error", "timeout", "oom")
Place = tuple[str, str]
# Training steps that a profile counted have names that begin with this.
_PROFILED = "profile:"
_Software = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class _Times:
    """Times of two commits by benchmark on one machine; ``here`` are all of that machine, for its noise."""

    here: Sequence[Row] = ()
    base: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    head: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The benchmarks that either commit has times of."""
        return tuple(dict.fromkeys([*self.base, *self.head]))


@reading_only()
def run_compare(
    base_ref: str, head_ref: str, *, margin: float | None, alpha: float | None, ledger: Path, project: Project
) -> ApartReport:
    """Judge every benchmark that the ledger has of both commits."""
    repository = open_repository(project.root)
    base, head = (resolve(repository, ref) for ref in (base_ref, head_ref))
    if base.sha == head.sha:
        raise RepositoryError(f"base and head are one commit, {base.sha[:_SHA_DIGITS]}; name two")
    kept = Ledger(ledger).rows_beside({base.sha, head.sha})
    rules = Rules.of(project.config, margin=margin)
    exact = _counter_comparisons(kept, base, head, project=project, rules=rules)
    same = _same_code(kept, base, head)
    times = _Times()
    if not _is_all_same(same, kept):
        times = _times(kept, base, head, ledger=ledger, needed=not exact)
    policy = _policy(times, rules, alpha=alpha or project.config.gate.alpha)
    comparisons = (
        *(_compare(name, times, rules, policy) for name in times.names if name not in same),
        *(finding_on(under_rules(one, rules), "SAME CODE", _SAME) for one in same.values()),
    )
    here = times.here or kept
    sample = next(row for sha in (head.sha, base.sha) for row in here if row.commit.sha == sha)
    return ApartReport(
        base=base,
        head=head,
        machine=sample.machine,
        environment=sample.environment,
        policy=policy,
        comparisons=comparisons,
        exit_code=exit_code((*comparisons, *exact)),
        exact=exact,
        notes=(*_gates_of(kept, base, head), *times.notes),
    )


def _same_code(kept: Iterable[Row], base: Commit, head: Commit) -> Mapping[str, Benchmark]:
    """Return the benchmarks that run the same code at both commits, as a gate found."""
    both = {base.sha, head.sha}
    return {
        row.outcome.benchmark.name: row.outcome.benchmark
        for row in kept
        if not row.commit.dirty and {row.commit.sha, row.outcome.same_as} == both
    }


def _is_all_same(same: Collection[str], kept: Iterable[Row]) -> bool:
    """Return whether there is a benchmark, and none but those that run the same code."""
    names = {
        row.outcome.benchmark.name for row in kept if row.outcome.metric == WALL_TIME and not row.commit.dirty
    }
    return bool(same) and names <= set(same)


def _gates_of(kept: Iterable[Row], base: Commit, head: Commit) -> Iterator[str]:
    """Yield a note on the newest gate that interleaved both."""
    runs: dict[str, set[tuple[str | None, str]]] = {}
    for row in kept:
        if row.source == "gate" and not row.commit.dirty:
            runs.setdefault(row.run_id, set()).add((row.placement.side, row.commit.sha))
    both = [run for run, sides in runs.items() if sides == {("base", base.sha), ("head", head.sha)}]
    if both:
        yield f"a gate interleaved both: `{follow_up(f'perfkit ledger judge {shown_run_id(both[-1])}')}`"


def _times(kept: Iterable[Row], base: Commit, head: Commit, *, ledger: Path, needed: bool) -> _Times:
    """Return the times, or, where none can be compared and none are ``needed``, the reason."""
    rows = [row for row in kept if row.outcome.metric == WALL_TIME and row.source not in OF_CHANGED_CODE]
    clean = [row for row in rows if not row.commit.dirty]
    try:
        place = _common_place(clean, base, head, ledger)
    except NotMeasuredError as error:
        if needed:
            raise
        return _Times(notes=(f"no times: {error}", *_left_out(rows, (), (base, head))))
    here = [row for row in clean if _place(row) == place]
    return _Times(
        here=here,
        base=_by_name(here, base),
        head=_by_name(here, head),
        notes=tuple(_left_out(rows, here, (base, head))),
    )


def _policy(times: _Times, rules: Rules, *, alpha: float) -> Policy:
    """Return a policy that shares alpha among the gating benchmarks of both commits, or among all."""
    gating = [name for name in times.names if under_rules(Benchmark(name=name, version=""), rules).gating]
    both = [name for name in gating or times.names if name in times.base and name in times.head]
    return Policy(alpha=alpha, family=max(len(both), 1), looks=(1,), one_sided=True)


def _place(row: Row) -> Place:
    return row.machine.machine_id, row.environment.env_id


def _common_place(rows: Sequence[Row], base: Commit, head: Commit, ledger: Path) -> Place:
    """Return the machine and environment that have most runs of whichever commit has fewer."""
    runs: dict[str, dict[Place, set[str]]] = {base.sha: {}, head.sha: {}}
    for row in rows:
        if row.commit.sha in runs and row.outcome.values:
            runs[row.commit.sha].setdefault(_place(row), set()).add(row.run_id)
    for commit in (base, head):
        if not runs[commit.sha]:
            raise NotMeasuredError(
                f'{ledger} has no times of {_short(commit)} "{commit.subject}";'
                f" measure both: `perfkit backfill {_short(base)} {_short(head)}`"
            )
    common = runs[base.sha].keys() & runs[head.sha].keys()
    if not common:
        machines = [{machine for machine, _ in runs[commit.sha]} for commit in (base, head)]
        what = "machine" if machines[0].isdisjoint(machines[1]) else "environment"
        raise NotMeasuredError(
            f"base and head were not measured on one {what}, and times of two cannot be compared;"
            f" measure both here: `perfkit backfill {_short(base)} {_short(head)}`"
        )
    return max(sorted(common), key=lambda place: min(len(found[place]) for found in runs.values()))


def _by_name(rows: Iterable[Row], commit: Commit) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.commit.sha == commit.sha:
            found.setdefault(row.outcome.benchmark.name, []).append(row)
    return found


def _compare(name: str, times: _Times, rules: Rules, policy: Policy) -> Comparison:
    base, head = times.base.get(name, ()), times.head.get(name, ())
    ruled = under_rules((head or base)[-1].outcome.benchmark, rules)
    base_timed, head_timed = ([row for row in rows if row.outcome.values] for rows in (base, head))
    if not head_timed:
        failed = [row for row in head if row.outcome.status in _REPORTED]
        if failed:
            return finding_on(ruled, "FAILED", f"on head: {failed[-1].outcome.message}")
        return finding_on(ruled, "MISSING", "the ledger has times of base, none of head")
    if not base_timed:
        return finding_on(ruled, "NEW", "the ledger has times of head, none of base")
    known = {row.outcome.benchmark.version for row in base_timed}
    common = [row.outcome.benchmark for row in head_timed if row.outcome.benchmark.version in known]
    if not common:
        return finding_on(
            ruled, "CHANGED", "its own source differs: times of two versions cannot be compared"
        )
    version = common[-1].version
    return compare_unpaired(
        common[-1],
        base=[row for row in base_timed if row.outcome.benchmark.version == version],
        head=[row for row in head_timed if row.outcome.benchmark.version == version],
        history=[
            row
            for row in times.here
            if row.outcome.values
            and row.outcome.benchmark.name == name
            and row.outcome.benchmark.version == version
        ],
        policy=policy,
        margin=ruled.margin,
        gating=ruled.gating,
    )


def _left_out(rows: Sequence[Row], here: Sequence[Row], commits: Sequence[Commit]) -> Iterator[str]:
    shas = {commit.sha for commit in commits}
    dirty = {row.run_id for row in rows if row.commit.sha in shas and row.commit.dirty}
    if dirty:
        yield f"left out, measured with uncommitted changes: {counted(len(dirty), 'run')}"
    used = {row.run_id for row in here}
    others = {row.run_id for row in rows if row.commit.sha in shas and not row.commit.dirty} - used
    if others:
        runs = counted(len(others), "run")
        yield f"left out, measured on another machine or in another environment: {runs}"


def _short(commit: Commit) -> str:
    return commit.sha[:_SHA_DIGITS]


def _counter_comparisons(
    rows: Iterable[Row], base: Commit, head: Commit, *, project: Project, rules: Rules
) -> tuple[ExactComparison, ...]:
    """Return a comparison for each count that the ledger has of both commits, from the newest run of each."""
    counted = [row for row in rows if is_count(row) and not row.commit.dirty]
    exact = project.config.exact
    policy = CounterPolicy(gating=exact.gate, tolerance=exact.tolerance_share)
    olds, news = (_newest([row for row in counted if row.commit.sha == side.sha]) for side in (base, head))
    # If head was counted with several kinds of software, the latest one is taken.
    both = {
        key[0]: key
        for key in news
        if key in olds and olds[key][-1].outcome.benchmark.version == news[key][-1].outcome.benchmark.version
    }
    return tuple(
        one
        for name, key in both.items()
        for one in compare_counts(
            news[key][-1].outcome.benchmark,
            counts_of(olds[key]),
            counts_of(news[key]),
            policy,
            training=name.startswith(_PROFILED) or name in project.config.targets,
            gating=under_rules(news[key][-1].outcome.benchmark, rules).gating,
        )
    )


def _newest(rows: Sequence[Row]) -> Mapping[tuple[str, _Software], list[Row]]:
    """Return the rows of each benchmark under each software, those of its newest run; the newest last."""
    found: dict[tuple[str, _Software], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.recorded_at):
        facts = row.environment.facts
        key = row.outcome.benchmark.name, (facts.get("python", ""), facts.get("torch", ""))
        known = found.pop(key, [])
        found[key] = [*(known if known and known[-1].run_id == row.run_id else []), row]
    return found
