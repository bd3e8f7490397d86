"""The rank that the others wait for, found while a training runs."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from perfkit.agent.counters.interventions import Patches, undone_in_forks
from perfkit.agent.counters.torch_adapter import backward_entries, read_compilation
from perfkit.profiling.passes.balance import COLLECTIVES, Moment, choose_clock
from perfkit.profiling.passes.follow import FloatArray, Look
from perfkit.profiling.passes.training import store_of_ranks

# So many steps are watched at a time, at least so many seconds apart.
_WATCHED, _FEWEST, EVERY_S = 8, 3, 2.1
_MOST_TIMES, _NEVER = 4, 1 << 40
# A rank is named if the others wait for it for this share of a step, so many times in a row; in the end if
# they do so most of the time, and more often than by chance: by so many standard deviations.
_WORTH_NAMING, _IN_A_ROW, _MOSTLY, _CLEAR = 0.05, 10, 0.75, 3.5
_KEPT = 512
# The store is that of this machine or of rank 0; where it does not answer, the training has ended.
_STORE_WAIT = timedelta(seconds=1)
# How often trainings of a name were followed in this process: all ranks count alike.
_followed: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """The rank that waits least for the others, and what these wait for it in a step: a median."""

    rank: int
    waited_s: float
    step_s: float
    times: int
    of: int
    since: int


@dataclass(frozen=True)
class _Waits:
    """What a rank waited in the steps that it watched last, and how long others took: both medians."""

    number: int
    waited_s: float
    step_s: float

    def encoded(self) -> str:
        return f"{self.number} {self.waited_s!r} {self.step_s!r}"

    @classmethod
    def decoded(cls, text: str) -> _Waits:
        number, waited_s, step_s = text.split()
        return cls(int(number), float(waited_s), float(step_s))


class RankWaits:
    """Measures how long a rank waits in collectives, and compares that on rank 0.

    All ranks take part in a collective until the last one has come, so their steps take equally long. The
    rank that comes last waits least. Each rank leaves what it waits in the store by which the ranks found
    each other, and rank 0 reads what is there: nothing here is collective, and nobody waits for anybody.
    ``on_slow`` is called on rank 0 once for each rank that is found to be slow.
    """

    def __init__(
        self, name: str, *, rank: int, ranks: int, on_slow: Callable[[SlowRank], None] | None = None
    ) -> None:
        self._rank, self._on_slow = rank, on_slow
        number = _followed[name] = _followed.get(name, 0) + 1
        self._keys = [f"perfkit/{name}/{number}/waits/{one}" for one in range(ranks)]
        self._store = _own_store()
        self._watch, self._apart = _Watch(), _WATCHED
        self._watched: tuple[FloatArray, list[tuple[Moment, Moment]]] | None = None
        self._number = self._compared = 0
        self._found: deque[SlowRank] = deque(maxlen=_KEPT)
        self._named: set[int] = set()

    @property
    def is_watching(self) -> bool:
        """Whether the present steps are watched."""
        return self._watch.is_on

    @property
    def has_store(self) -> bool:
        """Whether the ranks can leave anything for each other."""
        return self._store is not None

    def look(self, look: Look) -> int:
        """Begin to watch some steps, or end that; return after how many steps to be called again."""
        if self._store is None:
            return _NEVER
        if self._watch.is_on:
            if len(look.ends) <= _FEWEST:
                return _WATCHED
            # A device may not have reached these moments yet: they are read when it has.
            self._watched = look.ends, self._watch.end()
            self._apart = steps_apart(look, self._apart)
            return self._apart
        self._exchange(look)
        self._watch.begin()
        return _WATCHED + 1

    def end(self) -> SlowRank | None:
        """Watch no more, and return the rank that was slow most of the time, on rank 0."""
        self._watch.end()
        if not self._found:
            return None
        (rank, times), *_ = Counter(one.rank for one in self._found).most_common(1)
        found = _together([one for one in self._found if one.rank == rank], of=len(self._found))
        chance = 1 / len(self._keys)
        scatter = math.sqrt(found.of * chance * (1 - chance))
        is_clear = rank in self._named or times - found.of * chance >= _CLEAR * scatter
        is_slow = times >= _MOSTLY * found.of and found.waited_s >= _WORTH_NAMING * found.step_s
        return found if is_slow and is_clear else None

    def _exchange(self, look: Look) -> None:
        """Leave what was waited in the steps that were watched last, and compare it on rank 0."""
        if self._watched is None:
            return
        (ends, spans), self._watched = self._watched, None
        self._number += 1
        mine = _Waits(self._number, _median_wait(ends, spans), look.step_s)
        store: Any = self._store
        try:
            if self._rank:
                store.set(self._keys[self._rank], mine.encoded())
                return
            others = self._keys[1:]
            if not store.check(others):
                return
            texts = store.multi_get(others) if store.has_extended_api() else map(store.get, others)
            waits = [mine, *(_Waits.decoded(text.decode()) for text in texts)]
        except Exception:  # noqa: BLE001 (ranks may have ended, and the store with them)
            self._store = None
            return
        # A rank may have left nothing new yet.
        if min(one.number for one in waits) > self._compared:
            self._compared = min(one.number for one in waits)
            self._compare(waits, look.steps)

    def _compare(self, waits: list[_Waits], steps: int) -> None:
        last = min(range(len(waits)), key=lambda rank: waits[rank].waited_s)
        others = statistics.fmean(one.waited_s for rank, one in enumerate(waits) if rank != last)
        step_s = statistics.median(one.step_s for one in waits)
        waited_s = others - waits[last].waited_s
        self._found.append(SlowRank(rank=last, waited_s=waited_s, step_s=step_s, times=1, of=1, since=steps))
        row = list(self._found)[-_IN_A_ROW:]
        is_slow = all(one.rank == last and one.waited_s >= _WORTH_NAMING * one.step_s for one in row)
        if len(row) == _IN_A_ROW and is_slow and last not in self._named and self._on_slow is not None:
            self._named.add(last)
            self._on_slow(_together(row, of=_IN_A_ROW))


def steps_apart(look: Look, before: int, *, least_s: float = 0.0) -> int:
    """Return after how many steps a run is to be looked at again, at most some times as many as before.

    The first steps may be far shorter than all others.
    """
    return min(math.ceil(max(EVERY_S, least_s) / look.step_s), _MOST_TIMES * before)


class _Watch:
    """Notes when collectives are waited for; between ``end`` and ``begin`` nothing of it is in place."""

    def __init__(self) -> None:
        self.is_on = False
        self._thread = threading.get_ident()
        self._spans: list[tuple[Moment, Moment]] = []
        self._is_inside = False
        self._patches, self._hooks = Patches(), contextlib.ExitStack()
        # They are made once: code that a compiler has seen them in need not be compiled again.
        self._made: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        self._thread, self._now = threading.get_ident(), choose_clock()
        self._spans = []
        self._made = self._made or self._replacements()
        self._hooks.enter_context(undone_in_forks(self._patches.undo))
        for owner, name, new in self._made:
            self._patches.replace(owner, name, new)
        self.is_on = True

    def end(self) -> list[tuple[Moment, Moment]]:
        self._patches.undo()
        self._hooks.close()
        self.is_on = False
        return self._spans

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        import torch.distributed as dist
        from torch.distributed import distributed_c10d

        autograd, names = backward_entries()
        found = [(autograd, name, self._with_noted_end(getattr(autograd, name))) for name in names]
        # What a compiler has traced must stay what it was.
        if not read_compilation().graphs:
            noted: dict[Any, Any] = {}
            for owner in (dist, distributed_c10d):
                calls = [(name, getattr(owner, name)) for name in COLLECTIVES if hasattr(owner, name)]
                found += [(owner, name, noted.setdefault(call, self._noted(call))) for name, call in calls]
            found.append((dist.Work, "wait", self._noted(dist.Work.wait)))
        return found

    def _noted(self, call: Any) -> Any:  # noqa: ANN401 (the call's own signature)
        import torch

        is_compiling = torch.compiler.is_compiling

        @functools.wraps(call)
        def noted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            if is_compiling() or self._is_inside or threading.get_ident() != self._thread:
                return call(*args, **kwargs)
            self._is_inside, begun = True, self._now()
            try:
                return call(*args, **kwargs)
            finally:
                self._is_inside = False
                self._spans.append((begun, self._now()))

        return noted

    def _with_noted_end(self, backward: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        """Note the end of a backward pass, in which a data-parallel model waits for its gradients.

        It does so in a callback behind the last node of the graph; one that is queued before marks that.
        """
        import torch

        engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 (torch's own models queue with it)

        @functools.wraps(backward)
        def noted(outputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            root: Any = outputs if isinstance(outputs, torch.Tensor) else next(iter(outputs), None)
            if threading.get_ident() != self._thread or not getattr(root, "requires_grad", False):
                return backward(outputs, *args, **kwargs)
            over: list[Moment] = []

            def queue(_: object) -> None:
                engine.queue_callback(lambda: over.append(self._now()))

            handle = root.register_hook(queue)
            try:
                return backward(outputs, *args, **kwargs)
            finally:
                handle.remove()
                if over:
                    self._spans.append((over[0], self._now()))

        return noted


def _median_wait(ends: FloatArray, spans: list[tuple[Moment, Moment]]) -> float:
    """Return the median wait of whole steps, in seconds."""
    # After a pause a step begins anew.
    known = np.maximum.accumulate(np.where(np.isnan(ends), -np.inf, ends))
    waits = np.zeros(len(ends) - 1)
    for begun, over in spans:
        step = int(np.searchsorted(known, begun.at_s, side="right")) - 1
        if 0 <= step < len(waits):
            waits[step] += begun.seconds_until(over)
    return float(np.median(waits[np.diff(ends) > 0]))


def _together(found: list[SlowRank], *, of: int) -> SlowRank:
    return SlowRank(
        rank=found[0].rank,
        waited_s=statistics.median(one.waited_s for one in found),
        step_s=statistics.median(one.step_s for one in found),
        times=len(found),
        of=of,
        since=found[0].since,
    )


def _own_store() -> Any:  # noqa: ANN401 (torch's own)
    """Return a connection of one's own to the store of the ranks, None where they have no such store."""
    store = store_of_ranks()
    if store is None:
        return None
    import torch

    distributed: Any = torch.distributed
    with contextlib.suppress(Exception):
        under = store
        while isinstance(under, distributed.PrefixStore):
            under = under.underlying_store
        # A file would grow for ever.
        if isinstance(under, distributed.TCPStore):
            own = store.clone()
            own.set_timeout(_STORE_WAIT)
            return own
    return None
