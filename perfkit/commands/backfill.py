"""``perfkit backfill``: measure commits, each in fresh processes, and file their launches.

Commits that are named one by one are measured in alternation, as one run. Of ranges each commit is a task of
an engine, and a run of its own: what the ledger has already is passed over, and a stopped command goes on.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perfkit.commands.commit_launches import Collected, LaunchTerms
from perfkit.commands.history import points_beginning, stepped_histories
from perfkit.commands.tasks import (
    HERE,
    Code,
    EngineChoice,
    MachineClass,
    Task,
    file_once,
    needed_code,
    open_engine,
    run_of,
    unpack,
)
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RepositoryError, RunInterruptedError, UsageError
from perfkit.gating.sides import check_selection
from perfkit.identity import new_run_id, utc_now
from perfkit.ledger.history.trends import Gaps, Levels
from perfkit.ledger.store import Ledger, Trends, Wanted
from perfkit.model import Benchmark, Commit, Row
from perfkit.model.history import ChangePoint, Kind, SameCode
from perfkit.repo.checkout import Generated, lay_out_commit, worktree_folder
from perfkit.repo.commits import (
    COMMIT_VARIABLE,
    all_commits_in,
    commits_in,
    each_nth,
    history_order,
    is_range,
    open_repository,
    resolve,
    tagged_commits,
)
from perfkit.repo.source import benchmark_files, benchmark_versions, commit_of_files
from perfkit.runner.launches import SessionSlot, plan_launches
from perfkit.runner.lock import measuring
from perfkit.stats.change_points import SHORTEST
from perfkit.units import counted, human_seconds, listed

_SHA_DIGITS = 10


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which commits of the ranges are measured: each n-th, those around a change point, those with a tag."""

    every: int | None = None
    around: str | None = None
    tags: bool = False
    own_benchmarks: bool = False
    again: bool = False
    engine: EngineChoice = HERE


@dataclass(frozen=True, kw_only=True)
class BackfillRequest:
    """What to measure: commits or ranges, how many launches of each, and which benchmarks."""

    commits: tuple[str, ...]
    launches: int
    benchmarks: str
    select: str | None
    ledger: Path
    seed: int
    wait_s: float | None = None
    choice: Choice = Choice()

    @property
    def by_tasks(self) -> bool:
        """Whether each commit is a task of an engine, and not all of them one run in alternation."""
        return self.choice != Choice() or any(map(is_range, self.commits))


@dataclass(frozen=True, kw_only=True)
class BackfillResult:
    """What was filed: the run, its file, its rows, and a line for each launch or benchmark that failed.

    ``waited_s`` is how long another perfkit kept it waiting, in seconds.
    """

    run_id: str
    file: Path
    rows: int
    failures: tuple[str, ...]
    waited_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RangeResult:
    """What became of the commits of ranges, on ``machines`` classes of machines.

    ``commits`` were asked for. ``known`` tasks were in the ledger before, ``measured`` ones were filed now,
    with ``rows`` rows; ``same`` of these run the same code as measured ones, so that nothing was timed.
    ``failures`` are lines on what could not be measured, now or when it was filed.
    """

    ledger: Path
    commits: int
    machines: int
    known: int
    measured: int
    rows: int
    failures: tuple[str, ...]
    same: int = 0


def run_backfill(
    request: BackfillRequest,
    *,
    project: Project,
    progress: Callable[[int, int, SessionSlot], None],
    log: Callable[[str], None] = lambda _: None,
) -> BackfillResult:
    """Measure and file the commits in alternation; interrupted, what was measured until then is kept."""
    _check(request, project)
    repository = open_repository(project.root)
    unique = {one.sha: one for one in (resolve(repository, ref) for ref in request.commits)}
    order = history_order(project.root, unique, also=unique)
    shas = sorted(unique, key=order.__getitem__)
    commits = [unique[sha] for sha in shas]
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    slots = plan_launches(shas, request.launches, seed=request.seed)
    terms = LaunchTerms(
        benchmarks=request.benchmarks, select=request.select, limit_s=project.config.backfill.limit
    )
    with measuring(log, wait_s=request.wait_s) as waited_s, worktree_folder([repository]) as folder:
        roots, failed = _laid_out(commits, project, repository, folder, log)
        run = ledger.run(source="backfill", run_id=new_run_id(), recorded_at=utc_now())
        collected = Collected(run, commits=commits, seed=request.seed)
        try:
            with run, collected:
                for slot in slots:
                    if slot.sha in failed and slot.launch == 0:
                        collected.owe(Benchmark(name=request.benchmarks, version=""), slot, failed[slot.sha])
                measured = [slot for slot in slots if slot.sha in roots]
                for number, slot in enumerate(measured, start=1):
                    progress(number, len(measured), slot)
                    collected.measure(slot, roots[slot.sha], terms)
        except KeyboardInterrupt:
            raise RunInterruptedError(f"interrupted; {run.kept}") from None
    if run.file is None:
        raise NotMeasuredError(f"no launch could be run; {collected.failures[0]}")
    return BackfillResult(
        run_id=run.run_id, file=run.file, rows=len(run.rows), failures=collected.failures, waited_s=waited_s
    )


def _laid_out(
    commits: Sequence[Commit], project: Project, top: Path, folder: Path, log: Callable[[str], None]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Lay commits out on paths of equal length; return the project's place in each, and why others failed."""
    prepared = _prepare_commands(project, [commit.sha for commit in commits])
    roots: dict[str, Path] = {}
    failed: dict[str, str] = {}
    for commit in commits:
        root, short = folder / commit.sha[:_SHA_DIGITS], commit.sha[:_SHA_DIGITS]
        generated = dataclasses.replace(Generated.of(project), prepare=prepared.get(commit.sha))
        try:
            for sentence in lay_out_commit(top, commit, root, generated):
                log(f"{short}: {sentence}")
        except (RepositoryError, NotMeasuredError) as error:
            failed[commit.sha] = str(error)
        else:
            roots[commit.sha] = root / project.root.relative_to(top)
    return roots, failed


def run_range_backfill(
    request: BackfillRequest, *, project: Project, log: Callable[[str], None]
) -> RangeResult:
    """Measure the commits of ranges that are not in the ledger yet, each as a run of its own."""
    _check(request, project)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    shas = _chosen_commits(request, project)
    tasks = _Tasks.of(request, project, shas)
    engine_choice = request.choice.engine
    with open_engine(
        engine_choice, project=project, code=tasks.code, commits=shas, wait_s=request.wait_s, log=log
    ) as engine:
        classes = engine.classes()
        plan = BackfillPlan(tasks, classes, ledger=ledger, margin=project.config.margin_share, log=log)
        log(plan.begun)
        try:
            engine.perform(plan)
        except KeyboardInterrupt:
            raise RunInterruptedError(f"interrupted; {plan.kept}: the same command goes on") from None
        except NotMeasuredError as error:
            raise NotMeasuredError(f"{error}; {plan.kept}") from error
    return plan.result()


def _check(request: BackfillRequest, project: Project) -> None:
    if request.launches < 1:
        raise UsageError(f"--launches must be at least 1, found {request.launches}")
    if request.choice.every is not None and request.choice.every < 1:
        raise UsageError(f"--every must be at least 1, found {request.choice.every}")
    if not request.commits and request.choice.around is None:
        raise UsageError("name commits or a range such as v1..HEAD, or a change point with --around")
    if os.environ.get(COMMIT_VARIABLE):
        raise RepositoryError(f"unset {COMMIT_VARIABLE}: the commits to measure come from the repository")
    if request.select is not None:
        check_selection(request.select, project)


def _chosen_commits(request: BackfillRequest, project: Project) -> tuple[str, ...]:
    """Return the commits that are asked for, oldest first."""
    root, choice = project.root, request.choice
    repository = open_repository(root)
    tagged = tagged_commits(root) if choice.tags else None
    ranges = [text for text in request.commits if is_range(text)]
    found = [resolve(repository, text).sha for text in request.commits if not is_range(text)]
    for text in (*ranges, *_around(request, project)):
        inside = commits_in(root, text)
        if tagged is not None:
            inside = tuple(sha for sha in inside if sha in tagged)
        found += each_nth(inside, choice.every or 1)
    if not found:
        where = ", ".join((*request.commits, *filter(None, [choice.around])))
        raise RepositoryError(f"no commit of {where} has a tag; leave out --tags")
    order = history_order(root, set(found), also=set(found))
    return tuple(sorted(set(found), key=order.__getitem__))


def _around(request: BackfillRequest, project: Project) -> Iterator[str]:
    """Yield the range of commits that may have made a step of the ledger's history."""
    point = request.choice.around
    if point is None:
        return
    meant: dict[str, ChangePoint] = {}
    for report in stepped_histories(project, request.ledger):
        meant |= points_beginning(point, report.points)
    if len(meant) != 1:
        raise UsageError(f'--around "{point}" names no one change point; `perfkit history` lists their ids')
    (one,) = meant.values()
    yield f"{one.last_before}..{one.first_after}"


@dataclass(frozen=True, kw_only=True)
class _Tasks:
    """Makes the task of each commit; ``prepared`` maps commits to the command that makes them ready.

    With ``traces`` a commit that runs the same code as enough measured ones is not timed.
    """

    request: BackfillRequest
    shas: tuple[str, ...]
    code: Code
    stamp: datetime
    settings: Mapping[str, str]
    prepared: Mapping[str, str]
    versions: Mapping[str, str]
    traces: bool

    @classmethod
    def of(cls, request: BackfillRequest, project: Project, shas: tuple[str, ...]) -> _Tasks:
        config, choice = project.config, request.choice
        top = open_repository(project.root)
        head = resolve(top, "HEAD")
        files: list[str] = []
        if not choice.own_benchmarks:
            ignored = (*project.output_paths, request.ledger)
            files = benchmark_files(top, project.root, request.benchmarks, ignored=ignored)
        code = needed_code(
            choice.engine,
            project=project,
            head=head.sha,
            overlay=commit_of_files(top, files) if files else None,
            commits=shas,
        )
        settings = {"limit": f"{config.backfill.limit:g}", "copy": "\n".join(config.copy)}
        settings["link"] = "\n".join(config.link)
        now = utc_now()
        if choice.again:
            settings["again"] = now.isoformat()
        versions = {} if request.select else benchmark_versions([top / name for name in files], project.root)
        return cls(
            request=request,
            shas=shas,
            code=code,
            stamp=now if choice.again else (head.time or datetime.fromtimestamp(0, UTC)),
            settings={name: text for name, text in settings.items() if text},
            prepared=_prepare_commands(project, shas),
            versions=versions,
            traces=config.gate.same_code and not choice.again,
        )

    def task(self, sha: str, machine: MachineClass) -> Task:
        prepare = {"prepare": self.prepared[sha]} if sha in self.prepared else {}
        return Task(
            kind="commit",
            commits=(sha,),
            machine=machine,
            code=self.code,
            stamp=self.stamp,
            benchmarks=self.request.benchmarks,
            select=self.request.select,
            launches=self.request.launches,
            seed=self.request.seed,
            settings={**self.settings, **prepare},
        )

    def beside(
        self, task: Task, near: Mapping[int, Levels], measured: _Measured
    ) -> dict[str, dict[str, tuple[str, bool]]]:
        """Return those of some places, by their levels, that a task's commit can be traced beside."""
        if not self.traces:
            return {}
        return {
            sha: {name: (version, measured.enough(name, version, sha)) for name, version in levels}
            for place, levels in near.items()
            if self.prepared.get(sha := self.shas[place]) == task.settings.get("prepare")
        }

    def covers(self, levels: Mapping[tuple[str, str], int]) -> bool:
        """Return whether launches, by benchmark and version, are as many as are wanted of each of today's."""
        enough = {
            (name.partition("[")[0], version)
            for (name, version), launches in levels.items()
            if launches >= self.request.launches
        }
        return bool(self.versions) and enough.issuperset(self.versions.items())


def _prepare_commands(project: Project, shas: Collection[str]) -> dict[str, str]:
    """Return the command that makes each commit ready: of the first range with it, or the general one."""
    config = project.config
    commands = dict.fromkeys(shas, config.prepare) if config.prepare else {}
    for rule in reversed(config.prepare_for):
        inside = all_commits_in(project.root, rule.range)
        commands |= {sha: rule.command for sha in shas if sha in inside}
    return {sha: command for sha, command in commands.items() if command}


class BackfillPlan:
    """The commits of a backfill on each class of machines: what is known, and which comes next."""

    def __init__(
        self,
        tasks: _Tasks,
        classes: Sequence[MachineClass],
        *,
        ledger: Ledger,
        margin: float,
        log: Callable[[str], None],
    ) -> None:
        self._tasks, self._ledger, self._margin, self._log = tasks, ledger, margin, log
        self._wanted = range(len(tasks.shas))
        self._failures: list[str] = []
        self._measured = self._rows = self._unmeasured = self._same = 0
        trends = ledger.trends(Wanted())
        filed = ledger.outcomes_of_runs("backfill")
        self._gaps = {machine: self._gaps_of(machine, trends, filed) for machine in classes}
        self._known = _known_of(classes, ledger, trends, tasks.code.overlay) if tasks.traces else {}
        # The places that came back from workers that were lost.
        self._waiting: dict[MachineClass, list[int]] = {machine: [] for machine in classes}
        self._before = sum(gaps.done for gaps in self._gaps.values())
        self._begun_at = time.monotonic()

    def next(self, machine: MachineClass) -> Task | None:
        """Return the commit of which a history on this class knows least, None where all are given out."""
        if machine not in self._gaps:
            return None
        gaps, waiting = self._gaps[machine], self._waiting[machine]
        place = waiting.pop(0) if waiting else gaps.next()
        if place is None:
            return None
        gaps.finish(place)
        task = self._tasks.task(self._tasks.shas[place], machine)
        known = self._known.get(machine, _Measured())
        return dataclasses.replace(task, beside=self._tasks.beside(task, gaps.beside(place), known))

    def left(self) -> int:
        """Return how many commits have not been given out, on all classes."""
        given_out = sum(gaps.done for gaps in self._gaps.values())
        return self._all - given_out + sum(map(len, self._waiting.values()))

    def done(self, task: Task, content: bytes, *, seconds: float) -> None:
        """File a commit's launches, and learn its levels from them."""
        rows = unpack(task, content)
        place = self._tasks.shas.index(task.commits[0])
        if file_once(self._ledger.path, task, content):
            self._rows += len(rows)
        self._measured += 1
        gaps = self._gaps[task.machine]
        same = {
            (row.outcome.benchmark.name, row.outcome.benchmark.version): row.outcome.same_as
            for row in rows
            if row.outcome.is_untimed and row.outcome.same_as
        }
        if task.machine in self._known:
            self._known[task.machine].learn(rows)
        alike = {key: gaps.levels(self._tasks.shas.index(sha)).get(key) for key, sha in same.items()}
        known = {key: level for key, level in alike.items() if level is not None}
        gaps.learn(place, {**known, **_levels_of(rows)})
        failures = _failures_in(rows, task.commits[0])
        self._failures += failures
        self._same += len(same) == len(rows)
        outcome = f"{len(rows)} rows" if not failures else f"failed: {failures[0].partition(': ')[2]}"
        if same:
            words = f"same code as {listed(sorted({sha[:_SHA_DIGITS] for sha in same.values()}), 2)}"
            some = counted(len(same), "benchmark")
            outcome = words if len(same) == len(rows) else f"{outcome}, {some} {words}"
        self._log(
            f"{self._before + self._measured} of {self._all}: commit {task.commits[0][:_SHA_DIGITS]}"
            f" on {task.machine.machine_id}, {outcome}, {human_seconds(seconds)}{self._time_left()}"
        )

    def failed(self, task: Task, reason: str) -> None:
        """Note that a commit could not be measured for a reason that is not its own."""
        self._unmeasured += 1
        self._failures.append(f"commit {task.commits[0][:_SHA_DIGITS]} was not measured: {reason}")
        self._log(self._failures[-1])

    def give_back(self, task: Task) -> None:
        """Take a commit back, whose turn is next."""
        self._waiting[task.machine].append(self._tasks.shas.index(task.commits[0]))

    @property
    def begun(self) -> str:
        """What is to be done, as a line."""
        classes = len(self._gaps)
        on = f" on {classes} classes of machines" if classes > 1 else ""
        skipped = f", {self._before} of them in the ledger already" if self._before else ""
        return f"{counted(len(self._wanted), 'commit')}{on}{skipped}"

    @property
    def kept(self) -> str:
        """How much is done, as the end of a sentence."""
        return f"{self._before + self._measured} of {self._all} are in {self._ledger.path}"

    def result(self) -> RangeResult:
        """Return what became of all."""
        return RangeResult(
            ledger=self._ledger.path,
            commits=len(self._wanted),
            machines=len(self._gaps),
            known=self._before,
            measured=self._measured,
            rows=self._rows,
            failures=tuple(self._failures),
            same=self._same,
        )

    @property
    def _all(self) -> int:
        return len(self._wanted) * len(self._gaps)

    def _gaps_of(self, machine: MachineClass, trends: Trends, filed: Mapping[str, tuple[int, str]]) -> Gaps:
        places = {sha: place for place, sha in enumerate(self._tasks.shas)}
        launches, levels = _measured_of(machine, trends, places)
        gaps = Gaps(self._wanted, margin=self._margin)
        for place, found in levels.items():
            gaps.learn(place, found)
        for sha, place in places.items():
            outcome = filed.get(run_of(self._tasks.task(sha, machine)))
            if outcome is not None or (
                not self._tasks.request.choice.again and self._tasks.covers(launches.get(place, {}))
            ):
                gaps.finish(place)
            if outcome is not None and not outcome[0]:
                short = sha[:_SHA_DIGITS]
                reason = f"{short} could not be measured before: {outcome[1]} (--again tries it anew)"
                self._failures.append(reason)
        return gaps

    def _time_left(self) -> str:
        """Return about how long the rest takes, from the rate at which tasks were done."""
        left = self._all - self._before - self._measured - self._unmeasured
        if not left:
            return ""
        rate = (time.monotonic() - self._begun_at) / self._measured
        return f"; about {human_seconds(left * rate, digits=2)} left"


@dataclass(frozen=True)
class _Measured:
    """The measured commits of a class of machines, by benchmark and version, and which run the same code."""

    commits: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    same: SameCode = field(default_factory=SameCode)

    def enough(self, name: str, version: str, sha: str) -> bool:
        """Return whether a step before or after the commits that run the code of one would be found."""
        group = self.same.group(Kind(name, version, "", ""), sha)
        return len(group & self.commits.get((name, version), set())) >= SHORTEST

    def learn(self, rows: Sequence[Row]) -> None:
        """Note which commits were measured, and which run the same code."""
        for row in rows:
            one, sha = row.outcome, row.commit.sha
            if one.same_as:
                self.same.join(Kind(one.benchmark.name, one.benchmark.version, "", ""), sha, one.same_as)
        for key in _levels_of(rows):
            self.commits.setdefault(key, set()).update(row.commit.sha for row in rows)


def _known_of(
    classes: Sequence[MachineClass], ledger: Ledger, trends: Trends, overlay: str | None
) -> dict[MachineClass, _Measured]:
    """Return what each class of machines measured and traced with the same benchmark files laid over."""
    known = {machine: _Measured() for machine in classes}
    overlays = ledger.overlays_of_runs(trends.files)

    def of_class(machine_id: str, env_id: str) -> _Measured:
        facts = trends.environments[env_id].facts if env_id in trends.environments else {}
        machine = MachineClass(
            machine_id=machine_id, python=facts.get("python", ""), torch=facts.get("torch", "")
        )
        return known.get(machine, _Measured())

    for trend in trends.trends:
        if trend.lockstep:
            continue
        for run, sha, env_id in zip(trend.run_ids, trend.commits, trend.env_ids, strict=True):
            if overlays.get(run) == overlay:
                commits = of_class(trend.machine_id, env_id).commits
                commits.setdefault((trend.benchmark, trend.version), set()).add(sha)
    for kind, one, other in ledger.same_code():
        if kind.overlay == overlay:
            same = of_class(kind.machine_id, kind.env_id).same
            same.join(Kind(kind.benchmark, kind.version, "", ""), one, other)
    return known


def _measured_of(
    machine: MachineClass, trends: Trends, places: Mapping[str, int]
) -> tuple[dict[int, dict[tuple[str, str], int]], dict[int, Levels]]:
    """Return the launches and the levels that a class of machines has at places, by benchmark and version."""
    launches: dict[int, dict[tuple[str, str], int]] = {}
    levels: dict[int, dict[tuple[str, str], float]] = {}
    for trend in trends.trends:
        if trend.machine_id != machine.machine_id or trend.lockstep:
            continue
        key = (trend.benchmark, trend.version)
        for run in range(len(trend)):
            place = places.get(trend.commits[run])
            facts = trends.environments[trend.env_ids[run]].facts
            if place is None or (facts.get("python"), facts.get("torch")) != (machine.python, machine.torch):
                continue
            of_commit = launches.setdefault(place, {})
            of_commit[key] = of_commit.get(key, 0) + trend.launches[run]
            levels.setdefault(place, {})[key] = trend.levels[run]
    return launches, dict(levels)


def _levels_of(rows: Sequence[Row]) -> Levels:
    """Return the quickest round of each benchmark's launches: other work on the machine only slows."""
    keyed = sorted(
        ((row.outcome.benchmark.name, row.outcome.benchmark.version), min(row.outcome.values))
        for row in rows
        if row.outcome.status == "ok" and row.outcome.metric.name == "time" and row.outcome.values
    )
    return {
        key: min(value for _, value in group) for key, group in itertools.groupby(keyed, lambda one: one[0])
    }


def _failures_in(rows: Sequence[Row], sha: str) -> list[str]:
    """Return a line for each benchmark, or file of some, that a commit's launches could not measure."""
    failed = {
        row.outcome.benchmark.name: row.outcome.message
        for row in rows
        if row.outcome.status not in ("ok", "skipped")
    }
    return [f"{name} failed at {sha[:_SHA_DIGITS]}: {message}" for name, message in failed.items()]
