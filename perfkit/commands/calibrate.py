"""``perfkit calibrate``: A/A gates and gates with injected slowdowns, on the user's own benchmarks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from perfkit.commands.gate import surveyed_sides
from perfkit.commands.tasks import (
    HERE,
    Code,
    Doing,
    EngineChoice,
    MachineClass,
    Task,
    TaskQueue,
    class_names,
    needed_code,
    open_engine,
)
from perfkit.config import Project, load_project
from perfkit.errors import NotMeasuredError, RunInterruptedError, UsageError
from perfkit.extras import is_installed
from perfkit.gating.aa_runs import Case, calibration_of, finished_cases, judge_fitness, plan_cases
from perfkit.gating.compare import Record, compare_sides
from perfkit.gating.design import Terms, choose_method, gate_policy
from perfkit.gating.run import SameCodeRun, run_same_code
from perfkit.gating.sides import Scope, check_selection, open_sides, staged_launcher
from perfkit.gating.survey import take_survey
from perfkit.identity import fingerprint
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.calibration import Calibration, Condition, Fitness
from perfkit.model.comparisons import Progress, Quiet, exit_code
from perfkit.model.policies import Rehearsal
from perfkit.repo.sides import SidePair, identical_sides
from perfkit.report.gate.wording import after_waiting
from perfkit.runner.lock import measuring, who_measures
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.machine.conditions import read_conditions
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.temporary import temporary_folder

_LARGEST_SLOWDOWN = 1.0
_SEEDS_PER_CALIBRATION = 100_000


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest:
    """A calibration: A/A gates, and as many with each injected slowdown; the rest as for a gate."""

    gates: int
    slowdowns: tuple[float, ...]
    benchmarks: str | None
    select: str | None
    margin: float | None
    alpha: float | None
    budget_s: float | None
    ledger: Path
    seed: int
    wait_s: float | None = None
    engine: EngineChoice = HERE


def run_calibrate(request: CalibrateRequest, *, project: Project, progress: Progress) -> Calibration:
    """Run the gates that are not in the calibration's ledger yet, and return the results of all."""
    _check(request, project)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    study = _Study(request=request, project=project, pair=identical_sides(project.root), progress=progress)
    progress.info("collecting benchmarks")
    names = study.gating_benchmarks()
    if not names:
        raise UsageError("no benchmark that gates was found; widen --select or --benchmarks")
    cases = plan_cases(names, gates=request.gates, slowdowns=request.slowdowns, seed=request.seed)
    if request.engine.is_local:
        key = study.key(names, machine_id=read_machine().machine_id)
        study.run_here(cases, key)
    else:
        key = study.run_on_engine(cases, names)
    ledger.compact()
    found = calibration_of(ledger.rows(), study=key, planned=len(cases))
    if found is None:
        raise NotMeasuredError("no gate of the calibration could be run")
    return found


@dataclass(frozen=True, kw_only=True)
class _Study:
    """Gates of one commit against itself, of which those with one ``key`` are counted together."""

    request: CalibrateRequest
    project: Project
    pair: SidePair
    progress: Progress

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.request.ledger)

    def _scope(self, seed: int, injected: Mapping[str, float]) -> Scope:
        request = self.request
        return Scope(benchmarks=request.benchmarks, select=request.select, seed=seed, slowdowns=injected)

    def gating_benchmarks(self) -> tuple[str, ...]:
        """Return the names of the benchmarks that a gate would compare and whose verdicts count."""
        with open_sides(self.pair, self.project, self._scope(self.request.seed, {})) as sides:
            surveyed = take_survey(sides, margin=self.request.margin)
        return tuple(one.benchmark.name for one in surveyed.compared if one.gating)

    def key(self, names: Sequence[str], *, machine_id: str) -> str:
        """Return a hash that identifies the study: gates of different ones are never counted together."""
        config, request = self.project.config, self.request
        # Studies that were begun before this could be configured keep their names.
        is_proven = config.gate.fail_on == "proven"
        proven = {"proven above": repr(config.gate.noise_floor_share)} if is_proven else {}
        return fingerprint(
            {
                "commit": self.pair.head.commit.sha,
                "machine": machine_id,
                "benchmarks": "\n".join(names),
                "gates": str(request.gates),
                "plants": repr(request.slowdowns),
                "margin": repr(request.margin or config.margin_share),
                "rules": repr(config.rules),
                "alpha": repr(request.alpha or config.gate.alpha),
                "budget": repr(request.budget_s or config.gate.seconds_per_benchmark),
                "seed": str(request.seed),
                **proven,
            }
        )

    def _left(self, cases: Sequence[Case], key: str) -> list[Case]:
        """Return the cases that are not in the ledger yet."""
        done = finished_cases(self._ledger.rows(), key)
        if done:
            self.progress.info(f"{len(done)} of {len(cases)} gates are done already")
        return [case for case in cases if case.number not in done]

    def run_here(self, cases: Sequence[Case], key: str) -> None:
        """Run the gates that are left, one after another on this machine."""
        left = self._left(cases, key)
        done, spent_s = len(cases) - len(left), 0.0
        try:
            for number, case in enumerate(left, start=1):
                self.progress.advance((done + number - 1) / len(cases))
                code, wall_s = self.run_case(case, key)
                spent_s += wall_s
                what = (
                    "identical code"
                    if case.slowdown is None
                    else f"{case.benchmark} +{100 * case.slowdown:g} %"
                )
                left_s = (len(left) - number) * spent_s / number
                self.progress.info(
                    f"gate {case.number} of {len(cases)}, {what}: exit {code},"
                    f" {wall_s:.0f} s; about {left_s / 60:.0f} min left"
                )
        except (RunInterruptedError, KeyboardInterrupt):
            kept = len(finished_cases(self._ledger.rows(), key))
            raise RunInterruptedError(
                f"interrupted; {kept} of {len(cases)} gates are kept in {self.request.ledger}:"
                " the same command goes on"
            ) from None

    def run_on_engine(self, cases: Sequence[Case], names: Sequence[str]) -> str:
        """Run the gates that are left on an engine's machines, all of one class, and return the key."""
        request, head = self.request, self.pair.head.commit
        code = needed_code(
            request.engine, project=self.project, head=head.sha, overlay=None, commits=[head.sha]
        )
        with open_engine(
            request.engine,
            project=self.project,
            code=code,
            commits=[head.sha],
            wait_s=request.wait_s,
            log=self.progress.info,
        ) as engine:
            machine, *others = engine.classes()
            if others:
                raise UsageError(
                    "a calibration is of one class of machines, and there are"
                    f" {class_names([machine, *others])}; name one with --machine"
                )
            key = self.key(names, machine_id=machine.machine_id)
            left = self._left(cases, key)
            tasks = [self._task(case, machine, code, key) for case in left]
            rest = _Cases(tasks, ledger=self._ledger, total=len(cases), progress=self.progress)
            try:
                engine.perform(rest)
            except KeyboardInterrupt:
                raise RunInterruptedError(f"interrupted; {rest.kept}: the same command goes on") from None
            except NotMeasuredError as error:
                raise NotMeasuredError(f"{error}; {rest.kept}") from error
        return key

    def _task(self, case: Case, machine: MachineClass, code: Code, key: str) -> Task:
        """Return a gate of the calibration as a task, without what follows from the configuration."""
        request = self.request
        settings = {
            "study": key,
            "case": case.number,
            "plant": case.slowdown,
            "planted": case.benchmark,
            "margin": request.margin,
            "alpha": request.alpha,
            "budget": request.budget_s,
        }
        return Task(
            kind="rehearsal",
            commits=(code.head,),
            machine=machine,
            code=code,
            stamp=self.pair.head.commit.time or datetime.fromtimestamp(0, UTC),
            benchmarks=request.benchmarks or "",
            select=request.select,
            seed=request.seed,
            settings={name: str(value) for name, value in settings.items() if value is not None},
        )

    def run_case(self, case: Case, key: str) -> tuple[int, float]:
        """Run and record one gate of a commit against itself; return its exit code and its seconds."""
        request = self.request
        injected = {}
        if case.slowdown is not None and case.benchmark is not None:
            injected = {case.benchmark: case.slowdown}
        of_study = Rehearsal(study=key, case=case.number, plant=case.slowdown, planted=case.benchmark)
        seed = request.seed * _SEEDS_PER_CALIBRATION + case.number
        # An accusation would fail a gate, as configured; undecided benchmarks stay so.
        terms = Terms(
            margin=request.margin, alpha=request.alpha, budget_s=request.budget_s, inconclusive="fail"
        )
        with surveyed_sides(
            self.pair,
            self.project,
            self._scope(seed, injected),
            margin=request.margin,
            wait_s=request.wait_s,
            log=self.progress.info,
        ) as opened:
            found = compare_sides(
                opened.sides,
                opened.survey,
                choose_method(self.project, opened.survey, terms, seed=seed, counted=False),
                record=Record(ledger=self._ledger, source="calibrate", rehearsal=of_study),
                began=opened.began,
                progress=Quiet(),
            )
        if found.unrecorded is not None:
            raise found.unrecorded
        return exit_code(found.comparisons), time.monotonic() - opened.began


class _Cases(TaskQueue):
    """The gates that an engine is to run."""

    def __init__(self, tasks: Sequence[Task], *, ledger: Ledger, total: int, progress: Progress) -> None:
        super().__init__(tasks, ledger.path)
        self._total, self._progress = total, progress
        self._finished = total - len(tasks)

    def filed(self, task: Task, rows: list[Row], seconds: float) -> None:  # noqa: ARG002 (of the base class)
        """Report a gate."""
        self._finished += 1
        self._progress.info(f"gate {task.settings['case']} of {self._total}: {seconds:.0f} s")
        self._progress.advance(self._finished / self._total)

    def failed(self, task: Task, reason: str) -> None:
        """Report why a gate could not be run; the study goes on without it."""
        self._progress.info(f"gate {task.settings['case']} of {self._total} could not be run: {reason}")

    @property
    def kept(self) -> str:
        """How much is done, as the end of a sentence."""
        return f"{self._finished} of {self._total} gates are kept in {self._ledger}"


def run_calibration_task(doing: Doing) -> None:
    """Run and record the gate of a calibration that a task describes."""
    task, settings = doing.task, doing.task.settings
    numbers = {key: float(settings[key]) for key in ("plant", "margin", "alpha", "budget") if key in settings}
    request = CalibrateRequest(
        gates=1,
        slowdowns=(),
        benchmarks=task.benchmarks or None,
        select=task.select,
        margin=numbers.get("margin"),
        alpha=numbers.get("alpha"),
        budget_s=numbers.get("budget"),
        ledger=doing.ledger,
        seed=task.seed,
    )
    case = Case(
        number=int(settings["case"]), slowdown=numbers.get("plant"), benchmark=settings.get("planted")
    )
    project = load_project(doing.project)
    pair = identical_sides(doing.project, task.commits[0])
    study = _Study(request=request, project=project, pair=pair, progress=_LogOnly(doing.log))
    study.run_case(case, settings["study"])


class _LogOnly:
    """A progress without shares."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.info = log

    def advance(self, share: float) -> None:
        """Ignore the share."""


def _check(request: CalibrateRequest, project: Project) -> None:
    check_selection(request.select, project)
    if request.gates < 1:
        raise UsageError(f"--gates must be at least 1, found {request.gates}")
    for slowdown in request.slowdowns:
        if slowdown >= _LARGEST_SLOWDOWN:
            raise UsageError(f"--plant must be below 100 %, found {100 * slowdown:g} %")


# A gate shares its error among its benchmarks; the doctor assumes a gate of this many.
FAMILY = 6
# The extra asks for no older one, but a project may pin its own.
OLDEST_TORCH = (2, 8)
_SUITES = Path(__file__).parent / "machine_check"


def run_doctor(
    *,
    margin: float | None,
    seconds: float,
    seed: int,
    wait_s: float | None,
    project: Project,
    progress: Progress,
) -> Fitness:
    """Read the machine's conditions, make A/A launches, and judge both."""
    progress.info("looking at the machine")
    conditions = [_others(), *read_conditions(), *_torch()]
    config = project.config
    margin = margin or config.margin_share
    try:
        with measuring(progress.info, wait_s=wait_s) as waited_s:
            progress.info("measuring identical code against itself")
            runs, allocator = _measure(seconds, seed, progress)
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted; the doctor keeps nothing") from None
    if allocator is not None:
        conditions.append(allocator)
    if waited_s:
        found = f"{conditions[0].found}, measured{after_waiting(waited_s)}"
        conditions[0] = replace(conditions[0], found=found)
    policy = gate_policy(alpha=config.gate.alpha, family=FAMILY, served=runs.served)
    return judge_fitness(
        read_machine(),
        conditions,
        runs.pairs,
        launch_s=runs.launch_s,
        policy=policy,
        margin=margin,
        seconds_per_benchmark=config.gate.seconds_per_benchmark,
    )


def _others() -> Condition:
    holder = who_measures()
    if holder is not None:
        advice = "wait until it is done: two would measure each other"
        return Condition(name="other perfkits", found=f"{holder} measures now", state="bad", advice=advice)
    return Condition(name="other perfkits", found="none", state="good")


def _torch() -> Iterator[Condition]:
    """Yield a condition where torch is not installed, or older than what perfkit is tested with."""
    install = "`pip install 'perfkit[torch]'`"
    if not is_installed("torch"):
        yield Condition(
            name="torch",
            found="absent: Python's calls are counted, and nothing that tensors do",
            state="notable",
            advice=f"{install} if your code uses it; other code needs none",
        )
        return
    version = read_environment(torch_settings={}).facts["torch"]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers and numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        found = f"{version}, older than {oldest}: what counts operators was not tried with it"
        yield Condition(name="torch", found=found, state="notable", advice=install)


def _measure(seconds: float, seed: int, progress: Progress) -> tuple[SameCodeRun, Condition | None]:
    suite = _SUITES / f"bench_{'machine_check' if is_installed('torch') else 'without_torch'}.py"
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        launcher = stack.enter_context(staged_launcher(suite, folder, environment=os.environ, seed=seed))
        runs = run_same_code(launcher, seconds=seconds, seed=seed, progress=progress.advance)
        return runs, _fork(launcher)


def _fork(launcher: Launcher) -> Condition | None:
    """Return a condition for what this machine cannot provide, None where it provides everything."""
    if launcher.why_no_fork:
        advice = "gates take fresh processes instead, which is several times slower"
        return Condition(name="fork", found=launcher.why_no_fork, state="notable", advice=advice)
    if launcher.allocator_kept is False:
        advice = "page faults add to the noise; the system's glibc obeys"
        return Condition(
            name="memory kept", found="the allocator gives it back", state="notable", advice=advice
        )
    return None
