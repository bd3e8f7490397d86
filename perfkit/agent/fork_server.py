"""A fork server: it imports what its children share, and forks one for each order."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from .channel import Channel, ChannelClosedError, Message, load_entry, open_channel
from .imports import preloaded_own
from .processes import adopt_orphans, become_child, children, die_with, faults_of_reuse, kill

_HUNG, _RAISED = 3, 4
# The module of pytest-benchmark whose fixture children replace by their own.
PLUGIN = "pytest_benchmark.plugin"
_FIXTURE = f"{__package__}.benchmark_fixture"
Work = Callable[[], object]


def serve(descriptor: int, entry: str) -> Work | None:
    """Serve the coordinator at a socket's other end; in each forked child, return a call of ``entry``."""
    adopt_orphans()
    return serve_forks(open_channel(descriptor), load_entry(entry))


def serve_forks(channel: Channel, call: Callable[..., object]) -> Work | None:
    """Obey until the channel closes, and return None; in each forked child, return its call."""
    return _ForkServer(channel, call).serve()


class _ForkServer:
    """Obeys orders from a channel: imports modules, and forks children that each make one call."""

    def __init__(self, channel: Channel, call: Callable[..., object]) -> None:
        self._channel, self._call = channel, call
        # The children whose exit status was not asked for yet.
        self._forked: set[int] = set()

    def serve(self) -> Work | None:
        with contextlib.suppress(ChannelClosedError):
            while True:
                order, received = self._channel.receive_descriptors()
                if order["kind"] == "fork":
                    work = self._fork(order, received)
                    if work is not None:
                        return work
                else:
                    self._channel.send(self._obey(order))
        return None

    def _obey(self, order: Message) -> Message:
        if order["kind"] == "preload":
            return {"kind": "preloaded", "failed": _preload(order["modules"], order["rewritten"])}
        if order["kind"] == "try_fork":
            return {"kind": "tried", "reason": try_fork(order["limit_s"]), "faults": faults_of_reuse()}
        if order["kind"] == "own_names":
            roots, origins = (list(map(Path, order[key])) for key in ("roots", "origins"))
            return {"kind": "own", "names": preloaded_own(roots, origins)}
        _, status = os.waitpid(order["pid"], 0)
        self._forked.discard(order["pid"])
        for pid in set(children(os.getpid())) - self._forked:
            kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return {"kind": "reaped", "status": os.waitstatus_to_exitcode(status)}

    def _fork(self, order: Message, received: Sequence[int]) -> Work | None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._channel.close()
            die_with(parent)
            become_child(order["log"], order["folder"])
            return functools.partial(self._call, *order["arguments"], *received)
        for descriptor in received:
            os.close(descriptor)
        self._forked.add(pid)
        self._channel.send({"kind": "forked", "pid": pid})
        return None


def _preload(modules: Sequence[str], rewritten: Sequence[str]) -> list[str]:
    failed = []
    # Nearly all objects that an import makes are kept. Collecting garbage would take a sixth of the import's
    # time during it, and a tenth afterwards.
    gc.disable()
    with _assertions_rewritten(rewritten):
        for name in [*modules, *_modules_of_sessions(), *([_FIXTURE] if PLUGIN in modules else [])]:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001 (a module that raises is not preloaded)
                failed.append(name)
    gc.enable()
    # A garbage collection does not visit frozen objects, so their pages stay shared with the children.
    gc.freeze()
    return failed


@contextlib.contextmanager
def _assertions_rewritten(packages: Sequence[str]) -> Iterator[None]:
    """Have pytest rewrite the assertions of packages that are imported now."""
    if not packages:
        yield
        return
    from _pytest.assertion import install_importhook
    from _pytest.config import get_config

    # Newer versions warn of the old names, which the user's settings may turn into an error.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = get_config()
        # Older versions ask for these settings, which they make only where they parse a command line.
        for name, nothing in (("inicfg", {}), ("_override_ini", ())):
            if not hasattr(config, name):
                setattr(config, name, nothing)
        hook = install_importhook(config)
    loaders = {name: getattr(sys.modules.get(name), "__loader__", hook) for name in packages}
    hook.mark_rewrite(*(name for name, loader in loaders.items() if isinstance(loader, type(hook))))
    try:
        yield
    finally:
        sys.meta_path.remove(hook)


def _modules_of_sessions() -> list[str]:
    if "pytest" not in sys.modules:
        return []
    from _pytest.config import default_plugins

    return [f"_pytest.{name}" for name in default_plugins]


def try_fork(limit_s: float) -> str | None:
    """Try whether a forked child can compute in parallel and run a backward pass; return why it cannot."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised in the fork server"
    if threading.active_count() > 1:
        names = ", ".join(sorted(one.name for one in threading.enumerate()[1:]))
        return f"threads were started when it was imported: {names}"
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _try_and_exit(writing, limit_s)
    os.close(writing)
    output = os.read(reading, 1000).decode()
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (
        None
        if status == 0 and output == "ok"
        else f"a forked child could not compute (exit {status}) {output}"
    )


def _try_and_exit(descriptor: int, limit_s: float) -> NoReturn:
    threading.Timer(limit_s, os._exit, args=[_HUNG]).start()
    try:
        os.write(descriptor, _work_in_parallel().encode())
        os._exit(0)
    finally:
        os._exit(_RAISED)


def _work_in_parallel() -> str:
    torch = sys.modules.get("torch")
    if torch is None:
        return "ok"
    values = torch.randn(400, 400, requires_grad=True)
    (values @ values).sum().backward()
    return "ok" if values.grad is not None else "no gradient"
