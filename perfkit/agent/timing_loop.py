"""Runs a benchmark's rounds on the coordinator's orders, inside the test that measures it."""

from __future__ import annotations

import base64
import contextlib
import cProfile
import functools
import gc
import marshal
import math
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .channel import Channel, Message
from .clock import accelerator_in_use, cold_start, uses_accelerator
from .counters.calls import MOST_COUNTED_CALLS, counts_of_call, profile_of_this_thread, wrap_fetches
from .counters.instructions import make_counted_calls
from .counters.model import Counts, as_message
from .counters.torch_adapter import read_compilation
from .fresh import OTHER_FORMS, look, with_other_inputs
from .processes import minor_faults, move_to
from .results import described_call
from .state import at_depth, seed_generators

if TYPE_CHECKING:
    # Imported before pytest has started, pytest-benchmark could not have its assertions rewritten.
    from .benchmark_fixture import Target, Work

Block = Callable[[int], float]


def slowed(block: Block, share: float, *, more_calls: bool) -> Block:
    """Return a block whose iterations take 1 + ``share`` times as long.

    Where ``more_calls`` allows it, whole extra iterations are run. For the remaining part of an iteration it
    waits busily, for as long as that part took in this very block.
    """

    def run(iterations: int) -> float:
        owed = iterations * share
        extra = int(owed) if more_calls else 0
        seconds = block(iterations + extra)
        return seconds + _wait((owed - extra) * seconds / (iterations + extra))

    return run


def _wait(seconds: float) -> float:
    begun = time.perf_counter()
    while (waited := time.perf_counter() - begun) < seconds:
        pass
    return waited


# Of a benchmark that allows fewer calls, none are timed in a closer look.
_FEW_CALLS = 12
# Visiting this many objects takes as long as a round; those that were there before a fork are not visited.
_MANY_OBJECTS = 100_000
# After so many seconds, in which arguments may have been made as well, no other call is profiled.
_MOST_PROFILED_S = 1.0


class RemoteTimingLoop:
    """Waits inside the ``benchmark`` fixture for orders and obeys them, until the order to go on comes.

    ``slowdowns`` are injected shares by benchmark. Calls are made from a ``depth`` of the stack, and random
    draws in timed rounds follow from ``seed``, alike on both sides.
    """

    def __init__(self, channel: Channel, slowdowns: Mapping[str, float], depth: int, seed: int = 0) -> None:
        self._channel, self._slowdowns, self._depth, self._seed = channel, slowdowns, depth, seed

    def time(self, work: Work) -> None:
        """Send that a benchmark is ready, and obey orders until the one to go on."""
        share = self._slowdowns.get(work.node)
        if share is not None:
            # The injected slowdown is waiting, of which the device knows nothing.
            work = replace(
                work, block=slowed(work.block, share, more_calls=work.loops is None), device=lambda *_: None
            )
        ready: Message = {"kind": "ready", "node": work.node, "loops": work.loops, "rounds": work.rounds}
        if uses_accelerator():
            ready["device"] = True
        if work.by_wall:
            ready["by_wall"] = True
        if work.set_up_s:
            ready |= {"set_up_s": work.set_up_s, "warm_up": work.warm_up}
        self._channel.send(ready)
        at_depth(self._depth, functools.partial(self._obey_all, work))

    def _obey_all(self, work: Work) -> None:
        profiled, first, turns = 0, True, 0
        while (order := self._channel.receive())["kind"] != "go_on":
            if order.get("rounds"):
                seed_generators(self._seed, work.node, turns)
                turns += 1
            answer = _obey(order, work, profiled, first=first, seed=(self._seed, work.node))
            first = False
            profiled += answer.get("calls", 0)
            self._channel.send({**answer, "node": work.node})


def _obey(  # noqa: PLR0911
    order: Message, work: Work, profiled: int, *, first: bool, seed: Sequence[object]
) -> Message:
    if order["kind"] == "run":
        if order["core"] is not None:
            move_to(order["core"])
        answer = _run(work, order, first=first)
        return {**answer, **_state_of_device()} if order.get("watch") else answer
    if order["kind"] == "collect":
        return {"kind": "collected", "seconds": _collect()}
    if order["kind"] == "memory":
        device = accelerator_in_use()
        found = () if device is None else device.memory()
        return {"kind": "memory", "devices": None if found is None else [asdict(one) for one in found]}
    if order["kind"] == "look":
        return _looked(order, work, seed)
    if order["kind"] == "profile":
        calls = min(order["calls"], _most_calls(work) - profiled)
        return {"kind": "profiled", "calls": 0, **(_profile(work, calls=calls) if calls else {})}
    if order["kind"] == "count" and work.number is not None:
        return {"kind": "counted", **as_message(Counts(counts=(work.number(),), not_counted={}))}
    if order["kind"] == "count":
        return {"kind": "counted", **_counted(order, work, seed)}
    if order["kind"] == "make_calls":
        calls = make_counted_calls(
            work, control=order["control"], library=order["library"], most_calls=_most_calls(work)
        )
        return {"kind": "made_calls", **calls}
    pytest.skip(order["reason"])


def _collect() -> float:
    """Collect garbage where that is quick, and return the CPU seconds that it took."""
    is_quick = len(gc.get_objects()) < _MANY_OBJECTS
    begun = time.process_time()
    if is_quick:
        gc.collect()
    return time.process_time() - begun


def _counted(order: Message, work: Work, seed: Sequence[object]) -> Message:
    """Return the counts of a call, what another one gives, or both, as the order asks for."""
    root, calls, since = Path(order["root"]), _most_calls(work), read_compilation()
    answer: Message = {}
    if order["result"] is not None and order["counts"] and calls <= MOST_COUNTED_CALLS:
        # Counting takes all calls that are allowed in this process.
        answer["later"] = True
    elif order["result"] is not None:
        calls -= 1
        target, form = work.target, order["result"].get("form")
        if target is not None and form is not None:
            target = with_other_inputs(target, form, seed)
        if target is not None or form is None:
            answer["result"] = described_call(target, order["result"], node=work.node, root=root, seed=seed)
    counts = Counts(counts=(), not_counted={})
    if order["counts"]:
        kept_s = order["kept_s"]
        counts = counts_of_call(work.call, root=root, most_calls=calls, since=since, kept_s=kept_s)
    return {**as_message(counts), **answer}


def _looked(order: Message, work: Work, seed: Sequence[object]) -> Message:
    """Time calls in several forms, and return what calls with other inputs give, as the order asks for.

    These are made first, or after many calls with the benchmark's own inputs.
    """
    calls, own = _most_calls(work), work.target
    targets: dict[str, Target] = {}
    # All are made before the first call, which may leave something in the benchmark's own inputs.
    for form in OTHER_FORMS[:: -1 if order["seed"] % 2 else 1]:
        target = with_other_inputs(own, form, seed) if order["others"] and own else None
        if target is not None and len(targets) < calls:
            targets[form] = target

    def others() -> Message:
        found: Message = {}
        for form, target in targets.items():
            # Code that gets an input which it does not expect raises anything.
            with contextlib.suppress(Exception):
                found[form] = described_call(target, {}, node=work.node, root=Path(order["root"]), seed=seed)
        return found

    first = others() if order["others"] == "first" or calls < _FEW_CALLS else None
    timed = own if calls >= _FEW_CALLS else None
    answer = look(timed, seed=order["seed"], watch=order["watch"], most_calls=calls - len(targets))
    return {**answer, "others": others() if first is None else first}


def _state_of_device() -> Message:
    device = accelerator_in_use()
    return {"reserved": device and device.reserved(), "clock_mhz": device and device.clock_mhz()}


def _run(work: Work, order: Message, *, first: bool) -> Message:
    """Run untimed iterations, then timed rounds; without rounds it is a warm-up, whose time is not kept.

    The ``first`` call of all is timed by itself, except in a round of several calls.
    """
    untimed, loops, rounds = order["untimed"], order["loops"], order["rounds"]
    on_device, faults, first_s = uses_accelerator(), minor_faults(), None
    slices = 1 if on_device else order["slices"]
    begun = cold_start(lambda: _block(work, 1)) if on_device and first and untimed else None
    if first and untimed:
        first_s = begun.total_s if begun else _block(work, 1)
        untimed -= 1
    warmup_s = (first_s or 0.0) + (_block(work, untimed) if untimed else 0.0)
    in_slice = loops // slices
    timed, running = [], []
    for _ in range(rounds):
        begun_s = time.process_time()
        timed.append([work.block(in_slice) for _ in range(slices)])
        running.append(time.process_time() - begun_s)
    for round_s in timed:
        work.keep(loops, sum(round_s))
    if first and first_s is None and rounds and in_slice == 1:
        first_s = timed[0][0]
    values = [sum(round_s) / loops for round_s in timed]
    device = work.device(values, loops) if slices == 1 and rounds else None
    answer = {
        "kind": "timed",
        **({} if first_s is None else {"first_s": first_s}),
        "untimed_s": warmup_s,
        "values": values,
        "device": None if device is None else asdict(device),
        "typical": [_lower_quartile(round_s) / in_slice for round_s in timed] if slices > 1 else [],
        "running": running,
        "faults": minor_faults() - faults,
    }
    return {**answer, "cold": asdict(begun)} if begun else answer


def _lower_quartile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=4, method="inclusive")[0]


def _block(work: Work, iterations: int) -> float:
    if work.loops is None:
        return work.block(iterations)
    return sum(work.block(1) for _ in range(iterations))


def _most_calls(work: Work) -> float:
    return math.inf if work.rounds is None else work.rounds * (work.loops or 1)


def _profile(work: Work, *, calls: int) -> Message:
    profile = profile_of_this_thread()
    until = time.perf_counter() + _MOST_PROFILED_S
    with _workers_profiled(profile) as of_workers:
        for number in range(calls):
            if number and time.perf_counter() > until:
                calls = number
                break
            if work.target is None:
                profile.runcall(work.call)
            else:
                # What makes its arguments is not timed either.
                work.target.through(lambda function, args, kwargs: profile.runcall(function, *args, **kwargs))
        stats = pstats.Stats(profile)
        stats.add(*map(str, of_workers()))
    written = marshal.dumps(stats.stats)  # type: ignore[attr-defined]
    return {"calls": calls, "stats": base64.b64encode(written).decode()}


# What torch starts a loader's worker with.
_WORKER_LOOP = "_worker_loop"


@contextlib.contextmanager
def _workers_profiled(profile: cProfile.Profile) -> Iterator[Callable[[], list[Path]]]:
    """Have forked workers of a loader profile how they make batches; yield what finds their files."""
    module: Any = sys.modules.get("torch.utils.data._utils.worker")
    if module is None:
        yield list
        return
    loop = getattr(module, _WORKER_LOOP)
    with tempfile.TemporaryDirectory() as folder:
        setattr(module, _WORKER_LOOP, _ProfiledLoop(loop, profile, Path(folder)))
        try:
            yield lambda: sorted(Path(folder).glob("*.stat"))
        finally:
            setattr(module, _WORKER_LOOP, loop)


class _ProfiledLoop:
    """A worker's loop that leaves a profile; spawned workers get torch's own in its place."""

    def __init__(self, loop: Callable[..., object], profile: cProfile.Profile, folder: Path) -> None:
        self.__module__ = loop.__module__
        self._loop, self._profile, self._folder = loop, profile, folder

    def __reduce__(self) -> str:
        return self._loop.__name__

    def __call__(self, *arguments: object) -> None:
        self._profile.disable()
        own = profile_of_this_thread()
        wrap_fetches(lambda call: lambda *given: own.runcall(call, *given))
        try:
            self._loop(*arguments)
        finally:
            own.dump_stats(self._folder / f"{os.getpid()}.stat")
