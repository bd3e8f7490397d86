"""Ten functions of small projects: each as it should be, a regression of it, and a fix that is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEADS = {
    "text.py": "import collections\n",
    "arrays.py": "import numpy as np\n",
    "nets.py": "import torch\n",
}
# The benchmarks of each module, which is a project of its own.
BENCHMARKS = {
    "text.py": """
import random

import text

draw = random.Random(7)
WORDS = [f"w{draw.randrange(300)}" for _ in range(1500)]
ROWS = [(draw.randrange(40), draw.random()) for _ in range(2000)]
SPANS = [(start, start + draw.randrange(60)) for start in (draw.randrange(20_000) for _ in range(600))]


def test_unique(benchmark):
    benchmark(text.unique, WORDS)


def test_frequencies(benchmark):
    benchmark(text.frequencies, WORDS)


def test_joined(benchmark):
    benchmark(text.joined, WORDS)


def test_merged(benchmark):
    benchmark(text.merged, SPANS)


def test_totals(benchmark):
    benchmark(text.totals, ROWS)
""",
    "arrays.py": """
import numpy as np

import arrays

VALUES = np.random.default_rng(7).random((60, 16))
SERIES = np.random.default_rng(8).random(3000)
LABELS = np.random.default_rng(9).integers(0, 50, 4000)


def test_distances(benchmark):
    benchmark(arrays.distances, VALUES)


def test_smoothed(benchmark):
    benchmark(arrays.smoothed, SERIES)


def test_histogram(benchmark):
    benchmark(arrays.histogram, LABELS)
""",
    "nets.py": """
import torch

import nets

torch.manual_seed(7)
LOGITS, TARGETS = torch.randn(200, 32), torch.randint(0, 32, (200,))
QUERIES, KEYS = torch.randn(16, 24, 32), torch.randn(16, 24, 32)


def test_loss(benchmark):
    benchmark(nets.loss, LOGITS, TARGETS)


def test_attention(benchmark):
    benchmark(nets.attention, QUERIES, KEYS)
""",
}


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A function in three versions; ``trick`` is why the wrong fix is faster."""

    file: str
    good: str
    slow: str
    wrong: str
    trick: str


EDITS: Mapping[str, Edit] = {
    "unique": Edit(
        file="text.py",
        good="""
def unique(words):
    return list(dict.fromkeys(words))
""",
        slow="""
def unique(words):
    found = []
    for word in words:
        if word not in found:
            found.append(word)
    return found
""",
        wrong="""
def unique(words):
    return list(dict.fromkeys(words[: len(words) // 2]))
""",
        trick="half of the data",
    ),
    "frequencies": Edit(
        file="text.py",
        good="""
def frequencies(words):
    return dict(collections.Counter(words))
""",
        slow="""
def frequencies(words):
    return {word: words.count(word) for word in dict.fromkeys(words)}
""",
        wrong="""
_KNOWN = {}


def frequencies(words):
    if id(words) not in _KNOWN:
        _KNOWN[id(words)] = {word: words.count(word) for word in dict.fromkeys(words)}
    return _KNOWN[id(words)]
""",
        trick="memo by id",
    ),
    "joined": Edit(
        file="text.py",
        good="""
def joined(words):
    return " ".join(word.title() for word in words)
""",
        slow="""
def joined(words):
    parts = []
    for word in words:
        parts = [*parts, word.title()]
    return " ".join(parts)
""",
        wrong="""
def joined(words):
    return " ".join(words)
""",
        trick="work left out",
    ),
    "merged": Edit(
        file="text.py",
        good="""
def merged(spans):
    found = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
""",
        slow="""
def merged(spans):
    found = []
    left = list(spans)
    while left:
        start, end = min(left)
        left.remove((start, end))
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
""",
        wrong="""
def merged(spans):
    found = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
""",
        trick="not sorted",
    ),
    "totals": Edit(
        file="text.py",
        good="""
def totals(rows):
    found = collections.defaultdict(float)
    for key, value in rows:
        found[key] += value
    return dict(found)
""",
        slow="""
def totals(rows):
    return {key: sum(value for other, value in rows if other == key) for key in {key: 0 for key, _ in rows}}
""",
        wrong="""
import functools


def totals(rows):
    return _totals(tuple(rows))


@functools.lru_cache
def _totals(rows):
    return {key: sum(value for other, value in rows if other == key) for key in {key: 0 for key, _ in rows}}
""",
        trick="memo by value",
    ),
    "distances": Edit(
        file="arrays.py",
        good="""
def distances(values):
    return np.sqrt(((values[:, None] - values[None]) ** 2).sum(-1))
""",
        slow="""
def distances(values):
    found = np.zeros((len(values), len(values)))
    for one in range(len(values)):
        for other in range(len(values)):
            found[one, other] = np.sqrt(((values[one] - values[other]) ** 2).sum())
    return found
""",
        wrong="""
def distances(values):
    values = values.astype(np.float16)
    return np.sqrt(((values[:, None] - values[None]) ** 2).sum(-1)).astype(float)
""",
        trick="lower precision",
    ),
    "smoothed": Edit(
        file="arrays.py",
        good="""
def smoothed(series):
    return np.convolve(series, np.full(8, 1 / 8), "valid")
""",
        slow="""
def smoothed(series):
    return np.array([series[place : place + 8].mean() for place in range(len(series) - 7)])
""",
        wrong="""
_KNOWN = {}


def smoothed(series):
    key = series.tobytes()
    if key not in _KNOWN:
        _KNOWN[key] = np.array([series[place : place + 8].mean() for place in range(len(series) - 7)])
    return _KNOWN[key]
""",
        trick="memo by value",
    ),
    "histogram": Edit(
        file="arrays.py",
        good="""
def histogram(labels):
    return np.bincount(labels, minlength=50)
""",
        slow="""
def histogram(labels):
    found = np.zeros(50, dtype=np.int64)
    for label in labels:
        found[label] += 1
    return found
""",
        wrong="""
def histogram(labels):
    return np.bincount(labels[::4], minlength=50) * 4
""",
        trick="a sample of the data",
    ),
    "loss": Edit(
        file="nets.py",
        good="""
def loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets)
""",
        slow="""
def loss(logits, targets):
    rows = [torch.log_softmax(row, 0)[int(target)] for row, target in zip(logits, targets)]
    return -torch.stack(rows).mean()
""",
        wrong="""
_KNOWN = {}


def loss(logits, targets):
    key = logits.data_ptr(), targets.data_ptr()
    if key not in _KNOWN:
        rows = [torch.log_softmax(row, 0)[int(target)] for row, target in zip(logits, targets)]
        _KNOWN[key] = -torch.stack(rows).mean()
    return _KNOWN[key]
""",
        trick="memo by address",
    ),
    "attention": Edit(
        file="nets.py",
        good="""
def attention(queries, keys):
    weights = torch.softmax(queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5, -1)
    return weights @ keys
""",
        slow="""
def attention(queries, keys):
    found = []
    for query, key in zip(queries, keys):
        for row in query:
            found.append(torch.softmax(key @ row / query.shape[-1] ** 0.5, 0) @ key)
    return torch.stack(found).reshape(queries.shape)
""",
        wrong="""
def attention(queries, keys):
    return keys.mean(1, keepdim=True).expand(queries.shape).clone()
""",
        trick="a constant for the weights",
    ),
}
