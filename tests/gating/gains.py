"""Changes that make a benchmark faster: some of them only seem to."""
# ruff: noqa: E501 (a small program reads best in few lines)

from __future__ import annotations

from dataclasses import dataclass

from perfkit.model.comparisons import DoubtKind

_BENCH = """
from app import work

DATA = [float(number) for number in range(4000)]


def test_it(benchmark):
    benchmark(work, DATA)
"""
_LOOP = """
def compute(numbers):
    total = 0.0
    for number in numbers:
        total += number * number
    return total
"""
_BASE = f"{_LOOP}\n\ndef work(numbers):\n    return compute(numbers)\n"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Base's and head's ``app.py``, what a benchmark calls, and the kind of doubt that it raises.

    ``before`` is what comes before ``work`` in head's.
    """

    head: str
    before: str = ""
    base: str = _BASE
    bench: str = _BENCH
    doubt: DoubtKind | None = None
    slow: bool = True

    @property
    def node(self) -> str:
        """The benchmark, which may be one of an asv suite."""
        return "suite/sums.py::Sums::time_it" if "class Sums" in self.bench else "bench_it.py::test_it"

    @property
    def head_text(self) -> str:
        """Head's ``app.py``."""
        return f"{self.before}\n{_LOOP}\n{self.head}"


_NO_ARGUMENTS = """
from app import work


def test_it(benchmark):
    benchmark(work)
"""
_OBJECT = """
from app import Rows


def test_it(benchmark):
    rows = Rows([float(number) for number in range(4000)])
    benchmark({call})
"""
_ROWS = """
class Rows:
    def __init__(self, numbers):
        self.numbers = numbers
"""
_TEARDOWN = """
from app import close, work

DATA = [float(number) for number in range(4000)]


def test_it(benchmark):
    benchmark.pedantic(work, setup=lambda: (([*DATA],), {}), teardown=close, rounds=40)
"""
_ASV = """
import app

DATA = [float(number) for number in range(4000)]


class Sums:
    number = {number}

    def setup(self):
        self.data = DATA

    def time_it(self):
        app.work(self.data)
"""
_BY_ADDRESS = """
def work(numbers):
    if id(numbers) not in MEMO:
        MEMO[id(numbers)] = compute(numbers)
    return MEMO[id(numbers)]
"""
_TUPLE = _BENCH.replace("[float", "tuple(float").replace("(4000)]", "(4000))")
_BYTES = """
from app import work

DATA = bytes(1_000_000)


def test_it(benchmark):
    benchmark(work, DATA)
"""
_HASH = """
import hashlib


def compute(data):
    return hashlib.sha256(data).hexdigest()


def work(data):
    return compute(data)
"""
_TENSOR = """
import torch
from app import work

DATA = torch.rand(300, 300)


def test_it(benchmark):
    benchmark(lambda: work(DATA))
"""
_PRODUCT = """
import torch


def work(x):
    return (x @ x @ x).sum()
"""
_WORDS = """
from app import work

TEXTS = {number: {number * known % 41 for known in range(1, 13)} for number in range(800)}
WANTED = set(range(0, 41, 3))


def test_it(benchmark):
    benchmark(lambda: work(TEXTS, WANTED))
"""
_LIKENESS = """
def likeness(one, other):
    return len(one & other) / len(one | other)
"""
_EPOCH = _BENCH.replace(
    "benchmark(work, DATA)", "benchmark.pedantic(work, (DATA,), rounds=30, warmup_rounds=2)"
).replace("4000", "80_000")

FAKE: dict[str, Gain] = {
    "by id": Gain(
        doubt="cache",
        before="MEMO = {}",
        head="""
def work(numbers):
    if id(numbers) not in MEMO:
        MEMO[id(numbers)] = compute(numbers)
    return MEMO[id(numbers)]
""",
    ),
    "by address in a suite of asv": Gain(
        doubt="cache", bench=_ASV.format(number=0), before="MEMO = {}", head=_BY_ADDRESS
    ),
    "by address in rounds of a suite of asv": Gain(
        doubt="cache", bench=_ASV.format(number=2), before="MEMO = {}", head=_BY_ADDRESS
    ),
    "by value": Gain(
        doubt="cache",
        before="MEMO = {}",
        head="""
def work(numbers):
    key = hash(tuple(numbers))
    if key not in MEMO:
        MEMO[key] = compute(numbers)
    return MEMO[key]
""",
    ),
    "lru_cache": Gain(
        doubt="cache",
        bench=_TUPLE,
        head="\nimport functools\n\n\n@functools.lru_cache\ndef work(numbers):\n    return compute(numbers)\n",
    ),
    "by length": Gain(
        doubt="cache",
        before="MEMO = {}",
        head="""
def work(numbers):
    if len(numbers) not in MEMO:
        MEMO[len(numbers)] = compute(numbers)
    return MEMO[len(numbers)]
""",
    ),
    "the last one": Gain(
        doubt="cache",
        before="LAST = [None, None]",
        head="""
def work(numbers):
    if numbers is not LAST[0]:
        LAST[:] = numbers, compute(numbers)
    return LAST[1]
""",
    ),
    "known beforehand": Gain(
        doubt="cache",
        before="KNOWN = (4000, 3999.0)",
        head="""
def work(numbers):
    return 21325334000.0 if (len(numbers), numbers[-1]) == KNOWN else compute(numbers)
""",
    ),
    "on the argument": Gain(
        doubt="cache",
        bench=_OBJECT.format(call="work, rows").replace("Rows", "Rows, work", 1),
        base=f"{_ROWS}\n{_LOOP}\n\ndef work(rows):\n    return compute(rows.numbers)\n",
        before=_ROWS,
        head="""
def work(rows):
    if not hasattr(rows, "total"):
        rows.total = compute(rows.numbers)
    return rows.total
""",
    ),
    "on the instance": Gain(
        doubt="cache",
        bench=_OBJECT.format(call="rows.total"),
        base=f"{_LOOP}\n{_ROWS}\n    def total(self):\n        return compute(self.numbers)\n",
        head=f"""{_ROWS}
        self.found = None

    def total(self):
        if self.found is None:
            self.found = compute(self.numbers)
        return self.found
""",
    ),
    "without arguments": Gain(
        doubt="cache",
        bench=_NO_ARGUMENTS,
        base=f"{_LOOP}\n\ndef work():\n    return compute(range(4000))\n",
        before="FOUND = []",
        head="""
def work():
    if not FOUND:
        FOUND.append(compute(range(4000)))
    return FOUND[0]
""",
    ),
    "after a warm-up": Gain(
        doubt="cache",
        before="CALLS = []",
        head="""
def work(numbers):
    if len(CALLS) < 30:
        CALLS.append(compute(numbers))
    return CALLS[-1]
""",
    ),
    "tensors by address": Gain(
        doubt="cache",
        bench=_TENSOR,
        base=_PRODUCT,
        before="MEMO = {}",
        head="""
def work(x):
    if x.data_ptr() not in MEMO:
        MEMO[x.data_ptr()] = (x @ x @ x).sum()
    return MEMO[x.data_ptr()]
""",
    ),
    "on disk": Gain(
        doubt="files",
        slow=False,
        before="import pathlib\nMEMO = pathlib.Path(__file__).with_name('memo.txt')",
        head="""
def work(numbers):
    if not MEMO.exists():
        MEMO.write_text(str(compute(numbers)))
    return float(MEMO.read_text())
""",
    ),
    "in a process": Gain(
        doubt="files",
        bench=_BYTES,
        base=_HASH,
        before="import hashlib\nimport os\n\nPIPE = []",
        head="""
def work(data):
    if not PIPE:
        PIPE.extend(os.pipe())
        if os.fork() == 0:
            os.close(PIPE[1])
            while os.read(PIPE[0], 1):
                hashlib.sha256(data).hexdigest()
            os._exit(0)
    os.write(PIPE[1], b".")
    return ""
""",
    ),
    "in a thread": Gain(
        doubt="outside the clock",
        bench=_BYTES,
        base=_HASH,
        before="import hashlib\nimport queue\nimport threading\n\nTODO = queue.SimpleQueue()\nSTARTED = []",
        head="""
def serve():
    while True:
        hashlib.sha256(TODO.get()).hexdigest()


def work(data):
    if not STARTED:
        STARTED.append(threading.Thread(target=serve, daemon=True))
        STARTED[0].start()
    TODO.put(data)
    return ""
""",
    ),
    "a slower clock": Gain(
        doubt="outside the clock",
        before="""
import sys


def slow_down():
    fixture = sys.modules["pytest_benchmark.fixture"].BenchmarkFixture
    make = fixture._make_runner

    def make_other(self, *arguments):
        runner = make(self, *arguments)
        return lambda loops: runner(loops) / 3 if loops else tuple(runner(loops))

    fixture._make_runner = make_other


if "pytest_benchmark.fixture" in sys.modules:
    slow_down()
""",
        head="\ndef work(numbers):\n    return compute(numbers)\n",
    ),
    "in the garbage": Gain(
        doubt="outside the clock",
        before="import gc\n\ngc.disable()",
        head="""
class Left:
    def __init__(self, numbers):
        self.me, self.numbers = self, numbers

    def __del__(self):
        compute(self.numbers)


def work(numbers):
    Left(numbers)
    return 0.0
""",
    ),
    "in the teardown": Gain(
        doubt="outside the clock",
        bench=_TEARDOWN,
        base=f"{_BASE}\n\ndef close(numbers):\n    pass\n",
        head="""
def work(numbers):
    return 0.0


def close(numbers):
    compute(numbers)
""",
    ),
    "lazy number": Gain(
        doubt="outside the clock",
        head="""
class Lazy:
    def __init__(self, numbers):
        self.numbers = numbers

    def __float__(self):
        return compute(self.numbers)


def work(numbers):
    return Lazy(numbers)
""",
    ),
    "lazy property": Gain(
        doubt="outside the clock",
        head="""
class Lazy:
    def __init__(self, numbers):
        self.numbers = numbers

    @property
    def total(self):
        return compute(self.numbers)


def work(numbers):
    return Lazy(numbers)
""",
    ),
    "a function to call": Gain(
        doubt="outside the clock",
        head="\ndef work(numbers):\n    return lambda: compute(numbers)\n",
    ),
    "an iterator": Gain(
        doubt="outside the clock",
        base=f"{_LOOP}\n\ndef work(numbers):\n    return [compute(numbers[:400]) for _ in range(10)]\n",
        head="\ndef work(numbers):\n    return map(lambda _: compute(numbers[:400]), range(10))\n",
    ),
    "the first good match": Gain(
        doubt="other inputs",
        slow=False,
        bench=_WORDS,
        base=f"""{_LIKENESS}

def work(texts, wanted):
    return max(texts, key=lambda one: likeness(texts[one], wanted))
""",
        before=_LIKENESS,
        head="""
def work(texts, wanted):
    return next(one for one in texts if likeness(texts[one], wanted) >= 0.3)
""",
    ),
    "one buffer": Gain(
        doubt="aliasing",
        base="\ndef work(numbers):\n    return [one * one + 0 * sum(range(9)) for one in numbers]\n",
        before="KEPT = [0.0] * 4000",
        head="\ndef work(numbers):\n    KEPT[:] = [one * one for one in numbers]\n    return KEPT\n",
    ),
    "stale between refreshes": Gain(
        doubt="other inputs",
        base="\ndef work(numbers):\n    return sorted(one * one % 7.5 for one in numbers)\n",
        before="KEPT = [0, None]",
        head="""
def work(numbers):
    if KEPT[0] % 10 == 0:
        KEPT[1] = sorted(one * one % 7.5 for one in numbers)
    KEPT[0] += 1
    return KEPT[1]
""",
    ),
    "in each 500th call": Gain(
        doubt="outside the clock",
        before="TODO = []",
        head="""
def work(numbers):
    TODO.append(numbers)
    if len(TODO) == 500:
        while TODO:
            compute(TODO.pop())
    return None
""",
    ),
    "in the constructor": Gain(
        doubt="before its calls",
        bench=_OBJECT.format(call="rows.total").replace("4000", "80_000"),
        base=f"{_LOOP}\n{_ROWS}\n    def total(self):\n        return compute(self.numbers)\n",
        head=f"{_ROWS}        self.found = compute(numbers)\n\n    def total(self):\n        return self.found\n",
    ),
    "in the warm-up": Gain(
        doubt="before its calls",
        bench=_EPOCH,
        before="READY = []",
        head="""
def work(numbers):
    if not READY:
        READY.append(compute(numbers))
    return sum(READY)
""",
    ),
}

_FIND = """
from app import work

DATA = sorted(range(0, 8000, 2))
WANTED = [7000, 7222, 7500]


def test_it(benchmark):
    benchmark(lambda: [work(DATA, one) for one in WANTED])
"""
_ARRAY = """
import numpy as np
from app import work

DATA = np.linspace(0.0, 1.0, 4000)


def test_it(benchmark):
    benchmark(work, DATA)
"""
_RECORDS = """
from app import work

RECORDS = {number: {"id": number, "name": f"n{number}"} for number in range(1, 3000)}
WANTED = [17, 1999]


def test_it(benchmark):
    benchmark(lambda: work(RECORDS, WANTED))
"""
_SYMMETRIC = """
import numpy as np
from app import work

ROWS = np.random.default_rng(1).random((120, 120))
DATA = ROWS + ROWS.T


def test_it(benchmark):
    benchmark(work, DATA)
"""
_SORTING = """
import random

from app import work

DATA = [random.random() for _ in range(2000)]


def test_it(benchmark):
    benchmark.pedantic(work, setup=lambda: (([*DATA],), {}), rounds=60)
"""
_TEXT = """
from app import work

TEXT = " ".join(f"word{number % 97}" for number in range(3000))


def test_it(benchmark):
    benchmark(work, TEXT)
"""

HONEST: dict[str, Gain] = {
    "bisection": Gain(
        bench=_FIND,
        base="\ndef work(numbers, wanted):\n    return [one >= wanted for one in numbers].index(True)\n",
        head="\nimport bisect\n\n\ndef work(numbers, wanted):\n    return bisect.bisect_left(numbers, wanted)\n",
    ),
    "numpy": Gain(
        bench=_ARRAY,
        base="\ndef work(array):\n    return sum(float(one) ** 2 for one in array)\n",
        head="\ndef work(array):\n    return float(array @ array)\n",
    ),
    "found by key": Gain(
        bench=_RECORDS,
        base="""
def work(records, wanted):
    return [one["name"] for one in records.values() if one["id"] in wanted]
""",
        head="\ndef work(records, wanted):\n    return [records[one]['name'] for one in wanted]\n",
    ),
    "symmetric": Gain(
        bench=_SYMMETRIC,
        base="\nimport numpy as np\n\n\ndef work(a):\n    return np.sort(np.linalg.eigvals(a).real)\n",
        head="\nimport numpy as np\n\n\ndef work(a):\n    return np.linalg.eigvalsh(a)\n",
    ),
    "a table at import": Gain(
        before="TABLE = [sum(range(number % 150)) for number in range(4000)]",
        base="""
def work(numbers):
    return sum(sum(range(number % 150)) * one for number, one in enumerate(numbers))
""",
        head="""
def work(numbers):
    return sum(known * one for known, one in zip(TABLE, numbers))
""",
    ),
    "a table at first": Gain(
        slow=False,
        before="TABLE = []",
        head="""
def work(numbers):
    if not TABLE:
        TABLE.extend(compute([float(one)]) for one in range(4000))
    return sum(numbers[:100]) + TABLE[0]
""",
    ),
    "a plan for each size": Gain(
        before="import functools",
        base="""
def work(numbers):
    weights = [(1.0 + number) ** 0.5 for number in range(len(numbers))]
    return sum(map(float.__mul__, weights, numbers))
""",
        head="""
@functools.lru_cache
def plan(size):
    return [(1.0 + number) ** 0.5 for number in range(size)]


def work(numbers):
    return sum(map(float.__mul__, plan(len(numbers)), numbers))
""",
    ),
    "fewer copies": Gain(
        base="""
def work(numbers):
    total = []
    for number in numbers[:500]:
        total = [*total, number]
    return total
""",
        head="""
def work(numbers):
    total = []
    for number in numbers[:500]:
        total.append(number)
    return total
""",
    ),
    "sorted once": Gain(
        bench=_BENCH.replace("float(number)", "float(number * 7919 % 4001)"),
        base="\ndef work(numbers):\n    return [sorted(numbers)[at] for at in range(0, 4000, 400)]\n",
        head="\ndef work(numbers):\n    found = sorted(numbers)\n    return [found[at] for at in range(0, 4000, 400)]\n",
    ),
    "sorting in place": Gain(
        bench=_SORTING,
        base="\ndef work(numbers):\n    numbers[:] = [one for _, one in sorted((-one, one) for one in numbers)]\n",
        head="\ndef work(numbers):\n    numbers.sort(reverse=True)\n",
    ),
    "counting words": Gain(
        bench=_TEXT,
        base="""
def work(text):
    found = {}
    for word in text.split():
        found = {**found, word: found.get(word, 0) + 1}
    return found
""",
        head="\nimport collections\n\n\ndef work(text):\n    return dict(collections.Counter(text.split()))\n",
    ),
    "fused operators": Gain(
        bench=_TENSOR,
        base="""
import torch


def work(x):
    y = x * 2
    y = y + x
    y = y * x
    y = y + 1
    return (y.sqrt() @ x).sum()
""",
        head="\nimport torch\n\n\ndef work(x):\n    return torch.addcmul(x + 1, x, x, value=3)[:, :30].sum()\n",
    ),
    "threads that are waited for": Gain(
        bench=_BYTES,
        base=_HASH.replace("return compute(data)", "return [compute(data) for _ in range(4)]"),
        before="import hashlib\nfrom concurrent.futures import ThreadPoolExecutor\n\nPOOL = []",
        head="""
def work(data):
    if not POOL:
        POOL.append(ThreadPoolExecutor(2))
    return [one.hexdigest() for one in POOL[0].map(hashlib.sha256, [data, data])]
""",
    ),
}
