"""Claims on what records gradients, and on dropping them."""

import torch
from torch import Tensor, nn
from torch.optim import SGD

from perfkit.features.tricks.claims.claim import Claim, Finding, holds, outcome, yes


def _inference_tensors() -> Finding:
    with torch.inference_mode():
        tensor = torch.ones(2)
        inside = outcome(lambda: tensor.add_(1))
    outside = outcome(lambda: tensor.add_(1))
    on_clone = outcome(lambda: tensor.clone().add_(1))
    return Finding(
        answer=holds(here=outside != "worked", elsewhere=inside != "worked"),
        evidence=f"add_() outside the mode {outside}, on a clone {on_clone}; within the mode it {inside}.",
    )


def _inference_mode() -> Finding:
    weight = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        product, made = weight * 2, torch.ones(2, requires_grad=True)
    return Finding(
        answer=holds(here=not product.requires_grad, elsewhere=not made.requires_grad),
        evidence=_asking(product, made),
    )


def _no_grad() -> Finding:
    weight = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        product, made = weight * 2, torch.ones(2, requires_grad=True)
    return Finding(
        answer=holds(here=made.requires_grad, elsewhere=product.requires_grad),
        evidence=_asking(product, made),
    )


def _asking(product: Tensor, made: Tensor) -> str:
    return (
        f"The product of a parameter asked for a gradient: {yes(product.requires_grad)}; "
        f"a tensor made with requires_grad=True did: {yes(made.requires_grad)}."
    )


def _in_place() -> Finding:
    weight = torch.ones(2, requires_grad=True)
    recorded = outcome(lambda: weight.add_(1))
    with torch.no_grad():
        unrecorded = outcome(lambda: weight.add_(1))
    return Finding(
        answer="true" if unrecorded == "worked" else "false",
        evidence=f"add_() on a parameter {unrecorded} under no_grad(); with gradients on it {recorded}.",
    )


def _default_of_zero_grad() -> Finding:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    SGD([weight], lr=0.1).zero_grad()
    return Finding(
        answer="true" if weight.grad is None else "false",
        evidence=f"After zero_grad() there was a gradient: {yes(weight.grad is not None)}.",
    )


def _dropped_or_zero() -> Finding:
    dropped, zeroed = (_after_two_steps(set_to_none=way, reached=True) for way in (True, False))
    left_dropped, left_zeroed = (_after_two_steps(set_to_none=way, reached=False) for way in (True, False))
    return Finding(
        answer=holds(here=dropped == zeroed, elsewhere=left_dropped == left_zeroed),
        evidence=(
            f"After two steps with momentum a parameter was {dropped:.2f} with gradients dropped and "
            f"{zeroed:.2f} with zeros; left out of the second step, {left_dropped:.2f} and {left_zeroed:.2f}."
        ),
    )


def _after_two_steps(*, set_to_none: bool, reached: bool) -> float:
    weight = nn.Parameter(torch.ones(1))
    optimizer = SGD([weight], lr=0.1, momentum=0.9)
    for is_reached in (True, reached):
        optimizer.zero_grad(set_to_none=set_to_none)
        if is_reached:
            weight.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weight.item()


CLAIMS = (
    Claim(
        name="inference_tensors_are_immutable",
        statement="Tensors created under inference_mode() cannot be changed.",
        check=_inference_tensors,
    ),
    Claim(
        name="inference_mode_has_no_gradients",
        statement="Under inference_mode() no tensor asks for a gradient.",
        check=_inference_mode,
    ),
    Claim(
        name="no_grad_carries_gradients",
        statement="Under no_grad() tensors may still ask for gradients.",
        check=_no_grad,
    ),
    Claim(
        name="no_grad_allows_in_place",
        statement="Under no_grad() tensors may be changed in place, parameters among them.",
        check=_in_place,
    ),
    Claim(
        name="zero_grad_drops",
        statement="zero_grad() drops the gradients unless told otherwise.",
        check=_default_of_zero_grad,
    ),
    Claim(
        name="dropping_changes_nothing",
        statement="Gradients dropped instead of set to zero leave the training as it is.",
        check=_dropped_or_zero,
    ),
)
