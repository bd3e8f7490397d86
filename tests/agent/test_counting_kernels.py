"""Kernel launches are counted where there is a device to launch them on."""

from __future__ import annotations

import pytest
import torch

from perfkit.runner.agent.counters.calls import count_kernels


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_there_are_no_kernels() -> None:
    assert count_kernels(lambda: pytest.fail("was called")) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_an_operator_launches_a_kernel() -> None:
    given = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()

    def call() -> object:
        return (given + 1).cpu()

    count = count_kernels(call)

    assert count is not None
    assert (1.0, 1.0) == count.values
