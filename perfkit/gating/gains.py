"""What may make a gain none: a cache, work outside of the clock or before the calls, and files head opens."""

from __future__ import annotations

import math
import operator
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfkit.gating.counters import measure_imports
from perfkit.gating.judge import is_faster
from perfkit.gating.results import doubts_of_new_inputs
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import Comparison, Doubt
from perfkit.runner.lockstep.closer import Look, look_closer
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.units import human_seconds, listed

# A benchmark is looked at in this many launches, in the fewest where they or its calls take long; after this
# many seconds no other one is.
_LAUNCHES, _FEWEST, _LONG_S, _LONG_CALL_S, _ALL_S = 6, 3, 8.0, 0.25, 60.0
# A gain is gone where less than this share of it remains, by some standard errors; it is itself beyond more.
_HALF, _ERRORS, _ERRORS_OF_GAIN, _MANY = 0.5, 3.0, 5.0, 5
# Many calls hold at least half of what was put off, where they hold any of it.
_MOST_KEPT = 0.75
# A later call of a cached result takes less than this share of the first one.
_CACHED = 0.1
# Of a shorter call, what it takes to time it alone is too large a part.
_SHORT_S = 2e-5
# Less time before the calls does not count; to read a longer file takes a part of that to import.
_LEAST_BEFORE_S, _LEAST_IMPORT_S = 2e-5, 1e-3
_MOST_LISTED = 5
# Names of temporary files differ from call to call.
_DRAWN = re.compile(r"tmp\w+|[0-9a-f]{6,}|\d+")

Pair = tuple[float, float]  # of seconds, base's and head's


def doubt_gains(
    judged: Sequence[Comparison],
    compared: Mapping[str, ComparedBenchmark],
    launcher: Launcher,
    *,
    log: Callable[[str], None],
    until: float = math.inf,
) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
    """Return comparisons with the doubts that a closer look raises at those that became faster, and notes."""
    until = min(time.monotonic() + _ALL_S, until)
    if any(map(is_faster, judged)):
        launcher.renew()
    found, unseen = [], []
    imports: dict[str, Sequence[Pair]] = {}
    for one in judged:
        name = one.benchmark.name
        known = compared[name]
        doubts = [] if known.notices is None else [Doubt(kind="notices measuring", text=known.notices)]
        if is_faster(one) and one.base_s and one.head_s:
            log(f"looking closer at {name}")
            in_time = time.monotonic() < until
            looks = take_looks(launcher, name, known.limit_s, one.base_s) if in_time else []
            if looks and (file := name.partition("::")[0]) not in imports:
                imports[file] = take_imports(launcher, file, until)
            doubts += doubts_of((one.base_s, one.head_s), looks, imports.get(file, ()) if looks else ())
            if looks and one.result == "same":
                doubts += doubts_of_new_inputs(launcher, known)
            unseen += [] if looks else [name.rpartition("::")[2]]
        found.append(one.doubted(*doubts))
    words = "became faster, and could not be looked at more closely in time, or failed there"
    return tuple(found), ((f"{listed(unseen, _MOST_LISTED)} {words}",) if unseen else ())


def take_looks(launcher: Launcher, node: str, limit_s: float, base_s: float) -> list[Mapping[Side, Look]]:
    """Look at a benchmark in some launches, the first of which watches what calls open."""
    found: list[Mapping[Side, Look]] = []
    begun = time.monotonic()
    for number in range(_LAUNCHES):
        if number >= _FEWEST and (base_s > _LONG_CALL_S or time.monotonic() - begun > _LONG_S):
            break
        order = SIDES[:: -1 if number % 2 else 1]
        one = look_closer(launcher, node, order, watch=number == 0, limit_s=limit_s, base_s=base_s)
        if one is None:
            return []
        found.append(one)
    return found


def take_imports(launcher: Launcher, file: str, until: float) -> Sequence[Pair]:
    """Return the seconds that both sides take to import what a file of benchmarks imports of the project."""
    found = measure_imports(launcher, (file,), until=until, floor=_LEAST_IMPORT_S)
    return [(one["base"], one["head"]) for one in found]


def doubts_of(
    claimed: Pair, looks: Sequence[Mapping[Side, Look]], imports: Sequence[Pair] = ()
) -> list[Doubt]:
    """Return the doubts about a gain of ``claimed`` seconds a call, base's and head's."""
    if not looks:
        return []
    # To watch what calls open makes short ones longer.
    seen = _Seen(claimed=claimed, looks=looks[1:] if len(looks) > _FEWEST else looks)
    found = [
        Doubt(kind="cache", text=next(seen.of_caches(), "")),
        Doubt(kind="outside the clock", text=next(seen.outside_of_the_clock(), "")),
        Doubt(kind="files", text=_of_files(looks[0])),
    ]
    # A cache is filled in the first call.
    found.append(Doubt(kind="before its calls", text=seen.before(imports, with_first=not found[0].text)))
    return [one for one in found if one.text]


@dataclass(frozen=True)
class _Times:
    """The seconds of one form of calls in each launch, base's and head's, and their medians."""

    pairs: Sequence[Pair]

    @property
    def base_s(self) -> float:
        return statistics.median(base for base, _ in self.pairs)

    @property
    def head_s(self) -> float:
        return statistics.median(head for _, head in self.pairs)

    @property
    def saved(self) -> list[float]:
        return [base - head for base, head in self.pairs]

    def scaled(self, pairs: Sequence[Pair]) -> _Times:
        """Return times with the ratios of others, and base's own."""
        return _Times(
            [(own, own * head / base) for (own, _), (base, head) in zip(self.pairs, pairs, strict=True)]
        )

    @property
    def logs(self) -> list[float]:
        return [math.log(max(head, 1e-12) / max(base, 1e-12)) for base, head in self.pairs]


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The launches that looked closer at a benchmark, and the gain that its times show."""

    claimed: Pair
    looks: Sequence[Mapping[Side, Look]]

    def of_caches(self) -> Iterator[str]:
        """Yield why head may return what it kept of earlier calls."""
        first, same, copied, moved, shuffled, again = map(
            self._times, ("first", "same", "copied", "moved", "shuffled", "again")
        )
        if same is None:
            return
        own, _ = self._own()
        if own is not None and same.base_s > _SHORT_S:
            # What many calls in a row take depends on the machine's load, and their ratio does not.
            ratios = [(1.0, self.claimed[1] / self.claimed[0])] * len(own.pairs), own.pairs
            if all(_is_gone(same.scaled(one), same) for one in ratios):
                yield f"it is faster only after many calls: {_text(same)} in the first ones"
        follows = [(look["base"].follows, look["head"].follows) for look in self.looks]
        if follows and all(base is True and head is False for base, head in follows):
            yield "its result stays the same with another input, which base's does not"
        for fresh, known in ((copied, same), (moved, same), (shuffled, again)):
            if fresh is not None and known is not None and _is_gone(known, fresh):
                yield _cached(known, fresh)
        if first is not None and moved is None and shuffled is None and _is_gone(same, first):
            alike = _HALF < first.head_s / first.base_s < 1 / _HALF
            if alike and same.head_s < _CACHED * first.head_s:
                yield _cached(same, first, new="where the first takes {} (base {})")

    def outside_of_the_clock(self) -> Iterator[str]:
        """Yield where the time of a call is that its clock does not see."""
        own, outside = self._own()
        used, same = self._times("used"), self._times("same")
        if (
            own is not None
            and same is not None
            and same.base_s > _SHORT_S
            and _is_gone(same, same.scaled(own.pairs), _MOST_KEPT)
        ):
            few = human_seconds(same.head_s, digits=2)
            yield f"its work is put off to a few of its calls: {few} in most, on average {_text(own)}"
        if own is not None and outside is not None and _is_moved(own, outside):
            yield (
                f"{human_seconds(outside.head_s, digits=2)} of a call pass outside of its clock"
                f" (base {human_seconds(max(outside.base_s, 0.0), digits=2)}):"
                f" it shows {human_seconds(own.head_s, digits=2)}"
            )
        if used is not None and same is not None and _is_moved(same, used):
            yield f"its result does the work when it is used: {_text(used)}"

    def before(self, imports: Sequence[Pair], *, with_first: bool) -> str:
        """Return what takes longer before the calls by a good part of what each of them saves."""
        saved = self.claimed[0] - self.claimed[1]
        spent = {"set-up": [(look["base"].before_s, look["head"].before_s) for look in self.looks]}
        first, same = self._times("first"), self._times("same")
        if with_first and first and same:
            both = zip(first.pairs, same.pairs, strict=True)
            spent["first call"] = [(one[0] - later[0], one[1] - later[1]) for one, later in both]
        longer = [
            (_Times(pairs).head_s - _Times(pairs).base_s, name)
            for name, pairs in {**spent, "import time": imports}.items()
            if _is_longer(
                pairs, max(saved / 2, _LEAST_IMPORT_S if name == "import time" else _LEAST_BEFORE_S)
            )
        ]
        if not longer:
            return ""
        most, name = max(longer)
        amounts = (human_seconds(seconds, digits=2) for seconds in (most, saved))
        return "its {name} is {} longer, and a call saves {}".format(*amounts, name=name)

    def _times(self, form: str) -> _Times | None:
        """Return the times of a form of calls, None where a side has none, as base cannot be called so."""
        pairs = [(look["base"].times.get(form), look["head"].times.get(form)) for look in self.looks]
        known = [(base, head) for base, head in pairs if base is not None and head is not None]
        return _Times(known) if len(known) == len(pairs) > 1 else None

    def _own(self) -> tuple[_Times | None, _Times | None]:
        """Return what processes measured of calls themselves, and what passed besides."""
        own: list[Pair] = []
        outside: list[Pair] = []
        for look in self.looks:
            base, head = look["base"], look["head"]
            if base.own_s is None or base.whole_s is None or head.own_s is None or head.whole_s is None:
                return None, None
            own.append((base.own_s, head.own_s))
            outside.append((base.whole_s - base.own_s, head.whole_s - head.own_s))
        return (_Times(own), _Times(outside)) if len(own) > 1 else (None, None)


def _is_gone(known: _Times, fresh: _Times, most: float = _HALF) -> bool:
    """Return whether most of a gain is gone with other inputs, in seconds and as a ratio.

    It is not where base takes much less or more with these inputs, which then lead elsewhere.
    """
    return (
        _is_gain(known)
        and _HALF < fresh.base_s / known.base_s < 1 / _HALF
        and _are_below(most, map(operator.truediv, fresh.saved, known.saved))
        and _are_below(most, map(operator.truediv, fresh.logs, known.logs))
    )


def _is_moved(own: _Times, besides: _Times) -> bool:
    """Return whether what head's calls take besides is more than base's by most of what they save."""
    shares = map(operator.truediv, besides.saved, own.saved)
    return _is_gain(own) and _are_below(_HALF, (1 + share for share in shares))


def _is_longer(pairs: Sequence[Pair], least_s: float) -> bool:
    """Return whether head's are longer than base's, beyond the scatter of what nothing has lengthened."""
    if len(pairs) < _FEWEST:
        return False
    times, base, head = _Times(pairs), min(one for one, _ in pairs), min(one for _, one in pairs)
    scatter_s = max(times.base_s - base, times.head_s - head)
    return head > times.base_s and times.head_s - times.base_s > max(least_s, 2 * scatter_s)


def _is_gain(times: _Times) -> bool:
    """Return whether head's calls are faster in each launch, and beyond the scatter."""
    logs = times.logs
    return max(logs) < 0 and -statistics.fmean(logs) > _ERRORS_OF_GAIN * _error(logs)


def _are_below(most: float, shares: Iterable[float]) -> bool:
    """Return whether shares are below one, beyond their scatter; one launch of many may be disturbed."""
    found = sorted(shares)
    kept = found[1:-1] if len(found) >= _MANY else found
    return kept[-1] < most and statistics.fmean(kept) + _ERRORS * _error(kept) < most


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _text(times: _Times) -> str:
    return f"{human_seconds(times.head_s, digits=2)} (base {human_seconds(times.base_s, digits=2)})"


def _cached(
    known: _Times, fresh: _Times, *, new: str = "with the same input, {} with a new one (base {})"
) -> str:
    times = (human_seconds(seconds, digits=2) for seconds in (fresh.head_s, fresh.base_s))
    return f"a cache hit after the first call: {human_seconds(known.head_s, digits=2)} {new.format(*times)}"


def _of_files(look: Mapping[Side, Look]) -> str:
    base, head = ({_DRAWN.sub("*", one): one for one in look[side].touched} for side in SIDES)
    news = sorted(one for name, one in head.items() if name not in base)
    more = f" and {len(news) - 1} more" if len(news) > 1 else ""
    return f"its call {news[0]}{more}, which base's does not" if news else ""
