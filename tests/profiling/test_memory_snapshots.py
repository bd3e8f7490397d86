"""Snapshots of an allocator are read without running anything, and their parts add up."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_perfkit

from perfkit.errors import UsageError
from perfkit.model.readings import MemorySnapshot
from perfkit.profiling.read.formats import read_memory
from perfkit.profiling.read.memory import explain_memory, own_place, read_snapshot

MIB = 1 << 20
Frames = list[dict[str, Any]]


def frames(*places: tuple[str, int, str]) -> Frames:
    """Return a stack, innermost place first."""
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


def block(
    size: int, state: str = "active_allocated", *, requested: int | None = None, at: Frames | None = None
) -> dict[str, Any]:
    """Return a block of a segment."""
    return {
        "address": 0,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": at or [],
    }


def segment(*blocks: dict[str, Any], device: int = 0, rest: int = 0) -> dict[str, Any]:
    """Return a segment of blocks, with ``rest`` bytes that belong to none of them."""
    total = sum(one["size"] for one in blocks) + rest
    return {
        "device": device, "address": 0, "total_size": total, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": list(blocks),
    }  # fmt: skip


def event(action: str, size: int) -> dict[str, Any]:
    """Return an entry of the history."""
    return {"action": action, "addr": 0, "size": size, "stream": 0, "time_us": 1, "frames": []}


def snapshot(*segments: dict[str, Any], traces: list[list[dict[str, Any]]] | None = None) -> dict[str, Any]:
    """Return a whole snapshot."""
    return {
        "segments": list(segments),
        "device_traces": [[]] if traces is None else traces,
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
        "external_annotations": [],
    }


def dumped(found: object, file: Path) -> Path:
    """Write a snapshot as torch does."""
    file.write_bytes(pickle.dumps(found))
    return file


FORWARD = frames(
    ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", 2000, "linear"),
    ("/home/me/train.py", 12, "forward"),
)
LOAD = frames(("/home/me/data.py", 7, "load"), ("/home/me/train.py", 40, "main"))


def _read(found: object) -> MemorySnapshot:
    return read_snapshot(pickle.dumps(found), "a.pickle")


def _parts(read: MemorySnapshot) -> int:
    return read.requested + read.rounding + read.waiting + read.fragments + read.unused


def _message(data: bytes) -> str:
    with pytest.raises(UsageError) as raised:
        read_snapshot(data, "a.pickle")
    return str(raised.value)


TWO_SEGMENTS = snapshot(
    segment(
        block(8 * MIB, requested=8 * MIB - 100, at=FORWARD),
        block(4 * MIB, at=FORWARD),
        block(2 * MIB, "active_awaiting_free"),
        block(6 * MIB, "inactive"),
        block(1 * MIB, at=LOAD),
    ),
    segment(block(20 * MIB, "inactive")),
    traces=[[event("segment_alloc", 20 * MIB), event("alloc", 30 * MIB), event("free_completed", 30 * MIB)]],
)


def test_each_byte_is_in_one_part() -> None:
    read = _read(TWO_SEGMENTS)

    assert 41 * MIB == read.reserved == _parts(read)
    assert [(12 * MIB - 100, 2), (MIB, 1)] == [(one.size, one.blocks) for one in read.stacks]
    assert (100, 2 * MIB, 6 * MIB, 20 * MIB) == (read.rounding, read.waiting, read.fragments, read.unused)
    assert (2, 20 * MIB) == (read.segments, read.largest_free)
    assert ("/home/me/data.py:7 load", "/home/me/train.py:40 main") == read.stacks[1].stack


def test_the_peak_is_found_backwards_through_the_history() -> None:
    read = _read(TWO_SEGMENTS)

    assert (41 * MIB, 43 * MIB, 3) == (read.peak_reserved, read.peak_allocated, read.events)
    shrunk = snapshot(segment(block(MIB)), traces=[[event("segment_free", 9 * MIB)]])
    assert 10 * MIB == _read(shrunk).peak_reserved


@pytest.mark.parametrize(("gib", "fits"), [(3.0, True), (1.5, None), (0.5, False)])
def test_it_would_fit_or_not(gib: float, *, fits: bool | None) -> None:
    whole = snapshot(segment(block(1024 * MIB), block(1024 * MIB, "inactive")))

    assert fits == _read(whole).fits(gib)


def test_devices_have_peaks_of_their_own() -> None:
    both = snapshot(segment(block(3 * MIB), device=0), segment(block(5 * MIB), device=1), traces=[[], []])

    read = _read(both)

    assert (8 * MIB, 5 * MIB) == (read.reserved, read.peak_reserved)
    assert [(1, 5 * MIB), (0, 3 * MIB)] == [(one.device, one.size) for one in read.stacks]


def test_older_structures_are_read() -> None:
    past = {"size": 4 * MIB, "state": "active_allocated", "history": [{"real_size": 3 * MIB, "frames": LOAD}]}
    old = {"total_size": 6 * MIB, "stream": 0, "blocks": [past]}

    read = _read([old])

    assert (3 * MIB, MIB, 2 * MIB) == (read.requested, read.rounding, read.fragments)
    assert 6 * MIB == _parts(read)


class _Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_in_a_pickle_is_called(tmp_path: Path, protocol: int) -> None:
    trap = {**TWO_SEGMENTS, "external_annotations": [_Trap(tmp_path / "called")]}

    reported = _message(pickle.dumps(trap, protocol=protocol))

    assert reported.startswith("a.pickle is a pickle that would call ")
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        (None, "is a pickle, but no memory snapshot"),
        ({"a": 1}, "is a pickle, but no memory snapshot (KeyError: 'segments')"),
        ({"segments": 3}, "its segments are no list"),
        (snapshot({"total_size": -1, "blocks": []}), "-1 is no number of bytes"),
        (snapshot({"total_size": 1, "blocks": [block(2)]}), "1 bytes more than their segment"),
        ([[]], "no memory snapshot"),
        ({"segments": [], "device_traces": [3]}, "no memory snapshot"),
    ],
)
def test_other_pickles_are_refused_in_a_line(found: object, reported: str) -> None:
    message = _message(pickle.dumps(found))

    assert reported in message
    assert "\n" not in message


def test_names_cannot_steer_a_terminal() -> None:
    hostile = frames(("/home/\x1b[31mme.py", 1, "a\nb\ud800"))

    (one,) = _read(snapshot(segment(block(MIB, at=hostile)))).stacks

    assert one.stack[0].isprintable()
    assert "is no number of bytes" in _message(pickle.dumps(snapshot(segment(block(1 << 70)))))


@pytest.mark.parametrize("data", [b"\x80", b"\x80\x04", pickle.dumps(TWO_SEGMENTS)[:200], b"\x80\x04h\x05."])
def test_a_damaged_pickle_is_reported(data: bytes) -> None:
    assert "a.pickle is a damaged pickle" in _message(data)


def test_a_file_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    read = read_memory(dumped(TWO_SEGMENTS, tmp_path / "a.pickle"))
    assert 41 * MIB == read.reserved

    bomb = b"\x80\x04" + b"]" + b"(" + b"2" * 10 + b"e" + b"\x8d\xff\xff\xff\xff\xff\x00\x00\x00."
    (tmp_path / "b.pickle").write_bytes(bomb)
    with pytest.raises(UsageError, match=r"b\.pickle"):
        read_memory(tmp_path / "b.pickle")


def test_parts_of_a_difference_add_up() -> None:
    moved_lines = frames(
        ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", 2100, "linear"),
        ("/home/me/train.py", 15, "forward"),
    )
    new = frames(("/home/me/train.py", 33, "cache"))
    after = snapshot(
        segment(block(9 * MIB, at=moved_lines), block(MIB, at=LOAD), block(64 * MIB, at=new)),
        segment(block(MIB, "inactive")),
    )
    base, head = _read(TWO_SEGMENTS), _read(after)

    found = explain_memory(base, head)

    assert found.whole.moved == 34 * MIB == sum(part.moved for part in found.parts)
    assert (41 * MIB, 75 * MIB) == (
        sum(part.base for part in found.parts),
        sum(part.head for part in found.parts),
    )
    by_name = {part.name: part for part in found.parts}
    assert ("/home/me/train.py:33", 64 * MIB, 0, 1) == (
        by_name["cache"].place,
        by_name["cache"].moved,
        by_name["cache"].base_blocks,
        by_name["cache"].head_blocks,
    )
    assert (12 * MIB - 100, 9 * MIB) == (by_name["forward"].base, by_name["forward"].head)
    assert 0 == by_name["load"].moved
    assert found.parts[0] == by_name["cache"]


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        (
            (
                "memory_snapshot.cpp:0 torch::cuda::(anonymous namespace)::gather_with_cpp()",
                "/venv/lib/python3.11/site-packages/torch/nn/functional.py:2000 linear",
                "/home/me/train.py:12 forward",
                ":0 __libc_start_main",
            ),
            "/home/me/train.py:12 forward",
        ),
        (
            (
                "CUDACachingAllocator.cpp:0 malloc(int, unsigned long)",
                "Functions.cpp:0 torch::autograd::generated::AddmmBackward0::apply(variable_list&&)",
                "engine.cpp:0 torch::autograd::Engine::evaluate_function()",
            ),
            "Functions.cpp:0 torch::autograd::generated::AddmmBackward0::apply(variable_list&&)",
        ),
        (("a.cpp:0 malloc", "b.cpp:0 empty"), "a.cpp:0 malloc"),
        ((), ""),
    ],
)
def test_a_stack_is_named_by_the_line_that_a_person_wrote(stack: tuple[str, ...], place: str) -> None:
    assert place == own_place(stack)


def _perfkit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_perfkit(*words, cwd=folder)


def test_the_commands_show_and_explain_snapshots(tmp_path: Path) -> None:
    dumped(TWO_SEGMENTS, tmp_path / "a.pickle")
    dumped(snapshot(segment(block(90 * MIB, at=LOAD))), tmp_path / "b.pickle")
    (tmp_path / "c.json").write_text("{}")

    shown = _perfkit(tmp_path, "show", "a.pickle", "--fits", "16")
    explained = _perfkit(tmp_path, "explain", "a.pickle", "b.pickle", "--json", "-")
    mixed = _perfkit(tmp_path, "explain", "a.pickle", "c.json")

    assert 0 == shown.returncode, shown.stderr
    assert "a.pickle: 41.0 MiB reserved in 2 segments" in shown.stdout
    assert "/home/me/train.py:12 forward" in shown.stdout
    assert "It would fit into 16 GiB" in shown.stdout
    parts = json.loads(explained.stdout)["parts"]
    assert 49 * MIB == sum(part["head"] - part["base"] for part in parts)
    assert "/home/me/data.py:7 load" in explained.stderr
    assert (2, "") == (mixed.returncode, mixed.stdout)
    assert "a.pickle is a memory snapshot and c.json is none" in mixed.stderr
