"""Reads the lists of benchmarks that children send after collecting, without running one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfkit.errors import SideNotMeasuredError
from perfkit.identity import source_version
from perfkit.model import Benchmark
from perfkit.runner.agent.channel import ChannelClosedError, ChannelTimeoutError, Message
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.launch import SideReport, read_report

EVERYTHING = ""
_COLLECTION_LIMIT_S = 300.0
_FIRST_WORD_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """A benchmark as a side has it: the file it is in, and what its ``perfkit`` marker says.

    ``changed`` says that it may run a function that differs between the sides. ``reached`` are the functions
    that it may run in files that differ: file and qualified name. A benchmark of an ``asv`` suite says itself
    how many seconds it may take, and a ``number`` of it is measured instead of a time.
    """

    benchmark: Benchmark
    file: str
    settings: Mapping[str, str]
    changed: bool = True
    reached: tuple[tuple[str, str], ...] = ()
    limit_s: float | None = None
    asv: bool = False
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Scouted:
    """The benchmarks of a side; ``errors`` maps what could not be collected (mostly a file) to the cause.

    The key ``EVERYTHING`` means that pytest ended before it collected. ``bystanders`` are those of ``errors``
    whose files mention no benchmark, ``skipped`` the files that do and skip themselves, with the reason.
    ``overruled`` names the user's options that would break lockstep and were switched off. An asv suite
    leaves ``asv_left_out`` benchmarks out, None where there is no suite.
    """

    found: Mapping[str, Found]
    errors: Mapping[str, str]
    bystanders: frozenset[str] = frozenset()
    skipped: Mapping[str, str] = field(default_factory=dict)
    overruled: tuple[str, ...]
    asv_left_out: int | None = None
    report: SideReport


def scout(child: Child) -> Scouted:
    """Return the benchmarks that a child found which was started to list them; the child is ended.

    Raises:
        SideNotMeasuredError: it ended without an answer.
    """
    try:
        return read_listing(child)
    finally:
        child.end()


def ignore_log(_: str) -> None:
    """Ignore a message about what is waited for."""


def read_listing(child: Child, log: Callable[[str], None] = ignore_log) -> Scouted:
    """Return the benchmarks that a child found which was started to list them; the child goes on.

    ``log`` receives a sentence now and then where that takes long.

    Raises:
        SideNotMeasuredError: the child ended without an answer, or gave none in time.
    """
    try:
        message = _awaited(child, log)
        if message["kind"] == "not_collected":
            return _not_collected(read_report(child), message["message"])
        if message["kind"] == "done":
            return _not_collected(SideReport(foreign=message["foreign"]), child.last_words())
        report = read_report(child)
    except ChannelTimeoutError as error:
        raise SideNotMeasuredError(
            f"pytest had not collected the benchmarks of {child.side} after {_COLLECTION_LIMIT_S:.0f} s,"
            f" it was at {_place(child)}: name fewer files with --benchmarks",
            side=child.side,
        ) from error
    except ChannelClosedError as error:
        raise SideNotMeasuredError(
            f"pytest could not collect the benchmarks of {child.side}: {child.last_words()}; "
            "run `pytest --collect-only` in a checkout of it to see why",
            side=child.side,
        ) from error
    found = [_read(item) for item in message["items"]]
    failed = [error for error in message["errors"] if not error["skipped"]]
    skipped = [error for error in message["errors"] if error["skipped"] and error["mentions"]]
    return Scouted(
        found={one.benchmark.name: one for one in found},
        errors={error["node"]: error["message"] for error in failed},
        bystanders=frozenset(error["node"] for error in failed if not error["mentions"]),
        skipped={error["node"]: error["message"] for error in skipped},
        overruled=tuple(message["overruled"]),
        asv_left_out=message["asv"]["left_out"] if message["asv"] is not None else None,
        report=report or SideReport(foreign={}),
    )


def _awaited(child: Child, log: Callable[[str], None]) -> Message:
    """Return a child's first message; report what it is collecting meanwhile, at growing intervals."""
    begun, wait_s = time.monotonic(), _FIRST_WORD_S
    while True:
        left_s = begun + _COLLECTION_LIMIT_S - time.monotonic()
        try:
            return child.receive(min(wait_s, left_s))
        except ChannelTimeoutError:
            if left_s <= wait_s:
                raise
        waited_s = time.monotonic() - begun
        log(f"collecting benchmarks: pytest is at {_place(child)} of {child.side}, {waited_s:.0f} s so far")
        wait_s *= 2


def _place(child: Child) -> str:
    return child.collecting or "plugins and conftest files"


def _not_collected(report: SideReport | None, words: str) -> Scouted:
    known = report or SideReport(foreign={})
    errors = {} if known.foreign else {EVERYTHING: words}
    return Scouted(found={}, errors=errors, overruled=(), report=known)


def _read(item: Message) -> Found:
    benchmark = Benchmark(
        name=item["node"],
        version=source_version(item["source"]),
        params=item["params"],
        group=item["group"],
    )
    return Found(
        benchmark=benchmark,
        file=item["file"],
        settings=item["settings"],
        changed=item["changed"],
        reached=tuple((file, name) for file, name in item["reached"]),
        limit_s=item["limit_s"],
        asv=item["asv"],
        number=item["number"],
    )
