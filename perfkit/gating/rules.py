"""How each benchmark is judged: by its marker, a glob, or the defaults, and by base's configuration."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfkit.config import BenchmarkRule, Config, Project, parse_config, parse_percent, read_config
from perfkit.errors import ConfigError
from perfkit.model import Benchmark
from perfkit.model.comparisons import Comparison, LaunchPair, Verdict
from perfkit.repo.git import try_git
from perfkit.repo.sides import Side, SidePair, folder_in

if TYPE_CHECKING:
    # A history needs margins alone.
    from perfkit.runner.lockstep.collection import Found
    from perfkit.runner.lockstep.launch import Failure

_BOOLEANS = {"True": True, "False": False}
# Keys of [tool.perfkit] for what is compared and what fails; the others are for output.
RULES = ("targets", "benchmarks", "asv", "margin", "prepare", "gate", "exact", "rules")
_FILE = "pyproject.toml"
_SHA_DIGITS = 10
_LONGEST_VALUE = 40


@dataclass(frozen=True, kw_only=True)
class ComparedBenchmark:
    """A benchmark that both sides have, and how it is judged; it may send nothing for ``limit_s`` seconds.

    ``changed`` means that it may run code that differs between the sides. ``prior`` are its launches from
    earlier gates on the same pair, whose test this run continues. A ``number`` is measured instead of a time.
    ``first_only`` is how little of its first call's code a later one runs, None where it runs half or more,
    ``cached`` whether it runs nothing of that on head alone,
    and ``notices`` where code of this change that it runs asks whether it is measured.
    ``result`` is the relative tolerance of what its calls return: True by type, False to compare nothing.
    """

    benchmark: Benchmark
    margin: float
    gating: bool
    limit_s: float
    changed: bool = True
    number: bool = False
    prior: tuple[LaunchPair, ...] = ()
    first_only: str | None = None
    cached: bool = False
    notices: str | None = None
    result: float | bool = True


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How each benchmark is judged where neither its marker nor a glob sets it."""

    margin: float
    limit_s: float
    globs: tuple[BenchmarkRule, ...]

    @classmethod
    def of(cls, config: Config, *, margin: float | None) -> Rules:
        """Return the rules of a configuration, with another default margin where one is given."""
        return cls(margin=margin or config.margin_share, limit_s=config.gate.limit, globs=config.rules)


def finding_on(one: ComparedBenchmark, verdict: Verdict, message: str) -> Comparison:
    """Return the finding on a benchmark that cannot be compared."""
    return Comparison(
        benchmark=one.benchmark, verdict=verdict, margin=one.margin, gating=one.gating, message=message
    )


def finding_on_failure(
    one: ComparedBenchmark, failure: Failure, *, base_own: Collection[str] | None = None
) -> Comparison:
    """Return the finding on a benchmark that failed on one side, or alike on both.

    A benchmark that base never had may raise or skip there, since base lacks the code to measure: then it is
    NEW. ``base_own`` are those that base had, None where both sides have all. One that both sides skip is
    SKIPPED, and MISSING where head alone does. One that gave no sign of life in time is TIMEOUT, and
    everything else is FAILED.
    """
    side = "both sides" if failure.both else failure.side
    if failure.both and failure.status == "skipped":
        return finding_on(one, "SKIPPED", f"on both sides: {failure.message}")
    if (
        base_own is not None
        and not failure.both
        and failure.side == "base"
        and failure.raised
        and one.benchmark.name not in base_own
    ):
        return finding_on(one, "NEW", f"on base: {failure.message}")
    if failure.status == "skipped":
        verdict: Verdict = "MISSING" if failure.side == "head" else "FAILED"
        return finding_on(one, verdict, f"skipped on {failure.side}: {failure.message}")
    verdict = "TIMEOUT" if failure.status == "timeout" else "FAILED"
    return finding_on(one, verdict, f"on {side}: {failure.message}")


def under_rules(benchmark: Benchmark, rules: Rules) -> ComparedBenchmark:
    """Return a benchmark with margin, gating and limit of the rules; the last glob that matches wins."""
    one = ComparedBenchmark(benchmark=benchmark, margin=rules.margin, gating=True, limit_s=rules.limit_s)
    for rule in rules.globs:
        if fnmatch.fnmatchcase(benchmark.name, rule.match):
            one = _with_rule(one, rule)
    return one


def judged_as(found: Found, rules: Rules) -> ComparedBenchmark:
    """Return a benchmark with margin, gating and limit of its marker, or else of the rules."""
    own = rules if found.limit_s is None else replace(rules, limit_s=found.limit_s)
    one = _with_marker(under_rules(found.benchmark, own), found.settings)
    return replace(one, number=found.number)


def _with_rule(one: ComparedBenchmark, rule: BenchmarkRule) -> ComparedBenchmark:
    margin = None if rule.margin is None else parse_percent(rule.margin, key="margin")
    return replace(
        one,
        margin=one.margin if margin is None else margin,
        gating=one.gating if rule.gate is None else rule.gate,
        limit_s=one.limit_s if rule.limit is None else rule.limit,
        result=one.result if rule.result is None else rule.result,
    )


def _with_marker(one: ComparedBenchmark, settings: Mapping[str, str]) -> ComparedBenchmark:
    """Return a benchmark with what ``@pytest.mark.perfkit`` sets, which is given as texts."""
    try:
        rule = BenchmarkRule(
            match=one.benchmark.name,
            margin=settings.get("margin"),
            gate=_BOOLEANS[settings["gate"]] if "gate" in settings else None,
            limit=float(settings["limit"]) if "limit" in settings else None,
            result=_result(settings["result"]) if "result" in settings else None,
        )
        if settings.keys() <= {"margin", "gate", "limit", "sentinel", "flush_l2", "result"}:
            return _with_rule(one, rule)
    except (KeyError, ValueError, ConfigError):
        pass
    words = ", ".join(f"{key}={text}" for key, text in settings.items())
    raise ConfigError(
        f"{one.benchmark.name}: the marker perfkit({words}) is not understood;"
        ' it reads perfkit(margin="2%", gate=False, limit=60, result=1e-3, sentinel=True, flush_l2=True)'
    )


def _result(text: str) -> float | bool:
    known = _BOOLEANS.get(text)
    return float(text) if known is None else known


@dataclass(frozen=True, kw_only=True)
class Ruled:
    """A project with the rules that decide, a phrase on each that head changes, and the targets it drops."""

    project: Project
    changed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def with_rules_of_base(project: Project, pair: SidePair) -> Ruled:
    """Return a project with the rules of base."""
    if not rules_are_read(project, pair):
        return Ruled(project=project)
    try:
        base = _rules_of(pair.base, project)
    except ConfigError as error:
        raise ConfigError(
            f"the rules of base cannot be read: {error} (`--rules head` judges by those of head)"
        ) from error
    head = _rules_of(pair.head, project)
    targets = base["targets"]
    counted = (*targets,) if base["exact"].targets is None else base["exact"].targets
    dropped = tuple(name for name in counted if head["targets"].get(name) != targets[name])
    exact = msgspec.structs.replace(
        base["exact"], targets=tuple(name for name in counted if name not in dropped)
    )
    config = msgspec.structs.replace(project.config, **{**base, "exact": exact})
    return Ruled(
        project=msgspec.structs.replace(project, config=config),
        changed=tuple(_changes(_flat(base), _flat(head))),
        dropped=dropped,
    )


def with_rules_of_head(project: Project, pair: SidePair) -> Ruled:
    """Return a project with the rules of head, which the working tree has only where it is head."""
    if pair.head.kind != "commit":
        return Ruled(project=project)
    config = msgspec.structs.replace(project.config, **_rules_of(pair.head, project))
    return Ruled(project=msgspec.structs.replace(project, config=config))


def rules_are_read(project: Project, pair: SidePair) -> bool:
    """Return whether the sides have rules: of other directories than the project's, its own decide."""
    return pair.head.kind != "directory" or project.root == pair.head.source


def _rules_of(side: Side, project: Project) -> dict[str, Any]:
    config = _config_of(side, project)
    return {key: getattr(config, key) for key in RULES}


def _config_of(side: Side, project: Project) -> Config:
    if side.kind == "worktree":
        return project.config
    if side.kind == "directory":
        file = side.source / _FILE
        return read_config(file) if file.is_file() else Config()
    path = (folder_in(side, project.root) / _FILE).as_posix()
    text = try_git(side.source, "show", f"{side.commit.sha}:{path}")
    return Config() if text is None else parse_config(text, Path(f"{side.commit.sha[:_SHA_DIGITS]}:{path}"))


def _flat(rules: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in msgspec.to_builtins(rules).items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


def _changes(base: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*base, *head]):
        before, after = base.get(key), head.get(key)
        if before != after:
            is_list = isinstance(before, list | tuple) or isinstance(after, list | tuple)
            yield key if is_list else f"{key} ({_shown(before)} to {_shown(after)})"


def changed_value(key: str, before: object, after: object) -> str:
    """Return how a setting differs: 'margin: "2%" -> "50%"'; long values are cut."""
    return f"{key}: {_cut(before)} -> {_cut(after)}"


def _cut(value: object) -> str:
    text = _shown(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _shown(value: object) -> str:
    return "not set" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower()
