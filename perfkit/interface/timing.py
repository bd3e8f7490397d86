"""``perfkit.timed``: times a part of any program, as a context manager or a decorator, and files the times.

What files them is imported with this module, since hardly anything can be imported while Python ends.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar, cast

from perfkit.agent.clock import (
    L2_FLUSHED,
    BlockClock,
    ColdStart,
    CompileTimes,
    DeviceTimes,
    Span,
    cold_start_since,
    device_times,
    read_compile_times,
)
from perfkit.config import load_project
from perfkit.errors import NotMeasuredError, PerfkitError, UsageError
from perfkit.identity import new_run_id, shown_run_id, utc_now
from perfkit.ledger.recording import RunFacts, outcomes_of
from perfkit.ledger.remote import ledger_folder
from perfkit.ledger.store import Ledger
from perfkit.model import WALL_TIME, Benchmark, Outcome, Placement, Row, RowPolicy
from perfkit.repo.commits import read_commit
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.runner.targets import function_version
from perfkit.stats.summary import warm_from
from perfkit.units import counted, human_seconds

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

_PREFIX = "timed:"
_BLOCK = "block"
_read_clock = time.perf_counter
_unfiled: list[timed] = []
# A cell of a notebook is hardly run again so often; a loop has more turns.
_MOST_PARTS = 20


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A time that is being taken, since the clock read ``at_s``, and what torch.compile had spent by then."""

    clock: BlockClock
    spent: CompileTimes | None
    at_s: float


class timed:  # noqa: N801 (used like a keyword: ``with perfkit.timed("loading"):``)
    """Times what runs inside, each time that it runs, and files all times in the ledger at the end.

    As a context manager the same object is entered again and again: ``step = perfkit.timed("step")``, then
    ``with step:`` in the loop. As a decorator, ``@perfkit.timed("loss")``, it times each call. An accelerator
    that is in use is waited for once at both ends, so that its work is part of the time; the time of the
    device's own work is kept beside it. With ``flush_l2`` the device's second-level cache is emptied before
    each block. The first ``warmup`` times are kept apart; with ``warmup="settle"`` as many as it takes to
    warm up, and the first one of all is filed as the cold start. What raises is not counted.
    Unless they were filed before by ``file()``, the times of a process are filed when it ends, in the ledger
    that is configured for the folder in which the first part was named. Parts of one name, as in a cell of a
    notebook that is run again, are filed as a row each; more than twenty are those of a loop that makes one
    in each turn, and are filed as one part.

    Raises:
        UsageError: the name is empty, or the number of first times negative.
    """

    def __init__(self, name: str, *, warmup: int | Literal["settle"] = 0, flush_l2: bool = False) -> None:
        if not name.strip():
            raise UsageError('timed needs a name for what it times: perfkit.timed("loading")')
        if warmup != "settle" and not (isinstance(warmup, int) and warmup >= 0):
            raise UsageError(
                f'warmup is a number of first times to keep apart, at least 0, or "settle", found {warmup}'
            )
        self.name, self._warmup, self.flush_l2, self.version = name, warmup, flush_l2, _BLOCK
        self._spans: list[Span] = []
        self._cold: ColdStart | None = None
        self._begun = threading.local()
        _expect_the_end()
        _unfiled.append(self)

    @property
    def warmup(self) -> int:
        """How many first times are kept apart; all of them while it warms up."""
        if self._warmup != "settle":
            return self._warmup
        found = warm_from([one.wall_s for one in self._spans])
        return len(self._spans) if found is None else found

    @property
    def cold_start_s(self) -> float | None:
        """The seconds of the first time, compiling and tuning included; None where none was kept apart."""
        return self._spans[0].wall_s if self._spans and self.warmup else None

    @property
    def cold_start(self) -> ColdStart | None:
        """The first time and torch.compile's account of it; None without a warm-up."""
        return self._cold

    @property
    def seconds(self) -> tuple[float, ...]:
        """The times in seconds, in the order of their ends, without those of the warm-up."""
        return tuple(one.wall_s for one in self._timed)

    @property
    def device(self) -> DeviceTimes | None:
        """The same times on an accelerator, and their marks; None where no part of them was on one."""
        if not self._timed or all(one.device_s is None and one.host_s == one.wall_s for one in self._timed):
            return None
        found = device_times(self._timed)
        return replace(found, marks=(*found.marks, L2_FLUSHED)) if self.flush_l2 else found

    @property
    def warms_up(self) -> bool:
        """Whether it waits until it has warmed up."""
        return self._warmup == "settle"

    @property
    def entered(self) -> int:
        """How many times there are, those of the warm-up included."""
        return len(self._spans)

    @property
    def not_warm(self) -> int:
        """How many times there are while it warms up; 0 afterwards."""
        return len(self._spans) if self.warms_up and not self._timed else 0

    @property
    def _timed(self) -> list[Span]:
        return self._spans[self.warmup :]

    @property
    def mean(self) -> float | None:
        """The mean in seconds; None where nothing was timed yet."""
        return statistics.fmean(self.seconds) if self.seconds else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation in seconds; None of fewer than two times."""
        return statistics.stdev(self.seconds) if len(self.seconds) > 1 else None

    def __enter__(self) -> Self:
        self._begun.__dict__.setdefault("stack", []).append(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        begun = self._begun.stack.pop()
        if kind is None:
            self._end(begun)

    def _begin(self) -> _Begun:
        clock = BlockClock(_read_clock)
        if self.flush_l2:
            clock.flush()
        spent = None if self._spans or not self.warms_up else read_compile_times()
        return _Begun(clock=clock, spent=spent, at_s=clock.read())

    def _end(self, begun: _Begun) -> None:
        clock = begun.clock
        wall_s = clock.read() - begun.at_s
        if self.warms_up and not self._spans:
            self._cold = cold_start_since(begun.spent, wall_s)
        host_only = Span(wall_s=wall_s, host_s=wall_s, device_s=None)
        self._spans.append(clock.spans[-1] if clock.spans else host_only)

    def __call__(self, function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        """Return the function, timed at each call; this is what a decorator does.

        A call of a coroutine function lasts until it has been awaited.

        Raises:
            UsageError: it makes a generator, which does its work only when its values are taken.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            # A partial function has no name of its own.
            name = getattr(function, "__qualname__", repr(function))
            raise UsageError(
                f"{name} makes a generator, which does its work only when its values are"
                f' taken: write `with perfkit.timed("{self.name}"):` around the lines that take them'
            )
        self.version = function_version(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:  # noqa: ANN401 (the user's)
                # Calls that overlap do not end in the reverse order of their beginnings, as blocks do.
                begun = self._begin()
                result = await function(*args, **kwargs)
                self._end(begun)
                return result

            return cast("Callable[Parameters, Returned]", awaited)

        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            with self:
                return function(*args, **kwargs)

        return call

    def file(self, ledger: str | Path | None = None) -> str:
        """File the times under the present commit now, and return the id of the run; later times begin anew.

        Raises:
            NotMeasuredError: nothing was timed.
            RepositoryError: there is no commit to file them under.
            LedgerError: the ledger cannot be written.
        """
        return _file([self], ledger, Path.cwd())

    def forget(self) -> None:
        """Begin anew, without the times until now."""
        self._spans.clear()
        self._cold = None

    @property
    def terms(self) -> tuple[object, ...]:
        """What parts have in common of which each is another turn of the same loop."""
        return (self.name, self.version, self._warmup, self.flush_l2)

    def take_over(self, others: Iterable[timed]) -> None:
        """Count the times of other parts as those of this one, after its own; they begin anew."""
        for other in others:
            self._spans += other._spans  # noqa: SLF001 (its own class)
            other.forget()

    def __repr__(self) -> str:
        if self.mean is None:
            return f'<perfkit.timed "{self.name}": nothing yet>'
        spread = "" if self.sd is None else f", sd {human_seconds(self.sd)}"
        times = counted(len(self.seconds), "time")
        return f'<perfkit.timed "{self.name}": {times}, mean {human_seconds(self.mean)}{spread}>'


@functools.cache
def _expect_the_end() -> None:
    process, folder = os.getpid(), Path.cwd()
    atexit.register(lambda: _file_the_rest(folder) if os.getpid() == process else None)


def _file_the_rest(folder: Path) -> None:
    parts = _joined(_unfiled)
    left = [one for one in parts if one.seconds]
    for one in parts:
        if one.not_warm:
            state = f'"{one.name}" has not warmed up in {counted(one.not_warm, "time")}'
            print(f"perfkit: {state}, so nothing of it was filed", file=sys.stderr)  # noqa: T201 (no command prints for it)
    if not left:
        return
    names = ", ".join(_described(name, left) for name in dict.fromkeys(one.name for one in left))
    try:
        run_id = _file(left, None, folder)
        line = f"{names} -> run {shown_run_id(run_id)} of the ledger"
    except PerfkitError as error:
        line = f"the times of this program were not filed: {error}"
    print(f"perfkit: {line}", file=sys.stderr)  # noqa: T201 (no command prints for it)


def _joined(parts: Sequence[timed]) -> list[timed]:
    """Return the parts that have times, those of a loop that made one in each turn joined into the first.

    A part that was entered several times has a warm-up of its own, and stays by itself.
    """
    groups: dict[tuple[object, ...], list[timed]] = {}
    for one in parts:
        if one.entered:
            groups.setdefault(one.terms, []).append(one)
    found: list[timed] = []
    for group in groups.values():
        if len(group) > _MOST_PARTS and all(one.entered == 1 for one in group):
            group[0].take_over(group[1:])
            found.append(group[0])
        else:
            found += group
    return found


def _described(name: str, parts: Sequence[timed]) -> str:
    own = [one for one in parts if one.name == name]
    text = repr(own[0])[1:-1].removeprefix("perfkit.timed ")
    return text if len(own) == 1 else f"{text}, and {counted(len(own) - 1, 'more part')} of that name"


def _file(parts: Sequence[timed], place: str | Path | None, folder: Path) -> str:
    """Record the times of parts as one run."""
    if waiting := [one for one in parts if one.not_warm]:
        times = counted(waiting[0].not_warm, "time")
        raise NotMeasuredError(
            f'the times of "{waiting[0].name}" have not warmed up in {times}: time more of it'
        )
    if empty := [one.name for one in parts if not one.seconds]:
        raise NotMeasuredError(f'nothing was timed as "{empty[0]}" yet, so there is nothing to file')
    project = load_project(folder)
    ledger = Ledger(ledger_folder(project.ledger_place if place is None else place))
    commit = read_commit(project.root, ignored=(*project.output_paths, ledger.path))
    ledger.check_writable()
    run_id, now = new_run_id(), utc_now()
    facts = RunFacts(
        run_id=run_id,
        recorded_at=now,
        source="timed",
        commit=commit,
        machine=read_machine(),
        environment=read_environment(),
    )
    met: Counter[str] = Counter()
    with ledger.run(source="timed", run_id=run_id, recorded_at=now) as run:
        for one in parts:
            run.add(_rows(one, facts, launch=met[one.name]))
            met[one.name] += 1
    for one in parts:
        one.forget()
    return run_id


def _rows(one: timed, facts: RunFacts, *, launch: int) -> list[Row]:
    whole = Outcome(
        benchmark=Benchmark(name=_PREFIX + one.name, version=one.version),
        metric=WALL_TIME,
        warmup=one.warmup,
        loops=1,
        values=one.seconds,
    )
    cold = one.cold_start if one.cold_start_s is not None and one.warms_up else None
    marks = one.device.marks if one.device else ()
    return [
        facts.row(
            outcome, placement=Placement(launch=launch), policy=RowPolicy(marks=(*marks, *marks_of_cold))
        )
        for outcome, marks_of_cold in outcomes_of(whole, one.device, cold)
    ]
