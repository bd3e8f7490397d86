"""How much of the old benchmark's work an edited one does: both versions on base's code, in lockstep."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from perfkit.errors import PerfkitError
from perfkit.gating.coverage import project_folder, tops_of
from perfkit.gating.design import Method
from perfkit.gating.judge import pair_location
from perfkit.gating.run import LockstepLaunches, SequentialComparison
from perfkit.gating.sides import OpenSides
from perfkit.gating.survey import Survey
from perfkit.model.comparisons import Comparison, Doubt, MeasuringEdit, Policy, Quiet, Verdict
from perfkit.repo.files import OUTPUTS, has_replaced, original, overlay, put_file, remove_file, restore
from perfkit.runner.lockstep.launch import schedule

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
