"""The processes and threads of a ``DataLoader``, each watched where it runs: forked and spawned ones alike.

The profiler of the parent sees nothing of a worker's process. So an environment variable gives the worker
the place of its results, and the function that it is started with decides what to watch.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import pstats
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from perfkit.agent.counters.calls import profile_of_this_thread, wrap_fetches
from perfkit.extras import is_installed
from perfkit.model.profiles import LineSample
from perfkit.profiling.passes.exchange import STOPS_FILE

PIN_MEMORY = "pin_memory"
_FOLDER = "PERFKIT_WORKERS_FOLDER"
_WORKER = "worker"
_STAT_FILE = re.compile(rf"({_WORKER}\d+|{PIN_MEMORY})\.\d+\.stat")
# How the names of a profile's files of workers go on behind its own.
WORKER_FILE = rf"\.({_WORKER}\d+|{PIN_MEMORY})\.stat"
_TIMES_ENDING, _SAMPLES_ENDING = ".fetched", ".samples"
# From this version of Python on a process has room for one profiler only: that of its main thread.
_ONE_PROFILER = (3, 12)

_WORKER_LOOP, _PIN_LOOP = "_worker_loop", "_pin_memory_loop"
_Loop = Callable[..., object]
# Begin and end on the monotonic clock, which all processes share.
_Span = tuple[float, float]
# The functions of torch that are replaced here; a spawned process still finds them in torch.
_originals: dict[str, _Loop] = {}
# What makes the sampler of a worker; a spawned one has none.
_samplers: list[Callable[[], Any]] = []


@dataclass(frozen=True)
class FetchTimes:
    """How many batches all workers made, in how many seconds of theirs together, and how many they are."""

    batches: int
    seconds: float
    workers: int

    @property
    def batch_s(self) -> float | None:
        """Seconds to the next batch while all workers are at work; None where none made a batch."""
        return self.seconds / self.batches / self.workers if self.batches else None


def profile_workers(folder: Path) -> None:
    """Have each worker, and the thread that pins memory, leave a cProfile of itself in the folder."""
    if not is_installed("torch"):
        return
    _replace(_WORKER_LOOP, profiled_worker, folder)
    if sys.version_info < _ONE_PROFILER:
        _replace(_PIN_LOOP, profiled_pin_memory, folder)


def time_workers(folder: Path) -> None:
    """Have each worker leave in the folder how long its batches took to make."""
    _replace(_WORKER_LOOP, timed_worker, folder)


def sample_workers(folder: Path, sampler: Callable[[], Any]) -> None:
    """Have each forked worker leave in the folder which lines it was in, and how many batches it made."""
    if is_installed("torch"):
        _samplers.append(sampler)
        _replace(_WORKER_LOOP, sampled_worker, folder)


def samples_of_workers(folder: Path) -> tuple[tuple[LineSample, ...], int]:
    """Return the samples of all workers, and the number of their batches."""
    found = [
        msgspec.json.decode(file.read_bytes(), type=tuple[tuple[LineSample, ...], int])
        for file in sorted(folder.glob(f"*{_SAMPLES_ENDING}"))
    ]
    return tuple(one for samples, _ in found for one in samples), sum(batches for _, batches in found)


def end_workers() -> None:
    """End the workers of all loaders, persistent ones too: each leaves its file when it ends."""
    if not is_installed("torch"):
        return
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    # `isinstance` would ask each object for its `__class__`, and a dead weak proxy raises then.
    kind = _MultiProcessingDataLoaderIter
    for iterator in [one for one in gc.get_objects() if issubclass(type(one), kind)]:
        iterator._shutdown_workers()  # noqa: SLF001 (torch has no public way)


def profiles_of_workers(folder: Path) -> dict[str, pstats.Stats]:
    """Return the profile of each role ("worker0", "pin_memory"), all its processes added up."""
    files: dict[str, list[str]] = defaultdict(list)
    for file in sorted(folder.glob("*.stat")):
        found = _STAT_FILE.fullmatch(file.name)
        if found:
            files[found[1]].append(str(file))
    return {role: pstats.Stats(*found) for role, found in sorted(files.items())}


def fetch_times(folder: Path) -> FetchTimes | None:
    """Return how long all workers together took for all batches, None where none left its times."""
    files = sorted(folder.glob(f"*{_TIMES_ENDING}"))
    if not files:
        return None
    fetches = [fetch for file in files for fetch in msgspec.json.decode(file.read_bytes(), type=list[_Span])]
    stopped = folder / STOPS_FILE
    lines = stopped.read_bytes().splitlines() if stopped.exists() else []
    stops = [msgspec.json.decode(line, type=_Span) for line in lines]
    return FetchTimes(
        batches=len(fetches),
        seconds=sum(end - begin - _stopped_s(stops, begin, end) for begin, end in fetches),
        workers=len({file.name.partition(".")[0] for file in files}),
    )


def _stopped_s(stops: list[_Span], begin: float, end: float) -> float:
    return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in stops)


def profiled_worker(*arguments: object) -> None:
    """Run a worker's loop under cProfile."""
    loop = _original(_WORKER_LOOP)
    _profiled(loop, arguments, f"{_WORKER}{_worker_number(loop, arguments)}")


def profiled_pin_memory(*arguments: object) -> None:
    """Run the loop of the thread that pins memory under cProfile."""
    _profiled(_original(_PIN_LOOP), arguments, PIN_MEMORY)


def timed_worker(*arguments: object) -> None:
    """Run a worker's loop, and time what makes its batches."""
    loop = _original(_WORKER_LOOP)
    fetches: list[_Span] = []
    wrap_fetches(lambda call: _timed(call, fetches))
    try:
        loop(*arguments)
    finally:
        number = _worker_number(loop, arguments)
        # A worker's first batch includes its set-up.
        kept = fetches[1:] or fetches
        _place(f"{_WORKER}{number}", _TIMES_ENDING).write_bytes(msgspec.json.encode(kept))


def sampled_worker(*arguments: object) -> None:
    """Run a worker's loop, and sample the lines that it is in."""
    loop = _original(_WORKER_LOOP)
    if not _samplers:
        loop(*arguments)
        return
    fetches: list[_Span] = []
    wrap_fetches(lambda call: _timed(call, fetches))
    sampler, begun = _samplers[0](), time.perf_counter()
    sampler.start()
    try:
        loop(*arguments)
    finally:
        sampler.stop()
        found = sampler.samples((begun, time.perf_counter())), len(fetches)
        place = _place(f"{_WORKER}{_worker_number(loop, arguments)}", _SAMPLES_ENDING)
        place.write_bytes(msgspec.json.encode(found))


def _profiled(loop: _Loop, arguments: tuple[object, ...], role: str) -> None:
    profiler = profile_of_this_thread()
    try:
        profiler.runcall(loop, *arguments)
    finally:
        profiler.dump_stats(_place(role, ".stat"))


def _timed(call: _Loop, fetches: list[_Span]) -> Callable[..., Any]:
    def timed(*arguments: object) -> object:
        begun = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            fetches.append((begun, time.perf_counter()))

    return timed


def _place(role: str, ending: str) -> Path:
    return Path(os.environ[_FOLDER]) / f"{role}.{os.getpid()}{ending}"


def _replace(name: str, by: _Loop, folder: Path) -> None:
    os.environ[_FOLDER] = str(folder)
    module = _module_of(name)
    _originals[name] = getattr(module, name)
    setattr(module, name, by)


def _original(name: str) -> _Loop:
    loop: _Loop = _originals.get(name) or getattr(_module_of(name), name)
    return loop


def _worker_number(loop: _Loop, arguments: tuple[object, ...]) -> int:
    bound: Mapping[str, Any] = inspect.signature(loop).bind(*arguments).arguments
    return int(bound["worker_id"])


def _module_of(name: str) -> ModuleType:
    return importlib.import_module(f"torch.utils.data._utils.{name.removeprefix('_').removesuffix('_loop')}")
