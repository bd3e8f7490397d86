"""The adapter to pytest-benchmark (5.x): all uses of its private attributes are here.

``BenchmarkFixture._timer`` is what its runners call right before and after each timed block;
``fixture.stats.stats.data`` holds seconds per iteration in measured order; ``_raw`` and ``_raw_pedantic``
get the function with its arguments and run the rounds. ``_raw`` lets the runners that ``_make_runner``
returns make all calls but the last one, which gives the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

# It is imported by name, so that tests which replace the clock in its module do not change it here.
from time import perf_counter, process_time
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar

import pytest_benchmark.plugin
from pytest_benchmark.fixture import BenchmarkFixture, PauseInstrumentation
from pytest_benchmark.timers import default_timer

from .clock import L2_FLUSHED, DeviceTimes, block_times, clock_of, synchronised, uses_accelerator
from .counters.model import Count
from .functions import LOOP_PLUGIN, NeverRunError, check_is_run, runs_coroutines
from .state import BEGUN

Value = TypeVar("Value")
# Calls a function with its arguments.
Around = Callable[[Callable[..., object], Sequence[Any], Mapping[str, Any]], Value]

# A fixture has this attribute where the device's cache is emptied before each call.
_FLUSHES = "_perfkit_flushes"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a used fixture holds: seconds per iteration in measured order, and how they were taken.

    Options that this version of pytest-benchmark does not have are None.
    """

    values: tuple[float, ...]
    loops: int | None
    warmup: int | None
    mode: str
    disable_gc: bool | None
    min_rounds: int | None
    max_time_s: float | None
    min_time_s: float | None
    device: DeviceTimes | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """A benchmarked function ready to run.

    ``block(n)`` runs n iterations and returns their wall seconds. A round must have ``loops`` iterations, and
    one process makes at most ``rounds`` of them; None is no limit. ``keep`` adds a round to the benchmark's
    own statistics. With ``number`` nothing is timed. Blocks that are timed ``by_wall`` do nothing besides.
    Its test took ``set_up_s`` up to now, in which it made ``warm_up`` calls.
    """

    node: str
    block: Callable[[int], float]
    call: Callable[[], object]
    keep: Callable[[int, float], None]
    loops: int | None = None
    rounds: int | None = None
    number: Callable[[], Count] | None = None
    device: Callable[[Sequence[float], int], DeviceTimes | None] = lambda *_: None
    target: Target | None = None
    by_wall: bool = False
    set_up_s: float = 0.0
    warm_up: int = 0


@dataclass(frozen=True, kw_only=True)
class Target:
    """A function that a benchmark in ``file`` calls, and what returns its arguments, ``new`` ones or not."""

    function: Callable[..., object]
    arguments: Callable[[], tuple[tuple[object, ...], Mapping[str, object]]]
    file: str
    new: bool = False
    teardown: Callable[..., object] | None = None

    def through(self, around: Around[Value]) -> Value:
        """Make a call by a function that is given this one and its arguments."""
        args, kwargs = self.arguments()
        result = around(self.function, args, kwargs)
        if self.teardown is not None:
            self.teardown(*args, **kwargs)
        return result


class OutOfTimeError(Exception):
    """The time that all calls together may take is used up."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A benchmarked function whose timed rounds are over, and which may be called again.

    ``seconds`` is what its benchmark has taken so far, ``calls`` how many calls the timed rounds made of it.
    """

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    seconds: float
    calls: int

    @property
    def seconds_of_call(self) -> float:
        """About how many seconds a call takes; rather too many, as set-up is included."""
        return self.seconds / max(self.calls, 1)

    def within(self, seconds: float) -> Callable[[], object]:
        """Return a function that calls again, and whose calls may take ``seconds`` together."""
        function, args, kwargs = self.function, self.args, self.kwargs
        left, least = seconds, self.seconds_of_call

        def call() -> object:
            nonlocal left
            if left < least:
                raise OutOfTimeError
            begun = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                left -= perf_counter() - begun

        return call


class TimingLoop(Protocol):
    """Decides which iterations of a benchmark run when."""

    def time(self, work: Work) -> None:
        """Run a benchmark's rounds until there are enough."""


class LockstepFixture(BenchmarkFixture):  # type: ignore[misc]
    """A ``benchmark`` fixture whose rounds run when a timing loop asks for them."""

    timing_loop: ClassVar[TimingLoop]

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (the host's own)
        super().__init__(*arguments, **options)
        # Its test may give it another name, while the coordinator knows it by this one.
        self.node: str = self.fullname
        item = options.get("node") or next(iter(arguments), None)
        self._file = str(getattr(item, "path", ""))
        self._begun: tuple[float, float] = getattr(item, "stash", {}).get(
            BEGUN, (perf_counter(), process_time())
        )
        self._by_wall = self._timer in (perf_counter, default_timer)
        plugins = getattr(getattr(item, "config", None), "pluginmanager", None)
        self._has_loop = plugins is not None and plugins.has_plugin(LOOP_PLUGIN)
        synchronise_timer(self, item)

    def _set_up_s(self) -> float:
        """Return the time of its test so far, without that in which others had the CPU."""
        begun, begun_cpu = self._begun
        return min(perf_counter() - begun, process_time() - begun_cpu)

    def _raw(self, function_to_benchmark: Callable[..., object], *args: object, **kwargs: object) -> object:
        function = runs_coroutines(function_to_benchmark, has_loop=self._has_loop)
        runner = self._make_runner(function, args, kwargs)

        def block(iterations: int) -> float:
            with PauseInstrumentation():
                return float(runner(range(iterations)))

        def call() -> object:
            return function(*args, **kwargs)

        self.timing_loop.time(
            Work(
                node=self.node,
                block=block,
                call=call,
                keep=self._keep,
                device=self._device,
                target=Target(function=function, arguments=lambda: (args, kwargs), file=self._file),
                by_wall=self._by_wall,
                set_up_s=self._set_up_s(),
            )
        )
        result = call()
        check_is_run(function_to_benchmark, result)
        return result

    def _raw_pedantic(
        self,
        target: Callable[..., object],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., object] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> object:
        _check_counts(rounds, warmup_rounds, iterations, with_setup=setup is not None)
        function = runs_coroutines(target, has_loop=self._has_loop)
        arguments = _arguments(args, dict(kwargs or {}), setup)
        own = Target(
            function=function, arguments=arguments, file=self._file, new=setup is not None, teardown=teardown
        )
        pedantic = _Pedantic(self, own)
        for _ in range(warmup_rounds):
            pedantic.block(iterations)
        work = Work(
            node=self.node,
            block=pedantic.block,
            call=pedantic.call,
            keep=self._keep,
            loops=iterations,
            # Without a setup a call may use up what the next one needs, so no more are made than asked for.
            rounds=None if setup else rounds,
            device=self._device,
            target=pedantic.target,
            by_wall=self._by_wall and setup is None and teardown is None,
            set_up_s=self._set_up_s(),
            warm_up=warmup_rounds * iterations,
        )
        self.timing_loop.time(work)
        # As in pytest-benchmark, one more call gives the result after rounds of several iterations.
        result = pedantic.result if iterations == 1 else pedantic.call()
        check_is_run(target, result)
        return result

    def _keep(self, iterations: int, seconds: float) -> None:
        if self.stats is None:
            self._make_stats(iterations)
        self.stats.update(seconds)

    def _device(self, values: Sequence[float], loops: int) -> DeviceTimes | None:
        return device_times_of(self, values, loops=loops)


class _Pedantic:
    """A pedantic benchmark: every round with its own setup and teardown, outside the clock."""

    def __init__(self, fixture: BenchmarkFixture, target: Target) -> None:
        self._fixture, self.target = fixture, target
        self.result: object = None

    def block(self, iterations: int) -> float:
        def timed(function: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
            runner = self._fixture._make_runner(function, args, kwargs)  # noqa: SLF001 (the adapter)
            with PauseInstrumentation():
                if iterations > 1:
                    return float(runner(range(iterations)))
                seconds, self.result = runner(None)
                return float(seconds)

        return self.target.through(timed)

    def call(self) -> object:
        return self.target.through(lambda target, args, kwargs: target(*args, **kwargs))


def _arguments(
    args: tuple[object, ...], kwargs: Mapping[str, object], setup: Callable[[], Any] | None
) -> Callable[[], tuple[tuple[object, ...], Mapping[str, object]]]:
    """Return what returns the arguments of a call, by ``setup`` where that gives any."""

    def arguments() -> tuple[tuple[object, ...], Mapping[str, object]]:
        if not (made := setup() if setup is not None else None):
            return args, kwargs
        if args or kwargs:
            raise TypeError("Can't use `args` or `kwargs` if `setup` returns the arguments.")
        new_args, new_kwargs = made
        return new_args, new_kwargs

    return arguments


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Rounds of a benchmark with a fixed number of iterations each.

    Without a timing loop, untimed rounds run for ``warmup_s`` seconds, then ``most`` timed ones, none of
    which begins after ``most_s`` seconds.
    """

    block: Callable[[int], float]
    call: Callable[[], object]
    loops: int
    most: int
    most_s: float
    warmup_s: float
    target: Target | None = None


def count_as_used(fixture: object) -> None:
    """Keep pytest-benchmark from warning of an unused fixture, whose benchmark failed before its use."""
    assert isinstance(fixture, BenchmarkFixture)  # noqa: S101 (pytest made it)
    fixture._mode = "not begun"  # noqa: SLF001 (the adapter)


def run_plainly(
    fixture: object,
    function: Callable[..., object],
    args: tuple[object, ...],
    *,
    timer: Callable[[], float] | None,
) -> None:
    """Benchmark a function's calls without garbage collection, by ``timer`` where one is given."""
    assert isinstance(fixture, BenchmarkFixture)  # noqa: S101 (pytest made it)
    _adapt(fixture, timer)
    fixture._mode = None  # noqa: SLF001 (the adapter)
    fixture(function, *args)


def block_of(
    fixture: object,
    function: Callable[..., object],
    args: tuple[object, ...],
    *,
    timer: Callable[[], float] | None,
) -> Callable[[int], float]:
    """Return a block of a function's calls, timed as ``run_plainly`` does."""
    assert isinstance(fixture, BenchmarkFixture)  # noqa: S101 (pytest made it)
    _adapt(fixture, timer)
    runner = fixture._make_runner(function, args, {})  # noqa: SLF001 (the adapter)

    def block(iterations: int) -> float:
        with PauseInstrumentation():
            return float(runner(range(iterations)))

    return block


def run_rounds(fixture: object, rounds: Rounds) -> None:
    """Run the rounds of a benchmark, as a timing loop asks for them where there is one."""
    assert isinstance(fixture, BenchmarkFixture)  # noqa: S101 (pytest made it)
    fixture._mode = f"rounds of {rounds.loops}"  # noqa: SLF001 (the adapter)
    if isinstance(fixture, LockstepFixture):
        fixture.timing_loop.time(
            Work(
                node=fixture.node,
                block=rounds.block,
                call=rounds.call,
                keep=fixture._keep,  # noqa: SLF001 (likewise)
                loops=rounds.loops,
                device=fixture._device,  # noqa: SLF001 (likewise)
                target=rounds.target,
            )
        )
    elif fixture.disabled:
        rounds.call()
    else:
        _run_alone(fixture, rounds)


def run_number(fixture: object, number: Callable[[], Count]) -> Count | None:
    """Measure a number instead of a time; a timing loop gets it, and None is returned then."""
    assert isinstance(fixture, BenchmarkFixture)  # noqa: S101 (pytest made it)
    if not isinstance(fixture, LockstepFixture):
        return number()

    def block(_: int) -> float:
        raise TypeError(f"{fixture.fullname} measures a number, which cannot be timed")

    work = Work(node=fixture.node, block=block, call=number, keep=lambda *_: None, number=number)
    fixture.timing_loop.time(work)
    return None


def _adapt(fixture: BenchmarkFixture, timer: Callable[[], float] | None) -> None:
    fixture._disable_gc = True  # noqa: SLF001 (the adapter)
    if timer is not None:
        fixture._timer = synchronised(timer)  # noqa: SLF001 (likewise)


def _run_alone(fixture: BenchmarkFixture, rounds: Rounds) -> None:
    begun = perf_counter()
    while perf_counter() - begun < rounds.warmup_s:
        rounds.block(rounds.loops)
    begun = perf_counter()
    stats = fixture._make_stats(rounds.loops)  # noqa: SLF001 (the adapter)
    for _ in range(rounds.most):
        stats.update(rounds.block(rounds.loops))
        if perf_counter() - begun > rounds.most_s:
            return


def install(timing_loop: TimingLoop) -> None:
    """Have ``timing_loop`` time the rounds of every ``benchmark`` fixture made from now on."""
    LockstepFixture.timing_loop = timing_loop
    pytest_benchmark.plugin.BenchmarkFixture = LockstepFixture
    name_no_files()


def name_no_files() -> None:
    """Spare the next session the half a dozen calls of git by which pytest-benchmark names a file.

    No child writes that file, and describing a large checkout takes longer than a launch.
    """
    pytest_benchmark.plugin.get_tag = lambda: ""


def after_rounds(fixture: object, use: Callable[[Timed], None]) -> None:
    """Have ``use`` called with a benchmark's function after its last timed round, while its test goes on.

    Pedantic benchmarks are left alone, as their authors decide how often the function is called, and so are
    those that pytest-benchmark profiles after the rounds.
    """
    if not is_benchmark(fixture) or fixture.disabled or fixture.cprofile:
        return
    raw, make_runner = fixture._raw, fixture._make_runner  # noqa: SLF001 (the adapter)

    # The first parameter is positional only, so that the user's function may have arguments of any name.
    def raw_and_use(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
        __tracebackhide__ = True
        begun = perf_counter()

        def last(*args: object, **kwargs: object) -> object:
            __tracebackhide__ = True
            seconds, calls = perf_counter() - begun, _timed_calls(fixture)
            use(Timed(function=function, args=args, kwargs=kwargs, seconds=seconds, calls=calls))
            return function(*args, **kwargs)

        # The runners call the user's function itself, so that nothing of this is in what they time.
        fixture._make_runner = lambda _, *arguments: make_runner(function, *arguments)  # noqa: SLF001 (likewise)
        try:
            return raw(last, *args, **kwargs)
        finally:
            fixture._make_runner = make_runner  # noqa: SLF001 (likewise)

    fixture._raw = raw_and_use  # noqa: SLF001 (likewise)


def before_rounds(fixture: object, warm: Callable[[Callable[[], object]], None]) -> None:
    """Call ``warm`` before the first round of each benchmark that has used an accelerator."""
    if not is_benchmark(fixture) or fixture.disabled:
        return
    raw = fixture._raw  # noqa: SLF001 (the adapter)

    # The first parameter is positional only, so that the user's function may have arguments of any name.
    def warm_and_raw(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
        __tracebackhide__ = True
        if uses_accelerator():
            warm(lambda: function(*args, **kwargs))
        return raw(function, *args, **kwargs)

    fixture._raw = warm_and_raw  # noqa: SLF001 (likewise)


def note_unrun(fixture: object, note: Callable[[str], None]) -> None:
    """Have ``note`` called with the reason where a benchmark's calls only make what nobody runs."""
    if not is_benchmark(fixture) or fixture.disabled:
        return

    def checked(raw: Callable[..., object]) -> Callable[..., object]:
        # The first parameter is positional only, so that the user's function may have arguments of any name.
        def call(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
            __tracebackhide__ = True
            result = raw(function, *args, **kwargs)
            try:
                check_is_run(function, result)
            except NeverRunError as error:
                note(str(error))
            return result

        return call

    fixture._raw = checked(fixture._raw)  # noqa: SLF001 (the adapter)
    fixture._raw_pedantic = checked(fixture._raw_pedantic)  # noqa: SLF001 (likewise)


def synchronise_timer(fixture: object, node: object = None) -> None:
    """Make a fixture wait for the accelerator before each reading of its clock."""
    if not is_benchmark(fixture):
        return
    fixture._timer = synchronised(fixture._timer)  # noqa: SLF001 (the adapter)
    clock = clock_of(fixture._timer)  # noqa: SLF001 (likewise)
    if clock is not None:
        clock.spans.clear()
    if _asks_to_flush(node) and not hasattr(fixture, _FLUSHES):
        setattr(fixture, _FLUSHES, True)
        _flush_before_calls(fixture)


def _asks_to_flush(node: object) -> bool:
    marker = getattr(node, "get_closest_marker", lambda _: None)("perfkit")
    return marker is not None and bool(marker.kwargs.get("flush_l2"))


def _flush_before_calls(fixture: BenchmarkFixture) -> None:
    make_runner = fixture._make_runner  # noqa: SLF001 (the adapter)

    def make_flushing(*arguments: object) -> Callable[..., object]:
        runner = make_runner(*arguments)
        clock = clock_of(fixture._timer)  # noqa: SLF001 (likewise)

        def run(loops_range: range | None) -> object:
            if clock is None:
                return runner(loops_range)
            if not loops_range:
                clock.flush()
                return runner(loops_range)
            seconds = 0.0
            for _ in loops_range:
                clock.flush()
                seconds += runner(range(1))
            joined = clock.join(len(loops_range))
            return seconds if joined is None else joined

        return run

    fixture._make_runner = make_flushing  # noqa: SLF001 (likewise)


def device_times_of(fixture: object, values: Sequence[float], *, loops: int) -> DeviceTimes | None:
    """Return the rounds of a fixture on an accelerator, None where none was in use."""
    if not is_benchmark(fixture) or not values:
        return None
    found = block_times(fixture._timer, values, loops=loops)  # noqa: SLF001 (the adapter)
    if found is None or not hasattr(fixture, _FLUSHES):
        return found
    return replace(found, marks=(*found.marks, L2_FLUSHED))


def is_benchmark(fixture: object) -> TypeGuard[BenchmarkFixture]:
    """Return whether a fixture is pytest-benchmark's own.

    Other plugins and mocks pass for it in ``isinstance`` by their ``__class__``.
    """
    return issubclass(type(fixture), BenchmarkFixture)


def read_fixture(fixture: object) -> Reading | None:
    """Return what a fixture measured, or None where it measured nothing (unused, disabled, failed early)."""
    if not is_benchmark(fixture) or fixture.stats is None:
        return None
    metadata = fixture.stats

    def option(name: str, kind: Callable[[Any], Value]) -> Value | None:
        value = metadata.options.get(name)
        return None if value is None else kind(value)

    values = tuple(float(value) for value in metadata.stats.data)
    return Reading(
        values=values,
        loops=metadata.iterations,
        device=device_times_of(fixture, values, loops=int(metadata.iterations)),
        warmup=_warmup(fixture),
        mode=str(fixture._mode),  # noqa: SLF001 (the adapter)
        disable_gc=option("disable_gc", bool),
        min_rounds=option("min_rounds", int),
        max_time_s=option("max_time", float),
        min_time_s=option("min_time", float),
    )


def group_of(fixture: object) -> str | None:
    """Return the group a benchmark was put in."""
    return fixture.group if is_benchmark(fixture) else None


def _timed_calls(fixture: BenchmarkFixture) -> int:
    return len(fixture.stats.stats.data) * int(fixture.stats.iterations)


def _check_counts(rounds: int, warmup_rounds: int, iterations: int, *, with_setup: bool) -> None:
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError("Must have positive int for `iterations`.")
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError("Must have positive int for `rounds`.")
    if not isinstance(warmup_rounds, int) or warmup_rounds < 0:
        raise ValueError("Must have positive int for `warmup_rounds`.")
    if iterations > 1 and with_setup:
        raise ValueError("Can't use more than 1 `iterations` with a `setup` function.")


def _warmup(fixture: BenchmarkFixture) -> int | None:
    if str(fixture._mode) != "benchmark(...)":  # noqa: SLF001 (the adapter)
        return None
    return int(fixture._warmup)  # noqa: SLF001 (the adapter)
