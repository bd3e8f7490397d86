"""Writes the sentences of a difference, and only those that the numbers support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit.model import RatioInterval
from perfkit.model.differences import Amount, Part, Section, most_moved_first
from perfkit.model.phases import RESIDUAL
from perfkit.model.readings import Reading
from perfkit.profiling.diff.waits import DEVICE
from perfkit.profiling.diff.work import Work
from perfkit.units import human_calls, human_percent, human_seconds, signed_seconds

# A smaller share of the whole on base is noise of the profilers.
_WORTH_TELLING = 0.02
_MOST_FUNCTIONS = 3
# A change in the number of calls is told from so many per unit of work, and from this share, on.
_NEWS_CALLS = 0.5
_NEWS_SHARE = 0.05
# A sentence about functions begins with the words for its section.
_OF_FUNCTIONS = {"functions": "", "the loader's workers": "in the loader's workers, "}
_SAME_WORK = 0.03
_NEARLY_ALL = 0.9


def findings(
    whole: Amount,
    sections: Sequence[Section],
    work: Work,
    base: Reading,
    head: Reading,
    ratio: RatioInterval | None = None,
) -> Iterator[str]:
    """Yield the whole, its causes, calls that became more or fewer, and waits that moved."""
    yield _headline(whole, work, ratio)
    for section in sections:
        if section.title == "phases":
            yield from _cause_among_phases(section, work, base, head)
        elif section.title in _OF_FUNCTIONS:
            where = _OF_FUNCTIONS[section.title]
            for told in (_functions_that_moved, findings_beside):
                yield from (f"{where}{sentence}" for sentence in told(section, work))


def findings_beside(section: Section, work: Work) -> Iterator[str]:
    """Yield what times do not show: calls that became more or fewer, and waits that moved."""
    yield from _calls_that_changed(section, work)
    yield from _waits_that_moved(section, work)


def _headline(whole: Amount, work: Work, ratio: RatioInterval | None) -> str:
    change = whole.head_s / whole.base_s - 1 if whole.base_s else None
    percent = f" ({100 * change:+.1f} %)" if change is not None else ""
    if ratio is not None:
        low, middle, high = (100 * (value - 1) for value in (ratio.low, ratio.ratio, ratio.high))
        percent = f", {middle:+.1f} % by turns ({low:+.1f} to {high:+.1f})"
    base, head = human_seconds(whole.base_s), human_seconds(whole.head_s)
    return f"a {work.unit} takes {base} on base and {head} on head: {signed_seconds(whole.moved_s)}{percent}"


def _cause_among_phases(section: Section, work: Work, base: Reading, head: Reading) -> Iterator[str]:
    """Name the phases that moved with the whole, or the one that did where all others did the same work."""
    whole = section.whole.moved_s
    if abs(whole) < _WORTH_TELLING * section.whole.base_s:
        return
    with_whole = most_moved_first(part for part in section.parts if part.amount.moved_s * whole > 0)
    if not with_whole:
        return
    first, *others = with_whole
    rest = [part for part in section.parts if part is not first]
    alone = abs(first.amount.moved_s) >= _NEARLY_ALL * abs(whole) and not any(
        abs(part.amount.moved_s) > (1 - _NEARLY_ALL) * abs(whole) for part in others
    )
    if alone and all(_same_work(part) for part in rest):
        # Equal work is only claimed of phases whose calls were counted; the residual has none.
        counted = all(part.name == RESIDUAL or part.amount.base_calls is not None for part in rest)
        same = f" do the same work on both sides{_device(base, head, work)} and" if counted else ""
        moved, left = first.amount.moved_s, sum(part.amount.moved_s for part in rest)
        yield (
            f"the difference is {_of(first)} alone: {signed_seconds(moved)} a {work.unit};"
            f" the other phases{same} take {signed_seconds(left)} together"
        )
        return
    for part in with_whole[:_MOST_FUNCTIONS]:
        if abs(part.amount.moved_s) >= _WORTH_TELLING * section.whole.base_s:
            yield f"{_subject(part)} moved by {signed_seconds(part.amount.moved_s)} a {work.unit}"


def _of(part: Part) -> str:
    return _subject(part) if part.name == RESIDUAL else f"{_subject(part)}'s"


def _subject(part: Part) -> str:
    return "what no event covers" if part.name == RESIDUAL else f"the {part.name}"


def _same_work(part: Part) -> bool:
    """Tell whether a phase makes as many calls on both sides.

    Where calls are not known it may do so if it is on both sides; no call belongs to the residual.
    """
    base, head = part.amount.base_calls, part.amount.head_calls
    if base is None or head is None:
        return part.name == RESIDUAL or (part.amount.base_s > 0) == (part.amount.head_s > 0)
    return abs(head - base) <= _SAME_WORK * max(base, head)


def _device(base: Reading, head: Reading, work: Work) -> str:
    if base.device_busy_s is None or head.device_busy_s is None:
        return ""
    before, after = base.device_busy_s / work.base, head.device_busy_s / work.head
    return f" (device busy {human_seconds(before)} and {human_seconds(after)})"


def _functions_that_moved(section: Section, work: Work) -> Iterator[str]:
    least = _WORTH_TELLING * section.whole.base_s
    moved = [part for part in section.parts if abs(part.amount.moved_s) >= least and part.amount.moved_s]
    for part in moved[:_MOST_FUNCTIONS]:
        share = abs(part.amount.moved_s) / section.whole.base_s if section.whole.base_s else None
        was = f", was {part.was}" if part.was and part.kind != "wait" else ""
        where = f" ({part.place}{was})" if part.place else ""
        of_base = f"{human_percent(share)} of base"
        yield f"{part.name}{where}: {signed_seconds(part.amount.moved_s)} a {work.unit}, {of_base}"


def _calls_that_changed(section: Section, work: Work) -> Iterator[str]:
    """Yield the calls to a device that a function makes more or less often than before.

    The time of such a call shows wherever the thread waits first, so their number is compared.
    """
    changed = [
        (abs(callee.amount.head_calls - callee.amount.base_calls), part, callee)
        for part in section.parts
        if part.amount.base_calls and part.amount.head_calls
        for callee in part.through
        if callee.place == DEVICE
        and callee.amount.head_calls is not None
        and callee.amount.base_calls is not None
    ]
    for more, part, callee in sorted(changed, key=lambda one: -one[0])[:_MOST_FUNCTIONS]:
        base, head = callee.amount.base_calls or 0.0, callee.amount.head_calls or 0.0
        if more >= max(_NEWS_CALLS, _NEWS_SHARE * max(base, head)):
            cost = ": each may stand still for a device" if head > base else ""
            yield (
                f"{part.name} ({part.place}) calls {callee.name} {human_calls(head)} times a {work.unit},"
                f" on base {human_calls(base)}{cost}"
            )


def _waits_that_moved(section: Section, work: Work) -> Iterator[str]:
    """Yield the waits that show at another call than before; a wait of the same length has only moved."""
    for part in section.parts:
        base_s, head_s = part.amount.base_s, part.amount.head_s
        large = (
            base_s >= _WORTH_TELLING * section.whole.base_s
            and head_s >= _WORTH_TELLING * section.whole.head_s
        )
        if part.kind != "wait" or not part.was or not large:
            continue
        stays = abs(part.amount.moved_s) < _WORTH_TELLING * section.whole.base_s
        yield (
            f"{part.name} {'only moved' if stays else 'moved to another call'}: it showed as {part.was}"
            f" and shows as {part.place} now ({human_seconds(base_s)}, {human_seconds(head_s)} a {work.unit})"
        )
