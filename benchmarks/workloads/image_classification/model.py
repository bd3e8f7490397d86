"""The network that classifies an image."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

Stem = Literal["imagenet", "small"]

# An element of the last feature map covers so many pixels of an image, in height and in width.
PIXELS_PER_PLACE: dict[Stem, int] = {"imagenet": 32, "small": 8}


class ResNet18(nn.Module):
    """The residual net of 18 layers for images of red, green and blue.

    The layout is that of He, Zhang, Ren and Sun (2016), "Deep Residual Learning for Image
    Recognition", table 1.

    Args:
        classes: How many classes it distinguishes.
        stem: "imagenet" reduces images fourfold before the first block, as that layout has it; "small"
            keeps their size, for images of few pixels.
    """

    def __init__(self, classes: int, *, stem: Stem) -> None:
        super().__init__()
        self.stem = _imagenet_stem() if stem == "imagenet" else _small_stem()
        self.stages = nn.Sequential(
            _stage(64, 64, stride=1),
            _stage(64, 128, stride=2),
            _stage(128, 256, stride=2),
            _stage(256, 512, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, classes) of images (N, 3, height, width)."""
        features = self.pool(self.stages(self.stem(images)))
        logits: Tensor = self.classifier(features.flatten(start_dim=1))
        return logits


class ResidualBlock(nn.Module):
    """Two convolutions of 3x3, whose result is added to the input or a projection of it.

    Args:
        inputs: Channels of the input.
        outputs: Channels of the result.
        stride: Divisor of the height and width, at the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(inputs, outputs, size=3, stride=stride),
            nn.ReLU(inplace=True),
            *_convolution(outputs, outputs, size=3),
        )
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential(
            *(() if same_shape else _convolution(inputs, outputs, size=1, stride=stride))
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return (N, outputs, height / stride, width / stride) of (N, inputs, height, width)."""
        return functional.relu(self.residual(features) + self.shortcut(features), inplace=True)


def _imagenet_stem() -> nn.Sequential:
    return nn.Sequential(
        *_convolution(3, 64, size=7, stride=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


def _small_stem() -> nn.Sequential:
    return nn.Sequential(*_convolution(3, 64, size=3), nn.ReLU(inplace=True))


def _stage(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        ResidualBlock(inputs, outputs, stride=stride), ResidualBlock(outputs, outputs, stride=1)
    )


def _convolution(inputs: int, outputs: int, *, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Return a convolution without bias, and the batch normalisation after it, whose shift replaces that."""
    return (
        nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )
