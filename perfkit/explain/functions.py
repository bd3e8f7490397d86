"""What differs between two cProfiles: whose functions, and who was waited for."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.explain.blame import Blame, Through, blame
from perfkit.explain.pairing import Pair, pair_functions
from perfkit.explain.waits import fold_waits, sink_of
from perfkit.explain.work import Work
from perfkit.records.differences import Amount, Part, PartKind, Section, most_moved_first
from perfkit.records.readings import FunctionTime, Reading, WaitTime

_NOBODY = "code that no own function called"


def function_section(
    base: Reading, head: Reading, work: Work, *, title: str = "functions", kind: PartKind = "own code"
) -> Section:
    """Return the own functions and the waits that make up both profiles, the most moved first."""
    base_blames, head_blames = (
        blame(one.functions, [sink_of(function) for function in one.functions]) for one in (base, head)
    )
    parts = [_function_part(pair, work, kind) for pair in pair_functions(base_blames, head_blames, work)]
    nobody = _nobody(base_blames, head_blames, work)
    waits = _wait_parts(fold_waits(base.functions), fold_waits(head.functions), work)
    return Section(
        title=title,
        whole=Amount(base_s=base.total_s / work.base, head_s=head.total_s / work.head),
        parts=most_moved_first((*parts, *nobody, *waits)),
    )


def _function_part(pair: Pair, work: Work, kind: PartKind) -> Part:
    new = pair.head.function if pair.head else None
    old = pair.base.function if pair.base else None
    shown = new or old
    assert shown is not None  # noqa: S101 (a pair has at least one side)
    renamed = old is not None and new is not None and (old.file, old.function) != (new.file, new.function)
    return Part(
        name=shown.function,
        kind=kind,
        place=f"{shown.file}:{shown.line}",
        was=_where(old) if renamed and old else "",
        amount=_amount(pair.base, pair.head, work),
        through=_through(pair, work),
    )


def _where(function: FunctionTime) -> str:
    return f"{function.function}  {function.file}:{function.line}"


def _amount(base: Blame | None, head: Blame | None, work: Work) -> Amount:
    return Amount(
        base_s=base.seconds / work.base if base else 0.0,
        head_s=head.seconds / work.head if head else 0.0,
        base_calls=base.calls / work.base if base else 0.0,
        head_calls=head.calls / work.head if head else 0.0,
    )


def _through(pair: Pair, work: Work) -> tuple[Part, ...]:
    """Return the callees of a function, the most moved first."""
    base = pair.base.through if pair.base else {}
    head = pair.head.through if pair.head else {}
    nothing = Through()
    parts = [
        Part(
            name=name,
            kind="wait" if (base.get(name) or head.get(name, nothing)).whom else "library",
            place=(base.get(name) or head.get(name, nothing)).whom or "",
            amount=Amount(
                base_s=base.get(name, nothing).seconds / work.base,
                head_s=head.get(name, nothing).seconds / work.head,
                base_calls=base.get(name, nothing).calls / work.base,
                head_calls=head.get(name, nothing).calls / work.head,
            ),
        )
        for name in dict.fromkeys([*base, *head])
    ]
    return most_moved_first(parts)


def _nobody(base: Sequence[Blame], head: Sequence[Blame], work: Work) -> list[Part]:
    old, new = (next((one for one in side if one.function is None), None) for side in (base, head))
    if old is None and new is None:
        return []
    return [
        Part(
            name=_NOBODY,
            kind="library",
            amount=_amount(old, new, work),
            through=_through(Pair(old, new), work),
        )
    ]


def _wait_parts(base: Sequence[WaitTime], head: Sequence[WaitTime], work: Work) -> list[Part]:
    olds, news = {one.whom: one for one in base}, {one.whom: one for one in head}
    return [
        Part(
            name=f"waiting for {whom}",
            kind="wait",
            place=", ".join((news.get(whom) or olds[whom]).through[:2]),
            was=", ".join(olds[whom].through[:2]) if _shows_elsewhere(olds.get(whom), news.get(whom)) else "",
            amount=Amount(
                base_s=olds[whom].seconds / work.base if whom in olds else 0.0,
                head_s=news[whom].seconds / work.head if whom in news else 0.0,
                base_calls=olds[whom].calls / work.base if whom in olds else 0.0,
                head_calls=news[whom].calls / work.head if whom in news else 0.0,
            ),
        )
        for whom in dict.fromkeys([*olds, *news])
    ]


def _shows_elsewhere(old: WaitTime | None, new: WaitTime | None) -> bool:
    """Tell whether one and the same debt is paid at another call now."""
    return old is not None and new is not None and not {*new.through[:1]} & {*old.through}
