"""Which benchmarks compete: what each side holds, laid side by side before anything is timed."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from perfkit.compare.sequential import Contender
from perfkit.config import BenchmarkRule, Config, parse_percent
from perfkit.errors import ConfigError, NotMeasuredError, PerfkitError, UsageError
from perfkit.measure.lockstep.launch import Failure, shared_libraries
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.measure.lockstep.scout import EVERYTHING, Found, Scouted, scout
from perfkit.records import Benchmark, Side
from perfkit.records.comparisons import Comparison, Verdict
from perfkit.repo.checkout import Roots
from perfkit.repo.overlay import overlay, restore

_CONFTEST = "conftest.py"
_WRONG_SELECTION = "passed to '-k'"
_BOOLEANS = {"True": True, "False": False}


@dataclass(frozen=True, kw_only=True)
class Field:
    """The contenders, and the findings on benchmarks that cannot be compared.

    ``base_own`` are the benchmarks that base has without head's files. ``libraries`` are the modules
    from elsewhere that both sides import, ``torch`` the settings that head leaves torch with.
    """

    contenders: tuple[Contender, ...]
    findings: tuple[Comparison, ...]
    base_own: frozenset[str]
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


def survey(launcher: Launcher, roots: Roots, rules: Rules) -> Field:
    """List the benchmarks of both sides, head's files laid over base, and say which can be compared.

    Raises:
        NotMeasuredError: pytest cannot collect a side, or a side's code would come from elsewhere.
        UsageError: there is no benchmark on either side.
    """
    head, base_own = (_scout(launcher, side) for side in ("head", "base"))
    if EVERYTHING in head.errors:
        raise _not_collected(head.errors[EVERYTHING])
    if not head.found and not base_own.found and not head.errors:
        raise UsageError(
            "no benchmark was found: name their path with --benchmarks, widen --select, "
            "or write a test that uses pytest-benchmark's `benchmark` fixture"
        )
    base = _with_heads_files(launcher, roots, head, base_own)
    return _sort_out(head, base_own, base, rules)


def _scout(launcher: Launcher, side: Side) -> Scouted:
    found = scout(launcher.start(side, nodes=None))
    if found.report.foreign:
        name, file = min(found.report.foreign.items())
        raise NotMeasuredError(
            f"wrong code imported on {side}: {name} came from {file}, not from the checkout;"
            " uninstall that copy, or name a `prepare` command that installs each side"
        )
    return found


def _not_collected(words: str) -> PerfkitError:
    if _WRONG_SELECTION in words:
        return UsageError(f"--select is not what pytest's -k reads: {words}")
    return NotMeasuredError(
        f"pytest could not collect the benchmarks of head: {words};"
        " run `pytest --collect-only` there to see why"
    )


def _with_heads_files(launcher: Launcher, roots: Roots, head: Scouted, base_own: Scouted) -> Scouted:
    """Return base as it is with head's benchmark files; a file that does not import there is base's own."""
    changed = overlay(_benchmark_files(head, roots.head), source=roots.head, target=roots.base)
    if not changed:
        return base_own
    laid = _scout(launcher, "base")
    broken = _broken_files(laid, base_own, changed)
    for file in broken:
        restore(roots.base, file)
    if len(broken) == len(changed):
        return base_own
    own = {name: found for name, found in base_own.found.items() if found.file in broken}
    kept = {name: found for name, found in laid.found.items() if found.file not in broken}
    return replace(laid, found={**kept, **own})


def _broken_files(laid: Scouted, base_own: Scouted, changed: Sequence[str]) -> frozenset[str]:
    """Return the laid files to take back: all, where something else does not import now (a conftest)."""
    collateral = laid.errors.keys() - base_own.errors.keys() - set(changed)
    return frozenset(changed) if collateral else frozenset(changed) & laid.errors.keys()


def _benchmark_files(head: Scouted, root: Path) -> list[str]:
    """Return the files that hold head's benchmarks, and the conftest files above them."""
    files = {found.file for found in head.found.values()}
    folders = {folder for file in files for folder in PurePosixPath(file).parents}
    conftests = {str(folder / _CONFTEST) for folder in folders if (root / folder / _CONFTEST).is_file()}
    return sorted(conftests) + sorted(files)


def _sort_out(head: Scouted, base_own: Scouted, base: Scouted, rules: Rules) -> Field:
    contenders: list[Contender] = []
    findings: list[Comparison] = []
    for name, found in head.found.items():
        counterpart = base.found.get(name)
        contender = _contender(found, rules)
        if counterpart is None:
            findings.append(finding_on(contender, "NEW", "base has no such benchmark"))
        elif counterpart.benchmark.version != found.benchmark.version:
            message = "its own source differs, and head's does not import on base"
            findings.append(finding_on(contender, "CHANGED", message))
        else:
            contenders.append(contender)
    findings += _missing(head, base_own, rules)
    return Field(
        contenders=tuple(contenders),
        findings=tuple(findings),
        base_own=frozenset(base_own.found),
        libraries=shared_libraries(base.report, head.report),
        torch=head.report.torch,
        notes=_overruled_note(head),
    )


def _missing(head: Scouted, base_own: Scouted, rules: Rules) -> list[Comparison]:
    """Return what base has and head has not: lost with a file that does not import, or gone."""
    findings = []
    lost_files = set(head.errors)
    for name, found in base_own.found.items():
        if name in head.found:
            continue
        contender = _contender(found, rules)
        if found.file in lost_files:
            message = f"does not import on head: {head.errors[found.file]}"
            findings.append(finding_on(contender, "FAILED", message))
        else:
            findings.append(finding_on(contender, "MISSING", "base has it, head does not"))
    known = {found.file for found in base_own.found.values()}
    for node, message in head.errors.items():
        if node not in known:
            benchmark = Benchmark(name=node, version="")
            findings.append(
                Comparison(
                    benchmark=benchmark,
                    verdict="FAILED",
                    margin=rules.margin,
                    message=f"does not import on head: {message}",
                )
            )
    return findings


def finding_on(contender: Contender, verdict: Verdict, message: str) -> Comparison:
    """Return the finding on a benchmark that cannot be compared."""
    return Comparison(
        benchmark=contender.benchmark,
        verdict=verdict,
        margin=contender.margin,
        gating=contender.gating,
        message=message,
    )


def finding_on_failure(contender: Contender, failure: Failure) -> Comparison:
    """Return the finding on a benchmark that failed on one side."""
    verdict: Verdict = "TIMEOUT" if failure.status == "timeout" else "FAILED"
    return finding_on(contender, verdict, f"on {failure.side}: {failure.message}")


def under_rules(benchmark: Benchmark, rules: Rules) -> Contender:
    """Settle margin, gating and limit where there is no marker: the last glob that matches decides."""
    contender = Contender(benchmark=benchmark, margin=rules.margin, gating=True, limit_s=rules.limit_s)
    for rule in rules.globs:
        if fnmatch.fnmatchcase(benchmark.name, rule.match):
            contender = _with_rule(contender, rule)
    return contender


def _contender(found: Found, rules: Rules) -> Contender:
    """Settle margin, gating and limit: its own marker first, then the last glob that matches."""
    return _with_marker(under_rules(found.benchmark, rules), found.settings)


def _with_rule(contender: Contender, rule: BenchmarkRule) -> Contender:
    margin = None if rule.margin is None else parse_percent(rule.margin, key="margin")
    return replace(
        contender,
        margin=contender.margin if margin is None else margin,
        gating=contender.gating if rule.gate is None else rule.gate,
        limit_s=contender.limit_s if rule.limit is None else rule.limit,
    )


def _with_marker(contender: Contender, settings: Mapping[str, str]) -> Contender:
    """Settle what ``@pytest.mark.perfkit`` says, which comes as the text of its values."""
    try:
        rule = BenchmarkRule(
            match=contender.benchmark.name,
            margin=settings.get("margin"),
            gate=_BOOLEANS[settings["gate"]] if "gate" in settings else None,
            limit=float(settings["limit"]) if "limit" in settings else None,
        )
        if settings.keys() <= {"margin", "gate", "limit"}:
            return _with_rule(contender, rule)
    except (KeyError, ValueError, ConfigError):
        pass
    said = ", ".join(f"{key}={text}" for key, text in settings.items())
    raise ConfigError(
        f"{contender.benchmark.name}: the marker perfkit({said}) is not understood;"
        ' it reads perfkit(margin="2%", gate=False, limit=60)'
    )


def _overruled_note(head: Scouted) -> tuple[str, ...]:
    if not head.overruled:
        return ()
    return (f"overruled, as they would break lockstep: {', '.join(head.overruled)}",)
