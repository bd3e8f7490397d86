"""``perfkit history``: trends over many commits, their change points and alarms, and reviews of these."""

from __future__ import annotations

import difflib
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import (
    EXIT_NOT_MEASURED,
    EXIT_PASS,
    EXIT_REGRESSED,
    NotMeasuredError,
    RepositoryError,
    UsageError,
)
from perfkit.identity import shown_run_id, utc_now
from perfkit.invocation import follow_up
from perfkit.ledger.annotations import KeptState, keep_state, read_states
from perfkit.ledger.history.alarms import find_drifts, find_gate_drifts, find_rises, find_silences
from perfkit.ledger.history.change_points import (
    find_change_points,
    machine_moved,
    noise_of,
    shifts_of,
    without_machine,
)
from perfkit.ledger.history.trends import Facts, Order, arrange, chained, on_branch, places_by_run
from perfkit.ledger.queries import Meant, one_connection
from perfkit.ledger.store import Ledger, Trends, Wanted
from perfkit.model import Benchmark
from perfkit.model.comparisons import is_placeholder
from perfkit.model.counters import COUNTS
from perfkit.model.history import (
    ChangePoint,
    CommitFacts,
    Creep,
    GateRatio,
    HistoryReport,
    Kind,
    Origin,
    SameCode,
    State,
    Trend,
)
from perfkit.model.results import WALL_TIME
from perfkit.repo.commits import (
    KnownCommits,
    commits_after,
    commits_of,
    open_repository,
    releases,
)
from perfkit.repo.git import author_name, is_shallow, reading_only
from perfkit.repo.sides import default_base
from perfkit.repo.source import marked_benchmarks
from perfkit.report.history import short_sha
from perfkit.stats.change_points import SHORTEST
from perfkit.units import counted

# A change of these alone makes no code slower.
_TEXTS = (".md", ".rst", ".txt")
_FIRST_METRICS = (WALL_TIME.name, *COUNTS)
_FEWEST_DIGITS = 4
_MOST_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class HistoryRequest:
    """Which history is asked for: of benchmarks or all, since a time, on a branch, of one metric."""

    benchmarks: tuple[str, ...] = ()
    since: datetime | None = None
    branch: str | None = None
    metric: str = "time"


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A person's review of a change point or a silent benchmark, and the file that keeps it."""

    state: KeptState
    file: Path


class Histories:
    """The histories that a ledger holds, one for each request; what they have in common is read once."""

    def __init__(self, project: Project, place: Path) -> None:
        self.project, self.place, self.ledger = project, place, Ledger(place)
        self.commits = KnownCommits(project.root)
        self.commits_between = functools.cache(self.commits.between)
        self._changes: dict[tuple[str, str], bool] = {}
        self.verdicts_of_gate = functools.cache(self.ledger.verdicts_of_gate)

    @functools.cached_property
    def base(self) -> str | None:
        """The commit that a gate would compare with now, None where there is none."""
        try:
            return default_base(self.project.root, ignored=self.project.output_paths)
        except RepositoryError:
            return None

    @functools.cached_property
    def tags(self) -> Mapping[str, str]:
        """The commits of releases by their names, oldest first."""
        return releases(self.project.root)

    @functools.cached_property
    def same_code(self) -> Mapping[tuple[Kind, str, str], datetime]:
        """The pairs of commits that run the same code for a benchmark, and when that was found."""
        return self.ledger.same_code()

    @functools.cached_property
    def states(self) -> Mapping[str, KeptState]:
        """The reviews of change points and benchmarks."""
        return read_states(self.place)

    @functools.cached_property
    def is_sentinel(self) -> Callable[[str], bool]:
        """Whether a benchmark shows the machine's speed alone."""
        return _sentinels(self.project)

    @functools.cached_property
    def own(self) -> frozenset[str]:
        """The commits that HEAD has."""
        try:
            return commits_of(self.project.root, "HEAD")
        except RepositoryError:
            return frozenset()

    def changes_code(self, pairs: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return the pairs of commits between which code differs, or git does not know."""
        found = self.commits.changed_files({*pairs}.difference(self._changes))
        self._changes |= {pair: _has_code(self.project, files) for pair, files in found.items()}
        return frozenset(pair for pair in pairs if self._changes[pair])

    @reading_only()
    @one_connection()
    def read(self, request: HistoryRequest) -> HistoryReport:
        """Return the history of a request."""
        project, kept, states, pairs = self.project, self.ledger, self.states, self.same_code
        # All benchmarks are read for one, too: the common factor of a run needs the others.
        found = kept.trends(Wanted(metric=request.metric, since=request.since))
        same = SameCode.of((kind._replace(overlay=None), one, other) for kind, one, other in pairs)
        also = {sha for _, *both in pairs for sha in both}
        commits = facts_of_commits(self.commits, found, also=also)
        order = Order.of(commits.values())
        arranged = [_with_same_code(trend, same, order) for trend in arrange(found.trends, order)]
        if request.branch is not None:
            wanted = commits_of(project.root, request.branch)
            arranged = [trend for one in arranged if len(trend := on_branch(one, wanted.__contains__))]
        meant = Meant(request.benchmarks)
        if not any(meant.matches(trend.benchmark) for trend in arranged):
            raise NotMeasuredError(_nothing_found(kept, request, self.place))
        gates = [trend for trend in arranged if trend.lockstep]
        trends = [chained(trend) if trend.lockstep else trend for trend in arranged]
        facts = _facts(self, found, gates, order, same=SameCode.of(pairs))
        common = without_machine(trends, order, facts.is_sentinel)

        def is_needed(benchmark: str) -> bool:
            return meant.matches(benchmark) or facts.is_sentinel(benchmark)

        drafts = find_change_points(trends, common, facts, is_needed)
        points = [_with_state(point, states) for point in drafts]
        inside = {sha for one in points if one.acquitted for sha in _inside(one, facts)}
        commits |= self.commits.facts(inside)
        points = [_with_suspects(point, facts, Order.of(commits.values())) for point in points]
        released = max((order.place(sha) for sha in self.tags.values() if sha in order.places), default=-1.0)
        drifts = (
            *find_gate_drifts(gates, facts, since=released),
            *find_drifts(trends, points, common, facts, is_needed),
        )
        silences = find_silences(
            trends,
            now=utc_now(),
            most_days=round(project.config.history.silent_days),
            places={sha: place for sha, place in order.places.items() if commits[sha].place is not None},
            same=pairs,
        )
        whole = HistoryReport(
            trends=tuple(trends),
            points=tuple(points),
            shifts=tuple(shifts_of(common, trends, points, facts)),
            creeps=drifts,
            rises=tuple(find_rises(trends, points, drifts, common, facts, meant.matches)),
            silences=tuple(
                one
                for one in silences
                if one.benchmark not in states and not (one.stopped and one.machine_id in states)
            ),
            commits=commits,
            machines=found.machines,
            environments={name: one.facts for name, one in found.environments.items()},
            noise=_noise(trends, points, drifts),
            dirty_runs=len(found.dirty_runs),
            notes=(
                *self._notes_on_gate(gates, found.files),
                *_notes(self.project.root, commits.values(), len(found.dirty_runs)),
            ),
        )
        return _only(whole, meant) if request.benchmarks else whole

    def _notes_on_gate(self, gates: Sequence[Trend], files: Mapping[str, str]) -> Iterator[str]:
        """Yield what the newest gate found to be slower: a history needs many runs to find it itself."""
        times = {
            (at, run): one for one in gates for at, run in zip(one.recorded_at, one.run_ids, strict=True)
        }
        if not times:
            return
        (_, run) = newest = max(times)
        verdicts = self.verdicts_of_gate(run, files[run])
        if "REGRESSED" not in verdicts.values():
            return
        # Imported late: it takes as long as all else, and few gates find something slower.
        from perfkit.gating.rows import recompute_gate

        judged = recompute_gate(run, ledger=self.place, project=self.project).comparisons
        slower = sum(one.verdict == "REGRESSED" and one.accepted is None for one in judged)
        if slower:
            trend = times[newest]
            base, *_, head = (trend.commits[place] for place in places_by_run(trend)[run])
            found = f"{slower} of {counted(len(verdicts), 'benchmark')} slower"
            command = follow_up(f"perfkit ledger judge {shown_run_id(run)}")
            yield f"the newest gate, {short_sha(base)}..{short_sha(head)}, found {found}: `{command}`"


def read_history(project: Project, ledger: Path, request: HistoryRequest | None = None) -> HistoryReport:
    """Return the history that a ledger holds."""
    return Histories(project, ledger).read(request or HistoryRequest())


def _only(report: HistoryReport, meant: Meant) -> HistoryReport:
    """Return the part of a history that is about some benchmarks."""
    trends = tuple(one for one in report.trends if meant.matches(one.benchmark))
    points = tuple(one for one in report.points if meant.matches(one.benchmark))
    commits = {sha for trend in trends for sha in (*trend.commits, *trend.same_code)}
    commits |= {sha for point in points for sha in (*point.suspects, *point.acquitted)}
    machines = {trend.machine_id for trend in trends}
    return replace(
        report,
        trends=trends,
        points=points,
        shifts=tuple(one for one in report.shifts if any(point.shift == one.shift_id for point in points)),
        creeps=tuple(one for one in report.creeps if meant.matches(one.benchmark)),
        silences=tuple(
            one
            for one in report.silences
            if meant.matches(one.benchmark) or (one.stopped and one.machine_id in machines)
        ),
        commits={sha: facts for sha, facts in report.commits.items() if sha in commits},
        noise={
            machine: {name: share for name, share in shares.items() if meant.matches(name)}
            for machine, shares in report.noise.items()
        },
    )


def facts_of_commits(
    known: KnownCommits, found: Trends, *, also: Collection[str] = ()
) -> dict[str, CommitFacts]:
    """Return the facts of measured commits, from the ledger where git lacks them, and others that git has."""
    measured = set[str]().union(*(trend.commits for trend in found.trends))
    by_git = known.facts(measured.union(also))
    return by_git | {
        sha: by_git.get(sha) or CommitFacts(sha=sha, subject=known.subject, time=known.time)
        for sha, known in sorted(found.commits.items())
        if sha in measured
    }


def _kind(trend: Trend, env_id: str) -> Kind:
    return Kind(trend.benchmark, trend.version, trend.machine_id, env_id)


def _with_same_code(trend: Trend, same: SameCode, order: Order) -> Trend:
    """Return a trend with the commits that run the same code as its own."""
    if not same.groups:
        return trend
    found: dict[str, str] = {}
    repeated: dict[str, str] = {}
    for env_id in dict.fromkeys(trend.env_ids):
        kind = _kind(trend, env_id)
        own = {sha: env for sha, env in zip(trend.commits, trend.env_ids, strict=True) if env == env_id}
        for sha, group in same.groups.get(kind, {}).items():
            if sha not in trend.commits and group.intersection(own):
                found[sha] = same.nearest(kind, sha, own, order.place) or ""
        pairs = itertools.pairwise(own) if kind in same.groups else ()
        repeated |= {sha: before for before, sha in pairs if before in same.group(kind, sha)}
    return replace(trend, same_code=found, repeated=repeated)


def _inside(point: ChangePoint, facts: Facts) -> frozenset[str]:
    return facts.commits_of(point.last_before, point.first_after) or frozenset()


def _with_suspects(point: ChangePoint, facts: Facts, order: Order) -> ChangePoint:
    """Return a change point with the commits that may have made it, where others are acquitted."""
    if not point.acquitted:
        return point
    suspects = _inside(point, facts).difference(point.acquitted)
    return replace(
        point,
        suspects=tuple(sorted(suspects, key=order.place)),
        acquitted=tuple(sorted(point.acquitted, key=order.place)),
    )


def _facts(
    histories: Histories, found: Trends, gates: Sequence[Trend], order: Order, *, same: SameCode
) -> Facts:
    project, ledger, root = histories.project, histories.ledger, histories.project.root
    origins: dict[Origin, str] = {
        "release": next(reversed(list(histories.tags.values())), ""),
        "base": histories.base or "",
    }

    @functools.cache
    def commits_after_first(first: str, last: str) -> frozenset[str] | None:
        return commits_after(root, first, last) if last in histories.own else None

    def acquitted(trend: Trend, place: int) -> frozenset[str]:
        (first, last), env_ids = (
            trend.commits[place - 1 : place + 1],
            set(trend.env_ids[place - 1 : place + 1]),
        )
        if len(env_ids) > 1 or not same.groups:
            return frozenset()
        near = trend.run_ids[max(place - SHORTEST, 0) : place + SHORTEST]
        overlays = set(ledger.overlays_of_runs({run: found.files[run] for run in near}).values())
        if len(overlays) > 1:
            return frozenset()
        kind = _kind(trend, env_ids.pop())._replace(overlay=overlays.pop())
        return same.acquitted(kind, first, last, commits_after_first, order.place)

    def margin_of(benchmark: str) -> float:
        # Imported late: few histories drift, and it takes as long to import as all else.
        from perfkit.gating.rules import Rules, under_rules

        rules = Rules.of(project.config, margin=None)
        return under_rules(Benchmark(name=benchmark, version=""), rules).margin

    has_own = any(histories.is_sentinel(trend.benchmark) for trend in found.trends)

    @functools.cache
    def moved(before: tuple[str, ...], after: tuple[str, ...], ratio: float) -> bool | None:
        runs = () if has_own else tuple(run for run in (*before, *after) if run in found.files)
        known = ledger.facts_of_runs({run: found.files[run] for run in runs}) if runs else {}
        # Commits that took turns in one run were measured on the machine as it was then.
        distinct = (dict.fromkeys(side) for side in (before, after))
        sides = [[known[run][0].facts for run in side if run in known] for side in distinct]
        return machine_moved(sides[0], sides[1], ratio)

    return Facts(
        order=order,
        facts_of=lambda runs: ledger.facts_of_runs({run: found.files[run] for run in runs}),
        commits_between=histories.commits_between,
        commits_of=commits_after_first,
        changes_code=histories.changes_code,
        gate_between=functools.partial(_gate_between, ledger, gates, order),
        is_sentinel=histories.is_sentinel,
        margin_of=margin_of,
        origins={origin: sha for origin, sha in origins.items() if sha in order.places},
        accepted=histories.states,
        acquitted=acquitted,
        machine_moved=moved,
    )


def _has_code(project: Project, files: Iterable[str] | None) -> bool:
    """Return whether any file is more than a text or perfkit's own output; git may not know the files."""
    root = project.root
    outputs = [
        place.relative_to(root).as_posix() for place in project.output_paths if place.is_relative_to(root)
    ]
    return files is None or any(
        not file.endswith(_TEXTS)
        and not any(file == place or file.startswith(f"{place}/") for place in outputs)
        for file in files
    )


def _gate_between(
    ledger: Ledger, gates: Sequence[Trend], order: Order, trend: Trend, begin: float, end: float
) -> GateRatio | None:
    """Return the result of the gate that spans a range of commits most closely, the narrowest of several."""
    around = []
    for other in gates:
        if (other.benchmark, other.version, other.machine_id) != (
            trend.benchmark,
            trend.version,
            trend.machine_id,
        ):
            continue
        for run_id, places in places_by_run(other).items():
            base, head = other.commits[places[0]], other.commits[places[-1]]
            first, last = order.place(base), order.place(head)
            if len(places) > 1 and first <= begin and end <= last:
                around.append((last - first, run_id, base, head))
    if not around:
        return None
    # Imported late: it takes as long as all else, and few change points have gates around them.
    from perfkit.gating.rows import gate_ratio

    for _, near in itertools.groupby(sorted(around), key=itemgetter(0)):
        ratios = [gate_ratio(ledger.times_of, run_id, trend.benchmark, *both) for _, run_id, *both in near]
        known = [ratio for ratio in ratios if ratio is not None]
        if known:
            return min(known, key=lambda ratio: ratio.high / max(ratio.low, 1e-9))
    return None


def _sentinels(project: Project) -> Callable[[str], bool]:
    patterns = [rule.match for rule in project.config.rules if rule.sentinel]
    files = project.path(project.config.benchmarks).rglob("*.py")
    marked = marked_benchmarks(sorted(files), project.root, "sentinel")
    return lambda name: (
        name.partition("[")[0] in marked or any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _noise(
    trends: Iterable[Trend], points: Iterable[ChangePoint], drifts: Iterable[Creep]
) -> dict[str, dict[str, float]]:
    """Return the relative sd of runs of the same code, by machine and benchmark; of gates without runs."""
    shares: dict[str, dict[str, float]] = {}
    drifting = {(one.benchmark, one.machine_id) for one in drifts}
    steps: dict[tuple[str, str, str], list[ChangePoint]] = {}
    for point in points:
        steps.setdefault((point.benchmark, point.version, point.machine_id), []).append(point)
    for trend in sorted(trends, key=lambda one: not one.lockstep):
        found = noise_of(
            trend,
            steps.get((trend.benchmark, trend.version, trend.machine_id), ()),
            drifts=(trend.benchmark, trend.machine_id) in drifting,
        )
        if found is not None:
            shares.setdefault(trend.machine_id, {})[trend.benchmark] = found
    return shares


def _with_state(point: ChangePoint, states: Mapping[str, KeptState]) -> ChangePoint:
    kept = states.get(point.point_id) or states.get(point.shift)
    return point if kept is None else replace(point, state=kept.state, reason=kept.reason)


def _notes(root: Path, commits: Collection[CommitFacts], dirty_runs: int) -> Iterator[str]:
    unknown = sum(commit.place is None for commit in commits)
    if unknown and unknown == len(commits):
        yield "git knows none of these commits here, so they stand in the order of their times"
    elif unknown:
        why = "not fetched: `git fetch --unshallow`" if is_shallow(root) else "rewritten, or not fetched"
        one_or_more = f"{counted(unknown, 'commit')} of {len(commits)} {'is' if unknown == 1 else 'are'}"
        yield f"{one_or_more} unknown to this clone ({why}); they stand by their times"
    if dirty_runs:
        yield f"left out, measured with uncommitted changes: {counted(dirty_runs, 'run')}"


def _nothing_found(ledger: Ledger, request: HistoryRequest, place: Path) -> str:
    known = sorted({trend.benchmark for trend in ledger.trends(Wanted(metric=request.metric)).trends})
    if request.benchmarks and known:
        wanted = ", ".join(request.benchmarks)
        return f"{place} has no {request.metric} of {wanted}; {_nearest(request.benchmarks, known)}"
    if known:
        return (
            f"{place} has no {request.metric} of such commits and times; `perfkit history` shows all it has"
        )
    return (
        f"{place} has no {request.metric} of a commit yet; measure with `pytest --benchmark-autosave` or"
        " `perfkit gate`, and run `perfkit history` again"
    )


def _nearest(wanted: Iterable[str], known: Sequence[str]) -> str:
    """Return the names that may have been meant, or some of those that there are, as the end of a message."""
    ends = [name.rpartition("::")[2] for name in known]
    names = list(dict.fromkeys((*(end.partition("[")[0] for end in ends), *ends, *known)))
    close = [one for text in wanted for one in difflib.get_close_matches(text, names, n=2, cutoff=0.6)]
    if close:
        return f"did you mean {' or '.join(dict.fromkeys(close))}?"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"it has {', '.join(known[:_MOST_NAMES])}{more}: `perfkit history` lists them"


def points_beginning(text: str, points: Iterable[ChangePoint]) -> dict[str, ChangePoint]:
    """Return the change points whose ids begin with a text, by id; none where it is too short."""
    if len(text) < _FEWEST_DIGITS:
        return {}
    return {one.point_id: one for one in points if one.point_id.startswith(text)}


def _several(found: Collection[str]) -> str:
    return f"it could mean {', '.join(sorted(found)[:3])}" if found else "`perfkit history` lists them"


def point_named(text: str, *, project: Project, ledger: Path, metrics: Iterable[str]) -> ChangePoint:
    """Return the change point whose id begins with a text, of the first metric that has one."""
    found: set[str] = set()
    histories = Histories(project, ledger)
    asked = len(text) >= _FEWEST_DIGITS and histories.ledger.files()
    for metric in metrics if asked else ():
        try:
            points = histories.read(HistoryRequest(metric=metric)).points
        except NotMeasuredError:
            continue
        meant = points_beginning(text, points)
        if len(meant) == 1:
            return next(iter(meant.values()))
        found |= meant.keys()
    raise UsageError(f'"{text}" names no one change point; {_several(found)}')


def step_ranges(
    project: Project, ledger: Path, request: HistoryRequest, *, places: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Return where a history has steps, each after one of the ``places`` of commits up to another."""
    try:
        points = read_history(project, ledger, request).points
    except NotMeasuredError:
        return []
    ranges = [(places.get(one.last_before), places.get(one.first_after)) for one in points]
    return [(low, high) for low, high in ranges if low is not None and high is not None and low < high]


@reading_only()
def state_point(*, project: Project, ledger: Path, subject: str, state: State, reason: str) -> Stated:
    """Keep a review of a change point, shift, drift or machine (by id), or of a silent benchmark."""
    if not reason.strip() or is_placeholder(reason):
        command = "accept" if state == "accepted" else "ignore"
        raise UsageError(f'this needs a reason; `perfkit history {command} {subject} --reason "why"`')
    points: set[str] = set()
    benchmarks: set[str] = set()
    for report in stepped_histories(project, ledger):
        points |= points_beginning(subject, report.points).keys()
        others = [one.shift_id for one in report.shifts] + [one.creep_id for one in report.creeps]
        others += [one.machine_id for one in report.silences if one.stopped]
        is_short = len(subject) < _FEWEST_DIGITS
        points |= {one for one in others if one == subject or (one.startswith(subject) and not is_short)}
        benchmarks |= {one.benchmark for one in report.trends if one.benchmark.endswith(subject)}
    meant = sorted(points or benchmarks)
    if len(meant) != 1:
        raise UsageError(f'"{subject}" names no one change point or benchmark; {_several(meant)}')
    kept = KeptState(
        subject=meant[0],
        state=state,
        reason=reason.strip(),
        author=author_name(open_repository(project.root)),
        recorded_at=utc_now(),
    )
    return Stated(state=kept, file=keep_state(ledger, kept))


def stepped_histories(project: Project, ledger: Path) -> Iterator[HistoryReport]:
    """Yield the history of each metric that the ledger has, times and counts first."""
    lacks: list[NotMeasuredError] = []
    histories = Histories(project, ledger)
    metrics = dict.fromkeys((*_FIRST_METRICS, *histories.ledger.metrics()))
    for metric in metrics:
        try:
            yield histories.read(HistoryRequest(metric=metric))
        except NotMeasuredError as error:
            lacks.append(error)
    if len(lacks) == len(metrics):
        raise lacks[0]


def history_exit_code(report: HistoryReport) -> int:
    """Return 1 where a loss is open or a benchmark drifts, 4 where one went silent, else 0."""
    drifted = any(one.cause == "code" for one in report.creeps)
    if drifted or any(one.worse and one.is_open for one in report.points):
        return EXIT_REGRESSED
    return EXIT_NOT_MEASURED if report.silences else EXIT_PASS


def days_ago(text: str) -> datetime:
    """Return the time that "30d", "8w", "1y" or "2026-11-01" names."""
    lengths = {"d": 1, "w": 7, "y": 365}
    number, unit = text[:-1], text[-1:]
    if number.isdigit() and unit in lengths and int(number) * lengths[unit] < 36500:  # noqa: PLR2004 (a century)
        return utc_now() - timedelta(days=int(number) * lengths[unit])
    try:
        return datetime.fromisoformat(f"{text}T00:00:00+00:00")
    except ValueError:
        raise UsageError(f'--since must read "30d", "8w", "1y" or "2026-11-01", found "{text}"') from None
