"""Counts instructions: makes calls under callgrind, and reads the file that it dumped."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..channel import Message
from ..provenance import has_torch
from .calls import OTHER_PROCESSES, OWN_THREADS, TOO_FEW_CALLS
from .interventions import StartedThreads, without_garbage_collection

if TYPE_CHECKING:
    # Imported before pytest has started, pytest-benchmark could not have its assertions rewritten.
    from ..benchmark_fixture import Work

_Mark = Callable[[], object]
# The first turn warms up; if the other two agree, the count repeats.
WARM_UP, TURNS = 1, 3
NO_REQUESTS = (
    "without torch, counting instructions needs a C compiler (`cc`) and Valgrind's header callgrind.h:"
    " install both, such as by `apt install gcc valgrind`"
)
WITH_SETUP = "the set-up of its rounds would be counted with it"
# A turn is long, so that work done once in it, such as tidying the heap, is a small part of all its calls.
_TURN_S = 10.0
_MOST_CALLS = 1000
# Two calls are tried, since the first one also waits until Valgrind has translated the code.
_TRIED = 2


def make_counted_calls(
    work: Work, *, control: Sequence[str], library: str | None, most_calls: float
) -> Message:
    """Make ``TURNS`` turns of calls, the first ``WARM_UP`` to warm up; callgrind dumps each separately."""
    marks = _marks(library)
    if isinstance(marks, str):
        return {"problem": marks}
    if work.loops is not None and work.rounds is None:
        return {"problem": WITH_SETUP}
    subprocess.run(control, check=True, stdout=subprocess.DEVNULL)
    forks: list[None] = []
    # It is never removed, since this process counts only one benchmark.
    os.register_at_fork(before=lambda: forks.append(None))
    threads = StartedThreads()
    with threads.noticed():
        calls = _calls_of_a_turn(work.call, most_calls)
    if forks or multiprocessing.active_children():
        return {"problem": OTHER_PROCESSES}
    if threads.seen:
        return {"problem": OWN_THREADS}
    if calls < 1:
        return {"problem": TOO_FEW_CALLS}
    # Garbage is collected once before all turns, since a collection between two turns would change the heap.
    with without_garbage_collection():
        for _ in range(TURNS):
            _make_turn(work.call, calls, *marks)
    return {"calls": calls}


def _calls_of_a_turn(call: Callable[[], object], most_calls: float) -> int:
    """Return how many calls a turn has: a power of ten, so that both sides make equally many, if allowed."""
    allowed = (most_calls - _TRIED) // TURNS
    if allowed < 1:
        return 0
    seconds = [_timed(call) for _ in range(_TRIED)]
    calls = _MOST_CALLS
    while calls > 1 and calls * min(seconds) > _TURN_S:
        calls //= 10
    return int(min(calls, allowed))


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _make_turn(call: Callable[[], object], calls: int, begin: _Mark, end: _Mark) -> None:
    begin()
    for _ in range(calls):
        call()
    end()


def _marks(library: str | None) -> tuple[_Mark, _Mark] | str:
    if has_torch():
        import torch

        if torch._C._valgrind_supported_platform():  # noqa: SLF001 (as torch's Timer does)
            from torch._C import _valgrind_toggle, _valgrind_toggle_and_dump_stats

            return _valgrind_toggle, _valgrind_toggle_and_dump_stats
    if library is None:
        return NO_REQUESTS
    # Functions of this kind keep Python's lock, as those of torch do.
    requests = ctypes.PyDLL(library)
    return requests.toggle, requests.toggle_and_dump


def build_requests(folder: Path) -> str | None:
    """Compile the requests to callgrind, and return the library; None without a compiler or the header."""
    library = folder / "instructions.so"
    valgrind = shutil.which("valgrind") or ""
    include = Path(valgrind).resolve().parents[1] / "include" if valgrind else folder
    source = Path(__file__).with_suffix(".c")
    try:
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", f"-I{include}", "-o", library, source],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(library)


# "fn=(12) name" names a function and gives it a number, "fn=(12)" is the same one again.
_FUNCTION = re.compile(r"fn=\((\d+)\)(?: (.+))?")
# "cfn=(13) name" names a function that is called, before its own costs are given.
_NAMED = re.compile(r"cfn=\((\d+)\) (.+)")


def instructions_by_function(lines: Iterable[str]) -> Counter[str]:
    """Return how many instructions each function ran itself, without those that it called."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    function, is_call = "", False
    for line in lines:
        if line[:1] in "+-*0123456789":
            # The line after "calls=" holds the cost of the called functions, which is not the caller's own.
            if not is_call and function:
                found[function] += int(line.split()[-1])
            is_call = False
        elif line.startswith("calls="):
            is_call = True
        elif match := _FUNCTION.match(line):
            number, name = match.groups()
            function = names.setdefault(number, name)
        elif match := _NAMED.match(line):
            names.setdefault(*match.groups())
    return found
