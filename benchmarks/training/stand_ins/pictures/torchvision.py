# ruff: noqa: ANN401 (pictures of any kind)
"""What the studied scripts use of torchvision, with random pictures in place of data sets."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

__path__: list[str] = []
__version__ = "0"


class _Pictures(Dataset[Any]):
    shape: tuple[int, ...] = (1, 28, 28)

    def __init__(
        self, root: str = "", *, train: bool = True, download: bool = False, transform: Any = None
    ) -> None:
        del root, download
        count = int(os.environ.get("PICTURES", "1280")) // (1 if train else 4)
        source = torch.Generator().manual_seed(int(train))
        self.data = torch.randint(0, 256, (count, *self.shape), dtype=torch.uint8, generator=source)
        self.targets = torch.randint(0, 10, (count,), generator=source)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, at: int) -> tuple[Any, int]:
        picture: Any = self.data[at]
        return picture if self.transform is None else self.transform(picture), int(self.targets[at])


class _FakeData(_Pictures):
    def __init__(
        self, size: int = 1000, image_size: Any = (3, 224, 224), num_classes: int = 10, transform: Any = None
    ) -> None:
        self.size, self.image_size, self.classes, self.transform = size, image_size, num_classes, transform

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> tuple[Any, int]:
        if at >= self.size:
            raise IndexError(at)
        picture = torch.randint(0, 256, self.image_size, dtype=torch.uint8)
        return self.transform(picture), at % self.classes


class _Compose:
    def __init__(self, steps: list[Callable[[Any], Any]]) -> None:
        self.steps = steps

    def __call__(self, picture: Any) -> Any:
        for step in self.steps:
            picture = step(picture)
        return picture


def _to_tensor() -> Callable[[Any], Any]:
    def change(picture: Any) -> Any:
        if isinstance(picture, Image.Image):
            picture = torch.from_numpy(np.array(picture))[None]
        return picture.float() / 255

    return change


def _normalize(mean: Any, std: Any) -> Callable[[Any], Any]:
    mean, std = (torch.tensor(one).view(-1, 1, 1) for one in (mean, std))
    return lambda picture: (picture - mean) / std


class _Block(nn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        half = width // stride
        self.one, self.two = (
            nn.Conv2d(half, width, 3, stride, 1, bias=False),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
        self.short = nn.Conv2d(half, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.norms[1](self.two(torch.relu(self.norms[0](self.one(x)))))
        return torch.relu(found + self.short(x))


def _resnet18(weights: object = None, **_: object) -> nn.Module:
    del weights
    blocks = [_Block(32, 1), _Block(32, 1), _Block(64, 2), _Block(64, 1), _Block(128, 2), _Block(128, 1)]
    head = [nn.Conv2d(3, 32, 7, 4, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*head, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000))


def _save_image(tensor: torch.Tensor, place: str, **_: object) -> None:
    picture = (tensor.detach()[0, 0].clamp(0, 1) * 255).byte().numpy()
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(place)


def _module(name: str, **members: object) -> types.ModuleType:
    module = types.ModuleType(f"{__name__}.{name}")
    vars(module).update(members)
    sys.modules[module.__name__] = module
    return module


datasets = _module(
    "datasets",
    MNIST=_Pictures,
    CIFAR10=type("CIFAR10", (_Pictures,), {"shape": (3, 32, 32)}),
    FakeData=_FakeData,
)
transforms = _module(
    "transforms",
    Compose=_Compose,
    ToTensor=_to_tensor,
    Normalize=_normalize,
    Lambda=lambda change: change,
    Resize=lambda size: lambda picture: picture.resize((size, size)),
    CenterCrop=lambda size: lambda picture: picture.crop((0, 0, size, size)),
)
models = _module("models", resnet18=_resnet18)
utils = _module("utils", save_image=_save_image)
