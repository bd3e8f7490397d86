"""``perfkit doctor``: how steady this machine is, and which changes a gate could see on it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import RunInterruptedError
from perfkit.extras import is_installed
from perfkit.gating.aa_runs import judge_fitness
from perfkit.gating.design import gate_policy
from perfkit.gating.run import SameCodeRun, run_same_code
from perfkit.gating.sides import staged_launcher
from perfkit.model.calibration import Condition, Fitness
from perfkit.model.comparisons import Progress
from perfkit.report.gate.wording import after_waiting
from perfkit.runner.lock import measuring, who_measures
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.machine.conditions import read_conditions
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.temporary import temporary_folder

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
