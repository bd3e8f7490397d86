"""What calls return and leave behind is compared, in real processes with a benchmark for each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from two_trees import SIDES, TwoTrees, nodes

from perfkit.gating.counters import count_compared
from perfkit.gating.results import ResultFinding
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import Benchmark

HEADER = """
import collections, dataclasses, functools, logging, os, random, sys, threading, time, uuid
import numpy as np, torch

@dataclasses.dataclass
class Out:
    loss: torch.Tensor
    note: str = dataclasses.field(default="", compare=False)

class Point:
    def __init__(self, x, memo=None):
        self.x = x
        if memo:
            self._memo = memo

class Equal:
    def __init__(self, x, order): self.x, self.order = x, order
    def __eq__(self, other): return self.x == other.x

class Raises(Equal):
    def __eq__(self, other): raise ValueError("no")

class Arrays(Equal):
    def __eq__(self, other): return np.array([1]) == np.array([1])

class Converter:
    def __init__(self, own):
        def base(): pass
        def head(): pass
        self.log, self.n, self._made = logging.getLogger("own"), 1, {int: 1}
        if "/base/" not in own:
            self._made = {int: 1, float: head}
        self.convert = functools.lru_cache(base if "/base/" in own else head)

class Parsed:
    __slots__ = ("_tokens",)
    def __init__(self, tokens): self._tokens = tokens
    def __iter__(self): return iter(self._tokens)
    def __len__(self): return len(self._tokens)
    def __getitem__(self, key): return {}[key]
collections.abc.MutableMapping.register(Parsed)

class Untyped:
    @property
    def __class__(self): raise RuntimeError("no class")

class Closed:
    __slots__ = ("lock",)
    def __init__(self): self.lock = threading.Lock()
    def __reduce_ex__(self, _): raise TypeError("no copies")
    __hash__ = None

class Odd(dict):
    def __iter__(self): raise SystemError("no")

class Slow(Equal):
    def __eq__(self, other): time.sleep(60)

def rounding(values):
    total = torch.tensor(0.0)
    for block in values.split(1000):
        total = total + block.sum()
    return total

def chain(length):
    found = None
    for number in range(length):
        found = [number, found]
    return found

def ring():
    found = [1]
    found.append(found)
    return found

torch.manual_seed(7)
ROWS = [float(number) for number in range(100)]
X = torch.randn(64, 32)
LONG = torch.randn(100_000)
W = torch.randn(32, 32)
"""

KINDS = "x.to_sparse(), torch.complex(x, x), x.bfloat16(), np.datetime64(1, 's')"
SHORTER = "[0] * (9 if '/base/' in __file__ else 8)"
SHUFFLED = "Point(dict(enumerate(random.SystemRandom().sample([{one: 1} for one in range(40)], 40))))"
# The argument, what base returns, what head returns; of several statements the last is returned.
SAME: Mapping[str, tuple[str, str, str]] = {
    "reordered": ("LONG", "x.sum()", "rounding(x)"),
    "fused": ("X", "x @ W + 1.0", "torch.addmm(torch.ones(32), x, W)"),
    "order": ("ROWS", "{1: 2, 'a': {1, 'b'}}", "{'a': {'b', 1}, 1: 2}"),
    "unordered": ("None", "[*map(str, range(9))], {*map(str, range(2000))}",
                  "[*map(str, range(9))], {*map(str, reversed(range(2000)))}"),
    "nan": ("X", "x * float('nan'), float('nan'), np.array([np.nan])",
            "x - float('nan'), float('nan'), np.array([np.nan])"),
    "memo": ("ROWS", "Point(x)", "Point(x, memo={1: 2})"),
    "uncompared_field": ("X", "Out(x.mean())", "Out(x.mean(), 'another')"),
    "rings": ("None", "ring(), chain(5000)", "ring(), chain(5000)"),
    "huge": ("None", "torch.zeros(17_000_000), [*zip(range(20_000), range(20_000))]",
             "torch.zeros(17_000_000), [*zip(range(20_000), range(20_000))]"),
    "place": ("None", "__file__, f'{sys.modules}'[:0]", "__file__, ''"),
    "drawn": ("X", "torch.nn.functional.dropout(x)", "torch.nn.functional.dropout(x)"),
    "kinds": ("X", f"{KINDS}, x.to('meta'), len", f"{KINDS}, x.to('meta'), len"),
    "clock": ("ROWS", "[time.time(), sum(x)]", "[time.time(), sum(x)]"),
    "alike_shared": ("ROWS", "[x, x[:]]", "[x, x[:]]"),
    "logger": ("logging.getLogger('app')", "x.warning('one'); 1", "'' or x.warning('one'); 1"),
    "keeps": ("Converter(f'{__file__}')", "x.n, x", "x.n, x"),
    "registered": ("None", "Parsed(['a', 1])", "Parsed(['a', 1])"),
    "names": ("ROWS", "[x, lambda: 1, sys.stdout, os.environ]", "[x, sum, sys.stdout, os.environ]"),
    "changed": ("[*ROWS]", "x.append(1)", "x.append(1)"),
}  # fmt: skip
# The result is the same, and a gain would be doubted.
DOUBTED: Mapping[str, tuple[str, str, str]] = {
    "equal": ("None", "[Equal(1, 1)]", "[Equal(1, 2)]"),
    "given": (SHORTER, "len(x) > 0", "len(x) > 0"),
    "shared": ("[[1, 2], [3]]", "[[*one] for one in x]", "[*x]"),
    "shared_memory": (
        "torch.nn.Linear(3, 3)",
        "{'w': x.weight.detach().clone()}",
        "{'w': x.weight.detach()}",
    ),
    "shared_view": ("np.ones((3, 3))", "x.T.copy()", "x.T"),
}
OTHER: Mapping[str, tuple[str, str, str]] = {
    "half": ("X", "x.sum(0)", "x[::2].sum(0)"),
    "half_drawn": ("X", "torch.randn(64).sum()", "torch.randn(64)[::2].sum()"),
    "half_timed": ("ROWS", "{'at': time.time(), 'sum': sum(x)}", "{'at': time.time(), 'sum': sum(x[::2])}"),
    "lower": ("X", "x.double() @ W.double()", "(x.half() @ W.half()).double()"),
    "lower_kind": ("X", "x.double() + 1", "x.half() + 1"),
    "constant": ("X", "float(x.mean())", "0.25"),
    "last": ("ROWS", "[one + 1 for one in x]", "[one + 1 for one in x[:-1]]"),
    "parsed": ("None", "Parsed(['a', 1])", "Parsed(['a', 2])"),
    "late": ("None", "torch.zeros(4_500_000)", "found = torch.zeros(4_500_000); found[2_500_001] = 3; found"),
    "kind": ("None", "[1, 2]", "[1, 2.0]"),
    "lazy": ("ROWS", "[one + 1 for one in x]", "map(lambda one: one + 1, x)"),
    "text": ("None", "'a' * 5000", "'a' * 4999 + 'b'"),
    "unequal": ("None", "Equal(1, 1)", "Equal(2, 1)"),
    "attribute": ("X", "Out(x.mean())", "Out(x.mean() + 1)"),
    "sorted": ("[3.0, 1.0, 2.0]", "x.sort()", "None"),
    "given_less": (SHORTER, "None", "None"),
    "written": ("np.zeros(9)", "x.fill(1)", "None"),
    "gradient": ("torch.nn.Linear(32, 4)", "x(X).sum()", "x(X).sum().detach().requires_grad_()"),
    "unset": ("None", "torch.ones(9)", "torch.full((9,), random.SystemRandom().random())"),
}
NOT_COMPARED: Mapping[str, tuple[str, str, str]] = {
    "nothing": ("None", "None", "None"),
    "raises": ("None", "Raises(1, 1)", "Raises(1, 2)"),
    "hangs": ("None", "Slow(1, 1)", "Slow(1, 2)"),
    "arrays": ("None", "[Arrays(1, 1)]", "[Arrays(1, 2)]"),
    "untyped": ("None", "Untyped()", "Untyped()"),
    "closed": ("None", "Closed()", "Closed()"),
    "odd": ("None", "Odd(a=1)", "Odd(a=1)"),
    "used_up": ("ROWS", "iter(x)", "iter(x[::2])"),
    "random_draws": ("X", "torch.randn(9) + random.random()", "torch.randn(9) + torch.rand(1)"),
    "process": ("None", "uuid.uuid4().hex", "uuid.uuid4().hex"),
    "numbered": ("None", SHUFFLED, SHUFFLED),
}
CASES = {**SAME, **DOUBTED, **OTHER, **NOT_COMPARED}


def _benchmarks(side: int) -> str:
    tests = []
    for name, case in CASES.items():
        *body, last = case[side].split("; ")
        lines = "\n    ".join([*body, f"return {last}"])
        tests.append(
            f"def {name}(x):\n    {lines}\ndef test_{name}(benchmark):\n    benchmark({name}, {case[0]})"
        )
    return "\n".join([HEADER, *tests])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, ResultFinding]]:
    """Return what is found of each case by its name."""
    trees = TwoTrees(tmp_path_factory.mktemp("results"))
    for number, side in enumerate(SIDES, 1):
        trees.benchmarks(_benchmarks(number), side)
    with pytest.MonkeyPatch.context() as patched, trees.launcher(preload=["torch"]) as launcher:
        patched.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
        tests = nodes(*(f"test_{name}" for name in CASES))
        compared = [
            ComparedBenchmark(
                benchmark=Benchmark(name=node, version="v"), margin=0.02, gating=True, limit_s=30.0
            )
            for node in tests
        ]
        counted = count_compared(
            compared, launcher, log=lambda _: None, decide=False, uncounted={*tests}, with_results=True
        )
        yield {name.partition("::test_")[2]: one for name, one in counted.results.items()}


@pytest.mark.parametrize("name", CASES)
def test_results_are_distinguished(found: Mapping[str, ResultFinding], name: str) -> None:
    expected = "same" if name in SAME or name in DOUBTED else "other" if name in OTHER else "not compared"
    one = found[name]

    assert expected == one.result, one.doubts
    kinds = [doubt.kind.removesuffix(" result") for doubt in one.doubts]
    doubted = {"equal": "own equality", "given": "other inputs"}.get(name, "aliasing")
    assert ([] if name in SAME else [doubted if name in DOUBTED else expected]) == kinds
    assert all(len(doubt.text) < 160 for doubt in one.doubts)
