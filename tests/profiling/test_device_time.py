"""Busy and idle time of a device is read from a trace alone, and the parts add up to the whole."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from foreign_profiles import SHARED_DATA
from hypothesis import given
from hypothesis import strategies as st
from rendered import rendered

from perfkit.model.readings import DeviceTime, Reading
from perfkit.profiling.read.trace_file import DEVICE, RUNTIME, Event, covered_s, gaps, read_trace
from perfkit.report.profiles import ranks_view, reading_view


def _event(name: str, category: str, begin_us: float, lasting_us: float, **more: object) -> dict[str, Any]:
    place = {"pid": 0, "tid": 7} if category.startswith(("kernel", "gpu")) else {"pid": 1, "tid": 1}
    found = {"ph": "X", "name": name, "cat": category, "ts": begin_us, "dur": lasting_us, **place}
    return found | ({"args": more} if more else {})


def _launched(
    number: int, launch_us: float, begin_us: float, lasting_us: float, name: str = "gemm"
) -> list[dict[str, Any]]:
    return [
        _event("cudaLaunchKernel", "cuda_runtime", launch_us, 2, correlation=number),
        _event(name, "kernel", begin_us, lasting_us, correlation=number),
    ]


def _read(events: Sequence[dict[str, Any]], **more: object) -> Reading:
    return read_trace(json.dumps({"traceEvents": events, **more}).encode(), "trace.json")


def _whole_s(one: DeviceTime) -> float:
    return math.fsum([one.compute_s, one.communication_s, one.copy_s, *one.idle_s.values()])


_STEP = [_event("ProfilerStep#1", "user_annotation", 0, 1000)]


def test_idle_time_is_the_hosts_a_synchronisations_or_the_queues() -> None:
    events = [
        *_STEP,
        _event("enumerate(DataLoader)#_Iter.__next__", "cpu_op", 0, 90),
        *_launched(1, 100, 110, 190),
        # This one was launched in time, and begins 10 us after the first is done.
        *_launched(2, 150, 310, 90),
        _event("cudaStreamSynchronize", "cuda_runtime", 200, 210),
        *_launched(3, 450, 460, 540),
    ]

    [device] = _read(events).devices

    assert {"host": 110e-6, "queue": 10e-6, "sync": 60e-6} == pytest.approx(dict(device.idle_s))
    assert 820e-6 == pytest.approx(device.compute_s)
    waited_for = {one.name: one.seconds for one in device.waited_for}
    assert 90e-6 == pytest.approx(waited_for["data wait"])
    assert 1000e-6 == pytest.approx(_whole_s(device))


def test_what_is_hidden_behind_computing_costs_nothing() -> None:
    copy = _event("Memcpy HtoD", "gpu_memcpy", 700, 200, correlation=4) | {"tid": 9}
    events = [
        *_STEP,
        *_launched(1, 0, 0, 400),
        *_launched(2, 10, 300, 300, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        *_launched(3, 20, 600, 150),
        copy,
        _event("cudaMemcpyAsync", "cuda_runtime", 30, 2, correlation=4),
    ]

    [device] = _read(events).devices

    assert 550e-6 == pytest.approx(device.compute_s)
    assert 200e-6 == pytest.approx(device.communication_s)
    assert 300e-6 == pytest.approx(device.collectives_s)
    assert 150e-6 == pytest.approx(device.copy_s)
    assert (3, 0, 3) == (device.kernels, device.short_kernels, device.launches)


def test_a_trace_that_lost_work_is_reported() -> None:
    whole = [*_STEP, *_launched(1, 10, 20, 4), *_launched(2, 30, 40, 6), *_launched(3, 50, 60, 6)]
    lost = [one for one in whole if one.get("args") != {"correlation": 2} or one["cat"] != "kernel"]
    unlaunched = [one for one in whole if one.get("args") != {"correlation": 3} or one["cat"] == "kernel"]

    assert [] == [one for one in _read(whole).warnings if "INCOMPLETE" in one]
    assert "1 of 3 launches have no kernel" in " ".join(_read(lost).warnings)
    assert "1 of 3 kernels no launch" in " ".join(_read(unlaunched).warnings)
    assert 1 == _read(whole).devices[0].short_kernels


def test_what_was_launched_on_another_device_is_not_lost() -> None:
    first = [*_launched(1, 10, 20, 6), *_launched(2, 100, 110, 6), *_launched(3, 200, 210, 6)]
    launch, kernel = _launched(4, 30, 40, 6)
    second = [launch, kernel | {"pid": 1, "tid": 7}]
    lost = [_event("cudaLaunchKernel", "cuda_runtime", 300, 2, correlation=5)]

    whole, incomplete = _read([*_STEP, *first, *second]), _read([*_STEP, *first, *second, *lost])

    assert [(3, 0, 3), (1, 0, 1)] == [_audit(one) for one in whole.devices]
    assert [] == [one for one in whole.warnings if "INCOMPLETE" in one]
    assert [(4, 1, 3), (2, 1, 1)] == [_audit(one) for one in incomplete.devices]
    assert "1 of 4 launches have no kernel" in " ".join(incomplete.warnings)


def _audit(one: DeviceTime) -> tuple[int, int, int]:
    return one.launches, one.launches_without_kernel, one.kernels


def test_work_that_was_launched_before_the_trace_is_not_lost() -> None:
    early = _event("gemm", "kernel", 1, 3, correlation=99)

    assert [0] == [
        one.kernels_without_launch for one in _read([*_STEP, early, *_launched(1, 10, 20, 4)]).devices
    ]


@pytest.mark.parametrize("arguments", [[1], "text", {"correlation": "x"}, {"correlation": None}, 1.5])
def test_arguments_of_any_kind_are_no_error(arguments: object) -> None:
    kernel = _event("gemm", "kernel", 10, 10) | {"args": arguments}

    [device] = _read([*_STEP, kernel]).devices

    assert 10e-6 == pytest.approx(device.compute_s)
    assert 0 == device.kernels_without_launch


_TIMES = st.floats(min_value=0, max_value=1000)


@given(
    st.lists(st.tuples(_TIMES, _TIMES, _TIMES, st.sampled_from(["gemm", "ncclKernel"]), st.integers(0, 3)))
)
def test_parts_add_up_to_the_window(work: list[tuple[float, float, float, str, int]]) -> None:
    events = [*_STEP]
    for number, (launch_us, begin_us, lasting_us, name, stream) in enumerate(work, start=1):
        launch, kernel = _launched(number, launch_us, begin_us, lasting_us, name)
        events += [launch, kernel | {"tid": stream}]

    for device in _read(events).devices:
        assert 1000e-6 == pytest.approx(_whole_s(device))


def test_the_view_names_the_cause() -> None:
    reading = _read([*_STEP, _event("enumerate(DataLoader)", "cpu_op", 0, 490), *_launched(1, 495, 500, 500)])
    shown = rendered(reading_view(reading))

    assert "idle, its next work not launched" in shown
    assert "the host was 490 us in data wait" in " ".join(shown.split())


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    ranks = [
        _read(
            [
                *_STEP,
                *_launched(1, 0, 5, computes_us),
                *_launched(2, 1, 5 + computes_us, 995 - computes_us, "ncclAllReduce"),
            ],
            distributedInfo={"rank": rank, "world_size": 3},
        )
        for rank, computes_us in enumerate((500, 900, 510))
    ]
    view = ranks_view(ranks)

    assert view is not None
    assert "rank 1 is waited for" in rendered(view)
    assert ranks_view(ranks[:1]) is None
    assert ranks_view([ranks[0], ranks[0]]) is None


# What HolisticTraceAnalysis 0.5.0 finds in the same files, with all of their steps.
@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the shared data")
@pytest.mark.parametrize(
    ("workers", "idle_s", "compute_s", "host_share"),
    [(0, 0.392919, 0.591532, 0.9739), (4, 0.187137, 0.594868, 0.9353)],
)
def test_it_agrees_with_holistic_trace_analysis(
    workers: int, idle_s: float, compute_s: float, host_share: float
) -> None:
    data = gzip.decompress((SHARED_DATA / f"resnet50_num_workers_{workers}.trace.json.gz").read_bytes())
    timed = [one for one in json.loads(data)["traceEvents"] if one.get("ph") == "X"]
    first_us = min(one["ts"] for one in timed)
    device = [_as_event(one, first_us) for one in timed if one.get("cat") in DEVICE]
    launched = {
        one["args"]["correlation"]: (one["ts"] - first_us) * 1e-6
        for one in timed
        if one.get("cat") in RUNTIME
    }
    found = list(gaps(device, launched))
    late_s = math.fsum(one.end_s - one.begin_s for one in found if one.launched_late)
    kernels = [one for one in device if one.category not in {"Memcpy", "Memset", "gpu_memcpy", "gpu_memset"}]

    assert idle_s == pytest.approx(math.fsum(one.end_s - one.begin_s for one in found), abs=1e-6)
    assert host_share == pytest.approx(late_s / idle_s, abs=1e-4)
    assert compute_s == pytest.approx(covered_s((one.begin_s, one.end_s) for one in kernels), abs=1e-6)


def _as_event(one: dict[str, Any], first_us: int) -> Event:
    begin_s, end_s = (one["ts"] - first_us) * 1e-6, (one["ts"] - first_us + one["dur"]) * 1e-6
    return Event(one["name"], one["cat"], str(one["tid"]), begin_s, end_s, one["args"]["correlation"])
