"""Of code that torch.compile runs, graphs are counted and tensors are not, and it stays compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from counting_code import Own, causes, metric, values

from perfkit.agent.counters.calls import COMPILED_BEFORE, count_calls
from perfkit.agent.counters.model import OF_TENSORS as UNITS
from perfkit.agent.counters.tensors import COMPILED
from perfkit.agent.counters.torch_adapter import read_compilation

COMPILED_CODE = """
import torch
given = torch.ones(3)
@torch.compile(backend="eager")
def double(given):
    return given * 2 + torch.ones(3)
def run():
    return double(given)
"""
BREAKS = """
import torch
given = torch.ones(3)
@torch.compile(backend="eager")
def broken(given):
    more = given * 2
    torch._dynamo.graph_break()
    return more + 1
def run():
    return broken(given)
"""


def test_dynamo_has_what_is_listened_to() -> None:
    # Only here: the import takes seconds.
    from torch._dynamo.utils import counters

    assert callable(torch._dynamo.eval_frame._is_skip_guard_eval_unsafe_stance)
    assert "default" == torch._dynamo.eval_frame._stance.stance
    assert hasattr(counters, "get")
    wrapper = torch.compile(torch.sin, backend="eager").__code__
    assert wrapper.co_qualname.startswith("_TorchDynamoContext.__call__.<locals>.")


def test_graphs_are_counted_and_tensors_are_not(tmp_path: Path) -> None:
    own = Own(tmp_path, COMPILED_CODE)

    counts = own.counts()

    assert dict.fromkeys(UNITS, COMPILED).items() <= counts.not_counted.items()
    assert (1.0, 1.0) == values(counts, "graphs")
    assert (0.0, 0.0) == values(counts, "graph_breaks")
    assert metric(counts, "graphs").exact
    assert "python_calls" in {count.metric for count in counts.counts}


def test_a_graph_break_is_counted_with_its_reason(tmp_path: Path) -> None:
    own = Own(tmp_path, BREAKS)

    counts = own.counts()

    assert (2.0, 2.0) == values(counts, "graphs")
    assert (1.0, 1.0) == values(counts, "graph_breaks")
    ((reason, place),) = causes(counts, "graph_breaks")
    assert "graph_break" in reason
    assert "\n" not in reason
    assert own.place("graph_break()") == place


def test_breaks_are_counted_across_a_reset_of_dynamo(tmp_path: Path) -> None:
    own = Own(tmp_path, BREAKS)
    own.call()()
    before = read_compilation()
    torch._dynamo.reset()
    own.call()()

    assert 1 == read_compilation().since(before).breaks.total()
    assert 0 == read_compilation().since(read_compilation()).breaks.total()


def test_a_recompilation_shows_as_more_graphs(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        kinds = iter([torch.float32, torch.float64, torch.int64, torch.int32, torch.float16])
        @torch.compile(backend="eager")
        def double(given):
            return given * 2
        def run():
            return double(torch.ones(3, dtype=next(kinds)))
        """,
    )

    counts = own.counts()

    assert (2.0, 3.0) == values(counts, "graphs")
    assert not metric(counts, "graphs").exact


def test_what_was_compiled_before_is_distinguished(tmp_path: Path) -> None:
    own = Own(tmp_path, COMPILED_CODE)
    before = read_compilation()
    own.call()()

    late, early = own.counts(), own.counts(since=before)

    assert COMPILED_BEFORE == late.not_counted["graphs"] == late.not_counted["graph_breaks"]
    assert (1.0, 1.0) == values(early, "graphs")


def test_a_watch_in_a_loop_ends_at_compiled_code(tmp_path: Path) -> None:
    own = Own(tmp_path, COMPILED_CODE)

    counts = own.watched()

    assert () == counts.counts
    assert dict.fromkeys(UNITS, COMPILED) == counts.not_counted
    assert 0 == torch._C._len_torch_dispatch_stack()


def _traced(given: torch.Tensor) -> torch.Tensor:
    traced = torch.jit.trace(lambda given: given * 2, (given,))  # type: ignore[no-untyped-call]
    result: torch.Tensor = traced(given)
    return result


def _compiled(given: torch.Tensor) -> torch.Tensor:
    return torch.compile(torch.sin, backend="eager")(given)


def _with_branches(given: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch.cond(given.sum() > 0, torch.sin, torch.cos, (given,))
    return result


@pytest.mark.parametrize("code", [_traced, _compiled, _with_branches])
def test_a_compiler_at_work_is_not_disturbed(
    code: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    given, results = torch.ones(3), []

    def run() -> None:
        results.append(code(given))

    run()
    for most in (1, 5):
        assert "compiled" == count_calls(run, root=tmp_path, most_calls=most).not_counted["operators"]
    assert all(torch.equal(results[0], result) for result in results)


def test_code_that_is_set_to_run_eagerly_is_counted(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        f"""{COMPILED_CODE}
parameter = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([parameter], lr=0.1)
def eager():
    optimizer.zero_grad()
    torch.compiler.disable(lambda: parameter.sum().backward())()
    optimizer.step()
    with torch.compiler.set_stance("force_eager"):
        return run()
""",
    )

    counts = own.counts("eager")

    assert ("aten::mul", own.place("given * 2")) in causes(counts, "operators")
    assert metric(counts, "operators").exact
    assert "graphs" not in counts.not_counted
