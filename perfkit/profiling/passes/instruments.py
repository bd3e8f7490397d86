"""The ways to watch one call of a target, each with the files and numbers that it gives."""

from __future__ import annotations

import csv
import functools
import os
import pstats
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.agent.counters.calls import profile_of_this_thread
from perfkit.agent.counters.model import with_texts
from perfkit.agent.counters.tensors import TensorWatch
from perfkit.agent.training import COUNTED_STEP, last_iterations
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.model import PassSummary, RoleProfile
from perfkit.model.readings import MARK, OPTIMIZER
from perfkit.phases import listen_to_phases
from perfkit.profiling.passes.balance import (
    PhaseClock,
    choose_clock,
    hook_collectives,
    hook_libraries,
    hook_torch,
)
from perfkit.profiling.passes.exchange import PassResult, PassSpec
from perfkit.profiling.passes.functions import (
    FunctionLines,
    filtered_text,
    full_text,
    line_times,
    lines_text,
    portable,
    read_entries,
)
from perfkit.profiling.passes.memory import MemoryWatch, PeakWatch
from perfkit.profiling.passes.meter import EnoughSteps, Meter
from perfkit.profiling.passes.target_code import OwnCode, find_own_code
from perfkit.profiling.passes.workers import (
    end_workers,
    fetch_times,
    profile_workers,
    profiles_of_workers,
    time_workers,
)
from perfkit.units import counted

if TYPE_CHECKING:
    import torch

_REPEATED = 2
# The memory pass looks at all new objects after each step: this many steps show growth, and more take long.
_MEMORY_STEPS, _MOST_MEMORY_STEPS = 12, 50
_ACTIVE_STEPS = 3
_FULL_WINDOW = 5
_MICROSECOND = 1e-6
_STEP_MARK = "ProfilerStep"
_COLUMNS = (
    *("operator", "calls", "calls_per_step", "self_cpu_s", "cpu_s", "self_cpu_s_per_step"),
    *("self_device_s", "device_s"),
)
_Call = Callable[[], object]


class Clean:
    """Watches nothing; other instruments override what they need."""

    profiled_from = 0
    meter: Meter

    def __init__(self, spec: PassSpec) -> None:
        self.step_limit = spec.steps

    def change_code(self, code: types.CodeType) -> types.CodeType:
        """Return the code of a script as it is to be run."""
        return code

    def prepare(self) -> None:
        """Do what must wait until the target's modules can be imported."""

    def run(self, call: _Call) -> object:
        """Call, watched, and return what the call returned."""
        return call()

    def end_step(self) -> None:
        """Note that a step is done."""

    def start_step(self) -> None:
        """Note that the loop goes on."""

    def extend_step(self) -> None:
        """Note that the last step is over only now."""

    def write(self, summary: PassSummary) -> PassResult:
        """Write the artifacts of the pass, and return their names and what was found."""
        return PassResult(summary=summary)


class _BalanceWatch(Clean):
    """Watches where each step spends its time, by hooks at the places that every loop passes."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        self._folder = Path(spec.folder)
        self._memory = PeakWatch()
        self._clock = PhaseClock(choose_clock, self._memory.change)
        hook_torch(self._clock)
        self._are_outermost: list[bool] = []
        watch_optimizers(self._enter_optimizer, self._leave_optimizer)
        if spec.rank_place is not None:
            hook_collectives(self._clock)
        time_workers(self._folder)

    def run(self, call: _Call) -> object:
        """Call, and note the phases that the user names too."""
        listen_to_phases(self._clock)
        self.meter.periods.now = self._clock.bookmark
        self.start_step()
        return call()

    def end_step(self) -> None:
        self._clock.end_step()

    def _enter_optimizer(self) -> None:
        self._are_outermost.append(self._clock.begin(OPTIMIZER))

    def _leave_optimizer(self) -> None:
        if self._are_outermost.pop():
            self._clock.end()

    def extend_step(self) -> None:
        self._clock.extend_step()

    def start_step(self) -> None:
        """Begin a step, and set hooks in libraries that have been imported meanwhile."""
        hook_libraries(self._clock)
        self._clock.start_step()

    def write(self, summary: PassSummary) -> PassResult:
        """Return the phases, and how fast the loader's workers could have been."""
        end_workers()
        times = fetch_times(self._folder)
        batch_s = times.batch_s if times else None
        # Loaders that a step takes several batches of have these made side by side; gradients may add up too.
        trained = self.meter.periods.batches
        loader_s = batch_s * trained / summary.steps if batch_s and trained and summary.steps else None
        return PassResult(
            summary=summary,
            balance=replace(
                self._clock.balance(self.meter.cuts), loader_s=loader_s, memory=self._memory.phases()
            ),
        )


class _StepCounts(Clean):
    """Counts what repeats to the digit in the first steps, and ends the target after them."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        self.step_limit = min(COUNTED_STEP, spec.steps or COUNTED_STEP)
        self._root = Path(spec.root)
        self._watch: TensorWatch | None = None

    def run(self, call: _Call) -> object:
        with TensorWatch(self._root) as self._watch:
            return call()

    def end_step(self) -> None:
        if self._watch is not None:
            self._watch.end_iteration()

    def write(self, summary: PassSummary) -> PassResult:
        """Return the counts of the last two steps, None where there were too few to stand for the loop."""
        if self._watch is None or summary.steps < (self.step_limit or COUNTED_STEP):
            return PassResult(summary=summary)
        counts = with_texts(self._watch.counts(), self._root)
        return PassResult(summary=summary, counts=last_iterations(counts, _REPEATED))


class _CProfile(Clean):
    """Watches every Python function of this thread, and each of a loader's workers by itself."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        self._spec, self._place = spec, Path(spec.folder) / spec.artifact
        self._profiler = profile_of_this_thread()
        os.register_at_fork(after_in_child=self._profiler.disable)
        profile_workers(self._place.parent)

    def run(self, call: _Call) -> object:
        """Call under cProfile: the target's own frame is the outermost one of the profile."""
        _refuse_another_profiler()
        self._profiler.enable()
        try:
            return call()
        finally:
            self._profiler.disable()

    def write(self, summary: PassSummary) -> PassResult:
        """Write the profile, its text, the text of the user's own code, and the profiles of workers."""
        binary, text, filtered = (f"{self._place.name}{end}" for end in (".stat", ".txt", "_filtered.txt"))
        stats, own = pstats.Stats(self._profiler), own_code_of(self._spec)
        portable(stats, own).dump_stats(self._place.with_name(binary))
        self._place.with_name(text).write_text(full_text(stats, own), encoding="utf-8")
        self._place.with_name(filtered).write_text(filtered_text(stats, own), encoding="utf-8")
        roles = self._write_workers(own)
        return PassResult(
            summary=summary,
            files=(binary, text, filtered, *(role.file for role in roles)),
            entries=read_entries(stats, own),
            roles=roles,
        )

    def _write_workers(self, own: OwnCode) -> tuple[RoleProfile, ...]:
        end_workers()
        roles = []
        for role, stats in profiles_of_workers(self._place.parent).items():
            file = f"{self._place.name}.{role}.stat"
            portable(stats, own).dump_stats(self._place.with_name(file))
            total_s = float(stats.total_tt)  # type: ignore[attr-defined]
            roles.append(RoleProfile(role=role, file=file, total_s=total_s, entries=read_entries(stats, own)))
        return tuple(roles)


class TorchProfile(Clean):
    """Watches operators and device kernels during a window of steps, and ends the target after it."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        self._place = Path(spec.folder) / spec.artifact
        self._all = spec.trace_all or spec.known_steps == 0
        steps = [count for count in (spec.steps, spec.known_steps) if count is not None]
        self._window = choose_window(min(steps, default=None))
        self._last = spec.steps if self._all else self._window.end
        self._steps = 0
        # The target ends in _end_step, once the trace has closed its step.
        self.step_limit = None
        self.profiled_from = 0 if self._all else self._window.begin
        self._profiler = self._new_profiler()
        self._is_running = self._is_in_optimizer = self._is_due = False
        # The first optimizer of a class fixes what its steps call, and a module may make one when imported.
        watch_optimizers(self._enter_optimizer, self._leave_optimizer)

    def run(self, call: _Call) -> object:
        """Call under torch.profiler, with the phases that the user names as ranges of the trace."""
        listen_to_phases(PhaseMarks())
        self._is_running = True
        with self._profiler:
            return call()

    def write(self, summary: PassSummary) -> PassResult:
        """Write the trace and the table of operators."""
        watched = summary.steps - self.profiled_from
        if watched <= 0 and not self._all:
            raise NotMeasuredError(
                f"the torch pass saw {summary.steps} optimizer steps, and keeps them only from step"
                f" {self.profiled_from + 1} on; use --trace-all, or make the clean pass as well"
            )
        trace, operators = f"{self._place.name}.trace.json.gz", f"{self._place.name}_ops.csv"
        try:
            self._profiler.export_chrome_trace(str(self._place.with_name(trace)))
        except (AssertionError, RuntimeError, OSError) as error:
            steps = counted(self._steps, "optimizer step")
            raise NotMeasuredError(
                f"torch.profiler could not write the trace of {steps} ({error});"
                " choose --passes without torch to have the other passes"
            ) from error
        write_operators(self._profiler.key_averages(), self._place.with_name(operators), steps=watched)
        return PassResult(summary=summary, files=(trace, operators))

    def end_step(self) -> None:
        """End a step of the trace, behind the range of the optimizer in which that is noticed."""
        if self._is_in_optimizer:
            self._is_due = True
        else:
            self._end_step()

    def _enter_optimizer(self) -> None:
        self._is_in_optimizer = True

    def _leave_optimizer(self) -> None:
        self._is_in_optimizer = False
        if self._is_due:
            self._is_due = False
            self._end_step()

    def _end_step(self) -> None:
        if not self._is_running:
            return
        self._steps += 1
        self._profiler.step()
        if self._last is not None and self._steps >= self._last:
            raise EnoughSteps

    def _new_profiler(self) -> torch.profiler.profile:
        import torch

        if self._all:
            return torch.profiler.profile(schedule=lambda _: torch.profiler.ProfilerAction.RECORD)
        window = self._window
        with warnings.catch_warnings():
            # A loop of one step has no step to spare for the warm-up.
            warnings.simplefilter("ignore")
            plan = torch.profiler.schedule(
                wait=window.wait, warmup=window.warmup, active=window.active, repeat=1
            )
        return torch.profiler.profile(schedule=plan)


class _LineProfile(Clean):
    """Times each line of the named functions; workers forked from this process are left alone."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        self._place = Path(spec.folder) / spec.artifact
        self._functions = FunctionLines(spec.lines, spec.target, spec.line_entries)
        self._spec = spec

    def change_code(self, code: types.CodeType) -> types.CodeType:
        """Return the script's code with the named functions in it made known to the profiler."""
        return self._functions.watch(code)

    def prepare(self) -> None:
        self._functions.watch_imported()
        self._functions.watch_profiled(own_code_of(self._spec))

    def run(self, call: _Call) -> object:
        os.register_at_fork(after_in_child=self._functions.profiler.disable)
        return self._functions.profiler.runcall(call)

    def write(self, summary: PassSummary) -> PassResult:
        """Write the tables of lines, with times in milliseconds a step, or in all where no step was seen."""
        name = f"{self._place.name}_lines.txt"
        own = own_code_of(self._spec)
        each = f"a step, of {summary.steps}" if summary.steps else "in all"
        tables = lines_text(self._functions.profiler, own, steps=summary.steps)
        text = f"Times are in milliseconds {each}; hits are all of them.\n\n{tables}"
        self._place.with_name(name).write_text(text, encoding="utf-8")
        lines = line_times(self._functions.profiler, own)
        return PassResult(summary=summary, files=(name,), lines=lines)


class MemoryByLine(Clean):
    """Watches which lines allocate memory in the first steps, and ends the target after them."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        self.step_limit = min(spec.steps or _MEMORY_STEPS, _MOST_MEMORY_STEPS)
        self._spec = spec
        self._watch: MemoryWatch | None = None

    def run(self, call: _Call) -> object:
        """Call, and watch tensors and Python's objects; a run without a step is watched as one."""
        own = own_code_of(self._spec)
        with MemoryWatch(Path(self._spec.root), own) as self._watch:
            result = call()
            self._watch.end_run()
            return result

    def end_step(self) -> None:
        """Note what the step allocated, and what is alive after it."""
        if self._watch is not None:
            self._watch.end_step()

    def write(self, summary: PassSummary) -> PassResult:
        """Write the table of lines."""
        if self._watch is None:
            return PassResult(summary=summary)
        from perfkit.report.memory import memory_text

        found = self._watch.memory()
        name = f"{self._spec.artifact}_memory.txt"
        (Path(self._spec.folder) / name).write_text(memory_text(found), encoding="utf-8")
        return PassResult(summary=summary, files=(name,), memory=found)


def _refuse_another_profiler() -> None:
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = monitoring.get_tool(monitoring.PROFILER_ID) if monitoring else None
    found = tool or sys.getprofile()
    if found is not None:
        raise UsageError(
            f"another profiler is active in this process ({found}); end it before the target begins, or"
            " choose --passes without cprofile"
        )


def own_code_of(spec: PassSpec) -> OwnCode:
    """Return what the user's own code is, in the process of the pass."""
    script = Path(spec.target.place) if spec.target.is_script else None
    return find_own_code(spec.own, root=Path(spec.root), script=script)


INSTRUMENTS: dict[str, Callable[[PassSpec], Clean]] = {
    "clean": Clean,
    "balance": _BalanceWatch,
    "counts": _StepCounts,
    "cprofile": _CProfile,
    "torch": TorchProfile,
    "lines": _LineProfile,
    "memory": MemoryByLine,
}


@dataclass(frozen=True, kw_only=True)
class Window:
    """Steps that pass unwatched, then steps that warm the profiler up, then steps that it keeps."""

    wait: int
    warmup: int
    active: int

    @property
    def begin(self) -> int:
        """Number of steps before the first one kept."""
        return self.wait + self.warmup

    @property
    def end(self) -> int:
        """Number of steps after which the run can stop."""
        return self.begin + self.active


class PhaseMarks:
    """Marks the phases that the user names as ranges in a trace, each on the thread that it is in."""

    def __init__(self) -> None:
        self._here = _Ranges()

    def enter(self, name: str) -> None:
        """Begin a range."""
        from torch.profiler import record_function

        mark: Any = record_function(f"{MARK}{name}")
        mark.__enter__()
        self._here.open.append((name, mark))

    def leave(self, name: str) -> None:
        """End the last range of that name, and what is still open in it."""
        if all(name != begun for begun, _ in self._here.open):
            return
        while self._here.open:
            begun, mark = self._here.open.pop()
            mark.__exit__(None, None, None)
            if begun == name:
                return


class _Ranges(threading.local):
    """The open ranges of each thread."""

    def __init__(self) -> None:
        self.open: list[tuple[str, Any]] = []


def choose_window(steps: int | None) -> Window:
    """Return the window for a loop of ``steps`` optimizer steps (None: not known, assumed to be enough)."""
    if steps is None or steps >= _FULL_WINDOW:
        return Window(wait=1, warmup=1, active=_ACTIVE_STEPS)
    return Window(wait=0, warmup=int(steps > 1), active=max(1, steps - 1))


def watch_optimizers(enter: Callable[[], None], leave: Callable[[], None]) -> None:
    """Have ``enter`` and ``leave`` called around an optimizer's whole ``step``, and not in its own hooks.

    These run inside of its range in a trace: a step of the trace that ended in one would overlap that. To
    open and close the range can take a twentieth of the step's time.
    """
    from torch.optim import Optimizer

    hook_step = Optimizer.profile_hook_step

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = hook_step(function)

        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (an optimizer's own signature)
            enter()
            result = hooked(*args, **kwargs)
            leave()
            return result

        return step

    Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[method-assign,assignment]


def write_operators(totals: Iterable[Any], file: Path, *, steps: int) -> None:
    """Write one line an operator of torch.profiler, costliest first, in seconds over the watched steps."""
    operators = sorted(
        (total for total in totals if not total.key.startswith(_STEP_MARK)),
        key=lambda total: -(total.self_cpu_time_total + total.self_device_time_total),
    )
    on_device = any(total.device_time_total for total in operators)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for total in operators:
            self_cpu_s = total.self_cpu_time_total * _MICROSECOND
            numbers = (
                total.count / steps if steps else None,
                self_cpu_s,
                total.cpu_time_total * _MICROSECOND,
                self_cpu_s / steps if steps else None,
                total.self_device_time_total * _MICROSECOND if on_device else None,
                total.device_time_total * _MICROSECOND if on_device else None,
            )
            cells = ("" if number is None else f"{number:.9g}" for number in numbers)
            writer.writerow([total.key, total.count, *cells])
