"""By which functions and which waits two cProfiles differ, per unit of equal work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from perfkit.errors import UsageError
from perfkit.model.profiles import Amount, Part, PartKind, Section, Unit, most_moved_first
from perfkit.model.readings import Reading
from perfkit.profiling.diff.attribution import Account, Blame, Through, blame, sink_of, wait_accounts
from perfkit.units import counted

_SAME_BATCH = 0.01
# A renamed function may differ by this share in its calls per unit of work.
_SAME_CALLS = 0.1
_NOBODY = "code that no own function called"
# A call is named where at least this share of a wait shows at it.
_WORTH_NAMING = 0.1
# A changed function is suspected from this share of the time more on, and without its callees from that one.
_SUSPICIOUS, _WITHOUT_CALLEES = 0.25, 0.5
# A wait has moved where at least this share of it shows at other calls than before.
_MOST_OF_IT = 0.5


# The lines of changed functions, by file.
Lines = Mapping[str, Sequence[range]]


class _Timed(Protocol):
    """Anything with a time and a number of calls, which may not be known."""

    @property
    def seconds(self) -> float: ...
    @property
    def calls(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class Work:
    """The unit of work by which both profiles are divided, and how many units each did."""

    unit: Unit
    base: float
    head: float
    warnings: tuple[str, ...] = ()

    def amount(self, base: _Timed | None, head: _Timed | None) -> Amount:
        """Return the times and calls of something per unit of work; None is nothing on that side."""
        base_calls, head_calls = (one.calls if one else 0 for one in (base, head))
        return Amount(
            base_s=base.seconds / self.base if base else 0.0,
            head_s=head.seconds / self.head if head else 0.0,
            base_calls=None if base_calls is None else base_calls / self.base,
            head_calls=None if head_calls is None else head_calls / self.head,
        )


def equal_work(base: Reading, head: Reading) -> Work:
    """Return the unit in which two profiles can be compared: a step, or a sample where batches differ."""
    if base.origin != head.origin:
        raise UsageError(
            f"{base.name} is a {base.origin} and {head.name} a {head.origin}: the one does not see what the"
            " other does; compare two of a kind"
        )
    base_ranks, head_ranks = base.world_size or 1, head.world_size or 1
    if base_ranks != head_ranks:
        raise UsageError(
            f"{base.name} is of {base_ranks} ranks and {head.name} of {head_ranks}: a step is not the same"
            " work in both; profile both with the same world size"
        )
    base_steps, head_steps = (one.steps.count if one.steps else 0 for one in (base, head))
    if not base_steps and not head_steps:
        return Work(
            unit="whole run",
            base=1,
            head=1,
            warnings=("neither profile shows its steps: totals are compared",),
        )
    if not base_steps or not head_steps:
        with_steps, without = (base, head) if base_steps else (head, base)
        raise UsageError(
            f"{with_steps.name} holds {counted(base_steps or head_steps, 'training step')}, and"
            f" {without.name} shows none: their work cannot be made equal"
        )
    samples = base.samples, head.samples
    if samples[0] and samples[1]:
        base_batch, head_batch = samples[0] / base_steps, samples[1] / head_steps
        if abs(head_batch / base_batch - 1) > _SAME_BATCH:
            batches = f"batches of {base_batch:.0f} against {head_batch:.0f}: compared per sample"
            warnings = (*_unequal_steps(base_steps, head_steps, "sample"), batches)
            return Work(unit="sample", base=samples[0], head=samples[1], warnings=warnings)
    warnings = _unequal_steps(base_steps, head_steps, "step")
    return Work(unit="step", base=base_steps, head=head_steps, warnings=warnings)


def _unequal_steps(base: int, head: int, unit: str) -> tuple[str, ...]:
    if base == head:
        return ()
    many = f"{counted(base, 'step')} against {head}"
    return (f"{many}: compared per {unit}, and set-up weighs more in fewer",)


class Key(NamedTuple):
    """The file and name of a function; its line would change with every change above it."""

    file: str
    function: str


class Pair(NamedTuple):
    """A function on both sides, or on one side with None for the other."""

    base: Blame | None
    head: Blame | None


def pair_functions(base: Sequence[Blame], head: Sequence[Blame], work: Work) -> list[Pair]:
    """Return each own function once, with the function that it was on base.

    Functions pair by file and name, then by name and the longest common end of path (moved with their
    folder), then by name alone (moved), then by file, calls and callees (renamed), if no other fits.
    """
    bases, heads = _by_key(base), _by_key(head)
    pairs = [Pair(bases.pop(key), heads.pop(key)) for key in [*bases] if key in heads]
    pairs += _moved(bases, heads)
    pairs += _renamed(bases, heads, work)
    return pairs + [Pair(one, None) for one in bases.values()] + [Pair(None, one) for one in heads.values()]


def _by_key(blames: Sequence[Blame]) -> dict[Key, Blame]:
    found: dict[Key, Blame] = {}
    for one in blames:
        if one.function is None:
            continue
        key = Key(one.function.file, one.function.function)
        found[key] = found[key].added(one) if key in found else one
    return found


def _moved(bases: dict[Key, Blame], heads: dict[Key, Blame]) -> list[Pair]:
    by_name = _pairs_of(_by_end_of_path(bases, 0), _by_end_of_path(heads, 0))
    pairs: list[Pair] = []
    longest = max((key.file.count("/") + 1 for key in [*bases, *heads]), default=0)
    for parts in range(longest, 0, -1):
        alike = _pairs_of(_by_end_of_path(bases, parts), _by_end_of_path(heads, parts))
        pairs += [Pair(bases.pop(old), heads.pop(new)) for old, new in alike]
    # Of several functions of one name, the two that are left over at last need not be the same.
    left = [(old, new) for old, new in by_name if old in bases and new in heads]
    return pairs + [Pair(bases.pop(old), heads.pop(new)) for old, new in left]


def _by_end_of_path(keys: Iterable[Key], parts: int) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = defaultdict(list)
    for key in keys:
        path = key.file.split("/")
        # A lambda is known by its file alone, and an __init__.py by its package.
        least = 0 if not key.function.startswith("<") else 2 if path[-1] == "__init__.py" else 1
        if least <= parts <= len(path):
            found[Key("/".join(path[len(path) - parts :]), key.function)].append(key)
    return found


def _pairs_of(olds: Mapping[Key, list[Key]], news: Mapping[Key, list[Key]]) -> list[tuple[Key, Key]]:
    both = sorted(olds.keys() & news.keys())
    return [(olds[end][0], news[end][0]) for end in both if len(olds[end]) == len(news[end]) == 1]


def _renamed(bases: dict[Key, Blame], heads: dict[Key, Blame], work: Work) -> list[Pair]:
    alike = [
        (old, new)
        for old in sorted(bases)
        for new in sorted(heads)
        if old.file == new.file and _alike(bases[old], heads[new], work)
    ]
    olds, news = Counter(old for old, _ in alike), Counter(new for _, new in alike)
    clear = [(old, new) for old, new in alike if olds[old] == news[new] == 1]
    return [Pair(bases.pop(old), heads.pop(new)) for old, new in clear]


def _alike(old: Blame, new: Blame, work: Work) -> bool:
    before, after = old.calls / work.base, new.calls / work.head
    same_calls = abs(after - before) <= _SAME_CALLS * max(before, after)
    shared = old.through.keys() & new.through.keys()
    either = old.through.keys() | new.through.keys()
    return same_calls and (not either or len(shared) * 2 >= len(either))


def function_section(
    base: Reading, head: Reading, work: Work, *, title: str = "functions", kind: PartKind = "own code"
) -> Section:
    """Return the own functions and the waits that make up both profiles, the most moved first."""
    base_blames, head_blames = (
        blame(one.functions, [sink_of(function) for function in one.functions]) for one in (base, head)
    )
    parts = [_function_part(pair, work, kind) for pair in pair_functions(base_blames, head_blames, work)]
    nobody = Pair(
        *(next((one for one in side if one.function is None), None) for side in (base_blames, head_blames))
    )
    if nobody.base or nobody.head:
        amount, through = work.amount(*nobody), _through(nobody, work)
        parts.append(Part(name=_NOBODY, kind="library", amount=amount, through=through))
    olds, news = wait_accounts(base.functions), wait_accounts(head.functions)
    for whom in dict.fromkeys([*olds, *news]):
        old, new = olds.get(whom, Account()), news.get(whom, Account())
        parts.append(
            Part(
                name=f"waiting for {whom}",
                kind="wait",
                place=_shown_at(new) or _shown_at(old),
                was=_shown_at(old) if _shows_elsewhere(old, new) else "",
                amount=work.amount(old, new),
            )
        )
    return Section(
        title=title,
        whole=Amount(base_s=base.total_s / work.base, head_s=head.total_s / work.head),
        parts=most_moved_first(parts),
    )


def changed_only(reading: Reading, lines: Lines) -> Reading:
    """Return a cProfile in which only changed code is own, which answers for unchanged code it calls."""
    functions = (
        replace(one, kind="library")
        if one.kind == "own" and not any(one.line in found for found in lines.get(one.file, ()))
        else one
        for one in reading.functions
    )
    return replace(reading, functions=tuple(functions))


def find_suspect(section: Section, base: Reading, head: Reading, work: Work) -> Part | None:
    """Return the changed function that took most of the time more, None where none did.

    One that took the time itself comes before one that did with the unchanged code that it calls, which may
    have moved by chance.

    Args:
        section: What differs between all functions.
        base: The profile of base in which only changed code is own.
        head: The same of head.
        work: By what both are divided.
    """
    suspected = function_section(base, head, work).parts
    with_callees = {part.place: part for part in suspected if part.place and part.kind == "own code"}
    alone = [part for part in section.parts if part.place in with_callees]
    if not with_callees or not alone:
        return None
    longest, itself = (
        max(parts, key=lambda part: part.amount.moved_s) for parts in (with_callees.values(), alone)
    )
    if longest.amount.moved_s <= max(0.0, _SUSPICIOUS * section.whole.moved_s):
        return None
    return itself if itself.amount.moved_s >= _WITHOUT_CALLEES * longest.amount.moved_s else longest


def _function_part(pair: Pair, work: Work, kind: PartKind) -> Part:
    new = pair.head.function if pair.head else None
    old = pair.base.function if pair.base else None
    shown = new or old
    assert shown is not None  # noqa: S101 (a pair has at least one side)
    renamed = old is not None and (old.file, old.function) != (shown.file, shown.function)
    return Part(
        name=shown.function,
        kind=kind,
        place=f"{shown.file}:{shown.line}",
        was=f"{old.function}  {old.file}:{old.line}" if old and renamed else "",
        amount=work.amount(*pair),
        through=_through(pair, work),
    )


def _through(pair: Pair, work: Work) -> tuple[Part, ...]:
    base, head = (one.through if one else {} for one in pair)
    parts = []
    for name in dict.fromkeys([*base, *head]):
        old, new = base.get(name), head.get(name)
        whom = (old or new or Through()).whom
        kind: PartKind = "wait" if whom else "library"
        parts.append(Part(name=name, kind=kind, place=whom or "", amount=work.amount(old, new)))
    return most_moved_first(parts)


def _shown_at(account: Account) -> str:
    longest, *others = account.names() or ("",)
    return ", ".join([longest, *(name for name in others[:1] if account.share(name) >= _WORTH_NAMING)])


def _shows_elsewhere(old: Account, new: Account) -> bool:
    if not old.seconds or not new.seconds:
        return False
    moved = sum(max(new.share(name) - old.share(name), 0.0) for name in new.through)
    return moved >= _MOST_OF_IT and old.names()[0] != new.names()[0]
