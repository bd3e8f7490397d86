"""The difference of two profiles has parts that add up, and sentences that follow from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from explained import ITEM, LOCK, TO, TickClock, call, function, part, read_table, reading
from hypothesis import given
from hypothesis import strategies as st

from perfkit.model.profiles import Difference
from perfkit.model.readings import Call, FunctionTime, OperatorTime, PhaseTime, Reading, StepTimes
from perfkit.profiling.diff.attribution import (
    changed_only,
    equal_work,
    find_suspect,
    function_section,
    quietest,
)
from perfkit.profiling.diff.difference import explain, merged
from perfkit.profiling.read.formats import read_bytes
from perfkit.profiling.read.names import CodeNames

HERE = Path(__file__).resolve()
SHARED_DATA = HERE.parents[2].parent / "shared" / "data"
LOADER = "torch/utils/data/dataloader.py"
WORKER = "torch/utils/data/_utils/worker.py"


def trace(*phases: tuple[str, float, int | None], device_busy_s: float | None = None) -> Reading:
    """Return a trace of one step with phases: seconds, and calls of operators."""
    return Reading(
        name="x.json",
        origin="torch trace",
        total_s=sum(seconds for _, seconds, _ in phases),
        steps=StepTimes(count=1, sign="ProfilerStep"),
        phases=tuple(PhaseTime(name=name, seconds=seconds, calls=calls) for name, seconds, calls in phases),
        device_busy_s=device_busy_s,
    )


def loop(
    *, forward_s: float = 1.0, items: int = 1, wait_s: float = 0.5, to_s: float = 0.4, item_s: float = 0.0
) -> Reading:
    """Return a cProfile of a training loop that waits for its loader and its device."""
    return reading(
        function("train", own_s=0.1),
        function("forward", call(0, forward_s), own_s=forward_s, file="net.py", line=7),
        function("_next_data", call(0, wait_s), file=LOADER, kind="library"),
        function(LOCK, call(2, wait_s), own_s=wait_s),
        function(TO, call(0, to_s), own_s=to_s),
        function(ITEM, call(0, item_s, calls=items), own_s=item_s),
    )


def saying(difference: Difference, *words: str) -> list[str]:
    return [one for one in difference.findings if all(word in one for word in words)]


def test_a_reading_does_not_differ_from_itself() -> None:
    everything = replace(
        loop(),
        phases=(PhaseTime(name="forward", seconds=2.0, calls=9),),
        operators=(OperatorTime(name="aten::mm", place="cpu", calls=3, own_s=1.0, cumulative_s=1.0),),
    )
    found = explain(everything, everything, workers=(loop(), loop()))
    assert ("a step takes 2.00 s on base and 2.00 s on head: +0 s (+0.0 %)",) == found.findings
    assert ["phases", "functions", "the loader's workers", "operators"] == [
        one.title for one in found.sections
    ]
    assert {0.0} == {one.amount.moved_s for section in found.sections for one in section.parts}
    assert all(0.0 == pytest.approx(section.remainder_s, abs=1e-12) for section in found.sections)


def test_new_and_gone_functions_are_named() -> None:
    found = explain(
        reading(function("old", own_s=1.0, calls=3)), reading(function("new", own_s=3.0, file="b.py"))
    )
    assert ["new (b.py:1): +3.00 s a step, 300.0 % of base", "old (train.py:1): -1.00 s a step"] == [
        one.removesuffix(", 100.0 % of base") for one in found.findings[1:]
    ]


def test_who_waits_first_changes_no_count() -> None:
    def two(first_s: float, then_s: float) -> Reading:
        return reading(
            function("first", own_s=1.0),
            function("then", own_s=1.0),
            function(ITEM, call(0, first_s, calls=5), call(1, then_s, calls=5), own_s=first_s + then_s),
        )

    assert not saying(explain(two(1.0, 0.0), two(0.0, 1.0)), "calls Tensor.item")


def test_a_longer_wait_for_the_loader_is_named() -> None:
    found = explain(loop(), loop(wait_s=1.5))
    assert ("waiting for the loader's workers (lock.acquire): +1.00 s a step, 50.0 % of base",) == (
        found.findings[1:]
    )


def test_a_debt_that_shows_elsewhere_has_only_moved() -> None:
    found = explain(loop(to_s=0.4, item_s=0.0), loop(to_s=0.0, item_s=0.4))
    (shown,) = found.findings[1:]
    assert shown.startswith("waiting for the device, or a copy only moved: ")
    assert shown.endswith(": it showed as Tensor.to and shows as Tensor.item now (400 ms, 400 ms a step)")


def test_a_wait_that_moved_is_reported_though_both_calls_are_on_both_sides() -> None:
    found = explain(loop(to_s=0.01, item_s=0.4), loop(to_s=0.5, item_s=0.01))
    assert (
        "waiting for the device, or a copy (Tensor.to): +100 ms a step, 5.0 % of base",
        (
            "waiting for the device, or a copy moved to another call: it showed as Tensor.item and shows as"
            " Tensor.to now (410 ms, 510 ms a step)"
        ),
    ) == found.findings[1:]


@pytest.mark.parametrize("head", [(0.19, 0.21), (0.3, 0.1)])
def test_a_wait_of_two_calls_has_not_moved_by_a_part(head: tuple[float, float]) -> None:
    to_s, item_s = head
    found = explain(loop(to_s=0.21, item_s=0.19), loop(to_s=to_s, item_s=item_s))
    assert not saying(found, "moved to another call")
    assert not saying(found, "only moved")


def worker(transform_s: float, wait_s: float = 0.5) -> Reading:
    return reading(
        function("_worker_loop", own_s=0.1, file=WORKER, kind="library"),
        function("crop", call(0, transform_s), own_s=transform_s, file="data.py", line=4),
        function("{method 'poll' of 'select.poll' objects}", call(0, wait_s), own_s=wait_s),
        steps=None,
    )


def test_a_slower_transform_in_the_workers_is_named_as_theirs() -> None:
    found = explain(loop(), loop(), workers=(worker(1.0), worker(1.5, wait_s=0.1)))
    assert (
        "in the loader's workers, crop (data.py:4): +500 ms a step, 31.2 % of base",
        "in the loader's workers, waiting for the main process (poll.poll): -400 ms a step, 25.0 % of base",
    ) == found.findings[1:]
    assert "worker" == part(found, "crop", "the loader's workers").kind


def test_what_one_profile_alone_covers_is_reported() -> None:
    balanced = replace(loop(), phases=(PhaseTime(name="data wait", seconds=0.5),))
    found = explain(replace(loop(), name="a.stat", warnings=("odd",)), balanced, workers=(None, worker(1.0)))
    assert (
        f"only {balanced.name} has phases: not compared",
        f"only {balanced.name} has the loader's workers: not compared",
        "a.stat: odd",
    ) == found.warnings
    assert () == explain(balanced, balanced).warnings


OTHERS = (("forward and loss", 0.30, 100), ("backward", 0.20, 200))


def test_a_phase_that_explains_all_is_reported() -> None:
    found = explain(
        trace(("data wait", 0.70, 500), *OTHERS, ("residual", 0.01, None), device_busy_s=0.4),
        trace(("data wait", 0.10, 12), *OTHERS, ("residual", 0.02, None), device_busy_s=0.41),
    )
    (shown,) = found.findings[1:]
    assert (
        "the difference is the data wait's alone: -600 ms a step; the other phases do the same work on both"
        " sides (device busy 400 ms and 410 ms) and take +10.0 ms together"
    ) == shown


def test_a_phase_is_not_alone_where_another_does_other_work() -> None:
    found = explain(
        trace(("data wait", 0.70, 500), *OTHERS),
        trace(("data wait", 0.10, 12), ("forward and loss", 0.30, 200), ("backward", 0.20, 200)),
    )
    assert ("the data wait moved by -600 ms a step",) == found.findings[1:]


def test_two_phases_that_moved_are_both_named() -> None:
    found = explain(
        trace(("data wait", 0.1, 5), ("forward", 0.3, 9), ("residual", 0.1, None)),
        trace(("data wait", 0.3, 5), ("forward", 0.6, 9), ("residual", 0.2, None)),
    )
    assert [
        "the forward moved by +300 ms a step",
        "the data wait moved by +200 ms a step",
        "what no event covers moved by +100 ms a step",
    ] == list(found.findings[1:])


def test_equal_work_is_not_claimed_of_what_was_not_counted() -> None:
    found = explain(
        trace(("data wait", 0.7, None), ("forward", 0.3, None)),
        trace(("data wait", 0.1, None), ("forward", 0.3, None)),
    )
    assert (
        "the difference is the data wait's alone: -600 ms a step; the other phases take +0 s together",
    ) == (found.findings[1:])


def test_the_residual_may_explain_it_alone() -> None:
    found = explain(trace(*OTHERS, ("residual", 0.1, None)), trace(*OTHERS, ("residual", 0.4, None)))
    assert saying(found, "the difference is what no event covers alone: +300 ms a step")


def test_phases_stand_as_a_step_goes_through_them() -> None:
    found = explain(
        trace(("forward", 1.0, 1), ("backward", 1.0, 1), ("logging", 1.0, 1), ("residual", 0.0, None)),
        trace(("data wait", 1.0, 1), ("forward", 1.0, 1), ("optimizer", 1.0, 1), ("residual", 0.0, None)),
    )
    (section,) = found.sections
    assert ["data wait", "forward", "optimizer", "backward", "logging", "residual"] == [
        one.name for one in section.parts
    ]


def test_a_part_that_is_missing_is_the_remainder() -> None:
    base = reading(function("f", own_s=1.0))
    found = explain(base, replace(base, total_s=1.5))
    (section,) = found.sections
    assert 0.5 == pytest.approx(section.remainder_s)
    assert 0.5 == pytest.approx(section.whole.moved_s)


def test_operators_are_parted_by_their_place() -> None:
    def operators(mm_s: float, kernel_s: float) -> Reading:
        return replace(
            trace(("forward", 1.0, 1)),
            operators=(
                OperatorTime(name="aten::mm", place="cpu", calls=3, own_s=mm_s, cumulative_s=9.0),
                OperatorTime(name="aten::add", place="cpu", calls=3, own_s=0.1, cumulative_s=9.0),
                OperatorTime(name="sgemm", place="device", calls=2, own_s=kernel_s, cumulative_s=9.0),
            ),
        )

    found = explain(operators(0.1, 0.5), operators(0.4, 0.25))
    kinds = {section.title: [(one.name, one.kind) for one in section.parts] for section in found.sections[1:]}
    assert {
        "operators": [("aten::mm", "operator"), ("aten::add", "operator")],
        "on the device": [("sgemm", "kernel")],
    } == kinds
    assert [0.3, -0.25] == pytest.approx([section.whole.moved_s for section in found.sections[1:]])
    assert [0.3, 0.0] == pytest.approx([one.amount.moved_s for one in found.sections[1].parts])


_NAMES = st.sampled_from(["main", "f", "<lambda>", "<listcomp>", LOCK, ITEM, "{built-in method len}"])
_SECONDS = st.one_of(st.just(0.0), st.floats(1e-9, 1_000))


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    """Return a profile of functions that call each other in any way."""
    size = draw(st.integers(1, 12))
    calls = st.builds(call, st.integers(0, size - 1), _SECONDS, st.integers(0, 9))

    def drawn() -> FunctionTime:
        name = draw(_NAMES)
        return function(
            name,
            *draw(st.lists(calls, max_size=4, unique_by=lambda one: one.caller)),
            own_s=draw(_SECONDS),
            file=draw(st.sampled_from(["a.py", "b.py"])),
            kind=None if name.startswith("{") else draw(st.sampled_from(["own", "library"])),
        )

    return reading(*(drawn() for _ in range(size)), steps=draw(st.integers(1, 5)))


@given(readings(), readings())
def test_the_parts_are_the_whole_on_both_sides(base: Reading, head: Reading) -> None:
    (section,) = explain(base, head).sections
    assert section.whole.base_s == pytest.approx(sum(one.amount.base_s for one in section.parts), abs=1e-9)
    assert section.whole.head_s == pytest.approx(sum(one.amount.head_s for one in section.parts), abs=1e-9)
    assert 0.0 == pytest.approx(section.remainder_s, abs=1e-6)


@given(readings(), readings())
def test_the_other_way_round_everything_has_the_other_sign(base: Reading, head: Reading) -> None:
    there, back = explain(base, head), explain(head, base)
    assert there.whole.moved_s == -back.whole.moved_s
    moves = sorted(one.amount.moved_s for one in there.sections[0].parts)
    assert moves == pytest.approx(sorted(-one.amount.moved_s for one in back.sections[0].parts))


def profiled(*, slow: int = 2, reads: int = 1) -> Reading:
    """Return the cProfile of a small training loop of three steps that really ran."""
    clock = TickClock()
    fetch, compute = clock.spend(5), clock.spend(slow)
    loss = torch.tensor(1.0)

    def batch() -> None:
        fetch()

    def penalty() -> float:
        compute()
        return sum(loss.item() for _ in range(reads))

    def train() -> None:
        for _ in range(3):
            batch()
            penalty()

    return read_table(clock.profile(train), steps=3)


def line_of(name: str, found: Reading) -> int:
    (line,) = (one.line for one in found.functions if one.function == name)
    return line


def test_a_real_slow_function_is_named() -> None:
    head = profiled(slow=6)
    found = explain(profiled(), head)
    assert "a step takes 7.00 ms on base and 11.0 ms on head: +4.00 ms (+57.1 %)" == found.findings[0]
    # What spends the ticks is a function of these tests, too: it stands for a hot function of one's own.
    (shown,) = found.findings[1:]
    assert shown.startswith("<lambda> (")
    assert shown.endswith(": +4.00 ms a step, 57.1 % of base")


def test_a_real_item_more_is_named_by_its_count() -> None:
    head = profiled(reads=2)
    found = explain(profiled(), head)
    place = f"tests/profiling/{HERE.name}:{line_of('penalty', head)}"
    assert (
        f"penalty ({place}) calls Tensor.item 2 times a step, on base 1: each may stand still for a device",
    ) == found.findings[1:]


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the shared data")
def test_a_resnet_with_and_without_workers() -> None:
    base, head = (
        read_bytes((SHARED_DATA / name).read_bytes(), name, CodeNames())
        for name in ("resnet50_num_workers_0.trace.json.gz", "resnet50_num_workers_4.trace.json.gz")
    )
    found = explain(base, head)
    assert "step" == found.unit
    assert (0.175, 0.140) == pytest.approx((found.whole.base_s, found.whole.head_s), rel=0.01)
    wait = part(found, "data wait", "phases").amount
    assert (69e-3, 1.4e-3) == pytest.approx((wait.base_s, wait.head_s), rel=0.03)
    assert saying(found, "the difference is the data wait's alone", "do the same work on both sides")
    assert all(0.0 == pytest.approx(section.remainder_s, abs=1e-9) for section in found.sections)


def test_callers_are_found_where_they_are_now() -> None:
    first = reading(function("a"), function("g", call(0, 1.0)))
    second = reading(function("g", call(1, 2.0, calls=3)), function("b"), function("a"))
    found = merged([first, second], "both")

    callers = next(one.callers for one in found.functions if one.function == "g")
    assert {("a", 1, 1.0), ("b", 3, 2.0)} == {
        (found.functions[made.caller].function, made.calls, made.cumulative_s) for made in callers
    }


def _profile(**own_s: float) -> Reading:
    """Return a profile of ``top``, which calls ``push`` and ``render``, which calls ``escape``."""
    names: dict[str, tuple[Call, ...]] = {
        "top": (),
        "push": (call(0),),
        "render": (call(0),),
        "escape": (call(2, own_s["escape"]),),
    }
    return reading(
        *(function(name, *by, own_s=own_s[name], line=line) for line, (name, by) in enumerate(names.items()))
    )


BASE = {"top": 1.0, "push": 8.0, "render": 4.0, "escape": 2.0}


@pytest.mark.parametrize(
    ("head", "changed", "suspect"),
    [
        pytest.param({"push": 11.0, "render": 5.5}, {"render"}, "render", id="others moved by chance"),
        pytest.param({"render": 5.5, "escape": 1.0}, {"render", "top"}, "render", id="the one that moved"),
        pytest.param({"escape": 5.0}, {"render"}, "render", id="it has others do more"),
        pytest.param({"escape": 5.0}, {"render", "escape"}, "escape", id="its callee changed as well"),
        pytest.param({"push": 11.0}, {"escape"}, None, id="it took no more time"),
        pytest.param({"push": 11.0}, set(), None, id="nothing changed"),
    ],
)
def test_the_changed_function_that_took_more_time_is_suspected(
    head: dict[str, float], changed: set[str], suspect: str | None
) -> None:
    before, after = _profile(**BASE), _profile(**{**BASE, **head})
    lines = {"train.py": [range(line, line + 1) for line, name in enumerate(BASE) if name in changed]}
    work = equal_work(before, after)

    found = find_suspect(
        function_section(before, after, work), changed_only(before, lines), changed_only(after, lines), work
    )

    assert suspect == (found.name if found else None)


def test_a_changed_function_that_makes_more_calls_is_suspected_where_times_moved_by_chance() -> None:
    top, other = function("top", own_s=8.0), function("other", call(0, 8.0), own_s=8.0, line=5)
    before = reading(top, function("f", call(0, 1.0), own_s=1.0, line=7), other)
    after = reading(
        function("top", own_s=12.0),
        function("f", call(0, 0.9), own_s=0.9, line=7),
        function("other", call(0, 12.0), own_s=12.0, line=5),
        function("{built-in method builtins.min}", call(1, 0.1), own_s=0.1),
    )
    lines, work = {"train.py": [range(7, 8)]}, equal_work(before, after)

    def suspect(head: Reading) -> str | None:
        section = function_section(before, head, work)
        found = find_suspect(section, changed_only(before, lines), changed_only(head, lines), work)
        return found.name if found else None

    assert "f" == suspect(after)
    assert suspect(replace(after, functions=after.functions[:3])) is None


def test_a_function_that_other_work_slowed_in_one_turn_is_as_quick_as_in_the_others() -> None:
    turns = [(_profile(**{**BASE, "push": 30.0}), 1), (_profile(**{**BASE, "render": 9.0}), 1)]

    found, calls = quietest(turns)

    assert 1 == calls
    assert {one.function: one.own_s for one in found.functions} == BASE
    assert sum(BASE.values()) == found.total_s


def test_the_quietest_turn_is_the_one_with_the_least_time_for_each_of_its_calls() -> None:
    one, three = _profile(**BASE), _profile(**{name: 2 * own_s for name, own_s in BASE.items()})

    found, calls = quietest([(one, 1), (three, 3)])

    assert 3 == calls
    assert 2 * sum(BASE.values()) == pytest.approx(found.total_s)
