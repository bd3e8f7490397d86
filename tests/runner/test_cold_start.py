"""The first call is split by what torch.compile reports, and nothing is made up where it reports nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
import torch

from perfkit.agent.clock import UNREPORTED, ColdStart, cold_start, cold_start_since, read_compile_times


def _reported(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], *, graphs: int = 0) -> None:
    counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
    counters["stats"]["unique_graphs"] = graphs
    names, values = list(seconds), [f"{one:.6f}" for one in seconds.values()]
    dynamo = SimpleNamespace(counters=counters, compile_times=lambda **_: (names, values))
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)


def test_a_first_call_that_compiles_has_that_as_a_part() -> None:
    given = torch.ones(3)
    double = torch.compile(lambda one: one * 2 + 1, backend="eager")

    def seconds_of_call() -> float:
        begun = time.perf_counter()
        double(given)
        return time.perf_counter() - begun

    first, second = cold_start(seconds_of_call), cold_start(seconds_of_call)

    assert first.compiling_s is not None
    assert 0 < first.compiling_s <= first.total_s
    assert (0.0, 0.0, 0.0) == (first.autotuning_s, second.compiling_s, second.autotuning_s)


def test_autotuning_is_apart_from_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    _reported(monkeypatch, {"_compile.compile_inner": 1.0})
    before = read_compile_times()
    _reported(
        monkeypatch,
        {
            "_compile.compile_inner": 9.0,
            "backward._backward_impl": 2.0,
            "mm_template_autotuning": 3.0,
            "mm_template_precompiling": 1.0,
            "CachingAutotuner.benchmark_all_configs": 0.5,
            "GraphLowering.codegen": 4.0,
        },
        graphs=1,
    )

    assert ColdStart(total_s=12.0, compiling_s=6.0, autotuning_s=4.5, graphs=1) == cold_start_since(
        before, 12.0
    )


@pytest.mark.parametrize("names", [{}, {"a_new_name": 3.0}])
def test_times_under_unknown_names_are_not_known(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, float]
) -> None:
    _reported(monkeypatch, {})
    before = read_compile_times()
    _reported(monkeypatch, names, graphs=1)

    found = cold_start_since(before, 5.0)

    assert ColdStart(total_s=5.0, graphs=1) == found
    assert (UNREPORTED,) == found.marks
    assert () == ColdStart(total_s=5.0).marks == ColdStart(total_s=5.0, compiling_s=1.0, graphs=1).marks


def test_without_torch_compile_nothing_of_it_is_imported() -> None:
    program = (
        "import sys; from perfkit.agent.clock import cold_start; print(cold_start(lambda: 1.0),"
        " 'torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "ColdStart(total_s=1.0, compiling_s=None, autotuning_s=None, graphs=0) False\n" == done.stdout
