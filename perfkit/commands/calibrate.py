"""``perfkit calibrate``: A/A gates and gates with injected slowdowns, on the user's own benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from perfkit.commands.engines import HERE, EngineChoice, class_names, needed_code, open_engine
from perfkit.commands.gate import surveyed_sides
from perfkit.commands.tasks import Doing, TaskQueue
from perfkit.config import Project, load_project
from perfkit.errors import NotMeasuredError, RunInterruptedError, UsageError
from perfkit.gating.aa_runs import Case, calibration_of, finished_cases, plan_cases
from perfkit.gating.compare import Record, compare_sides
from perfkit.gating.design import Terms, choose_method
from perfkit.gating.sides import Scope, check_selection, open_sides
from perfkit.gating.survey import take_survey
from perfkit.identity import fingerprint
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.calibration import Calibration
from perfkit.model.comparisons import exit_code
from perfkit.model.policies import Rehearsal
from perfkit.model.progress import Progress, Quiet
from perfkit.model.tasks import Code, MachineClass, Task
from perfkit.repo.sides import SidePair, identical_sides
from perfkit.runner.machine.facts import read_machine

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
    pair = identical_sides(project.root)
    progress.info("collecting benchmarks")
    names = _gating_benchmarks(request, project, pair)
    if not names:
        raise UsageError("no benchmark that gates was found; widen --select or --benchmarks")
    cases = plan_cases(names, gates=request.gates, plants=request.slowdowns, seed=request.seed)
    if request.engine.is_local:
        study = _study(request, project, pair, names, machine_id=read_machine().machine_id)
        _run_here(cases, request, project, pair, study=study, progress=progress)
    else:
        study = _run_on_engine(cases, request, project, pair, names=names, progress=progress)
    ledger.compact()
    found = calibration_of(ledger.rows(), study=study, planned=len(cases))
    if found is None:
        raise NotMeasuredError("no gate of the calibration could be run")
    return found


def _run_here(
    cases: Sequence[Case],
    request: CalibrateRequest,
    project: Project,
    pair: SidePair,
    *,
    study: str,
    progress: Progress,
) -> None:
    """Run the gates that are left, one after another on this machine."""
    ledger = Ledger(request.ledger)
    done = finished_cases(ledger.rows(), study)
    left = [case for case in cases if case.number not in done]
    if done:
        progress.info(f"{len(cases) - len(left)} of {len(cases)} gates are done already")
    spent_s = 0.0
    try:
        for number, case in enumerate(left, start=1):
            progress.advance((len(done) + number - 1) / len(cases))
            code, wall_s = _run_case(case, request, project, pair, study=study, progress=progress)
            spent_s += wall_s
            what = "identical code" if case.plant is None else f"{case.benchmark} +{100 * case.plant:g} %"
            left_s = (len(left) - number) * spent_s / number
            progress.info(
                f"gate {case.number} of {len(cases)}, {what}: exit {code},"
                f" {wall_s:.0f} s; about {left_s / 60:.0f} min left"
            )
    except (RunInterruptedError, KeyboardInterrupt):
        kept = len(finished_cases(ledger.rows(), study))
        raise RunInterruptedError(
            f"interrupted; {kept} of {len(cases)} gates are kept in {ledger.path}: the same command goes on"
        ) from None


def _run_on_engine(
    cases: Sequence[Case],
    request: CalibrateRequest,
    project: Project,
    pair: SidePair,
    *,
    names: Sequence[str],
    progress: Progress,
) -> str:
    """Run the gates that are left on the machines of an engine, all of one class, and return the study."""
    head = pair.head.commit
    code = needed_code(request.engine, project=project, head=head.sha, overlay=None, commits=[head.sha])
    with open_engine(
        request.engine,
        project=project,
        code=code,
        commits=[head.sha],
        wait_s=request.wait_s,
        log=progress.info,
    ) as engine:
        machines = engine.classes()
        if len(machines) > 1:
            raise UsageError(
                f"a calibration is of one class of machines, and there are {class_names(machines)};"
                " name one with --machine"
            )
        study = _study(request, project, pair, names, machine_id=machines[0].machine_id)
        ledger = Ledger(request.ledger)
        done = finished_cases(ledger.rows(), study)
        if done:
            progress.info(f"{len(done)} of {len(cases)} gates are done already")
        task_of = partial(
            _task_of, machine=machines[0], request=request, code=code, stamp=head.time, study=study
        )
        tasks = [task_of(case) for case in cases if case.number not in done]
        rest = _Cases(tasks, ledger=ledger, total=len(cases), progress=progress)
        try:
            engine.perform(rest)
        except KeyboardInterrupt:
            raise RunInterruptedError(f"interrupted; {rest.kept}: the same command goes on") from None
        except NotMeasuredError as error:
            raise NotMeasuredError(f"{error}; {rest.kept}") from error
    return study


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


def _task_of(
    case: Case,
    *,
    machine: MachineClass,
    request: CalibrateRequest,
    code: Code,
    stamp: datetime | None,
    study: str,
) -> Task:
    """Return a gate of the calibration as a task, without what follows from the configuration."""
    settings = {
        "study": study,
        "case": case.number,
        "plant": case.plant,
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
        stamp=stamp or datetime.fromtimestamp(0, UTC),
        benchmarks=request.benchmarks or "",
        select=request.select,
        seed=request.seed,
        settings={name: str(value) for name, value in settings.items() if value is not None},
    )


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
    case = Case(number=int(settings["case"]), plant=numbers.get("plant"), benchmark=settings.get("planted"))
    project = load_project(doing.project)
    pair = identical_sides(doing.project, task.commits[0])
    _run_case(case, request, project, pair, study=settings["study"], progress=_LogOnly(doing.log))


class _LogOnly:
    """A progress without shares."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.info = log

    def advance(self, share: float) -> None:
        """Ignore the share."""


def _gating_benchmarks(request: CalibrateRequest, project: Project, pair: SidePair) -> tuple[str, ...]:
    """Return the names of the benchmarks that a gate would compare and whose verdicts count."""
    with open_sides(pair, project, _scope(request, seed=request.seed)) as sides:
        surveyed = take_survey(sides, margin=request.margin)
    return tuple(one.benchmark.name for one in surveyed.compared if one.gating)


def _run_case(
    case: Case, request: CalibrateRequest, project: Project, pair: SidePair, *, study: str, progress: Progress
) -> tuple[int, float]:
    """Run and record one gate of a commit against itself; return its exit code and the seconds it took."""
    injected = {}
    if case.plant is not None and case.benchmark is not None:
        injected = {case.benchmark: case.plant}
    of_study = Rehearsal(study=study, case=case.number, plant=case.plant, planted=case.benchmark)
    seed = request.seed * _SEEDS_PER_CALIBRATION + case.number
    # An accusation would fail a gate, as configured; undecided benchmarks stay so.
    terms = Terms(margin=request.margin, alpha=request.alpha, budget_s=request.budget_s, inconclusive="fail")
    scope = _scope(request, seed=seed, injected=injected)
    with surveyed_sides(
        pair, project, scope, margin=request.margin, wait_s=request.wait_s, log=progress.info
    ) as opened:
        found = compare_sides(
            opened.sides,
            opened.survey,
            choose_method(project, opened.survey, terms, seed=seed, counted=False),
            record=Record(ledger=Ledger(request.ledger), source="calibrate", rehearsal=of_study),
            began=opened.began,
            progress=Quiet(),
        )
    if found.unrecorded is not None:
        raise found.unrecorded
    return exit_code(found.comparisons), time.monotonic() - opened.began


def _scope(request: CalibrateRequest, *, seed: int, injected: Mapping[str, float] | None = None) -> Scope:
    return Scope(benchmarks=request.benchmarks, select=request.select, seed=seed, plants=injected or {})


def _study(
    request: CalibrateRequest, project: Project, pair: SidePair, names: Sequence[str], *, machine_id: str
) -> str:
    """Return a hash that identifies a study: gates of different studies are never counted together."""
    config = project.config
    # Studies that were begun before this could be configured keep their names.
    proven = {"proven above": repr(config.gate.noise_floor_share)} if config.gate.fail_on == "proven" else {}
    return fingerprint(
        {
            "commit": pair.head.commit.sha,
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


def _check(request: CalibrateRequest, project: Project) -> None:
    check_selection(request.select, project)
    if request.gates < 1:
        raise UsageError(f"--gates must be at least 1, found {request.gates}")
    for slowdown in request.slowdowns:
        if slowdown >= _LARGEST_SLOWDOWN:
            raise UsageError(f"--plant must be below 100 %, found {100 * slowdown:g} %")
