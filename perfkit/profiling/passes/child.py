"""One pass in its own process: ``python -m perfkit.profiling.passes.child SPEC.json PROGRESS [TURNS]``."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.model import Environment, PassSummary
from perfkit.profiling.passes.exchange import (
    ASKING,
    DONE,
    STACK_FILE,
    STEPS_FILE,
    TURN_BYTES,
    WAITING,
    PassResult,
    PassSpec,
    Problem,
    RankPlace,
    read_spec,
    write_result,
)
from perfkit.profiling.passes.instruments import INSTRUMENTS, Instrument, own_code_of
from perfkit.profiling.passes.meter import EnoughSteps, Meter, import_torch
from perfkit.profiling.passes.target_code import (
    OwnCode,
    describe_exit,
    describe_failure,
    describe_internal_failure,
    redirect_hydra,
)
from perfkit.profiling.passes.targets import marked_code
from perfkit.runner.targets import CodeChange, LoadedTarget, load_target, prepare_process, wrong_code

_REPORT_EVERY_S = 0.5
_HYDRA_FOLDER = "hydra"
_THREADS = "OMP_NUM_THREADS"
_HERE = "127.0.0.1"
# Among them is a file to whose descriptor a handler of signals writes.
_kept_alive: list[object] = []


def main(spec_file: str, progress: int, turns: int | None = None) -> None:
    """Make the pass that a file describes, and leave the result in the pass's folder.

    The number of steps done is written to the descriptor ``progress``; with ``turns`` the loop reads from
    that descriptor how many steps its next turn has, and waits until it is told.
    """
    # Shared objects were frozen before the fork; a target expects a process whose objects can be collected.
    gc.unfreeze()
    spec = read_spec(Path(spec_file))
    if spec.rank_place is not None:
        become_rank(spec, spec.rank_place)
    reporter = Reporter(
        progress, turns, steps_file=Path(spec.folder) / STEPS_FILE if spec.rank_place else None
    )
    try:
        result = _make_pass(spec, reporter)
    except Exception as error:  # noqa: BLE001 (other passes may still work)
        result = PassResult(problem=describe_internal_failure(error))
    # Whatever still waits for a next step, such as the workers of a loader, is ended by this.
    gc.collect()
    write_result(result, Path(spec.folder))
    reporter.done()
    if spec.rank_place is not None:
        leave_rank()


class Reporter:
    """Tells the parent how many steps are done, at most twice a second; without a parent the pass ends.

    Where turns are given, it waits for the first before the loop begins, and for the next one after each.
    In ``steps_file`` it keeps the number of all steps so far, which is there to read when the loop hangs.
    """

    def __init__(self, descriptor: int, turns: int | None, *, steps_file: Path | None = None) -> None:
        self._kept = steps_file.open("wb", buffering=0) if steps_file is not None else None
        self._descriptor = descriptor
        self._turns = turns
        self._left = 0
        self._last_s = time.perf_counter()
        for inherited in (descriptor, turns):
            if inherited is not None:
                os.set_inheritable(inherited, False)  # noqa: FBT003 (positional only)

    def steps(self, count: int) -> bool:
        """Tell the number of steps, where it is time to, and whether the loop had to wait for its turn.

        Raises:
            EnoughSteps: the parent has ended.
        """
        if self._kept is not None:
            os.pwrite(self._kept.fileno(), str(count).encode(), 0)
        now_s = time.perf_counter()
        if now_s - self._last_s >= _REPORT_EVERY_S:
            self._last_s = now_s
            self._write(str(count))
        return self.wait()

    def wait(self) -> bool:
        """Count a step of the present turn; where that was its last, wait for the next turn.

        Raises:
            EnoughSteps: there will be no next turn.
        """
        self._left -= 1
        if self._turns is None or self._left > 0:
            return False
        self._write(WAITING)
        turn = os.read(self._turns, TURN_BYTES)
        if not turn:
            raise EnoughSteps
        self._left = int.from_bytes(turn, "little")
        return True

    def done(self) -> None:
        """Tell that the result is written."""
        self._write(DONE)

    def _write(self, word: str) -> None:
        try:
            os.write(self._descriptor, f"{word}\n".encode())
        except BrokenPipeError:
            raise EnoughSteps from None


def _make_pass(spec: PassSpec, reporter: Reporter) -> PassResult:
    import_torch()
    instrument = INSTRUMENTS[spec.name](spec)
    prepare_process(spec.target.place, spec.arguments, root=Path(spec.root))
    redirect_hydra(Path(spec.folder) / _HYDRA_FOLDER)
    # An earlier pass, which had no profiler, has counted the samples already.
    first = spec.known_steps is None
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

    meter = Meter(limit=instrument.step_limit, report=report, loaders=first, step_at=spec.step_at)
    meter.prepare()
    loaded = _load(spec, instrument)
    if isinstance(loaded, Problem):
        return PassResult(problem=_proven(loaded, spec), environment=_environment(spec))
    reporter.wait()
    summary = _watch(spec, instrument, loaded.call, meter)
    found = PassResult(version=loaded.version, environment=_environment(spec))
    if alone:
        return replace(found, problem=alone[0])
    problem = _proven(summary if isinstance(summary, Problem) else None, spec)
    if problem is not None:
        return replace(found, problem=problem, steps_before=meter.steps if problem is summary else 0)
    assert not isinstance(summary, Problem)  # noqa: S101 (that would be the problem)
    return _written(replace(found, summary=summary), summary, instrument, own_code_of(spec))


def _load(spec: PassSpec, instrument: Instrument) -> LoadedTarget | Problem:
    try:
        loaded = load_target(spec.target.place, change_code=_change_of_code(spec, instrument))
        instrument.prepare()
    except UsageError as error:
        return Problem(kind="usage", message=str(error))
    except BaseException as error:  # noqa: BLE001 (whatever the user's module does when imported)
        return _failure(error, spec)
    return loaded


def _change_of_code(spec: PassSpec, instrument: Instrument) -> CodeChange:
    """Return what makes the code to be run of a script's own."""
    step_at, script = spec.step_at, Path(spec.target.place)
    if step_at is None or not spec.target.is_script or os.path.realpath(script) != step_at.file:
        return instrument.change_code
    return lambda _: instrument.change_code(marked_code(step_at, script))


def _watch(
    spec: PassSpec, instrument: Instrument, call: Callable[[], object], meter: Meter
) -> PassSummary | Problem:
    """Run the target to its end, or to the step after which nothing more is asked of it."""
    result: object = None
    meter.start()
    try:
        result = instrument.run(call)
    except UsageError as error:
        return Problem(kind="usage", message=str(error))
    except EnoughSteps as enough:
        # The frames keep loaders alive, and these keep their workers.
        traceback.clear_frames(enough.__traceback__)
    except BaseException as error:  # noqa: BLE001 (whatever the user's code does)
        if not _is_normal_exit(error):
            return _failure(error, spec)
    return meter.finish(spec.name, result=result, profiled_from=instrument.profiled_from)


def _written(found: PassResult, summary: PassSummary, instrument: Instrument, own: OwnCode) -> PassResult:
    try:
        findings = instrument.write(summary, own)
    except NotMeasuredError as error:
        return replace(found, summary=None, problem=Problem(kind="failed", message=str(error)))
    return replace(
        found,
        entries=findings.entries,
        files=findings.files,
        balance=findings.balance,
        roles=findings.roles,
        lines=findings.lines,
        counts=findings.counts,
        memory=findings.memory,
    )


def _proven(problem: Problem | None, spec: PassSpec) -> Problem | None:
    """Return a pass's problem, or the one that its code is not the project's; a usage mistake comes first."""
    if problem is not None and problem.kind == "usage":
        return problem
    wrong = wrong_code(Path(spec.root))
    return Problem(kind="failed", message=wrong) if wrong else problem


def _failure(error: BaseException, spec: PassSpec) -> Problem:
    if isinstance(error, SystemExit):
        return describe_exit(error, spec.target.name)
    return describe_failure(error, spec.target.name, own_code_of(spec))


def _is_normal_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _environment(spec: PassSpec) -> Environment | None:
    """Return what the named reader says of this process, in which the target has set what it sets."""
    if spec.environment_reader is None:
        return None
    module, _, name = spec.environment_reader.partition(":")
    return cast("Environment", getattr(importlib.import_module(module), name)())


def become_rank(spec: PassSpec, place: RankPlace) -> None:
    """Set the environment of a rank, and answer the parent's question where it stands.

    Several ranks have one thread each unless the caller's environment says otherwise.
    """
    os.environ.update(_rank_variables(place))
    if place.ranks > 1 and _THREADS not in os.environ:
        os.environ[_THREADS] = "1"
        _limit_threads()
    stack = (Path(spec.folder) / STACK_FILE).open("w")
    faulthandler.register(ASKING, file=stack, all_threads=False)
    os.set_inheritable(stack.fileno(), False)  # noqa: FBT003 (positional only)
    _kept_alive.append(stack)


def leave_rank() -> NoReturn:
    """End the process as its interpreter would, but for the objects that are still alive.

    The group of ranks is one of them, and its end waits for threads that may need the interpreter for theirs.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 (there is no public name)
    for stream in (sys.stdout, sys.stderr):
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
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(place.port),
        "TORCHELASTIC_RUN_ID": "perfkit",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # The first rank holds the store itself: there is no agent that would.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _limit_threads() -> None:
    """Give torch one thread; a forked process has it imported already, and it reads the variable then."""
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    _, file, *descriptors = sys.argv
    main(file, *map(int, descriptors))
