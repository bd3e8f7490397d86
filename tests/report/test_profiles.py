"""Profiles are shown in a terminal, as text, and in the index of saved ones."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from rendered import check_golden, rendered
from rich.cells import cell_len
from rich.console import RenderableType

from perfkit.agent.counters.model import Cause, Count, Counts
from perfkit.model import (
    Balance,
    Commit,
    Environment,
    LineMemory,
    LineTime,
    Machine,
    MemoryProfile,
    PassSummary,
    PeriodTime,
    PhaseSeconds,
    ProfileEntry,
    ProfileSummary,
    RankProfile,
    RoleProfile,
)
from perfkit.model.readings import (
    FunctionTime,
    OperatorTime,
    PhaseMemory,
    PhaseTime,
    Reading,
    StepTimes,
    WaitTime,
)
from perfkit.profiling.read.summary_file import load_summary
from perfkit.report.profiles import (
    index_markdown,
    notes,
    reading_text,
    reading_view,
    summary_ending,
    summary_view,
    warnings,
)

PROFILES = Path(__file__).parents[2] / "profiles"
LONG = "a_function_with_a_name_" * 8
PHASES = (
    PhaseMemory(name="forward", allocated=3 << 30, reserved=4 << 30, unusable=1 << 20, retries=0),
    PhaseMemory(name="optimizer", allocated=2 << 30, reserved=4 << 30, unusable=0, retries=2),
)


def rows(view: RenderableType, columns: int = 80) -> list[str]:
    """Return the lines that a terminal shows, without their runs of blanks."""
    return [" ".join(line.split()) for line in rendered(view, columns).splitlines() if line.strip()]


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


@pytest.mark.parametrize(
    "reading",
    [CPROFILE, TRACE, replace(TRACE, name=f"{LONG}.json"), replace(CPROFILE, total_s=3.2e-9)],
    ids=["cprofile", "trace", "long name", "short"],
)
def test_a_reading_fits_80_columns(reading: Reading) -> None:
    lines = rendered(reading_view(reading)).splitlines()

    assert max(map(cell_len, lines)) <= 80
    cut = [line for line in lines if "a_function_with_a_name" in line and "share" not in line]
    assert all("…" in line for line in cut if line.rstrip().endswith("%"))


def test_what_keeps_numbers_from_being_compared_is_noted() -> None:
    assert ["only 2 steps"] == [note.partition(",")[0] for note in notes(CPROFILE)]
    assert ["no optimizer and no backward pass was called: there is no time per step"] == notes(
        replace(CPROFILE, steps=None)
    )
    assert ["cut short"] == notes(replace(TRACE, steps=None, warnings=("cut short",)))
    assert "note: only 2 steps" in rendered(reading_view(CPROFILE))


def test_a_name_with_brackets_is_no_markup() -> None:
    text = rendered(
        reading_view(replace(CPROFILE, name="[red]x[/].stat", functions=(function("f[bold]"),), total_s=2.0))
    )
    assert "[red]x[/].stat" in text
    assert "f[bold]" in text


def test_own_code_alone_keeps_the_totals() -> None:
    whole, own = reading_text(CPROFILE), reading_text(CPROFILE, own_only=True)
    assert whole.splitlines()[0] == own.splitlines()[0]
    assert "Own code only: 2 of 3 functions." in own
    assert "acquire" not in own


CLEAN = PassSummary(
    name="clean", total_s=4.0, step_s=(1.0, 0.5, 0.5, 0.5), samples=40, data_wait_s=1.0, data_workers=2
)
PROFILED = PassSummary(name="cprofile", total_s=6.0, step_s=(2.0, 0.75, 0.75, 0.75), samples=40)
TORCH = PassSummary(name="torch", total_s=9.0, step_s=(1.0, 0.5, 1.0, 1.0), samples=40, profiled_from=2)


def entry(
    kind: Literal["wait", "own", "library"], function: str, place: str, own_s: float, cumulative_s: float
) -> ProfileEntry:
    file, _, line = place.partition(":")
    return ProfileEntry(
        file=file,
        line=int(line or 0),
        function=function,
        calls=4,
        own_s=own_s,
        cumulative_s=cumulative_s,
        kind=kind,
    )


SUMMARY = ProfileSummary(
    schema_version=1,
    name="first_profile",
    target="train",
    arguments=("--epochs", "1"),
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    commit=Commit(sha="a" * 40),
    machine=Machine(machine_id="m1", facts={}),
    environment=Environment(env_id="e1", facts={}),
    configuration={},
    passes=(CLEAN, PROFILED, TORCH),
    entries=(
        entry("wait", "{method 'acquire' of '_thread.lock' objects}", "~", 1.4, 1.4),
        entry("own", "main", "demo/training.py:5", 0.1, 6.0),
        entry("own", "pairwise_loss", "demo/a/very/long/path/of/a/package/loss.py:12", 1.0, 2.0),
        entry("library", "{built-in method torch.conv2d}", "~", 2.0, 2.0),
    ),
    waits=(WaitTime(whom="the loader's workers", seconds=1.4, calls=4, through=("lock.acquire",)),),
    artifacts=("first_profile.stat", "first_profile.trace.json.gz", "first_profile.json"),
)


def with_passes(*passes: PassSummary) -> ProfileSummary:
    return replace(SUMMARY, passes=passes)


BACKWARD = (
    OperatorTime(name="MulBackward0", place="cpu", calls=4, own_s=0.7, cumulative_s=0.7),
    OperatorTime(name="SumBackward0", place="cpu", calls=4, own_s=0.35, cumulative_s=0.35),
)


def test_profiles_are_shown_as_they_were() -> None:
    waiting = PhaseSeconds(name="data wait", seconds=(40.0, 40.0, 40.0))
    slow = replace(CLEAN, total_s=400.0, step_s=(100.0, 100.0, 100.0), samples=6, data_wait_s=90.0)
    slow_balance = Balance(step_s=(100.0, 100.0, 100.0), phases=(waiting,), loader_s=8.0)

    causes = tuple(Cause(what=f"Tensor.{name}", place="train.py:31", amount=1.0) for name in ("item", "cpu"))
    syncs = Count(metric="syncs", unit="1", values=(2.0, 2.0), causes=causes)
    forward = PhaseSeconds(name="forward", seconds=(0.5, 0.5, 0.5))
    balance = Balance(step_s=(1.0, 1.0, 1.0), phases=(forward,))
    rank = RankProfile(rank=0, passes=(CLEAN,), balance=balance)
    worker = RoleProfile(role="worker0", file="x.stat", total_s=8.0, entries=SUMMARY.entries)
    line = LineTime(file="loop.py", line=3, text="loss.backward()", hits=6, seconds=0.5)
    lines = PassSummary(name="lines", total_s=2.0, step_s=(), samples=None)
    passes = (replace(CLEAN, step_s=()), replace(TORCH, step_s=(), profiled_from=0), lines)

    summaries = (
        SUMMARY,
        replace(with_passes(slow), balance=slow_balance),
        with_passes(replace(CLEAN, samples=8000, data_workers=0)),
        replace(
            SUMMARY,
            counts=Counts(counts=(syncs,), not_counted={"flops": "compiled"}),
            ranks=(rank, replace(rank, rank=1)),
            roles=(worker, replace(worker, role="worker1"), replace(worker, role="pin_memory")),
            problem="the lines pass failed",
            configuration={"passes": "clean,lines"},
        ),
        replace(SUMMARY, passes=passes, backward=BACKWARD, lines=(line,)),
    )
    check_golden(
        "profiles",
        *(rendered(view(summary)) for summary in summaries for view in (summary_ending, summary_view)),
        *(rendered(reading_view(reading)) for reading in (CPROFILE, TRACE)),
        *(reading_text(reading) for reading in (CPROFILE, TRACE)),
    )


def test_what_workers_would_give_follows_from_the_parts_of_a_step() -> None:
    main = replace(CLEAN, step_s=(0.1, 0.1, 0.1), samples=48, data_workers=0)
    # The hooks make the watched steps twice as long.
    waits = PhaseSeconds(name="data wait", seconds=(0.08, 0.08, 0.08))
    balance = Balance(step_s=(0.2, 0.2, 0.2), phases=(waits,))

    text = " ".join(rendered(summary_ending(replace(with_passes(main), balance=balance))).split())

    assert "data wait 40 %" in text
    assert "with workers up to 267 samples/s instead of 160" in text


def test_the_ending_accounts_for_the_whole_run() -> None:
    main = replace(CLEAN, total_s=10.0, step_s=(0.5, 0.4, 0.4))
    main = replace(main, periods=(PeriodTime(name="evaluation", seconds=8.5, times=6),))

    text = " ".join(rendered(summary_ending(with_passes(main))).split())

    shares = [int(one) for one in re.findall(r"\((\d+) %\)", text)]
    assert "evaluation 8.50 s (85 %)" in text
    assert 100 == sum(shares)


@pytest.mark.parametrize("columns", [80, 60])
def test_a_summary_fits_its_terminal(columns: int) -> None:
    text = rendered(summary_view(load_summary(PROFILES / "first_profile.json")), columns)
    kept = text[: text.index("\nfiles")].splitlines()
    assert [] == [line for line in kept if cell_len(line) > columns]


@pytest.mark.parametrize(
    ("summary", "warning"),
    [
        (with_passes(replace(CLEAN, step_s=(1.0, 1.0))), "only 2 steps"),
        (with_passes(PROFILED), "no clean pass was made"),
        (with_passes(CLEAN, replace(PROFILED, step_s=(0.1, 0.1, 0.1))), "faster than the clean one"),
        (replace(SUMMARY, commit=None), "not filed under a commit"),
        (replace(SUMMARY, commit=Commit(sha="a" * 40, dirty=True)), "tracked files differ"),
        (replace(SUMMARY, problem="the lines pass failed"), "the lines pass failed"),
    ],
)
def test_warnings(summary: ProfileSummary, warning: str) -> None:
    assert any(warning in found for found in warnings(summary))
    assert f"warning: {warning}" in rendered(summary_view(summary)) or "warning: " in rendered(
        summary_view(summary)
    )
    assert [] == warnings(SUMMARY)


def test_distortion_compares_watched_steps() -> None:
    assert (1.5, 2.0) == (SUMMARY.distortion("cprofile"), SUMMARY.distortion("torch"))
    assert SUMMARY.distortion("clean") is None
    assert SUMMARY.distortion("lines") is None
    few = with_passes(replace(CLEAN, step_s=(1.0, 0.5)), replace(PROFILED, step_s=(2.0, 1.0)))
    assert 2.0 == few.distortion("cprofile")


@pytest.mark.parametrize("kind", ["summary", "reading"])
def test_device_memory_by_phase_is_shown_where_it_was_recorded(kind: str) -> None:
    balance = Balance(step_s=(1.0,), phases=(), memory=PHASES[::-1])
    view = (
        summary_view(replace(SUMMARY, balance=balance))
        if kind == "summary"
        else reading_view(replace(TRACE, memory=PHASES))
    )

    found = rows(view)

    head = found.index("device memory, most in a step tensors reserved unusable retries")
    assert "forward 3.00 GiB 4.00 GiB 1.00 MiB" == found[head + 1]
    assert "optimizer 2.00 GiB 4.00 GiB 0 B 2" == found[head + 2]
    assert "device memory" not in rendered(summary_view(SUMMARY)) + rendered(reading_view(TRACE))


STEADY = LineMemory(kind="tensors", place="train.py:3", alive=(8,) * 6, allocated=(16,) * 6)
SMALL = LineMemory(kind="Python", place="train.py:4", alive=(1, 2, 3, 4, 5, 6))
LARGE = LineMemory(
    kind="tensors",
    place="a/long/path/to/a/file/of/a/project/training.py:12",
    what="aten::zeros",
    alive=tuple(10_000 * step for step in range(1, 7)),
    allocated=(10_000,) * 6,
)


@pytest.mark.parametrize(
    ("memory", "sentence"),
    [
        (
            MemoryProfile(steps=6, lines=(STEADY, SMALL, LARGE)),
            (
                "leak: a/long/path/to/a/file/of/a/project/training.py:12 (tensors, aten::zeros) grows in each"
                " step after the set-up, by 9.77 KiB: something still holds what it allocates 1 line more"
                " grows in each step, by 1 B together"
            ),
        ),
        (MemoryProfile(steps=6, lines=(STEADY,)), "no line grows in each step after the set-up: no leak"),
        (
            MemoryProfile(steps=2, lines=(STEADY,)),
            "2 steps: too few to distinguish a leak from what is set up once",
        ),
        (MemoryProfile(steps=6, lines=(STEADY,), not_seen="tensors"), "not seen: tensors"),
    ],
    ids=["leak", "none", "few", "not seen"],
)
def test_memory_by_line_names_what_leaks(memory: MemoryProfile, sentence: str) -> None:
    text = rendered(summary_view(replace(SUMMARY, memory=memory)))

    assert sentence in " ".join(text.split())
    table = text[text.index("tensors, by bytes allocated in a step") : text.index("memory that stays")]
    assert table.index("train.py:3") == max(table.rfind("train.py:3"), table.rfind("training.py"))
    assert "by bytes" not in rendered(summary_view(SUMMARY))


def test_the_index_is_in_order_of_time() -> None:
    later = replace(SUMMARY, name="second", recorded_at=datetime(2026, 2, 1, tzinfo=UTC))
    text = index_markdown([later, SUMMARY])
    assert text.index("| first_profile") < text.index("| second")
    assert text == index_markdown([SUMMARY, later])


def test_damaged_files_are_named_below_the_index() -> None:
    text = index_markdown([], damaged={"a`b.json": "no <b>"})
    assert "- `` a`b.json `` cannot be read: no \\<b>" == text.splitlines()[-1]
