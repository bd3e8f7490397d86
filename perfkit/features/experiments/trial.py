"""A trial: what its process is asked for and returns, and that process as its parent starts and ends it."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from perfkit.agent.imports import preloadable
from perfkit.features.experiments.records import OFF, Experiment, Fingerprint, Level
from perfkit.model import Environment
from perfkit.profiling.passes.exchange import Problem
from perfkit.profiling.passes.launch import WITH_OPTIMIZERS
from perfkit.profiling.passes.targets import Target
from perfkit.runner.commands import FAULTHANDLER, SAFE_PATH, Ending, fixed_environment
from perfkit.runner.requests import ANSWER, ForkServer, ForkServerLostError, Reply, ask
from perfkit.temporary import temporary_folder

Task = Literal["look", "time"]
_CHILD = "perfkit.features.experiments.child"
_SEEDS_OF_A_SERVER = 4
# What a parser of options does after its message, for one.
_ENDED_ITSELF = re.compile(r" exited with code \d+$")


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """What one process does with the variant of a ``number``: check its first steps, or time it."""

    task: Task
    target: Target
    experiment: Experiment
    number: int
    seed: int
    root: str
    own: tuple[str, ...] = ()
    folder: str = ""

    @property
    def arguments(self) -> list[dict[str, Level]]:
        """The arguments of every variant, which are all checked before anything runs."""
        experiment = self.experiment
        seeded = {experiment.seed_argument: self.seed} if experiment.seed_argument else {}
        given = [{**experiment.fixed, **seeded, **one.levels} for one in experiment.variants]
        return [
            {name: level for name, level in one.items() if name not in experiment.tricks} for one in given
        ]

    @property
    def tricks(self) -> tuple[str, ...]:
        """The tricks that the variant applies from outside."""
        levels = self.experiment.variants[self.number].levels
        return tuple(trick for name, trick in self.experiment.tricks.items() if levels.get(name) != OFF)


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What a process gave: the problem that kept it from its task, or what its task is for.

    ``settings`` are torch's flags at the end of the target, ``autocast`` the types of automatic casting in
    the first steps. ``version`` hashes the target's source. ``notes`` name responses that were left out.
    ``libraries`` are the modules of libraries that the process itself imported.
    """

    problem: Problem | None = None
    version: str = ""
    fingerprint: Fingerprint | None = None
    responses: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    autocast: tuple[str, ...] = ()
    environment: Environment | None = None
    notes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


class TrialProcesses:
    """Runs trials in processes forked from one that has imported torch, and what earlier trials imported.

    That process is replaced with every fourth seed, and with it the hash seed of all. Where nothing can be
    forked, each trial is a fresh interpreter. All trials have the variables of ``environment``.
    """

    def __init__(self, environment: Mapping[str, str], *, child: str = _CHILD) -> None:
        self._environment, self._child = environment, child
        self._imports: tuple[str, ...] = WITH_OPTIMIZERS
        self._stack = contextlib.ExitStack()
        self._server: ForkServer | None = None
        self._forks = sys.platform == "linux"
        self._seeds: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, spec: TrialSpec) -> TrialResult:
        """Do what ``spec`` asks and return the result, or the problem that ended it.

        The spec's folder is set here: a temporary one. No process of the trial outlives the call.
        """
        with temporary_folder() as folder:
            reply = self._reply(replace(spec, folder=str(folder)))
        if reply.ending.status is None:
            message = f"it took longer than {spec.experiment.limit_s:g} s, the experiment's limit"
            return TrialResult(problem=Problem(kind="failed", message=message, status="timeout"))
        if not reply.messages:
            return TrialResult(problem=_died(reply.ending))
        found = reply.messages[0]
        self.learn(found.libraries, Path(spec.root))
        return _with_last_words(found, reply.ending)

    def learn(self, libraries: Sequence[str], root: Path) -> None:
        """Have later trials forked from a process that has imported these libraries, too."""
        news = [name for name in preloadable(libraries, [root]) if name not in self._imports]
        if news and self._server is not None and self._forks:
            self._imports += tuple(news)
            with contextlib.suppress(ForkServerLostError):
                self._server.begin_preload(news)

    def _reply(self, spec: TrialSpec) -> Reply[TrialResult]:
        trial = functools.partial(
            ask,
            f"{_CHILD}:main",
            spec,
            TrialResult,
            limit_s=spec.experiment.limit_s,
            folder=Path(spec.root) / spec.experiment.folder,
            environment=fixed_environment(self._environment, hash_seed=spec.seed % 2**32),
        )
        with contextlib.suppress(ForkServerLostError):
            if server := self.server_for(spec.seed):
                return trial(server=server)
        return trial()

    def server_for(self, seed: int) -> ForkServer | None:
        """Return what a trial is forked from, None where that is impossible."""
        if self._forks and (self._server is None or len(self._seeds | {seed}) > _SEEDS_OF_A_SERVER):
            self._stack.close()
            self._seeds.clear()
            folder = self._stack.enter_context(temporary_folder())
            self._server = self._stack.enter_context(
                ForkServer.started(
                    ANSWER,
                    log=folder / "fork-server.log",
                    environment=fixed_environment(self._environment, hash_seed=seed % 2**32),
                    options=(*SAFE_PATH, *FAULTHANDLER),
                )
            )
            self._server.begin_preload([*self._imports, self._child])
            self._forks = self._server.why_no_fork() is None
        self._seeds.add(seed)
        return self._server if self._forks else None


def _with_last_words(found: TrialResult, ending: Ending) -> TrialResult:
    """Return a result with the last line of a target that ended itself by a number alone."""
    problem = found.problem
    if problem is None or not _ENDED_ITSELF.search(problem.message) or not ending.tail:
        return found
    message = f"{problem.message}, saying: {ending.tail[-1].strip()}"
    return replace(found, problem=replace(problem, message=message))


def _died(ending: Ending) -> Problem:
    """Return the message on a process that left no result."""
    return Problem(
        kind="failed",
        message=f"its process {ending.words}",
        status="oom" if ending.out_of_memory else "error",
        details="\n".join(ending.tail),
    )
