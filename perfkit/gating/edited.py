"""How much of the old benchmark's work an edited one does: both versions on base's code, in lockstep."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from perfkit.errors import PerfkitError
from perfkit.gating.coverage import project_folder, tops_of
from perfkit.gating.design import Method
from perfkit.gating.run import LockstepLaunches, SequentialComparison
from perfkit.gating.sides import OpenSides
from perfkit.gating.survey import Survey
from perfkit.model.comparisons import UNDECIDED, Comparison, Doubt, MeasuringEdit
from perfkit.model.progress import Quiet
from perfkit.repo.files import OUTPUTS, has_replaced, original, overlay, put_file, remove_file, restore
from perfkit.runner.lockstep.launch import schedule

# What it may take of the budget.
_SHARE = 0.1
_LARGE_FACTOR = 10
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
        replace(one, prior=(), changed=True, first_only=None)
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
            launches=LockstepLaunches(sides.launcher, limit_s=lambda node: limits[node]),
            policy=replace(method.policy, family=len(wanted), same_code=False, one_sided=False),
            deadline=deadline,
        )
        with suppress(PerfkitError, OSError), _both_versions(sides, surveyed, files):
            sides.launcher.narrow(limits)
            timing.run(schedule(seed=method.seed), Quiet())
    found = timing.comparisons() if timing is not None else ()
    known = {one.benchmark.name: one for one in found if one.estimate is not None}
    doubtful = [one for one in known.values() if one.verdict == "IMPROVED"]
    others = [one for one in known.values() if one.verdict not in ("IMPROVED", "UNCHANGED")]
    edits = [_edit([one.benchmark.name], _share(one), "in doubt") for one in doubtful]
    edits += [_edit([one.benchmark.name], _share(one), "none") for one in others]
    same = [name for name, one in known.items() if one.verdict == "UNCHANGED"]
    rest = [one.benchmark.name for one in wanted if one.benchmark.name not in known]
    if same:
        edits.append(_edit(same, "as much work as before", "none"))
    if rest:
        edits.append(_edit(rest, "not compared with the work before", "none"))
    doubts = {one.benchmark.name: _doubt(one) for one in doubtful}
    return EditedWork(edits=tuple(edits), doubts=doubts)


@contextmanager
def _both_versions(sides: OpenSides, surveyed: Survey, files: Sequence[MeasuringEdit]) -> Iterator[None]:
    """Measure base with its own files of benchmarks against base with head's."""
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
        with sides.launcher.on_other_trees({"base": own, "head": root}):
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


def _doubt(one: Comparison) -> Doubt:
    name = one.benchmark.name.rpartition("::")[2]
    return Doubt(kind="edited benchmark", text=f"the new {name} does {_share(one)}")


def _share(one: Comparison) -> str:
    """Return how much of the old benchmark's work the new one does: "12 % of the old one's work"."""
    found = one.estimate
    assert found is not None  # noqa: S101 (others are left out)
    if found.ratio >= _LARGE_FACTOR:
        return f"{found.ratio:.0f} times the old one's work"
    open_still = one.verdict in UNDECIDED or one.verdict == "NOT SLOWER"
    about = f" ({100 * found.low:.0f} to {100 * found.high:.0f} %)" if open_still else ""
    return f"{100 * found.ratio:.3g} %{about} of the old one's work"
