"""A gate counts benchmarks on real trees in real processes, and training steps as these report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from two_trees import FILE, TwoTrees, nodes

from perfkit.agent.channel import Message
from perfkit.agent.counters.model import Cause, Count, Counts, as_message
from perfkit.config import load_project
from perfkit.errors import UsageError
from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.counters import (
    check_valgrind,
    count_compared,
    count_instructions,
    count_target,
    count_targets,
    targets_to_count,
)
from perfkit.gating.rules import ComparedBenchmark, Rules
from perfkit.model import SIDES, Benchmark, Side
from perfkit.model.comparisons import exit_code
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.untimed import Callgrind

POLICY = CounterPolicy(gating=("python_calls",), tolerance=0.05)
STEADY = "def test_it(benchmark):\n    benchmark(sorted, [2, 1])\n"
RAISES = "def test_it(benchmark):\n    benchmark(int, 'none')\n"
RULES = Rules(margin=0.02, limit_s=30.0, globs=())
LOOP = "loop:main"


def _compared(name: str, *, gating: bool = True) -> ComparedBenchmark:
    return ComparedBenchmark(
        benchmark=Benchmark(name=name, version="v"), margin=0.02, gating=gating, limit_s=20.0
    )


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Return a launcher of benchmarks of which some cannot be counted, each on another side."""
    trees = TwoTrees(tmp_path_factory.mktemp("counts"))
    for side, lost, mended in (("base", STEADY, RAISES), ("head", RAISES, STEADY)):
        tests = {"steady": STEADY, "broken": RAISES, "lost": lost, "mended": mended}
        text = "".join(one.replace("test_it", f"test_{name}") for name, one in tests.items())
        trees.benchmarks(text, cast("Side", side))
    with pytest.MonkeyPatch.context() as patched, trees.launcher() as launcher:
        patched.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
        yield launcher


@pytest.mark.parametrize(("test", "expected"), [("test_lost", 4), ("test_mended", None)])
def test_a_benchmark_that_cannot_be_counted_on_head_alone_is_missed(
    launcher: Launcher, test: str, expected: int | None
) -> None:
    (name,) = nodes(test)

    counted = count_compared([_compared(name)], launcher, log=lambda _: None, decide=False)

    compared = [found for found in counted.compared(POLICY) if found.metric.name == "python_calls"]
    assert expected == (exit_code(compared) if compared else None)
    assert all("counting failed: " in (found.message or "") for found in compared)
    assert () == counted.findings


def test_where_counts_decide_a_benchmark_that_cannot_be_counted_is_a_finding(launcher: Launcher) -> None:
    steady, broken = nodes("test_steady", "test_broken")
    logged: list[str] = []

    counted = count_compared([_compared(steady), _compared(broken)], launcher, log=logged.append, decide=True)

    assert [steady, broken] == logged
    assert [steady] == [pair.benchmark.name for pair in counted.pairs]
    assert not any(pair.training for pair in counted.pairs)
    assert [(broken, "FAILED")] == [(one.benchmark.name, one.verdict) for one in counted.findings]
    assert FILE in counted.loaded


class _Child:
    """Stands for a process that counts a training step: it answers with its counts, or with a problem."""

    def __init__(self, side: Side, answer: Counts | str) -> None:
        content = as_message(answer) if isinstance(answer, Counts) else {"problem": answer}
        self._messages: list[Message] = [
            {"kind": "counted", **content},
            {"kind": "done", "foreign": {}, "loaded": [f"{side}.py"]},
        ]
        self.side, self.channel = side, self

    def receive(self, _: float) -> Message:
        return self._messages.pop(0)

    def resume(self) -> None:
        """Have it go on, which it does."""

    def end(self) -> None:
        """End it."""


class _Launcher:
    """Stands for a launcher whose processes answer what is given for each side, one after the other."""

    def __init__(self, top: Path, **answers: Sequence[Counts | str]) -> None:
        self._top = top
        self._answers: Mapping[str, list[Counts | str]] = {side: [*given] for side, given in answers.items()}
        self.places: set[tuple[Side, str]] = set()

    def root(self, side: Side) -> Path:
        return self._top / side

    def draw_layout(self) -> None:
        """Draw nothing."""

    def start_training(self, side: Side, place: str, *, steps: int) -> _Child:
        assert steps > 1, "the first step makes state that later ones have"
        self.places.add((side, place))
        return _Child(side, self._answers[side].pop(0))


def _step(*values: float, cause: str = "a", metric: str = "python_calls") -> Counts:
    causes = (Cause(what=cause, place="loop.py:1", amount=values[-1]),)
    count = Count(metric=metric, unit="1", values=values, causes=causes)
    return Counts(counts=(count,), not_counted={})


def _launcher(**answers: Sequence[Counts | str]) -> Launcher:
    return cast("Launcher", _Launcher(Path("/tree"), **answers))


@pytest.mark.parametrize(
    ("base", "head", "findings", "notes"),
    [
        (
            [_step(3), _step(3)],
            [_step(3), "it broke"],
            [("FAILED", "on head: it broke")],
            [],
        ),
        (
            ["it broke", _step(3)],
            [_step(3), _step(3)],
            [("NEW", "on base: it broke")],
            [],
        ),
        (
            ["no torch", "no torch"],
            ["no torch", "none here"],
            [],
            [f"no training step of {LOOP} was counted: no torch"],
        ),
    ],
)
def test_a_training_step_that_was_counted_on_one_side_alone_is_a_finding(
    base: Sequence[Counts | str],
    head: Sequence[Counts | str],
    findings: list[tuple[str, str]],
    notes: list[str],
) -> None:
    launcher = _launcher(base=base, head=head)

    counted = count_target(_compared(LOOP), dict.fromkeys(SIDES, LOOP), launcher)

    assert findings == [(one.verdict, one.message) for one in counted.findings]
    assert notes == [*counted.notes]
    assert () == counted.pairs


def _project(root: Path, exact: str = "") -> None:
    (root / "train.py").write_text("")
    (root / "pyproject.toml").write_text(
        f'[tool.perfkit.targets]\nloop = "{LOOP}"\nscript = "train.py"\n{exact}'
    )


@pytest.mark.parametrize(
    ("exact", "names"),
    [
        ("", ["loop", "script"]),
        ('[tool.perfkit.exact]\ntargets = ["script"]\n', ["script"]),
        ("[tool.perfkit.exact]\ntargets = []\n", []),
    ],
)
def test_all_targets_are_counted_unless_some_are_named(tmp_path: Path, exact: str, names: list[str]) -> None:
    _project(tmp_path, exact)

    assert names == [target.name for target in targets_to_count(load_project(tmp_path))]


def test_a_script_that_no_commit_has_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    _project(root)
    (tmp_path / "train.py").write_text("")
    text = (root / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(text.replace("train.py", "../train.py"))

    with pytest.raises(UsageError, match=r"train\.py lies outside of"):
        targets_to_count(load_project(root))


def test_each_target_is_counted_where_it_lies_on_a_side(tmp_path: Path) -> None:
    _project(tmp_path)
    project = load_project(tmp_path)
    launcher = _Launcher(Path("/tree"), **{side: [_step(3)] * 4 for side in SIDES})

    counted = count_targets(targets_to_count(project), project, cast("Launcher", launcher), RULES)

    assert ["loop", "script"] == [pair.benchmark.name for pair in counted.pairs]
    assert {
        *((side, LOOP) for side in SIDES),
        *((side, f"/tree/{side}/train.py") for side in SIDES),
    } == launcher.places


@pytest.mark.parametrize(
    ("installed", "lacking"),
    [
        ([], "there is no valgrind and no callgrind_control on PATH"),
        (["valgrind"], "there is no callgrind_control on PATH"),
        (["valgrind", "callgrind_control"], None),
    ],
)
def test_without_valgrind_instructions_are_refused(
    installed: Sequence[str], lacking: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in installed:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    if lacking is None:
        check_valgrind()
    else:
        with pytest.raises(UsageError, match=f"{lacking}: install Valgrind"):
            check_valgrind()


class _Callgrind:
    """Stands for Valgrind: it counts as many instructions as a name has letters."""

    def count(self, node: str, *, limit_s: float) -> Mapping[Side, Counts]:
        assert limit_s > 60, "under Valgrind a test may take minutes"
        return dict.fromkeys(SIDES, _step(len(node), len(node), metric="syncs"))


def test_instructions_are_counted_of_one_benchmark_after_the_other() -> None:
    logged: list[str] = []
    compared = [_compared("one"), _compared("three", gating=False)]

    counted = count_instructions(compared, cast("Callgrind", _Callgrind()), log=logged.append)

    assert ["one", "three"] == logged
    assert [("one", 3.0, True), ("three", 5.0, False)] == [
        (pair.benchmark.name, pair.counts["head"].counts[0].values[-1], pair.gating) for pair in counted.pairs
    ]
    assert not any(pair.training for pair in counted.pairs)
