"""This is a small training program, whose variants do, or fail to do, what their names promise."""

from __future__ import annotations

TRAINING = '''
"""A net learns whether the sum of its inputs is above zero."""

import sys
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Result:
    losses: tuple
    accuracy: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Config:
    precision: Literal["default", "bf16", "fp16"] = "default"
    batch_size: int = 8
    steps: int = 8
    hidden: int = 16
    work: int = 1
    seed: int = 0
    mistake: str = ""

    def __post_init__(self):
        if self.batch_size < 1:
            raise ValueError(f"expected batch_size of at least 1, found {self.batch_size}; raise it")


def train(config: Config) -> Result:
    torch.manual_seed(config.seed)
    mistake = config.mistake
    if mistake == "leaked flag" and config.precision == "bf16":
        torch.backends.cudnn.benchmark = True
    if mistake == "out of memory" and config.batch_size == 8:
        raise MemoryError("no room for a batch of 8")
    if mistake == "died" and config.batch_size == 8:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    half = config.precision != "default"
    if mistake == "swapped labels":
        half = not half
    if mistake == "no half":
        half = False
    inputs = 48 if mistake == "wrong width" else 32
    net = nn.Sequential(nn.Linear(inputs, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = 0.0
    losses = []
    for _ in range(config.steps):
        images = torch.randn(config.batch_size, 32)
        labels = (images.sum(dim=1, keepdim=True) > 0).float()
        optimizer.zero_grad()
        dtype = torch.float16 if config.precision == "fp16" else torch.bfloat16
        with torch.autocast("cpu", dtype, enabled=half):
            for _ in range(config.work):
                logits = net(images)
        if mistake == "half range":
            torch.full((2,), 655504.0).to(torch.float16)
        logits = logits.float()
        if mistake == "sigmoid":
            logits = logits.sigmoid()
        loss = functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()
        optimizer.step()
        if mistake == "kept graph":
            kept = kept + loss  # the graph of every step
        losses.append(loss.detach())
    right = ((net(images) > 0).float() == labels).float().mean()
    return Result(
        losses=tuple(torch.stack(losses).tolist()),
        accuracy=float("nan") if mistake == "diverged" else right.item(),
        samples=config.steps * config.batch_size,
    )


def by_keywords(*, precision: str = "default", steps: int = 8, **others: object) -> Result:
    return train(Config(precision=precision, steps=steps, **others))


def main(argv=None):
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(argv)
    return train(Config(steps=options.steps, batch_size=options.batch_size))


if __name__ == "__main__":
    main()
'''
