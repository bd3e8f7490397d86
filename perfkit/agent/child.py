"""A measured child: it imports its side's code, runs one pytest session, and proves which code it ran."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn, cast

from .asv_suite import AsvFolder, AsvPlugin
from .channel import Channel, Message, answer_request, end_process, open_channel
from .fork_server import PLUGIN, serve_forks
from .import_time import time_imports
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
)
from .session import ChildPlugin, Launch, run_session
from .state import draw_layout, seed_generators, seed_on_import
from .timing_loop import RemoteTimingLoop
from .torch_settings import read_torch_settings
from .trace import Trace
from .tracing_session import TracePlugin, TracingLoop
from .training import count_steps


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
