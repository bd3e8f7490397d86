"""What makes the host wait for a device, or would, is counted with the line that does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counting_code import Own, causes, values

HEAD = """
import operator
import numpy
import torch
number = torch.ones(())
index = torch.ones((), dtype=torch.int64)
numbers = torch.arange(6.0)
mask = numbers > 2
times = torch.ones(6, dtype=torch.int64)
device = torch.device("cpu")
parameter = torch.ones(3, requires_grad=True)
parameter.grad = torch.ones(3)
optimizer = torch.optim.Adam([parameter])
"""


WAITS = [
    ("number.item()", "Tensor.item"),
    ("numbers.tolist()", "Tensor.tolist"),
    ("numbers.numpy()", "Tensor.numpy"),
    ("numpy.asarray(numbers)", "numpy.asarray(Tensor)"),
    ("numbers.cpu()", "Tensor.cpu"),
    ("numbers.to('cpu')", "Tensor.to"),
    ("numbers.to(device)", "Tensor.to"),
    ("numbers.to(device=device)", "Tensor.to"),
    ("numbers.to(index)", "Tensor.to"),
    ("torch.nn.Linear(1, 1, bias=False).to(device)", "Tensor.to"),
    ("bool(number)", "bool(Tensor)"),
    ("1 if number else 2", "bool(Tensor)"),
    ("numbers[3] in [1.0]", "bool(Tensor)"),
    ("float(number)", "float(Tensor)"),
    ("int(number)", "int(Tensor)"),
    ("[1, 2, 3][index]", "operator.index(Tensor)"),
    ("numbers[:index]", "operator.index(Tensor)"),
    ("numbers[index]", "Tensor.item"),
    ("torch.add(numbers, numbers, alpha=number)", "Tensor.item"),
    ("f'{number:.2f}'", "Tensor.item"),
    ("repr(numbers)", "repr(Tensor)"),
    ("numbers.nonzero()", "torch.nonzero"),
    ("torch.where(mask)", "torch.nonzero"),
    ("numbers.masked_select(mask)", "torch.masked_select"),
    ("numbers.unique()", "torch.unique"),
    ("numbers.unique(dim=0)", "torch.unique"),
    ("numbers.unique_consecutive()", "torch.unique_consecutive"),
    ("torch.equal(numbers, numbers)", "torch.equal"),
    ("torch.allclose(numbers, numbers)", "torch.allclose"),
    ("numbers.repeat_interleave(times)", "torch.repeat_interleave"),
    ("numbers[mask]", "boolean mask"),
    ("operator.setitem(numbers, mask, torch.ones(3))", "boolean mask"),
    ("torch.bincount(times)", "torch.bincount"),
]
NO_WAITS = [
    "numbers.to(torch.float64)",
    "numbers.to(dtype=torch.float64)",
    "numbers.to('cpu', non_blocking=True)",
    "numbers.to(device, torch.float64, True)",
    "numbers[times]",
    "numbers.repeat_interleave(times, output_size=6)",
    "numbers.repeat_interleave(2)",
    "operator.setitem(numbers, mask, 0.0)",
    "numbers.masked_fill(mask, 0.0)",
    "torch.where(mask, numbers, 0)",
    "numbers.copy_(torch.ones(6))",
    "numbers.sum() + len(numbers) + numbers.numel()",
    "list(numbers)",
    "number.detach().clone()",
    # What torch keeps on the host itself.
    "list(torch.utils.data.DataLoader(numbers, shuffle=True))",
    "optimizer.step()",
    "torch.nn.utils.clip_grad_norm_([parameter], 1.0)",
]


def _own(folder: Path, codes: Sequence[str]) -> Own:
    """Return a module whose function runs each of these lines once."""
    lines = [f"    {code}  # line {number}" for number, code in enumerate(codes, 10)]
    return Own(folder, "\n".join([HEAD, "def run():", *lines]))


def test_a_wait_is_counted_once_with_its_line(tmp_path: Path) -> None:
    own = _own(tmp_path, [code for code, _ in WAITS])

    counts = own.watched()

    expected = {(what, own.place(f"# line {number}")): 1 for number, (_, what) in enumerate(WAITS, 10)}
    assert expected == causes(counts, "syncs")
    assert (len(WAITS), len(WAITS)) == values(counts, "syncs")
    assert (0.0, 0.0) == values(counts, "allowed_syncs")


def test_what_does_not_wait_is_not_counted(tmp_path: Path) -> None:
    assert {} == causes(_own(tmp_path, NO_WAITS).watched(), "syncs")


def test_a_marked_line_may_wait(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        number = torch.ones(())
        def run():
            if number:  # perfkit: sync allowed
                number.item()
            number.nonzero()  # perfkit: sync allowed
        """,
    )

    counts = own.watched()

    assert {("Tensor.item", own.place("item()")): 1} == causes(counts, "syncs")
    assert {
        ("bool(Tensor)", own.place("if number")): 1,
        ("torch.nonzero", own.place("nonzero")): 1,
    } == causes(counts, "allowed_syncs")


def test_a_wait_in_a_backward_pass_is_seen(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import torch
        leaf = torch.ones(3, requires_grad=True)
        seen = []
        def look(gradient):
            seen.append(gradient.sum().item())
            gradient.cpu()
        def run():
            result = leaf * 2
            result.register_hook(look)
            result.sum().backward()
        """,
    )

    assert {("Tensor.item", own.place("item")): 1, ("Tensor.cpu", own.place("cpu")): 1} == causes(
        own.watched(), "syncs"
    )


def test_the_tensor_class_is_left_as_it_was(tmp_path: Path) -> None:
    import torch

    before = dict(vars(torch.Tensor))
    own = Own(tmp_path, f"{HEAD}\ndef run():\n    number.item()")

    own.watched()

    assert before == dict(vars(torch.Tensor))
    assert "item" not in vars(torch.Tensor)
