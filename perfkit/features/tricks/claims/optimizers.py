"""Claims on what RMSprop computes, and on the digits in which its implementations differ."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import RMSprop
from torch.overrides import TorchFunctionMode

from perfkit.features.tricks.claims.claim import Claim, Finding
from perfkit.features.tricks.pieces import parameters, perceptron, seeded, train_step

_STEPS = 20
# Operators that torch computes through BLAS.
_MATRIX_PRODUCTS = {"addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "ger", "matmul", "mm", "mv"}


def _formula() -> Finding:
    weight = nn.Parameter(seeded(lambda: torch.randn(100)))
    optimizer = RMSprop([weight], lr=0.01, alpha=0.9, eps=1e-8)
    expected, average = weight.detach().clone(), torch.zeros(100)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        weight.square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        gradient = 2 * expected
        average = 0.9 * average + 0.1 * gradient**2
        expected = expected - 0.01 * gradient / (average.sqrt() + 1e-8)
    found = weight.detach()
    return Finding(
        answer="true" if torch.allclose(found, expected) else "false",
        evidence=f"After {_STEPS} steps {_difference(found, expected)}.",
    )


def _foreach() -> Finding:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain, foreach = _trained(device, foreach=False), _trained(device, foreach=True)
    return Finding(
        answer="false" if torch.equal(plain, foreach) else "true",
        evidence=f"After {_STEPS} steps on {device} {_difference(plain, foreach)}.",
    )


class _Calls(TorchFunctionMode):
    """Notes the names of torch's functions that are called within."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(
        self,
        func: Callable[..., object],
        _types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Call the function."""
        self.names.add(func.__name__)
        return func(*args, **(kwargs or {}))


def _libraries() -> Finding:
    parameter = nn.Parameter(torch.ones(64, 64))
    parameter.grad = torch.ones(64, 64)
    optimizer = RMSprop([parameter], foreach=True)
    with _Calls() as calls:
        optimizer.step()
    products = calls.names & _MATRIX_PRODUCTS
    on_lists = sorted(name for name in calls.names if name.startswith("_foreach_"))
    return Finding(
        answer="true" if products else "false",
        evidence=(
            f"Of the operators of a step {len(products)} were matrix products; "
            f"on lists of tensors there were {', '.join(on_lists)}."
        ),
    )


def _trained(device: str, *, foreach: bool) -> Tensor:
    model = seeded(lambda: perceptron(layers=4, width=32)).to(device)
    inputs = seeded(lambda: torch.randn(16, 32)).to(device)
    optimizer = RMSprop(model.parameters(), lr=0.01, foreach=foreach)
    for _ in range(_STEPS):
        train_step(model, optimizer, inputs)
    return torch.cat([parameter.flatten() for parameter in parameters(model)])


def _difference(left: Tensor, right: Tensor) -> str:
    differing = int((left != right).sum())
    largest = (left - right).abs().max().item()
    return f"{differing} of {left.numel()} parameters differed, by at most {largest:.1e}"


CLAIMS = (
    Claim(
        name="rmsprop_formula",
        statement=(
            "RMSprop divides a gradient by the root of a moving average of its square, plus a small number."
        ),
        check=_formula,
    ),
    Claim(
        name="foreach_differs",
        statement="RMSprop with foreach differs from the plain loop in the last digits.",
        check=_foreach,
    ),
    Claim(
        name="foreach_uses_blas",
        statement="RMSprop with foreach updates through a library of linear algebra, BLAS or cuBLAS.",
        check=_libraries,
    ),
)
