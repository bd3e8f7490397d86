"""What differs where it hides affects a benchmark, and what no benchmark can notice does not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from changes import BENCH, HARMLESS, HIDDEN, MORE_HIDDEN, Change
from two_trees import on_other_trees

from perfkit.gating.affected import Decision, decide, first_changed_line, sort_changed
from perfkit.model import SIDES, Side
from perfkit.repo.files import differing_files
from perfkit.runner.lockstep import tracing
from perfkit.runner.lockstep.launcher import Launcher, MeasuredTrees
from perfkit.runner.lockstep.tracing import Ran, SideTrace, trace_sides


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Return a launcher whose fork server has imported pytest once for all changes."""
    folder = tmp_path_factory.mktemp("launches")
    roots: dict[Side, Path] = {side: folder / side for side in SIDES}
    for root in roots.values():
        root.mkdir()
    trees = MeasuredTrees(roots=roots, origins=(), paths=(BENCH,))
    with Launcher(trees, folder=folder, environment=os.environ, seed=1, preload=[]) as launcher:
        yield launcher


def _decide(change: Change, folder: Path, launcher: Launcher, *, variants: int = 0) -> Decision:
    """Write both sides of a change, trace them, and decide which benchmarks it can affect."""
    roots: dict[Side, Path] = {side: folder / side for side in SIDES}
    for side, root in roots.items():
        root.mkdir()
        (root / "pytest.ini").write_text("[pytest]\n")
        change.write(side, root)
    launches = folder / "launches"
    launches.mkdir()
    text = (roots["head"] / BENCH).read_text()
    nodes = [f"{BENCH}::{name}" for name in ("test_a", "test_it") if f"def {name}" in text]
    nodes = [f"{BENCH}::test_it[10]"] if "parametrize" in text else nodes
    if variants:
        for root in roots.values():
            marked = f"import pytest\n{text}".replace(
                "def test_it(", f"@pytest.mark.parametrize('_', range({variants}))\ndef test_it(_, "
            )
            (root / BENCH).write_text(marked)
        nodes = [f"{BENCH}::test_it[{number}]" for number in range(variants)]
    with on_other_trees(launcher, roots, launches):
        traces = trace_sides(launcher, nodes, roots, seconds=20, limit_s=20)

    def read(side: Side, file: str) -> bytes | None:
        path = roots[side] / file
        return path.read_bytes() if path.is_file() else None

    return decide(nodes, traces, sort_changed(differing_files(*roots.values()), read))


_EVERY = {**HIDDEN, **MORE_HIDDEN}


def _tried(names: Iterable[str], one_of: int) -> list[object]:
    """Return parameters of which some are tried at every push: all of them take minutes."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (number % one_of > 0))
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize("name", _tried(_EVERY, 8))
def test_a_hidden_change_affects_the_benchmark(name: str, tmp_path: Path, launcher: Launcher) -> None:
    """Nothing that may run differently is called the same code."""
    decision = _decide(_EVERY[name], tmp_path, launcher)

    assert {} == dict(decision.same)


@pytest.mark.parametrize("name", _tried(HARMLESS, 2))
def test_a_harmless_change_affects_nothing(name: str, tmp_path: Path, launcher: Launcher) -> None:
    """Comments, documents and code that nothing runs need no timing."""
    decision = _decide(HARMLESS[name], tmp_path, launcher)

    assert {} == dict(decision.affected)


@pytest.mark.parametrize("traced", [("test_a", "test_it"), ("test_a",)])
def test_what_was_not_traced_is_not_known(traced: tuple[str, ...]) -> None:
    """A function that no complete trace shows may run in the benchmark whose trace failed."""
    texts = {"base": b"def unused():\n    return 1\n", "head": b"def unused():\n    return 2\n"}
    changed = sort_changed(["app.py"], lambda side, _: texts[side])
    traces: dict[Side, SideTrace] = dict.fromkeys(SIDES, SideTrace(ran=dict.fromkeys(traced, Ran())))

    (function,) = decide(["test_a", "test_it"], traces, changed).functions

    assert ("unused", "never", "test_it" in traced) == (function.name, function.runs, function.known)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("    b = a\n    return b\n", "    b = a\n    return sum(\n        [b]\n    )\n", 5),
        ("    if a:\n        return 1\n", "    if a:\n        return 2\n", 5),
        ('    """Old."""\n    return a\n', '    """New."""\n    # Fast.\n    return a + 0\n', 6),
        ("    b = a\n    return a\n", "    return a\n", 4),
        ("    return a\n", "    return a\n", 3),
    ],
)
def test_the_first_changed_line_of_a_function_is_a_statement_that_differs(
    before: str, after: str, line: int
) -> None:
    texts = {"base": f"import torch\n\ndef f(a):\n{before}", "head": f"import torch\n\ndef f(a):\n{after}"}
    changed = sort_changed(["app.py"], lambda side, _: texts[side].encode())

    assert line == first_changed_line(changed, "app.py", 3)


@pytest.mark.parametrize("name", ["function", "method gone", "comment"])
def test_many_benchmarks_are_decided_alike(
    name: str, tmp_path: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What head lacks is not taken to be unused where base was not traced."""
    # More are traced on head alone.
    monkeypatch.setattr(tracing, "_MANY", 4)
    decision = _decide({**_EVERY, **HARMLESS}[name], tmp_path, launcher, variants=5)

    assert (5 if name in HARMLESS else 0) == len(decision.same)
