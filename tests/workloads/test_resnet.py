"""The residual net has the published size and shapes, and its blocks do what they should."""

import math

import pytest
import torch
from torch import nn
from workloads.image_classification.model import PIXELS_PER_PLACE, ResidualBlock, ResNet18, Stem


@pytest.mark.parametrize(
    ("stem", "classes", "parameters"), [("imagenet", 1000, 11_689_512), ("small", 10, 11_173_962)]
)
def test_parameters_are_those_of_the_published_layout(stem: Stem, classes: int, parameters: int) -> None:
    """Weights, shifts and scales add up to the known number."""
    model = ResNet18(classes, stem=stem)
    assert parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("size", [(64, 64), (33, 47)])
@pytest.mark.parametrize("stem", ["imagenet", "small"])
def test_any_image_gets_one_logit_per_class(stem: Stem, size: tuple[int, int]) -> None:
    """Height and width are free, and the last feature map has the places that the module says."""
    model = ResNet18(7, stem=stem).eval()
    with torch.inference_mode():
        features = model.stages(model.stem(torch.rand(2, 3, *size)))
        assert (2, 7) == model(torch.rand(2, 3, *size)).shape
    places = tuple(math.ceil(side / PIXELS_PER_PLACE[stem]) for side in size)
    assert (2, 512, *places) == features.shape


@pytest.mark.parametrize("stem", ["imagenet", "small"])
def test_every_parameter_gets_a_gradient(stem: Stem) -> None:
    """No part of the net is left out of the way from the images to the logits."""
    model = ResNet18(3, stem=stem)
    model(torch.rand(2, 3, 40, 40)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_block_adds_its_input_to_the_result() -> None:
    """With nothing from its convolutions, a block leaves positive features as they are."""
    block = ResidualBlock(4, 4, stride=1)
    last_normalisation = block.residual[-1]
    assert isinstance(last_normalisation, nn.BatchNorm2d)
    nn.init.zeros_(last_normalisation.weight)
    features = torch.rand(2, 4, 5, 5)
    assert torch.equal(features, block(features))


def test_block_with_a_stride_halves_the_features() -> None:
    """Input and result are added in the result's shape."""
    block = ResidualBlock(4, 6, stride=2)
    assert (2, 6, 3, 3) == block(torch.rand(2, 4, 5, 5)).shape
