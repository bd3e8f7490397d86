"""A measured child: it imports its side's code, runs one pytest session, and proves which code it ran."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from .asv_suite import AsvFolder, AsvPlugin
from .channel import Channel, Message, answer_request, end_process, open_channel
from .fork_server import PLUGIN, serve_forks
from .imports import point_imports
from .processes import take_peak
from .provenance import (
    STARTED,
    built_elsewhere,
    check_before_import,
    checkout_around,
    foreign_modules,
    libraries_since,
    loaded_files,
    own_names,
    part_caches,
    read_torch_settings,
)
from .session import ChildPlugin, Launch, run_session
from .state import draw_layout, seed_generators, seed_on_import
from .timing_loop import RemoteTimingLoop
from .trace import Trace
from .training import count_steps

if TYPE_CHECKING:
    from .benchmark_fixture import Work


def run_forked(descriptor: int) -> NoReturn:
    """Run one pytest session as requested over a socket, and end this process."""
    run_child(open_channel(descriptor))


def run_child(channel: Channel, request: Message | None = None) -> NoReturn:
    """Run one pytest session as requested, answer with the proof of its code, and end this process."""
    answer_request(channel, _answer, request)


def _answer(request: Message, channel: Channel) -> Message:
    _use_own_folder(request["temporary"])
    os.environ.update(part_caches(request["caches"], os.environ))
    root = Path(request["root"])
    before = set(sys.modules)
    depth = _begin_memory(request)
    seed_on_import()
    seed_generators(request["layout"])
    origins = [Path(origin) for origin in request["origins"]]
    point_imports(root, origins)
    foreign = check_before_import(root, own_names(root, origins))
    if foreign:
        return {"foreign": foreign}
    around = [checkout_around(root, origin) for origin in origins]
    own = [root, *around, *origins, Path(request["temporary"]).parent]
    built = functools.partial(built_elsewhere, own, began=request["began"], oldest=request["oldest"])
    report = functools.partial(_report, root, origins, before, built)
    if request["training"] is not None:
        steps = count_steps(request["training"], root=root, steps=request["steps"])
        channel.send({"kind": "trained", **steps})
    elif request["importing"]:
        channel.send(
            {"kind": "imported", **time_imports(root, request["importing"], own_names(root, origins))}
        )
    elif request["serves"]:
        return _serve_launches(request, channel, root, report)
    else:
        _run_benchmarks(request, channel, root, depth)
    return report()


def _use_own_folder(temporary: str) -> None:
    os.environ["TMPDIR"] = temporary
    Path(temporary).mkdir()
    # Python determines the folder only once, and this process may be a fork of one that has done so.
    tempfile.tempdir = None


def _begin_memory(order: Message) -> int:
    depth = draw_layout(order["layout"])
    # The peak of its memory is that of this launch.
    take_peak("self")
    return depth


def _run_benchmarks(assignment: Message, channel: Channel, root: Path, depth: int) -> None:
    nodes = assignment["nodes"]

    def next_launch() -> Launch | None:
        return None if nodes is None else _launch(nodes, channel, assignment, depth)

    _run_session(assignment, channel, root, next_launch)


def _serve_launches(
    assignment: Message, channel: Channel, root: Path, report: Callable[[], Message]
) -> Message:
    """List the benchmarks and report, then fork a process for each launch that is ordered.

    Where it is to trace, it records what the import runs, and what it forks traces benchmarks.
    """
    reported, top = False, assignment["traces"]
    trace = None if top is None else Trace(Path(top))
    others = () if trace is None else (TracePlugin(trace),)

    def next_launch() -> Launch | None:
        nonlocal reported
        reported = True
        # The report also fills caches of paths, which the reports of the forks then find filled.
        channel.send({"kind": "done", **report()})
        _load_fixture()
        # A garbage collection does not visit frozen objects, so their pages stay shared with the forks.
        gc.freeze()
        work = serve_forks(channel, functools.partial(_begin_launch, report, trace))
        return cast("Launch", work()) if work is not None else None

    if trace is not None:
        trace.install()
    _run_session(assignment, channel, root, next_launch, others)
    if reported:
        end_process(0)
    return report()


def _begin_launch(report: Callable[[], Message], trace: Trace | None, descriptor: int) -> Launch:
    channel = open_channel(descriptor)
    order = channel.receive()
    _use_own_folder(order["temporary"])
    depth = _begin_memory(order)

    def finish() -> NoReturn:
        if trace is not None:
            trace.close()
        channel.send({"kind": "done", **report()})
        end_process(0)

    if trace is not None:
        _begin_tracing(trace, order["tracing"])
        return Launch(nodes=order["nodes"], channel=channel, seed=order["layout"], finish=finish)
    return _launch(order["nodes"], channel, order, depth, finish)


def _begin_tracing(trace: Trace, order: Message) -> None:
    fixture = _load_fixture()
    # It would switch tracing off for each block.
    setattr(fixture, "PauseInstrumentation", contextlib.nullcontext)  # noqa: B010 (a module has no such type)
    fixture.install(TracingLoop(trace))
    trace.open(Path(order.pop("file")))
    trace.begin(**order)


def _launch(
    nodes: Sequence[str],
    channel: Channel,
    order: Message,
    depth: int,
    finish: Callable[[], NoReturn] | None = None,
) -> Launch:
    _load_fixture().install(RemoteTimingLoop(channel, order["slowdowns"], depth, order["layout"]))
    return Launch(nodes=nodes, channel=channel, seed=order["layout"], finish=finish)


def _load_fixture() -> ModuleType:
    from . import benchmark_fixture

    return benchmark_fixture


def _asv(assignment: Message, root: Path) -> AsvPlugin | None:
    suite = assignment["asv"]
    if suite is None:
        return None
    folder, limit_s = suite["folder"], suite["limit_s"]
    # Later launches find what ``setup_cache`` returned, except where what it runs is to be traced.
    caches = Path(assignment["temporary"]).with_name("asv-caches") if assignment["traces"] is None else None
    return AsvPlugin(AsvFolder(root=root, folder=folder, limit_s=limit_s, caches=caches, proves_code=True))


def _run_session(
    assignment: Message,
    channel: Channel,
    root: Path,
    next_launch: Callable[[], Launch | None],
    others: Sequence[object] = (),
) -> None:
    plugin = ChildPlugin(
        channel,
        lists=assignment["nodes"] is None,
        next_launch=next_launch,
        asv=_asv(assignment, root),
        seed=assignment["layout"],
    )
    if PLUGIN in sys.modules:
        _load_fixture().name_no_files()
    paths = [path for path in assignment["paths"] if (root / path).exists()]
    if paths or not assignment["paths"]:
        run_session(plugin, root=root, paths=paths, select=assignment["select"], others=others)
    elif assignment["nodes"] is None:
        # There is nothing to collect from.
        plugin.send_listing([])


def _report(
    root: Path, origins: Sequence[Path], before: Collection[str], built: Callable[[], dict[str, str]]
) -> Message:
    return {
        "foreign": {**built(), **foreign_modules(root, origins, made_since=STARTED)},
        "loaded": loaded_files(root),
        "libraries": libraries_since(before, root),
        "torch": read_torch_settings(),
    }


def time_imports(root: Path, files: Sequence[str], own: Collection[str]) -> Message:
    """Return the seconds that the files' imports of ``own`` top-level names take, or the problem."""
    folders = dict.fromkeys(str((root / file).parent) for file in files)
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    try:
        statements = [one for file in files for one in _imports((root / file).read_bytes(), own)]
        code = compile(ast.Module(body=statements, type_ignores=[]), "<imports>", "exec")
        begun = time.perf_counter()
        exec(code, {"__name__": "<imports>"})  # noqa: S102 (the benchmarks run the same)
        return {"seconds": time.perf_counter() - begun}
    except (Exception, SystemExit) as error:  # noqa: BLE001 (any error of the user's code)
        return {"problem": f"{type(error).__name__}: {error}"}


def _imports(source: bytes, own: Collection[str]) -> Iterator[ast.stmt]:
    for one in ast.parse(source).body:
        names = [alias.name for alias in one.names] if isinstance(one, ast.Import) else []
        if isinstance(one, ast.ImportFrom) and not one.level and one.module != "__future__":
            names = [one.module or ""]
        if any(name.partition(".")[0] in own for name in names):
            yield one


# A benchmark is called again for so long, so that code of rare calls may show.
_CALLS_S, _MOST_CALLS = 0.01, 20
# A call that takes longer is made once, and counts as the first one and as a later one.
_LONG_CALL_S = 0.5


class TracePlugin:
    """Has each benchmark run in a process of its own, and report what it ran when it is over."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Separate imports from what benchmarks run, before anything else looks at them."""
        self._trace.end_imports()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Fork a process that runs a test, and run nothing here."""
        if self._trace.is_forked:
            if self._trace.goes_on(item.nodeid):
                return None
            self._trace.finish()
        return self._trace.fork(item.nodeid) or None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """Send what a test has run that is over."""
        self._trace.send()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End a process whose test has ended the session."""
        if self._trace.is_forked:
            self._trace.finish()


class TracingLoop:
    """A timing loop that calls each benchmark some times and times nothing."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def time(self, work: Work) -> None:
        """Make the first call, and some later ones where the benchmark allows them."""
        try:
            self._call(work)
        finally:
            # What runs afterwards is no call of the benchmark.
            self._trace.switch("setup")

    def _call(self, work: Work) -> None:
        loops = work.loops or 1
        # Where each process makes one call, that is the one that is timed.
        single = work.rounds is not None and work.rounds * loops < 2  # noqa: PLR2004
        begun = time.perf_counter()
        self._trace.switch("later" if single else "first")
        _call(work, loops)
        self._trace.switch("later")
        until, made = time.perf_counter() + _CALLS_S, 1
        if not single and until - begun > _LONG_CALL_S:
            self._trace.repeat("first")
            return
        most = _MOST_CALLS if work.rounds is None else min(work.rounds, _MOST_CALLS)
        while made < most and (made == 1 or time.perf_counter() < until):
            _call(work, loops)
            made += 1


def _call(work: Work, loops: int) -> None:
    if work.number is not None:
        work.number()
    else:
        work.block(loops)
