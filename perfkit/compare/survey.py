"""Which benchmarks are compared: a survey of what each side holds, made before anything is timed."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from perfkit.compare.sequential import ComparedBenchmark
from perfkit.compare.sides import OpenSides
from perfkit.config import BenchmarkRule, Config, parse_percent
from perfkit.errors import ConfigError, NotMeasuredError, PerfkitError, UsageError
from perfkit.measure.lockstep.launch import Failure, shared_libraries
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.measure.lockstep.scout import EVERYTHING, Found, Scouted
from perfkit.records import Benchmark, Side
from perfkit.records.comparisons import Comparison, Verdict
from perfkit.repo.checkout import Roots
from perfkit.repo.overlay import overlay, restore

_CONFTEST = "conftest.py"
_WRONG_SELECTION = "passed to '-k'"
_BOOLEANS = {"True": True, "False": False}


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The benchmarks that are compared, and the findings on those that cannot be.

    ``base_own`` are the benchmarks that base has without head's files. ``served`` says that launches can be
    forked from the processes that have listed them. ``libraries`` are the modules
    from elsewhere that both sides import, ``torch`` the settings that head leaves torch with.
    """

    compared: tuple[ComparedBenchmark, ...]
    findings: tuple[Comparison, ...]
    base_own: frozenset[str]
    served: bool
    libraries: tuple[str, ...]
    torch: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How each benchmark is judged where neither its marker nor a glob says otherwise."""

    margin: float
    limit_s: float
    globs: tuple[BenchmarkRule, ...]

    @classmethod
    def of(cls, config: Config, *, margin: float | None) -> Rules:
        """Return the rules of a configuration, with another default margin where one is given."""
        return cls(margin=margin or config.margin_share, limit_s=config.gate.limit, globs=config.rules)


def take_survey(sides: OpenSides, *, margin: float | None) -> Survey:
    """List the benchmarks of both sides, head's files laid over base, and say which can be compared.

    Raises:
        NotMeasuredError: pytest cannot collect a side, or a side's code would come from elsewhere.
        UsageError: there is no benchmark on either side.
    """
    launcher, roots = sides.launcher, sides.roots
    rules = Rules.of(sides.project.config, margin=margin)
    listed = launcher.survey()
    head, base_own = (_proven(listed[side], side) for side in ("head", "base"))
    if EVERYTHING in head.errors:
        raise _not_collected("head", head.errors[EVERYTHING])
    base = _with_heads_files(launcher, roots, head, base_own)
    if EVERYTHING in base.errors:
        raise _not_collected("base", base.errors[EVERYTHING])
    if not head.found and not base_own.found and not head.errors:
        raise UsageError(
            "no benchmark was found: name their path with --benchmarks, widen --select, "
            "or write a test that uses pytest-benchmark's `benchmark` fixture"
        )
    return _sort_out(head, base_own, base, rules, roots.warnings, served=launcher.serves)


def _proven(found: Scouted, side: Side) -> Scouted:
    if found.report.foreign:
        name, file = min(found.report.foreign.items())
        raise NotMeasuredError(
            f"wrong code imported on {side}: {name} came from {file}, not from the checkout;"
            " uninstall that copy, or name a `prepare` command that installs each side"
        )
    return found


def _not_collected(side: Side, words: str) -> PerfkitError:
    if _WRONG_SELECTION in words:
        return UsageError(f"--select is not what pytest's -k reads: {words}")
    return NotMeasuredError(
        f"pytest could not collect the benchmarks of {side}: {words};"
        " run `pytest --collect-only` there to see why"
    )


def _with_heads_files(launcher: Launcher, roots: Roots, head: Scouted, base_own: Scouted) -> Scouted:
    """Return what base holds with head's benchmark files; where one does not import, base keeps its own."""
    changed = overlay(_benchmark_files(head, roots.head), source=roots.head, target=roots.base)
    if not changed:
        return base_own
    # The process that has collected base's own files would not measure head's.
    laid = _proven(launcher.survey(["base"])["base"], "base")
    broken = _broken_files(laid, base_own, changed)
    for file in broken:
        restore(roots.base, file)
    if broken:
        launcher.survey(["base"])
    if len(broken) == len(changed):
        return base_own
    own = {name: found for name, found in base_own.found.items() if found.file in broken}
    kept = {name: found for name, found in laid.found.items() if found.file not in broken}
    return replace(laid, found={**kept, **own})


def _broken_files(laid: Scouted, base_own: Scouted, changed: Sequence[str]) -> frozenset[str]:
    """Return the overlaid files to undo: all of them, where another file (a conftest) no longer imports."""
    collateral = laid.errors.keys() - base_own.errors.keys() - set(changed)
    return frozenset(changed) if collateral else frozenset(changed) & laid.errors.keys()


def _benchmark_files(head: Scouted, root: Path) -> list[str]:
    """Return the files that hold head's benchmarks, and the conftest files above them."""
    files = {found.file for found in head.found.values()}
    folders = {folder for file in files for folder in PurePosixPath(file).parents}
    conftests = {str(folder / _CONFTEST) for folder in folders if (root / folder / _CONFTEST).is_file()}
    return sorted(conftests) + sorted(files)


def _sort_out(
    head: Scouted,
    base_own: Scouted,
    base: Scouted,
    rules: Rules,
    warnings: Sequence[str],
    *,
    served: bool,
) -> Survey:
    compared: list[ComparedBenchmark] = []
    findings: list[Comparison] = []
    for name, found in head.found.items():
        counterpart = base.found.get(name)
        one = _judged_as(found, rules)
        if counterpart is not None and counterpart.benchmark.version == found.benchmark.version:
            compared.append(one)
        elif counterpart is not None:
            message = "its own source differs, and head's does not import on base"
            findings.append(finding_on(one, "CHANGED", message))
        elif found.file in base_own.errors:
            message = f"does not import on base: {base_own.errors[found.file]}"
            findings.append(finding_on(one, "FAILED", message))
        else:
            findings.append(finding_on(one, "NEW", "base has no such benchmark"))
    findings += [*_missing(head, base_own, rules), *_not_imported(head, base_own, rules)]
    return Survey(
        compared=tuple(compared),
        findings=tuple(findings),
        base_own=frozenset(base_own.found),
        served=served,
        libraries=shared_libraries(base.report, head.report),
        torch=head.report.torch,
        notes=(*warnings, *_overruled_note(head)),
    )


def _missing(head: Scouted, base_own: Scouted, rules: Rules) -> Iterator[Comparison]:
    """Yield findings on benchmarks that head lacks: their file does not import, or they were removed."""
    for name, found in base_own.found.items():
        if name in head.found:
            continue
        one = _judged_as(found, rules)
        if found.file in head.errors:
            yield finding_on(one, "FAILED", f"does not import on head: {head.errors[found.file]}")
        else:
            yield finding_on(one, "MISSING", "base has it, head does not")


def _not_imported(head: Scouted, base_own: Scouted, rules: Rules) -> Iterator[Comparison]:
    """Yield findings on head's files that do not import and in which base has no benchmark to name."""
    known = {found.file for found in base_own.found.values()}
    for node, message in head.errors.items():
        if node not in known:
            yield Comparison(
                benchmark=Benchmark(name=node, version=""),
                verdict="FAILED",
                margin=rules.margin,
                message=f"does not import on head: {message}",
            )


def finding_on(one: ComparedBenchmark, verdict: Verdict, message: str) -> Comparison:
    """Return the finding on a benchmark that cannot be compared."""
    return Comparison(
        benchmark=one.benchmark, verdict=verdict, margin=one.margin, gating=one.gating, message=message
    )


def finding_on_failure(
    one: ComparedBenchmark, failure: Failure, *, base_own: Collection[str] | None = None
) -> Comparison:
    """Return the finding on a benchmark that failed on one side.

    A benchmark that base never had (``base_own`` are those it had; None where both sides have all) may raise
    or skip there, since base lacks the code to measure: then it is NEW. One that both sides skip is SKIPPED,
    and MISSING where head alone does. Any other end is a failure.
    """
    if failure.both:
        return finding_on(one, "SKIPPED", f"on both sides: {failure.message}")
    if (
        base_own is not None
        and failure.side == "base"
        and failure.raised
        and one.benchmark.name not in base_own
    ):
        return finding_on(one, "NEW", f"on base: {failure.message}")
    if failure.status == "skipped":
        verdict: Verdict = "MISSING" if failure.side == "head" else "FAILED"
        return finding_on(one, verdict, f"skipped on {failure.side}: {failure.message}")
    verdict = "TIMEOUT" if failure.status == "timeout" else "FAILED"
    return finding_on(one, verdict, f"on {failure.side}: {failure.message}")


def under_rules(benchmark: Benchmark, rules: Rules) -> ComparedBenchmark:
    """Settle margin, gating and limit where there is no marker: the last glob that matches decides."""
    one = ComparedBenchmark(benchmark=benchmark, margin=rules.margin, gating=True, limit_s=rules.limit_s)
    for rule in rules.globs:
        if fnmatch.fnmatchcase(benchmark.name, rule.match):
            one = _with_rule(one, rule)
    return one


def _judged_as(found: Found, rules: Rules) -> ComparedBenchmark:
    """Settle margin, gating and limit: its own marker first, then the last glob that matches."""
    return _with_marker(under_rules(found.benchmark, rules), found.settings)


def _with_rule(one: ComparedBenchmark, rule: BenchmarkRule) -> ComparedBenchmark:
    margin = None if rule.margin is None else parse_percent(rule.margin, key="margin")
    return replace(
        one,
        margin=one.margin if margin is None else margin,
        gating=one.gating if rule.gate is None else rule.gate,
        limit_s=one.limit_s if rule.limit is None else rule.limit,
    )


def _with_marker(one: ComparedBenchmark, settings: Mapping[str, str]) -> ComparedBenchmark:
    """Settle what ``@pytest.mark.perfkit`` says, which comes as the text of its values."""
    try:
        rule = BenchmarkRule(
            match=one.benchmark.name,
            margin=settings.get("margin"),
            gate=_BOOLEANS[settings["gate"]] if "gate" in settings else None,
            limit=float(settings["limit"]) if "limit" in settings else None,
        )
        if settings.keys() <= {"margin", "gate", "limit"}:
            return _with_rule(one, rule)
    except (KeyError, ValueError, ConfigError):
        pass
    said = ", ".join(f"{key}={text}" for key, text in settings.items())
    raise ConfigError(
        f"{one.benchmark.name}: the marker perfkit({said}) is not understood;"
        ' it reads perfkit(margin="2%", gate=False, limit=60)'
    )


def _overruled_note(head: Scouted) -> tuple[str, ...]:
    if not head.overruled:
        return ()
    return (f"overruled, as they would break lockstep: {', '.join(head.overruled)}",)
