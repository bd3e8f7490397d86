"""Profiles for people: what a file holds, what `perfkit profile` learned, and the index of saved ones."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.agent.counters.model import Cause
from perfkit.model import ABSENT, Balance, PassName, PassSummary, ProfileEntry, ProfileSummary, RankProfile
from perfkit.model.counters import SYNCS, TITLES
from perfkit.model.readings import (
    DATA,
    RANKS,
    RESIDUAL,
    DeviceTime,
    FunctionTime,
    IdleCause,
    OperatorTime,
    Reading,
    phase_title,
)
from perfkit.profiling.read.summary_file import reading_of
from perfkit.report.markdown_table import cell_code, code, escape, table_head, table_row
from perfkit.report.memory import line_memory_views, phase_memory_table
from perfkit.report.names import Folded, named_table, spaced, without_folders
from perfkit.units import amount_text, counted, human_calls, human_percent, human_seconds

_ENTRIES = 10
_NAME_COLUMNS = 40
_WORTH_SHOWING = 0.001
_FEW_STEPS = 3
# A part of a step is named from this share on.
_NAMED = 0.005
_NEARLY_ALL = 0.9
_FEW_RANKS = 2
_MUCH_OF_A_STEP = 0.03
_FASTER_THAN_CLEAN = 0.9
_SLOWED = 1.2
# A step so many times as long as the longest clean one was disturbed.
_FAR_BEYOND = 2.0
_OPTIMIZERS_STEP = "an optimizer's step"
_IDLE: tuple[tuple[IdleCause, str], ...] = (
    ("host", "idle, its next work not launched"),
    ("sync", "idle, the host waiting for it"),
    ("queue", "idle, its next work launched"),
)


def reading_view(reading: Reading) -> Group:
    """Return all that is shown of a profile's file, the most important first."""
    return spaced(
        _reading_head(reading),
        _phases(reading),
        phase_memory_table(reading.memory),
        _waits(reading),
        *_devices(reading),
        *_functions(reading),
        *_operators(reading),
        *(Folded(f"note: {one}", style="yellow") for one in notes(reading)),
    )


def reading_sentence(reading: Reading) -> str:
    """Return how long a profile took, and a training step in it, in a sentence."""
    whole = f"{reading.name}: {human_seconds(reading.total_s, digits=6)}, {_origin(reading)}"
    if reading.steps is None:
        return whole
    step = human_seconds(reading.step_s, digits=4)
    return f"{whole}, {counted(reading.steps.count, 'step')} of {step} each"


def notes(reading: Reading) -> list[str]:
    """Return notes on numbers that do not mean what they seem to mean."""
    found = list(reading.warnings)
    if reading.steps is None and reading.origin != "torch trace":
        found.append("no optimizer and no backward pass was called: there is no time per step")
    elif reading.steps is not None and reading.steps.count < _FEW_STEPS:
        found.append(
            f"only {counted(reading.steps.count, 'step')}, with the set-up in the total: no other"
            " profile's total can be compared with it"
        )
    return found


def _facts(*rows: tuple[str | Text, str, str]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def _reading_head(reading: Reading) -> Table:
    total_s = human_seconds(reading.total_s, digits=6)
    table = _facts((Text(reading.name, style="bold"), total_s, _origin(reading)))
    if reading.steps is not None:
        spread = "the whole over the steps"
        if seconds := reading.steps.seconds:
            median, longest = human_seconds(statistics.median(seconds)), human_seconds(max(seconds))
            spread = f"mean; median {median}, longest {longest}"
        table.add_row("steps", str(reading.steps.count), f"by {reading.steps.sign}")
        table.add_row("time per step", human_seconds(reading.step_s, digits=4), spread)
    if reading.device_busy_s is not None:
        share, unit = _share(reading, reading.device_busy_s), "a step, " if reading.steps else ""
        table.add_row("device busy", _each(reading, reading.device_busy_s), f"{unit}{share} of the time")
    return table


def _origin(reading: Reading) -> str:
    calls = f", {reading.calls:,} calls" if reading.calls is not None else ""
    ranks = f", one of {reading.world_size} ranks" if (reading.world_size or 1) > 1 else ""
    return f"{reading.origin}{calls}{ranks}"


def _phases(reading: Reading) -> Table | None:
    if not reading.phases:
        return None
    table = named_table("a step is made of", "a step", "share")
    # A saved profile has its phases from another pass than its functions: they are parts of their own sum.
    whole_s = sum(phase.seconds for phase in reading.phases)
    for phase in reading.phases:
        share = human_percent(phase.seconds / whole_s if whole_s else None)
        table.add_row(Text(phase_title(phase.name)), _each(reading, phase.seconds), share)
    return table


def _waits(reading: Reading) -> Table | None:
    waits = [wait for wait in reading.waits if wait.seconds >= _WORTH_SHOWING * reading.total_s]
    if not waits:
        return None
    table = named_table("waiting for", "calls", "seconds", "a step", "share")
    for wait in waits:
        name = Text(wait.whom).append(f"  {', '.join(wait.through[:2])}", style="dim")
        share, step_s = _share(reading, wait.seconds), _a_step(reading, wait.seconds)
        table.add_row(name, f"{wait.calls:,}", human_seconds(wait.seconds), step_s, share)
    return table


def _devices(reading: Reading) -> Iterator[RenderableType]:
    for one in reading.devices:
        table = named_table(f"device {one.name}", "a step" if reading.steps else "seconds", "share")
        for title, seconds in (
            ("computes", one.compute_s),
            ("communicates only", one.communication_s),
            ("copies only", one.copy_s),
            *((title, one.idle_s.get(cause, 0.0)) for cause, title in _IDLE),
        ):
            if seconds >= _WORTH_SHOWING * reading.total_s:
                table.add_row(title, _each(reading, seconds), _share(reading, seconds))
        yield Group(table, Folded(_device_note(one, reading), hanging="", style="dim"))


def _device_note(one: DeviceTime, reading: Reading) -> str:
    """Return how small a device's work is, and what the host did while the device had nothing to do."""
    each = reading.steps.count if reading.steps else 1
    unit = "a step" if reading.steps else "in all"
    short = human_percent(one.short_kernels / one.kernels if one.kernels else None)
    sentences = [f"{one.kernels / each:,.0f} kernels {unit}, {short} of them shorter than 5 us"]
    during = [part for part in one.waited_for if part.seconds >= _WORTH_SHOWING * reading.total_s]
    if during:
        parts = (f"{_each(reading, part.seconds)} in {part.name}" for part in during[:3])
        sentences.append(f"while it had nothing to do, the host was {', '.join(parts)}")
    return "; ".join(sentences)


def _functions(reading: Reading) -> Iterator[RenderableType]:
    own = [one for one in reading.functions if one.kind == "own"]
    library = [one for one in reading.functions if one.kind != "own"]
    for title, entries, by in (
        ("own code, by cumulative time", own, "cumulative_s"),
        ("own code, by own time", own, "own_s"),
        ("library code, by own time", library, "own_s"),
    ):
        if entries:
            yield _time_table(title, sorted(entries, key=attrgetter(by), reverse=True), by, reading)


def _operators(reading: Reading) -> Iterator[RenderableType]:
    for title, place in (("operators, by own time", "cpu"), ("on the device", "device")):
        entries = [one for one in reading.operators if one.place == place]
        if entries:
            yield _time_table(title, entries, "own_s", reading)


class _Timed(Protocol):
    """A function or an operator."""

    @property
    def calls(self) -> int: ...
    @property
    def own_s(self) -> float: ...
    @property
    def cumulative_s(self) -> float: ...


def _time_table(title: str, entries: Sequence[_Timed], by: str, reading: Reading) -> Table:
    table = named_table(title, "calls", "self", "total", "a step", "share")
    for one in entries[:_ENTRIES]:
        seconds: float = getattr(one, by)
        if isinstance(one, OperatorTime):
            name, share = Text(one.name), _share(reading, seconds if one.busy_s is None else one.busy_s)
        elif seconds < _WORTH_SHOWING * reading.total_s:
            break
        else:
            name, share = _function_name(one), _share(reading, seconds)
        own_s, cumulative_s = human_seconds(one.own_s), human_seconds(one.cumulative_s)
        table.add_row(name, f"{one.calls:,}", own_s, cumulative_s, _a_step(reading, seconds), share)
    return (
        table if table.row_count else named_table(f"{title}: nothing above {human_percent(_WORTH_SHOWING)}")
    )


def _function_name(one: object) -> Text:
    assert isinstance(one, FunctionTime | ProfileEntry)  # noqa: S101 (all else is an operator)
    if one.kind == "builtin" or not one.line:
        return Text(one.function)
    place = without_folders(f"{one.file}:{one.line}", _NAME_COLUMNS - len(one.function))
    return Text(one.function).append(f"  {place}", style="dim")


def _each(reading: Reading, seconds: float) -> str:
    return human_seconds(seconds / reading.steps.count if reading.steps else seconds)


def _a_step(reading: Reading, seconds: float) -> str:
    return _each(reading, seconds) if reading.steps else "-"


def _share(reading: Reading, seconds: float) -> str:
    return human_percent(seconds / reading.total_s if reading.total_s else None)


def ranks_view(readings: Sequence[Reading]) -> Group | None:
    """Return what the ranks of one training were busy with, None for profiles that are no such ranks."""
    ranks = sorted(
        (one for one in readings if one.rank is not None and one.devices), key=lambda one: one.rank or 0
    )
    if len({one.rank for one in ranks}) != len(ranks) or len(ranks) < _FEW_RANKS:
        return None
    table = named_table("rank", "a step", "computes", "in collectives", "idle")
    for one in ranks:
        computes_s = sum(device.compute_s for device in one.devices)
        idle_s = sum(sum(device.idle_s.values()) for device in one.devices)
        parts = (one.total_s, computes_s, _collectives_s(one), idle_s)
        table.add_row(f"{one.rank}  {one.name}", *(_each(one, seconds) for seconds in parts))
    together = {one.rank: _collectives_s(one) / (one.steps.count if one.steps else 1) for one in ranks}
    last = min(ranks, key=lambda one: together[one.rank])
    lead_s = statistics.median(together[one.rank] for one in ranks if one is not last) - together[last.rank]
    sentence = "no rank is waited for: all are about as long in collectives"
    if lead_s >= _MUCH_OF_A_STEP * (last.step_s or last.total_s):
        unit = "a step" if last.steps else "in all"
        sentence = (
            f"rank {last.rank} is waited for: it is {human_seconds(lead_s)} {unit} less in collectives than"
            " the others"
        )
    return spaced(Group(table, Folded(sentence, hanging="")))


def _collectives_s(reading: Reading) -> float:
    return sum(one.collectives_s for one in reading.devices)


def reading_text(reading: Reading, *, own_only: bool = False) -> str:
    """Return functions and operators by cumulative time in pstats' columns, with ``own_only`` own code."""
    functions = [one for one in reading.functions if one.kind == "own" or not own_only]
    calls = f"{reading.calls} calls" if reading.calls is not None else "calls"
    steps = f", {counted(reading.steps.count, 'step')} (by {reading.steps.sign})" if reading.steps else ""
    own = f"Own code only: {len(functions)} of {counted(len(reading.functions), 'function')}."
    lines = [
        f"{reading.name}: {calls} in {reading.total_s:.3f} seconds{steps}",
        own if own_only else "",
        "   Ordered by: cumulative time",
        "",
    ]
    if reading.functions:
        lines.append("   ncalls  tottime  percall  cumtime  percall filename:lineno(function)")
    for one in sorted(functions, key=lambda one: -one.cumulative_s):
        many = f"{one.calls}/{one.primitive_calls}" if one.calls != one.primitive_calls else str(one.calls)
        place = one.function if one.kind == "builtin" else f"{one.file}:{one.line}({one.function})"
        lines.append(_pstats_line(many, one, one.primitive_calls, place))
    if reading.operators:
        lines.append("   ncalls  tottime  percall  cumtime  percall operator")
    for operator in sorted(reading.operators, key=lambda one: -one.cumulative_s):
        place = operator.name if operator.place == "cpu" else f"{operator.name} (device)"
        lines.append(_pstats_line(str(operator.calls), operator, operator.calls, place))
    return "\n".join(lines) + "\n"


def _pstats_line(calls: str, one: _Timed, primitive_calls: int, place: str) -> str:
    own_each, cumulative_each = one.own_s / max(one.calls, 1), one.cumulative_s / max(primitive_calls, 1)
    return (
        f"{calls:>9} {one.own_s:8.3f} {own_each:8.3f} {one.cumulative_s:8.3f} {cumulative_each:8.3f} {place}"
    )


def summary_ending(summary: ProfileSummary, *, folder: Path = Path()) -> Group:
    """Return ten lines of a profile: what a step is made of, its bound, own code, and the next command."""
    main, balance, profiled = summary.main_pass, summary.balance, summary.pass_named("cprofile")
    lines = []
    if main.step_s:
        mean, median = human_seconds(main.mean_step_s), human_seconds(main.typical_step_s)
        parts = [
            f"{name} {human_seconds(seconds)} ({100 * seconds / main.total_s:.0f} %)"
            for name, _, seconds in _parts_of(main)
            if seconds >= _NAMED * main.total_s
        ]
        lines = [f"of that: {', '.join(parts)}"] if parts[1:] else []
        lines += [f"a step takes {mean} (mean; median {median})"]
    if balance is not None and balance.step_s:
        shares = (
            f"{name} {100 * share:.0f} %" for name, _, share in _phase_times(main, balance) if share >= _NAMED
        )
        lines += [f"of a step: {', '.join(shares)}", *filter(None, [_bound(main, balance)])]
    lines += [_straggler(summary)] if summary.ranks else []
    for one in summary.counts.counts if summary.counts else ():
        if one.metric == SYNCS and one.values[-1]:
            # One cause alone has the amount of the whole.
            words = [_cause(cause, "1") if one.causes[1:] else _what(cause) for cause in one.causes[:2]]
            syncs = "sync" if one.values[-1] == 1 else "syncs"
            where = "" if main.on_device else " (none waited: no GPU is used)"
            lines.append(
                f"{amount_text(one.values[-1], '1')} host-device {syncs} a step{where}: {', '.join(words)}"
            )
    table, found = _lines(replace(summary, lines=summary.lines[:_FEW_STEPS])), warnings(summary)
    own = [entry for entry in summary.entries if entry.kind == "own"]
    if table is None and own and profiled is not None:
        reading = reading_of(replace(summary, entries=tuple(own)), summary.name)
        # A function that calls all the others is no place to change.
        inner = [one for one in reading.functions if one.cumulative_s < _NEARLY_ALL * reading.total_s]
        slowest = sorted(inner or reading.functions, key=attrgetter("cumulative_s"), reverse=True)
        worth = [one for one in slowest if one.cumulative_s >= _NAMED * reading.total_s]
        title = f"own functions (a run of {human_seconds(reading.total_s)} under cProfile)"
        table = named_table(title, "calls", "self", "total", "share")
        for function in worth[:_FEW_STEPS] or slowest[:1]:
            times = human_seconds(function.own_s), human_seconds(function.cumulative_s)
            share = _share(reading, function.cumulative_s)
            table.add_row(_function_name(function), f"{function.calls:,}", *times, share)
    more = f" (and {counted(len(found) - 1, 'other warning')})" if len(found) > 1 else ""
    saved = next((name for name in summary.artifacts if name == f"{summary.name}.json"), None)
    file = shlex.quote(str(folder / saved)) if saved else ""
    return Group(
        _summary_head(summary).renderables[0],
        *(Folded(f"warning: {one}{more}", style="yellow") for one in found[:1]),
        *(Folded(line) for line in lines),
        *([table] if table is not None else []),
        *([Text(f"next: perfkit show {file}  # the whole profile", no_wrap=True)] if saved else []),
    )


def summary_view(summary: ProfileSummary, *, folder: Path = Path()) -> Group:
    """Return what a profile learned, and the next commands for its artifacts in ``folder``."""
    balance, found = summary.balance, warnings(summary)
    sections = spaced(
        _summary_head(summary),
        _passes(summary),
        _ranks(summary),
        _balance(summary),
        phase_memory_table(balance.memory_in_order) if balance else None,
        _counts(summary),
        *_profiled(summary),
        *_roles(summary),
        _backward(summary),
        _lines(summary),
        *(line_memory_views(summary.memory) if summary.memory else ()),
        Group(*(Folded(f"warning: {one}", style="yellow") for one in found)) if found else None,
    )
    return Group(*sections.renderables, *_files(summary, folder))


def _summary_head(summary: ProfileSummary) -> Group:
    main = summary.main_pass
    in_all = "the first {}" if main.ended else "{} in all"
    first = f"{summary.target}: {in_all.format(human_seconds(main.total_s))}"
    if not _has_no_torch(summary):
        plain = main.unit or ("" if main.marked else _OPTIMIZERS_STEP)
        first += f", {counted(main.steps, 'optimizer step' if plain == _OPTIMIZERS_STEP else 'step')}"
    ranks = []
    if summary.ranks:
        first += f", {counted(len(summary.ranks), 'rank')}"
        ranks = [Text("(what follows is of rank 0, except for the table of ranks)", style="dim")]
    rows = []
    if main.unit not in ("", "marked", _OPTIMIZERS_STEP):
        first += f" ({main.unit})"
    if main.step_s:
        used = len(main.typical_steps)
        left_out = ", the first left out" if used < main.steps else ""
        median = human_seconds(main.typical_step_s)
        basis = f"mean of {used}{left_out}; median {median}" if used > 1 else "the only one, with the set-up"
        rows.append(("  time per step", human_seconds(main.mean_step_s), basis))
        rows += _parts(main)
    if main.sample_s is not None:
        rate = f"{human_calls(1 / main.sample_s)} samples/s, {main.samples} samples"
        rows.append(("  time per sample", human_seconds(main.sample_s), rate))
    if main.data_wait_s is not None:
        workers = main.data_workers
        how = f"with {counted(workers, 'worker')}" if workers else "loaded in the process itself"
        share = f"{human_percent(summary.waiting_share)} of the total; {how}"
        rows.append(("  waiting for data", human_seconds(main.data_wait_s), share))
    if summary.waited_s:
        waited = "of waiting for another perfkit"
        rows.append(("  before it began", human_seconds(summary.waited_s), waited))
    return Group(Text(first, style="bold"), *ranks, _facts(*rows))


def _parts(main: PassSummary) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of what the whole run was made of."""
    for name, times, seconds in _parts_of(main):
        many = f", {counted(times, 'step' if name == 'training' else 'time')}" if times > 1 else ""
        share = human_percent(seconds / main.total_s if main.total_s else None)
        yield f"  {name}", human_seconds(seconds), f"{share} of the total{many}"


def _parts_of(main: PassSummary) -> Iterator[tuple[str, int, float]]:
    """Yield name, times and seconds of parts of the whole run, which add up to it."""
    rest_s = main.total_s - sum(main.step_s) - sum(one.seconds for one in main.periods)
    for name, times, seconds in (
        ("first step with set-up", 1, main.step_s[0]),
        ("training", main.steps - 1, sum(main.step_s[1:])),
        *((one.name, one.times, one.seconds) for one in main.periods),
        ("after the last step", 1, max(0.0, rest_s)),
    ):
        if times and seconds:
            yield name, times, seconds


def _passes(summary: ProfileSummary) -> Table:
    table = named_table("pass", "steps", "total", "median step", "profiled / clean")
    for one in summary.passes:
        ratio = summary.distortion(one.name)
        times = human_seconds(one.total_s), human_seconds(one.typical_step_s)
        table.add_row(one.name, str(one.steps), *times, "-" if ratio is None else f"{ratio:.2f}")
    made = {one.name for one in summary.passes}
    for name in summary.configuration.get("passes", "").split(",") if summary.problem else ():
        if name not in made:
            table.add_row(name, "failed", "", "", "")
    return table


def _ranks(summary: ProfileSummary) -> Group | None:
    """Return step times by rank, what each spends in collectives, and which rank the others wait for."""
    if not summary.ranks:
        return None
    table = named_table("by rank", "steps", "per step", "in collectives", "outside of them")
    for rank in summary.ranks:
        table.add_row(f"rank {rank.rank}", *_rank_cells(rank, summary.main_pass.name))
    return Group(table, Folded(_straggler(summary)))


def _rank_cells(rank: RankProfile, main: PassName) -> tuple[str, str, str, str]:
    found, balance = rank.pass_named(main), rank.balance
    steps = str(found.steps if found else 0), human_seconds(found.typical_step_s if found else None)
    if balance is None or not balance.step_s:
        return *steps, "-", "-"
    step_s, together_s = balance.step_s[balance.typical], balance.seconds_of(RANKS)[balance.typical]
    alone_s = statistics.median(step - part for step, part in zip(step_s, together_s, strict=True))
    each_s, whole_s = statistics.median(together_s), statistics.median(step_s)
    share = human_percent(each_s / whole_s if whole_s else None)
    return *steps, f"{human_seconds(each_s)} ({share})", human_seconds(alone_s)


def _straggler(summary: ProfileSummary) -> str:
    found = summary.straggler
    if any(rank.balance is None for rank in summary.ranks):
        return "only the balance pass shows which rank the others wait for, and it was not made"
    if len(summary.ranks) == 1:
        return "one rank waits for nobody"
    if found is None:
        return "no straggler: no rank keeps the others waiting in most steps"
    more = (
        f"its time goes to {found.phase}, {human_seconds(found.phase_s)} a step more than on the others"
        if found.phase_s > 0
        else "no phase of its own takes longer than on the others"
    )
    return (
        f"rank {found.rank} is the straggler: in {found.last} of {counted(found.of, 'step')} the others"
        f" waited for it, {human_seconds(found.waited_s)} a step ({human_percent(found.share)}); {more}"
    )


def _balance(summary: ProfileSummary) -> Group | None:
    """Return a step's phases: means that add up to the clean step, and as they were watched.

    The hooks cost something in each phase, so the shares of the watched steps are applied to the clean ones.
    """
    balance = summary.balance
    if balance is None or not balance.step_s:
        return None
    table = named_table("a step is made of", "mean", "median", "p95", "share")
    steps = _watched_steps(summary.main_pass, balance)
    clean_s = summary.main_pass.mean_step_s or statistics.fmean(balance.step_s[step] for step in steps)
    for name, typical, share in _phase_times(summary.main_pass, balance):
        p95 = typical[min(len(typical) - 1, int(0.95 * len(typical)))]
        watched = human_seconds(statistics.median(typical)), human_seconds(p95)
        table.add_row(Text(name), human_seconds(share * clean_s), *watched, human_percent(share))
    sentences = filter(None, (_bound(summary.main_pass, balance), _hook_cost(balance)))
    return Group(table, *map(Folded, sentences))


def _phase_times(main: PassSummary, balance: Balance) -> Iterator[tuple[str, list[float], float]]:
    """Yield each phase's name, its seconds in the watched steps, sorted, and its share of them."""
    steps = _watched_steps(main, balance)
    whole_s = sum(balance.step_s[step] for step in steps)
    phases = [(phase.name, phase.seconds) for phase in balance.in_order]
    for name, seconds in (*phases, (phase_title(RESIDUAL), balance.residual_s)):
        typical = sorted(seconds[step] for step in steps)
        yield name, typical, sum(typical) / whole_s if whole_s else 0.0


def _watched_steps(main: PassSummary, balance: Balance) -> Sequence[int]:
    """Return the typical steps of a balance pass, without those far beyond any that the clean pass had."""
    steps = range(len(balance.step_s))[balance.typical]
    most_s = _FAR_BEYOND * max(main.typical_steps, default=math.inf)
    return [step for step in steps if balance.step_s[step] <= most_s] or steps


def _bound(main: PassSummary, balance: Balance) -> str:
    """Return how many samples a second the loader could deliver and the rest of a step could take."""
    waits = next((phase.seconds for phase in balance.phases if phase.name == DATA), None)
    if waits is None or not main.samples or not main.steps:
        return ""
    each = main.samples / main.steps
    steps = _watched_steps(main, balance)
    whole_s = statistics.fmean(balance.step_s[step] for step in steps)
    if not whole_s:
        return ""
    step_s = main.mean_step_s or whole_s
    # The hooks made the watched steps longer.
    wait_s = step_s * statistics.fmean(waits[step] for step in steps) / whole_s
    model_s = step_s - wait_s
    loader_s = balance.loader_s or (None if main.data_workers else wait_s)
    if not loader_s or model_s <= 0:
        return ""
    delivers, takes, now = (human_calls(each / one) for one in (loader_s, model_s, step_s))
    if main.data_workers or loader_s > model_s:
        bound = "input-bound: the loader" if loader_s > model_s else "the loader keeps up: it"
        return f"{bound} could deliver {delivers} samples/s, the model could take {takes}"
    return (
        "the loader has no workers and makes each batch between two steps: with workers up to"
        f" {takes} samples/s instead of {now}"
    )


def _hook_cost(balance: Balance) -> str:
    if balance.cost is None:
        return ""
    cost = balance.cost
    if cost.high - cost.low > 1:
        return "what the hooks cost is not known: the machine was too busy"
    low, middle, high = (100 * (value - 1) for value in (cost.low, cost.ratio, cost.high))
    return f"the hooks cost {middle:+.1f} % of a step ({low:+.1f} to {high:+.1f}): the means are without that"


def _counts(summary: ProfileSummary) -> Group | None:
    """Return a step's counters, each with its largest cause, and every sync with its line."""
    if summary.counts is None:
        return None
    table = named_table("counted in a step", "a step")
    table.columns[0].ratio = 3
    table.add_column("mostly", no_wrap=True, overflow="ellipsis", ratio=4)
    for count in summary.counts.counts:
        most = _cause(count.causes[0], count.unit) if count.causes else ""
        title = TITLES.get(count.metric, count.metric)
        table.add_row(title, amount_text(count.values[-1], count.unit), Text(most))
    missing = (
        f"not counted: {TITLES.get(metric, metric)} ({why})"
        for metric, why in summary.counts.not_counted.items()
    )
    syncs = [cause for count in summary.counts.counts if count.metric == SYNCS for cause in count.causes]
    sentences = (*missing, *(f"sync: {_cause(cause, '1')}" for cause in syncs[:_ENTRIES]))
    return Group(table, *(Folded(f"  {line}", hanging="    ") for line in sentences))


def _cause(cause: Cause, unit: str) -> str:
    return f"{amount_text(cause.amount, unit)} {_what(cause)}"


def _what(cause: Cause) -> str:
    return f"{cause.what} {cause.place}".rstrip()


def _profiled(summary: ProfileSummary) -> Iterator[RenderableType | None]:
    """Yield the tables of the cProfile pass: what it waited for, own code, and the library's code."""
    profiled = summary.pass_named("cprofile")
    if profiled is None:
        return
    # Calls that wait are in the table of waits.
    entries = tuple(entry for entry in summary.entries if entry.kind != "wait")
    reading = reading_of(replace(summary, entries=entries), summary.name)
    slowed = _slowed(summary, "cprofile")
    yield Text(f"in the cProfile pass ({human_seconds(profiled.total_s)}{slowed}):")
    yield _waits(reading)
    yield from _functions(reading)


def _slowed(summary: ProfileSummary, name: PassName) -> str:
    """Return how much longer the steps of a pass took than clean ones, where that distorts its figures."""
    ratio = summary.distortion(name) or 1.0
    return f", {ratio:.1f} x the clean step" if ratio > _SLOWED else ""


def _roles(summary: ProfileSummary) -> Iterator[RenderableType]:
    workers = [role for role in summary.roles if role.role.startswith("worker")]
    if workers:
        merged: dict[tuple[str, int, str], ProfileEntry] = {}
        for one in (entry for role in workers for entry in role.entries if entry.kind == "own"):
            known = merged.get((one.file, one.line, one.function))
            merged[one.file, one.line, one.function] = replace(
                one,
                calls=one.calls + (known.calls if known else 0),
                own_s=one.own_s + (known.own_s if known else 0.0),
                cumulative_s=one.cumulative_s + (known.cumulative_s if known else 0.0),
            )
        total_s = sum(role.total_s for role in workers)
        whole = Reading(name="workers", origin="cProfile", total_s=total_s)
        title = f"in {counted(len(workers), 'worker')} ({human_seconds(total_s)})"
        entries = sorted(merged.values(), key=lambda entry: -entry.cumulative_s)
        yield _time_table(title, entries, "cumulative_s", whole)
    for role in summary.roles:
        if role not in workers:
            yield Text(f"{role.role}: {human_seconds(role.total_s)} in a thread of its own, see {role.file}")


def _backward(summary: ProfileSummary) -> Table | None:
    traced = summary.pass_named("torch")
    if traced is None or not summary.backward:
        return None
    # The operators' seconds are of all steps that the trace holds, the set-up's too.
    watched_s = traced.step_s[traced.profiled_from :]
    whole_s = sum(watched_s)
    title = f"backward, by operator (torch pass{_slowed(summary, 'torch')})"
    table = named_table(title, "calls", _unit(len(watched_s)), "share")
    for node in summary.backward[:_ENTRIES]:
        each_s = human_seconds(node.cumulative_s / max(len(watched_s), 1))
        share = human_percent(node.cumulative_s / whole_s if whole_s else None)
        table.add_row(Text(node.name), f"{node.calls:,}", each_s, share)
    return table


def _lines(summary: ProfileSummary) -> Table | None:
    timed = summary.pass_named("lines")
    if timed is None or not summary.lines:
        return None
    table = named_table(f"lines, by time{_slowed(summary, 'lines')}", "hits", _unit(timed.steps), "share")
    for one in summary.lines[:_ENTRIES]:
        name = Text(f"{Path(one.file).name}:{one.line} {one.text}")
        each_s, share = human_seconds(one.seconds / max(timed.steps, 1)), one.seconds / timed.total_s
        table.add_row(name, f"{one.hits:,}", each_s, human_percent(share))
    return table


def _unit(steps: int) -> str:
    return "a step" if steps else "in all"


def warnings(summary: ProfileSummary) -> list[str]:
    """Return warnings about numbers that do not mean what they seem to mean."""
    return [*([summary.problem] if summary.problem else []), *_warnings(summary)]


def _warnings(summary: ProfileSummary) -> Iterator[str]:
    main = summary.main_pass
    if main.name != "clean":
        yield f"no clean pass was made: all times above carry the cost of {main.name}"
    if _has_no_torch(summary):
        yield (
            "torch is not installed: there are no steps of an optimizer, no operators and no trace;"
            " pip install 'perfkit[torch]' for code that trains"
        )
    elif 0 < main.steps < _FEW_STEPS:
        yield (
            f"only {counted(main.steps, 'step')}, the set-up in the first: totals of profiles with different"
            " numbers of steps are not comparable"
        )
    steps = [found.steps for rank in summary.ranks if (found := rank.pass_named(main.name))]
    if len(set(steps)) > 1:
        yield f"the ranks made different numbers of steps: {', '.join(map(str, steps))}"
    cpus = summary.machine.facts.get("logical_cpus", "")
    if cpus.isdigit() and int(cpus) < len(summary.ranks) and not main.on_device:
        yield f"{len(summary.ranks)} ranks shared {cpus} CPUs: they took turns, so their times mean little"
    if any((summary.distortion(found.name) or 1.0) < _FASTER_THAN_CLEAN for found in summary.passes):
        yield "a profiled pass was faster than the clean one: the machine was busy; measure again"
    if summary.commit is not None and summary.commit.dirty:
        yield "tracked files differ from the commit this is filed under"
    if summary.commit is None:
        yield "not filed under a commit"


def _has_no_torch(summary: ProfileSummary) -> bool:
    return summary.environment.facts.get("torch") == ABSENT


def _files(summary: ProfileSummary, folder: Path) -> Iterator[Text]:
    """Yield the artifacts and the commands that show them, never folded: they are to be pasted."""
    lines = ["files", *(f"  {folder / name}" for name in summary.artifacts)]
    following = []
    for name in summary.artifacts:
        if name == f"{summary.name}.stat":
            following.append(f"  perfkit view {folder / name}     (in the browser)")
            following.append(f"  perfkit show {folder / name}     (in the terminal)")
        if name.endswith(".trace.json.gz"):
            following.append(f"  open {folder / name} at https://ui.perfetto.dev")
    if following:
        lines += ["", "next", *following]
    yield from (Text(line, no_wrap=True, overflow="ignore") for line in lines)


_COLUMNS = (
    "Profile", "Date (UTC)", "Commit", "Target", "Steps",
    "Total", "Per step", "Per sample", "Waiting for data", "Files",
)  # fmt: skip
_SHA_DIGITS = 10


def index_markdown(summaries: Sequence[ProfileSummary], *, damaged: Mapping[str, str] | None = None) -> str:
    """Return a table of saved profiles, oldest first; ``damaged`` maps unreadable files to the reason."""
    ordered = sorted(summaries, key=lambda summary: (summary.recorded_at, summary.name))
    rows = [*table_head(_COLUMNS), *(table_row(_index_cells(summary)) for summary in ordered)]
    unread = [
        f"- {code(name)} cannot be read: {escape(reason)}" for name, reason in sorted((damaged or {}).items())
    ]
    return "\n".join(rows + ([""] if unread else []) + unread)


def _index_cells(summary: ProfileSummary) -> list[str]:
    main, commit = summary.main_pass, summary.commit
    changed = " (changed files)" if commit and commit.dirty else ""
    return [
        escape(summary.name),
        f"{summary.recorded_at:%Y-%m-%d %H:%M}",
        f"{commit.sha[:_SHA_DIGITS]}{changed}" if commit else "-",
        cell_code(" ".join((summary.target, *summary.arguments))),
        str(main.steps),
        human_seconds(main.total_s),
        human_seconds(main.typical_step_s),
        human_seconds(main.sample_s),
        human_percent(summary.waiting_share),
        ", ".join(_index_link(name, summary.name) for name in summary.artifacts),
    ]


def _index_link(file: str, name: str) -> str:
    """Return a link to an artifact, or the name of a trace, which is too large to be kept with the others."""
    kind = file.removeprefix(name).lstrip("._")
    return kind if file.endswith(".trace.json.gz") else f"[{kind}]({file})"
