"""Shows trends over many commits in the terminal: first what asks for attention, then a line for each."""

from __future__ import annotations

import itertools
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perfkit.model.history import ChangePoint, Creep, HistoryReport, Moved, Shift, Silence, Stretch
from perfkit.model.results import Metric
from perfkit.report.console import visible
from perfkit.report.history_wording import (
    amount_text,
    drift_sentence,
    ratio_text,
    rise_sentence,
    shift_sentence,
    short_sha,
    stopped_sentence,
    value_text,
)
from perfkit.report.names import BrokenName, NamedTable, short_names
from perfkit.units import counted, human_percent

_BARS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 24
_SHA_DIGITS = 10
_MOST_BENCHMARKS = 40
_MOST_TOGETHER = 12
_SURELY = 0.9995


def history_view(report: HistoryReport) -> Group:
    """Return the whole history; it fits a terminal of 80 columns."""
    names = {
        name: visible(short)
        for name, short in short_names(trend.benchmark for trend in report.trends).items()
    }
    sections: list[RenderableType] = [Text(history_verdict(report))]
    opened = _open(report.points)
    together = {shift.shift_id for shift in report.shifts}
    sections += [_shift_text(shift, opened, names) for shift in report.shifts]
    sections += [_point_text(point, report, names) for point in opened if point.shift not in together]
    sections += [_creep_text(creep, names) for creep in report.creeps]
    sections += [
        Text.assemble(("unclear ", "bold yellow"), f"  {names[one.benchmark]}: {rise_sentence(one)}.")
        for one in report.rises[:_MOST_TOGETHER]
    ]
    sections += _silence_texts(report.silences, names)
    sections.append(_trends_table(report, names))
    settled = [point for point in report.points if not point.is_open]
    if settled:
        sections.append(Group(*(_settled_text(point, names) for point in settled)))
    sections += [Text(f"note: {note}", style="dim") for note in report.notes]
    sections.append(Text(_guide(report), style="dim"))
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections))


def history_verdict(report: HistoryReport) -> str:
    """Return what a person has to know first, in a sentence."""
    opened = _open(report.points)
    losses = [point for point in opened if point.worse]
    gains = len(opened) - len(losses)
    benchmarks = len({trend.benchmark for trend in report.trends})
    drifts = [one for one in report.creeps if one.cause == "code"]
    said = []
    if losses:
        said.append(f"{counted(len(losses), 'step')} to the worse that nobody has looked at")
    if gains:
        said.append(f"{counted(gains, 'step')} to the better")
    if drifts:
        said.append(f"{counted(len(drifts), 'benchmark')} that became slower little by little")
    if report.rises:
        said.append(f"{counted(len(report.rises), 'benchmark')} that rose for an unclear cause")
    stopped = sum(bool(one.stopped) for one in report.silences)
    if stopped:
        said.append(f"{counted(stopped, 'machine')} stopped measuring")
    if len(report.silences) > stopped:
        said.append(f"{counted(len(report.silences) - stopped, 'benchmark')} not measured any more")
    runs = len({run for trend in report.trends for run in trend.run_ids})
    where = f"in {counted(runs, 'run')} of {counted(benchmarks, 'benchmark')}"
    return f"{'; '.join(said)}, {where}." if said else f"Nothing to look at: no open step {where}."


def _open(points: Iterable[ChangePoint]) -> list[ChangePoint]:
    """Return the steps that commits made and nobody has looked at, losses first, the largest first."""
    found = [point for point in points if point.is_open]
    return sorted(found, key=lambda point: (not point.worse, -abs(point.ratio - 1)))


def _point_text(point: ChangePoint, report: HistoryReport, names: Mapping[str, str]) -> Text:
    style = "bold red" if point.worse else "bold green"
    lines = Text()
    lines.append(point.point_id, style="bold")
    lines.append(f"  {names[point.benchmark]}: ")
    lines.append(amount_text(point.ratio, point.metric), style=style)
    lines.append(f" ({ratio_text(point.low)} to {ratio_text(point.high)}), {_sure(point)}\n")
    lines.append(f"          {_range_text(point, report)}\n")
    before, after = (stretch_text(one, point.metric) for one in (point.before, point.after))
    lines.append(f"          {before}, then {after}")
    if point.gate is not None:
        gate = point.gate
        lines.append(
            f"\n          a gate measured these commits side by side: {ratio_text(gate.ratio)}"
            f" ({ratio_text(gate.low)} to {ratio_text(gate.high)})"
        )
    return lines


def _sure(point: ChangePoint) -> str:
    sure = 1 - point.chance
    return (
        "counted exactly"
        if point.metric.exact
        else f"{'more than ' if sure > _SURELY else ''}{min(100 * sure, 99.9):.1f} % sure"
    )


def _range_text(point: ChangePoint, report: HistoryReport) -> str:
    """Return which commits may have made a step."""
    first = report.commits.get(point.first_after)
    subject = f' "{visible(first.subject)}"' if first is not None and first.subject else ""
    last = point.first_after[:_SHA_DIGITS]
    if point.commits == 1:
        return f"by commit {last}{subject}"
    many = "by a commit" if point.commits is None else f"by one of {counted(point.commits, 'commit')}"
    return f"{many} after {point.last_before[:_SHA_DIGITS]}, up to {last}{subject}"


def stretch_text(stretch: Stretch, metric: Metric) -> str:
    """Return mean and deviation of the runs between two steps: "12.3 ms, sd 0.2 ms, in 14 runs"."""
    spread = "" if stretch.sd is None or metric.exact else f", sd {value_text(stretch.sd, metric)}"
    return f"{value_text(stretch.mean, metric)}{spread} in {counted(stretch.runs, 'run')}"


def _shift_text(shift: Shift, opened: Iterable[ChangePoint], names: Mapping[str, str]) -> Text:
    """Return a shift with a line for each of its steps that nobody has settled."""
    own = [point for point in opened if point.shift == shift.shift_id]
    style = "dim" if not own else "bold red" if shift.ratio > 1 else "bold green"
    text = Text.assemble((shift.shift_id or "together", style), f"  {shift_sentence(shift)}.")
    for point in own[:_MOST_TOGETHER]:
        text.append(f"\n          {point.point_id}  {names[point.benchmark]}: ")
        text.append(f"{amount_text(point.ratio, point.metric)} ({ratio_text(point.low)} to")
        text.append(f" {ratio_text(point.high)})")
    if len(own) > _MOST_TOGETHER:
        text.append(f"\n          and {len(own) - _MOST_TOGETHER} more")
    return text


def _creep_text(creep: Creep, names: Mapping[str, str]) -> Text:
    style = "bold red" if creep.cause == "code" else "dim"
    return Text.assemble(
        (creep.creep_id or "drift   ", style), f"  {names[creep.benchmark]}: {drift_sentence(creep)}"
    )


def _silence_texts(silences: Sequence[Silence], names: Mapping[str, str]) -> Iterator[Text]:
    """Yield a text for each machine that stopped, and each commit at which benchmarks were measured last."""
    together: dict[tuple[str, str], list[Silence]] = {}
    for one in silences:
        if one.stopped:
            yield Text.assemble(
                (one.machine_id, "bold yellow"),
                f": {stopped_sentence(one)}. If it is retired:"
                f" `perfkit history ignore {one.machine_id} --reason TEXT`",
            )
            continue
        together.setdefault((one.machine_id, one.last_commit), []).append(one)
    for found in together.values():
        first = found[0]
        named = ", ".join(names[one.benchmark] for one in found[:3])
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""  # noqa: PLR2004 (as many as are named)
        yield Text.assemble(
            ("silent", "bold yellow"),
            f"    {named}{more}: not measured for {counted(first.days, 'day')}, nothing since"
            f" {first.last_commit[:_SHA_DIGITS]} (machine {first.machine_id})",
        )


def _trends_table(report: HistoryReport, names: Mapping[str, str]) -> RenderableType:
    shown = sorted(report.trends, key=lambda trend: (trend.benchmark, trend.machine_id, trend.version))
    table = NamedTable(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("benchmark", ratio=1)
    table.add_column("trend", no_wrap=True)
    for heading in ("last", "±", "runs"):
        table.add_column(heading, justify="right", no_wrap=True)
    several = len({trend.machine_id for trend in shown}) > 1
    for trend in shown[:_MOST_BENCHMARKS]:
        machine = f" (machine {trend.machine_id[:4]})" if several else ""
        gates = " (gates)" if trend.lockstep else ""
        noise = report.noise.get(trend.machine_id, {}).get(trend.benchmark)
        table.add_row(
            BrokenName(f"{names[trend.benchmark]}{gates}{machine}"),
            sparkline(trend.levels),
            value_text(trend.levels[-1], trend.metric),
            human_percent(noise) if noise else "-",
            str(len(trend)),
        )
    left = len(shown) - _MOST_BENCHMARKS
    if left <= 0:
        return table
    name = shlex.quote(names[shown[-1].benchmark])
    more = f"and {left} more: name a benchmark, as in `perfkit history {name}`"
    return Group(table, Text(more, style="dim"))


def sparkline(levels: Sequence[float], columns: int = _SPARK_COLUMNS) -> str:
    """Return levels as bars from the lowest to the highest, each the median of as many runs."""
    width = min(columns, len(levels))
    cuts = [round(number * len(levels) / width) for number in range(width + 1)] if width else []
    middles = [statistics.median(levels[begin:end]) for begin, end in itertools.pairwise(cuts)]
    if not middles:
        return ""
    low, high = min(middles), max(middles)
    # A spread of less than a percent is drawn flat: it would look like a change.
    scale = max(high - low, 0.01 * abs(high)) or 1.0
    return "".join(_BARS[min(int((middle - low) / scale * len(_BARS)), len(_BARS) - 1)] for middle in middles)


def _settled_text(point: ChangePoint, names: Mapping[str, str]) -> Text:
    """Return a line on a step that asks for nothing: of the machine, or one that a person spoke about."""
    why = point.detail if point.state == "open" else f"{point.state}: {visible(point.reason)}"
    at = point.first_after[:_SHA_DIGITS]
    whose = {"environment": "the environment changed: ", "machine": "the machine moved: "}.get(
        point.cause, ""
    )
    said = f"{amount_text(point.ratio, point.metric)} at {at}; {whose if point.state == 'open' else ''}{why}"
    return Text(f"{point.point_id}  {names[point.benchmark]}: {said}", style="dim")


def _guide(report: HistoryReport) -> str:
    noise = [share for shares in report.noise.values() for share in shares.values() if share > 0]
    told = f" It is {100 * statistics.median(noise):.1f} % for most here." if noise else ""
    return (
        "A bar is the median of a few runs, in the order of commits; ± is the sd of runs of the same code."
        f"{told} `perfkit history accept ID --reason TEXT` settles a step. See perfkit's docs/history.md."
    )


_MOST_BEYOND, _MOST_UNKNOWN = 5, 3
# What moved by less is not worth a line where nobody knows what runs differ by.
_WORTH_TELLING = 0.02


def last_runs_lines(moved: Sequence[Moved], *, measured: str | None) -> Iterator[str]:
    """Yield what moved by more than runs of it differ, else the farthest, and the command that would decide.

    ``moved`` comes with the farthest first. ``measured`` is the commit whose code was measured as it is; None
    where there were changes besides.
    """
    if not moved:
        return
    beyond = [one for one in moved if one.is_beyond][:_MOST_BEYOND]
    unknown = [one for one in moved if one.spread is None and one.size >= _WORTH_TELLING]
    told = beyond or unknown[:_MOST_UNKNOWN]
    if not told:
        few = counted(len(moved), "benchmark")
        yield f"against the last runs here (not interleaved) none of {few} moved far"
        return
    yield "against the last runs here (not interleaved, so no verdict):"
    names = short_names(one.benchmark for one in moved)
    for one in told:
        known = (
            "too few runs to say what they differ by"
            if one.spread is None
            else f"its runs differ by {100 * one.spread:.1f} %"
        )
        yield f"  {ratio_text(one.ratio)}  {names[one.benchmark]}  ({known})"
    ((base, _),) = Counter(one.commit for one in told).most_common(1)
    if base == measured:
        yield "  the commit is the same, so that it is the machine, or chance"
        return
    yield f"  to decide: perfkit gate --base {short_sha(base)} --select {shlex.quote(_selection(told))}"


def _selection(told: Sequence[Moved]) -> str:
    """Return what pytest's -k chooses these benchmarks by; it takes no parameters in brackets."""
    names = {one.benchmark.partition("[")[0].rpartition("::")[2] for one in told}
    return " or ".join(sorted(names))
