"""What may make a gain none: a cache, work off the clock, files head opens, or an edit that does less."""

from __future__ import annotations

import math
import operator
import os
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from perfkit.errors import PerfkitError
from perfkit.gating.counters import measure_imports
from perfkit.gating.coverage import project_folder, tops_of
from perfkit.gating.design import Method
from perfkit.gating.judge import is_faster, pair_location
from perfkit.gating.results import Look, doubts_of_new_inputs, look_closer
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import LockstepLaunches, SequentialComparison
from perfkit.gating.sides import OpenSides
from perfkit.gating.survey import Survey
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import Comparison, Doubt, DoubtKind, MeasuringEdit, Policy, Quiet, Verdict
from perfkit.repo.files import OUTPUTS, has_replaced, original, overlay, put_file, remove_file, restore
from perfkit.runner.lockstep.launch import schedule
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.units import human_seconds

# A benchmark is looked at in this many launches, in the fewest where they or its calls take long; after this
# many seconds no other one is.
_LAUNCHES, _FEWEST, _LONG_S, _LONG_CALL_S, _ALL_S = 6, 3, 8.0, 0.25, 60.0
# They have this many seconds, however little the budget leaves.
_LEAST_S = 20.0
# So many launches begin with other inputs, and their times do not count.
_AHEAD = 2
_SEEN = 0.25
# A gain is gone where less than this share of it remains, by some standard errors; it is itself beyond more.
_HALF, _ERRORS, _ERRORS_OF_GAIN, _MANY = 0.5, 3.0, 5.0, 5
# Many calls hold at least half of what was put off, where they hold any of it.
_MOST_KEPT = 0.75
# A later call of a cached result takes less than this share of the first one.
_CACHED = 0.1
_SHORT_S = 2e-5
# The forms of calls with new inputs, and those with the same ones.
_FRESH = (("copied", "same"), ("moved", "same"), ("shuffled", "again"))
_HITS = "only cache hits are timed: its later calls run none of the functions that its first one runs"
_UNSEEN = "it could not be looked at more closely in time, or failed there"
_UNCLEAR = "its calls with other inputs were too few or scattered too much to rule out a cache"
# Smaller gains are hidden by the scatter of few calls.
_LARGE = 0.7
# Less time before the calls does not count; to read a longer file takes a part of that to import.
_LEAST_BEFORE_S, _LEAST_IMPORT_S = 2e-5, 1e-3
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
) -> tuple[Comparison, ...]:
    """Return comparisons with the doubts that a closer look raises at those that became faster."""
    now = time.monotonic()
    until = min(now + _ALL_S, max(now + _LEAST_S, until))
    if any(map(is_faster, judged)):
        launcher.renew()
    found = []
    imports: dict[str, Sequence[Pair]] = {}
    for one in judged:
        name = one.benchmark.name
        known = compared[name]
        doubts = [] if known.notices is None else [Doubt(kind="notices measuring", text=known.notices)]
        if is_faster(one) and one.base_s and one.head_s:
            log(f"looking closer at {name}")
            others = one.result == "same"
            looks = take_looks(launcher, known, one.base_s, others=others) if time.monotonic() < until else []
            if looks:
                file = name.partition("::")[0]
                if file not in imports:
                    imports[file] = take_imports(launcher, file, until)
                doubts += doubts_of((one.base_s, one.head_s), looks, imports[file])
                doubts += doubts_of_new_inputs(launcher, known, looks)
            else:
                doubts.append(Doubt(kind="not compared", text=_UNSEEN))
            if all(doubt.kind != "cache" for doubt in doubts):
                if known.cached:
                    doubts.append(Doubt(kind="cache", text=_HITS))
                elif looks and is_unclear((one.base_s, one.head_s), looks):
                    doubts.append(Doubt(kind="not compared", text=_UNCLEAR))
        found.append(one.doubted(*doubts))
    return tuple(found)


def take_looks(
    launcher: Launcher, one: ComparedBenchmark, base_s: float, *, others: bool
) -> list[Mapping[Side, Look]]:
    """Look at a benchmark in some launches, the first of which watches what calls open."""
    found: list[Mapping[Side, Look]] = []
    begun = time.monotonic()
    ahead = _AHEAD if others else 0
    for number in range(ahead + _LAUNCHES):
        if number >= ahead + _FEWEST and (base_s > _LONG_CALL_S or time.monotonic() - begun > _LONG_S):
            break
        look = look_closer(
            launcher,
            one.benchmark.name,
            SIDES[:: -1 if number % 2 else 1],
            watch=number == 0,
            others=("first" if number < ahead else "last") if others else "",
            limit_s=one.limit_s,
            base_s=base_s,
        )
        if look is None:
            return []
        found.append(look)
    return found


def take_imports(launcher: Launcher, file: str, until: float) -> Sequence[Pair]:
    """Return the seconds that both sides take to import what a file of benchmarks imports of the project."""
    found = measure_imports(launcher, (file,), until=until, floor=_LEAST_IMPORT_S)
    return [(one["base"], one["head"]) for one in found]


def doubts_of(
    claimed: Pair, looks: Sequence[Mapping[Side, Look]], imports: Sequence[Pair] = ()
) -> list[Doubt]:
    """Return the doubts about a gain of ``claimed`` seconds a call, base's and head's."""
    seen = _Seen(_timed(looks), claimed)
    cache = next(seen.of_caches(), "")
    texts: Mapping[DoubtKind, str] = {
        "cache": cache,
        "outside the clock": next(seen.outside_of_the_clock(), ""),
        "files": _of_files(looks[0]),
        "aliasing": seen.of_results(),
        # A cache is filled in the first call.
        "before its calls": seen.before(imports, with_first=not cache),
    }
    return [Doubt(kind=kind, text=text) for kind, text in texts.items() if text]


def is_unclear(claimed: Pair, looks: Sequence[Mapping[Side, Look]]) -> bool:
    """Return whether a large gain may be a cache by its calls with new inputs, which prove neither."""
    return claimed[1] < _LARGE * claimed[0] and _Seen(_timed(looks), claimed).may_be_cached()


def _timed(looks: Sequence[Mapping[Side, Look]]) -> Sequence[Mapping[Side, Look]]:
    """Return the looks whose times count: without those after other inputs, and what watches is slower."""
    timed = [one for one in looks if one["base"].others_at != "first"]
    return timed[1:] if len(timed) == len(looks) > _FEWEST else timed


class _Times:
    """The seconds of one form of calls in each launch, base's and head's, and their medians."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.base_s, self.head_s = map(statistics.median, zip(*pairs, strict=True))
        self.saved = [base - head for base, head in pairs]
        self.logs = [math.log(max(head, 1e-12) / max(base, 1e-12)) for base, head in pairs]

    def scaled(self, pairs: Sequence[Pair]) -> _Times:
        """Return times with the ratios of others, and base's own."""
        both = zip(self.pairs, pairs, strict=True)
        return _Times([(own, own * head / base) for (own, _), (base, head) in both])

    def __str__(self) -> str:
        return f"{_words(self.head_s)} (base {_words(self.base_s)})"


class _Seen:
    """The launches that looked closer at a benchmark, and the gain that its times show."""

    def __init__(self, looks: Sequence[Mapping[Side, Look]], claimed: Pair) -> None:
        self._looks, self._claimed = looks, claimed
        self._own = _Times(self._pairs(lambda look: look.own_s))
        # A side has none of a form where base cannot be called so.
        known = [look[side].times for look in looks for side in SIDES]
        forms = [form for form in known[0] if all(form in times for times in known)]
        self._times = {
            form: _Times([(look["base"].times[form], look["head"].times[form]) for look in looks])
            for form in forms
        }
        # What it takes to time a shorter call alone is too large a part.
        same = self._times.get("same")
        self._single = same if same is not None and same.base_s > _SHORT_S else None

    def _pairs(self, read: Callable[[Look], float]) -> list[Pair]:
        return [(read(look["base"]), read(look["head"])) for look in self._looks]

    def of_caches(self) -> Iterator[str]:
        """Yield why head may return what it kept of earlier calls."""
        times, own, single = self._times, self._own, self._single
        if single is not None:
            # What many calls in a row take depends on the machine's load, and their ratio does not.
            ratios = [(1.0, self._claimed[1] / self._claimed[0])] * len(own.pairs), own.pairs
            if all(_is_gone(single.scaled(one), single) for one in ratios):
                yield f"it is faster only after many calls: {single} in the first ones"
        if all(look["base"].follows is True and look["head"].follows is False for look in self._looks):
            yield "its result stays the same with another input, which base's does not"
        for fresh, known in _FRESH:
            if fresh in times and known in times and _is_gone(times[known], times[fresh]):
                yield _cached(times[known], times[fresh])
        if "same" in times and not {"moved", "shuffled"} & times.keys():
            first, same = times["first"], times["same"]
            alike = _HALF < first.head_s / first.base_s < 1 / _HALF
            if alike and same.head_s < _CACHED * first.head_s and _is_gone(same, first):
                yield _cached(same, first, new="where the first takes {} (base {})")

    def of_results(self) -> str:
        """Return what the next call does to a result that is kept."""
        changed = {(look["base"].overwritten, look["head"].overwritten) for look in self._looks}
        return (
            "its next call overwrites a result, which base's does not" if changed == {(False, True)} else ""
        )

    def may_be_cached(self) -> bool:
        """Return whether the times show no gain, or too little of one with new inputs beyond the scatter."""
        both = [(self._times.get(known), self._times.get(fresh)) for fresh, known in _FRESH]
        return any(
            known is not None
            and fresh is not None
            and (
                not _is_gain(known)
                or statistics.median(map(operator.truediv, fresh.saved, known.saved)) < _HALF
            )
            and _HALF < fresh.base_s / known.base_s < 1 / _HALF
            for known, fresh in both
        )

    def outside_of_the_clock(self) -> Iterator[str]:
        """Yield where the time of a call is that its clock does not see."""
        own, single, outside = self._own, self._single, _Times(self._pairs(lambda look: look.outside_s))
        if single is not None and _is_gone(single, single.scaled(own.pairs), _MOST_KEPT):
            few = _words(single.head_s)
            yield f"its work is put off to a few of its calls: {few} in most, on average {own}"
        if _is_moved(own, outside):
            yield (
                f"{_words(outside.head_s)} of a call pass outside of its clock"
                f" (base {_words(max(outside.base_s, 0.0))}): it shows {_words(own.head_s)}"
            )
        if "used" in self._times and _is_moved(self._times["same"], self._times["used"]):
            yield f"its result does the work when it is used: {self._times['used']}"

    def before(self, imports: Sequence[Pair], *, with_first: bool) -> str:
        """Return what takes longer before the calls by a good part of what each of them saves."""
        saved = self._claimed[0] - self._claimed[1]
        if self._single is not None and (seen := statistics.median(self._single.saved)) > _SEEN * saved:
            # Under load calls may have saved more than here.
            saved = min(saved, seen)
        spent = {"set-up": self._pairs(lambda look: look.before_s)}
        if with_first and "same" in self._times:
            spent["first call"] = self._pairs(lambda look: look.times["first"] - look.times["same"])
        longer = []
        for name, pairs in {**spent, "import time": imports}.items():
            least_s = _LEAST_IMPORT_S if name == "import time" else _LEAST_BEFORE_S
            longer.append((_longer_by(pairs, max(saved / 2, least_s)), name))
        most, name = max(longer)
        return f"its {name} is {_words(most)} longer, and a call saves {_words(saved)}" if most else ""


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


def _longer_by(pairs: Sequence[Pair], least_s: float) -> float:
    """Return by how much head's are longer, or 0 within the scatter of what nothing has lengthened."""
    if len(pairs) < _FEWEST:
        return 0.0
    base, head = map(list, zip(*pairs, strict=True))
    before, after = statistics.median(base), statistics.median(head)
    if len(pairs) < _MANY:
        # Few launches often agree by chance, so the one that is far off counts.
        scatter_s = 1.5 * max(max(side) - min(side) for side in (base, head))
    else:
        # One launch may be far off.
        scatter_s = 3 * max(
            statistics.median(abs(one - middle) for one in side)
            for side, middle in ((base, before), (head, after))
        )
    longer = after - before
    return longer if min(head) > before and longer > max(least_s, scatter_s) else 0.0


def _is_gain(times: _Times) -> bool:
    """Return whether head's calls are faster in each launch, and beyond the scatter."""
    return max(times.logs) < 0 and -statistics.fmean(times.logs) > _ERRORS_OF_GAIN * _error(times.logs)


def _are_below(most: float, shares: Iterable[float]) -> bool:
    """Return whether shares are below one, beyond their scatter; one launch of many may be disturbed."""
    found = sorted(shares)
    kept = found[1:-1] if len(found) >= _MANY else found
    return kept[-1] < most and statistics.fmean(kept) + _ERRORS * _error(kept) < most


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _words(seconds: float) -> str:
    return human_seconds(seconds, digits=2)


def _cached(
    known: _Times, fresh: _Times, *, new: str = "with the same input, {} with a new one (base {})"
) -> str:
    text = new.format(_words(fresh.head_s), _words(fresh.base_s))
    return f"a cache hit after the first call: {_words(known.head_s)} {text}"


def _of_files(look: Mapping[Side, Look]) -> str:
    base, head = ({_DRAWN.sub("*", one): one for one in look[side].touched} for side in SIDES)
    news = sorted(one for name, one in head.items() if name not in base)
    more = f" and {len(news) - 1} more" if len(news) > 1 else ""
    return f"its call {news[0]}{more}, which base's does not" if news else ""


# What it may take of the budget.
_SHARE = 0.1
_LARGE_FACTOR = 10
# Where a slowdown of more would pass, less than a tenth of the work is in doubt.
_LARGEST_MARGIN = 0.9
# A few launches show large differences, so their looks have a larger share of alpha than those of a gate.
_LOOKS = (2, 4, 8, 16)
# It has as many letters as "base", since a longer path moves what follows it in memory.
_COPY = "prev"


@dataclass(frozen=True, kw_only=True)
class EditedWork:
    """What edited benchmarks do of their work before, and a doubt on each that does less."""

    edits: tuple[MeasuringEdit, ...] = ()
    doubts: Mapping[str, Doubt] = field(default_factory=dict)

    def doubted(self, found: Sequence[Comparison]) -> tuple[Comparison, ...]:
        """Return comparisons with these doubts."""
        doubts = self.doubts
        return tuple(
            one.doubted(doubts[one.benchmark.name]) if one.benchmark.name in doubts else one for one in found
        )


def work_of_edited(
    sides: OpenSides, surveyed: Survey, method: Method, *, log: Callable[[str], None]
) -> EditedWork:
    """Measure the benchmarks that head's files change in both versions on base, for a tenth of the budget."""
    files = [edit for edit in surveyed.measuring if edit.kind in ("benchmark", "conftest", "helper")]
    concerned = {name for edit in files for name in edit.benchmarks if name in surveyed.base_own}
    wanted = [
        replace(
            one,
            prior=(),
            changed=one.benchmark.name in surveyed.edited,
            first_only=None,
            margin=1 / (1 - min(one.margin, _LARGEST_MARGIN)) - 1,
        )
        for one in surveyed.compared
        if one.benchmark.name in concerned
    ]
    deadline = time.monotonic() + _SHARE * method.budget_s
    if not wanted or not method.timed:
        return EditedWork()
    timing = None
    if time.monotonic() + sides.launcher.collected_s < deadline:
        log("measuring edited benchmarks as they are and as they were")
        limits = {one.benchmark.name: one.limit_s for one in wanted}
        timing = SequentialComparison.of(
            wanted,
            launches=LockstepLaunches(sides.launcher, limit_s=lambda node: limits[node], until=deadline),
            policy=Policy(
                alpha=method.policy.alpha,
                family=1,
                looks=_LOOKS,
                shared_variance=method.policy.shared_variance,
                least_sd=method.policy.least_sd,
            ),
            deadline=deadline,
        )
        with suppress(PerfkitError, OSError), _both_versions(sides, surveyed, files):
            sides.launcher.narrow(limits)
            timing.run(schedule(seed=method.seed), Quiet())
    found = () if timing is None else timing.comparisons()
    verdicts = {one.benchmark.name: one.verdict for one in found}
    # Where few launches decide nothing, they show about how much work there is.
    shares = {
        name: math.exp(-statistics.fmean(map(pair_location, state.pairs)))
        for name, state in (timing.states if timing is not None else {}).items()
        if state.pairs and name in verdicts
    }
    doubts = {
        name: Doubt(kind="edited benchmark", text=f"the new {name.rpartition('::')[2]} does {_share(share)}")
        for name, share in shares.items()
        if verdicts[name] == "REGRESSED"
    }
    nodes = [one.benchmark.name for one in wanted]
    return EditedWork(edits=tuple(_edits_of(nodes, verdicts, shares)), doubts=doubts)


def _edits_of(
    nodes: Sequence[str], verdicts: Mapping[str, Verdict], shares: Mapping[str, float]
) -> Iterator[MeasuringEdit]:
    """Yield what each benchmark does that is known to do less or more, then the others together."""
    known: dict[str, list[str]] = {}
    for name in nodes:
        known.setdefault(verdicts[name] if name in shares else "", []).append(name)
    for verdict, effect in (("REGRESSED", "in doubt"), ("IMPROVED", "none")):
        yield from (_edit([name], _share(shares[name]), effect) for name in known.pop(verdict, ()))
    if same := known.pop("UNCHANGED", []):
        yield _edit(same, "as much work as before", "none")
    if rest := known.pop("", []):
        yield _edit(rest, "not compared with the work before", "none")
    if left := [name for names in known.values() for name in names]:
        low, high = (100 * bound(shares[name] for name in left) for bound in (min, max))
        most = f" to {high:.0f}" if len(left) > 1 else ""
        yield _edit(left, f"undecided: about {low:.0f}{most} % of the old work", "none")


@contextmanager
def _both_versions(sides: OpenSides, surveyed: Survey, files: Sequence[MeasuringEdit]) -> Iterator[None]:
    """Measure base with head's files of benchmarks, as the side base, against base with its own.

    What does less work now is slower then, and time that is short goes to that first.
    """
    root, top, folder = sides.roots.base, tops_of(sides)["base"], project_folder(sides)
    copy = top.parent / _COPY
    places = (PurePosixPath(edit.path).relative_to(folder) for edit in files if edit.kind == "helper")
    helpers = [str(place) for place in places if (sides.roots.head / place).is_file()]
    try:
        shutil.copytree(
            top, copy, symlinks=True, copy_function=_link, ignore=shutil.ignore_patterns(*OUTPUTS)
        )
        own = copy / root.relative_to(top)
        for file in surveyed.laid:
            if has_replaced(root, file):
                put_file(original(root, file), own, file)
            else:
                remove_file(own, file)
        overlay(helpers, source=sides.roots.head, target=root)
        with sides.launcher.on_other_trees({"base": root, "head": own}):
            yield
    finally:
        for file in helpers:
            restore(root, file)
        shutil.rmtree(copy, ignore_errors=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _edit(names: Sequence[str], what: str, effect: str) -> MeasuringEdit:
    path = names[0] if len(names) == 1 else f"{len(names)} edited benchmarks"
    return MeasuringEdit(kind="work", path=path, what=what, effect=effect, benchmarks=tuple(names))


def _share(ratio: float) -> str:
    """Return how much of the old benchmark's work the new one does: "12 % of the old one's work"."""
    if ratio >= _LARGE_FACTOR:
        return f"{ratio:.0f} times the old one's work"
    return f"{100 * ratio:.3g} % of the old one's work"
