"""A bisection: a live line while it runs, then its answer for the terminal or as markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from perfkit.model import Commit
from perfkit.model.bisection import (
    BisectionReport,
    FoundStep,
    GuiltyPackages,
    Level,
    PackageChange,
    PackagesReport,
    SearchState,
    Suspect,
)
from perfkit.model.counters import TITLES
from perfkit.report.console import visible
from perfkit.report.explain import listed, section_rows, section_table
from perfkit.report.markdown_table import code, escape
from perfkit.report.names import spaced
from perfkit.report.progress import Drawn, live_on
from perfkit.units import amount_text, counted, human_seconds, signed_amount

_SHA_DIGITS = 10
_MOST_LISTED = 8
_MOST_CAUSES = 5
_MOST_MOVED = 5


class BisectLine(Drawn):
    """Shows the places that are measured; without a terminal, a line for each pair."""

    def __init__(self, *, enabled: bool = True) -> None:
        super().__init__(enabled=enabled)
        self._drawn = self._live = live_on(self._console)
        self._names: tuple[str, ...] = ()
        self._unit = ""
        self._pair: tuple[int, int] | None = None

    def begin(self, names: Sequence[str], text: str, unit: str = "commit") -> None:
        """Show the range."""
        self._names, self._unit, self._pair = tuple(names), unit, None
        self.info(visible(text))

    def info(self, text: str) -> None:
        """Show a stage."""
        if self._in_terminal:
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        self._write(text)

    def update(self, state: SearchState) -> None:
        """Show what is measured next."""
        pair = (state.base, state.head)
        if self._in_terminal or pair != self._pair:
            names = dict.fromkeys(self._names[place] for place in pair)
            launches = f", launch {state.launches + 1}" if self._in_terminal and len(names) > 1 else ""
            self.info(
                f"measuring {' and '.join(names)}{launches}: {counted(state.left, self._unit)} suspected,"
                f" {state.left_s:.0f} s left"
            )
        self._pair = pair


def bisection_view(report: BisectionReport) -> Group:
    """Return the whole result for a terminal, the answer first."""
    parts: list[RenderableType] = [Text(answer_sentence(report), style=_STYLES[report.answer])]
    for number, step in enumerate(report.steps):
        if number:
            parts.append(Text(f"also found: {step_sentence(report, step)}"))
        parts.append(Text("\n".join(_step_lines(report, step))))
        parts += [Text("\n".join(causes))] if (causes := [*_causes(step)]) else []
        if step.explanation is not None:
            if step.explanation.section is not None:
                parts.append(section_table(step.explanation.section, _MOST_MOVED))
            parts += listed(step.explanation.findings)
    skipped = _skipped_lines(report)
    if skipped:
        parts.append(Text("\n".join(skipped)))
    parts.append(
        Text("\n".join((*_closing(report), *(f"note: {note}" for note in report.notes))), style="dim")
    )
    return Group(spaced(*parts[:-1]), parts[-1])


def bisection_markdown(report: BisectionReport) -> str:
    """Return the whole result as markdown, the answer first."""
    lines = [f"## perfkit bisect: {report.answer}", "", escape(answer_sentence(report)), ""]
    for number, step in enumerate(report.steps):
        if number:
            lines += [f"Also found: {escape(step_sentence(report, step))}", ""]
        lines += [f"- {escape(line)}" for line in (*_step_lines(report, step), *_causes(step))]
        if step.explanation is not None:
            section = step.explanation.section
            lines += ["", *(section_rows(section, "call", _MOST_MOVED) if section else ())]
            lines += [f"- {escape(line)}" for line in step.explanation.findings]
        lines.append("")
    lines += [f"- {escape(line)}" for line in (*_skipped_lines(report), *report.notes)]
    lines += ["", *(escape(line) for line in _closing(report))]
    ends = f"{_commit(report.good)} to {_commit(report.bad)}"
    lines.append(f"Benchmark {code(report.benchmark.name)}, {escape(ends)}")
    return "\n".join(lines) + "\n"


_STYLES = {"found": "bold red", "no change": "bold green", "undecided": "bold yellow"}


def answer_sentence(report: BisectionReport) -> str:
    """Return the answer in a sentence."""
    name = visible(report.benchmark.name.rpartition("::")[2])
    if report.answer == "found":
        return step_sentence(report, report.steps[0])
    if report.answer == "no change":
        return (
            f"No commit changed {_title(report)} of {name}: {report.why},"
            f" {_short(report.good)} and {_short(report.bad)}."
        )
    text, left = f"Undecided: {report.why}", report.left
    if left is not None:
        text += (
            f"; with probability {left.probability:.2f} one of {counted(left.commits, 'commit')} after"
            f" {_short(left.last_before)} up to {_short(left.bad)} made a change"
        )
    goes_on = report.wall_s >= report.budget_s
    return f"{text}. {'The same command goes on.' if goes_on else 'Try it at a quieter time.'}"


def step_sentence(report: BisectionReport, step: FoundStep) -> str:
    """Return the commit of a step, its size and its probability in a sentence."""
    name = visible(report.benchmark.name.rpartition("::")[2])
    many = len(step.suspects)
    who = _short(step.suspects[-1].commit)
    if many > 1:
        who = f"One of {many} commits, {_short(step.suspects[0].commit)} to {who},"
    if step.counted is not None:
        one = step.counted
        old, new = (amount_text(amount, one.metric.unit) for amount in (one.base, one.head))
        moved = signed_amount((one.head or 0.0) - (one.base or 0.0), one.metric.unit)
        return f"{who} changed {_title(report)} of {name} from {old} to {new} ({moved})."
    ratio, low, high = (value or 1.0 for value in (step.ratio, step.low, step.high))
    change = _change(ratio, low, high, report.confidence)
    return f"{who} made {name} {change}, probability {min(step.probability, 0.999):.3g}."


def _change(ratio: float, low: float, high: float, confidence: float) -> str:
    word, sign = ("slower", 1) if ratio > 1 else ("faster", -1)
    ends = sorted(sign * 100 * (one - 1) for one in (low, high))
    return (
        f"{100 * abs(ratio - 1):.1f} % {word} ({100 * confidence:g} % interval"
        f" {ends[0]:.1f} to {ends[1]:.1f} %)"
    )


def _title(report: BisectionReport) -> str:
    name = report.metric.name
    return f"the {TITLES.get(name, name)}"


def _step_lines(report: BisectionReport, step: FoundStep) -> Iterator[str]:
    shown = step.suspects[-_MOST_LISTED:]
    if len(shown) < len(step.suspects):
        yield f"{len(step.suspects) - len(shown)} commits before these"
    yield from map(_suspect_line, shown)
    before, after = (_level(level, report.metric.unit) for level in (step.before, step.after))
    yield f"before: {before}; after: {after}"


def _suspect_line(one: Suspect) -> str:
    when = f", {one.commit.time:%Y-%m-%d}" if one.commit.time else ""
    skipped = f"; skipped: {visible(one.skipped)}" if one.skipped else ""
    return (
        f"{_commit(one.commit)}, {visible(one.author or 'author not known')}{when},"
        f" {counted(one.files, 'file')} +{one.added} -{one.removed}{skipped}"
    )


def _level(level: Level | None, unit: str) -> str:
    if level is None:
        return "not measured by itself"
    if unit != "s":
        return amount_text(level.mean, unit)
    return f"mean {human_seconds(level.mean)}, sd {human_seconds(level.sd)} over {_launches(level.launches)}"


def _causes(step: FoundStep) -> Iterator[str]:
    if step.counted is None:
        return
    for cause in step.counted.causes[:_MOST_CAUSES]:
        place = f" at {visible(cause.place)}" if cause.place else ""
        moved = signed_amount(cause.head - cause.base, step.counted.metric.unit)
        yield f"{moved} {visible(cause.what)}{place}"


def _launches(number: int) -> str:
    return "1 launch" if number == 1 else f"{number} launches"


def _skipped_lines(report: BisectionReport) -> list[str]:
    lines = [f"skipped {_commit(one.commit)}: {visible(one.reason)}" for one in report.skipped[:_MOST_LISTED]]
    more = len(report.skipped) - len(lines)
    return [*lines, f"and {more} more: --json has them all"] if more > 0 else lines


def _closing(report: BisectionReport) -> Iterator[str]:
    if report.answer == "found":
        yield f"{report.why[:1].upper()}{report.why[1:]}."
    launches = f", {_launches(report.launches)}" if report.launches else ""
    earlier = f" ({report.earlier} of them by earlier runs)" if report.earlier else ""
    yield (
        f"{report.measured} of {report.commits + 1} commits measured{launches}{earlier},"
        f" {len(report.skipped)} skipped, {human_seconds(report.wall_s)}"
    )


def _commit(commit: Commit) -> str:
    return f'{_short(commit)} "{visible(commit.subject or "")}"'


def _short(commit: Commit) -> str:
    return commit.sha[:_SHA_DIGITS]


def packages_view(report: PackagesReport) -> Group:
    """Return a search among packages for a terminal, the answer first."""
    parts: list[RenderableType] = [Text(packages_sentence(report), style=_STYLES[report.answer])]
    for number, one in enumerate(report.found):
        if number:
            parts.append(Text(f"also found: {_guilty_sentence(report, one)}"))
        parts.append(Text("\n".join(guilty_lines(one))))
        if one.explanation is not None:
            if one.explanation.section is not None:
                parts.append(section_table(one.explanation.section, _MOST_MOVED))
            parts += listed(one.explanation.findings)
    parts.append(Text("\n".join((_packages_closing(report), *_remarks(report))), style="dim"))
    return Group(spaced(*parts[:-1]), parts[-1])


def packages_markdown(report: PackagesReport) -> str:
    """Return a search among packages as markdown, the answer first."""
    lines = [f"## perfkit bisect: {report.answer}", "", escape(packages_sentence(report)), ""]
    for number, one in enumerate(report.found):
        if number:
            lines += [f"Also found: {escape(_guilty_sentence(report, one))}", ""]
        lines += [f"- {escape(line)}" for line in guilty_lines(one)]
        if one.explanation is not None:
            section = one.explanation.section
            lines += ["", *(section_rows(section, "call", _MOST_MOVED) if section else ())]
            lines += [f"- {escape(line)}" for line in one.explanation.findings]
        lines.append("")
    lines += [f"- {escape(note)}" for note in report.notes]
    lines += ["", escape(_packages_closing(report))]
    lines.append(f"Benchmark {code(report.benchmark.name)}, {escape(_commit(report.commit))}")
    return "\n".join(lines) + "\n"


def packages_sentence(report: PackagesReport) -> str:
    """Return the answer of a search among packages in a sentence."""
    if report.answer == "found":
        return _guilty_sentence(report, report.found[0])
    name = visible(report.benchmark.name.rpartition("::")[2])
    if report.answer == "no change":
        return f"No package changed the time of {name}: {report.why}."
    text = f"Undecided: {report.why}"
    if report.left is not None:
        shown = ", ".join(map(visible, report.left.packages[:_MOST_LISTED]))
        more = "" if len(report.left.packages) <= _MOST_LISTED else ", …"
        text += f"; with probability {report.left.probability:.2f} it is one of {shown}{more}"
    goes_on = report.wall_s >= report.budget_s
    return f"{text}. {'The same command goes on.' if goes_on else 'Try it at a quieter time.'}"


def _guilty_sentence(report: PackagesReport, one: GuiltyPackages) -> str:
    parts = [" or ".join(map(_upgrade, part)) for part in one.together]
    who = " together with ".join(parts)
    name = visible(report.benchmark.name.rpartition("::")[2])
    change = _change(one.ratio, one.low, one.high, report.confidence)
    return f"{who} made {name} {change}, probability {min(one.probability, 0.999):.3g}."


def _upgrade(one: PackageChange) -> str:
    return f"{visible(one.name)} {one.base or 'absent'} to {one.head or 'absent'}"


def guilty_lines(one: GuiltyPackages) -> Iterator[str]:
    """Yield what was measured of guilty packages, and what undoes them."""
    if one.before is not None and one.after is not None:
        yield f"before: {_level(one.before, 's')}; after: {_level(one.after, 's')}"
    if any(len(part) > 1 for part in one.together):
        yield 'packages joined by "or" were not measured one without the other'
    if one.ratio > 1:
        yield f"next: to undo it, {' and '.join(map(_undone, one.together[0]))}"


def _undone(one: PackageChange) -> str:
    if one.name.isupper():
        return f"unset {one.name}" if one.base is None else f"set {one.name}={visible(one.base)}"
    if one.base is None:
        return f"leave {one.name} out"
    if one.name == "python":
        return f"use {one.base}"
    # Another build of the same version cannot be pinned by it.
    return f"use {one.name} {one.base}" if "(" in one.base else f"pin {one.name}=={one.base}"


def _packages_closing(report: PackagesReport) -> str:
    earlier = f" ({report.earlier} of them by earlier runs)" if report.earlier else ""
    return (
        f"{counted(report.packages, 'package')} differ; {counted(report.measured, 'environment')} measured"
        f" in {counted(report.pairs, 'pair')}, {_launches(report.launches)}{earlier},"
        f" {human_seconds(report.wall_s)}"
    )


def _remarks(report: PackagesReport) -> Iterator[str]:
    return (f"note: {note}" for note in report.notes)
