"""One pass in a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import io
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import NoReturn, cast

from perfkit.agent.channel import ChannelClosedError
from perfkit.errors import NotMeasuredError
from perfkit.model import Environment, PassSummary
from perfkit.profiling.passes.exchange import (
    ASKING,
    ENDING,
    HERE,
    STACK_FILE,
    PassNews,
    PassResult,
    PassSpec,
    Problem,
    RankPlace,
    make_change,
)
from perfkit.profiling.passes.instruments import INSTRUMENTS, Clean, own_code_of
from perfkit.profiling.passes.meter import EnoughSteps, Meter, import_torch, until_enough
from perfkit.profiling.passes.samples import LineSamples
from perfkit.profiling.passes.target_code import describe_failure, describe_internal_failure, redirect_hydra
from perfkit.profiling.passes.targets import marked_code
from perfkit.runner.requests import Parent
from perfkit.runner.targets import load_target, prepare_process, wrong_code

_REPORT_EVERY_S = 0.5
_HYDRA_FOLDER = "hydra"
_THREADS = "OMP_NUM_THREADS"
# Among them is a file to whose descriptor a handler of signals writes.
_kept_alive: list[object] = []


def main(request: PassSpec, parent: Parent) -> None:
    """Make the pass that was requested, and send its steps and its result."""
    if request.rank_place is not None:
        become_rank(request, request.rank_place)
    reporter = Reporter(parent, request)
    try:
        result = _make_pass(request, reporter)
    except Exception as error:  # noqa: BLE001 (other passes may still work)
        result = PassResult(problem=describe_internal_failure(error))
    # What still waits for a next step, such as the workers of a loader, is ended by this.
    gc.collect()
    reporter.send(PassNews(result=result))
    if request.rank_place is None:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 (there is no public name)
    leave()


class Reporter:
    """Sends the parent the number of steps, at most twice a second; without a parent the pass ends.

    The steps of a rank are sent at once, so that they are known when it hangs.
    """

    def __init__(self, parent: Parent, spec: PassSpec) -> None:
        self._parent, self._by_turns = parent, spec.by_turns
        self._every_s = _REPORT_EVERY_S if spec.rank_place is None else 0.0
        self._left = 0
        self._last_s = time.perf_counter()

    def steps(self, count: int) -> bool:
        """Send the number of steps if it is time to; return whether the loop had to wait for its turn."""
        now_s = time.perf_counter()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self.send(PassNews(steps=count))
        return self.wait()

    @property
    def ends_turn(self) -> bool:
        """Whether the present step is the last one of a turn."""
        return self._by_turns and self._left <= 1

    def wait(self) -> bool:
        """Count a step of the present turn; after its last one, wait for the next turn."""
        self._left -= 1
        if not self._by_turns or self._left > 0:
            return False
        self.send(PassNews(waits=True))
        try:
            self._left = self._parent.receive(int)
        except ChannelClosedError:
            raise EnoughSteps from None
        return True

    def send(self, news: PassNews) -> None:
        """Send a message; without a parent the pass ends."""
        try:
            self._parent.send(news)
        except ChannelClosedError:
            raise EnoughSteps from None


def _make_pass(spec: PassSpec, reporter: Reporter) -> PassResult:
    import_torch()
    instrument = (LineSamples if spec.samples else INSTRUMENTS[spec.name])(spec)
    if spec.trial is not None:
        make_change(spec.trial)
    prepare_process(spec.target.place, spec.arguments, root=Path(spec.root))
    redirect_hydra(Path(spec.folder) / _HYDRA_FOLDER)
    alone: list[Problem] = []

    def report(count: int) -> bool:
        instrument.end_step()
        if spec.rank_place is not None and count == 1:
            alone.extend(filter(None, [no_group(spec.rank_place, spec.target.name)]))
            if alone:
                raise EnoughSteps
        waited = reporter.steps(count)
        instrument.start_step()
        return waited

    # Where an earlier pass, which had no profiler, has counted the samples, loaders need not be watched.
    first = spec.known_steps is None
    meter = Meter(
        limit=instrument.step_limit,
        report=report,
        loaders=first or spec.name == "balance",
        unit=spec.unit,
        extend=instrument.extend_step,
        limit_s=spec.limit_s,
    )
    instrument.meter = meter
    meter.prepare()
    version, summary = _run_target(spec, instrument, reporter, meter)
    found = PassResult(version=version, environment=_environment(spec), unit=meter.found())
    if alone:
        return replace(found, problem=alone[0])
    if isinstance(summary, Problem) and summary.kind == "usage":
        return replace(found, problem=summary, steps_before=meter.steps)
    if wrong := wrong_code(Path(spec.root)):
        return replace(found, problem=Problem(kind="failed", message=wrong))
    if isinstance(summary, Problem):
        return replace(found, problem=summary, steps_before=meter.steps)
    try:
        written = instrument.write(summary)
    except NotMeasuredError as error:
        return replace(found, problem=Problem(kind="failed", message=str(error)))
    return replace(written, version=version, environment=found.environment, unit=found.unit)


def _run_target(
    spec: PassSpec, instrument: Clean, reporter: Reporter, meter: Meter
) -> tuple[str, PassSummary | Problem]:
    """Run the target to its end, or to the step after which nothing more is asked of it."""

    def change_code(code: CodeType) -> CodeType:
        step_at, script = spec.unit.line, Path(spec.target.place)
        if step_at is not None and spec.target.is_script and os.path.realpath(script) == step_at.file:
            code = marked_code(step_at, script)
        return instrument.change_code(code)

    result: object = None
    version, started = "", False
    try:
        loaded = load_target(spec.target.place, change_code=change_code)
        instrument.prepare()
        version = loaded.version
        reporter.wait()
        started = True
        with until_enough():
            signal.signal(ENDING, functools.partial(_end_now, meter))
            meter.start()
            result = instrument.run(loaded.call)
    except EnoughSteps:
        raise
    except BaseException as error:  # noqa: BLE001 (any error of the user's code)
        if not (started and isinstance(error, SystemExit) and error.code in (None, 0)):
            return version, describe_failure(error, spec.target.name, functools.partial(own_code_of, spec))
    finally:
        signal.signal(ENDING, signal.SIG_IGN)
    return version, meter.finish(spec.name, result=result, profiled_from=instrument.profiled_from)


def _end_now(meter: Meter, *_: object) -> NoReturn:
    """End the target where it stands: what was measured until now is reported."""
    signal.signal(ENDING, signal.SIG_IGN)
    meter.ended = "interrupted"
    raise EnoughSteps


def _environment(spec: PassSpec) -> Environment | None:
    if spec.environment_reader is None:
        return None
    module, _, name = spec.environment_reader.partition(":")
    return cast("Environment", getattr(importlib.import_module(module), name)())


def become_rank(spec: PassSpec, place: RankPlace) -> None:
    """Set the environment of a rank, and answer the parent's question where it stands."""
    os.environ.update(_rank_variables(place))
    if place.ranks > 1 and _THREADS not in os.environ:
        os.environ[_THREADS] = "1"
        import torch

        torch.set_num_threads(1)
    stack = (Path(spec.folder) / STACK_FILE).open("w")
    faulthandler.register(ASKING, file=stack, all_threads=False)
    os.set_inheritable(stack.fileno(), False)  # noqa: FBT003 (positional only)
    _kept_alive.append(stack)


def leave() -> NoReturn:
    """End the process as its interpreter would, but for the objects that are still alive.

    Taking torch apart takes a second. The end of a group of ranks waits for threads that may need the
    interpreter for theirs.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 (there is no public name)
    text, binary = io.TextIOWrapper, io.BufferedWriter
    files = [one for one in gc.get_objects() if type(one) is text or type(one) is binary]
    for stream in (*files, sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def no_group(place: RankPlace, name: str) -> Problem | None:
    """Return the mistake of ranks that train without each other, None where they form one group.

    The group is kept alive from then on: where the loop's last object that knows it goes, with torch 2.13 and
    gloo, its end can wait for a thread that itself waits for the interpreter's lock, for ever.
    """
    import torch.distributed as dist

    if not dist.is_available():
        message = "this torch was built without torch.distributed: no ranks can meet; install another build"
    elif not dist.is_initialized():
        message = (
            f"{name} made a step without torch.distributed.init_process_group: its {place.ranks} ranks would"
            " train by themselves; call that first, or profile one process without --ranks"
        )
    elif dist.get_world_size() != place.ranks:
        message = (
            f"{name} made a group of {dist.get_world_size()} ranks, and {place.ranks} were started; let"
            " init_process_group take the size from the environment (WORLD_SIZE), or change --ranks"
        )
    else:
        _kept_alive.append(dist.group.WORLD)
        return None
    return Problem(kind="usage", message=message)


def _rank_variables(place: RankPlace) -> dict[str, str]:
    rank, ranks = str(place.rank), str(place.ranks)
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "ROLE_RANK": rank,
        "GROUP_RANK": "0",
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "ROLE_WORLD_SIZE": ranks,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": HERE,
        "MASTER_PORT": str(place.port),
        "TORCHELASTIC_RUN_ID": "perfkit",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # The first rank holds the store itself: there is no agent that would.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
