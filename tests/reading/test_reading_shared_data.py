"""Profiles of real projects show what is known of these projects."""

from __future__ import annotations

import pytest
from foreign_profiles import SHARED_DATA, reading_of

from perfkit.profiling.diff.attribution import LOADER_WORKERS

pytestmark = pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the shared data")


def test_a_cprofile_of_colab() -> None:
    reading = reading_of((SHARED_DATA / "first_profile.stat").read_bytes())
    assert 328.638 == pytest.approx(reading.total_s, abs=5e-4)
    assert (904_343, 2) == (reading.calls, reading.steps.count if reading.steps else 0)
    assert 164.3 == pytest.approx(reading.step_s, abs=0.05)
    assert LOADER_WORKERS == reading.waits[0].whom
    assert 0.94 == pytest.approx(reading.waits[0].seconds / reading.total_s, abs=0.005)


@pytest.mark.parametrize(
    ("workers", "step_ms", "data_ms", "device_ms"), [(0, 175, 69, 100.6), (4, 140, 1.4, 102.4)]
)
def test_traces_of_a_resnet(workers: int, step_ms: float, data_ms: float, device_ms: float) -> None:
    reading = reading_of((SHARED_DATA / f"resnet50_num_workers_{workers}.trace.json.gz").read_bytes())
    assert reading.steps is not None
    assert reading.step_s is not None
    assert reading.device_busy_s is not None
    assert 6 == reading.steps.count
    assert step_ms == pytest.approx(reading.step_s * 1e3, rel=0.01)
    phases = {phase.name: phase.seconds / 6 * 1e3 for phase in reading.phases}
    assert data_ms == pytest.approx(phases["data wait"], rel=0.03)
    assert device_ms == pytest.approx(reading.device_busy_s / 6 * 1e3, rel=0.04)
    assert reading.total_s == pytest.approx(sum(phase.seconds for phase in reading.phases))
