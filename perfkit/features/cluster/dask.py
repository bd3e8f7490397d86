"""The engine of other machines: each worker of a Dask cluster does one measuring task at a time.

This side chooses which worker does which task: a worker is free when its last task is over, and tasks belong
to a class of machines. Dask carries texts and bytes, lists the workers, and keeps two commands
from measuring on one worker at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from perfkit.commands.tasks import MachineClass, Task, Work, encode, run_of, unpack
from perfkit.errors import NotMeasuredError, PerfkitError, UsageError
from perfkit.features.cluster import worker
from perfkit.features.cluster.worker import CheckedWorker, WorkerFacts
from perfkit.units import counted, human_bytes

if TYPE_CHECKING:
    from distributed import Client, Future

SCHEME = "dask://"
RESOURCE = "measure"
_PORT = 8786
_CONNECT_S = 10.0
_TASK_S = 60.0
_POLL_S = 1.0
# Workers that are started at the same time as the command may need so long to appear.
_PATIENCE_S = 60.0
_MOST_LOSSES = 4
_MOST_FAILURES = 2
_MOST_IN_A_ROW = 3
_LEAST_FREE = 1 << 30
_GOES_ON = "what is filed is kept, and the same command goes on"


@dataclass(kw_only=True)
class _Sent:
    """A task at a worker: at first its code may have to be sent there."""

    task: Task
    address: str
    stage: Literal["measure", "code"]
    begun: float
    future: Future[Any]


class DaskEngine:
    """A cluster at ``dask://HOST:PORT``, for ``with``.

    ``bundle`` returns the bytes of the code that tasks need, once for each worker. ``log`` reports the
    workers that are refused or lost. ``wanted`` are the ids of the machines that may be used, empty for
    all. It waits ``connect_s`` seconds for a scheduler, and ``patience_s`` where there is no fit worker.
    """

    def __init__(
        self,
        url: str,
        *,
        bundle: Callable[[], bytes] = bytes,
        log: Callable[[str], None] = lambda _: None,
        wanted: Collection[str] = (),
        patience_s: float = _PATIENCE_S,
        connect_s: float = _CONNECT_S,
    ) -> None:
        self._address = scheduler_address(url)
        self._bundle, self._log, self._wanted = bundle, log, wanted
        self._patience_s, self._connect_s = patience_s, connect_s
        # The workers that were looked at: fit ones with their class, and why the others are not.
        self._fit: dict[str, MachineClass] = {}
        self._refused: dict[str, str] = {}
        self._sent: dict[str, _Sent] = {}
        self._over: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._losses: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()

    def __enter__(self) -> Self:
        """Connect."""
        self._client = _connected(self._address, self._connect_s)
        try:
            self._check_scheduler()
        except BaseException:
            self._client.close(timeout=_POLL_S)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what was not done, and disconnect; that never hides why the block ended."""
        with contextlib.suppress(Exception):
            for sent in self._sent.values():
                sent.future.cancel()
            self._client.close(timeout=_POLL_S)

    def classes(self) -> tuple[MachineClass, ...]:
        """Return the classes of the fit workers; wait some time for a first one."""
        deadline = time.monotonic() + self._patience_s
        while True:
            self._look()
            if self._fit:
                found = set(self._fit.values())
                return tuple(sorted(found, key=lambda one: (one.machine_id, one.python, one.torch)))
            if self._refused or time.monotonic() > deadline:
                raise NotMeasuredError(self._nobody())
            time.sleep(_POLL_S / 10)

    def perform(self, work: Work) -> None:
        """Do tasks until none is left."""
        idle_since = time.monotonic()
        while True:
            self._look()
            self._take_back_lost(work)
            self._hand_out(work)
            if self._sent:
                idle_since = time.monotonic()
            elif not work.left():
                return
            elif time.monotonic() - idle_since > self._patience_s:
                raise NotMeasuredError(
                    f"{counted(work.left(), 'task')} are left, and no fit worker of their class is there;"
                    f" start one: {_GOES_ON}"
                )
            self._take_in(work)

    def check(self, task: Task) -> list[CheckedWorker]:
        """Look at every worker, and send a tiny task there and back."""
        infos = self._workers()
        described = self._described([*infos], thoroughly=True)
        return [
            self._checked(address, infos[address], described[address], task) for address in sorted(described)
        ]

    def _checked(
        self, address: str, info: Mapping[str, Any], facts: WorkerFacts | str, task: Task
    ) -> CheckedWorker:
        problems = list(_problems_of(info))
        if isinstance(facts, str):
            return CheckedWorker(address=address, problems=(*problems, facts))
        problems += _problems_in(facts)
        if problems:
            return CheckedWorker(address=address, facts=facts, problems=tuple(problems))
        begun = time.monotonic()
        task = replace(task, machine=facts.machine)
        future = self._submit(worker.perform, address, encode(task), resources={RESOURCE: 1})
        try:
            state, content = self._answer(future, limit_s=_TASK_S)
        except TimeoutError:
            problems = [f"a tiny task had not come back after {_TASK_S:.0f} s: is it measuring?"]
        else:
            try:
                if json.loads(state)["state"] != worker.DONE:
                    raise NotMeasuredError(json.loads(state)["reason"])
                unpack(task, content)
            except PerfkitError as error:
                problems = [f"a tiny task failed: {error}"]
        return CheckedWorker(
            address=address, facts=facts, problems=tuple(problems), task_s=time.monotonic() - begun
        )

    def _check_scheduler(self) -> None:
        """Refuse a scheduler without this perfkit: it has to know the functions that workers call."""
        try:
            found = self._client.run_on_scheduler(worker.own_version)
        except (ImportError, AttributeError):
            found = "none of this version"
        except (OSError, TimeoutError) as error:
            raise UsageError(f"the Dask scheduler at {self._address} does not answer ({error})") from error
        if found != worker.own_version():
            raise UsageError(
                f"the scheduler at {self._address} has perfkit {found}, and this command has"
                f" {worker.own_version()}; install the same one there"
            )

    def _workers(self) -> dict[str, Mapping[str, Any]]:
        if self._client.status != "running":
            raise _gone(self._address)
        with _connection_to(self._address):
            return dict(self._client.scheduler_info()["workers"])

    def _look(self) -> None:
        """Take note of workers that came and went."""
        infos = self._workers()
        for address in {*self._fit, *self._refused}.difference(infos):
            self._fit.pop(address, None)
            self._refused.pop(address, None)
        new = [address for address in infos if address not in {*self._fit, *self._refused}]
        for address, facts in self._described(new, thoroughly=False).items():
            self._judge(address, infos[address], facts)

    def _described(self, addresses: Sequence[str], *, thoroughly: bool) -> dict[str, WorkerFacts | str]:
        """Return the facts of workers, or why one has none; a task could end an older worker."""
        if not addresses:
            return {}
        with _connection_to(self._address):
            answers = self._client.run(
                worker.describe, workers=list(addresses), on_error="return", thoroughly=thoroughly
            )
        return {address: _facts_in(answer) for address, answer in answers.items()}

    def _judge(self, address: str, info: Mapping[str, Any], facts: WorkerFacts | str) -> None:
        problems = list(_problems_of(info))
        problems += [facts] if isinstance(facts, str) else _problems_in(facts)
        if problems or isinstance(facts, str):
            self._refused[address] = "; ".join(problems)
            self._log(f"the worker {address} is refused: {self._refused[address]}")
        elif self._wanted and facts.machine.machine_id not in self._wanted:
            self._refused[address] = f"its machine is {facts.machine.machine_id}"
        else:
            self._fit[address] = facts.machine

    def _nobody(self) -> str:
        if not self._refused:
            return (
                f"the cluster at {self._address} has no worker; start one:"
                f" dask worker {self._address} --nthreads 1 --resources {RESOURCE}=1"
            )
        address, reason = next(iter(self._refused.items()))
        return f"no worker of {self._address} is fit ({address}: {reason}); see `perfkit engine check`"

    def _hand_out(self, work: Work) -> None:
        busy = {sent.address for sent in self._sent.values()}
        for address, machine in self._fit.items():
            if address not in busy:
                task = work.next(machine)
                if task is not None:
                    self._send(task, address)

    def _send(self, task: Task, address: str) -> None:
        future = self._submit(worker.perform, address, encode(task), resources={RESOURCE: 1})
        self._follow(task, address, "measure", future)

    def _send_code(self, task: Task, address: str) -> None:
        made = self._bundle()
        with _connection_to(self._address):
            (bundle,) = self._client.scatter([made], workers=[address], hash=False)
        self._follow(task, address, "code", self._submit(worker.take_code, address, encode(task), bundle))

    def _follow(
        self, task: Task, address: str, stage: Literal["measure", "code"], future: Future[Any]
    ) -> None:
        key = str(future.key)
        self._sent[key] = _Sent(
            task=task, address=address, stage=stage, begun=time.monotonic(), future=future
        )
        future.add_done_callback(lambda done: self._over.put(str(done.key)))

    def _submit(
        self,
        function: Callable[..., Any],
        address: str,
        *arguments: object,
        resources: Mapping[str, float] | None = None,
    ) -> Future[Any]:
        """Call a function at one worker and nowhere else, once."""
        with _connection_to(self._address):
            return self._client.submit(
                function,
                *arguments,
                key=f"perfkit-{uuid.uuid4().hex}",
                workers=[address],
                allow_other_workers=False,
                resources=dict(resources) if resources else None,
                pure=False,
                retries=0,
            )

    def _answer(self, future: Future[Any], *, limit_s: float | None = None) -> Any:  # noqa: ANN401 (of any call)
        """Return what a call at a worker returned."""
        with _connection_to(self._address):
            try:
                return future.result(timeout=limit_s)
            except TimeoutError:
                if limit_s is None:
                    raise
        raise TimeoutError

    def _take_back_lost(self, work: Work) -> None:
        """Take back the tasks of workers that are gone: Dask would keep them for a worker of that address."""
        for key, sent in list(self._sent.items()):
            if sent.address not in self._fit:
                del self._sent[key]
                with _connection_to(self._address):
                    sent.future.cancel()
                self._lose(sent, work)

    def _lose(self, sent: _Sent, work: Work) -> None:
        run = run_of(sent.task)
        self._losses[run] += 1
        if self._losses[run] >= _MOST_LOSSES:
            work.failed(sent.task, f"each of {_MOST_LOSSES} workers was lost that measured it")
            return
        self._log(f"the worker {sent.address} is lost; its task is done anew")
        work.give_back(sent.task)

    def _take_in(self, work: Work) -> None:
        """Wait a moment for a task to be over, and take what all that are over by then have brought."""
        with contextlib.suppress(queue.Empty):
            key = self._over.get(timeout=_POLL_S)
            while True:
                self._take_finished(self._sent.pop(key, None), work)
                key = self._over.get_nowait()

    def _take_finished(self, sent: _Sent | None, work: Work) -> None:
        if sent is None:
            return
        if sent.future.status in ("cancelled", "lost"):
            if self._client.status != "running" or sent.address in self._workers():
                self._sent[str(sent.future.key)] = sent
                raise _gone(self._address)
            self._lose(sent, work)
            return
        with _connection_to(self._address):
            error = sent.future.exception() if sent.future.status == "error" else None
        if error is not None:
            if type(error).__name__ == "KilledWorker":
                self._lose(sent, work)
            else:
                self._fail(sent, str(error) or type(error).__name__, work)
            return
        self._take(sent, work)

    def _take(self, sent: _Sent, work: Work) -> None:
        """Take what a worker has sent back."""
        if sent.stage == "code":
            reason = self._answer(sent.future)
            if reason:
                self._fail(sent, reason, work)
            else:
                self._send(sent.task, sent.address)
            return
        state, content = self._answer(sent.future)
        found = json.loads(state)
        if found["state"] == worker.LACKS_CODE:
            self._send_code(sent.task, sent.address)
            return
        if found["state"] == worker.FAILED:
            self._fail(sent, found["reason"], work)
            return
        try:
            work.done(sent.task, content, seconds=time.monotonic() - sent.begun)
        except NotMeasuredError as error:
            self._fail(sent, str(error), work)
        else:
            self._in_a_row[sent.address] = 0

    def _fail(self, sent: _Sent, reason: str, work: Work) -> None:
        """Try a task once more elsewhere; a worker that does nothing well gets no more of them."""
        run = run_of(sent.task)
        self._failures[run] += 1
        self._in_a_row[sent.address] += 1
        if self._in_a_row[sent.address] >= _MOST_IN_A_ROW:
            self._fit.pop(sent.address, None)
            self._refused[sent.address] = f"{_MOST_IN_A_ROW} tasks in a row failed, the last: {reason}"
            self._log(f"the worker {sent.address} gets no more tasks: {self._refused[sent.address]}")
        if self._failures[run] >= _MOST_FAILURES:
            work.failed(sent.task, reason)
        else:
            work.give_back(sent.task)


def scheduler_address(url: str) -> str:
    """Return the address of ``dask://HOST:PORT`` as Dask writes it; the port may be left out."""
    host, colon, port = url.removeprefix(SCHEME).rstrip("/").rpartition(":")
    if not colon:
        host, port = port, str(_PORT)
    if not url.startswith(SCHEME) or not host or "/" in host or not port.isdigit():
        raise UsageError(f"an engine must read local or {SCHEME}HOST:PORT, found {url}")
    return f"tcp://{host}:{port}"


def _connected(address: str, connect_s: float) -> Client:
    try:
        import distributed
    except ImportError:
        raise UsageError(
            "a Dask cluster needs a library that is not installed; `pip install 'perfkit[engine]'`"
        ) from None
    # perfkit reports what is lost in a line of its own.
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return distributed.Client(address, timeout=connect_s, set_as_default=False, name="perfkit")
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(
                f"no Dask scheduler answers at {address}; start one with `dask scheduler`, or name another"
                " with --engine"
            ) from error


@contextlib.contextmanager
def _connection_to(address: str) -> Iterator[None]:
    """Report a lost scheduler in one line; only calls into the library belong into the block."""
    try:
        yield
    except (OSError, TimeoutError, asyncio.CancelledError) as error:
        raise _gone(address) from error
    except Exception as error:
        # The library has many errors for a lost connection, in a hierarchy of its own.
        if type(error).__module__.startswith(("distributed", "concurrent.futures", "asyncio", "tornado")):
            raise _gone(address) from error
        raise


def _gone(address: str) -> NotMeasuredError:
    return NotMeasuredError(f"the Dask scheduler at {address} is gone; start it again: {_GOES_ON}")


def _facts_in(answer: object) -> WorkerFacts | str:
    """Return the facts of a worker, or why it has none."""
    # The library turns what went wrong there into an error of its own, with the other one as text.
    if isinstance(answer, BaseException) and "ModuleNotFoundError" in repr(answer):
        return "it has no perfkit, or an older one; install the one that this command is of"
    if isinstance(answer, BaseException):
        return f"it has another perfkit than {worker.own_version()}, or does not answer: {answer}"
    try:
        return msgspec.json.decode(str(answer), type=WorkerFacts)
    except msgspec.DecodeError:
        return f"it has another perfkit than {worker.own_version()}"


def _problems_of(info: Mapping[str, Any]) -> Iterator[str]:
    found = info.get("resources", {}).get(RESOURCE)
    if found != 1:
        problem = f"it has {RESOURCE}={found:g}" if found else f"it has no resource {RESOURCE}"
        yield f"{problem}; start it with --resources {RESOURCE}=1, so that it measures one task at a time"


def _problems_in(facts: WorkerFacts) -> list[str]:
    problems = []
    if facts.version != worker.own_version():
        problems.append(f"it has perfkit {facts.version}, and this command has {worker.own_version()}")
    if facts.git == "absent":
        problems.append("it has no git")
    if facts.free_bytes < _LEAST_FREE:
        problems.append(f"only {human_bytes(facts.free_bytes)} are free for clones")
    return problems
