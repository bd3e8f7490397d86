"""Memory of a loop: by allocating line, of tensors and Python's objects, and by phase on an accelerator."""

from __future__ import annotations

import contextlib
import gc
import linecache
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import perfkit.agent
from perfkit.agent.clock import accelerator_in_use
from perfkit.agent.counters.interventions import undone_in_forks
from perfkit.agent.counters.memory import Memory, SavedTensors
from perfkit.agent.counters.model import Amounts, Places
from perfkit.agent.counters.syncs import Syncs, Watching
from perfkit.agent.counters.tensors import Dispatched
from perfkit.agent.counters.torch_adapter import CompiledCode
from perfkit.model import LineMemory, MemoryProfile
from perfkit.model.readings import PhaseMemory
from perfkit.profiling.passes.target_code import OwnCode, is_harness

# A line of one's own is rarely further than this many calls from what allocates, and each costs memory.
_FRAMES = 16
# Of each order, by bytes a step, by bytes that stay and by growth, this many lines are kept.
_MOST_LINES = 100
_AGENT = Path(perfkit.agent.__file__).parent
_Whose = Literal["perfkit", "own", "library"]
_ALLOCATED, _RESERVED = ("allocated_bytes", "all", "peak"), ("reserved_bytes", "all", "peak")
_UNUSABLE, _RETRIES = ("inactive_split_bytes", "all", "current"), ("num_alloc_retries",)


class MemoryWatch:
    """Notes in each step what lines allocate and what of it is alive, between ``with`` and the last step.

    All garbage is collected at the end of a step, so that what seems to stay can still be reached.
    """

    def __init__(self, root: Path, own: OwnCode) -> None:
        self._root = root
        self._watching = Watching()
        places = Places(root)
        self._memory, self._syncs = Memory(), Syncs(places)
        saved = SavedTensors(places, self._memory, self._watching)
        self._operators = Dispatched(self._watching, places, self._memory, self._syncs, saved)
        self._python = _PythonMemory(own)
        self._allocated: list[Amounts] = []
        self._alive: list[Amounts] = []
        self._of_run = False
        self._is_compiled = False
        self._around = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as around:
            around.enter_context(undone_in_forks(self._leave_process))
            around.enter_context(CompiledCode(self._meet_compiled_code).noticed())
            self._operators.begin()
            around.callback(self._operators.end)
            # Only new garbage is looked at after each step.
            gc.collect()
            gc.freeze()
            around.callback(gc.unfreeze)
            around.callback(self._python.end)
            self._around = around.pop_all()
        self._watching.on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._watching.on = False
        self._around.close()

    def end_step(self) -> None:
        """End a step and begin the next one."""
        self._watching.on = False
        _clear_lookups()
        gc.collect()
        self._allocated.append(self._memory.allocated())
        self._alive.append(self._memory.alive())
        self._memory.forget_changes()
        self._syncs.forget()
        self._operators.forget()
        self._python.end_step()
        self._watching.on = not self._is_compiled

    def end_run(self) -> None:
        """Take the whole run for one step, where no step was seen."""
        if not self._alive:
            self._of_run = True
            self.end_step()
            self._python.not_seen = "Python's objects, since no step ended"

    def memory(self) -> MemoryProfile:
        """Return what was seen of each line, those with most bytes first."""
        lines = [self._with_text(line) for line in (*self._tensors(), *self._python.lines())]
        missing = [self._python.not_seen] if self._python.not_seen else []
        if self._is_compiled:
            missing.insert(0, "tensors from where compiled code began to run")
        return MemoryProfile(
            steps=0 if self._of_run else len(self._alive),
            lines=_largest(lines),
            peak=tuple(self._python.peak),
            not_seen="; ".join(missing),
        )

    def _tensors(self) -> Iterator[LineMemory]:
        operators: dict[str, Counter[str]] = {}
        for amounts in (*self._allocated, *self._alive):
            for (what, place), nbytes in amounts.items():
                operators.setdefault(place, Counter())[what] += nbytes
        allocated, alive = (
            [_by_place(amounts) for amounts in step] for step in (self._allocated, self._alive)
        )
        for place, names in operators.items():
            yield LineMemory(
                kind="tensors",
                place=place,
                what=names.most_common(1)[0][0],
                allocated=tuple(step[place] for step in allocated),
                alive=tuple(step[place] for step in alive),
            )

    def _with_text(self, line: LineMemory) -> LineMemory:
        file, _, number = line.place.rpartition(":")
        text = linecache.getline(str(self._root / file), int(number)).strip() if number.isdigit() else ""
        return replace(line, text=text)

    def _meet_compiled_code(self) -> None:
        if self._watching.on and self._watching.is_here():
            self._watching.on = False
            self._is_compiled = True
            self._operators.end()

    def _leave_process(self) -> None:
        self._watching.on = False
        self._python.end()


def _clear_lookups() -> None:
    """Clear the interpreter's cache of attributes, which keeps the names that were looked up last.

    Torch makes such a name anew at each operator that this watch sees, in the line that called it: until the
    cache is full, that line seems to keep some of them in each step.
    """
    clear = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()


class _PythonMemory:
    """The living objects of Python by line, as tracemalloc knows them.

    They are traced from the end of the first step on: traced imports, and all that they leave, take minutes.
    """

    def __init__(self, own: OwnCode) -> None:
        self._own = own
        self._alive: list[Counter[str]] = []
        self._files: dict[str, tuple[_Whose, str]] = {}
        self.peak: list[int] = []
        self.not_seen = ""
        self._is_begun = False

    def end_step(self) -> None:
        if not self._alive:
            self._begin()
            return
        if not tracemalloc.is_tracing():
            self.not_seen = "Python's objects, since the target stopped tracemalloc"
            self._alive.append(Counter())
            return
        self.peak.append(tracemalloc.get_traced_memory()[1])
        alive: Counter[str] = Counter()
        for one in tracemalloc.take_snapshot().statistics("traceback"):
            place = self._place(one.traceback)
            if place is not None:
                alive[place] += one.size
        self._alive.append(alive)
        tracemalloc.reset_peak()

    def end(self) -> None:
        if self._is_begun:
            tracemalloc.stop()

    def _begin(self) -> None:
        self._alive.append(Counter())
        if not tracemalloc.is_tracing():
            self._is_begun = True
            tracemalloc.start(_FRAMES)

    def lines(self) -> Iterator[LineMemory]:
        for place in dict.fromkeys(place for step in self._alive for place in step):
            yield LineMemory(kind="Python", place=place, alive=tuple(step[place] for step in self._alive))

    def _place(self, frames: Sequence[tracemalloc.Frame]) -> str | None:
        for frame in reversed(frames):
            kind, shown = self._file(frame.filename)
            if kind == "perfkit":
                return None
            if kind == "own":
                return f"{shown}:{frame.lineno}"
        innermost = frames[-1]
        return f"{self._file(innermost.filename)[1]}:{innermost.lineno}"

    def _file(self, name: str) -> tuple[_Whose, str]:
        known = self._files.get(name)
        if known is None:
            ours = is_harness(name) or Path(name).is_relative_to(_AGENT)
            kind: _Whose = "perfkit" if ours else "own" if self._own.owns(name) else "library"
            known = self._files[name] = (kind, self._own.shown(name))
        return known


def _by_place(amounts: Amounts) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, place), nbytes in amounts.items():
        found[place] += nbytes
    return found


def _largest(lines: Sequence[LineMemory]) -> tuple[LineMemory, ...]:
    by_size = sorted(lines, key=lambda line: (-(line.step_bytes or 0.0), -line.stays_bytes, line.place))
    kept = {id(line) for line in by_size[:_MOST_LINES]}
    for order in (lambda line: line.stays_bytes, lambda line: line.growth_bytes):
        kept.update(map(id, sorted(lines, key=order, reverse=True)[:_MOST_LINES]))
    return tuple(line for line in by_size if id(line) in kept)


def allocator_in_use() -> Any:  # noqa: ANN401 (torch.cuda or torch.xpu)
    """Return the allocator of the accelerator in use; None where there is none that keeps count."""
    device = accelerator_in_use()
    module = None if device is None else device.module
    return module if hasattr(module, "memory_stats_as_nested_dict") else None


class PeakWatch:
    """Reads an allocator's peaks at each change of the phase, and resets them: each phase has its own."""

    def __init__(self, find: Callable[[], Any] = allocator_in_use) -> None:
        self._find = find
        self._label: str | None = None
        self._retries = 0
        self._found: dict[str, PhaseMemory] = {}

    def change(self, label: str | None) -> None:
        """Note what the present phase took, and begin another one; a device may be first used at any time."""
        allocator = self._find()
        if allocator is None:
            return
        # This takes a fifth of the time of ``memory_stats``.
        stats = allocator.memory_stats_as_nested_dict()
        retries = counter_of(stats, _RETRIES)
        if self._label is not None:
            self._note(self._label, stats, retries - self._retries)
        self._label, self._retries = label, retries
        allocator.reset_peak_memory_stats()

    def phases(self) -> tuple[PhaseMemory, ...]:
        """Return the phases in the order in which they came first."""
        return tuple(self._found.values())

    def _note(self, label: str, stats: Mapping[str, Any], retries: int) -> None:
        known = self._found.get(label) or PhaseMemory(
            name=label, allocated=0, reserved=0, unusable=0, retries=0
        )
        self._found[label] = replace(
            known,
            allocated=max(known.allocated, counter_of(stats, _ALLOCATED)),
            reserved=max(known.reserved, counter_of(stats, _RESERVED)),
            unusable=max(known.unusable, counter_of(stats, _UNUSABLE)),
            retries=known.retries + retries,
        )


def counter_of(stats: Any, path: Sequence[str]) -> int:  # noqa: ANN401 (a number, or mappings of numbers)
    """Return a counter of an allocator; 0 where it lacks that, as before its device is first used."""
    for key in path:
        stats = stats.get(key, {})
    return int(stats or 0)
