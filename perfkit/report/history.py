"""Terminal view of a history: the alarms first, then a line for each trend; and how last runs compare."""

from __future__ import annotations

import itertools
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perfkit.model.history import ChangePoint, HistoryReport, Moved, Shift, Silence
from perfkit.report.console import visible
from perfkit.report.history_wording import (
    change_text,
    commit_subject,
    drift_sentence,
    gate_sentence,
    interval_text,
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
_MOST_BENCHMARKS, _MOST_TOGETHER, _MOST_SILENT = 40, 12, 3
_INDENT = " " * 10
_HARDLY = 0.0005
_MOST_BEYOND, _MOST_UNKNOWN = 5, 3
# A smaller change is not worth a line where the noise is not known.
_WORTH_A_LINE = 0.02


def history_view(report: HistoryReport) -> Group:
    """Return the whole history; it fits a terminal of 80 columns."""
    short = short_names(trend.benchmark for trend in report.trends)
    names = {name: visible(one) for name, one in short.items()}
    opened = _open(report.points)
    together = {shift.shift_id for shift in report.shifts}
    reviewed = [_reviewed_text(point, names) for point in report.points if not point.is_open]
    sections: list[RenderableType] = [
        Text(history_verdict(report)),
        *(_shift_text(shift, opened, names) for shift in report.shifts),
        *(_point_text(point, report, names) for point in opened if point.shift not in together),
        *(
            Text.assemble(
                (one.creep_id or "drift   ", "bold red" if one.cause == "code" else "dim"),
                f"  {names[one.benchmark]}: {drift_sentence(one)}",
            )
            for one in report.creeps
        ),
        *(
            Text.assemble(("unclear ", "bold yellow"), f"  {names[one.benchmark]}: {rise_sentence(one)}.")
            for one in report.rises[:_MOST_TOGETHER]
        ),
        *_silence_texts(report.silences, names),
        _trends_table(report, names),
        *([Group(*reviewed)] if reviewed else []),
        *(Text(f"note: {note}", style="dim") for note in report.notes),
        Text(_guide(report), style="dim"),
    ]
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections))


def history_verdict(report: HistoryReport) -> str:
    """Return the most important findings in a sentence."""
    opened = _open(report.points)
    losses = sum(point.worse for point in opened)
    stopped = sum(bool(one.stopped) for one in report.silences)
    drifts = sum(one.cause == "code" for one in report.creeps)
    counts = (
        (losses, "unreviewed regression", ""),
        (len(opened) - losses, "unreviewed improvement", ""),
        (drifts, "benchmark", " drifted"),
        (len(report.rises), "benchmark", " rose for an unclear cause"),
        (stopped, "machine", " stopped measuring"),
        (len(report.silences) - stopped, "benchmark", " no longer measured"),
    )
    found = "; ".join(f"{counted(number, what)}{more}" for number, what, more in counts if number)
    runs = len({run for trend in report.trends for run in trend.run_ids})
    where = (
        f"in {counted(runs, 'run')} of {counted(len({one.benchmark for one in report.trends}), 'benchmark')}"
    )
    return f"{found}, {where}." if found else f"Nothing to look at: no open change point {where}."


def _open(points: Iterable[ChangePoint]) -> list[ChangePoint]:
    """Return the unreviewed change points that commits made, losses first, the largest first."""
    found = [point for point in points if point.is_open]
    return sorted(found, key=lambda point: (not point.worse, -abs(point.ratio - 1)))


def _point_text(point: ChangePoint, report: HistoryReport, names: Mapping[str, str]) -> Text:
    metric = point.metric
    subject = commit_subject(point.first_after, report.commits)
    last = f'{short_sha(point.first_after)} "{subject}"' if subject else short_sha(point.first_after)
    many = "a commit" if point.commits is None else f"one of {counted(point.commits, 'commit')}"
    by = (
        f"commit {last}"
        if point.commits == 1
        else f"{many} after {short_sha(point.last_before)}, up to {last}"
    )
    sure = f"{100 * (1 - point.chance):.1f} % sure" if point.chance >= _HARDLY else "more than 99.9 % sure"
    sure = "counted exactly" if metric.exact else sure
    before, after = (
        f"{value_text(one.mean, metric)}"
        f"{'' if one.sd is None or metric.exact else f', sd {value_text(one.sd, metric)}'}"
        f" in {counted(one.runs, 'run')}"
        for one in (point.before, point.after)
    )
    text = Text.assemble(
        (point.point_id, "bold"),
        f"  {names[point.benchmark]}: ",
        (change_text(point.ratio, metric), "bold red" if point.worse else "bold green"),
        f" ({interval_text(point)}), {sure}",
        f"\n{_INDENT}by {by}",
        f"\n{_INDENT}{before}, then {after}",
    )
    if point.gate is not None:
        text.append(f"\n{_INDENT}{gate_sentence(point)}")
    return text


def _shift_text(shift: Shift, opened: Iterable[ChangePoint], names: Mapping[str, str]) -> Text:
    """Return a shift with a line for each of its unreviewed change points."""
    own = [point for point in opened if point.shift == shift.shift_id]
    style = "dim" if not own else "bold red" if shift.ratio > 1 else "bold green"
    text = Text.assemble((shift.shift_id or "together", style), f"  {shift_sentence(shift)}.")
    for point in own[:_MOST_TOGETHER]:
        text.append(
            f"\n{_INDENT}{point.point_id}  {names[point.benchmark]}: {change_text(point.ratio, point.metric)}"
            f" ({interval_text(point)})"
        )
    if len(own) > _MOST_TOGETHER:
        text.append(f"\n{_INDENT}and {len(own) - _MOST_TOGETHER} more")
    return text


def _silence_texts(silences: Sequence[Silence], names: Mapping[str, str]) -> Iterator[Text]:
    """Yield a text for each stopped machine, and for each commit at which benchmarks were measured last."""
    together: dict[tuple[str, str], list[Silence]] = {}
    for one in silences:
        if one.stopped:
            yield Text.assemble(
                (one.machine_id, "bold yellow"),
                f": {stopped_sentence(one)}. If it is retired:"
                f" `perfkit history ignore {one.machine_id} --reason TEXT`",
            )
        else:
            together.setdefault((one.machine_id, one.last_commit), []).append(one)
    for found in together.values():
        first = found[0]
        named = ", ".join(names[one.benchmark] for one in found[:_MOST_SILENT])
        more = f" and {len(found) - _MOST_SILENT} more" if len(found) > _MOST_SILENT else ""
        yield Text.assemble(
            ("silent", "bold yellow"),
            f"    {named}{more}: not measured for {counted(first.days, 'day')}, nothing since"
            f" {short_sha(first.last_commit)} (machine {first.machine_id})",
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


def _reviewed_text(point: ChangePoint, names: Mapping[str, str]) -> Text:
    """Return a line on a change point of the machine, or one that a person reviewed."""
    whose = {"environment": "the environment changed: ", "machine": "the machine changed: "}
    why = f"{whose.get(point.cause, '')}{point.detail}"
    if point.state != "open":
        why = f"{point.state}: {visible(point.reason)}"
    change = f"{change_text(point.ratio, point.metric)} at {short_sha(point.first_after)}"
    return Text(f"{point.point_id}  {names[point.benchmark]}: {change}; {why}", style="dim")


def _guide(report: HistoryReport) -> str:
    noise = [share for shares in report.noise.values() for share in shares.values() if share > 0]
    usual = f" It is {100 * statistics.median(noise):.1f} % for most here." if noise else ""
    return (
        "A bar is the median of a few runs, in the order of commits; ± is the sd of runs of the same code."
        f"{usual} `perfkit history accept ID --reason TEXT` reviews a change point. See perfkit's"
        " docs/history.md."
    )


def last_runs_lines(moved: Sequence[Moved], *, measured: str | None) -> Iterator[str]:
    """Yield the changes beyond the noise of earlier runs, else the largest, and a command that would decide.

    Args:
        moved: The largest change first.
        measured: The commit whose code was measured; None with uncommitted changes.
    """
    if not moved:
        return
    beyond = [one for one in moved if one.is_beyond][:_MOST_BEYOND]
    unknown = [one for one in moved if one.spread is None and one.size >= _WORTH_A_LINE]
    shown = beyond or unknown[:_MOST_UNKNOWN]
    if not shown:
        few = counted(len(moved), "benchmark")
        yield f"against the last runs here (not interleaved) none of {few} moved far"
        return
    yield "against the last runs here (not interleaved, so no verdict):"
    names = short_names(one.benchmark for one in moved)
    for one in shown:
        noise = "too few runs to estimate their noise"
        if one.spread is not None:
            noise = f"its runs differ by {100 * one.spread:.1f} %"
        yield f"  {ratio_text(one.ratio)}  {names[one.benchmark]}  ({noise})"
    ((base, _),) = Counter(one.commit for one in shown).most_common(1)
    if base == measured:
        yield "  the commit is the same: the machine changed, or it is chance"
        return
    # Parameters in brackets cannot be selected by pytest's -k.
    tests = {one.benchmark.partition("[")[0].rpartition("::")[2] for one in shown}
    selection = shlex.quote(" or ".join(sorted(tests)))
    yield f"  to decide: perfkit gate --base {short_sha(base)} --select {selection}"
