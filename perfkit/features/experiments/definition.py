"""An experiment's definition: a TOML file, or a script whose factors are on the command line."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.bounded import read_text
from perfkit.config import nearest_key, parse_duration, parse_percent
from perfkit.errors import UsageError
from perfkit.features.experiments.binding import (
    check_template,
    declared_default,
    reads_command_line,
    reads_key_values,
    spelled,
)
from perfkit.features.experiments.records import OFF, Experiment, Factor, Level, level_text
from perfkit.runner.machine.conditions import usable_cpus

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


# A script that ignores --help trains.
_HELP_LIMIT_S = 60.0
_OPTION = re.compile(r"(?<![\w-])--?(?:\[no-?\])?[A-Za-z][\w.-]*")
# "--lr LR", "--lr=LR", and in a frame "--lr -l  FLOAT"; "--amp, --no-amp" and "--amp/--no-amp" are flags.
_VALUED = re.compile(r"(?:^|[\s,/])--?[A-Za-z][\w.-]*(?:=| (?![-/,]))\S")
_DEFAULT = re.compile(r"default\W{1,4}(\d+)(?![\d.])")
_VALUED_IN_FRAME = re.compile(r"(?:--?\S+\s+)+(?!<bool>)(?:[A-Z]{3,}|[<{]|\[\w+\|)")
_OFF = ("off", "no", "false", "none", "default", "0", "fp32", "float32")
_ON = ("on", "yes", "true", "1")
# These are measured in any case.
_ALWAYS = ("time", "memory")
_SEEDS = ("seed", "manualseed", "randomseed")
# Factors that people call by other names than the tricks that they are.
_AMP, _BF16 = ("amp", "precision", "autocast", "dtype"), ("bf16", "bfloat16")
_BF16_TRICK = "bf16_autocast"


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option as a script's help lists it, with all its spellings; a flag takes no value."""

    flags: tuple[str, ...]
    is_flag: bool
    default: str = ""

    def spelling(self, name: str) -> str | None:
        """Return the spelling of a name: "--batchSize" for batch_size, "--num-workers" for workers."""
        return next((flag for flag in self.flags if _plain(flag) == _plain(name)), None)

    def argument(self, name: str, script: Path) -> str:
        """Return the name of an experiment's argument that becomes the option."""
        flag = self.spelling(name) or self.flags[-1]
        argument = flag.lstrip("-").replace("-", "_")
        word = spelled({argument: True}, script)[0].partition("=")[0]
        return argument if word in self.flags else flag

    def given_in(self, words: Sequence[str]) -> str | None:
        """Return the word of a command line that sets the option, None where none does."""
        return next((word for word in words if word.partition("=")[0] in self.flags), None)


def wanted_numbers(texts: Sequence[str]) -> dict[str, str]:
    """Return what is to be found in a script's output, by name: "time,accuracy", or "ppl=ppl ([0-9.]+)"."""
    found = {}
    for text in texts:
        name, equals, expression = text.partition("=")
        if equals:
            found[name.strip()] = expression.strip()
        else:
            found |= {one.strip(): one.strip() for one in text.split(",") if one.strip() not in _ALWAYS}
    if not all(name and what for name, what in found.items()):
        raise UsageError(f'--measure must read NAME,NAME or NAME=EXPRESSION, found "{" ".join(texts)}"')
    return found


def script_document(
    script: Path,
    *,
    root: Path,
    command_line: Sequence[str],
    factors: Mapping[str, str | None],
    fixed: Mapping[str, str],
) -> tuple[dict[str, object], str | None]:
    """Return the keys of an experiment's file: the factors are options of a script, or else tricks.

    Also return the argument that is a batch size to be doubled, None where there is none.

    Args:
        script: The script, which runs in the current folder.
        root: The project's folder.
        command_line: Words that the script gets in every variant.
        factors: Name -> levels, as in {"amp": "off,bf16"}; None for those of workers, or the first two of
            batch sizes.
        fixed: Name -> level, the same in all variants.

    Raises:
        UsageError: the script lists no options, or a name or a level is none of its own.
    """
    folder = Path.cwd()
    path = folder / script
    if not path.is_file():
        raise UsageError(f"there is no script {path}; give the path of an existing .py file")
    document: dict[str, object] = {"target": str(script)}
    if folder.is_relative_to(root):
        document["folder"] = folder.relative_to(root).as_posix()
    else:
        document["target"] = str(path)
    if command_line:
        document["command_line"] = list(command_line)
    options = None if reads_key_values(path) else _options(path, folder, command_line)
    given: dict[str, list[str] | None] = {name: [level] for name, level in fixed.items()}
    given |= {name: levels.split(",") if levels else None for name, levels in factors.items()}
    found = [_argument(name, levels, options, path) for name, levels in given.items()]
    for option in (one.option for one in found if one.option):
        if twice := option.given_in(command_line):
            raise UsageError(f"{twice} stands behind -- and is set as well; take it out of one of them")
    names = {one.name for one in found}
    seeds = (
        option.argument(seed, path)
        for option in options or ()
        for seed in _SEEDS
        if option.spelling(seed) and not option.is_flag and not option.given_in(command_line)
    )
    seed = next((one for one in seeds if one not in names), None)
    if seed is not None:
        document["seed_argument"] = seed
    document["factors"] = {one.name: one.levels for one in found if one.is_factor}
    document["fixed"] = {one.name: one.levels[0] for one in found if not one.is_factor}
    document["tricks"] = {one.name: one.trick for one in found if one.trick}
    return document, next((one.name for one in found if one.is_doubled), None)


def _options(script: Path, folder: Path, command_line: Sequence[str]) -> list[Option]:
    """Return the options that a script's --help lists, none of one that reads no command line."""
    if not reads_command_line(script):
        # With --help it would train.
        return []
    asked = f"`python {script.name} {' '.join((*command_line, '--help'))}`"
    try:
        done = subprocess.run(
            [sys.executable, str(script), *command_line, "--help"],
            cwd=folder,
            env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_HELP_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{asked} did not end within {_HELP_LIMIT_S:g} s, so its options are not known; let it end at"
            " --help, or write an experiment's file"
        ) from None
    found = list(listed_options(done.stdout or done.stderr))
    if not found:
        printed = (done.stdout + done.stderr).rstrip().splitlines() or ["nothing"]
        raise UsageError(
            f"{asked} listed no options; it ended with code {done.returncode} and printed:"
            f" {printed[-1].strip()}; mend that, or write an experiment's file"
        )
    return found


def _plain(name: str) -> str:
    return re.sub(r"^-*num(?=[-_A-Z])|[-_]", "", name).lower()


@dataclass(frozen=True, kw_only=True)
class _Argument:
    """An argument of the experiment: an option of the script, or else a trick."""

    name: str
    levels: list[Level]
    option: Option | None = None
    trick: str | None = None
    is_doubled: bool = False

    @property
    def is_factor(self) -> bool:
        return len(self.levels) > 1 or self.trick is not None


def _argument(
    name: str, levels: list[str] | None, options: Sequence[Option] | None, script: Path
) -> _Argument:
    found = [one for one in options or () if one.spelling(name)]
    # A script may have "--workers" and "--num-workers".
    option = min(found, key=lambda one: f"--{name.replace('_', '-')}" not in one.flags, default=None)
    trick = _trick(name) if option is None and options is not None else None
    if option is None and options is not None and trick is None:
        raise UsageError(_unknown(name, options, script.name))
    texts = [text.strip() for text in levels or _usual_levels(name, option, script)]
    if not all(texts):
        raise UsageError(f"--factor {name} has a level without text; write {name}=LEVEL,LEVEL")
    if trick is not None:
        return _Argument(name=name, levels=[_trick_level(text, name, trick) for text in texts], trick=trick)
    if option is None:
        return _Argument(name=name, levels=[*map(parse_level, texts)])
    return _Argument(
        name=option.argument(name, script),
        levels=[
            _flag_level(text, option, script.name) if option.is_flag else parse_level(text) for text in texts
        ],
        option=option,
        is_doubled=levels is None and _is_batch_size(name),
    )


def _flag_level(text: str, option: Option, script: str) -> Level:
    if text.lower() not in (*_OFF, *_ON):
        flag = option.flags[-1]
        raise UsageError(f'{script} takes {flag} without a value; its levels are off and on, found "{text}"')
    return text.lower() in _ON


def _is_batch_size(name: str) -> bool:
    """Return whether a factor without levels is doubled until it does not fit."""
    return "batch" in name.lower() or name in {"b", "bs"}


def _usual_levels(name: str, option: Option | None, script: Path) -> list[str]:
    """Return the levels of a factor that was given none: numbers of workers, or the first two batch sizes."""
    if name.endswith("workers"):
        return ["0", *(str(1 << power) for power in range(int(usable_cpus()).bit_length()))]
    first = option and (option.default or declared_default(option.argument(name, script), script))
    if _is_batch_size(name) and first and first.isdecimal() and int(first):
        return [first, str(2 * int(first))]
    found = ", whose default is not known" if _is_batch_size(name) else ""
    raise UsageError(
        f"--factor {name}{found}: give its levels, {name}=LEVEL,LEVEL; only workers and batch sizes"
        " can go without"
    )


def listed_options(text: str) -> Iterator[Option]:
    """Yield the options that a help text lists, as argparse, click, typer, absl and others print them."""
    for entry in re.split(r"\n(?=[ |│*]*-)", text):
        line = entry.partition("\n")[0]
        plain = line.strip(" |│*")
        if not plain.startswith("-"):
            continue
        head = re.split(r"\s{2,}|: ", plain, maxsplit=1)[0]
        is_valued = _VALUED.search(head) or ("│" in line and _VALUED_IN_FRAME.match(plain))
        flags = [flag.replace("[no]", "").replace("[no-]", "") for flag in _OPTION.findall(head)]
        # What follows a colon may have a value: absl lists its options so.
        is_flag = not is_valued and ("[no" in head or not plain.startswith(f"{head}: "))
        if flags:
            default = _DEFAULT.search(entry)
            yield Option(flags=tuple(flags), is_flag=is_flag, default=default[1] if default else "")


def _trick(name: str) -> str | None:
    """Return the trick that a factor is, if it can be applied to any script from outside."""
    from perfkit.features.tricks.trick import choose_for_loop

    if name in _AMP:
        return _BF16_TRICK
    if name not in _tricks():
        return None
    for reason in choose_for_loop((name,), "").left_out.values():
        raise UsageError(f"{name} cannot be tried here: it {reason}")
    return name


def _tricks() -> list[str]:
    from perfkit.features.tricks.trick import every_name, trick_named

    return [name for name in every_name() if trick_named(name).on_loop is not None]


def _trick_level(text: str, name: str, trick: str) -> Level:
    on = "bf16" if trick == _BF16_TRICK else "on"
    if text.lower() in _OFF:
        return OFF
    if text.lower() in (*_ON, *(_BF16 if trick == _BF16_TRICK else ())):
        return on
    raise UsageError(
        f'the script has no option "{name}", and perfkit applies it as off or {on}, found "{text}"'
    )


def _unknown(name: str, options: Sequence[Option], script: str) -> str:
    known = [max(one.flags, key=len).lstrip("-") for one in options if "--help" not in one.flags]
    close = difflib.get_close_matches(name, [*known, *_tricks()], n=1, cutoff=0.6)
    meant = f'did you mean "{close[0]}"? It' if close else "it"
    has = f"has {', '.join(known)}" if known else "reads no command line"
    return (
        f'{script} has no option "{name}": {meant} {has}; perfkit itself can vary amp, and tricks such as'
        " channels_last"
    )
