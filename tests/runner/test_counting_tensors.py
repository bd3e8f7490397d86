"""Operators, bytes and FLOPs of known functions are counted, with the lines that they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting_code import Own, causes, metric, values

FLOAT = 4


def test_each_operator_is_counted_with_its_line(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        def run():
            ones = torch.ones(10)
            more = ones + 1
            return more.sum()
        """,
    )

    counts = own.watched()

    assert (3.0, 3.0) == values(counts, "operators")
    assert metric(counts, "operators").exact
    assert {
        ("aten::ones", own.place("torch.ones")): 1,
        ("aten::add", own.place("ones + 1")): 1,
        ("aten::sum", own.place("sum")): 1,
    } == causes(counts, "operators")


def test_a_backward_pass_comes_from_the_line_that_calls_it(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        layer = torch.nn.Linear(3, 5, bias=False)
        given = torch.ones(2, 3)
        def run():
            layer.zero_grad()
            result = layer(given).sum()
            result.backward()
        """,
    )

    flops = causes(own.watched(), "flops")

    product = 2 * 2 * 3 * 5
    assert {
        ("aten::mm", own.place("layer(given)")): product,
        ("aten::mm", own.place("backward")): product,
    } == flops


def test_operators_of_a_custom_backward_have_its_lines(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, given):
                ctx.save_for_backward(given)
                return given * 2
            @staticmethod
            def backward(ctx, gradient):
                given, = ctx.saved_tensors
                return gradient * 2 + 0 * given
        given = torch.ones(4, requires_grad=True).exp().detach().requires_grad_()
        def run():
            Double.apply(given * 1).sum().backward()
        """,
    )

    counts = own.watched()

    assert 2 == causes(counts, "operators")["aten::mul", own.place("0 * given")]
    # Where it is saved is a line of torch's; the own line is the caller's.
    assert 4 * FLOAT == causes(counts, "saved")["Double", own.place("apply")]


def test_installed_code_is_not_own_code(tmp_path: Path) -> None:
    installed = tmp_path / "venv" / "site-packages"
    installed.mkdir(parents=True)
    own = Own(installed, "import torch\ndef run(): torch.ones(3)")
    own.root = tmp_path

    assert {("aten::ones", ""): 1} == causes(own.watched(), "operators")


def test_bytes_are_those_of_new_storages_and_the_peak_those_alive_at_once(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        def run():
            first = torch.zeros(1000)
            second = first + 1
            del first
            third = second.view(10, 100) + 1
            third += 1
            del second
            return third.t().contiguous()
        """,
    )

    counts = own.watched()

    size = 1000 * FLOAT
    assert (4.0 * size,) * 2 == values(counts, "allocated")
    assert (2.0 * size,) * 2 == values(counts, "peak")
    assert {("aten::zeros", own.place("zeros")): size, ("aten::add", own.place("first + 1")): size} == causes(
        counts, "peak"
    )


def test_a_constructor_allocates_and_borrowed_memory_does_not(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import numpy
        import torch
        array = numpy.ones(100)
        def run():
            return torch.tensor([1, 2, 3]), torch.from_numpy(array)
        """,
    )

    assert (3.0 * 8,) * 2 == values(own.watched(), "allocated")


def test_what_is_alive_from_before_belongs_to_no_iteration(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        kept = []
        def run():
            kept.append(torch.ones(100))
            if len(kept) == 3:
                kept.clear()
            return torch.ones(50)
        """,
    )

    counts = own.watched(iterations=3)

    assert (150.0 * FLOAT,) * 3 == values(counts, "allocated")
    assert (150.0 * FLOAT, 150.0 * FLOAT, 100.0 * FLOAT) == values(counts, "peak")


def test_garbage_in_cycles_is_freed_at_no_moment_of_its_own(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import gc
        import torch
        class Cycle:
            def __init__(self):
                self.me, self.tensor = self, torch.ones(100)
        seen = []
        def run():
            for _ in range(20):
                Cycle()
            seen.append(gc.isenabled())
        """,
    )

    assert (20.0 * 100 * FLOAT,) * 2 == values(own.watched(), "peak")
    assert [False, False] == own.module.seen


def test_saved_bytes_are_distinct_storages_without_parameters(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        given = torch.ones(2, 3)
        layer = torch.nn.Linear(3, 5)
        def run():
            hidden = layer(given)
            curved = hidden.exp()
            return curved * curved
        """,
    )

    counts = own.watched()

    assert {
        ("aten::addmm", own.place("layer(given)")): 2 * 3 * FLOAT,
        ("aten::exp", own.place("exp")): 2 * 5 * FLOAT,
    } == causes(counts, "saved")


@pytest.mark.parametrize("context", ["inference_mode", "no_grad"])
def test_without_gradients_the_same_operators_run(tmp_path: Path, context: str) -> None:
    own = Own(
        tmp_path,
        f"""
        import torch
        weight, bias, given = torch.ones(4, 3), torch.ones(4), torch.ones(2, 3)
        def run():
            with torch.{context}():
                return torch.nn.functional.linear(given, weight, bias)
        """,
    )

    counts = own.watched()

    assert {"aten::t", "aten::addmm"} == {name for name, _ in causes(counts, "operators")}
    assert (2.0 * 2 * 3 * 4,) * 2 == values(counts, "flops")
    assert (2.0 * 4 * FLOAT,) * 2 == values(counts, "allocated")


def test_attention_on_the_cpu_counts_as_elsewhere(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        query = torch.ones(1, 2, 16, 8)
        def run():
            return torch.nn.functional.scaled_dot_product_attention(query, query, query)
        """,
    )

    assert (2.0 * 2 * 2 * 16 * 16 * 8,) * 2 == values(own.watched(), "flops")


def test_no_device_is_reported_where_there_is_none(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        def run():
            return torch.ones(100, device="meta") + 1, torch.ones(100)
        """,
    )

    counts = own.watched()

    assert ["operators", "syncs", "allowed_syncs", "allocated", "peak", "saved", "flops"] == [
        count.metric for count in counts.counts
    ]
    assert (100.0 * FLOAT,) * 2 == values(counts, "allocated")
