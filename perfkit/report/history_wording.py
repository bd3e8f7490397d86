"""The words of a history, for the terminal and the pages: values with units, changes, and alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from perfkit.model.change_log import GateRatio
from perfkit.model.history import ChangePoint, CommitFacts, Creep, Rise, Shift, Silence
from perfkit.model.results import WALL_TIME, Metric
from perfkit.report.console import visible
from perfkit.units import counted, human_bytes, human_seconds

# Beyond these a change is a factor: "+950 %" is harder to picture than "×10.5".
_LARGEST_IN_PERCENT, _SMALLEST_IN_PERCENT = 3.0, 0.2
_SHA_DIGITS = 10
_HARDLY = 1e-6


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
    if value is None:
        return "-"
    if metric.unit == "s":
        return human_seconds(value)
    if metric.unit == "B":
        return human_bytes(round(value))
    text = f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"
    return text if metric.unit in {"", "1"} else f"{text} {metric.unit}"


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


def point_sentences(point: ChangePoint, *, undone: bool) -> list[str]:
    """Return sentences on a change point: its commits, cause, gate, chance, and review."""
    detail = f": {point.detail}" if point.detail else ""
    cause = {
        "code": "",
        "environment": f"The software or its settings changed as well{detail}.",
        "machine": f"The machine changed as well{detail}.",
    }[point.cause]
    review = "A later change has undone it." if undone else ""
    if point.state != "open":
        review = f"{point.state.capitalize()}{f': {visible(point.reason)}' if point.reason else '.'}"
    sentences = (_commits_sentence(point), cause, gate_sentence(point), _chance_sentence(point), review)
    return [sentence for sentence in sentences if sentence]


def _commits_sentence(point: ChangePoint) -> str:
    if point.commits is None:
        return "Git does not know how many commits lie between."
    if point.commits == 0:
        return "Both runs are of the same commit, so no commit made it."
    if point.commits > 1:
        return f"One or more of the {point.commits} commits between made it."
    if point.shift and point.cause == "code":
        return "Only one commit lies between, but other benchmarks changed there too: it may be the machine."
    return "Only one commit lies between, so it made this change."


def _chance_sentence(point: ChangePoint) -> str:
    if point.metric.exact:
        return "It is counted exactly, so it is not chance."
    if point.chance < _HARDLY:
        return "Such a clear change almost never appears by chance."
    if point.chance >= 0.01:  # noqa: PLR2004 (a percent)
        return f"Such a clear change appears by chance in {100 * point.chance:.2g} % of trends."
    return f"Such a clear change appears by chance in one of {float(f'{1 / point.chance:.2g}'):,.0f} trends."


def gate_sentence(point: ChangePoint) -> str:
    """Return the result of a gate between commits of the range, empty without one."""
    gate = point.gate
    return (
        ""
        if gate is None
        else f"A gate of these commits measured {ratio_text(gate.ratio)} ({interval_text(gate)})."
    )


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


def rise_sentence(rise: Rise) -> str:
    """Return how far a benchmark rose, and a command to find the cause, without a full stop."""
    since, until = short_sha(rise.since), short_sha(rise.until)
    return (
        f"{change_text(rise.ratio, WALL_TIME)} than at its best level, {since}, without a clear change point"
        f" or drift, so it may be the machine. Check with `perfkit gate --base {since} --head {until}`"
    )


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
