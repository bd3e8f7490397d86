"""Sizes of batches that fit in memory: doubled, each for a few steps, until one does not."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfkit.commands.measuring import measuring
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.experiments.records import Experiment, Factor, Level
from perfkit.features.experiments.trial import TrialProcesses, TrialSpec
from perfkit.model.progress import Progress
from perfkit.profiling.passes.targets import resolve_target
from perfkit.runner.machine.facts import free_memory
from perfkit.units import human_bytes

# The blocks have the rest of the budget.
_SHARE_OF_BUDGET = 0.5
# A batch that takes less than this more than half of it has all of the data.
_GROWTH = 1.01
# The first one, and the largest ones.
_MOST_LEVELS = 4


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """The sizes that fit, rising, and why no larger one is among them."""

    name: str
    sizes: tuple[int, ...]
    reason: str

    @property
    def levels(self) -> Sequence[Level]:
        """The sizes to compare: the first one, and the largest ones."""
        return (self.sizes[0], *self.sizes[1:][1 - _MOST_LEVELS :])

    @property
    def sentence(self) -> str:
        """The result in one line."""
        return f"{self.name}={self.sizes[-1]} is the largest that was seen to fit; {self.reason}"


def fitting_sizes(
    experiment: Experiment, name: str, *, project: Project, progress: Progress, wait_s: float | None = None
) -> Fitting:
    """Double the first level of a factor until it does not fit in memory, or half of the budget is used up.

    On the host, whose memory other processes need, a size that would take more than is free is not tried.

    Raises:
        UsageError: the target refuses an argument.
        NotMeasuredError: not even two sizes fit.
    """
    target = resolve_target(experiment.target, project, folder=project.root / experiment.folder)
    (first,) = (int(factor.levels[0]) for factor in experiment.factors if factor.name == name)
    rest = tuple(factor for factor in experiment.factors if factor.name != name)
    sizes: list[int] = []
    reason, peak, begun = "", 0, time.monotonic()
    with measuring(progress.info, wait_s=wait_s), TrialProcesses(os.environ) as processes:
        for size in (first << doublings for doublings in itertools.count()):
            progress.info(f"looking whether {name}={size} fits")
            one = replace(experiment, factors=(*rest, Factor(name=name, levels=(size,))))
            found = processes.run(
                TrialSpec(
                    task="look",
                    target=target,
                    experiment=one,
                    number=0,
                    seed=experiment.seed,
                    root=str(project.root),
                    own=project.config.own,
                )
            )
            if found.problem is not None and found.problem.kind == "usage":
                raise UsageError(found.problem.message)
            if found.problem is not None or found.fingerprint is None:
                message = found.problem.message if found.problem else "it showed nothing"
                reason = f"with {size}: {message}"
                break
            grown, peak = found.fingerprint.tensor_peak / max(peak, 1), found.fingerprint.tensor_peak
            if sizes and grown < _GROWTH:
                reason = f"with {size} a batch takes no more memory: the data has no larger one"
                break
            sizes.append(size)
            if time.monotonic() - begun > _SHARE_OF_BUDGET * experiment.budget_s:
                reason = f"{2 * size} was not tried: half of the budget is used up"
                break
            # An accelerator refuses what it cannot hold; the host ends processes.
            if not found.responses and 2 * peak > (free := free_memory()):
                reason = (
                    f"{2 * size} would take up to {human_bytes(2 * peak)}, and {human_bytes(free)} are free"
                )
                break
    if len(sizes) < 2:  # noqa: PLR2004 (a comparison needs two)
        raise NotMeasuredError(f"there are no two sizes of {name} to compare; {reason}")
    return Fitting(name=name, sizes=tuple(sizes), reason=reason)
