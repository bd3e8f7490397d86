"""Code that does something of its own with torch's insides runs under counting as it does without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from counting_code import Own, causes, metric, values

from perfkit.agent.counters.tensors import TensorWatch
from perfkit.agent.counters.torch_adapter import innermost_saving_hook

FLOAT = 4
CODES = {
    "double backward": """
        def run():
            given = torch.ones(3, requires_grad=True)
            gradient, = torch.autograd.grad((given.exp() * given).sum(), given, create_graph=True)
            gradient.square().sum().backward()
            return given.grad
    """,
    "a graph used twice": """
        def run():
            given = torch.ones(3, requires_grad=True)
            result = (given.exp() * given).sum()
            result.backward(retain_graph=True)
            result.backward()
            return given.grad
    """,
    "checkpoint": """
        from torch.utils.checkpoint import checkpoint
        def run():
            given = torch.ones(3, requires_grad=True)
            checkpoint(lambda one: (one.exp() * one).sin(), given, use_reentrant=False).sum().backward()
            return given.grad
    """,
    "reentrant checkpoint": """
        from torch.utils.checkpoint import checkpoint
        def run():
            given = torch.ones(3, requires_grad=True)
            checkpoint(lambda one: (one.exp() * one).sin(), given, use_reentrant=True).sum().backward()
            return given.grad
    """,
    "saved elsewhere": """
        def run():
            given = torch.ones(3, requires_grad=True)
            with torch.autograd.graph.save_on_cpu():
                result = given.exp().square().sum()
            result.backward()
            return given.grad
    """,
    "saved and changed": """
        def run():
            with torch.autograd.graph.allow_mutation_on_saved_tensors():
                given = torch.ones(3, requires_grad=True)
                copied = given.clone()
                result = copied.square().sum()
                copied.sin_()
                result.backward()
            return given.grad
    """,
    "function transforms": """
        def run():
            given = torch.arange(6.0).reshape(2, 3)
            slope = torch.func.grad(lambda one: one.square().sum())
            return torch.vmap(slope)(given) + torch.func.jacrev(torch.sin)(given).sum((0, 1))
    """,
    "forward derivatives": """
        import torch.autograd.forward_ad as forward
        def run():
            with forward.dual_level():
                dual = forward.make_dual(torch.ones(3), torch.ones(3))
                return forward.unpack_dual(dual.exp()).tangent
    """,
    "a subclass of tensors": """
        from torch.testing._internal.two_tensor import TwoTensor
        def run():
            pair = TwoTensor(torch.ones(3), torch.zeros(3))
            return (pair + pair).sin().a
    """,
    "nested tensors": """
        def run():
            rows = [torch.ones(2, 3), torch.ones(4, 3)]
            nested = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
            (nested * 2).sin().values().sum().backward()
            return nested.grad.values()
    """,
    "fake tensors": """
        from torch._subclasses.fake_tensor import FakeTensorMode
        def run():
            with FakeTensorMode() as mode:
                shape = tuple((mode.from_tensor(torch.ones(3)) + 1).shape)
            return torch.tensor(shape)
    """,
    "sparse tensors": """
        def run():
            given = torch.eye(4).to_sparse().requires_grad_()
            torch.sparse.mm(given, torch.ones(4, 2)).sum().backward()
            return given.grad.to_dense()
    """,
    "scripted code": """
        @torch.jit.script
        def twice(given: torch.Tensor):
            return given * 2 + given.sum().item()
        def run():
            return twice(torch.ones(3))
    """,
    "mixed precision": """
        layer = torch.nn.Linear(3, 3)
        def run():
            layer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                result = layer(torch.ones(2, 3))
            result.float().sum().backward()
            return layer.weight.grad.clone()
    """,
    "attention's fast path": """
        layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        def run():
            with torch.no_grad():
                return layer(torch.ones(2, 3, 8))
    """,
    "a default device": """
        def run():
            with torch.device("cpu"):
                return torch.ones(3) + torch.tensor([1, 2, 3])
    """,
    "operators of its own": """
        @torch.library.custom_op("counting_test::twice", mutates_args=())
        def twice(given: torch.Tensor) -> torch.Tensor:
            return given * 2
        def run():
            return twice(torch.ones(3))
    """,
    "a FLOP counter of its own": """
        from torch.utils.flop_counter import FlopCounterMode
        def run():
            with FlopCounterMode(display=False) as counter:
                torch.ones(2, 3) @ torch.ones(3, 4)
            return torch.tensor(counter.get_total_flops())
    """,
    "a function mode of its own": """
        class Names(torch.overrides.TorchFunctionMode):
            def __init__(self):
                self.names = []
            def __torch_function__(self, function, types, args=(), kwargs=None):
                self.names.append(function.__name__)
                return function(*args, **(kwargs or {}))
        def run():
            with Names() as mode:
                given = torch.ones(3, requires_grad=True)
                (given.exp() * given).sum().backward()
                given.sum().item()
            return torch.tensor([len(name) for name in mode.names])
    """,
    "no modes at all": """
        from torch.utils._python_dispatch import _disable_current_modes
        def run():
            with _disable_current_modes():
                return torch.ones(3) + 1
    """,
}


@pytest.mark.parametrize("name", CODES)
def test_the_result_is_the_same(tmp_path: Path, name: str) -> None:
    own = Own(tmp_path, "import torch\n" + _dedented(CODES[name]))
    plain = own.call()()
    counted: list[Any] = []

    with TensorWatch(tmp_path) as watch:
        for _ in range(2):
            counted.append(own.call()())
            watch.end_iteration()

    assert all(torch.equal(plain, result) for result in counted)
    assert [] == [count.metric for count in watch.counts().counts if not count.exact]
    assert 0 == torch._C._len_torch_dispatch_stack()
    assert innermost_saving_hook() is None


def _dedented(code: str) -> str:
    lines = code.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)


def test_a_dispatch_mode_of_its_own_sees_its_operators(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        class Names(TorchDispatchMode):
            def __init__(self):
                super().__init__()
                self.names = []
            def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
                self.names.append(str(operator))
                return operator(*args, **(kwargs or {}))
        seen = []
        def run():
            with Names() as mode:
                total = torch.ones(3) + 1
                total.sum().item()
            seen.append(mode.names)
        """,
    )

    counts = own.watched()

    names = ["aten.ones.default", "aten.add.Tensor", "aten.sum.default", "aten._local_scalar_dense.default"]
    assert [names, names] == own.module.seen
    assert (4.0, 4.0) == values(counts, "operators")
    assert {("Tensor.item", own.place("item()")): 1} == causes(counts, "syncs")


def test_what_a_subclass_is_made_of_is_counted(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        from torch.testing._internal.two_tensor import TwoTensor
        pair = TwoTensor(torch.ones(100), torch.zeros(100))
        def run():
            return pair + pair
        """,
    )

    counts = own.watched()

    assert 2 == causes(counts, "operators")["aten::add", own.place("pair + pair")]
    assert (2.0 * 100 * FLOAT,) * 2 == values(counts, "allocated")


def test_a_custom_function_gets_the_objects_that_it_saved(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, given, weight):
                result = given * weight
                ctx.save_for_backward(given, None, weight, result)
                ctx.result = id(result)
                return result
            @staticmethod
            def backward(ctx, gradient):
                given, nothing, kept, result = ctx.saved_tensors
                seen.append((kept is weight, kept.tag, nothing, id(result) == ctx.result))
                return gradient * kept, gradient * given
        weight = torch.nn.Parameter(torch.ones(3))
        weight.tag = "mine"
        seen = []
        def run():
            kept = Scale.apply(torch.ones(3), weight)
            kept.sum().backward()
        """,
    )
    own.call()()
    plain = own.module.seen.pop()

    own.watched()

    assert [plain, plain] == own.module.seen
    assert (True, "mine", None, False) == plain


def test_a_forked_process_is_not_counted_nor_disturbed(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import gc
        import os
        import sys
        import threading
        import torch
        start = threading.Thread.start
        def look():
            given = torch.ones(3, requires_grad=True)
            (given.exp() * given).sum().backward()
            assert 3 == torch.ones(3).sum().item()
            assert "item" not in vars(torch.Tensor)
            assert gc.isenabled()
            assert sys.getprofile() is None
            assert start is threading.Thread.start
        def run():
            torch.ones(3)
            process = os.fork()
            if process == 0:
                status = 1
                try:
                    look()
                    status = 0
                finally:
                    os._exit(status)
            _, status = os.waitpid(process, 0)
            assert 0 == status
        """,
    )

    counts = own.counts()

    assert {("aten::ones", own.place("    torch.ones(3)")): 1} == causes(counts, "operators")
    assert metric(counts, "python_calls").exact


def test_a_graph_from_a_watched_step_can_be_used_after_it(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        given = torch.ones(3, requires_grad=True)
        results = []
        def run():
            results.append((given.exp() * given).sum())
        """,
    )

    own.watched()
    own.module.results[0].backward()

    expected = 2 * torch.ones(3).exp()
    assert torch.allclose(expected, own.module.given.grad)


def test_hooks_keep_nothing_alive(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        given = torch.ones(1000, requires_grad=True)
        def run():
            for _ in range(5):
                given.exp().sigmoid()
        """,
    )

    assert (2.0 * 1000 * FLOAT,) * 2 == values(own.watched(), "peak")


def test_counting_does_not_load_the_compiler(tmp_path: Path) -> None:
    script = f"""
import sys, torch
from pathlib import Path
from perfkit.agent.counters.calls import count_calls
before = "torch._dynamo" in sys.modules
counts = count_calls(lambda: torch.ones(3).exp().sum().item(), root=Path({str(tmp_path)!r}))
assert (4.0, 4.0) == counts.counts[0].values, counts
assert before or "torch._dynamo" not in sys.modules
"""

    subprocess.run([sys.executable, "-c", script], check=True)
