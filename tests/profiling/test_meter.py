"""The meter finds the size of a batch and the number of samples."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from perfkit.profiling.passes.meter import Meter, batch_size

IMAGES = torch.zeros(7, 3)


@pytest.mark.parametrize(
    "batch",
    [
        IMAGES,
        (IMAGES, torch.zeros(9)),
        [IMAGES],
        {"names": ["a"], "images": IMAGES},
        {"nested": ("text", [IMAGES])},
        ["a"] * 7,
    ],
)
def test_batch_size_is_that_of_the_first_tensor(batch: object) -> None:
    """The first tensor's first dimension counts; without a tensor the batch's own length."""
    assert 7 == batch_size(batch)


@pytest.mark.parametrize("batch", [torch.tensor(1.0), object(), 3])
def test_unknown_batch_size_is_none(batch: object) -> None:
    """What has no length is not known, not 0."""
    assert batch_size(batch) is None


@pytest.mark.parametrize(("told", "samples"), [(12, 12), (None, None), (True, None), ("12", None)])
def test_the_targets_own_count_of_samples_wins(told: object, samples: int | None) -> None:
    """A result with an int named samples gives the count; anything else leaves it to the loaders."""
    meter = Meter(limit=None, report=lambda _: False, loaders=True)
    assert samples == meter.finish("clean", result=SimpleNamespace(samples=told)).samples
