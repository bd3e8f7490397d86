"""Which benchmarks are compared: a survey of what each side holds, made before anything is timed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from perfkit.agent.provenance import foreign_in_words, is_native
from perfkit.choices import RulesOf
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.gating.affected import Changed
from perfkit.gating.rules import (
    ComparedBenchmark,
    Rules,
    changed_value,
    finding_on,
    judged_as,
    under_rules,
)
from perfkit.gating.sides import Hints, OpenSides
from perfkit.model import Benchmark, Side
from perfkit.model.comparisons import Comparison, MeasuringEdit, Verdict
from perfkit.repo.checkout import subfolder
from perfkit.repo.files import overlay, restore
from perfkit.repo.source import benchmark_versions
from perfkit.runner.lockstep.collection import EVERYTHING, Found, Listing, ignore_log
from perfkit.runner.lockstep.launch import SideReport, shared_libraries
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.untimed import count_benchmarks
from perfkit.units import counted, listed

_CONFTEST = "conftest.py"
_USUAL = ("test_*.py", "*_test.py")
_SHA_DIGITS = 10
# This many files are named beside the first one that fails in the same way.
_MOST_NAMED = 3
_ADVICE = (
    "nothing measured with it was recorded: uninstall that copy, or list what may be preloaded in"
    " tool.perfkit.gate.preload"
)


def prove_code(reports: Mapping[Side, SideReport], *, advice: str = _ADVICE) -> None:
    """Check that times and counts are those of the sides' own code."""
    for side, report in reports.items():
        if report.foreign:
            if is_native(report.foreign):
                raise NotMeasuredError(
                    f"{foreign_in_words(report.foreign)}, on {side}; remove it, and build it below the"
                    " checkout or in $TORCH_EXTENSIONS_DIR, which is a folder of each side"
                )
            name, file = min(report.foreign.items())
            raise NotMeasuredError(f"wrong code imported on {side}: {name} came from {file}; {advice}")


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The benchmarks that are compared, and the findings on those that cannot be.

    ``base_own`` are the benchmarks that base has without head's files. ``served`` means that launches can be
    forked from the processes that have listed them. ``libraries`` are the libraries' modules that both sides
    import, ``torch`` are torch's settings after head was imported, ``base_torch`` those after base was.
    ``laid`` are head's files that base is measured with. ``numbers`` are compared too, but are no times.
    ``markers`` has what head changes in the markers of benchmarks, ``edited`` the benchmarks whose own source
    head changes, and ``loaded`` the files that either side imported. Of those that were traced to run the
    same code on both sides, ``same`` has the hash of that code. ``measuring`` is what head edits of how it is
    measured, ``changed`` what differs between the sides, once that was asked.
    """

    compared: tuple[ComparedBenchmark, ...]
    numbers: tuple[ComparedBenchmark, ...] = ()
    findings: tuple[Comparison, ...]
    base_own: frozenset[str]
    served: bool
    libraries: tuple[str, ...]
    torch: Mapping[str, str]
    notes: tuple[str, ...]
    base_torch: Mapping[str, str] = field(default_factory=dict)
    markers: Mapping[str, str] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    loaded: frozenset[str] = frozenset()
    laid: tuple[str, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    measuring: tuple[MeasuringEdit, ...] = ()
    changed: Changed | None = None


def take_survey(
    sides: OpenSides,
    *,
    margin: float | None,
    rules: RulesOf = "base",
    log: Callable[[str], None] = ignore_log,
) -> Survey:
    """List the benchmarks of both sides, head's files laid over base, and find which can be compared.

    ``rules`` is the side whose markers decide. ``log`` receives a sentence now and then where that takes
    long.
    """
    launcher, roots = sides.launcher, sides.roots
    judging = Rules.of(sides.project.config, margin=margin)
    hints = Hints(
        pair=sides.pair,
        folder=subfolder(sides.project, sides.pair, "head"),
        prepared=sides.project.config.prepare is not None,
        overruled="prepare" in sides.scope.overruled,
    )
    listed = launcher.survey(log=log)
    head, base_own = (proven(listed[side], side) for side in ("head", "base"))
    refuse_single(launcher, {"head": head, "base": base_own})
    if EVERYTHING in head.errors:
        raise _not_collected("head", head.errors[EVERYTHING], hints)
    base, laid, not_laid = _with_heads_files(sides, head, base_own)
    if EVERYTHING in base.errors:
        raise _not_collected("base", base.errors[EVERYTHING], hints)
    markers = {name: one.settings for name, one in base_own.found.items() if rules == "base"}
    sorting = _Sorting(
        head=head,
        base_own=base_own,
        base=base,
        not_laid=not_laid,
        rules=judging,
        markers=markers,
        hints=hints,
    )
    compared, numbers = sorting.compared(), sorting.numbers()
    findings = sorting.findings()
    if not compared and not numbers and not findings:
        raise UsageError(f"no benchmark was found: {_why_none(sides)}")
    return Survey(
        compared=compared,
        numbers=numbers,
        findings=findings,
        base_own=frozenset(base_own.found),
        served=launcher.serves,
        libraries=shared_libraries(base.report, head.report),
        torch=head.report.torch,
        base_torch=base.report.torch,
        notes=(
            *roots.warnings,
            *(
                ["ignored, since perfkit runs both sides by turns: " + ", ".join(head.overruled)]
                if head.overruled
                else []
            ),
            *_asv_note(sides, head),
        ),
        markers=dict(sorting.changed_markers()),
        edited=tuple(
            name
            for name, one in head.found.items()
            if name in base_own.found and base_own.found[name].benchmark.version != one.benchmark.version
        ),
        loaded=frozenset((*head.report.loaded, *base_own.report.loaded)),
        laid=laid,
    )


def run_by_own_files(sides: OpenSides, surveyed: Survey, nodes: Sequence[str]) -> frozenset[str]:
    """Return those benchmarks that base runs with its own files, head's being laid over it again afterwards.

    A benchmark that head's files skip is skipped on both sides, which does not show base's own suite.
    """
    own = [node for node in nodes if node in surveyed.base_own]
    if not own or not surveyed.laid:
        return frozenset()
    launcher, roots = sides.launcher, sides.roots
    launcher.narrow([*(one.benchmark.name for one in surveyed.compared), *own])
    for file in surveyed.laid:
        restore(roots.base, file)
    launcher.survey(["base"])
    limit_s = sides.project.config.gate.limit
    found = count_benchmarks(
        launcher, own, limit_s=lambda _: limit_s, on_benchmark=ignore_log, names=["base"]
    )
    overlay(surveyed.laid, source=roots.head, target=roots.base)
    launcher.survey(["base"])
    return frozenset(found.counts["base"])


def proven(found: Listing, side: Side) -> Listing:
    """Return what a side was found to have, once it is known to come from its own code."""
    advice = "uninstall that copy, or name a `prepare` command that installs each side"
    prove_code({side: found.report}, advice=advice)
    return found


def refuse_single(launcher: Launcher, found: Mapping[Side, Listing]) -> None:
    """Check whether a suite that one side could not collect lets only one process run at a time."""
    stopped = [(side, error) for side, one in found.items() if (error := _stopped(one)) is not None]
    if len(stopped) != 1:
        return
    side, (place, words) = stopped[0]
    if place not in launcher.survey_alone(side).errors:
        raise NotMeasuredError(
            f"the suite runs in one process at a time only: {words.removeprefix('E ').strip()}; both sides"
            " are measured at once, so let its conftest take ports, locks and services for each process"
        )
    if (side, place) != ("head", EVERYTHING):
        # Base may be collected once head's files are laid over it, so both sides are needed again.
        launcher.survey()


def _stopped(found: Listing) -> tuple[str, str] | None:
    return next((error for error in found.errors.items() if not error[0].endswith(".py")), None)


def _not_collected(side: Side, words: str, hints: Hints) -> NotMeasuredError:
    text = words.removeprefix("E ").strip()
    hint = hints.of(text, side)
    found = hints.pair.side(side)
    where = f"a checkout of {found.commit.sha[:_SHA_DIGITS]}" if found.kind == "commit" else found.source
    advice = hint.words if hint else f"run `pytest --collect-only` in {where} to see why"
    return NotMeasuredError(f"pytest could not collect the benchmarks of {side}: {text}; {advice}")


def _with_heads_files(
    sides: OpenSides, head: Listing, base_own: Listing
) -> tuple[Listing, tuple[str, ...], Mapping[str, str]]:
    """Return base's benchmarks with head's files, which these are, and the errors of those that fail there.

    Base keeps its own file in the place of such a one.
    """
    launcher, roots = sides.launcher, sides.roots
    files = [*_benchmark_files(head, roots.head), *_files_of_suite(sides, head)]
    changed = overlay(list(dict.fromkeys(files)), source=roots.head, target=roots.base)
    if not changed:
        return base_own, (), {}
    # Base is collected again: the process that has collected its own files would not measure head's.
    laid = proven(launcher.survey(["base"])["base"], "base")
    broken = _broken_files(laid, base_own, changed)
    for file in broken:
        restore(roots.base, file)
    if broken:
        launcher.survey(["base"])
    not_laid = {file: laid.errors[file] for file in broken if file in laid.errors}
    if len(broken) == len(changed):
        return base_own, (), not_laid
    own = {name: found for name, found in base_own.found.items() if found.file in broken}
    kept = {name: found for name, found in laid.found.items() if found.file not in broken}
    kept_files = tuple(file for file in changed if file not in broken)
    return replace(laid, found={**kept, **own}), kept_files, not_laid


def _broken_files(laid: Listing, base_own: Listing, changed: Sequence[str]) -> frozenset[str]:
    collateral = laid.errors.keys() - base_own.errors.keys() - set(changed)
    return frozenset(changed) if collateral else frozenset(changed) & laid.errors.keys()


def _files_of_suite(sides: OpenSides, head: Listing) -> list[str]:
    if sides.asv is None or not any(found.asv for found in head.found.values()):
        return []
    root = sides.roots.head
    return sorted(path.relative_to(root).as_posix() for path in (root / sides.asv.folder).rglob("*.py"))


def _why_none(sides: OpenSides) -> str:
    """Return what to do where pytest found no benchmark: its settings, or unusual names, leave files out."""
    if changed := sorted({"asv", "benchmarks"} & sides.scope.overruled):
        return f"head changes tool.perfkit.{changed[0]}, and base's settings decide: add --rules head"
    root = sides.roots.head / subfolder(sides.project, sides.pair, "head")
    chosen = sides.scope.select or sides.project.config.gate.select
    place = root / (sides.scope.benchmarks or sides.project.config.benchmarks)
    files = [] if chosen else sorted((place if place.exists() else root).rglob("*.py"))
    having = sorted({name.partition("::")[0] for name in benchmark_versions(files, root)})
    unusual = [one for one in having if not any(map(PurePosixPath(one).match, _USUAL))]
    if unusual:
        return (
            f"pytest passes over {listed(unusual, _MOST_NAMED)}, which would have some; set"
            f' python_files = ["test_*.py", "{_pattern(unusual[0])}"] under [tool.pytest.ini_options]'
        )
    if having:
        return (
            f"the settings of pytest leave out {listed(having, _MOST_NAMED)}, which would have some; name"
            f" one: --benchmarks {shlex.quote(having[0])}"
        )
    return "name their path with --benchmarks, widen --select, or make some from the tests: perfkit init"


def _pattern(file: str) -> str:
    begin, mark, _ = PurePosixPath(file).name.partition("_")
    return f"{begin}_*.py" if mark else PurePosixPath(file).name


def _benchmark_files(head: Listing, root: Path) -> list[str]:
    files = {found.file for found in head.found.values()}
    folders = {folder for file in files for folder in PurePosixPath(file).parents}
    conftests = {str(folder / _CONFTEST) for folder in folders if (root / folder / _CONFTEST).is_file()}
    return sorted(conftests) + sorted(files)


@dataclass(frozen=True, kw_only=True)
class _Sorting:
    """Sorts the benchmarks of head, of base by itself, and of base with head's files.

    ``not_laid`` are head's files that do not import on base, each with its error. ``markers`` are the
    settings of ``@pytest.mark.perfkit`` that decide instead of head's.
    """

    head: Listing
    base_own: Listing
    base: Listing
    not_laid: Mapping[str, str]
    rules: Rules
    markers: Mapping[str, Mapping[str, str]]
    hints: Hints

    def compared(self) -> tuple[ComparedBenchmark, ...]:
        """Return the benchmarks that are the same on both sides and measure a time."""
        return tuple(self._judged(found) for found in self._alike() if not found.number)

    def numbers(self) -> tuple[ComparedBenchmark, ...]:
        """Return the benchmarks that are the same on both sides and measure something else."""
        return tuple(self._judged(found) for found in self._alike() if found.number)

    def changed_markers(self) -> Iterator[tuple[str, str]]:
        """Yield the benchmarks of head whose marker is another one on base, and what differs in it."""
        for name, found in self.head.found.items():
            before, after = self.base_own.found.get(name, found).settings, found.settings
            if before != after:
                keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
                yield name, ", ".join(changed_value(key, before.get(key), after.get(key)) for key in keys)

    def _judged(self, found: Found) -> ComparedBenchmark:
        settings = self.markers.get(found.benchmark.name, found.settings)
        return judged_as(replace(found, settings=settings), self.rules)

    def _alike(self) -> Iterator[Found]:
        for name, found in self.head.found.items():
            counterpart = self.base.found.get(name)
            if counterpart is not None and counterpart.benchmark.version == found.benchmark.version:
                yield found

    def findings(self) -> tuple[Comparison, ...]:
        """Return a finding on all that cannot be compared."""
        return (*self._not_on_base(), *self._missing(), *self._not_imported(), *self._skipped())

    def _not_on_base(self) -> Iterator[Comparison]:
        """Yield findings on head's benchmarks that base lacks, or has in another version."""
        for name, found in self.head.found.items():
            counterpart = self.base.found.get(name)
            if counterpart is not None:
                if counterpart.benchmark.version != found.benchmark.version:
                    message = "its own source differs, and head's does not import on base"
                    yield self._on(found, "CHANGED", message)
            elif found.file in self.base_own.errors:
                yield self._on(found, "FAILED", self._import_error("base", self.base_own.errors[found.file]))
            elif found.file in self.base_own.skipped:
                yield self._on(found, "FAILED", f"skipped on base: {self.base_own.skipped[found.file]}")
            else:
                yield self._on(found, "NEW", self._new(found.file))

    def _new(self, file: str) -> str:
        error = self.not_laid.get(file)
        text = "" if error is None else f", and head's file {self._import_error('base', error)}"
        return f"base has no such benchmark{text}"

    def _missing(self) -> Iterator[Comparison]:
        """Yield findings on benchmarks that head lacks: their file does not import, or they were removed."""
        for name, found in self.base_own.found.items():
            if name in self.head.found:
                continue
            if found.file in self.head.errors:
                yield self._on(found, "FAILED", self._import_error("head", self.head.errors[found.file]))
            elif found.file in self.head.skipped:
                yield self._on(found, "MISSING", f"skipped on head: {self.head.skipped[found.file]}")
            else:
                yield self._on(found, "MISSING", "base has it, head does not")

    def _not_imported(self) -> Iterator[Comparison]:
        """Yield findings on head's files that do not import and in which base has no benchmark to name.

        A file that fails in the same way on both sides is not the change's doing, so it is SKIPPED; but
        where the user's tree may have what checkouts alone lack, it is FAILED.
        """
        for files, message in _by_message(self._unknown(self.head.errors, without=self.head.bystanders)):
            hint = self.hints.of(message, "head")
            both = all(self.base_own.errors.get(file) == message for file in files)
            if both and not (hint and hint.of_checkout):
                cause = f"{message}; {hint.words}" if hint else message
                yield self._on_files(files, "SKIPPED", f"does not import on either side: {cause}")
            else:
                yield self._on_files(files, "FAILED", self._import_error("head", message))

    def _skipped(self) -> Iterator[Comparison]:
        for files, reason in _by_message(self._unknown(self.head.skipped)):
            yield self._on_files(files, "SKIPPED", f"skipped as a whole: {reason}")

    def _unknown(self, files: Mapping[str, str], *, without: Collection[str] = ()) -> dict[str, str]:
        known = {found.file for found in self.base_own.found.values()}
        return {file: text for file, text in files.items() if file not in known and file not in without}

    def _import_error(self, side: Side, message: str) -> str:
        hint = self.hints.of(message, side)
        return f"does not import on {side}: {message}" + (f"; {hint.words}" if hint else "")

    def _on(self, found: Found, verdict: Verdict, message: str) -> Comparison:
        return finding_on(self._judged(found), verdict, message)

    def _on_files(self, files: Sequence[str], verdict: Verdict, message: str) -> Comparison:
        first, *others = files
        alike = f"; so it is with {listed(others, _MOST_NAMED)}" if others else ""
        benchmark = Benchmark(name=first, version="")
        return finding_on(under_rules(benchmark, self.rules), verdict, message + alike)


def _by_message(files: Mapping[str, str]) -> Iterator[tuple[list[str], str]]:
    for message in dict.fromkeys(files.values()):
        yield [file for file, text in files.items() if text == message], message


def _asv_note(sides: OpenSides, head: Listing) -> tuple[str, ...]:
    """Return how many benchmarks a suite of asv has here, or that it is not among what is compared."""
    if sides.asv is None:
        return ()
    suite = f"the asv suite {sides.asv.folder} ({sides.asv.file})"
    found = sum(one.asv for one in head.found.values())
    if not found and head.asv_left_out in (None, 0):
        return (f"nothing of {suite} was collected; name it with --benchmarks {sides.asv.folder}",)
    left_out = head.asv_left_out or 0
    more = f", and leaves out {left_out} by its skip_benchmark and skip_params" if left_out else ""
    return (f"{suite} has {counted(found, 'benchmark')} here{more}",)
