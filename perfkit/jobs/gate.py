"""``perfkit gate``: compare two sides by lockstep launches, judge, file and tell."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfkit.compare.accepting import Accepted, accept
from perfkit.compare.counts import Tally, count_contenders, count_targets, joined
from perfkit.compare.explaining import explain
from perfkit.compare.filing import RunContext, count_rows, finding_row, launch_rows
from perfkit.compare.instructions import check_valgrind, count_instructions
from perfkit.compare.notes import notes_on, unseen_changes
from perfkit.compare.prior import Prior, find_prior
from perfkit.compare.sequential import Contender, SequentialComparison, Trial
from perfkit.compare.survey import Field, Rules, finding_on, survey
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RunInterruptedError, UsageError
from perfkit.identity import new_run_id
from perfkit.ledger.store import Ledger
from perfkit.machine.environment import read_environment
from perfkit.machine.facts import read_machine
from perfkit.measure.clock import utc_now
from perfkit.measure.environment import fixed_environment
from perfkit.measure.lockstep.instructed import Callgrind
from perfkit.measure.lockstep.launch import Failure, SideReport
from perfkit.measure.lockstep.launcher import Launcher, MeasuredTrees
from perfkit.measure.lockstep.schedule import schedule
from perfkit.records import SIDES, Commit, Row, Side
from perfkit.records.comparisons import Comparison, ExactComparison, Explanation, GateReport, Policy, Verdict
from perfkit.repo.checkout import Roots, checkouts
from perfkit.repo.commands import outside_repository
from perfkit.repo.project_roots import project_roots
from perfkit.repo.sides import SidePair, identical_sides, resolve_sides
from perfkit.verdict.exact import ExactPolicy
from perfkit.verdict.exit_code import exit_code
from perfkit.verdict.from_rows import NOT_TIMED

LOOKS = (10, 15, 20, 26, 33, 42, 60)
_LEAST_BUDGET_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A gate that is there to try the gate itself: one commit on both sides, nothing accepted or explained.

    ``plants`` maps benchmarks to the share by which head is made slower on purpose; ``label`` are entries
    for the policy of its rows, by which it is known in the ledger.
    """

    label: Mapping[str, str]
    plants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What to compare, and how; what is None follows from the configuration.

    ``margin`` and ``alpha`` are shares, ``budget_s`` seconds for the whole gate but its counting. With
    ``exact_only`` nothing is timed; with ``instructions`` callgrind counts, too.
    """

    base: str | None
    head: str | None
    benchmarks: str | None
    select: str | None
    margin: float | None
    alpha: float | None
    budget_s: float | None
    as_is: bool
    ledger: Path
    seed: int
    exact_only: bool = False
    instructions: bool = False
    rehearsal: Rehearsal | None = None


class Listener(Protocol):
    """Is told what a gate does, between launches only."""

    def begin(self, title: str) -> None:
        """Say what is compared."""

    def say(self, text: str) -> None:
        """Say which stage begins."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Say how the benchmarks stand."""


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """Where and with what a gate measures, once both sides are laid out."""

    pair: SidePair
    roots: Roots
    launcher: Launcher
    callgrind: Callgrind
    begun: float


def run_gate(request: GateRequest, *, project: Project, listener: Listener) -> GateReport:
    """Compare the sides and return the verdicts; every launch is filed, interrupted or not.

    Raises:
        RepositoryError: a side cannot be found.
        UsageError: there is nothing to measure, or nothing to count instructions with.
        NotMeasuredError: a side's benchmarks cannot be collected, or another code would be measured.
        RunInterruptedError: the person stopped it; its launches so far are kept.
    """
    if request.instructions:
        check_valgrind()
    pair = _resolve(request, project)
    Ledger(request.ledger).check_writable()
    listener.begin(f"{_name(pair.base.commit)} against {_name(pair.head.commit)}")
    with measuring(listener.say, wait_s=request.wait_s) as waited_s:
        begun = time.monotonic()
        listener.say("checking out both sides")
        with _scene(request, project, pair, begun) as scene:
            listener.say("collecting benchmarks")
            rules = Rules.of(project.config, margin=request.margin)
            field = survey(scene.launcher, scene.roots, rules)
            return _Gate(request, project, scene, field).run(listener)


def list_benchmarks(request: GateRequest, *, project: Project) -> tuple[str, ...]:
    """Return the names of the benchmarks that a gate would compare; raises what the gate would."""
    with _scene(request, project, _resolve(request, project), time.monotonic()) as scene:
        field = survey(scene.launcher, scene.roots, Rules.of(project.config, margin=request.margin))
        return tuple(contender.benchmark.name for contender in field.contenders if contender.gating)


def _resolve(request: GateRequest, project: Project) -> SidePair:
    if request.rehearsal is not None:
        return identical_sides(project.root, request.head)
    ignored = (*project.output_paths, request.ledger)
    return resolve_sides(project.root, base=request.base, head=request.head, ignored=ignored)


@contextmanager
def _scene(request: GateRequest, project: Project, pair: SidePair, begun: float) -> Iterator[_Scene]:
    """Lay out both sides and bring the launcher that measures them; nothing of either stays behind."""
    config = project.config
    with checkouts(pair, copy=config.copy, link=config.link, prepare=config.prepare) as laid:
        roots = project_roots(project, pair, laid)
        trees = MeasuredTrees(
            roots={side: roots.root(side) for side in SIDES},
            origins=tuple(dict.fromkeys(pair.side(side).source for side in SIDES)),
            paths=_paths(request, project, roots),
            select=config.gate.select if request.select is None else request.select,
            plants=request.rehearsal.plants if request.rehearsal else {},
        )
        folder = laid.base.parent / "launches"
        folder.mkdir()
        environment = outside_repository(os.environ)
        callgrind = Callgrind(trees=trees, folder=folder, environment=environment)
        with Launcher(
            trees,
            folder=folder,
            environment=environment,
            as_is=request.as_is,
            seed=request.seed,
            preload=config.gate.preload,
        ) as launcher:
            yield _Scene(pair=pair, roots=roots, launcher=launcher, callgrind=callgrind, begun=begun)


class _Gate:
    """One gate from the first launch to the report."""

    def __init__(self, request: GateRequest, project: Project, scene: _Scene, field: Field) -> None:
        self._request, self._project, self._scene, self._field = request, project, scene, field
        config = project.config.gate
        timed = [contender for contender in field.contenders if contender.gating] or field.contenders
        self._loaded: frozenset[str] = frozenset()
        self._policy = Policy(alpha=request.alpha or config.alpha, family=max(len(timed), 1), looks=LOOKS)
        self._exact_policy = ExactPolicy(
            gating=project.config.exact.gate, tolerance=project.config.exact.tolerance_share
        )
        self._budget_s = request.budget_s or max(
            _LEAST_BUDGET_S, config.seconds_per_benchmark * len(field.contenders)
        )
        self._context = self._describe()
        self._ledger = Ledger(request.ledger)
        self._prior = self._find_prior()
        self._contenders = {
            contender.benchmark.name: dataclasses.replace(contender, prior=self._prior.pairs_for(contender))
            for contender in field.contenders
        }
        self._comparison = SequentialComparison(
            launcher=scene.launcher,
            trials={name: Trial(contender) for name, contender in self._contenders.items()},
            policy=self._policy,
            deadline=scene.begun + self._budget_s,
        )

    def run(self, listener: Listener) -> GateReport:
        """Measure, judge, explain, file."""
        try:
            if not self._request.exact_only:
                self._measure(listener)
            tally = self._count(listener)
            reports = self._comparison.reports or tally.reports or {}
            self._prove_code(reports)
            self._loaded = tally.loaded.union(*(report.loaded for report in reports.values()))
            comparisons = [*self._judged(), *self._field.findings, *tally.findings]
            explanations = self._explain(comparisons, listener)
        except KeyboardInterrupt:
            file = self._file([])
            kept = f"its launches so far are in {file}" if file else "no launch was complete"
            raise RunInterruptedError(f"interrupted; {kept}") from None
        exact = tally.compared(self._exact_policy)
        self._file(comparisons, tally, exact)
        return self._report(comparisons, explanations, exact, tally.notes)

    def _measure(self, listener: Listener) -> None:
        if self._contenders:
            launcher = self._scene.launcher
            launcher.warm_up(self._field.libraries)
            listener.say("measuring")
            self._comparison.run(schedule(seed=self._request.seed), listener)

    def _count(self, listener: Listener) -> Tally:
        """Count what was asked for, once all is timed."""
        request, tallies = self._request, []
        if (self._project.config.exact.count or request.exact_only) and not request.rehearsal:
            tallies.append(self._count_exact(listener))
        if request.instructions:
            contenders = tuple(self._contenders.values())
            tallies.append(
                count_instructions(
                    contenders,
                    self._scene.callgrind,
                    say=lambda node: listener.say(f"counting instructions of {node}"),
                )
            )
        return joined(tallies)

    def _count_exact(self, listener: Listener) -> Tally:
        """Count what repeats to the digit."""
        listener.say("counting")
        benchmarks = Tally()
        if self._contenders:
            benchmarks = count_contenders(
                tuple(self._contenders.values()),
                self._scene.launcher,
                say=lambda node: listener.say(f"counting {node}"),
                decide=self._request.exact_only,
            )
        config = self._project.config
        names = config.targets if config.exact.targets is None else config.exact.targets
        rules = Rules.of(config, margin=self._request.margin)
        return joined([benchmarks, count_targets(names, self._project, self._scene.launcher, rules)])

    def _prove_code(self, reports: Mapping[Side, SideReport]) -> None:
        """Refuse times and counts of any other code than that of the sides."""
        for side, report in reports.items():
            if report.foreign:
                name, file = min(report.foreign.items())
                raise NotMeasuredError(
                    f"wrong code imported on {side}: {name} came from {file}; nothing was recorded:"
                    " uninstall that copy, or list what may be preloaded in tool.perfkit.gate.preload"
                )

    def _judged(self) -> Iterator[Comparison]:
        if self._request.exact_only:
            return
        for name, trial in self._comparison.trials.items():
            if trial.failure is None:
                yield trial.judge(self._policy)
            else:
                yield self._failed(self._contenders[name], trial.failure)

    def _failed(self, contender: Contender, failure: Failure) -> Comparison:
        """Return what a failure means: one on base alone, of a benchmark base never had, is none."""
        new = failure.side == "base" and contender.benchmark.name not in self._field.base_own
        verdict: Verdict = "NEW" if new else "TIMEOUT" if failure.status == "timeout" else "FAILED"
        said = "skipped: " if failure.status == "skipped" else ""
        return finding_on(contender, verdict, f"on {failure.side}: {said}{failure.message}")

    def _explain(self, comparisons: Sequence[Comparison], listener: Listener) -> list[Explanation]:
        if self._request.rehearsal:
            return []
        regressed = [one for one in comparisons if one.verdict == "REGRESSED"]
        if regressed:
            listener.say("profiling what regressed")
        found = (
            explain(one, self._contenders[one.benchmark.name], self._scene.launcher, self._scene.roots)
            for one in regressed
        )
        return [explanation for explanation in found if explanation is not None]

    def _file(
        self,
        comparisons: Sequence[Comparison],
        tally: Tally | None = None,
        exact: Sequence[ExactComparison] = (),
    ) -> Path | None:
        """Write what was measured and found as one file of the ledger."""
        verdicts = {one.benchmark.name: one.verdict for one in comparisons}
        context = dataclasses.replace(self._context, common={**self._context.common, **self._times()})
        rows: list[Row] = list(launch_rows(self._comparison.measured, self._contenders, verdicts, context))
        timed = {row.outcome.benchmark.name for row in rows}
        rows += [
            finding_row(one, context)
            for one in comparisons
            if one.verdict in NOT_TIMED or one.benchmark.name not in timed
        ]
        rows += count_rows(tally.pairs if tally else (), exact, context)
        return self._ledger.append(rows) if rows else None

    def _report(
        self,
        comparisons: Sequence[Comparison],
        explanations: Sequence[Explanation],
        exact: Sequence[ExactComparison],
        counting_notes: Sequence[str],
    ) -> GateReport:
        told = self._accepted(comparisons, exact)
        return GateReport(
            run_id=self._context.run_id,
            recorded_at=self._context.recorded_at,
            base=self._context.commits["base"],
            head=self._context.commits["head"],
            machine=self._context.machine,
            environment=self._context.environment,
            policy=self._policy,
            budget_s=self._budget_s,
            wall_s=time.monotonic() - self._scene.begun,
            comparisons=told.comparisons,
            exit_code=exit_code((*told.comparisons, *told.exact)),
            notes=(
                *self._scene.roots.warnings,
                *self._field.notes,
                *notes_on(self._scene.launcher, self._prior, as_is=self._request.as_is),
                *self._unseen(),
                *counting_notes,
                *told.notes,
            ),
            explanations=tuple(explanations),
            exact=told.exact,
        )

    def _accepted(self, comparisons: Sequence[Comparison], exact: Sequence[ExactComparison]) -> Accepted:
        if self._request.rehearsal:
            return Accepted(comparisons=tuple(comparisons), exact=tuple(exact))
        return accept(comparisons, exact, self._scene.pair, ledger=self._request.ledger)

    def _unseen(self) -> Iterator[str]:
        """Yield a note on what changed unseen; none where what was imported is not known of each launch."""
        continued = any(trial.contender.prior and not trial.own for trial in self._comparison.trials.values())
        return iter(()) if continued else unseen_changes(self._scene.pair, self._project, self._loaded)

    def _find_prior(self) -> Prior:
        if self._request.rehearsal:
            return Prior()
        commits = {commit.sha for commit in self._context.commits.values()}
        return find_prior(self._ledger.rows_on(commits), self._context)

    def _describe(self) -> RunContext:
        launcher, pair = self._scene.launcher, self._scene.pair
        environment = dict(os.environ)
        if not self._request.as_is:
            environment = fixed_environment(environment, hash_seed=0)
        common = {
            "base": pair.base.commit.sha,
            "budget_s": f"{self._budget_s:g}",
            "mode": "fresh processes" if launcher.why_no_fork else "forked",
            "as_is": str(self._request.as_is),
            **(self._request.rehearsal.label if self._request.rehearsal else {}),
        }
        return RunContext(
            source="calibrate" if self._request.rehearsal else "gate",
            run_id=new_run_id(),
            recorded_at=utc_now(),
            commits={side: pair.side(side).commit for side in SIDES},
            machine=read_machine(),
            environment=read_environment(environment, torch_settings=self._field.torch),
            seed=self._request.seed,
            policy=self._policy,
            common=common,
        )

    def _times(self) -> Mapping[str, str]:
        continued = {"continues": ",".join(self._prior.runs)} if self._prior.runs else {}
        return {"wall_s": f"{time.monotonic() - self._scene.begun:.2f}", **continued}


def _paths(request: GateRequest, project: Project, roots: Roots) -> tuple[str, ...]:
    """Return what pytest is given: the path asked for, the configured one if it is there, or nothing."""
    if request.benchmarks is None:
        configured = project.config.benchmarks
        return (configured,) if (roots.head / configured).exists() else ()
    path = Path(request.benchmarks)
    if path.is_absolute() and path.is_relative_to(project.root):
        path = path.relative_to(project.root)
    if not (roots.head / path).exists() and not (roots.base / path).exists():
        raise UsageError(f"--benchmarks {request.benchmarks}: neither side has such a file or folder")
    return (path.as_posix(),)


def _name(commit: Commit) -> str:
    changes = " with uncommitted changes" if commit.dirty and commit.time else ""
    return f'{commit.sha[:10]} "{commit.subject}"{changes}'
