"""A small project with a suite of asv that has every kind of benchmark and attribute, and every failure."""

from __future__ import annotations

from collections.abc import Mapping

CONF = """{
    // asv reads comments, and "quoted // text" is none
    "version": 1,
    "project": "small", /* and these */
    "repo": ".",
    "branches": ["main"],
    "benchmark_dir": "benchmarks",
    "default_benchmark_timeout": 45,
}
"""
WORK = """
def spin(units):
    total = 0
    for number in range(units * 200):
        total += number
    return total


def fill(units):
    return bytearray(units << 20)


SIZE = 10
"""
COMMON = """
class Base:
    param_names = ["n", "letter"]
    params = [[1, 2], ["a", "b c"]]

    def setup(self, n, letter):
        self.ready = (n, letter)

    def time_inherited(self, n, letter):
        assert self.ready == (n, letter)


def setup(*args):
    global seeded
    seeded = True
"""
TIMES = """
import abc
import os
import time

import work

from .common import Base, setup


def time_spin():
    work.spin(5)


class Suite(Base):
    def time_own(self, n, letter):
        assert self.ready == (n, letter)
        work.spin(n)

    time_own.skip_params = [(1, "b c")]
    time_own.timeout = 7


class Fresh:
    number = 2
    repeat = 4
    warmup_time = 0
    timer = time.perf_counter
    version = 3

    def setup(self):
        self.left = [1, 2]

    def time_used_up(self):
        self.left.pop()

    def teardown(self):
        assert not self.left


class Cached:
    def setup_cache(self):
        with open("data.txt", "w") as file:
            file.write("kept")
        return {"n": 3, "process": os.getpid()}

    setup_cache.timeout = 90

    def setup(self, cache):
        self.n = cache["n"]

    def time_cached(self, cache):
        assert open("data.txt").read() == "kept"
        work.spin(self.n)

    def track_changed(self, cache):
        cache["n"] += 1
        return cache["n"]


class TimeSuite:
    def TimeCapital(self):
        work.spin(1)

    def timeless(self):
        raise AssertionError


class Abstract(abc.ABC):
    @abc.abstractmethod
    def time_abstract(self): ...


def _time_hidden(): ...


def time_marked(): ...


time_marked.skip_benchmark = True


def named():
    work.spin(1)


named.benchmark_name = "elsewhere.time_named"


def timeraw_spin():
    return "work.spin(3)", "import work"


timeraw_spin.env = {"SUITE": 1}
"""
NUMBERS = """
import pathlib

import work


def track_size():
    return work.SIZE


track_size.unit = "things"


def track_zero():
    return 0


def track_wavering():
    # One side has 10 where the other one has 30, and they change places with each launch.
    side = pathlib.Path(work.__file__).parent
    with (side.parent / f"{side.name} was called").open("a") as calls:
        calls.write(".")
        number = calls.tell()
    return 30 if number % 2 == (side.name == "head") else 10


def track_text():
    return "many"


def track_nan():
    return float("nan")


def mem_list():
    return [0]


class PeakMemory:
    params = [2, 64]

    def peakmem_fill(self, n):
        work.fill(n)
"""
FAILURES = """
class SkipNotImplemented(NotImplementedError):
    pass


class NotHere:
    def setup(self):
        raise NotImplementedError("needs a network")

    def time_skipped(self): ...


def time_skips_late():
    raise SkipNotImplemented("only now")


def time_not_implemented():
    raise NotImplementedError("a failure")


class Broken:
    def __init__(self):
        raise ValueError("no data")

    def time_never(self): ...


def time_raises():
    raise RuntimeError("no such luck")
"""
IMPORTS = "import nowhere_at_all\n\n\ndef time_lost(): ...\n"


def asv_files(*, conf: str = "asv.conf.json", suite: str = "benchmarks") -> Mapping[str, str]:
    """Return the files of the project, its suite in a folder."""
    return {
        conf: CONF,
        "work.py": WORK,
        f"{suite}/__init__.py": "",
        f"{suite}/common.py": COMMON,
        f"{suite}/inner/__init__.py": "",
        f"{suite}/inner/deep.py": "from ..common import Base\n\n\nclass Deep(Base):\n    params = []\n\n"
        "    def setup(self): ...\n\n    def time_inherited(self): ...\n",
        f"{suite}/data/loose.py": "def time_loose(): ...\n",
        f"{suite}/times.py": TIMES,
        f"{suite}/numbers_.py": NUMBERS,
        f"{suite}/failures.py": FAILURES,
        f"{suite}/lost.py": IMPORTS,
    }
