"""A measured child: it imports its side's code, runs one pytest session, and proves which code it ran."""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn, cast

from .asv_suite import AsvFolder, AsvPlugin
from .caches import built_elsewhere, part_caches
from .channel import Channel, Message
from .conductor import RemoteConductor
from .imports import point_imports
from .preloader import PLUGIN, ForkServer
from .process import draw_layout
from .provenance import (
    STARTED,
    check_before_import,
    checkout_around,
    foreign_modules,
    is_library,
    loaded_file,
    loaded_files,
    own_names,
)
from .seeds import seed_generators, seed_on_import
from .session import ChildPlugin, Launch, run_session
from .torch_settings import read_torch_settings
from .training import count_steps


def run_child(assignment: Message, descriptor: int) -> NoReturn:
    """Run one pytest session as assigned and end this process."""
    channel = Channel(socket.socket(fileno=descriptor))
    status = 1
    try:
        _settle(assignment["temporary"])
        os.environ.update(part_caches(assignment["caches"], os.environ))
        _measure(assignment, channel)
        status = 0
    except BaseException:  # noqa: BLE001 (a child ends here whatever happened; its log has the traceback)
        traceback.print_exc()
    finally:
        _end(status)


def _end(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's usual exit is skipped: it would wait for threads and workers of the benchmarks.
    os._exit(status)


def _settle(temporary: str) -> None:
    """Give this process a folder of its own for temporary files."""
    os.environ["TMPDIR"] = temporary
    Path(temporary).mkdir()
    # Python determines the folder only once, and this process may be a fork of one that has done so.
    tempfile.tempdir = None


def _begin_memory(order: Message) -> int:
    """Draw a layout of memory, and return a depth of the stack."""
    return draw_layout(order["layout"])


def _measure(assignment: Message, channel: Channel) -> None:
    root = Path(assignment["root"])
    before = set(sys.modules)
    depth = _begin_memory(assignment)
    seed_on_import()
    seed_generators(assignment["layout"])
    origins = [Path(origin) for origin in assignment["origins"]]
    point_imports(root, origins)
    strangers = check_before_import(root, own_names(root, origins))
    if strangers:
        channel.send({"kind": "done", "foreign": strangers})
        return
    around = [checkout_around(root, origin) for origin in origins]
    own = [root, *around, *origins, Path(assignment["temporary"]).parent]
    built = functools.partial(built_elsewhere, own, began=assignment["began"], oldest=assignment["oldest"])
    report = functools.partial(_report, root, origins, before, built)
    if assignment["training"] is not None:
        steps = count_steps(assignment["training"], root=root, steps=assignment["steps"])
        channel.send({"kind": "trained", **steps})
    elif assignment["serves"]:
        _serve_launches(assignment, channel, root, report)
        return
    else:
        _run_benchmarks(assignment, channel, root, depth)
    channel.send(report())


def _run_benchmarks(assignment: Message, channel: Channel, root: Path, depth: int) -> None:
    """Run the benchmarks assigned, or list them all where none are."""
    nodes = assignment["nodes"]

    def next_launch() -> Launch | None:
        return None if nodes is None else _launch(nodes, channel, assignment, depth)

    plugin = ChildPlugin(
        channel,
        lists=nodes is None,
        next_launch=next_launch,
        changed=assignment["changed"],
        asv=_asv(assignment, root),
        seed=assignment["layout"],
    )
    _run_session(plugin, assignment, root)


def _serve_launches(assignment: Message, channel: Channel, root: Path, report: Callable[[], Message]) -> None:
    """List the benchmarks and report, then fork a process for each launch that is ordered."""
    reported = False

    def next_launch() -> Launch | None:
        nonlocal reported
        reported = True
        # The report also fills caches of paths, which the reports of the forks then find filled.
        channel.send(report())
        _load_fixture()
        # A garbage collection does not visit frozen objects, so their pages stay shared with the forks.
        gc.freeze()
        work = ForkServer(channel, functools.partial(_begin_launch, report)).serve()
        return cast("Launch", work()) if work is not None else None

    plugin = ChildPlugin(
        channel,
        lists=True,
        next_launch=next_launch,
        changed=assignment["changed"],
        asv=_asv(assignment, root),
        seed=assignment["layout"],
    )
    _run_session(plugin, assignment, root)
    if not reported:
        channel.send(report())


def _begin_launch(report: Callable[[], Message], order: Message, descriptor: int) -> Launch:
    """Prepare this process, which was forked for a launch, and return what it is to run."""
    channel = Channel(socket.socket(fileno=descriptor))
    _settle(order["temporary"])
    depth = _begin_memory(order)

    def finish() -> NoReturn:
        channel.send(report())
        _end(0)

    return _launch(order["nodes"], channel, order, depth, finish)


def _launch(
    nodes: Sequence[str],
    channel: Channel,
    order: Message,
    depth: int,
    finish: Callable[[], NoReturn] | None = None,
) -> Launch:
    """Have the coordinator conduct the benchmarks of this process, at a depth of the stack."""
    _load_fixture().install(RemoteConductor(channel, order["plants"], depth, order["layout"]))
    return Launch(nodes=nodes, channel=channel, seed=order["layout"], finish=finish)


def _load_fixture() -> ModuleType:
    """Import the module that uses pytest-benchmark, which pytest has loaded by now, assertions rewritten."""
    from . import benchmark_fixture

    return benchmark_fixture


def _asv(assignment: Message, root: Path) -> AsvPlugin | None:
    """Return what collects the suite of asv, None where the project has none."""
    suite = assignment["asv"]
    if suite is None:
        return None
    # The folders of all processes of a run lie side by side, so that later launches find what one has cached.
    caches = Path(assignment["temporary"]).with_name("asv-caches")
    return AsvPlugin(
        AsvFolder(
            root=root, folder=suite["folder"], limit_s=suite["limit_s"], caches=caches, proves_code=True
        )
    )


def _run_session(plugin: ChildPlugin, assignment: Message, root: Path) -> None:
    if PLUGIN in sys.modules:
        _load_fixture().name_no_files()
    paths = [path for path in assignment["paths"] if (root / path).exists()]
    if paths or not assignment["paths"]:
        run_session(plugin, root=root, paths=paths, select=assignment["select"])
    elif assignment["nodes"] is None:
        # There is nothing to collect from.
        plugin.tell_listing([])


def _report(
    root: Path, origins: Sequence[Path], before: Collection[str], built: Callable[[], dict[str, str]]
) -> Message:
    """Return the proof of which code ran, and what this process imported since it got its assignment."""
    return {
        "kind": "done",
        "foreign": {**built(), **foreign_modules(root, origins, made_since=STARTED)},
        "loaded": loaded_files(root),
        "libraries": _libraries(before, root),
        "torch": read_torch_settings(),
    }


def _libraries(before: Collection[str], root: Path) -> list[str]:
    """Return the modules of packages and the standard library that this session imported, in order."""
    return [name for name in list(sys.modules) if name not in before and is_library(loaded_file(name), root)]
