"""A profile that was read is rendered for a terminal and as text."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from perfkit.model.readings import (
    FunctionTime,
    OperatorTime,
    PhaseMemory,
    PhaseTime,
    Reading,
    StepTimes,
    WaitTime,
)
from perfkit.report.reading.terminal import function_name, notes, reading_view
from perfkit.report.reading.text import reading_text


def function(name: str, own_s: float = 1.0, cumulative_s: float = 2.0) -> FunctionTime:
    """Return a function of one's own, or a builtin in braces."""
    builtin = name.startswith("{")
    return FunctionTime(
        file="" if builtin else "src/lib/trainers.py",
        line=0 if builtin else 149,
        function=name,
        kind="builtin" if builtin else "own",
        calls=1_234_567,
        primitive_calls=1_234_567,
        own_s=own_s,
        cumulative_s=cumulative_s,
    )


LONG = "a_function_with_a_name_" * 8
CPROFILE = Reading(
    name="first_profile.stat",
    origin="cProfile",
    total_s=328.638123,
    calls=904_343,
    steps=StepTimes(count=2, sign="optimizer.step"),
    functions=(
        function("train", 0.1, 328.0),
        function(LONG, 5.0, 9.0),
        function("{method 'acquire' of '_thread.lock' objects}", 310.0, 310.0),
    ),
    waits=(WaitTime(whom="the loader's workers", seconds=310.0, calls=343, through=("lock.acquire",)),),
)
TRACE = Reading(
    name="resnet50.trace.json.gz",
    origin="torch trace",
    total_s=1.0493187,
    calls=35_559,
    steps=StepTimes(count=6, sign="ProfilerStep", seconds=(0.17, 0.17, 0.175, 0.175, 0.18, 0.181)),
    operators=(
        OperatorTime(name="aten::conv2d", place="cpu", calls=318, own_s=0.3, cumulative_s=0.4),
        OperatorTime(name=f"void {LONG}<float>", place="device", calls=9, own_s=0.5, cumulative_s=0.5),
    ),
    phases=(PhaseTime(name="data wait", seconds=0.416), PhaseTime(name="residual", seconds=0.6333187)),
    device_busy_s=0.63,
    world_size=8,
)


def shown(reading: Reading) -> str:
    """Return what a terminal of 80 columns shows."""
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False).print(reading_view(reading))
    return stream.getvalue()


def line_with(text: str, part: str) -> str:
    """Return the one line that has a part, without its runs of blanks."""
    (found,) = (line for line in text.splitlines() if part in line)
    return " ".join(found.split())


@pytest.mark.parametrize(
    "reading",
    [CPROFILE, TRACE, replace(TRACE, name=f"{LONG}.json"), replace(CPROFILE, total_s=3.2e-9)],
    ids=["cprofile", "trace", "long name", "short"],
)
def test_the_view_fits_80_columns(reading: Reading) -> None:
    """No line is longer than a terminal is wide."""
    assert max(cell_len(line) for line in shown(reading).splitlines()) <= 80


def test_totals_and_steps_stand_at_the_top() -> None:
    """The whole with six digits, the number of steps by which sign, and the time of each."""
    text = shown(CPROFILE)
    assert "first_profile.stat 328.638 s cProfile, 904,343 calls" == line_with(text, "first_profile")
    assert "steps 2 by optimizer.step" == line_with(text, "by optimizer")
    assert "time per step 164.3 s the whole over the steps" == line_with(text, "time per step")


def test_single_steps_have_a_median_and_a_longest() -> None:
    """A trace knows each step, the ranks beside it, and how busy the device was."""
    text = shown(TRACE)
    assert "1.04932 s torch trace, 35,559 calls, one of 8 ranks" in line_with(text, "torch trace")
    assert "time per step 174.9 ms mean; median 175 ms, longest 181 ms" == line_with(text, "time per step")
    assert "device busy 105 ms a step, 60.0 % of the time" == line_with(text, "device busy")


def test_waits_and_phases_have_a_share() -> None:
    """Whom the loop waits for and what a step is made of: a step, and of the whole."""
    wait = "the loader's workers lock.acquire 343 310 s 155 s 94.3 %"
    assert wait == line_with(shown(CPROFILE), "the loader's workers")
    assert "data wait 69.3 ms 39.6 %" == line_with(shown(TRACE), "data wait")


def test_phases_of_another_pass_are_shares_of_their_own_sum() -> None:
    """A saved profile has phases of one pass beside the whole time of another: they add up all the same."""
    phases = (PhaseTime(name="forward", seconds=3.0), PhaseTime(name="residual", seconds=1.0))
    text = shown(replace(TRACE, total_s=8.0, phases=phases))

    assert "forward 500 ms 75.0 %" == line_with(text, "forward")
    assert "residual 167 ms 25.0 %" == line_with(text, "residual")


@pytest.mark.parametrize("reading", [CPROFILE, TRACE], ids=["function", "kernel"])
def test_a_long_name_is_cut_and_its_numbers_are_not(reading: Reading) -> None:
    """A name that does not fit ends in an ellipsis; the columns beside it stay whole."""
    cut = [line for line in shown(reading).splitlines() if "a_function_with_a_name" in line]
    assert cut
    assert all("…" in line and line.rstrip().endswith("%") for line in cut)


@pytest.mark.parametrize("place", ["cProfile", "torch trace", "perfkit summary"])
def test_an_empty_profile_is_shown(place: str) -> None:
    """A whole of no time divides nothing: there are no shares, and no crash."""
    origin = {"cProfile": CPROFILE, "torch trace": TRACE}.get(place, CPROFILE)
    assert origin.name in shown(replace(origin, total_s=0.0))
    assert "0 s" in shown(Reading(name="x", origin="cProfile", total_s=0.0, functions=(function("f", 0, 0),)))


def test_what_keeps_numbers_from_being_compared_is_noted() -> None:
    """Few steps, no steps, and what the reading itself warned of."""
    assert ["only 2 steps"] == [note.partition(",")[0] for note in notes(CPROFILE)]
    assert ["no optimizer and no backward pass was called: there is no time per step"] == notes(
        replace(CPROFILE, steps=None)
    )
    assert ["the trace has no steps"] == notes(
        replace(TRACE, steps=None, warnings=("the trace has no steps",))
    )
    assert "note: only 2 steps" in shown(CPROFILE)


def test_a_builtin_stands_nowhere() -> None:
    """A function has its place beside it, a builtin none."""
    assert "train  src/lib/trainers.py:149" == function_name(function("train"))
    assert "{built-in method len}" == function_name(function("{built-in method len}"))


def test_a_name_with_brackets_is_no_markup() -> None:
    """What looks like rich's own marks is shown as it stands."""
    reading = replace(CPROFILE, name="[red]x[/].stat", functions=(function("f[bold]"),))
    assert "[red]x[/].stat" in shown(reading)
    assert "f[bold]" in shown(reading)


def test_the_text_has_header_totals_and_every_function() -> None:
    """The columns of pstats, by cumulative time, under the totals."""
    lines = reading_text(CPROFILE).splitlines()
    assert (
        "first_profile.stat: 904343 calls in 328.638 seconds, 2 steps (by optimizer.step)" == lines[0].strip()
    )
    header = lines.index("   ncalls  tottime  percall  cumtime  percall filename:lineno(function)")
    assert 3 == len(lines[header + 1 :])
    assert lines[header + 1].endswith("328.000    0.000 src/lib/trainers.py:149(train)")
    assert lines[header + 2].endswith("{method 'acquire' of '_thread.lock' objects}")


def test_recursive_calls_are_told_as_pstats_tells_them() -> None:
    """All calls, a stroke, and those from outside."""
    reading = replace(CPROFILE, functions=(replace(function("f"), calls=5, primitive_calls=2),))
    assert "      5/2    1.000    0.200    2.000    1.000 src/lib/trainers.py:149(f)" in reading_text(reading)


def test_own_code_alone_keeps_the_totals() -> None:
    """Others' functions go; the totals stay those of the whole profile."""
    whole, own = reading_text(CPROFILE), reading_text(CPROFILE, own_only=True)
    assert whole.splitlines()[0] == own.splitlines()[0]
    assert "Own code only: 2 of 3 functions." in own
    assert "acquire" not in own


def test_operators_are_text_too() -> None:
    """A trace has operators in the same columns, those of the device marked."""
    text = reading_text(TRACE)
    assert "   ncalls  tottime  percall  cumtime  percall operator" in text
    assert "aten::conv2d\n" in text
    assert "<float> (device)\n" in text


def test_device_memory_by_phase_is_shown_where_it_was_recorded() -> None:
    """With the most of each, and how often the allocator gave memory back; else there is no such table."""
    memory = (
        PhaseMemory(name="forward", allocated=3 << 30, reserved=4 << 30, unusable=1 << 20, retries=0),
        PhaseMemory(name="optimizer", allocated=2 << 30, reserved=4 << 30, unusable=0, retries=2),
    )

    said = shown(replace(TRACE, memory=memory)).splitlines()

    (head,) = (place for place, line in enumerate(said) if line.startswith("device memory"))
    assert ["forward", "3.00", "GiB", "4.00", "GiB", "1.00", "MiB"] == said[head + 1].split()
    assert ["optimizer", "2.00", "GiB", "4.00", "GiB", "0", "B", "2"] == said[head + 2].split()
    assert "device memory" not in shown(TRACE)
