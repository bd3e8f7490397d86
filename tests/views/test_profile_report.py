"""The report of a profile says what a person would otherwise work out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from perfkit.model import (
    Balance,
    Commit,
    Environment,
    LineTime,
    Machine,
    PassSummary,
    PhaseSeconds,
    ProfileEntry,
    ProfileSummary,
)
from perfkit.model.readings import OperatorTime, PhaseMemory
from perfkit.profiling.passes.save import load_summary
from perfkit.report.profile_report import render_report, waiting_share, warnings

CLEAN = PassSummary(
    name="clean",
    total_s=4.0,
    step_s=(1.0, 0.5, 0.5, 0.5),
    samples=40,
    data_wait_s=1.0,
    data_workers=2,
)
CPROFILE = PassSummary(name="cprofile", total_s=6.0, step_s=(2.0, 0.75, 0.75, 0.75), samples=40)
TORCH = PassSummary(name="torch", total_s=9.0, step_s=(1.0, 0.5, 1.0, 1.0), samples=40, profiled_from=2)
Kind = Literal["wait", "own", "library"]


def entry(kind: Kind, name: str, own_s: float, cumulative_s: float) -> ProfileEntry:
    """Return an entry named "function file:line"; built-in functions have no file."""
    function, _, place = name.partition(" ") if not name.startswith("{") else (name, "", "~:0")
    file, _, line = place.partition(":")
    return ProfileEntry(
        file=file,
        line=int(line),
        function=function,
        calls=4,
        own_s=own_s,
        cumulative_s=cumulative_s,
        kind=kind,
    )


ENTRIES = (
    entry("wait", "__next__ torch/utils/data/dataloader.py:720", 0.1, 1.5),
    entry("wait", "{method 'acquire' of '_thread.lock' objects}", 1.4, 1.4),
    entry("own", "main demo/training.py:5", 0.1, 6.0),
    entry("own", "pairwise_loss demo/a/very/long/path/of/a/package/within/a/package/loss.py:12", 1.0, 2.0),
    entry("library", "{built-in method torch.conv2d}", 2.0, 2.0),
)
SUMMARY = ProfileSummary(
    schema_version=1,
    name="first_profile",
    target="train",
    arguments=(),
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    commit=Commit(sha="a" * 40),
    machine=Machine(machine_id="m1", facts={}),
    environment=Environment(env_id="e1", facts={}),
    configuration={},
    passes=(CLEAN, CPROFILE, TORCH),
    entries=ENTRIES,
    artifacts=("first_profile.stat", "first_profile.trace.json.gz", "first_profile.json"),
)

REPORT = """\
train: 4.00 s in all, 4 optimizer steps
  time per step     500 ms  (median of 3, the first left out for its set-up)
  time per sample   50.0 ms  (20 samples/s, 40 samples)
  waiting for data  1.00 s  (25.0 % of the total; with 2 workers)

pass        steps      total   per step   profiled / clean
clean           4     4.00 s     500 ms   -
cProfile        4     6.00 s     750 ms   1.50
torch           4     9.00 s     1.00 s   2.00

in the cProfile pass (6.00 s):

waiting for data, by cumulative time          calls      own cumulative    share
  __next__  …/utils/data/dataloader.py:720        4   100 ms     1.50 s   25.0 %

own code, by cumulative time                  calls      own cumulative    share
  main  demo/training.py:5                        4   100 ms     6.00 s  100.0 %
  pairwise_loss  …hin/a/package/loss.py:12        4   1.00 s     2.00 s   33.3 %

own code, by own time                         calls      own cumulative    share
  pairwise_loss  …hin/a/package/loss.py:12        4   1.00 s     2.00 s   16.7 %
  main  demo/training.py:5                        4   100 ms     6.00 s    1.7 %

library code, by own time                     calls      own cumulative    share
  {built-in method torch.conv2d}                  4   2.00 s     2.00 s   33.3 %

files
  profiles/first_profile.stat
  profiles/first_profile.trace.json.gz
  profiles/first_profile.json

look further
  perfkit view profiles/first_profile.stat     (in the browser)
  perfkit show profiles/first_profile.stat     (in the terminal)
  open profiles/first_profile.trace.json.gz at https://ui.perfetto.dev
"""


def with_passes(*passes: PassSummary) -> ProfileSummary:
    """Return the summary with other passes."""
    return replace(SUMMARY, passes=passes)


def test_report() -> None:
    """Times, passes, entries by kind, files and the next commands, in this order."""
    assert REPORT == render_report(SUMMARY, folder=Path("profiles"))


def test_report_fits_a_terminal() -> None:
    """No line is longer than 80 columns."""
    assert 80 >= max(len(line) for line in render_report(SUMMARY).splitlines())


def test_loading_in_process_is_said() -> None:
    """Without workers the wait is the loading itself, and the report says so."""
    summary = with_passes(replace(CLEAN, data_workers=0))
    assert "loaded in the process itself" in render_report(summary)


def test_a_slow_loop_makes_samples_too() -> None:
    """A rate below one a second has digits, and one of thousands has no decimals."""
    waiting = PhaseSeconds(name="data wait", seconds=(40.0, 40.0, 40.0))
    slow = replace(CLEAN, total_s=400.0, step_s=(100.0, 100.0, 100.0), samples=6, data_wait_s=90.0)
    balance = Balance(step_s=(100.0, 100.0, 100.0), phases=(waiting,), loader_s=8.0)

    report = render_report(replace(with_passes(slow), balance=balance))

    assert "50.0 s  (0.02 samples/s, 6 samples)" in report
    assert "not input-bound: the loader could deliver 0.25 samples/s, the model takes 0.0333" in report
    assert "(4,000 samples/s, 8000 samples)" in render_report(with_passes(replace(CLEAN, samples=8000)))


def test_unknown_is_left_out() -> None:
    """What was not seen is no zero: no samples, no wait, no line."""
    text = render_report(with_passes(replace(CLEAN, samples=None, data_wait_s=None, data_workers=None)))
    assert "per sample" not in text
    assert "waiting for data  " not in text


@pytest.mark.parametrize(
    ("summary", "warning"),
    [
        (with_passes(replace(CLEAN, step_s=(1.0, 1.0))), "only 2 steps"),
        (with_passes(replace(CLEAN, step_s=())), "no optimizer step was seen"),
        (with_passes(CPROFILE), "no clean pass was made"),
        (with_passes(CLEAN, replace(CPROFILE, step_s=(0.1, 0.1, 0.1))), "faster than the clean one"),
        (replace(SUMMARY, commit=None), "not filed under a commit"),
        (replace(SUMMARY, commit=Commit(sha="a" * 40, dirty=True)), "tracked files differ"),
    ],
)
def test_warnings(summary: ProfileSummary, warning: str) -> None:
    """What keeps the numbers from meaning what they seem to is told, and the report still renders."""
    assert any(warning in found for found in warnings(summary))
    assert "warning: " in render_report(summary)


def test_a_plain_profile_has_no_warnings() -> None:
    """Nothing is told where nothing is wrong."""
    assert [] == warnings(SUMMARY)


def test_distortion_compares_watched_steps() -> None:
    """The ratio is of median steps, those alone that the profiler watched."""
    assert 1.5 == SUMMARY.distortion("cprofile")
    assert 2.0 == SUMMARY.distortion("torch")
    assert SUMMARY.distortion("clean") is None
    assert SUMMARY.distortion("lines") is None


def test_distortion_of_few_steps_is_that_of_all_together() -> None:
    """With fewer than three steps all of them count."""
    summary = with_passes(replace(CLEAN, step_s=(1.0, 0.5)), replace(CPROFILE, step_s=(2.0, 1.0)))
    assert 2.0 == summary.distortion("cprofile")


def test_waiting_share_is_of_the_clean_pass() -> None:
    """One second of four; not known where no loader was iterated."""
    assert 0.25 == waiting_share(SUMMARY)
    assert waiting_share(with_passes(replace(CLEAN, data_wait_s=None))) is None


def test_it_fits_sixty_columns_too() -> None:
    """A name stands above its numbers, and neither is cut more than in eighty columns."""
    summary = load_summary(Path(__file__).parent.parent.parent / "profiles/first_profile.json")
    wide, narrow = render_report(summary), render_report(summary, columns=60)

    assert [] == [line for line in narrow.splitlines() if len(line) > 60]
    assert wide.split() == narrow.split()


def test_device_memory_by_phase_is_a_table_in_the_order_of_a_step() -> None:
    """Only where it was recorded; retries of the allocator are told in words."""
    memory = (
        PhaseMemory(name="optimizer", allocated=2 << 30, reserved=4 << 30, unusable=0, retries=1),
        PhaseMemory(name="forward", allocated=3 << 30, reserved=4 << 30, unusable=1 << 20, retries=0),
    )
    balance = Balance(step_s=(1.0,), phases=(), memory=memory)

    report = render_report(replace(SUMMARY, balance=balance))

    assert (
        """\
device memory, most in a step                  tensors   reserved    unusable
  forward                                     3.00 GiB   4.00 GiB    1.00 MiB
  optimizer                                   2.00 GiB   4.00 GiB         0 B
  optimizer: the allocator gave memory back 1 time before it got more
"""
        in report
    )
    assert "device memory" not in render_report(SUMMARY)


BACKWARD = (
    OperatorTime(name="MulBackward0", place="cpu", calls=4, own_s=0.7, cumulative_s=0.7),
    OperatorTime(name="SumBackward0", place="cpu", calls=4, own_s=0.35, cumulative_s=0.35),
)


def test_backward_is_told_for_the_steps_that_the_trace_holds() -> None:
    """A trace of all steps has the set-up's step in its seconds: it is divided by all of them, too."""
    window = replace(SUMMARY, backward=BACKWARD)
    everything = with_passes(CLEAN, replace(TORCH, profiled_from=0))

    assert """\
backward, by operator (torch pass)            calls     a step    share
  MulBackward0                                    4     350 ms   35.0 %
""" in render_report(window)
    assert """\
  MulBackward0                                    4     175 ms   20.0 %
  SumBackward0                                    4    87.5 ms   10.0 %
""" in render_report(replace(everything, backward=BACKWARD))


def test_without_a_step_times_are_told_for_the_whole_run() -> None:
    """A loop that calls no optimizer has a backward pass and lines, and no time a step."""
    line = LineTime(file="loop.py", line=3, text="loss.backward()", hits=6, seconds=0.5)
    lines = PassSummary(name="lines", total_s=2.0, step_s=(), samples=None)
    passes = (replace(CLEAN, step_s=()), replace(TORCH, step_s=(), profiled_from=0), lines)

    report = render_report(replace(SUMMARY, passes=passes, backward=BACKWARD, lines=(line,)))

    assert (
        """\
backward, by operator (torch pass)            calls     in all    share
  MulBackward0                                    4     700 ms        -
  SumBackward0                                    4     350 ms        -
"""
        in report
    )
    assert (
        """\
lines, by time                                 hits     in all    share
  loop.py:3 loss.backward()                       6     500 ms   25.0 %
"""
        in report
    )
