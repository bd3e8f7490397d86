"""Says what a history shows: values with their units, and a sentence for each step and alarm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from perfkit.model.history import ChangePoint, CommitFacts, Creep, Rise, Shift, Silence
from perfkit.model.results import WALL_TIME, Metric
from perfkit.report.console import visible
from perfkit.units import counted, human_bytes, human_seconds

# From here on a change is told as a factor: "+950 %" is harder to picture than "×10.5".
_LARGEST_IN_PERCENT, _SMALLEST_IN_PERCENT = 3.0, 0.2
_SHA_DIGITS = 10
# One in a million is as good as never, and no model of noise is known so well.
_HARDLY = 1e-6


def short_sha(sha: str) -> str:
    """Return the first digits of a commit's hash, by which people call it."""
    return sha[:_SHA_DIGITS]


def date_text(time: datetime) -> str:
    """Return a day: "2026-11-24"."""
    return f"{time:%Y-%m-%d}"


def time_text(time: datetime) -> str:
    """Return a time to the minute: "2026-11-24 18:05 UTC"."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def value_text(value: float | None, metric: Metric) -> str:
    """Return a value with its unit, scaled for people; counts that are exact keep all their digits."""
    if value is None:
        return "-"
    if metric.unit == "s":
        return human_seconds(value)
    if metric.unit == "B":
        return human_bytes(round(value))
    told = f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"
    return told if metric.unit in {"", "1"} else f"{told} {metric.unit}"


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
    told = f"{percent:+.{digits}f}"
    return "0 %" if float(told) == 0 else f"{told} %"


def direction_word(ratio: float, metric: Metric) -> str:
    """Return "slower" or "faster" for times, "more" or "less" for what is counted."""
    if metric.unit == "s":
        return "slower" if ratio > 1 else "faster"
    return "more" if ratio > 1 else "less"


def amount_text(ratio: float, metric: Metric) -> str:
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
    """Return by how much the value changed at a step, with the interval, and the values on both sides."""
    metric = step.metric
    before, after = (
        f"{value_text(stretch.mean, metric)} over {counted(stretch.runs, 'run')}"
        for stretch in (step.before, step.after)
    )
    return f"{amount_text(step.ratio, metric)}{_interval(step)}", f"{before} before, {after} after"


def _interval(step: ChangePoint) -> str:
    """Return the interval of a step in brackets, without signs where both ends have its direction."""
    if step.metric.exact:
        return ""
    in_percent = step.low >= _SMALLEST_IN_PERCENT and step.high < _LARGEST_IN_PERCENT
    if not in_percent or (step.low - 1) * (step.high - 1) <= 0:
        return f" ({ratio_text(step.low)} to {ratio_text(step.high)})"
    small, large = sorted((abs(100 * (step.low - 1)), abs(100 * (step.high - 1))))
    return f" ({small:.1f} to {large:.1f} %)"


def range_sentence(step: ChangePoint) -> str:
    """Return how many commits may have made a step."""
    if step.commits is None:
        return "Git does not know how many commits lie between."
    if step.commits == 0:
        return "Both runs are of the same commit, so no commit made it."
    if step.commits == 1 and step.shift and step.cause == "code":
        return "Only one commit lies between. Others moved there as well, so the machine may have done it."
    if step.commits == 1:
        return "Only one commit lies between, so it made this step."
    return f"One or more of the {step.commits} commits between made it."


def cause_sentence(step: ChangePoint) -> str:
    """Return what else changed at a step, empty where only the code did."""
    detail = f": {step.detail}" if step.detail else ""
    if step.cause == "environment":
        return f"The software or its settings changed as well{detail}."
    if step.cause == "machine":
        return f"The machine changed as well{detail}."
    return ""


def chance_sentence(step: ChangePoint) -> str:
    """Return how probable so clear a step is where nothing changed."""
    if step.metric.exact:
        return "It is counted exactly, so no chance is in it."
    if step.chance < _HARDLY:
        return "Where nothing changed, so clear a step hardly ever comes up."
    if step.chance >= 0.01:  # noqa: PLR2004 (a percent)
        return f"Where nothing changed, so clear a step comes up in {100 * step.chance:.2g} % of trends."
    return f"Where nothing changed, so clear a step comes up in one of {_round(1 / step.chance)} trends."


def gate_sentence(step: ChangePoint) -> str:
    """Return what a gate between commits of the range measured, empty where there was none."""
    if step.gate is None:
        return ""
    gate = step.gate
    return (
        f"A gate measured both sides in alternation: {ratio_text(gate.ratio)}"
        f" ({ratio_text(gate.low)} to {ratio_text(gate.high)})."
    )


def state_sentence(step: ChangePoint, *, undone: bool) -> str:
    """Return what people said of a step, and whether it has gone again."""
    if step.state == "accepted":
        return f"Accepted: {visible(step.reason)}" if step.reason else "Accepted."
    if step.state == "ignored":
        return f"Set aside as no step: {visible(step.reason)}" if step.reason else "Set aside as no step."
    return "A later step has undone it." if undone else ""


def drift_sentence(creep: Creep) -> str:
    """Return by how much a benchmark drifted, since when, and how that is known, without a full stop."""
    since, until = short_sha(creep.since), short_sha(creep.until)
    margin = f"{100 * creep.margin:g} %"
    gradually = f"little by little over {creep.runs} runs up to {until}"
    known = {
        "gates": f"since {since}, in gates that each passed at a margin of {margin}, up to {until}",
        "best": f"than at its best level, {since}, {gradually}",
        "release": f"than at the last release, {since}, {gradually}",
        "base": f"than at the base, {since}, {gradually}",
    }[creep.origin]
    why = f"; the machine changed: {creep.detail}" if creep.cause == "machine" else ""
    return (
        f"{amount_text(creep.ratio, WALL_TIME)} ({ratio_text(creep.low)} to {ratio_text(creep.high)})"
        f" {known}{why}"
    )


def shift_sentence(shift: Shift) -> str:
    """Return what many benchmarks of a machine did at once, and why, without the last full stop."""
    check = f"`perfkit gate --base {short_sha(shift.last_before)} --head {short_sha(shift.first_after)}`"
    why = {
        "machine": f"The machine changed: {shift.detail}",
        "code": f"A sentinel stood still, so shared code did it. Check with {check}",
        "environment": f"The environment changed: {shift.detail}",
        None: f"Either the machine changed or shared code did. Check with {check}",
    }[shift.cause]
    if shift.benchmarks == shift.measured:
        who = f"All {shift.measured} benchmarks"
    else:
        of = f" of {shift.measured}" if shift.measured else ""
        who = f"{shift.benchmarks}{of} benchmarks"
    return (
        f"{who} became {amount_text(shift.ratio, WALL_TIME)} ({ratio_text(shift.low)} to"
        f" {ratio_text(shift.high)}) on {date_text(shift.at)} on machine {shift.machine_id}"
        f" ({short_sha(shift.last_before)}..{short_sha(shift.first_after)}). {why}"
    )


def rise_sentence(rise: Rise) -> str:
    """Return by how much a benchmark rose, and the command that tells why, without a full stop."""
    since, until = short_sha(rise.since), short_sha(rise.until)
    return (
        f"{amount_text(rise.ratio, WALL_TIME)} than at its best level, {since}, by no clear step or drift, so"
        f" the machine may have done it. Check with `perfkit gate --base {since} --head {until}`"
    )


def stopped_sentence(silence: Silence) -> str:
    """Return since when a machine has measured nothing."""
    return (
        f"the machine has measured none of its {counted(silence.stopped, 'benchmark')} for"
        f" {counted(silence.days, 'day')}, since {date_text(silence.last_at)} at"
        f" {short_sha(silence.last_commit)}"
    )


def silence_sentence(silence: Silence) -> str:
    """Return since when a benchmark has not been measured, or none of its machine."""
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
    """Tell whether a metric is the time of a call, which is what pages show first."""
    return metric.name == WALL_TIME.name


def _round(number: float) -> str:
    """Return a large number with two digits that are not zero: "12,000"."""
    return f"{float(f'{number:.2g}'):,.0f}"
