"""``perfkit calibrate``: gates of identical code and of planted slowdowns, on the user's own benchmarks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfkit.compare.calibration import Case, plan_cases
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RunInterruptedError, UsageError
from perfkit.identity import fingerprint
from perfkit.jobs.gate import GateRequest, Rehearsal, list_benchmarks, run_gate
from perfkit.ledger.store import Ledger
from perfkit.machine.facts import read_machine
from perfkit.records.comparisons import Comparison
from perfkit.repo.sides import identical_sides
from perfkit.verdict.calibration import (
    CASE,
    PLANT,
    PLANTED,
    STUDY,
    Calibration,
    calibration_of,
    finished_cases,
)

_LARGEST_PLANT = 1.0


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest:
    """What to rehearse: ``gates`` of identical code, and as many with each of ``plants`` (shares).

    The rest is as for a gate; what is None follows from the configuration.
    """

    gates: int
    plants: tuple[float, ...]
    benchmarks: str | None
    select: str | None
    margin: float | None
    alpha: float | None
    budget_s: float | None
    ledger: Path
    seed: int


class Listener(Protocol):
    """Is told between gates how a calibration stands."""

    def say(self, text: str) -> None:
        """Say what happens, or what a gate came to."""

    def tell(self, share: float) -> None:
        """Say which share of the gates is done."""


class _Quiet:
    """Hears what a gate tells, and passes nothing on: a calibration tells of whole gates."""

    def begin(self, title: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        pass


def run_calibrate(request: CalibrateRequest, *, project: Project, listener: Listener) -> Calibration:
    """Run the gates that are not in the calibration's ledger yet, and return what all of them say.

    The same command goes on where an interrupted one stopped: its finished gates are kept and known again.

    Raises:
        UsageError: there is nothing to rehearse, or a plant is out of range.
        RunInterruptedError: the person stopped it.
    """
    _check(request)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    gate = _gate_request(request)
    listener.say("collecting benchmarks")
    names = list_benchmarks(gate, project=project)
    if not names:
        raise UsageError("no benchmark that gates was found; widen --select or --benchmarks")
    cases = plan_cases(names, gates=request.gates, plants=request.plants, seed=request.seed)
    study = _study(request, project, names)
    done = finished_cases(ledger.rows(), study)
    left = [case for case in cases if case.number not in done]
    if done:
        listener.say(f"{len(cases) - len(left)} of {len(cases)} gates are done already")
    try:
        _run(left, gate, study, project, listener, total=len(cases))
    except (RunInterruptedError, KeyboardInterrupt):
        kept = len(finished_cases(ledger.rows(), study))
        raise RunInterruptedError(
            f"interrupted; {kept} of {len(cases)} gates are kept in {ledger.path}: the same command goes on"
        ) from None
    ledger.compact()
    found = calibration_of(ledger.rows(), study=study, planned=len(cases))
    if found is None:
        raise NotMeasuredError("no gate of the calibration could be run")
    return found


def _run(
    left: Sequence[Case], gate: GateRequest, study: str, project: Project, listener: Listener, *, total: int
) -> None:
    seconds: list[float] = []
    for number, case in enumerate(left):
        listener.tell((total - len(left) + number) / total)
        begun = time.monotonic()
        report = run_gate(_rehearse(gate, case, study), project=project, listener=_Quiet())
        seconds.append(time.monotonic() - begun)
        remaining = (len(left) - number - 1) * sum(seconds) / len(seconds)
        listener.say(
            f"gate {case.number} of {total}, {_describe(case)}: exit {report.exit_code},"
            f" {seconds[-1]:.0f} s; about {remaining / 60:.0f} min left"
        )


def _rehearse(gate: GateRequest, case: Case, study: str) -> GateRequest:
    label = {STUDY: study, CASE: str(case.number)}
    plants = {}
    if case.plant is not None and case.benchmark is not None:
        label |= {PLANT: repr(case.plant), PLANTED: case.benchmark}
        plants = {case.benchmark: case.plant}
    seed = gate.seed * 100_000 + case.number
    return dataclasses.replace(gate, seed=seed, rehearsal=Rehearsal(label=label, plants=plants))


def _gate_request(request: CalibrateRequest) -> GateRequest:
    return GateRequest(
        base=None,
        head=None,
        benchmarks=request.benchmarks,
        select=request.select,
        margin=request.margin,
        alpha=request.alpha,
        budget_s=request.budget_s,
        as_is=False,
        ledger=request.ledger,
        seed=request.seed,
        rehearsal=Rehearsal(label={}),
    )


def _study(request: CalibrateRequest, project: Project, names: Sequence[str]) -> str:
    """Return what tells one study from another: gates of different ones are never counted together."""
    config = project.config
    return fingerprint(
        {
            "commit": identical_sides(project.root).head.commit.sha,
            "machine": read_machine().machine_id,
            "benchmarks": "\n".join(names),
            "gates": str(request.gates),
            "plants": repr(request.plants),
            "margin": repr(request.margin or config.margin_share),
            "rules": repr(config.rules),
            "alpha": repr(request.alpha or config.gate.alpha),
            "budget": repr(request.budget_s or config.gate.seconds_per_benchmark),
            "seed": str(request.seed),
        }
    )


def _check(request: CalibrateRequest) -> None:
    if request.gates < 1:
        raise UsageError(f"--gates must be at least 1, found {request.gates}")
    for plant in request.plants:
        if plant >= _LARGEST_PLANT:
            raise UsageError(f"--plant must be below 100 %, found {100 * plant:g} %")


def _describe(case: Case) -> str:
    if case.plant is None:
        return "identical code"
    return f"{case.benchmark} +{100 * case.plant:g} %"
