"""A gain that is none is named, and one that is one is not doubted."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from gains import FAKE, HONEST, Gain
from gating import git_project

from perfkit.config import AsvSuite
from perfkit.gating.affected import notices, notices_of, sort_changed
from perfkit.gating.gains import doubts_of, is_unclear, take_imports, take_looks
from perfkit.gating.results import Look, compare_calls, doubts_of_new_inputs
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import SIDES, Benchmark, Side
from perfkit.model.comparisons import Doubt
from perfkit.repo.code_units import units_of
from perfkit.runner.lockstep.launch import LaunchRecord, LaunchRules, run_launch
from perfkit.runner.lockstep.launcher import Launcher, MeasuredTrees
from perfkit.runner.lockstep.untimed import CountedSides

TRACED = "[tool.perfkit]\nmargin = '50%'\n[tool.perfkit.gate]\nalpha = 0.2\n"
_MEMO = """MEMO = {}


def _kept(numbers):
    MEMO[id(numbers)] = sum(n * n for n in numbers)
    return MEMO[id(numbers)]


"""


@contextmanager
def _launched(gain: Gain, folder: Path) -> Iterator[Launcher]:
    """Write both sides of a change, and yield a launcher of them."""
    roots: dict[Side, Path] = {side: folder / side for side in SIDES}
    file = gain.node.partition("::")[0]
    for side, text in zip(SIDES, (gain.base, gain.head_text), strict=True):
        roots[side].mkdir()
        (roots[side] / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (roots[side] / file).parent.mkdir(exist_ok=True)
        (roots[side] / file).write_text(gain.bench)
        (roots[side] / "app.py").write_text(text)
    (folder / "launches").mkdir()
    asv = AsvSuite(file="asv.conf.json", folder="suite", limit_s=20.0) if "/" in file else None
    trees = MeasuredTrees(roots=roots, origins=(), paths=(file,), asv=asv)
    with Launcher(
        trees, folder=folder / "launches", environment=os.environ, seed=1, preload=[], cores=1
    ) as launcher:
        launcher.survey()
        yield launcher


def _launch(launcher: Launcher, node: str) -> LaunchRecord:
    children = [launcher.start(side, nodes=[node]) for side in SIDES]
    rules = LaunchRules(launch_s=0.04, limit_s=lambda _: 60.0)
    return run_launch(children, [node], plans={}, rules=rules)


def _doubts(gain: Gain, folder: Path) -> list[Doubt]:
    """Measure both sides of a change in a few launches, and look closer, as a gate does."""
    one = ComparedBenchmark(
        benchmark=Benchmark(name=gain.node, version="1"), margin=0.1, gating=True, limit_s=20.0
    )
    unasked = CountedSides(counts={}, failures=(), reports={}, later=frozenset({gain.node}))
    with _launched(gain, folder) as launcher:
        base_s, head_s = math.inf, math.inf
        # Other work on the machine may hide a gain in one launch.
        for _ in range(3):
            timing = _launch(launcher, gain.node).timings[gain.node]
            base_s = min(base_s, statistics.median(timing.base_s))
            head_s = min(head_s, statistics.median(timing.head_s))
            if head_s < 0.9 * base_s:
                break
        assert head_s < 0.9 * base_s
        imports = take_imports(launcher, gain.node.partition("::")[0], time.monotonic() + 60.0)
        others = compare_calls(unasked, {gain.node: one}, launcher)[gain.node].result == "same"
        looks = take_looks(launcher, one, base_s, others=others)
        found = doubts_of((base_s, head_s), looks, imports)
        return [*found, *doubts_of_new_inputs(launcher, one, looks)]


FROZEN = """
from app import work


def test_it(benchmark):
    benchmark._timer = lambda: 1.0
    benchmark(work)
"""


@pytest.mark.slow
def test_a_clock_that_stands_still_on_both_sides_fails(tmp_path: Path) -> None:
    app = "def work():\n    return sum(range({}))\n"
    gain = Gain(base=app.format(1000), head=app.format(9000), bench=FROZEN)

    with _launched(gain, tmp_path) as launcher:
        failure = _launch(launcher, gain.node).failures[0]

    assert "something replaces or stops it" in failure.message


def _params(gains: Mapping[str, Gain]) -> list[object]:
    return [pytest.param(name, marks=[pytest.mark.slow] * one.slow) for name, one in gains.items()]


@pytest.mark.parametrize("name", _params(FAKE))
def test_a_gain_that_is_none_is_named(name: str, tmp_path: Path) -> None:
    found = _doubts(FAKE[name], tmp_path)

    assert FAKE[name].doubt in {one.kind for one in found}
    assert all(len(one.text) <= 110 for one in found)


APP = """
import os

{memo}def ask():
    os.environ.get('{asked}')
    return sum(n * n for n in range(9000))


def work(numbers):
    {key}return sum(n * n for n in numbers)


INDEX = {{}}


def index(numbers):
    {put}return len(numbers)
"""
BENCHES = """
from app import ask, index, work

DATA = [float(number) for number in range(4_000)]


def test_work(benchmark):
    benchmark.pedantic(work, args=(DATA,), rounds=30)


def test_ask(benchmark):
    benchmark.pedantic(ask, rounds=30)


def test_index(benchmark):
    benchmark.pedantic(index, args=(DATA,), rounds=30)
"""


def test_doubts_are_in_the_report_and_in_the_ledger(tmp_path: Path) -> None:
    """A gain that is doubted passes, and a gate that is judged anew doubts it as well.

    What it rests on that is done before the calls is a line of its own.
    """
    key = "return MEMO.get(id(numbers)) or _kept(numbers)\n    "
    put = "INDEX.update({number: number * number for number in numbers})\n    "
    base = APP.format(memo="", key="", asked="HOME", put=put)
    head = APP.format(memo=_MEMO, key=key, asked="CI", put="")
    project = git_project(
        tmp_path, {"pyproject.toml": TRACED, "app.py": base, "benchmarks/test_app.py": BENCHES}
    )
    project.commit({"app.py": head}, "Be faster")

    gated = project.gate("--base", "HEAD^", "--head", "HEAD")

    assert 0 == gated.exit_code, gated.stderr
    kinds = {name: [one["kind"] for one in found["doubts"]] for name, found in gated.comparisons.items()}
    assert kinds == {
        "test_work": ["cache"],
        "test_ask": ["notices measuring"],
        "test_index": ["outside the clock"],
    }
    assert "IMPROVED" == gated.verdicts["test_work"]
    judged = project.judge(gated.run_id)
    assert kinds == {
        name: [one["kind"] for one in found["doubts"]] for name, found in judged.comparisons.items()
    }


LOOK = Look(
    times={},
    own_s=0.0,
    outside_s=0.0,
    before_s=0.0,
    follows=True,
    overwritten=False,
    touched=(),
    others={},
    others_at="",
    layout=1,
)


def test_a_look_that_cannot_rule_out_a_cache_is_unclear() -> None:
    def look(same_s: float, moved_s: float) -> Look:
        times = {"first": moved_s, "same": same_s, "moved": moved_s}
        return replace(LOOK, times=times, own_s=same_s)

    def looks(*moved_s: float) -> list[Mapping[Side, Look]]:
        return [{"base": look(1e-2, 1e-2), "head": look(1e-3, one)} for one in moved_s]

    claimed = 1e-2, 1e-3
    assert ["cache"] == [one.kind for one in doubts_of(claimed, looks(9e-3, 9e-3, 9.1e-3))]
    assert [] == doubts_of(claimed, unclear := looks(9e-3, 6e-3, 2e-3))
    assert is_unclear(claimed, unclear)
    assert not is_unclear(claimed, looks(1e-3, 2e-3, 1e-3))


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [
        ((1.0, 1.1, 2.0), (1.5, 1.55, 1.6), []),
        ((1.0, 1.1, 1.2), (1.5, 1.55, 1.6), ["before its calls"]),
        # The first of many is slower, as what it opens is watched.
        ((9.0, 1.0, 1.1, 1.0, 1.1, 2.0), (9.0, 1.5, 1.55, 1.6, 1.5, 1.6), ["before its calls"]),
        ((9.0, 1.0, 1.1, 2.0, 1.1, 2.0), (9.0, 1.5, 1.55, 1.6, 1.5, 1.6), ["before its calls"]),
        ((9.0, 1.0, 1.1, 2.0, 2.0, 2.0), (9.0, 1.5, 1.55, 1.6, 1.5, 1.6), []),
    ],
)
def test_a_set_up_is_longer_beyond_the_scatter_of_its_launches(
    base: tuple[float, ...], head: tuple[float, ...], found: list[str]
) -> None:
    """Of few launches none may be far off, since they often agree by chance."""

    def look(call_s: float, before_ms: float) -> Look:
        times = {"first": call_s, "same": call_s, "moved": call_s}
        return replace(LOOK, times=times, own_s=call_s, before_s=before_ms / 1000)

    pairs = zip(base, head, strict=True)
    looks: list[Mapping[Side, Look]] = [
        {"base": look(1e-4, before), "head": look(1e-5, after)} for before, after in pairs
    ]

    assert found == [one.kind for one in doubts_of((1e-4, 1e-5), looks)]


# Each asks for something that only a measured process has.
NOTICING = {
    "PYTEST_CURRENT_TEST": "import os\n\ndef work():\n    return 'PYTEST_CURRENT_TEST' in os.environ\n",
    "pytest": "import sys\n\ndef work():\n    return 'pytest' in sys.modules\n",
    "_pytest.config": "def work():\n    import _pytest.config\n",
    "sys._getframe": "import sys\n\ndef work():\n    return sys._getframe(1).f_code.co_name\n",
    "inspect.stack": "import inspect\n\ndef work():\n    return len(inspect.stack()) > 30\n",
    "traceback.extract_stack": "import traceback\n\ndef work():\n    return traceback.extract_stack()\n",
    "sys.stdin": "import sys\n\nFAST = sys.stdin is None\n",
    "isatty": "import sys\n\nFAST = not sys.stdout.isatty()\n",
    ".git": "from pathlib import Path\n\nFAST = not Path(__file__).with_name('.git').is_dir()\n",
    "gc.isenabled": "import gc\n\ndef work():\n    return gc.isenabled()\n",
    "sys.gettrace": "import sys\n\ndef work():\n    return sys.gettrace() is None\n",
    "PERFKIT_LOCK_FOLDER": "import os\n\nFAST = os.environ.get('PERFKIT_LOCK_FOLDER')\n",
    "CI": "import os\n\nFAST = 'CI' in os.environ\n",
}


@pytest.mark.parametrize("word", NOTICING)
def test_code_that_asks_whether_it_is_measured_is_found(word: str) -> None:
    base, head = units_of(b"def work():\n    return 1\n"), units_of(NOTICING[word].encode())
    found = [one.text for one in notices_of("app.py", base, head)]

    assert any(text.endswith(f" asks for {word}") for text in found)
    assert [] == [*notices_of("app.py", head, head)]


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("src/app.py", "src/app.py:4 asks for pytest"),
        ("src/latest/app.py", "src/latest/app.py:4 asks for pytest"),
        ("tests/test_app.py", None),
        ("tests/_common.py", None),
        ("src/app/test/tools.py", None),
    ],
)
def test_what_tests_ask_for_is_no_doubt_on_code_that_is_not_traced(file: str, found: str | None) -> None:
    head = NOTICING["pytest"].encode()
    changed = sort_changed([file], lambda side, _: head if side == "head" else None)

    assert found == notices(changed)


def test_words_of_other_things_are_none() -> None:
    text = """
import torch

KNOWN = {"TimeoutHooks.pytest_timeout_set_timer"}

def work(x):
    \"\"\"Run by pytest.\"\"\"
    raise ValueError("install pytest first", torch.stack([x]), x.isenabled())
"""
    assert [] == [*notices_of("app.py", units_of(b""), units_of(text.encode()))]
    looks = [units_of(NOTICING[word].encode()) for word in ("inspect.stack", "sys._getframe")]
    assert [] == [*notices_of("app.py", *looks)]


@pytest.mark.parametrize("name", _params(HONEST))
def test_a_gain_is_not_doubted(name: str, tmp_path: Path) -> None:
    """What it does before its calls may be named."""
    found = _doubts(HONEST[name], tmp_path)

    assert [] == [one for one in found if one.kind != "before its calls"]
