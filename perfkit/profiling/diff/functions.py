"""Computes by which functions and which waits two cProfiles differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfkit.model.differences import Amount, Part, PartKind, Section, most_moved_first
from perfkit.model.readings import FunctionTime, Reading
from perfkit.profiling.diff.blame import Blame, Through, blame
from perfkit.profiling.diff.pairing import Pair, pair_functions
from perfkit.profiling.diff.waits import Account, sink_of, wait_accounts
from perfkit.profiling.diff.work import Work

_NOBODY = "code that no own function called"
# A call is named where at least this share of a wait shows at it.
_WORTH_NAMING = 0.1
# A wait has moved where at least this share of it shows at other calls than before.
_MOST_OF_IT = 0.5


def function_section(
    base: Reading, head: Reading, work: Work, *, title: str = "functions", kind: PartKind = "own code"
) -> Section:
    """Return the own functions and the waits that make up both profiles, the most moved first."""
    base_blames, head_blames = (
        blame(one.functions, [sink_of(function) for function in one.functions]) for one in (base, head)
    )
    parts = [_function_part(pair, work, kind) for pair in pair_functions(base_blames, head_blames, work)]
    nobody = _nobody(base_blames, head_blames, work)
    waits = _wait_parts(wait_accounts(base.functions), wait_accounts(head.functions), work)
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


def _wait_parts(base: Mapping[str, Account], head: Mapping[str, Account], work: Work) -> list[Part]:
    return [
        _wait_part(whom, base.get(whom, Account()), head.get(whom, Account()), work)
        for whom in dict.fromkeys([*base, *head])
    ]


def _wait_part(whom: str, old: Account, new: Account, work: Work) -> Part:
    return Part(
        name=f"waiting for {whom}",
        kind="wait",
        place=_shown_at(new) or _shown_at(old),
        was=_shown_at(old) if _shows_elsewhere(old, new) else "",
        amount=Amount(
            base_s=old.seconds / work.base,
            head_s=new.seconds / work.head,
            base_calls=old.calls / work.base,
            head_calls=new.calls / work.head,
        ),
    )


def _shown_at(account: Account) -> str:
    """Return the two calls at which most of a wait shows, or the one where the other has little of it."""
    longest, *others = account.names() or ("",)
    return ", ".join([longest, *(name for name in others[:1] if account.share(name) >= _WORTH_NAMING)])


def _shows_elsewhere(old: Account, new: Account) -> bool:
    """Tell whether the wait is for the same as before, and most of it shows at other calls."""
    if not old.seconds or not new.seconds:
        return False
    moved = sum(max(new.share(name) - old.share(name), 0.0) for name in new.through)
    return moved >= _MOST_OF_IT and old.names()[0] != new.names()[0]
