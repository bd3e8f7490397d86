"""What several tricks are tried on: small nets whose parameters a seed decides, and a step with them."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Made = TypeVar("Made")


def seeded(make: Callable[[], Made]) -> Made:
    """Return what ``make`` makes, with the same random numbers each time; the caller's stay as they were."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        return make()


def convolution_net(*, inplace: bool = False) -> nn.Sequential:
    """Return a net from images (N, 3, height, width) to ten logits, with or without in-place activations."""
    return nn.Sequential(
        nn.Conv2d(3, 32, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=inplace),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=inplace),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def perceptron(*, layers: int, width: int) -> nn.Sequential:
    """Return a net of layers that each keep the width."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)))


def train_step(model: nn.Module, optimizer: Optimizer, inputs: Tensor) -> Tensor:
    """Update the parameters once, towards outputs of zero, and return the loss, 0-dim."""
    optimizer.zero_grad()
    loss: Tensor = model(inputs).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def outputs_and_gradients(model: nn.Module, inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs, and the gradients of their mean square in the order of the parameters."""
    model.zero_grad()
    outputs = model(inputs)
    outputs.square().mean().backward()
    return outputs.detach(), *gradients(model)


def gradients(model: nn.Module) -> tuple[Tensor, ...]:
    """Return the gradients of the parameters that have one."""
    return tuple(parameter.grad for parameter in model.parameters() if parameter.grad is not None)


def parameters(model: nn.Module) -> tuple[Tensor, ...]:
    """Return the parameters themselves, for comparison."""
    return tuple(parameter.detach() for parameter in model.parameters())
