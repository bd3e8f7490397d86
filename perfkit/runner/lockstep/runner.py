"""One side's child at one benchmark: it gets ready, is timed in turns, and lets the test go on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NoReturn

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError, Message
from perfkit.agent.clock import ColdStart, DeviceMemory
from perfkit.agent.processes import read_process, used_s, waits_for_lock, works
from perfkit.model import Side, Status
from perfkit.runner.lockstep.children import Child
from perfkit.temporary import too_long_in_words

# Whether calls with other inputs are made, and whether before or after those with a benchmark's own.
Others = Literal["", "first", "last"]

_WHY_NOT = "its id may depend on the hash seed, the time or a listing of files"
WAITS_FOR_LOCK = "it waits for a lock on a file"
_RAN_AGAIN = "began its benchmark again in the same launch, as a plugin that runs tests again may have it"

# A process counts as idle after this many polls in a row that see no running thread.
_RESTS, _POLL_S = 3, 0.002
# Of a longer run, order and answer are a small part: its process's own clock sees more than this share of it,
# and of none more than passed.
_LONG_RUN_S, _LEAST_SEEN, _MOST_SEEN, _TOLERATED_S = 0.1, 0.2, 1.1, 0.001


class BenchmarkError(Exception):
    """A benchmark could not be measured in this launch.

    ``fatal`` means that its process is lost too, ``raised`` that the test itself raised or skipped, ``both``
    that it ended alike on both sides, ``device_full`` that an accelerator had no memory left.
    """

    def __init__(
        self,
        side: Side,
        status: Status,
        message: str,
        *,
        fatal: bool = False,
        raised: bool = False,
        device_full: bool = False,
    ) -> None:
        super().__init__(message)
        self.side, self.status, self.message = side, status, message
        self.fatal, self.raised, self.device_full = fatal, raised, device_full
        self.both = False


class Runner:
    """A child at the benchmark ``node``; ``limit_s`` is how many seconds it may send nothing.

    Messages of other benchmarks in the child are ignored. ``odd`` are the shares of the time that the
    process's own clock saw of the last runs, as long as these are too small or large. What waits for the
    child raises BenchmarkError where the benchmark fails, or its process dies or sends nothing in time.
    """

    def __init__(self, child: Child, node: str, *, limit_s: float) -> None:
        self.child, self.node = child, node
        self.values: list[float] = []
        self.typical: list[float] = []
        self.host_s: list[float] = []
        self.device_s: list[float] = []
        self.marks: set[str] = set()
        self.first_s: float | None = None
        self.cold: ColdStart | None = None
        self.memory: tuple[DeviceMemory, ...] | None = ()
        self.on_device = False
        self.waited: list[float] = []
        self.by_wall = False
        self.odd: list[float] = []
        self.faults = 0
        self.iterations = 0
        self.idle_cpu_s = 0.0
        self.ended: BenchmarkError | None = None
        self.warm = False
        self._limit_s = limit_s
        self._inside = False
        self._over = False
        self._abandoned = False
        self._again = False
        self._watched: tuple[int, ...] = ()

    @property
    def side(self) -> Side:
        """The side that it measures."""
        return self.child.side

    def arrive(self) -> Message:
        """Wait until the benchmark is ready to be timed, and return what it asks for."""
        self.child.resume()
        message = self._receive("ready")
        self._inside = True
        self.on_device = bool(message.get("device"))
        self.by_wall = bool(message.get("by_wall"))
        return message

    @property
    def core(self) -> int | None:
        """The core that its main thread ran on last, None where that cannot be seen."""
        process = read_process(self.child.pid)
        return process.core if process else None

    def run(
        self,
        *,
        untimed: int,
        loops: int,
        rounds: int,
        slices: int = 1,
        core: int | None = None,
        watch: bool = False,
    ) -> Message:
        """Let it run iterations while the other side is stopped, stop it again, and return its answer.

        Each round of ``loops`` iterations is timed in ``slices``. Its main thread begins on ``core``, where
        one is given. With ``watch`` the answer has the bytes that are reserved on the device, and its clock.
        """
        order: Message = {
            "kind": "run",
            "untimed": untimed,
            "loops": loops,
            "slices": slices,
            "rounds": rounds,
            "core": core,
        }
        begun = time.monotonic()
        answer = self._asked({**order, "watch": True} if watch else order, "timed")
        passed_s = time.monotonic() - begun
        self._compare_clocks(answer["untimed_s"] + sum(answer["values"]) * loops, passed_s)
        self.iterations += untimed + loops * rounds
        self._keep(answer, loops)
        return answer

    def _compare_clocks(self, own_s: float, passed_s: float) -> None:
        seen = own_s / passed_s
        if own_s > _MOST_SEEN * passed_s + _TOLERATED_S or (passed_s > _LONG_RUN_S and seen < _LEAST_SEEN):
            self.odd.append(seen)
        elif seen >= _LEAST_SEEN:
            self.odd.clear()

    def begin_warmup(self, calls: int) -> None:
        """Order untimed calls, without waiting for them."""
        self.child.resume()
        self._send({"kind": "run", "untimed": calls, "loops": 1, "slices": 1, "rounds": 0, "core": None})
        self.iterations += calls

    def finish_warmup(self) -> None:
        """Wait until the calls ordered last are over, and stop the process.

        Its first call is not kept, since others ran beside it.
        """
        self._keep(self._receive("timed"), 1)
        self.child.stop()
        self.first_s, self.cold, self.warm = None, None, True

    def _keep(self, answer: Message, loops: int) -> None:
        """Keep an answer's times of rounds of this many iterations."""
        if min((0.0, answer["untimed_s"], answer.get("first_s", 0.0), *answer["values"])) < 0:
            raise BenchmarkError(self.side, "error", "its clock went backwards: something replaces it")
        self.faults += answer["faults"]
        self.values += answer["values"]
        self.waited += [
            max(value * loops - running_s, 0.0)
            for value, running_s in zip(answer["values"], answer["running"], strict=True)
        ]
        self.typical += answer["typical"]
        if device := answer.get("device"):
            self.host_s += device["host_s"]
            self.device_s += device["device_s"]
            self.marks.update(device["marks"])
        self.first_s = answer.get("first_s", self.first_s)
        if "cold" in answer:
            self.cold = ColdStart(**answer["cold"])

    def read_memory(self) -> None:
        """Keep what it holds of the memory of devices, None where that is not known."""
        answer = self._asked({"kind": "memory"}, "memory")
        found = answer["devices"]
        self.memory = None if found is None else tuple(DeviceMemory(**one) for one in found)

    def collect_garbage(self) -> float:
        """Have it collect the garbage that its calls have left, and return the seconds that took."""
        return float(self._asked({"kind": "collect"}, "collected")["seconds"])

    def profile(self, calls: int) -> Message:
        """Let it run some calls under cProfile, and return their number, their seconds and the profile."""
        return self._asked({"kind": "profile", "calls": calls}, "profiled")

    def begin_counting(
        self,
        root: Path,
        *,
        counts: bool = True,
        result: Mapping[str, object] | None = None,
        kept_s: float,
    ) -> None:
        """Order it to count its own calls, without waiting; places in the code are relative to ``root``.

        With an order of a ``result`` it first makes a call and describes what that gives. What its calls keep
        is looked for in about ``kept_s`` CPU seconds at most.
        """
        self._send({"kind": "count", "root": str(root), "counts": counts, "result": result, "kept_s": kept_s})
        self.iterations += 1

    def begin_calls(self, control: Sequence[str], library: str | None) -> None:
        """Order it to make calls that callgrind counts; the command ``control`` starts the counting."""
        self._send({"kind": "make_calls", "control": list(control), "library": library})
        self.iterations += 1

    def finish_counting(self) -> Message:
        """Wait for the counts, let the test go on to its end, and return them."""
        answer = self._receive("counted", "made_calls")
        self._send({"kind": "go_on"})
        self._inside = False
        self._receive("finished")
        return answer

    def leave(self) -> None:
        """Let the test go on to its end, without waiting for it."""
        self.child.resume()
        self._send({"kind": "go_on"})
        self._inside = False

    def await_end(self) -> None:
        """Wait until the test that goes on has ended, and stop the process."""
        try:
            self._receive("finished")
        finally:
            self.child.stop()

    def abandon(self) -> None:
        """Give up the benchmark at any stage, since the other side cannot be measured.

        It is called once where it was not before, to see whether it fails like the other side.
        """
        while not self._over:
            try:
                if self._inside and not self.iterations:
                    self.run(untimed=1, loops=1, rounds=0)
                self.child.resume()
                if self._inside:
                    self._abandon("the other side could not be measured")
                self._inside = self._receive("ready", "finished")["kind"] == "ready"
            except BenchmarkError as error:
                if error.fatal:
                    raise

    def watch(self) -> float:
        """List its processes anew, stop them all, and return their CPU time in seconds."""
        found = self.child.look()
        # Processes that left the group may not have been known when the tree was stopped.
        self.child.stop()
        self._watched = tuple(process.pid for process in found)
        return sum(process.cpu_s for process in found)

    def cpu_s(self) -> float:
        """Return the CPU time of the processes listed last, in seconds."""
        found = [read_process(pid) for pid in self._watched]
        return sum(process.cpu_s for process in found if process is not None)

    def used_s(self) -> float:
        """Return the CPU time of its whole process tree so far, in seconds."""
        return used_s(self.child.pid)

    def finish_background_work(self, limit_s: float) -> float:
        """Let threads and processes that work behind its main thread go on until they rest, and stop it.

        The reading of the monotonic clock at which they last worked is returned.
        """
        worked = time.monotonic()
        until, resting = worked + limit_s, 0
        self.child.resume()
        while resting < _RESTS and time.monotonic() < until:
            time.sleep(_POLL_S)
            resting = 0 if works(self.child.pid) else resting + 1
            if not resting:
                worked = time.monotonic()
        self.child.stop()
        return worked

    def look(self, seed: int, root: Path, *, watch: bool, others: Others) -> Message:
        """Have it take a closer look at its calls, as ``perfkit.agent.fresh`` does."""
        order = {"kind": "look", "seed": seed, "root": str(root), "watch": watch, "others": others}
        return self._asked(order, "looked")

    def call_to_the_end(self, calls: int, limit_s: float) -> tuple[float, float]:
        """Let it make calls, finish what they left to others and collect their garbage.

        The seconds that this took are returned, and those that the calls took by its own clock.
        """
        begun = time.monotonic()
        answer = self.run(untimed=calls, loops=1, rounds=0)
        self.collect_garbage()
        return self.finish_background_work(limit_s) - begun, float(answer["untimed_s"])

    def _asked(self, order: Message, answer: str) -> Message:
        """Let it go on for an answer of a kind to an order, and stop it again."""
        self.child.resume()
        try:
            self._send(order)
            return self._receive(answer)
        finally:
            self.child.stop()

    def _send(self, order: Message) -> None:
        try:
            self.child.channel.send(order)
        except ChannelClosedError as error:
            raise BenchmarkError(self.side, "error", "", fatal=True) from error

    def _abandon(self, why: str) -> None:
        self._abandoned = True
        self._send({"kind": "abandon", "reason": why})
        self._inside = False

    def _receive(self, *kinds: str) -> Message:
        """Wait until the benchmark sends a message of one of some kinds, or its test is over."""
        while True:
            if not self._inside and not self.iterations and self.node in self.child.missing:
                self._give_up()
            message = self._next()
            if message["kind"] == "missing":
                continue
            if message.get("node") != self.node:
                self.child.keep(message)
                self._give_up(ended=message["kind"] == "done")
            if message["kind"] == "finished":
                self._finish(message)
                return message
            if message["kind"] in kinds:
                return message
            if message["kind"] == "ready":
                self._again = True
                self._abandon("a test runs its benchmark once in a launch")

    def _give_up(self, *, ended: bool = False) -> NoReturn:
        """Take the benchmark for over, as the session has ended or gone on without it.

        A session that it ends is as lost for others as a process that it ends.
        """
        is_begun = self._inside or self.iterations > 0
        lost = ended and (is_begun or self.node not in self.child.missing)
        if lost:
            words = "; ".join(filter(None, ("its session ended before it was over", self.child.last_words())))
        elif is_begun:
            words = "its session went on to another test before it was over"
        else:
            words = f"was not collected again: {self.child.missing.get(self.node) or _WHY_NOT}"
        self._close()
        raise BenchmarkError(self.side, "error", words, fatal=lost)

    def _close(self) -> None:
        self._inside, self._over = False, True
        self.child.over.add(self.node)

    def _next(self) -> Message:
        try:
            return self.child.receive(self._limit_s)
        except ChannelTimeoutError as error:
            words = f"gave no sign of life within its limit of {self._limit_s:g} s"
            if waits_for_lock(self.child.look()):
                words = f"{words}; {WAITS_FOR_LOCK}"
            if too_long := too_long_in_words(self.child.log.with_suffix("")):
                words = f"{words}; {too_long}"
            raise BenchmarkError(self.side, "timeout", words, fatal=True) from error
        except ChannelClosedError as error:
            raise BenchmarkError(self.side, "error", "", fatal=True) from error

    def _finish(self, message: Message) -> None:
        """Note that the test is over; that is a failure unless it was ordered to go on and then passed."""
        ordered_on = self.iterations > 0 and not self._inside
        self._close()
        if self._again:
            raise BenchmarkError(self.side, "error", _RAN_AGAIN)
        if message["status"] != "ok":
            error = BenchmarkError(
                self.side,
                message["status"],
                message["message"],
                raised=True,
                device_full=bool(message.get("device_full")),
            )
            # A test that was abandoned skips its rest only because it was ordered to.
            self.ended = None if self._abandoned else error
            raise error
        if not ordered_on:
            raise BenchmarkError(self.side, "error", "ended without running its benchmark")
