"""What the study trains on images, in float32 or mixed precision, and what it profiles."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from workloads.image_classification.model import ResNet18

Precision = Literal["default", "bf16", "fp16"]
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_HELD_OUT = 256


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training gave."""

    test_accuracy: float
    last_loss: float


def resnet(name: str, device: str, *, classes: int = 10) -> nn.Module:
    """Return a ResNet of torchvision; of 18 layers our own, since importing torchvision takes seconds."""
    model: nn.Module = ResNet18(classes=classes, stem="imagenet")
    if name != "resnet18":
        import torchvision

        model = torchvision.models.get_model(name, num_classes=classes)
    return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def images(
    *,
    precision: Precision = "default",
    seed: int = 0,
    device: str = "cuda",
    model: str = "resnet18",
    size: int = 256,
    batch_size: int = 256,
    steps: int = 24,
    workers: int = 2,
) -> Trained:
    """Train a ResNet to distinguish noisy copies of ten patterns, enlarged and flipped on the device."""
    torch.manual_seed(seed)
    labels = torch.randint(0, 10, (2048,))
    pixels = (torch.rand(10, 8, 8)[labels] * 12 + torch.rand(len(labels), 8, 8) * 4).to(torch.uint8)
    order = torch.arange(len(labels))
    train, test = order[_HELD_OUT:], order[:_HELD_OUT]
    net = resnet(model, device)

    def prepared(batch: Tensor, *, flip: bool) -> Tensor:
        batch = batch.to(device, non_blocking=True).float()[:, None] / 16
        batch = functional.interpolate(batch, size=(size, size)).expand(-1, 3, -1, -1)
        batch = batch.flip(-1) if flip and torch.rand(()) < 0.5 else batch
        return batch.contiguous(memory_format=torch.channels_last)

    loader = DataLoader(
        TensorDataset(pixels[train], labels[train]), batch_size=batch_size, shuffle=True, drop_last=True,
        num_workers=workers, pin_memory=device == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip

    def loss_of(batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(net(prepared(batch[0], flip=True)), batch[1].to(device))

    last = fit(net, loader, loss_of, precision=precision, device=device, steps=steps)
    net.eval()
    with torch.inference_mode():
        parts = test.split(64)  # type: ignore[no-untyped-call]
        right = sum(
            (net(prepared(pixels[at], flip=False)).argmax(1).cpu() == labels[at]).sum() for at in parts
        )
    return Trained(test_accuracy=float(right) / len(test), last_loss=last)


def fit(
    net: nn.Module,
    loader: DataLoader[Any],
    loss_of: Callable[[tuple[Tensor, Tensor]], Tensor],
    *,
    precision: Precision,
    device: str,
    steps: int,
    rate: float = 1e-4,
) -> float:
    """Train for some steps, and return the last loss."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    net.train()
    loss = torch.zeros(())
    for _, batch in zip(range(steps), _forever(loader), strict=False):
        optimizer.zero_grad(set_to_none=True)
        with _autocast(precision, device):
            loss = loss_of(batch)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


def _autocast(precision: Precision, device: str) -> contextlib.AbstractContextManager[object]:
    if precision == "default":
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=_HALF[precision])


def _forever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def profiled_resnet(device: str, *, small: bool) -> None:
    """Train a ResNet-18 by batches of 64 as a tutorial does, reading the loss in every step."""
    size, count = (32, 8) if small else (224, 64)
    model = resnet("resnet18", device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    data = TensorDataset(torch.randn(count * 8, 3, size, size), torch.randint(0, 10, (count * 8,)))
    loader = DataLoader(data, batch_size=count, shuffle=True, num_workers=2, pin_memory=device == "cuda")
    total = 0.0
    for _ in range(30):
        for inputs, labels in loader:
            inputs, labels = inputs.to(device), labels.to(device)  # noqa: PLW2901 (as tutorials do)
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()


def profiled_transformer(device: str, *, small: bool) -> None:
    """Train a small language model in bfloat16, without a wait in its steps."""
    width, depth, length, count = (32, 1, 16, 4) if small else (512, 6, 256, 32)
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(8000, width), encoder, nn.Linear(width, 8000)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, 8000, (count * 4, length + 1))
    loader = DataLoader(TensorDataset(words), batch_size=count, pin_memory=device == "cuda")
    for _ in range(30):
        for (batch,) in loader:
            tokens = batch.to(device, non_blocking=True)
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                scores = model(tokens[:, :-1])
                loss = functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=["resnet", "transformer"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    {"resnet": profiled_resnet, "transformer": profiled_transformer}[asked.which](
        asked.device, small=asked.small
    )
