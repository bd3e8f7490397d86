"""The one configuration, ``[tool.perfkit]`` of the nearest ``pyproject.toml``; every key has a default."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from perfkit.bounded import read_text
from perfkit.choices import FailOn, Inconclusive
from perfkit.errors import ConfigError, UsageError

DEFAULT_LEDGER = "benchmarks/ledger"
# Identical code can appear this much slower, since it lies elsewhere in memory.
DEFAULT_NOISE_FLOOR = "0.5%"
_ASV_FILES = ("asv.conf.json", "asv.conf.jsonc")
_ASV_LIMIT_S = 60.0
_STRING = r'(?P<string>"(?:\\.|[^"\\])*")'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,\s*(?P<end>[}}\]])")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# A scheme has two letters at least; a path that was made of a URL has lost one of its slashes.
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|(?:s3|gs|az|file):/")


class LogColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of ``perf_log.md``: a heading and the benchmark (node id, or its end) it shows."""

    title: str
    benchmark: str


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit.log]``: where the log is and which columns it has (none: the longest histories).

    ``trends`` is a folder with pictures from ``perfkit report --trends``, which the columns link to.
    """

    file: str = "perf_log.md"
    columns: tuple[LogColumn, ...] = ()
    trends: str | None = None


class GateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit.gate]``: error rate and time of ``perfkit gate``; times in seconds.

    A gate without ``--budget`` may take ``seconds_per_benchmark`` for each, and ``most_seconds`` for all.
    ``select`` (as pytest's ``-k``) is what is measured where nothing else is asked for, None for everything.
    ``against`` is a release that head is compared with besides its base, None for none.
    ``preload`` are libraries that both sides share, imported once for many launches (not given: torch,
    numpy, and what both sides are seen to import).

    ``fail_on`` "proven" fails a slowdown that is proven to be above ``noise_floor``, however small it is.
    ``inconclusive`` is for benchmarks that the budget leaves undecided (not given: they fail,
    but with "proven" they pass); with "go on" measuring may go on for ``go_on_seconds`` after the budget.
    With ``same_code = false`` nothing is traced, and benchmarks that run no changed code are timed as well.
    A ``strict`` gate ends with 4 where a change edits how it is measured, until a person accepts that.
    """

    alpha: float = 0.01
    seconds_per_benchmark: float = 20.0
    most_seconds: float = 240.0
    limit: float = 30.0
    select: str | None = None
    against: str | None = None
    preload: tuple[str, ...] | None = None
    fail_on: FailOn = "margin"
    noise_floor: str | None = None
    inconclusive: Inconclusive | None = None
    go_on_seconds: float = 3600.0
    same_code: bool = True
    strict: bool = False

    @property
    def noise_floor_share(self) -> float:
        """The noise floor as a share: 0.005 for ``"0.5%"``."""
        return parse_percent(self.noise_floor or DEFAULT_NOISE_FLOOR, key="noise_floor", or_zero=True)


class BackfillConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit.backfill]``: ``limit`` is how many seconds a launch of all benchmarks may take."""

    limit: float = 900.0


class PrepareRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of ``[[tool.perfkit.prepare_for]]``: the shell command that makes a range of commits ready.

    ``range`` is a commit, ``A..B`` with both ends, ``..B`` for B and all before it, or ``A..`` up to HEAD.
    """

    range: str
    command: str


class ExactConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit.exact]``: what is counted beside the times, and which counts decide.

    ``gate`` names the counts that decide when they grow by more than ``tolerance``; where it names syncs, any
    new sync in a training step decides. ``targets`` are those whose training steps are counted, None for all.
    """

    count: bool = True
    gate: tuple[str, ...] = (
        "syncs", "operators", "allocated", "peak", "graphs", "recompiles", "kept", "peak_resident",
        "import_time",
    )  # fmt: skip
    tolerance: str = "5%"
    targets: tuple[str, ...] | None = None

    @property
    def tolerance_share(self) -> float:
        """The tolerance as a share: 0.05 for ``"5%"``."""
        return parse_percent(self.tolerance, key="tolerance")


class BenchmarkRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of ``[[tool.perfkit.rules]]``: how benchmarks whose node id matches a glob are judged.

    A ``sentinel`` depends on none of the project's code: where it moves, the machine has.
    """

    match: str
    margin: str | None = None
    gate: bool | None = None
    limit: float | None = None
    sentinel: bool | None = None
    result: float | bool | None = None


class HistoryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit.history]``: after how many days without a measurement a benchmark is called silent."""

    silent_days: float = 14.0


class ReportConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit.report]``: where the pages go, what they are called, and what they link to.

    ``out`` is the folder of the pages; one that is named here is perfkit's own output. ``commit_url`` is the
    address of a commit, with ``{commit}`` in the place of its hash, ``range_url`` that of a range of commits,
    with ``{before}`` and ``{after}``. ``documents`` are patterns of files that the pages show or link to.
    """

    out: str | None = None
    title: str | None = None
    commit_url: str | None = None
    range_url: str | None = None
    documents: tuple[str, ...] = ("docs/experiments/*.md", "docs/tricks/*.md", "profiles/*.html")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tool.perfkit]``: every key has a default.

    ``copy`` and ``link`` are patterns of generated files that a fresh checkout lacks, ``prepare`` a shell
    command that makes a checkout ready. In a backfill the first of ``prepare_for`` with a commit replaces it.
    ``asv`` is the configuration file of a suite of asv; not given, it is looked for in the root and the
    folders in it, and with ``false`` it is not.
    """

    targets: dict[str, str] = {}
    own: tuple[str, ...] = ()
    benchmarks: str = "benchmarks"
    asv: str | bool = True
    ledger: str = DEFAULT_LEDGER
    profiles: str = "profiles"
    margin: str = "2%"
    log: LogConfig = LogConfig()
    copy: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    prepare: str | None = None
    prepare_for: tuple[PrepareRule, ...] = ()
    gate: GateConfig = GateConfig()
    backfill: BackfillConfig = BackfillConfig()
    exact: ExactConfig = ExactConfig()
    history: HistoryConfig = HistoryConfig()
    report: ReportConfig = ReportConfig()
    rules: tuple[BenchmarkRule, ...] = ()

    @property
    def margin_share(self) -> float:
        """The margin as a share: 0.02 for ``"2%"``."""
        return parse_percent(self.margin, key="margin")


@dataclass(frozen=True, kw_only=True)
class AsvSuite:
    """A suite of asv: its configuration file and its folder, relative to the root."""

    file: str
    folder: str
    limit_s: float


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and the folder that its relative paths start from."""

    root: Path
    config: Config

    def path(self, relative: str) -> Path:
        """Return a configured path, absolute paths as they are."""
        return self.root / relative

    def asv_suite(self, tree: Path | None = None) -> AsvSuite | None:
        """Return the suite of asv in a checkout of the project, or in the project itself, if any."""
        return find_asv_suite(tree or self.root, self.config.asv)

    def default_benchmarks(self, tree: Path | None = None) -> str | None:
        """Return the path of the benchmarks in a checkout: the configured one, or that of a suite of asv."""
        root = tree or self.root
        if holds_code(root / self.config.benchmarks):
            return self.config.benchmarks
        suite = self.asv_suite(root)
        return suite.folder if suite is not None and holds_code(root / suite.folder) else None

    @property
    def ledger_place(self) -> str | Path:
        """The configured ledger: its folder, or its URL where it lies in a store."""
        return self.config.ledger if is_url(self.config.ledger) else self.ledger_path

    @property
    def ledger_path(self) -> Path:
        """The folder of the configured ledger, where it is one."""
        if is_url(self.config.ledger):
            raise ConfigError(f"tool.perfkit.ledger must be a folder here, found {self.config.ledger}")
        return self.path(self.config.ledger)

    @property
    def output_paths(self) -> tuple[Path, ...]:
        """What perfkit itself writes: changes there do not make a tree dirty."""
        config = self.config
        folders = [self.ledger_place] if isinstance(self.ledger_place, Path) else []
        pages = [] if config.report.out is None else [self.path(config.report.out)]
        return (*folders, self.path(config.profiles), self.path(config.log.file), *pages)


def load_project(start: Path) -> Project:
    """Return the configuration that holds in ``start``."""
    start = start.resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return Project(root=folder, config=read_config(file))
        if (folder / ".git").exists():
            return Project(root=folder, config=Config())
    return Project(root=start, config=Config())


def find_asv_suite(root: Path, configured: str | bool) -> AsvSuite | None:  # noqa: FBT001 (as configured)
    """Return the suite of asv that is configured, or that lies in ``root`` or in one of its folders."""
    if configured is False:
        return None
    if isinstance(configured, str):
        if not (root / configured).is_file():
            raise ConfigError(f'tool.perfkit.asv: there is no file "{configured}"; name an asv.conf.json')
        return _read_asv(root, root / configured)
    patterns = [f"{above}{name}" for above in ("", "[!.]*/") for name in _ASV_FILES]
    found = [sorted(path for path in root.glob(pattern) if path.is_file()) for pattern in patterns]
    files = (found[0] or found[1]) or [*found[2], *found[3]]
    if len(files) > 1:
        names = ", ".join(path.relative_to(root).as_posix() for path in files)
        raise ConfigError(
            f"there are several suites of asv ({names}); set tool.perfkit.asv to one of these, or to false"
        )
    return _read_asv(root, files[0]) if files else None


def holds_code(place: Path) -> bool:
    """Return whether pytest could find tests at a place: a folder may hold only perfkit's ledger."""
    return place.is_file() or next(place.rglob("*.py"), None) is not None


def _read_asv(root: Path, file: Path) -> AsvSuite | None:
    """Read the suite of a configuration of asv; None if the suite's folder is not there."""
    name = file.relative_to(root).as_posix()
    try:
        text = _COMMENT.sub(lambda match: match["string"] or "", read_text(file))
        read = json.loads(_LAST_COMMA.sub(lambda match: match["string"] or match["end"], text))
        folder = str(read.get("benchmark_dir", "benchmarks"))
        limit_s = float(read.get("default_benchmark_timeout", _ASV_LIMIT_S))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{name} cannot be read as JSON with comments ({error});"
            " mend it, or set tool.perfkit.asv to false"
        ) from error
    place = (file.parent / folder).resolve()
    if not place.is_relative_to(root.resolve()):
        raise ConfigError(f'{name}: benchmark_dir "{folder}" lies outside of the project')
    if not place.is_dir():
        return None
    return AsvSuite(file=name, folder=place.relative_to(root.resolve()).as_posix(), limit_s=limit_s)


def is_url(place: str | Path) -> bool:
    """Return whether the place of a ledger is a URL, also one that was made a path, and no folder."""
    return _URL.match(str(place)) is not None


def check_expanded(place: str | Path) -> None:
    """Refuse a path with a variable, or the sign for the home folder, that no shell has expanded."""
    parts = Path(place).parts
    for at, part in enumerate(parts):
        if (_VARIABLE.match(part) or (part == "~" and not at)) and not os.path.exists(Path(*parts[: at + 1])):  # noqa: PTH110
            raise UsageError(f'{place}: "{part}" is not expanded here; write the folder itself')


def parse_percent(text: str, *, key: str, or_zero: bool = False) -> float:
    """Return "2%" as 0.02."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None or (float(match[1]) == 0 and not or_zero):
        least = 'of at least zero such as "0.5%"' if or_zero else 'above zero such as "2%"'
        raise ConfigError(f'{key} must be a percentage {least}, found "{text}"')
    return float(match[1]) / 100


def parse_duration(text: str, *, key: str) -> float:
    """Return "5min" as 300.0 seconds.

    Raises:
        ConfigError: the text is not a time above zero.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f'{key} must be a time above zero such as "90s" or "5min", found "{text}"')
    return float(match[1]) * _SECONDS[match[2]]


def read_config(file: Path) -> Config:
    """Return the ``[tool.perfkit]`` of a ``pyproject.toml``."""
    try:
        text = read_text(file)
    except OSError as error:
        raise ConfigError(
            f"cannot read {file} ({error.strerror or error}); mend it or move it away"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML ({error}); mend that line and try again") from error
    return parse_config(text, file)


def parse_config(text: str, file: Path) -> Config:
    """Return the ``[tool.perfkit]`` in the text of a ``pyproject.toml``; errors name it ``file``."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML ({error}); mend that line and try again") from error
    section = document.get("tool", {}).get("perfkit", {})
    try:
        _check_names(section, Config, "tool.perfkit")
        config = msgspec.convert(section, Config)
        _check_values(config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {_type_message(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return config


def _check_names(section: object, kind: type[msgspec.Struct], where: str) -> None:
    if not isinstance(section, dict):
        raise ConfigError(f"{where} must be a table, found {section!r}")
    hints = get_type_hints(kind)
    for key, value in section.items():
        if key not in hints:
            raise ConfigError(f'unknown key "{where}.{key}"; {nearest_key(key, sorted(hints))}')
        _check_nested(value, hints[key], f"{where}.{key}")


def _check_nested(value: object, hint: Any, where: str) -> None:  # noqa: ANN401 (a type hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        _check_names(value, hint, where)
    elif isinstance(value, str) and (words := _words(hint)) and value not in words:
        raise ConfigError(f'{where} must be {choices_text(words)}, found "{value}"')
    elif get_origin(hint) is tuple and isinstance(value, list):
        for index, item in enumerate(value):
            _check_nested(item, get_args(hint)[0], f"{where}[{index}]")


def choices_text(words: Sequence[str]) -> str:
    """Return the words of a choice: '"fail", "pass" or "go on"'."""
    *first, last = (f'"{word}"' for word in words)
    return f"{', '.join(first)} or {last}"


def _words(hint: object) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for part in get_args(hint) for word in _words(part))


def nearest_key(key: str, names: list[str]) -> str:
    """Return the known key that an unknown one may have meant, or all of them, as the end of a message."""
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known keys: {', '.join(names)}"


def _type_message(error: msgspec.ValidationError) -> str:
    text, _, path = str(error).partition(" - at ")
    key = path.strip("`").removeprefix("$").removeprefix(".") or "[tool.perfkit]"
    return f'"tool.perfkit.{key}": {text[0].lower()}{text[1:].replace("`", "")}'


def _check_values(config: Config) -> None:
    parse_percent(config.margin, key="tool.perfkit.margin")
    _check_gate(config)
    _check_above_zero(config.backfill.limit, "tool.perfkit.backfill.limit")
    _check_exact(config)
    _check_address(config.report.commit_url, ("{commit}",), "tool.perfkit.report.commit_url")
    _check_address(config.report.range_url, ("{before}", "{after}"), "tool.perfkit.report.range_url")
    for index, rule in enumerate(config.rules):
        if rule.margin is not None:
            parse_percent(rule.margin, key=f"tool.perfkit.rules[{index}].margin")
        if rule.limit is not None:
            _check_above_zero(rule.limit, f"tool.perfkit.rules[{index}].limit")
    for name, target in config.targets.items():
        if ":" not in target and not target.endswith(".py"):
            raise ConfigError(
                f'target "{name}" must read "package.module:function" or "script.py", found "{target}"'
            )


def _check_gate(config: Config) -> None:
    gate = config.gate
    if not 0 < gate.alpha < 1:
        raise ConfigError(f"tool.perfkit.gate.alpha must lie between 0 and 1, found {gate.alpha:g}")
    _check_above_zero(gate.seconds_per_benchmark, "tool.perfkit.gate.seconds_per_benchmark")
    _check_above_zero(gate.most_seconds, "tool.perfkit.gate.most_seconds")
    _check_above_zero(gate.limit, "tool.perfkit.gate.limit")
    _check_above_zero(gate.go_on_seconds, "tool.perfkit.gate.go_on_seconds")
    if gate.noise_floor is not None:
        parse_percent(gate.noise_floor, key="tool.perfkit.gate.noise_floor", or_zero=True)
        if gate.noise_floor_share > config.margin_share:
            raise ConfigError(
                f"tool.perfkit.gate.noise_floor must not be above tool.perfkit.margin"
                f' ("{config.margin}"), found "{gate.noise_floor}"'
            )


def _check_exact(config: Config) -> None:
    from perfkit.model.counters import COUNTS

    exact = config.exact
    parse_percent(exact.tolerance, key="tool.perfkit.exact.tolerance")
    for key, names, known in (("gate", exact.gate, COUNTS), ("targets", exact.targets, config.targets)):
        for name in names or ():
            if name not in known:
                raise ConfigError(
                    f'tool.perfkit.exact.{key}: there is no "{name}"; {nearest_key(name, [*known])}'
                )


def _check_address(address: str | None, places: Sequence[str], key: str) -> None:
    lacking = [place for place in places if address is not None and place not in address]
    if address is not None and (lacking or not address.startswith(("https://", "http://"))):
        wanted = f"begin with https:// and hold {' and '.join(places)}"
        raise ConfigError(f'{key} must {wanted}, found "{address}"')


def _check_above_zero(seconds: float, key: str) -> None:
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{key} must be a number of seconds above zero, found {seconds:g}")
