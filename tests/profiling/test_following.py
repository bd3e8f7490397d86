"""Every step of a run is followed: drift and leaks are found where they are, and in no clean run."""

from __future__ import annotations

import importlib
import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from perfkit.profiling.passes.follow import BLOCK_STEPS, MOST_BLOCKS, MOST_SHARE, Followed
from perfkit.profiling.passes.target_code import OwnCode

STUDY = Path(__file__).parents[2] / "benchmarks" / "training"


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(STUDY))
        yield importlib.import_module("follow_study")


@pytest.mark.parametrize("seed", range(2))
def test_a_leak_and_creep_are_found_and_nothing_in_a_clean_run(study: ModuleType, seed: int) -> None:
    bad = study.simulated(drift=0.01, leak=100, seed=seed)
    clean = study.simulated(seed=seed)

    assert 0.01 == pytest.approx(bad.drift, rel=0.3)
    assert 100 == pytest.approx(bad.leak, rel=0.3)
    assert (0.0, 0.0, ()) == (clean.drift, clean.leak, clean.changes)
    assert 1e-3 == pytest.approx(clean.quantiles_s[0], rel=0.03)
    assert 1.1e-3 < clean.quantiles_s[2] < 1.3e-3


def test_a_leaks_line_is_found_by_tracing_a_block() -> None:
    kept: list[list[int]] = []
    sizes = iter(range(0, 1 << 40, 1 << 18))
    own = OwnCode(root=Path(__file__).parent, packages=(Path(__file__),))
    followed = Followed(own, memory=lambda: (float(next(sizes)), 0.0))

    for step in range(80 * BLOCK_STEPS):
        kept.append([step, step + 1])
        followed.end_step()

    found = followed.findings()
    assert found is not None
    assert (1 << 18) / found.blocks[0].steps == pytest.approx(found.leak, rel=0.01)
    assert found.leak_line.startswith("test_following.py:")
    assert "kept.append" in Path(__file__).read_text().splitlines()[int(found.leak_line[18:]) - 1]


def test_tracing_a_leak_takes_few_of_the_steps_that_it_slows_and_is_no_part_of_their_times() -> None:
    now, traced = [0.0], [0]
    sizes = iter(range(0, 1 << 40, 1 << 18))
    followed = Followed(OwnCode(root=Path()), clock=lambda: now[0], memory=lambda: (float(next(sizes)), 0.0))

    for _ in range(40_000):
        traced[0] += tracemalloc.is_tracing()
        now[0] += 0.3 if tracemalloc.is_tracing() else 0.001
        followed.end_step()

    found = followed.findings()
    assert found is not None
    assert 0 < traced[0] <= 60
    assert found.leak > 0
    assert 0.001 == pytest.approx(found.seconds / found.steps)
    assert 0.001 == pytest.approx(found.quantiles_s[2], rel=0.03)
    assert 40_000 == found.steps


def test_summing_up_takes_a_bounded_share_of_a_run_and_leaves_out_no_step() -> None:
    moments = itertools.count()
    # Each reading of this clock takes 1 ms, and so each time that blocks are summed up.
    followed = Followed(
        OwnCode(root=Path()),
        clock=lambda: 0.001 * next(moments),
        memory=lambda: (0.0, 0.0),
        look=lambda _: 1 << 40,
    )
    seen = set()
    for _ in range(60_000):
        followed.end_step()
        seen.add(followed.steps)

    found = followed.findings()
    assert found is not None
    assert 60_000 == found.steps
    assert 30 == len(found.blocks)
    assert 1 < len(seen) <= MOST_SHARE * 60 / 0.001


def test_memory_is_bounded_and_pauses_belong_to_no_step() -> None:
    now = [0.0]
    followed = Followed(OwnCode(root=Path()), clock=lambda: now[0], memory=lambda: (0.0, 0.0))
    steps = (MOST_BLOCKS + 10) * BLOCK_STEPS
    for step in range(steps):
        now[0] += 0.001
        followed.end_step()
        if step % 1000 == 0:
            followed.pause()
            now[0] += 5.0
            followed.resume()

    found = followed.findings()

    assert found is not None
    assert 2 * BLOCK_STEPS == found.blocks[0].steps
    assert MOST_BLOCKS // 2 < len(found.blocks) < MOST_BLOCKS
    assert 0.001 * found.steps == pytest.approx(found.seconds)
    assert found.seconds / now[0] == pytest.approx(found.goodput)
    assert 0.99 * steps < found.steps <= steps


def test_what_is_left_out_amid_a_turn_is_in_no_step() -> None:
    now = [0.0]
    followed = Followed(OwnCode(root=Path()), clock=lambda: now[0], memory=lambda: (0.0, 0.0))

    def batches() -> Iterator[int]:
        for step in range(3000):
            now[0] += 0.001
            yield step

    for step in followed.turns(batches()):
        now[0] += 0.003
        if step % 7 == 0:
            begun, now[0] = now[0], now[0] + 0.5
            followed.leave_out(begun, now[0])
            now[0] += 0.4
            followed.leave_out(now[0], now[0], with_gap=True)

    found = followed.findings()

    assert found is not None
    assert 0.004 * found.steps == pytest.approx(found.seconds)
    assert 0.25 == pytest.approx(found.wait)
    assert 2990 < found.steps <= 3000
