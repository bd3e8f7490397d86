"""A measured child, from its first line to its end: the right code, one pytest session, a proof."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from .benchmark_fixture import install
from .channel import Channel, Message
from .conductor import RemoteConductor
from .imports import point_imports
from .provenance import check_before_import, foreign_modules, is_library, loaded_files, own_names
from .session import ChildPlugin, run_session
from .torch_settings import read_torch_settings
from .training import count_steps


def run_child(assignment: Message, descriptor: int) -> NoReturn:
    """Run one pytest session as assigned and end this process."""
    channel = Channel(socket.socket(fileno=descriptor))
    status = 1
    try:
        _settle(assignment)
        _measure(assignment, channel)
        status = 0
    except BaseException:  # noqa: BLE001 (a child ends here whatever happened; its log has the traceback)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # The interpreter's usual exit is skipped: it would wait for threads and workers of the benchmarks.
        os._exit(status)


def _settle(assignment: Message) -> None:
    """Give the child a place of its own for temporary files."""
    os.environ["TMPDIR"] = assignment["temporary"]
    Path(assignment["temporary"]).mkdir()


def _measure(assignment: Message, channel: Channel) -> None:
    root = Path(assignment["root"])
    before = set(sys.modules)
    origins = [Path(origin) for origin in assignment["origins"]]
    point_imports(root, origins)
    strangers = check_before_import(root, own_names(root, origins))
    if strangers:
        channel.send({"kind": "done", "foreign": strangers})
        return
    if assignment["training"] is not None:
        steps = count_steps(assignment["training"], root=root, steps=assignment["steps"])
        channel.send({"kind": "trained", **steps})
    else:
        _run_benchmarks(assignment, channel, root)
    channel.send(
        {
            "kind": "done",
            "foreign": foreign_modules(root, origins),
            "loaded": loaded_files(root),
            "libraries": _libraries(before, root),
            "torch": read_torch_settings(),
        }
    )


def _run_benchmarks(assignment: Message, channel: Channel, root: Path) -> None:
    install(RemoteConductor(channel, assignment["plants"]))
    plugin = ChildPlugin(channel, assignment["nodes"])
    paths = [path for path in assignment["paths"] if (root / path).exists()]
    status = 0
    if paths or not assignment["paths"]:
        status = run_session(plugin, root=root, paths=paths, select=assignment["select"])
    else:
        plugin.find_nothing()
    plugin.tell_listing(status)


def _libraries(before: set[str], root: Path) -> list[str]:
    """Return the modules of packages and the standard library that this session imported, in order."""
    return [
        name
        for name, module in list(sys.modules.items())
        if name not in before and is_library(getattr(module, "__file__", None), root)
    ]
