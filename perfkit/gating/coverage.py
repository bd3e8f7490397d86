"""What the benchmarks run of a change: those that run none of it are not timed."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from perfkit.gating.affected import (
    Changed,
    Decision,
    decide,
    differs_in_bodies,
    notices,
    sort_changed,
)
from perfkit.gating.rules import finding_on
from perfkit.gating.sides import OpenSides
from perfkit.gating.survey import Survey
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import ChangeCoverage
from perfkit.repo.checkout import subfolder
from perfkit.repo.files import differing_files, has_replaced, is_report, original
from perfkit.runner.lockstep.tracing import NotTracedError, trace_sides

# Tracing may take this share of what the budget has left, a larger one where only bodies of functions differ,
# which few benchmarks run as a rule; and this many seconds in any case.
_SHARE, _LARGE_SHARE, _LEAST_S = 0.25, 0.6, 10.0
# Each of a few benchmarks may take all of that time, and one of many this share of it.
_FEW, _LEAST_OF_IT = 5, 0.1
_SAME = "runs the same code on both sides"


@dataclass(frozen=True, kw_only=True)
class Covered:
    """A survey without the benchmarks that run no changed code, and what the others run of it.

    ``loaded`` are the project's files of which anything ran.
    """

    survey: Survey
    coverage: ChangeCoverage | None = None
    loaded: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def expect_tracing(sides: OpenSides) -> None:
    """Have the processes that list benchmarks trace what they import, where ``cover`` is likely to trace."""
    changed = find_changed(sides, (), sides.project.output_paths)
    if changed.files and not changed.others and not sides.environments:
        sides.launcher.trace_imports(tops_of(sides))


def cover(
    sides: OpenSides,
    surveyed: Survey,
    *,
    time_all: bool,
    always: bool,
    log: Callable[[str], None],
    budget_s: float | None = None,
    spent_s: float = 0.0,
    outputs: Collection[Path] = (),
) -> Covered:
    """Trace what each benchmark runs, and take those that run the same code on both sides from a survey.

    With ``time_all`` none is taken away. Nothing is traced where the sides do not differ, or differ in their
    environments, and unless that is to be done ``always``, where a file differs that affects all of them.
    Where tracing fails, all are measured and the coverage has the reason. What perfkit writes into the
    project, and into ``outputs``, is no difference. Of the budget, ``spent_s`` are over.
    """
    compared = (*surveyed.compared, *surveyed.numbers)
    changed = find_changed(sides, surveyed.laid, (*sides.project.output_paths, *outputs))
    nodes = [one.benchmark.name for one in compared]
    if not compared or sides.environments or not changed.files:
        same = {} if sides.environments else dict.fromkeys(nodes, "")
        return Covered(survey=replace(surveyed, same=same, changed=changed))
    surveyed = _noticing(surveyed, changed)
    if changed.others and not always:
        why = f"{min(changed.others)} differs"
        coverage = ChangeCoverage(benchmarks=len(nodes), everything=why, affected=dict.fromkeys(nodes, why))
        return Covered(survey=surveyed, coverage=coverage, notes=_note(why, nodes))
    log("tracing what each benchmark runs")
    gate = sides.project.config.gate
    usual_s = min(gate.seconds_per_benchmark * len(nodes), gate.most_seconds)
    share = _LARGE_SHARE if differs_in_bodies(changed) else _SHARE
    seconds = max(_LEAST_S, share * ((budget_s or usual_s) - spent_s))
    try:
        decision = _decide(sides, nodes, changed, seconds)
    except NotTracedError as error:
        coverage = ChangeCoverage(benchmarks=len(nodes), not_traced=str(error))
        note = f"all benchmarks count as affected, since what they run could not be traced: {error}"
        return Covered(survey=surveyed, coverage=coverage, notes=(note,))
    coverage = ChangeCoverage(
        same=len(decision.same),
        benchmarks=len(nodes),
        functions=decision.functions,
        affected=decision.affected,
        everything=decision.everything,
    )
    folder = project_folder(sides)
    places = map(PurePosixPath, decision.loaded)
    loaded = frozenset(str(one.relative_to(folder)) for one in places if one.is_relative_to(folder))
    surveyed = _marked(surveyed, decision)
    notes = () if decision.everything is None else _note(decision.everything, nodes)
    covered = Covered(survey=surveyed, coverage=coverage, loaded=loaded, notes=notes)
    if time_all:
        return covered
    findings = [
        finding_on(one, "SAME CODE", f"{_SAME} ({decision.same[one.benchmark.name]})")
        for one in compared
        if one.benchmark.name in decision.same
    ]
    findings += [
        finding_on(one, "SKIPPED", f"on both sides: {decision.skipped[one.benchmark.name]}")
        for one in compared
        if one.benchmark.name in decision.skipped
    ]
    found = {one.benchmark.name for one in findings}
    kept = replace(
        surveyed,
        compared=tuple(one for one in surveyed.compared if one.benchmark.name not in found),
        numbers=tuple(one for one in surveyed.numbers if one.benchmark.name not in found),
        findings=(*surveyed.findings, *findings),
    )
    return replace(covered, survey=kept)


def noticing(sides: OpenSides, surveyed: Survey) -> Survey:
    """Mark the benchmarks of a change that asks whether it is measured, all of them, as nothing is traced."""
    return _noticing(surveyed, find_changed(sides, surveyed.laid, ()))


def _noticing(surveyed: Survey, changed: Changed) -> Survey:
    found = notices(changed)
    compared = tuple(replace(one, notices=found) for one in surveyed.compared)
    return replace(surveyed, compared=compared, changed=changed)


def _decide(sides: OpenSides, nodes: Sequence[str], changed: Changed, seconds: float) -> Decision:
    # In a large suite one that takes much of the time is not traced, as many others would be left out for it.
    share = min(max(_LEAST_OF_IT, _FEW / len(nodes)), 1.0)
    limit_s = min(share * seconds, sides.project.config.gate.limit)
    began = time.monotonic()
    trace = functools.partial(trace_sides, sides.launcher, tops=tops_of(sides), limit_s=limit_s)
    traces = trace(nodes=nodes, seconds=seconds)
    decision = decide(nodes, traces, changed)
    # One that shared a process counts as running what those before it ran, so it is traced alone.
    ran = traces["head"].ran
    wanted = decision.affected.keys() - decision.direct
    shared = [node for node in nodes if node in wanted and node in ran and ran[node].parts["before"]]
    spent_s = time.monotonic() - began
    left_s = seconds - spent_s
    # A process that imports takes a while, too.
    if decision.everything is None and shared and left_s > spent_s * len(shared) / len(nodes):
        with contextlib.suppress(NotTracedError):
            again = trace(nodes=shared, seconds=left_s, again=True)["head"].ran
            traces = {side: replace(one, ran={**one.ran, **again}) for side, one in traces.items()}
            decision = decide(nodes, traces, changed)
    return decision


def _marked(surveyed: Survey, decision: Decision) -> Survey:
    """Mark the benchmarks whose timed calls run what differs: they are measured first where time is short."""
    marked = (
        replace(
            one,
            changed=one.benchmark.name in decision.direct,
            first_only=decision.first_only.get(one.benchmark.name),
            cached=one.benchmark.name in decision.cached,
            notices=decision.notices.get(one.benchmark.name),
        )
        for one in surveyed.compared
    )
    return replace(surveyed, compared=tuple(marked), same=decision.same)


def _note(why: str, nodes: Sequence[str]) -> tuple[str, ...]:
    return (f"all benchmarks count as affected: {why}",) if len(nodes) > 1 else ()


def project_folder(sides: OpenSides) -> PurePosixPath:
    """Return where the project lies in the repository."""
    return PurePosixPath(subfolder(sides.project, sides.pair, "head").as_posix())


def tops_of(sides: OpenSides) -> Mapping[Side, Path]:
    """Return the checkouts of both sides, of which the project may be a folder."""
    found = {}
    for side in SIDES:
        top = sides.roots.root(side)
        for _ in subfolder(sides.project, sides.pair, side).parts:
            top = top.parent
        found[side] = top
    return found


def find_changed(sides: OpenSides, laid: Sequence[str], outputs: Collection[Path]) -> Changed:
    """Return what differs between the checkouts, or did before head's files were ``laid`` over base."""
    tops, folder = tops_of(sides), project_folder(sides)
    found = set(differing_files(tops["base"], tops["head"]))
    found |= {str(folder / file) for file in _replaced(sides.roots.base, laid)}
    places = [*_relative(outputs, sides.pair.head.source)]
    written = frozenset(file for file in found if any(_lies_in(file, place) for place in places))
    read = reader_of(sides, laid)
    changed = sort_changed(found - written, read)
    # Like pages of text, they matter to what opens them alone.
    reports = frozenset(file for file in changed.others if _is_report(*(read(side, file) for side in SIDES)))
    # A commit of nothing but what perfkit wrote runs the same code: it is no comparison of one with itself.
    texts = changed.texts | reports | (frozenset() if changed.files else written)
    return replace(changed, others=changed.others - reports, texts=texts, outputs=written)


def _is_report(base: bytes | None, head: bytes | None) -> bool:
    """Return whether perfkit wrote a file, on both sides where both have it."""
    return base != head and all(is_report(content) for content in (base, head) if content is not None)


def _replaced(base: Path, laid: Sequence[str]) -> Iterator[str]:
    for file in laid:
        if has_replaced(base, file) or PurePosixPath(file).name == "conftest.py":
            yield file


def _relative(places: Collection[Path], top: Path) -> Iterator[str]:
    for place in places:
        if place.is_relative_to(top) and place != top:
            yield place.relative_to(top).as_posix()


def _lies_in(file: str, place: str) -> bool:
    return file == place or file.startswith(f"{place}/")


def reader_of(sides: OpenSides, laid: Collection[str]) -> Callable[[Side, str], bytes | None]:
    """Return a function that reads a file of a side by its place in the repository, base's as it was."""
    return functools.partial(_read, tops_of(sides), project_folder(sides), frozenset(laid))


def _read(
    tops: Mapping[Side, Path], project: PurePosixPath, laid: Collection[str], side: Side, file: str
) -> bytes | None:
    """Read a file of a side, base's as it was before head's were laid over it."""
    path = tops[side] / file
    own = PurePosixPath(file)
    if side == "base" and own.is_relative_to(project):
        name = own.relative_to(project).as_posix()
        if name in laid:
            root = tops["base"] / project
            replaced = has_replaced(root, name)
            if not replaced and own.name == "conftest.py":
                return None
            path = original(root, name)
    try:
        return path.read_bytes()
    except OSError:
        return None
