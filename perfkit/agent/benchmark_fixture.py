"""The seam to pytest-benchmark (5.x): everything perfkit reads or sets on its private side is here.

``BenchmarkFixture._timer`` is what its runners call right before and after each timed block;
``fixture.stats.stats.data`` holds seconds per iteration in measured order; ``_raw`` and ``_raw_pedantic``
are where the function, its arguments and the rounds meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import pytest_benchmark.plugin
from pytest_benchmark.fixture import BenchmarkFixture, PauseInstrumentation

from .clock import synchronised

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a used fixture holds: seconds per iteration in measured order, and how they were taken.

    Of the options, times are in seconds; one that this version of the host does not have is None.
    """

    values: tuple[float, ...]
    loops: int | None
    warmup: int | None
    mode: str
    disable_gc: bool | None
    min_rounds: int | None
    max_time_s: float | None
    min_time_s: float | None


@dataclass(frozen=True, kw_only=True)
class Work:
    """A benchmarked function ready to run.

    ``block(n)`` runs n iterations and returns their wall time in seconds. ``loops`` is how many iterations
    a round must have, None where that is free; ``rounds`` how many rounds the benchmark allows in one
    process, None where there is no limit. ``call`` runs one iteration outside any clock.
    """

    node: str
    block: Callable[[int], float]
    call: Callable[[], object]
    keep: Callable[[int, float], None]
    loops: int | None = None
    rounds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Calls:
    """A benchmarked function to be called again, ``most`` times at most, outside any clock."""

    call: Callable[[], object]
    most: float = math.inf


class Conductor(Protocol):
    """Says which iterations of a benchmark run when."""

    def conduct(self, work: Work) -> None:
        """Run a benchmark's rounds until there are enough."""


class LockstepFixture(BenchmarkFixture):  # type: ignore[misc]
    """A ``benchmark`` fixture whose rounds run when a conductor says so."""

    conductor: ClassVar[Conductor]

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (the host's own)
        super().__init__(*arguments, **options)
        synchronise_timer(self)

    def _raw(self, function_to_benchmark: Callable[..., object], *args: object, **kwargs: object) -> object:
        runner = self._make_runner(function_to_benchmark, args, kwargs)

        def block(iterations: int) -> float:
            with PauseInstrumentation():
                return float(runner(range(iterations)))

        def call() -> object:
            return function_to_benchmark(*args, **kwargs)

        self.conductor.conduct(Work(node=self.fullname, block=block, call=call, keep=self._keep))
        return call()

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
        pedantic = _Pedantic(self, target, args, dict(kwargs or {}), setup, teardown)
        for _ in range(warmup_rounds):
            pedantic.block(iterations)
        work = Work(
            node=self.fullname,
            block=pedantic.block,
            call=pedantic.call,
            keep=self._keep,
            loops=iterations,
            # Without a setup a call may use up what the next one needs: no more are made than asked for.
            rounds=None if setup else rounds,
        )
        self.conductor.conduct(work)
        # As pytest-benchmark does: after rounds of several iterations, one more call gives the result.
        return pedantic.result if iterations == 1 else pedantic.call()

    def _keep(self, iterations: int, seconds: float) -> None:
        """Put a round among the benchmark's own statistics: suites assert on them."""
        if self.stats is None:
            self._make_stats(iterations)
        self.stats.update(seconds)


class _Pedantic:
    """A pedantic benchmark: every round with its own setup and teardown, outside the clock."""

    def __init__(
        self,
        fixture: BenchmarkFixture,
        target: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        setup: Callable[[], Any] | None,
        teardown: Callable[..., object] | None,
    ) -> None:
        self._fixture, self._target, self._given = fixture, target, (args, kwargs)
        self._setup, self._teardown = setup, teardown
        self.result: object = None

    def block(self, iterations: int) -> float:
        args, kwargs = self._arguments()
        runner = self._fixture._make_runner(self._target, args, kwargs)  # noqa: SLF001 (the seam)
        with PauseInstrumentation():
            if iterations > 1:
                seconds = runner(range(iterations))
            else:
                seconds, self.result = runner(None)
        if self._teardown is not None:
            self._teardown(*args, **kwargs)
        return float(seconds)

    def call(self) -> object:
        args, kwargs = self._arguments()
        result = self._target(*args, **kwargs)
        if self._teardown is not None:
            self._teardown(*args, **kwargs)
        return result

    def _arguments(self) -> tuple[tuple[object, ...], dict[str, object]]:
        made = self._setup() if self._setup is not None else None
        if not made:
            return self._given
        if any(self._given):
            raise TypeError("Can't use `args` or `kwargs` if `setup` returns the arguments.")
        args, kwargs = made
        return args, kwargs


def install(conductor: Conductor) -> None:
    """Let every ``benchmark`` fixture made from now on be led by ``conductor``."""
    LockstepFixture.conductor = conductor
    pytest_benchmark.plugin.BenchmarkFixture = LockstepFixture
    # pytest-benchmark would run git half a dozen times to name a file that no child writes.
    pytest_benchmark.plugin.get_tag = lambda: ""


def remember_calls(fixture: object) -> Callable[[], Calls | None]:
    """Return a function that, once a fixture has measured, gives its function to call again, else None."""
    known: list[Calls] = []
    if isinstance(fixture, BenchmarkFixture):
        raw, pedantic = fixture._raw, fixture._raw_pedantic  # noqa: SLF001 (the seam)

        def remember(function: Callable[..., object], *args: object, **kwargs: object) -> object:
            known.append(Calls(call=lambda: function(*args, **kwargs)))
            return raw(function, *args, **kwargs)

        def remember_pedantic(
            target: Callable[..., object],
            args: tuple[object, ...] = (),
            kwargs: Mapping[str, object] | None = None,
            setup: Callable[[], Any] | None = None,
            teardown: Callable[..., object] | None = None,
            **options: object,
        ) -> object:
            again = _Pedantic(fixture, target, args, dict(kwargs or {}), setup, teardown)
            # Without a setup each call may use up what the next one needs.
            known.append(Calls(call=again.call, most=math.inf if setup else 0))
            return pedantic(target, args, kwargs, setup, teardown, **options)

        fixture._raw, fixture._raw_pedantic = remember, remember_pedantic  # noqa: SLF001 (the seam)
    return lambda: known[-1] if known else None


def synchronise_timer(fixture: object) -> None:
    """Make a fixture wait for the accelerator before each reading of its clock."""
    if isinstance(fixture, BenchmarkFixture):
        fixture._timer = synchronised(fixture._timer)  # noqa: SLF001 (the seam)


def read_fixture(fixture: object) -> Reading | None:
    """Return what a fixture measured, or None where it measured nothing (unused, disabled, failed early)."""
    if not isinstance(fixture, BenchmarkFixture) or fixture.stats is None:
        return None
    metadata = fixture.stats

    def option(name: str, kind: Callable[[Any], Value]) -> Value | None:
        value = metadata.options.get(name)
        return None if value is None else kind(value)

    return Reading(
        values=tuple(float(value) for value in metadata.stats.data),
        loops=metadata.iterations,
        warmup=_warmup(fixture),
        mode=str(fixture._mode),  # noqa: SLF001 (the seam)
        disable_gc=option("disable_gc", bool),
        min_rounds=option("min_rounds", int),
        max_time_s=option("max_time", float),
        min_time_s=option("min_time", float),
    )


def group_of(fixture: object) -> str | None:
    """Return the group a benchmark was put in."""
    return fixture.group if isinstance(fixture, BenchmarkFixture) else None


def _check_counts(rounds: int, warmup_rounds: int, iterations: int, *, with_setup: bool) -> None:
    """Refuse what pytest-benchmark refuses, with its message."""
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError("Must have positive int for `iterations`.")
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError("Must have positive int for `rounds`.")
    if not isinstance(warmup_rounds, int) or warmup_rounds < 0:
        raise ValueError("Must have positive int for `warmup_rounds`.")
    if iterations > 1 and with_setup:
        raise ValueError("Can't use more than 1 `iterations` with a `setup` function.")


def _warmup(fixture: BenchmarkFixture) -> int | None:
    """Return the untimed iterations; how many a pedantic benchmark asked for is not kept by the host."""
    if "pedantic" in str(fixture._mode):  # noqa: SLF001 (the seam)
        return None
    return int(fixture._warmup)  # noqa: SLF001 (the seam)
