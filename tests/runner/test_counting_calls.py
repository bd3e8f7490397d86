"""Counting makes a known number of calls in a known order, and leaves nothing behind."""

from __future__ import annotations

import cProfile
import gc
import json
import math
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from counting_code import Own, causes, metric, values
from torch.optim import optimizer as optimizers

from perfkit.agent.counters.calls import OWN_THREADS, TOO_FEW_CALLS, count_kernels
from perfkit.agent.counters.model import OF_TENSORS as UNITS
from perfkit.agent.counters.torch_adapter import innermost_saving_hook

COUNTER = """
import torch
calls = []
def run():
    calls.append(torch.is_grad_enabled())
    return torch.ones(3) + 1
"""
STEP = """
import json, sys, torch
from pathlib import Path
from perfkit.agent.counters.calls import count_calls
from perfkit.agent.counters.model import as_message
torch.manual_seed(0)
layers = torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.ReLU(), torch.nn.Linear(16, 2)
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters())
batches, labels = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
def run():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(batches), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
print(json.dumps(as_message(count_calls(run, root=Path(sys.argv[0]).parent))))
"""


@pytest.mark.parametrize(
    ("most", "calls", "tensors", "python"),
    [
        (0, 0, 0, 0),
        (1, 1, 1, 0),
        (2, 2, 1, 0),
        (3, 3, 2, 0),
        (4, 4, 2, 1),
        (5, 5, 2, 2),
        (6, 5, 2, 2),
        (math.inf, 5, 2, 2),
    ],
)
def test_calls_go_to_tensors_first(
    tmp_path: Path, most: float, calls: int, tensors: int, python: int
) -> None:
    own = Own(tmp_path, COUNTER)

    counts = own.counts(most_calls=most)

    assert [True] * calls == own.module.calls
    if tensors:
        assert (2.0,) * tensors == values(counts, "operators")
        assert (tensors == 2) is metric(counts, "operators").exact
    else:
        assert dict.fromkeys(UNITS, TOO_FEW_CALLS).items() <= counts.not_counted.items()
    if python:
        assert (1.0,) * python == values(counts, "python_calls")
    else:
        assert TOO_FEW_CALLS == counts.not_counted["python_calls"]
    assert "python_peak" not in counts.not_counted


def test_a_guest_makes_no_first_call_and_collects_no_old_garbage(tmp_path: Path) -> None:
    own = Own(tmp_path, COUNTER)
    freed: list[str] = []

    class Old:
        def __init__(self) -> None:
            self.own = self

    old = Old()
    weakref.finalize(old, freed.append, "old")
    gc.collect()
    del old

    counts = own.counts(most_calls=4, as_guest=True)

    assert [True] * 4 == own.module.calls
    assert (2.0, 2.0) == values(counts, "operators")
    assert (1.0, 1.0) == values(counts, "python_calls")
    assert not freed
    gc.collect()
    assert ["old"] == freed


def test_what_does_not_repeat_is_not_exact(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        calls = []
        def run():
            calls.append(1)
            for _ in calls:
                torch.ones(len(calls))
        """,
    )

    counts = own.counts()

    assert (2.0, 3.0) == values(counts, "operators")
    assert not metric(counts, "operators").exact
    assert metric(counts, "syncs").exact


@pytest.mark.slow
def test_two_processes_count_the_same_of_a_training_step(tmp_path: Path) -> None:
    script = tmp_path / "step.py"
    script.write_text(STEP)

    output = [
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]

    assert output[0] == output[1]
    counts = {count["metric"]: count["values"] for count in json.loads(output[0])["counts"]}
    assert {*UNITS, "python_calls"} == set(counts)
    assert [1.0, 1.0] == counts["syncs"]
    assert [] == [name for name, (first, second) in counts.items() if first != second]


def test_the_calls_get_the_random_numbers_they_would_get(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import random
        import torch
        results = []
        def run():
            given = torch.randn(4, 3, requires_grad=True)
            dropped = torch.nn.functional.dropout(given.exp(), training=True)
            dropped.square().sum().backward()
            results.append((given.grad.tolist(), random.random()))
        """,
    )

    def results() -> list[object]:
        own.module.results.clear()
        torch.manual_seed(7)
        own.module.random.seed(7)
        return own.module.results  # type: ignore[no-any-return]

    plain = results()
    for _ in range(5):
        own.call()()
    plain = list(plain)
    counted = results()
    own.counts()

    assert plain == counted
    assert 5 == len(plain)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_what_a_call_raises_is_raised_and_all_is_put_back(tmp_path: Path, at: int) -> None:
    own = Own(
        tmp_path,
        f"""
        import torch
        calls = []
        class Mine(Exception): pass
        def run():
            calls.append(1)
            torch.ones(3, requires_grad=True).exp()
            if len(calls) == {at}:
                raise Mine
        """,
    )
    before = dict(vars(torch.Tensor))
    start = threading.Thread.start

    with pytest.raises(own.module.Mine):
        own.counts()

    assert at == len(own.module.calls)
    assert 0 == torch._C._len_torch_dispatch_stack()
    assert innermost_saving_hook() is None
    assert before == dict(vars(torch.Tensor))
    assert start is threading.Thread.start
    assert gc.isenabled()
    assert sys.getprofile() is None
    with cProfile.Profile() as profile:
        sorted([1])
    assert profile.getstats()


@pytest.mark.parametrize("first_only", [False, True])
def test_work_of_other_threads_is_not_passed_over(tmp_path: Path, first_only: bool) -> None:  # noqa: FBT001
    own = Own(
        tmp_path,
        f"""
        import concurrent.futures
        import torch
        pool = concurrent.futures.ThreadPoolExecutor(1)
        def run():
            maker = pool if {first_only} else concurrent.futures.ThreadPoolExecutor(1)
            return maker.submit(torch.ones, 3).result()
        """,
    )

    counts = own.counts()

    assert dict.fromkeys(UNITS, OWN_THREADS).items() <= counts.not_counted.items()
    assert {"python_calls"} == {count.metric for count in counts.counts}


def test_a_loaders_workers_are_no_threads_of_its_own(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import gc
        import torch
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                assert gc.isenabled()
                return torch.full((2,), float(index)) * 2
        loader = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=1)
        def run():
            return sum(batch.sum() for batch in loader)
        """,
    )

    counts = own.counts()

    assert 2 == causes(counts, "operators")["aten::sum", own.place("sum(batch")]
    assert "aten::full" not in {what for what, _ in causes(counts, "operators")}
    assert metric(counts, "operators").exact


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_there_are_no_kernels() -> None:
    assert count_kernels(lambda: pytest.fail("was called")) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_an_operator_launches_a_kernel() -> None:
    given = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()

    def call() -> object:
        return (given + 1).cpu()

    count = count_kernels(call)

    assert count is not None
    assert (1.0, 1.0) == count.values


HEAD = """
import torch
from torch.autograd import grad
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
class Own(torch.optim.Optimizer):
    def __init__(self):
        super().__init__(model.parameters(), {})
    def step(self):
        pass
own = Own()
def loss():
    return model(torch.ones(2)).sum()
"""


@pytest.mark.parametrize(
    ("body", "training"),
    [
        ("loss().backward(); optimizer.step()", True),
        ("grad(loss(), model.weight); own.step()", True),
        ("torch.autograd.backward(loss()); optimizer.step(); optimizer.zero_grad()", True),
        ("loss().backward()", False),
        ("optimizer.step()", False),
        ("loss()", False),
    ],
)
def test_a_training_step_is_known_by_both(tmp_path: Path, body: str, *, training: bool) -> None:
    engine = vars(torch.autograd)["_engine_run_backward"]
    hooks = dict(vars(optimizers)["_global_optimizer_post_hooks"])

    counts = Own(tmp_path, f"{HEAD}\ndef run():\n    {body}\n").counts()

    assert training == counts.training
    assert engine is vars(torch.autograd)["_engine_run_backward"]
    assert hooks == vars(optimizers)["_global_optimizer_post_hooks"]
