"""An experiment's file: TOML in, the experiment out, and one clear line for each mistake in it."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from perfkit.bounded import read_text
from perfkit.config import nearest_key, parse_duration, parse_percent
from perfkit.errors import UsageError
from perfkit.features.experiments.binding import check_template
from perfkit.features.experiments.records import Experiment, Factor, Level, level_text

_BOOLEANS = {"true": True, "false": False}
_FEWEST_BLOCKS = 2
_FEWEST_LEVELS = 2


class _Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an experiment's file."""

    target: str
    factors: dict[str, list[Level]]
    name: str | None = None
    fixed: dict[str, Level] = {}
    returned: dict[str, str] = {}
    seed_argument: str | None = None
    blocks: int = 20
    budget: str = "5min"
    margin: str = "2%"
    alpha: float = 0.01
    seed: int = 0
    warmup_steps: int = 2
    warmup: str = "0.5s"
    limit: str = "10min"
    threads: int | None = None
    argument: str | None = None
    folder: str = "."
    command_line: list[str] = []
    tricks: dict[str, str] = {}


def read_experiment(file: Path) -> Experiment:
    """Return the experiment that a file defines.

    Raises:
        UsageError: the file cannot be read, is not TOML, or defines no experiment.
    """
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}; give an experiment's TOML file") from error
    return _parse(text, place=str(file), name=file.stem)


def define(document: Mapping[str, object], *, place: str, name: str) -> Experiment:
    """Return the experiment that the keys of a file define; ``place`` is what a message calls them.

    Raises:
        UsageError: they define no experiment.
    """
    _check_keys(document, place)
    try:
        defined = msgspec.convert(document, _Definition)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {_reworded(error)}") from error
    if defined.argument is not None:
        check_template(defined.argument, place=place)
    given = msgspec.structs.asdict(defined)
    for key in ("budget", "warmup", "limit"):
        given[f"{key}_s"] = parse_duration(given.pop(key), key=f"{place}: {key}")
    given["name"] = defined.name or name
    given["command_line"] = tuple(defined.command_line)
    given["factors"] = tuple(Factor(name=key, levels=tuple(some)) for key, some in defined.factors.items())
    given["margin"] = parse_percent(defined.margin, key=f"{place}: margin")
    return checked(Experiment(**given), place=place)


def definition_text(experiment: Experiment) -> str:
    """Return the text of a file that defines an experiment on a script."""
    keys = {
        "target": experiment.target,
        "folder": experiment.folder,
        "command_line": experiment.command_line,
        "seed_argument": experiment.seed_argument,
        "budget": f"{experiment.budget_s:g}s",
        "margin": f"{100 * experiment.margin:g}%",
        "blocks": experiment.blocks,
        "seed": experiment.seed,
    }
    tables: Mapping[str, Mapping[str, object]] = {
        "factors": {factor.name: factor.levels for factor in experiment.factors},
        "fixed": experiment.fixed,
        "returned": experiment.returned,
        "tricks": experiment.tricks,
    }
    defaults = msgspec.structs.asdict(_Definition(target="", factors={}))
    lines = [*_assignments({key: value for key, value in keys.items() if value and value != defaults[key]})]
    for title, table in tables.items():
        lines += [f"[{title}]", *_assignments(table)] if table else []
    return "\n".join(lines)


def with_levels(
    experiment: Experiment, factors: Mapping[str, Sequence[Level]], fixed: Mapping[str, Level]
) -> Experiment:
    """Return the experiment with other or further factors and fixed arguments.

    A factor that is given a single level becomes a fixed argument.

    Raises:
        UsageError: the outcome is no experiment.
    """
    varied = {factor.name: factor.levels for factor in experiment.factors} | dict(factors)
    single = {name: levels[0] for name, levels in varied.items() if len(levels) == 1} | dict(fixed)
    others = {name: level for name, level in experiment.fixed.items() if name not in varied}
    changed = dataclasses.replace(
        experiment,
        factors=tuple(
            Factor(name=name, levels=tuple(levels)) for name, levels in varied.items() if name not in single
        ),
        fixed={**others, **single},
    )
    return checked(changed, place=experiment.name)


def parse_level(text: str) -> Level:
    """Return what a level on a command line means: true and false, a number, or else the text itself."""
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def checked(experiment: Experiment, *, place: str) -> Experiment:
    """Return the experiment unchanged, if it is one; ``place`` is what a message calls it.

    Raises:
        UsageError: there is nothing to vary, a level stands twice, or a number makes no sense.
    """
    for problem in _problems(experiment):
        raise UsageError(f"{place}: {problem}")
    return experiment


def _problems_of_factors(experiment: Experiment) -> Iterator[str]:
    if not experiment.factors:
        yield "expected at least one factor with two levels, found none; add a level to a factor"
    for factor in experiment.factors:
        if len(factor.levels) < _FEWEST_LEVELS:
            yield f"factors.{factor.name}: expected at least two levels, found {len(factor.levels)}"
        texts = [level_text(level) for level in factor.levels]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            yield f'factors.{factor.name}: the level "{twice}" stands twice; name it once'
        if factor.name in experiment.fixed:
            yield f'"{factor.name}" is a factor and fixed as well; take it out of one of them'
    for name in experiment.tricks.keys() - {factor.name for factor in experiment.factors}:
        yield f'tricks.{name} names no factor; add its levels to [factors], "off" and another'


def _problems(experiment: Experiment) -> Iterator[str]:
    yield from _problems_of_factors(experiment)
    if experiment.blocks < _FEWEST_BLOCKS:
        yield f"blocks must be at least {_FEWEST_BLOCKS}, found {experiment.blocks}"
    if not 0 < experiment.alpha < 1:
        yield f"alpha must lie between 0 and 1, found {experiment.alpha:g}"
    if experiment.warmup_steps < 0:
        yield f"warmup_steps must be at least 0, found {experiment.warmup_steps}"
    if experiment.threads is not None and experiment.threads < 1:
        yield f"threads must be at least 1, found {experiment.threads}"


def _parse(text: str, *, place: str, name: str) -> Experiment:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{place} is not valid TOML ({error}); mend that line and try again") from error
    return define(document, place=place, name=name)


def _assignments(values: Mapping[str, object]) -> Iterator[str]:
    for key, value in values.items():
        # JSON's texts, numbers and lists are also TOML's.
        quoted = key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)
        yield f"{quoted} = {json.dumps(value, ensure_ascii=False)}"


def _check_keys(document: Mapping[str, object], place: str) -> None:
    known = [field.name for field in msgspec.structs.fields(_Definition)]
    for key in document:
        if key not in known:
            raise UsageError(f'{place}: unknown key "{key}"; {nearest_key(key, known)}')


def _reworded(error: msgspec.ValidationError) -> str:
    """Put the key of msgspec's "Expected `str`, got `int` - at `$.name`" first."""
    text, _, path = str(error).partition(" - at ")
    key = path.strip("`").removeprefix("$").removeprefix(".")
    reason = f"{text[0].lower()}{text[1:].replace('`', '')}"
    return f"{key}: {reason}" if key else reason
