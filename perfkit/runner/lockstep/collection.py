"""What a side's benchmarks are, as its process lists them, and what their files import."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.metadata
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.agent import FIXTURE_NAME
from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError, Message
from perfkit.agent.provenance import own_places
from perfkit.agent.session import mentions_fixture
from perfkit.errors import SideNotMeasuredError
from perfkit.identity import source_version
from perfkit.model import SIDES, Benchmark, Side
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.launch import SideReport, read_report

EVERYTHING = ""
_COLLECTION_LIMIT_S = 300.0
_FIRST_WORD_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """A benchmark as a side has it: the file it is in, and what its ``perfkit`` marker sets.

    A benchmark of an ``asv`` suite sets itself how many seconds it may take, and a ``number`` of it is
    measured instead of a time.
    """

    benchmark: Benchmark
    file: str
    settings: Mapping[str, str]
    limit_s: float | None = None
    asv: bool = False
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The benchmarks of a side; ``errors`` maps what could not be collected (mostly a file) to the cause.

    The key ``EVERYTHING`` means that pytest ended before it collected. ``bystanders`` are those of ``errors``
    whose files mention no benchmark, ``skipped`` the files that do and skip themselves, with the reason.
    ``overruled`` names the user's options that would break lockstep and were switched off. An asv suite
    leaves ``asv_left_out`` benchmarks out, None where there is no suite. ``files`` hold tests or failed.
    Each file took some ``seconds`` to collect.
    """

    found: Mapping[str, Found]
    errors: Mapping[str, str]
    bystanders: frozenset[str] = frozenset()
    skipped: Mapping[str, str] = field(default_factory=dict)
    overruled: tuple[str, ...]
    asv_left_out: int | None = None
    files: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)
    report: SideReport


def list_benchmarks(child: Child) -> Listing:
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


def read_listing(child: Child, log: Callable[[str], None] = ignore_log) -> Listing:
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
    return Listing(
        found={one.benchmark.name: one for one in found},
        errors={error["node"]: error["message"] for error in failed},
        bystanders=frozenset(error["node"] for error in failed if not error["mentions"]),
        skipped={error["node"]: error["message"] for error in skipped},
        overruled=tuple(message["overruled"]),
        asv_left_out=message["asv"]["left_out"] if message["asv"] is not None else None,
        files=frozenset(message["files"]),
        seconds=message["seconds"],
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


def _not_collected(report: SideReport | None, words: str) -> Listing:
    known = report or SideReport(foreign={})
    errors = {} if known.foreign else {EVERYTHING: words}
    return Listing(found={}, errors=errors, overruled=(), report=known)


def _read(item: Message) -> Found:
    benchmark = Benchmark(
        name=item["node"], version=source_version(item["source"]), params=item["params"], group=item["group"]
    )
    return Found(
        benchmark=benchmark,
        file=item["file"],
        settings=item["settings"],
        limit_s=item["limit_s"],
        asv=item["asv"],
        number=item["number"],
    )


# Reading the files of a suite should take no longer than importing what they import.
_MOST_FILES_READ = 100
_BLOCKED = re.compile(r"-p[ =]?no:(\S+)")
# Making the first optimizer imports this, which takes as long as importing torch.
_BY_OPTIMIZERS = "torch._dynamo"


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The installed plugins of pytest: their modules by name, and the packages that come with them.

    pytest rewrites the assertions of all modules of these packages.
    """

    modules: Mapping[str, str]
    packages: tuple[str, ...]


@functools.cache
def plugins() -> Plugins:
    """Return the installed plugins of pytest."""
    found = [
        (distribution, entries)
        for distribution in importlib.metadata.distributions()
        if (entries := distribution.entry_points.select(group="pytest11"))
    ]
    modules = {entry.name: entry.module for _, entries in found for entry in entries}
    files = (file for distribution, _ in found for file in distribution.files or ())
    # An editable installation lists no file of its packages.
    names = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}
    names |= {module.partition(".")[0] for module in modules.values()}
    return Plugins(modules=modules, packages=tuple(sorted(filter(str.isidentifier, names))))


def loaded_plugins(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the modules of the installed plugins that these variables let pytest load."""
    if environment.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return ()
    blocked = _BLOCKED.findall(environment.get("PYTEST_ADDOPTS", ""))
    return tuple(dict.fromkeys(one for name, one in plugins().modules.items() if name not in blocked))


def expected_imports(roots: Mapping[Side, Path], paths: Sequence[str]) -> tuple[str, ...]:
    """Return what the benchmarks' files of both sides import: collecting them will import it anyway.

    Only imports that stand by themselves at the top of a file count, as others may never happen. Modules of
    the tree itself are followed.
    """
    base, head = (_imports_of(roots[side], paths) for side in SIDES)
    return tuple(name for name in head if name in base)


def holds_benchmarks_alone(root: Path, paths: Sequence[str]) -> bool:
    """Return whether all tests below some paths, of which there is one at least, seem to be benchmarks."""
    tests = (file for file in _files_in(root, paths) if file.match("test_*.py") or file.match("*_test.py"))
    return bool(paths) and all(map(mentions_fixture, tests))


def _files_in(root: Path, paths: Iterable[str]) -> list[Path]:
    places = [root / path for path in paths]
    return sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))


def _imports_of(root: Path, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the modules that files which mention the fixture import, in order."""
    waiting = [(file, FIXTURE_NAME.encode()) for file in _files_in(root, paths)]
    found: dict[str, None] = {}
    read: set[Path] = set()
    looked_at = 0
    while waiting and looked_at < _MOST_FILES_READ:
        file, mentioned = waiting.pop(0)
        looked_at += 1
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            text = file.read_bytes()
            if file in read or mentioned not in text:
                continue
            read.add(file)
            if b"torch.optim" in text:
                found[_BY_OPTIMIZERS] = None
            for name in _top_imports(ast.parse(text)):
                if own := _file_of(name, (file.parent, *own_places(root))):
                    waiting.append((own, b""))
                else:
                    found[name] = None
    return tuple(found)


def _file_of(module: str, folders: Iterable[Path]) -> Path | None:
    """Return the file of a module in one of these folders, None where none has it."""
    place = module.replace(".", "/")
    files = (folder / f"{place}{end}" for folder in folders for end in (".py", "/__init__.py"))
    return next((file for file in files if file.is_file()), None)


def _top_imports(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            yield statement.module
