"""Counts what each call keeps to the byte, with its type and line; what fills up or doubles is not kept."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

LOOPS = """
import collections, functools, gc, itertools, json, logging, sys, time, tracemalloc, warnings
from pathlib import Path
import numpy, torch
from perfkit.agent.counters.kept import count_kept
from perfkit.agent.counters.model import Count

kept, cache, number = [], {}, itertools.count()
last = collections.deque(maxlen=100)
weights = torch.ones(64, 64, requires_grad=True)
joined = torch.zeros(1)

@functools.lru_cache(maxsize=10**6)
def limited(key): return bytes(2000)
@functools.lru_cache(maxsize=None)
def unlimited(key): return bytes(2000)
class Buffer:
    capacity, items = 10**6, []
    def __init__(self): self.max_size = 10**6; self.own = []
buffer = Buffer()

def text(): kept.append(bytes(223))
def entry(): cache[next(number)] = dict.fromkeys(range(200))
def tensor(): kept.append(torch.ones(1024))
def output(): kept.append((1.0, (weights @ weights).detach()))
def graph(): kept.append((weights @ weights).relu().sum())
def array(): kept.append(numpy.ones(512))
def concatenated():
    global joined
    joined = torch.cat([joined, torch.ones(1024)])
def memoised(): unlimited(next(number))

def number_(): kept.append(float(next(number)))
def step(): (weights @ weights).sum().backward()
def returned(): return [bytes(4096)]
def logged(): logging.getLogger("demo").warning("call %s", next(number))
def warned(): warnings.warn("old", DeprecationWarning)
def cycle():
    one = [bytes(4096)]; one.append(one)
def bounded(): last.append(torch.ones(1024))
def limited_cache(): limited(next(number))
def same_key(): unlimited(3)
def buffered(): buffer.own.append(bytes(4096))
def cleared():
    cache[next(number)] = bytes(1000)
    if len(cache) > 1000: cache.clear()

traced = False
def long():
    global traced
    traced = traced or tracemalloc.is_tracing()
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.01: pass

GROW = [text, entry, tensor, output, graph, array, concatenated, memoised]
KEEP = [number_, step, returned, logged, warned, cycle, bounded, limited_cache, same_key, buffered, cleared]
gc.freeze()
found = {}
for call in GROW + KEEP:
    kept.clear(); cache.clear(); joined = torch.zeros(1)
    for _ in range(8): call()
    count = count_kept(call, Path(__file__).parent, most_calls=float("inf"))
    found[call.__name__] = [count.values, [[one.what, one.place, one.amount] for one in count.causes]]
found["few"] = count_kept(text, Path(__file__).parent, most_calls=14)
found["long"] = [count_kept(long, Path(__file__).parent, most_calls=float("inf")).values, traced]
print(json.dumps(found))
"""
# The least bytes of each, and what most of them are.
GROWING = {
    "text": (256, "bytes"),
    "entry": (9000, "dict"),
    "tensor": (4096, "Tensor"),
    "output": (16384, "Tensor"),
    "graph": (16384, "tensor with its graph"),
    "array": (4096, "ndarray"),
    "concatenated": (4096, "Tensor"),
    "memoised": (2000, "bytes"),
}
KEEPING_NOTHING = (
    *("number_", "step", "returned", "logged", "warned", "cycle", "bounded", "limited_cache", "same_key"),
    *("buffered", "cleared"),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what each of some calls keeps, counted in a process of its own."""
    file = tmp_path_factory.mktemp("kept") / "loops.py"
    file.write_text(LOOPS)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", GROWING)
def test_what_each_call_keeps_is_found_with_type_and_line(found: dict[str, Any], name: str) -> None:
    values, causes = found[name]
    least, what = GROWING[name]

    assert all(least <= value <= least * 1.35 for value in values)
    lines = LOOPS.splitlines()
    (kind, place, _), *_ = causes
    assert what == kind
    line = lines[int(place.rpartition(":")[2]) - 1]
    assert "loops.py" in place
    assert any(word in line for word in ("append", "cache[", "torch.cat", "bytes(2000)"))


@pytest.mark.parametrize("name", KEEPING_NOTHING)
def test_what_fills_up_or_is_dropped_is_not_kept(found: dict[str, Any], name: str) -> None:
    values, _ = found[name]

    assert max(values) < 256


def test_few_calls_are_a_reason(found: dict[str, Any]) -> None:
    assert "it may not be called often enough" == found["few"]


def test_a_long_call_that_keeps_nothing_is_not_traced(found: dict[str, Any]) -> None:
    # Tracing makes a call that makes many small objects more than a hundred times as slow.
    assert [[0.0, 0.0], False] == found["long"]
