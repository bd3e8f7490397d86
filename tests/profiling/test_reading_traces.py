"""Traces of torch are read: phases, steps, operators and shares."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from foreign_profiles import SHARED_DATA, event, reading_of, trace_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

from perfkit.model.readings import OperatorTime, Reading
from perfkit.profiling.diff.attribution import DEVICE, LOADER_WORKERS

STEPS = 3


@pytest.fixture(scope="module")
def real_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the trace of a tiny training loop, written by torch itself."""
    file = tmp_path_factory.mktemp("traces") / "real.json"
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(40, 8), torch.randint(0, 2, (40,))), batch_size=8)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
        record_shapes=True,
    ) as profiler:
        for batch, labels in loader:
            optimizer.zero_grad()
            loss: torch.Tensor = torch.nn.functional.cross_entropy(model(batch), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            profiler.step()
    return file


def phases(reading: Reading) -> dict[str, float]:
    return {phase.name: phase.seconds * 1e3 for phase in reading.phases}


def operator(reading: Reading, name: str) -> OperatorTime:
    (found,) = (one for one in reading.operators if one.name == name)
    return found


def test_a_real_trace_has_steps_phases_and_operators(real_trace: Path) -> None:
    reading = reading_of(real_trace.read_bytes())
    assert reading.steps is not None
    assert (STEPS, "ProfilerStep") == (reading.steps.count, reading.steps.sign)
    assert {"data wait", "forward and loss", "backward", "optimizer", "residual"} <= set(phases(reading))
    assert reading.total_s == pytest.approx(sum(phase.seconds for phase in reading.phases))
    assert STEPS == operator(reading, "aten::linear").calls
    assert (None, ()) == (reading.device_busy_s, reading.warnings)


def test_a_packed_trace_is_the_same(real_trace: Path) -> None:
    plain = real_trace.read_bytes()
    assert reading_of(plain) == reading_of(gzip.compress(plain))
    assert reading_of(plain) == reading_of(gzip.compress(plain[:900]) + gzip.compress(plain[900:]))


OLD = trace_bytes(
    event("ProfilerStep#1", 1_000, 10_000, cat="Operator", tid="9 (main)"),
    event(
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        1_000,
        4_000,
        cat="Operator",
        tid="9 (main)",
    ),
    event("aten::to", 5_000, 1_000, cat="Operator", tid="9 (main)"),
    event("cudaMemcpyAsync", 5_200, 600, cat="Runtime", tid="9 (main)"),
    event("aten::conv2d", 6_000, 2_000, cat="Operator", tid="9 (main)"),
    event("cudaLaunchKernel", 6_500, 500, cat="Runtime", tid="9 (main)"),
    event("ConvBackward", 8_000, 1_500, cat="Operator", tid="10 (backward)"),
    event("Optimizer.step#SGD.step", 9_500, 1_000, cat="Operator", tid="9 (main)"),
    event("Memcpy HtoD", 5_300, 500, cat="Memcpy", pid=0, tid="stream 7"),
    event("conv", 7_000, 2_000, cat="Kernel", pid=0, tid="stream 7"),
    event("other conv", 8_000, 2_000, cat="Kernel", pid=0, tid="stream 8"),
    event("[memory]", 8_000, 0, ph="i", cat="Trace"),
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
)
NEW = trace_bytes(
    event("ProfilerStep#7", 0.25, 1_000.5, cat="user_annotation"),
    event("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0.25, 100, cat="user_annotation"),
    event("my own mark", 100.25, 400, cat="user_annotation"),
    event("aten::linear", 110.25, 200.5, args={"External id": 5, "Input Dims": [[8, 2], []]}),
    event("aten::addmm", 120.25, 100.25),
    event("phase: augment", 310.75, 50, cat="user_annotation"),
    event("autograd::engine::evaluate_function: AddmmBackward0", 400.25, 200, tid=10),
    event("autograd::engine::evaluate_function: SumBackward0", 500.25, 150, tid=11),
    event("cudaStreamSynchronize", 700.25, 100, cat="cuda_runtime"),
    event("Optimizer.step#Adam.step", 800.25, 100, cat="user_annotation"),
    event("gemm", 500, 50.5, cat="kernel", pid=0, tid=7),
    baseTimeNanoseconds=1712345678000000000,
    distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
)


def test_the_old_schema_is_read() -> None:
    reading = reading_of(OLD)
    assert reading.steps is not None
    assert (1, "ProfilerStep") == (reading.steps.count, reading.steps.sign)
    assert (0.01,) == pytest.approx(reading.steps.seconds)
    assert phases(reading) == pytest.approx(
        {
            "data wait": 4.0,
            "host to device": 1.0,
            "forward and loss": 2.0,
            "backward": 1.5,
            "optimizer": 1.0,
            "residual": 0.5,
        }
    )
    assert (DEVICE, ("cudaMemcpyAsync",)) == (reading.waits[0].whom, reading.waits[0].through)
    # Kernels on two streams at the same time count once: 0.5 ms of copying, 3 ms of kernels.
    assert 3.5e-3 == pytest.approx(reading.device_busy_s)


def test_the_new_schema_is_read() -> None:
    reading = reading_of(NEW)
    assert phases(reading) == pytest.approx(
        {
            "data wait": 0.1,
            "forward and loss": 0.3005,
            "backward": 0.25,
            "optimizer": 0.1,
            "augment": 0.05,
            "residual": 0.2,
        }
    )
    assert 8 == reading.world_size
    assert [("cudaStreamSynchronize",)] == [wait.through for wait in reading.waits]


def test_phases_of_the_user_give_way_to_known_ones() -> None:
    reading = reading_of(
        trace_bytes(
            event("ProfilerStep#1", 0, 1_000, cat="user_annotation"),
            event("aten::linear", 0, 100),
            event("phase: outer", 100, 600, cat="user_annotation"),
            event("aten::mul", 120, 30),
            event("phase: inner", 200, 100, cat="user_annotation"),
            event("aten::add", 250, 20),
            event("autograd::engine::evaluate_function: AddmmBackward0", 400, 50),
            event("Optimizer.step#SGD.step", 690, 110, cat="user_annotation"),
            event("phase: outer", 900, 50, cat="user_annotation"),
        )
    )
    assert phases(reading) == pytest.approx(
        {
            "forward and loss": 0.1,
            "backward": 0.05,
            "optimizer": 0.11,
            "inner": 0.1,
            "outer": 0.6 - 0.1 - 0.05 - 0.01 + 0.05,
            "residual": 0.15,
        }
    )
    assert {"inner": 1, "outer": 1} == {
        phase.name: phase.calls for phase in reading.phases if phase.name in ("inner", "outer")
    }


def test_own_time_is_without_what_lies_within() -> None:
    reading = reading_of(
        trace_bytes(event("a", 0, 100), event("b", 10, 50), event("c", 20, 30), event("b", 70, 10))
    )
    own = {one.name: (one.calls, one.own_s * 1e6, one.cumulative_s * 1e6) for one in reading.operators}
    expected = {"a": (1, 40, 100), "b": (2, 30, 60), "c": (1, 30, 30)}
    assert expected == {name: pytest.approx(times) for name, times in own.items()}


def test_steps_end_with_an_optimizers() -> None:
    reading = reading_of(
        trace_bytes(
            *(event("aten::linear", at, 500) for at in (0, 1_000, 2_000)),
            *(event("Optimizer.step#SGD.step", at, 100, cat="user_annotation") for at in (600, 1_600, 2_700)),
        )
    )
    assert reading.steps is not None
    assert (2, "optimizer.step") == (reading.steps.count, reading.steps.sign)
    assert (1e-3, 1.1e-3) == pytest.approx(reading.steps.seconds)
    assert phases(reading) == pytest.approx(
        {"forward and loss": 1.0, "optimizer": 0.2, "residual": 0.9}, rel=1e-6
    )


def test_a_trace_without_steps_is_reported() -> None:
    reading = reading_of(trace_bytes(event("aten::linear", 5, 20)))
    assert (None, ()) == (reading.steps, reading.phases)
    assert 20e-6 == pytest.approx(reading.total_s)
    assert "profiler.step()" in reading.warnings[0]
    # So is one with kernels alone.
    assert 20e-6 == pytest.approx(reading_of(trace_bytes(event("gemm", 5, 20, cat="kernel"))).device_busy_s)


def test_neighbours_that_rounding_makes_overlap_keep_their_phases() -> None:
    reading = reading_of(
        trace_bytes(
            event("ProfilerStep#1", 0, 100, cat="user_annotation"),
            event("aten::linear", 0, 50.002),
            event("Optimizer.step#SGD.step", 50.001, 49, cat="user_annotation"),
        )
    )
    assert phases(reading) == pytest.approx(
        {"forward and loss": 0.050002, "optimizer": 0.048999, "residual": 0.000999}
    )


def test_numbers_that_json_does_not_know_are_accepted() -> None:
    data = trace_bytes(
        event("aten::linear", 5, 20, args={"occupancy": 1, "all": [2, 3]}), event("aten::add", 30, 4)
    )
    data = data.replace(b'"occupancy": 1', b'"occupancy": -inf').replace(b"[2, 3]", b"[nan, Infinity]")
    assert 2 == reading_of(data).calls
    assert 25e-6 == pytest.approx(reading_of(data.replace(b'"dur": 4', b'"dur": nan')).total_s)


def test_names_are_made_printable() -> None:
    reading = reading_of(trace_bytes(event("a\x1b]0;b\n", 5, 20)))
    assert ["a\ufffd]0;b\ufffd"] == [one.name for one in reading.operators]
    data = trace_bytes(event("name??", 5, 20)).replace(b"name??", b"name\xc3")
    assert ["name\ufffd"] == [one.name for one in reading_of(data).operators]


def test_events_may_lack_anything() -> None:
    lacking: list[dict[str, object]] = [
        {},
        {"ph": "X"},
        {"ph": "X", "cat": None, "name": None, "ts": None, "dur": None},
    ]
    beside: list[dict[str, object]] = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 7}]
    reading = reading_of(trace_bytes(*lacking, *beside, event("aten::linear", 5, 20)))
    assert {"aten::add": 1, "aten::linear": 1} == {one.name: one.calls for one in reading.operators}


@pytest.mark.parametrize("time", ["nan", "inf", "-Infinity", 1e300])
def test_a_time_that_is_none_is_passed_over(time: object) -> None:
    odd = {"ph": "X", "cat": "cpu_op", "name": "odd", "ts": time, "dur": 1}
    reading = reading_of(trace_bytes(odd, event("aten::linear", 5, 20)))
    assert ["aten::linear"] == [one.name for one in reading.operators]


def test_numbers_may_be_written_as_words() -> None:
    worded = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": "9", "tid": "9", "ts": "10", "dur": "5"}
    reading = reading_of(trace_bytes(event("aten::linear", 5, 20), worded, distributedInfo={"rank": "0"}))
    assert 15e-6 == pytest.approx(operator(reading, "aten::linear").own_s)


def test_time_stamps_since_1970_keep_their_precision() -> None:
    since = 1.6e15
    reading = reading_of(trace_bytes(event("a", since, 8.5), event("b", since + 1, 2.25)))
    assert 8.5e-6 == pytest.approx(reading.total_s)
    assert 6.25e-6 == pytest.approx(operator(reading, "a").own_s)


def test_the_order_of_keys_and_events_does_not_matter(real_trace: Path) -> None:
    found = json.loads(real_trace.read_bytes())
    padding = {"note": "x" * 3_000}
    moved = {**padding, **found, "traceEvents": found["traceEvents"][::-1]}
    before, after = reading_of(real_trace.read_bytes()), reading_of(json.dumps(moved).encode())
    assert phases(before) == pytest.approx(phases(after))
    assert {one.name: one.calls for one in before.operators} == {
        one.name: one.calls for one in after.operators
    }


def shares(reading: Reading) -> dict[str, float]:
    """Return every part of the window that a view shows in percent: phases, waits, operators, the device."""
    found = {
        **{phase.name: phase.seconds for phase in reading.phases},
        **{wait.whom: wait.seconds for wait in reading.waits},
        **{
            f"{one.place} {one.name}": one.own_s if one.busy_s is None else one.busy_s
            for one in reading.operators
        },
        "device busy": reading.device_busy_s or 0.0,
    }
    return {name: seconds / reading.total_s for name, seconds in found.items()}


MARK = event("ProfilerStep#1", 1_000, 100, cat="user_annotation")


@pytest.mark.parametrize("begin", [500, 1_200])
def test_kernels_outside_the_steps_do_not_count(begin: float) -> None:
    kernel = event("gemm", begin, 300, cat="kernel", pid=0, tid=7)
    within = event("relu", 1_010, 20, cat="kernel", pid=0, tid=7)

    assert 0.0 == reading_of(trace_bytes(MARK, kernel)).device_busy_s
    assert 20e-6 == pytest.approx(reading_of(trace_bytes(MARK, kernel, within)).device_busy_s)


def test_what_ends_after_the_steps_counts_up_to_their_end() -> None:
    reading = reading_of(
        trace_bytes(
            MARK,
            event("aten::linear", 1_040, 500),
            event("cudaDeviceSynchronize", 1_050, 400, cat="cuda_runtime"),
            event("gemm", 1_060, 900, cat="kernel", pid=0, tid=7),
        )
    )
    expected = {
        "cpu aten::linear": 0.1,
        "cpu cudaDeviceSynchronize": 0.5,
        DEVICE: 0.5,
        "device gemm": 0.4,
        "device busy": 0.4,
        "forward and loss": 0.6,
        "residual": 0.4,
    }
    assert expected == pytest.approx(shares(reading))


def test_what_runs_on_two_threads_at_once_has_its_share_of_the_time_once() -> None:
    reading = reading_of(
        trace_bytes(
            MARK,
            event("gloo:all_reduce", 1_000, 80, cat="user_annotation", tid=2),
            event("gloo:all_reduce", 1_010, 80, cat="user_annotation", tid=3),
            event("gemm", 1_000, 70, cat="kernel", pid=0, tid=7),
            event("gemm", 1_020, 70, cat="kernel", pid=0, tid=8),
        )
    )
    found = shares(reading)
    assert (160e-6, 0.9) == pytest.approx(
        (operator(reading, "gloo:all_reduce").own_s, found["cpu gloo:all_reduce"])
    )
    assert (140e-6, 0.9) == pytest.approx((operator(reading, "gemm").own_s, found["device gemm"]))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    ("ProfilerStep#1", "user_annotation"),
                    ("Optimizer.step#SGD.step", "user_annotation"),
                    ("aten::linear", "cpu_op"),
                    ("autograd::engine::x", "cpu_op"),
                    ("cudaDeviceSynchronize", "cuda_runtime"),
                    ("gemm", "kernel"),
                ]
            ),
            st.integers(0, 50),
            st.integers(0, 50),
            st.integers(1, 2),
        ),
        min_size=1,
    )
)
def test_no_share_lies_outside_the_whole(events: list[tuple[tuple[str, str], int, int, int]]) -> None:
    data = trace_bytes(
        *(event(name, begin, dur, cat=cat, tid=tid) for (name, cat), begin, dur, tid in events)
    )
    reading = reading_of(data)
    if reading.total_s:
        assert {} == {name: share for name, share in shares(reading).items() if not 0 <= share <= 1 + 1e-9}


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
