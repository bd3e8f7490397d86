"""What differs between two profiles of equal work, and the sentences about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfkit.model import RatioInterval
from perfkit.model.profiles import Amount, Difference, Part, PartKind, Section, most_moved_first
from perfkit.model.readings import RESIDUAL, Call, FunctionTime, PhaseTime, Place, Reading
from perfkit.profiling.diff.attribution import DEVICE, Work, equal_work, function_section
from perfkit.units import human_calls, human_percent, human_seconds, signed_seconds

_Key = tuple[str, int, str]
# A smaller share of the whole on base is noise of the profilers.
_WORTH_REPORTING = 0.02
_MOST_FUNCTIONS = 3
# A change in the number of calls is reported from this many per unit of work, and from this share, on.
_NEWS_CALLS = 0.5
_NEWS_SHARE = 0.05
# A sentence about functions begins with the words for its section.
_OF_FUNCTIONS = {"functions": "", "the loader's workers": "in the loader's workers, "}
_SAME_WORK = 0.03
_NEARLY_ALL = 0.9
Workers = tuple[Reading | None, Reading | None]


def merged(readings: Sequence[Reading], name: str) -> Reading:
    """Return the sum of several cProfiles; functions are the same where file, line and name are."""
    functions: dict[_Key, FunctionTime] = {}
    for reading in readings:
        for one in reading.functions:
            known = functions.get(_key(one))
            functions[_key(one)] = one if known is None else _added(known, one)
    places = {key: place for place, key in enumerate(functions)}
    calls = _calls(readings, places)
    return Reading(
        name=name,
        origin="cProfile",
        total_s=sum(reading.total_s for reading in readings),
        calls=sum(reading.calls or 0 for reading in readings),
        functions=tuple(
            replace(one, callers=tuple(calls[place].values())) for place, one in enumerate(functions.values())
        ),
    )


def _key(one: FunctionTime) -> _Key:
    return one.file, one.line, one.function


def _added(left: FunctionTime, right: FunctionTime) -> FunctionTime:
    return replace(
        left,
        calls=left.calls + right.calls,
        primitive_calls=left.primitive_calls + right.primitive_calls,
        own_s=left.own_s + right.own_s,
        cumulative_s=left.cumulative_s + right.cumulative_s,
    )


def _calls(readings: Sequence[Reading], places: dict[_Key, int]) -> dict[int, dict[int, Call]]:
    calls: dict[int, dict[int, Call]] = defaultdict(dict)
    for called, call in _all_calls(readings, places):
        known = calls[called].get(call.caller)
        calls[called][call.caller] = (
            call
            if known is None
            else Call(
                caller=call.caller,
                calls=known.calls + call.calls,
                own_s=known.own_s + call.own_s,
                cumulative_s=known.cumulative_s + call.cumulative_s,
            )
        )
    return calls


def _all_calls(readings: Sequence[Reading], places: dict[_Key, int]) -> Iterator[tuple[int, Call]]:
    for reading in readings:
        for one in reading.functions:
            for call in one.callers:
                caller = places[_key(reading.functions[call.caller])]
                yield places[_key(one)], replace(call, caller=caller)


def findings(
    whole: Amount,
    sections: Sequence[Section],
    work: Work,
    base: Reading,
    head: Reading,
    ratio: RatioInterval | None = None,
) -> Iterator[str]:
    """Yield the whole, its causes before what follows from them, and calls and waits that moved."""
    yield _headline(whole, work, ratio)
    moved: list[tuple[int, str]] = []
    beside: list[str] = []
    for section in sections:
        if section.title == "phases":
            yield from _cause_among_phases(section, work, base, head)
        elif section.title in _OF_FUNCTIONS:
            where = _OF_FUNCTIONS[section.title]
            moved += ((rank, f"{where}{text}") for rank, text in _functions_that_moved(section, work))
            beside += (f"{where}{text}" for text in findings_beside(section, work))
    yield from (text for _, text in sorted(moved, key=lambda one: one[0]))
    yield from beside


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
    if abs(whole) < _WORTH_REPORTING * section.whole.base_s:
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
        if abs(part.amount.moved_s) >= _WORTH_REPORTING * section.whole.base_s:
            yield f"{_subject(part)} moved by {signed_seconds(part.amount.moved_s)} a {work.unit}"


def _of(part: Part) -> str:
    return _subject(part) if part.name == RESIDUAL else f"{_subject(part)}'s"


def _subject(part: Part) -> str:
    return "what no event covers" if part.name == RESIDUAL else f"the {part.name}"


def _same_work(part: Part) -> bool:
    base, head = part.amount.base_calls, part.amount.head_calls
    if base is None or head is None:
        return part.name == RESIDUAL or (part.amount.base_s > 0) == (part.amount.head_s > 0)
    return abs(head - base) <= _SAME_WORK * max(base, head)


def _device(base: Reading, head: Reading, work: Work) -> str:
    if base.device_busy_s is None or head.device_busy_s is None:
        return ""
    before, after = base.device_busy_s / work.base, head.device_busy_s / work.head
    return f" (device busy {human_seconds(before)} and {human_seconds(after)})"


def _functions_that_moved(section: Section, work: Work) -> Iterator[tuple[int, str]]:
    """Yield functions that do other work with 0, those that only took longer with 1, and waits with 2."""
    least = _WORTH_REPORTING * section.whole.base_s
    moved = [part for part in section.parts if abs(part.amount.moved_s) >= least and part.amount.moved_s]
    changes = {id(part): _changed_call(part) for part in moved}

    def rank(part: Part) -> int:
        if part.kind == "wait" or not part.place:
            return 2
        return 1 if changes[id(part)] is None else 0

    causes = [part for part in moved[_MOST_FUNCTIONS:] if rank(part) == 0][:1]
    for part in (*moved[:_MOST_FUNCTIONS], *causes):
        share = abs(part.amount.moved_s) / section.whole.base_s if section.whole.base_s else None
        was = f", was {part.was}" if part.was and part.kind != "wait" else ""
        where = f" ({part.place}{was})" if part.place else ""
        of_base = f"{human_percent(share)} of base"
        text = f"{part.name}{where}: {signed_seconds(part.amount.moved_s)} a {work.unit}, {of_base}"
        callee = changes[id(part)]
        if callee is not None and callee is not part and callee.place != DEVICE and rank(part) == 0:
            calls = callee.amount.base_calls or 0.0, callee.amount.head_calls or 0.0
            before, now = map(human_calls, calls)
            text += f"; it calls {callee.name} {now} times, on base {before}"
        yield rank(part), text


def _changed_call(part: Part) -> Part | None:
    """Return the call whose number changed most, the function itself if it is called more or less often."""
    found = {}
    for one in (part, *part.through):
        base, head = one.amount.base_calls or 0.0, one.amount.head_calls or 0.0
        if abs(head - base) >= max(_NEWS_CALLS, _NEWS_SHARE * max(base, head)):
            found[abs(one.amount.moved_s)] = one
    return part if part in found.values() else found[max(found)] if found else None


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
    for part in section.parts:
        base_s, head_s = part.amount.base_s, part.amount.head_s
        large = (
            base_s >= _WORTH_REPORTING * section.whole.base_s
            and head_s >= _WORTH_REPORTING * section.whole.head_s
        )
        if part.kind != "wait" or not part.was or not large:
            continue
        stays = abs(part.amount.moved_s) < _WORTH_REPORTING * section.whole.base_s
        yield (
            f"{part.name} {'only moved' if stays else 'moved to another call'}: it showed as {part.was}"
            f" and shows as {part.place} now ({human_seconds(base_s)}, {human_seconds(head_s)} a {work.unit})"
        )


@dataclass(frozen=True, kw_only=True)
class CleanSteps:
    """The median steps of both sides without a profiler, and their ratio where enough steps took turns."""

    base_s: float
    head_s: float
    ratio: RatioInterval | None


def explain(
    base: Reading, head: Reading, *, workers: Workers = (None, None), clean: CleanSteps | None = None
) -> Difference:
    """Return what differs; ``workers`` are the cProfiles of the loaders' workers, added up for each side."""
    work = equal_work(base, head)
    sections = list(_sections(base, head, workers, work))
    whole = Amount(base_s=base.total_s / work.base, head_s=head.total_s / work.head)
    if clean is not None:
        whole = Amount(base_s=clean.base_s, head_s=clean.head_s)
    ratio = clean.ratio if clean else None
    noticed = (f"{one.name}: {warning}" for one in (base, head) for warning in one.warnings)
    return Difference(
        base=base.name,
        head=head.name,
        unit=work.unit,
        whole=whole,
        sections=tuple(sections),
        findings=tuple(findings(whole, sections, work, base, head, ratio)),
        warnings=(*work.warnings, *_one_sided(base, head, workers), *noticed),
        ratio=ratio,
    )


def _one_sided(base: Reading, head: Reading, workers: Workers) -> Iterable[str]:
    kinds: tuple[tuple[str, tuple[object, object]], ...] = (
        ("phases", (base.phases, head.phases)),
        ("functions", (base.functions, head.functions)),
        ("operators", (_operators(base, "cpu"), _operators(head, "cpu"))),
        ("the loader's workers", workers),
        ("what ran on the device", (_operators(base, "device"), _operators(head, "device"))),
    )
    for kind, (in_base, in_head) in kinds:
        if bool(in_base) != bool(in_head):
            yield f"only {(base if in_base else head).name} has {kind}: not compared"


def _sections(base: Reading, head: Reading, workers: Workers, work: Work) -> Iterable[Section]:
    """Yield each way to divide the work that both sides know."""
    if base.phases and head.phases:
        olds, news = ({one.name: one for one in side.phases} for side in (base, head))
        names = [name for name in _as_a_step_goes([*olds], [*news]) if name != RESIDUAL]
        yield _section("phases", "phase", [*names, RESIDUAL], olds, news, work)
    if base.functions and head.functions:
        yield function_section(base, head, work)
    if workers[0] is not None and workers[1] is not None:
        yield function_section(workers[0], workers[1], work, title="the loader's workers", kind="worker")
    places: tuple[tuple[str, Place, PartKind], ...] = (
        ("operators", "cpu", "operator"),
        ("on the device", "device", "kernel"),
    )
    for title, place, kind in places:
        olds, news = _operators(base, place), _operators(head, place)
        if olds and news:
            found = _section(title, kind, dict.fromkeys([*olds, *news]), olds, news, work)
            yield replace(found, parts=most_moved_first(found.parts))


def _section(
    title: str,
    kind: PartKind,
    names: Iterable[str],
    olds: Mapping[str, PhaseTime],
    news: Mapping[str, PhaseTime],
    work: Work,
) -> Section:
    base_s, head_s = (sum(one.seconds for one in side.values()) for side in (olds, news))
    return Section(
        title=title,
        whole=Amount(base_s=base_s / work.base, head_s=head_s / work.head),
        parts=tuple(
            Part(name=name, kind=kind, amount=work.amount(olds.get(name), news.get(name))) for name in names
        ),
    )


def _as_a_step_goes(olds: Sequence[str], news: Sequence[str]) -> list[str]:
    names = [*olds]
    behind = 0
    for name in news:
        if name not in names:
            names.insert(behind, name)
        behind = names.index(name) + 1
    return names


def _operators(reading: Reading, place: Place) -> dict[str, PhaseTime]:
    return {
        one.name: PhaseTime(name=one.name, seconds=one.own_s, calls=one.calls)
        for one in reading.operators
        if one.place == place
    }
