"""A history in words for the terminal and the pages, and its view for the terminal."""

from __future__ import annotations

import itertools
import math
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from perfkit.invocation import follow_up
from perfkit.model.history import (
    Cause,
    ChangePoint,
    CommitFacts,
    Creep,
    GateRatio,
    HistoryReport,
    Moved,
    Rise,
    Shift,
    Silence,
)
from perfkit.model.results import WALL_TIME, Metric
from perfkit.report.console import visible
from perfkit.report.names import BrokenName, columns_table, short_names, spaced
from perfkit.units import amount_text, counted, human_percent, listed

# Beyond these a change is a factor: "+950 %" is harder to picture than "×10.5".
_LARGEST_IN_PERCENT, _SMALLEST_IN_PERCENT = 3.0, 0.2
_SHA_DIGITS = 10
# A smaller chance is not worth a number in a sentence, or in the terminal.
_ALMOST_NEVER, _HARDLY = 1e-6, 0.0005
# A clear change point has this many runs after it.
_RUNS_OF_A_STEP = 6
# It has as many before it; fewer cannot be distinguished from scatter.
RUNS_TO_JUDGE = 2 * _RUNS_OF_A_STEP
# This many commits of a change point are named.
_MOST_SUSPECTS, _MOST_ACQUITTED = 4, 3


def short_sha(sha: str) -> str:
    """Return the first digits of a commit's hash."""
    return sha[:_SHA_DIGITS]


def date_text(time: datetime) -> str:
    """Return a day: "2026-11-24"."""
    return f"{time:%Y-%m-%d}"


def time_text(time: datetime) -> str:
    """Return a time to the minute: "2026-11-24 18:05 UTC"."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def value_text(value: float | None, metric: Metric) -> str:
    """Return a value with its unit, scaled for people; exact counters keep all their digits."""
    text = amount_text(value, metric.unit)
    return text if value is None or metric.unit in {"", "1", "s", "B"} else f"{text} {metric.unit}"


def ratio_text(ratio: float) -> str:
    """Return a change as "+3.1 %", or as a factor where percent would mislead: "×12.3"."""
    if math.isinf(ratio):
        return "up from zero"
    if ratio >= _LARGEST_IN_PERCENT:
        return f"×{ratio:.1f}"
    if ratio < _SMALLEST_IN_PERCENT:
        return f"×{ratio:.2g}"
    percent = 100 * (ratio - 1)
    digits = 1 if abs(percent) >= 1 else 2
    text = f"{percent:+.{digits}f}"
    return "0 %" if float(text) == 0 else f"{text} %"


def direction_word(ratio: float, metric: Metric) -> str:
    """Return "slower" or "faster" for times, "more" or "less" for what is counted."""
    if metric.unit == "s":
        return "slower" if ratio > 1 else "faster"
    return "more" if ratio > 1 else "less"


def change_text(ratio: float, metric: Metric) -> str:
    """Return a change in words: "12.3 % slower", "3.4 times as slow", "5.0 % less"."""
    if math.isinf(ratio) or ratio == 0:
        return "up from zero" if ratio else "down to zero"
    word = direction_word(ratio, metric)
    if ratio >= _LARGEST_IN_PERCENT:
        return f"{ratio:.1f} times as {'slow' if metric.unit == 's' else 'much'}"
    if ratio < _SMALLEST_IN_PERCENT:
        return f"{1 / ratio:.1f} times as fast" if metric.unit == "s" else f"down to {100 * ratio:.2g} %"
    percent = abs(100 * (ratio - 1))
    return f"{percent:.{1 if percent >= 1 else 2}f} % {word}"


def metric_title(metric: Metric) -> str:
    """Return what a metric is called: "time", "python calls"."""
    return metric.name.replace("_", " ")


def step_words(step: ChangePoint) -> tuple[str, str]:
    """Return the size of a change point with its interval, and the values on both sides."""
    metric = step.metric
    before, after = (
        f"{value_text(stretch.mean, metric)} over {counted(stretch.runs, 'run')}"
        for stretch in (step.before, step.after)
    )
    return f"{change_text(step.ratio, metric)}{_interval(step)}", f"{before} before, {after} after"


def _interval(step: ChangePoint) -> str:
    """Return the interval in brackets, without signs where both ends have its direction."""
    if step.metric.exact:
        return ""
    in_percent = step.low >= _SMALLEST_IN_PERCENT and step.high < _LARGEST_IN_PERCENT
    if not in_percent or (step.low - 1) * (step.high - 1) <= 0:
        return f" ({interval_text(step)})"
    small, large = sorted((abs(100 * (step.low - 1)), abs(100 * (step.high - 1))))
    return f" ({small:.1f} to {large:.1f} %)"


def point_sentences(point: ChangePoint) -> list[str]:
    """Return sentences on a change point: its commits, cause, gate, chance, and review."""
    detail = f": {point.detail}" if point.detail else ""
    cause = {
        "code": "",
        "environment": f"The software or its settings changed as well{detail}.",
        "machine": f"The machine changed as well{detail}.",
    }[point.cause]
    review = "A later change has undone it." if point.undone else ""
    if point.state != "open":
        review = f"{point.state.capitalize()}{f': {visible(point.reason)}' if point.reason else '.'}"
    sentences = (_commits_sentence(point), cause, gate_sentence(point), _chance_sentence(point), review)
    return [sentence for sentence in sentences if sentence]


def _commits_sentence(point: ChangePoint) -> str:
    if point.commits is None:
        return "Git does not know how many commits lie between."
    if point.acquitted:
        return _acquittal(point)
    if point.commits == 0:
        return "Both runs are of the same commit, so no commit made it."
    if point.shift and point.cause == "code":
        check = f"perfkit gate --base {short_sha(point.last_before)} --head {short_sha(point.first_after)}"
        return f"Other benchmarks changed there too: the machine did, or shared code. Check with `{check}`."
    if point.commits > 1:
        return f"One or more of the {point.commits} commits between made it."
    return "No other commit lies between them, so this one made the change."


def _acquittal(point: ChangePoint) -> str:
    if not point.commits:
        return "The benchmark runs the same code at all commits between, so none of them made it."
    who = listed([short_sha(sha) for sha in point.suspects], _MOST_SUSPECTS)
    whole = f"Only {who}" if point.commits == 1 else f"One or more of {who}"
    others = counted(len(point.acquitted), "other commit")
    return f"{whole} can have made it: the benchmark runs the same code at the {others} between."


def _chance_sentence(point: ChangePoint) -> str:
    if point.metric.exact:
        return "It is counted exactly, so it is not chance."
    if point.chance < _ALMOST_NEVER:
        return "Such a clear change almost never appears by chance."
    if point.chance >= 0.01:  # noqa: PLR2004 (a percent)
        return f"Such a clear change appears by chance in {100 * point.chance:.2g} % of trends."
    return f"Such a clear change appears by chance in one of {float(f'{1 / point.chance:.2g}'):,.0f} trends."


def gate_sentence(point: ChangePoint) -> str:
    """Return the result of a gate between commits of the range, empty without one that excludes anything."""
    gate = point.gate
    if gate is None or (gate.low <= min(1, point.low) and gate.high >= max(1, point.high)):
        return ""
    return f"A gate of these commits measured {ratio_text(gate.ratio)} ({interval_text(gate)})."


def interval_text(found: GateRatio | ChangePoint | Creep | Shift) -> str:
    """Return an interval: "+1.2 % to +3.4 %"."""
    return f"{ratio_text(found.low)} to {ratio_text(found.high)}"


def drift_sentence(drift: Creep) -> str:
    """Return the size of a drift, since when, and how it is known, without a full stop."""
    since, until = short_sha(drift.since), short_sha(drift.until)
    margin = f"{100 * drift.margin:g} %"
    gradually = f"gradually over {drift.runs} runs up to {until}"
    known = {
        "gates": f"since {since}, over the gates up to {until}, each with a margin of {margin}",
        "best": f"than at its best level, {since}, {gradually}",
        "release": f"than at the last release, {since}, {gradually}",
        "base": f"than at the base, {since}, {gradually}",
    }[drift.origin]
    why = f"; the machine changed: {drift.detail}" if drift.cause == "machine" else ""
    return f"{change_text(drift.ratio, WALL_TIME)} ({interval_text(drift)}) {known}{why}"


def shift_sentence(shift: Shift) -> str:
    """Return a shift of many benchmarks at once, and its cause, without the last full stop."""
    check = f"`perfkit gate --base {short_sha(shift.last_before)} --head {short_sha(shift.first_after)}`"
    why = {
        "machine": f"The machine changed: {shift.detail}",
        "code": f"A sentinel did not change, so shared code did. Check with {check}",
        "environment": f"The environment changed: {shift.detail}",
        None: f"Either the machine changed or shared code did. Check with {check}",
    }[shift.cause]
    if shift.benchmarks == shift.measured:
        who = f"All {shift.measured} benchmarks"
    else:
        of = f" of {shift.measured}" if shift.measured else ""
        who = f"{shift.benchmarks}{of} benchmarks"
    return (
        f"{who} became {change_text(shift.ratio, WALL_TIME)} ({interval_text(shift)}) on"
        f" {date_text(shift.at)} on machine {shift.machine_id}"
        f" ({short_sha(shift.last_before)}..{short_sha(shift.first_after)}). {why}"
    )


_BY_SENTINEL: Mapping[Cause, str] = {
    "machine": ". The machine changed: the built-in sentinel moved as well",
    "code": ". The built-in sentinel did not change, so code did",
    "environment": "",
}


def rise_sentence(rise: Rise) -> str:
    """Return how far a benchmark rose or stepped, and a command to find the cause, without a full stop."""
    since, until = short_sha(rise.since), short_sha(rise.until)
    check = f"`perfkit gate --base {since} --head {until}`"
    size = f"{100 * (rise.ratio - 1):.1f} %"
    changed = change_text(rise.ratio, WALL_TIME)
    ago = f"{counted(rise.runs, 'run')} ago"
    few = max(_RUNS_OF_A_STEP - rise.runs, 0) if rise.kind == "step" else rise.needed
    more = f". {counted(few, 'more run')} should show, or {check}" if few else f". Check with {check}"
    if rise.cause is not None:
        more = _BY_SENTINEL[rise.cause] + (more if rise.cause == "code" else "")
    return {
        "to and fro": f"goes to and fro by some {size}, {rise.changes} times since {since}; none of it lasts",
        "two levels": f"went up and down by {size}, {rise.changes} times since {since}",
        "weekly": f"{size} slower on {' and '.join(rise.days)} than on other days since {since}",
        "step": f"probably {changed} since {until}, {ago}{more}",
        "possible step": f"may be {changed} since {until}, {ago}: undecided{more}",
        "rise": f"{changed} than at its best level, {since}, without a clear change point or drift"
        f"{', so it may be the machine' if rise.cause is None else ''}{more}",
    }[rise.kind]


def stopped_sentence(silence: Silence) -> str:
    """Return since when a machine has measured nothing."""
    return (
        f"the machine has measured none of its {counted(silence.stopped, 'benchmark')} for"
        f" {counted(silence.days, 'day')}, since {date_text(silence.last_at)} at"
        f" {short_sha(silence.last_commit)}"
    )


def silence_sentence(silence: Silence) -> str:
    """Return since when a benchmark, or all of its machine, has not been measured."""
    if silence.stopped:
        return stopped_sentence(silence)
    newer = f", and at none of the {counted(silence.commits, 'newest commit')}" if silence.commits else ""
    if silence.commits == 1:
        newer = ", and not at the newest commit"
    return f"it was last measured on {date_text(silence.last_at)} at {short_sha(silence.last_commit)}{newer}"


def commit_date(sha: str, commits: Mapping[str, CommitFacts]) -> str | None:
    """Return the day of a commit, None where it is not known."""
    facts = commits.get(sha)
    return None if facts is None or facts.time is None else date_text(facts.time)


def commit_subject(sha: str, commits: Mapping[str, CommitFacts]) -> str:
    """Return the subject of a commit in visible signs, empty where it is not known."""
    facts = commits.get(sha)
    return visible(facts.subject) if facts is not None and facts.subject else ""


def is_time(metric: Metric) -> bool:
    """Return whether a metric is the time of a call, which pages show first."""
    return metric.name == WALL_TIME.name


_BARS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 24
_MOST_BENCHMARKS, _MOST_TOGETHER, _MOST_SILENT = 40, 12, 3
_INDENT = " " * 10
_MOST_BEYOND, _MOST_UNKNOWN = 5, 3
# A smaller change is not worth a line where the noise is not known.
_WORTH_A_LINE = 0.02


def history_view(report: HistoryReport) -> Group:
    """Return the whole history; it fits a terminal of 80 columns."""
    short = short_names(trend.benchmark for trend in report.trends)
    names = {name: visible(one) for name, one in short.items()}
    opened = _open(report.points)
    together = {shift.shift_id for shift in report.shifts}
    reviewed = [_reviewed_text(point, report, names) for point in report.points if not point.is_open]
    sections: list[RenderableType] = [
        Text(history_verdict(report)),
        *(_shift_text(shift, opened, names) for shift in report.shifts),
        *(_point_text(point, report, names) for point in opened if point.shift not in together),
        *(
            Text.assemble(
                (one.creep_id or "drift   ", "bold red" if one.cause == "code" else "dim"),
                f"  {names[one.benchmark]}{_machine(report, one.machine_id)}: {drift_sentence(one)}",
            )
            for one in report.creeps
        ),
        *_rise_texts(report, names),
        *_silence_texts(report.silences, names),
        _trends_table(report, names),
        *([Group(*reviewed)] if reviewed else []),
        *(Text(f"note: {note}", style="dim") for note in report.notes),
        Text(_guide(report), style="dim"),
    ]
    return spaced(*sections)


def history_verdict(report: HistoryReport) -> str:
    """Return the most important findings in a sentence."""
    opened = _open(report.points)
    losses = sum(point.worse for point in opened)
    stopped = sum(bool(one.stopped) for one in report.silences)
    drifts = sum(one.cause == "code" for one in report.creeps)
    rises = Counter(
        "pattern" if one.is_pattern else one.kind for one in report.rises if one.cause != "machine"
    )
    counts = (
        (losses, "unreviewed regression", ""),
        (len(opened) - losses, "unreviewed improvement", ""),
        (drifts, "benchmark", " drifted"),
        (rises["step"], "benchmark", " probably changed"),
        (rises["rise"], "benchmark", " rose for an unclear cause"),
        (rises["possible step"], "benchmark", " may have changed"),
        (rises["pattern"], "benchmark", " going to and fro"),
        (stopped, "machine", " stopped measuring"),
        (len(report.silences) - stopped, "benchmark", " no longer measured"),
    )
    found = "; ".join(f"{counted(number, what)}{more}" for number, what, more in counts if number)
    runs = len({run for trend in report.trends for run in trend.run_ids})
    where = (
        f"in {counted(runs, 'run')} of {counted(len({one.benchmark for one in report.trends}), 'benchmark')}"
    )
    if found:
        return f"{found}, {where}."
    if all(len(one) < RUNS_TO_JUDGE and not one.metric.exact for one in report.trends):
        return f"Too few runs to find changes, which need {RUNS_TO_JUDGE} of a benchmark: {where[3:]}."
    return f"Nothing to look at: no open change point {where}."


def _open(points: Iterable[ChangePoint]) -> list[ChangePoint]:
    """Return the unreviewed change points that commits made, losses first, the largest first."""
    found = [point for point in points if point.is_open]
    return sorted(found, key=lambda point: (not point.worse, -abs(point.ratio - 1)))


def _point_text(point: ChangePoint, report: HistoryReport, names: Mapping[str, str]) -> Text:
    metric = point.metric
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
        f"  {names[point.benchmark]}{_machine(report, point.machine_id)}: ",
        (change_text(point.ratio, metric), "bold red" if point.worse else "bold green"),
        f" ({interval_text(point)}), {sure}",
        f"\n{_INDENT}by {_by_text(point, report)}",
        f"\n{_INDENT}{before}, then {after}",
    )
    if by_gate := gate_sentence(point):
        text.append(f"\n{_INDENT}{by_gate}")
    return text


def _by_text(point: ChangePoint, report: HistoryReport) -> str:
    """Return which commits may have made a change point, and which cannot."""
    last, many = _titled(point.first_after, report), counted(point.commits or 0, "commit")
    if not point.suspects:
        some = "a commit" if point.commits is None else f"one of {many}"
        after = f"{some} after {short_sha(point.last_before)}, up to {last}"
        return f"commit {last}" if point.commits == 1 else after
    begin = f"\n{_INDENT}"
    named = [_titled(sha, report) for sha in point.suspects]
    shown = named[:_MOST_SUSPECTS]
    if len(named) > len(shown):
        shown.append(f"and {len(named) - len(shown)} more")
    by = f"commit {named[0]}" if len(named) == 1 else f"{begin}   ".join((f"one of {many}:", *shown))
    others = listed([short_sha(sha) for sha in point.acquitted], _MOST_ACQUITTED)
    return f"{by}{begin}not by {others}: same code"


def _titled(sha: str, report: HistoryReport) -> str:
    subject = commit_subject(sha, report.commits)
    return f'{short_sha(sha)} "{subject}"' if subject else short_sha(sha)


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


def rises_together(rises: Iterable[Rise]) -> Iterator[tuple[str, list[Rise]]]:
    """Yield each rise with its sentence, but in one the probable steps that benchmarks made together."""
    together: dict[tuple[str, ...], list[Rise]] = {}
    for one in rises:
        own = one.benchmark if one.kind != "step" else "faster" if one.ratio < 1 else "slower"
        together.setdefault((one.machine_id, one.since, one.until, own, one.cause or ""), []).append(one)
    for found in together.values():
        sentence = rise_sentence(replace(found[0], ratio=statistics.median(one.ratio for one in found)))
        unknown = len(found) > 1 and found[0].cause is None
        why = ". Either the machine changed or shared code did" if unknown else ""
        yield f"{sentence}{why}", found


def _rise_texts(report: HistoryReport, names: Mapping[str, str]) -> Iterator[Text]:
    for sentence, found in itertools.islice(rises_together(report.rises), _MOST_TOGETHER):
        first = found[0]
        who = names[first.benchmark] if len(found) == 1 else f"{len(found)} benchmarks together"
        who += _machine(report, first.machine_id)
        quiet = first.is_pattern or first.cause == "machine"
        label = "pattern " if first.is_pattern else "machine " if quiet else "unclear "
        yield Text.assemble((label, "dim" if quiet else "bold yellow"), f"  {who}: {sentence}.")


def _silence_texts(silences: Sequence[Silence], names: Mapping[str, str]) -> Iterator[Text]:
    """Yield a text for each stopped machine, and for each commit at which benchmarks were measured last."""
    together: dict[tuple[str, str], list[Silence]] = {}
    for one in silences:
        if one.stopped:
            yield Text.assemble(
                (one.machine_id, "bold yellow"),
                f": {stopped_sentence(one)}. If it is retired:"
                f" `{follow_up(f'perfkit history ignore {one.machine_id} --reason TEXT')}`",
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
    alike = ("same",) if any(trend.same_code for trend in shown) else ()
    table = columns_table("benchmark", texts=("trend",), numbers=("last", "±", "runs", *alike), boxed=False)
    for trend in shown[:_MOST_BENCHMARKS]:
        gates = " (gates)" if trend.lockstep else ""
        noise = report.noise.get(trend.machine_id, {}).get(trend.benchmark)
        table.add_row(
            BrokenName(f"{names[trend.benchmark]}{gates}{_machine(report, trend.machine_id)}"),
            sparkline(trend.levels),
            value_text(trend.levels[-1], trend.metric),
            human_percent(noise) if noise else "-",
            str(len(trend)),
            *(str(len(trend.same_code)) for _ in alike),
        )
    left = len(shown) - _MOST_BENCHMARKS
    if left <= 0:
        return table
    name = shlex.quote(names[shown[-1].benchmark])
    more = f"and {left} more: name a benchmark, as in `{follow_up(f'perfkit history {name}')}`"
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


def _machine(report: HistoryReport, machine_id: str) -> str:
    """Return which machine it is where trends have several."""
    several = len({trend.machine_id for trend in report.trends}) > 1
    return f" (machine {machine_id[:4]})" if several else ""


def _reviewed_text(point: ChangePoint, report: HistoryReport, names: Mapping[str, str]) -> Text:
    """Return a line on a change point of the machine, or one that a person reviewed."""
    whose = {"environment": "the environment changed: ", "machine": "the machine changed: "}
    why = f"{whose.get(point.cause, '')}{point.detail}"
    if point.state != "open":
        why = f"{point.state}: {visible(point.reason)}"
    elif point.is_over and point.cause == "code":
        why = "undone by a later change" if point.undone else "takes an earlier change back"
    elif point.command:
        why += f"\n{_INDENT}which package: {point.command}"
    change = f"{change_text(point.ratio, point.metric)} at {short_sha(point.first_after)}"
    who = f"{names[point.benchmark]}{_machine(report, point.machine_id)}"
    return Text(f"{point.point_id}  {who}: {change}; {why}", style="dim")


def _guide(report: HistoryReport) -> str:
    noise = [share for shares in report.noise.values() for share in shares.values() if share > 0]
    alike = ' "same" counts the commits that run the same code as a measured one.'
    alike = alike if any(trend.same_code for trend in report.trends) else ""
    half = human_percent(statistics.median_low(noise)) if noise else ""
    usual = f" It is at most {half} for half of the benchmarks." if noise else ""
    return (
        "A bar is the median of a few runs, in the order of commits; ± is the sd of runs of the same code."
        f"{usual}{alike} `{follow_up('perfkit history accept ID --reason TEXT')}` reviews a change point. See"
        " perfkit's docs/history.md."
    )


def last_runs_lines(moved: Sequence[Moved], *, measured: str | None) -> Iterator[str]:
    """Yield changes beyond the noise of earlier runs, the largest first, and a deciding command."""
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
