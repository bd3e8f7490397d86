"""A target with a variant's arguments as a call: by keywords, in a dataclass, or as a command line."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfkit.errors import UsageError
from perfkit.features.experiments.records import Level, level_text
from perfkit.profiling.passes.targets import Target
from perfkit.runner.targets import is_hydra_main, load_function, load_target

Call = Callable[[], object]
# A function with a parameter of one of these names takes a command line.
_COMMAND_LINES = ("argv", "args")
_KEY_VALUE = re.compile(r"hydra\.main|OmegaConf\.from_cli\(")


def load_bound(
    target: Target,
    arguments: Mapping[str, Level],
    template: str | None = None,
    command_line: Sequence[str] = (),
) -> Call:
    """Import a target and return its call with these arguments.

    A function takes them by keyword, or as the fields of a dataclass if that is its only parameter; a script
    and a function of a command line take them as options, spelled by the template or by their names, behind
    the words of ``command_line``.

    Raises:
        UsageError: there is no such target, it takes no such argument, or refuses the value of one.
    """
    if target.is_script:
        loaded = load_target(target.place, change_code=lambda code: code)
        key_values = takes_key_values(Path(target.place))
        words = [*command_line, *spelled(arguments, template, key_values=key_values)]
        return functools.partial(_run_with, loaded.call, target.place, words)
    function = load_function(target.place)
    if is_hydra_main(function):
        words = [*command_line, *spelled(arguments, template, key_values=True)]
        return functools.partial(_run_with, function, target.place, words)
    parameters = _parameters(function, target.place)
    if command_line and [*parameters] not in [[name] for name in _COMMAND_LINES]:
        raise UsageError(f'"{target.place}" takes no command line; give its arguments under [fixed]')
    if len(parameters) == 1:
        name, parameter = next(iter(parameters.items()))
        if name in _COMMAND_LINES:
            words = [*command_line, *spelled(arguments, template)]
            return functools.partial(function, words)
        kind = _configuration(_hints(function).get(name, parameter.annotation))
        if kind is not None:
            return functools.partial(function, _configured(kind, arguments, target.place))
    _check_names(arguments, parameters, target.place)
    hints = _hints(function)
    call = functools.partial(function, **_converted(arguments, hints, target.place))
    _check_complete(function, call, target.place)
    return call


def call_to_its_end(call: Call) -> object:
    """Call a target and return what it returns; a script may end itself when it is done."""
    try:
        return call()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        return None


def _run_with(call: Call, place: str, words: Sequence[str]) -> object:
    sys.argv = [place, *words]
    return call()


def _parameters(function: Callable[..., object], place: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise UsageError(
            f'"{place}" has no readable parameters; name a Python function as the target'
        ) from None


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        # The hints use names that only a type checker imports, so the levels are passed on as they are.
        return {}


def _configuration(hint: object) -> type | None:
    """Return the dataclass that a parameter is to be, None where it is something else."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [kind for kind in options if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    return kinds[0] if len(kinds) == 1 else None


def _configured(kind: type, arguments: Mapping[str, Level], place: str) -> object:
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    _check_names(arguments, fields, place)
    converted = _converted(arguments, _hints(kind), place)
    try:
        return kind(**converted)
    except (TypeError, ValueError) as error:
        raise UsageError(f'"{place}" refuses {_shown(arguments)}: {_first_line(error)}') from error


def _check_names(arguments: Mapping[str, Level], known: Mapping[str, object], place: str) -> None:
    open_ended = any(
        getattr(parameter, "kind", None) is inspect.Parameter.VAR_KEYWORD for parameter in known.values()
    )
    for name in arguments:
        if name not in known and not open_ended:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            nearest = f'did you mean "{close[0]}"?' if close else f"it takes {', '.join(known) or 'none'}"
            raise UsageError(f'"{place}" takes no argument "{name}"; {nearest}')


def _converted(arguments: Mapping[str, Level], hints: Mapping[str, Any], place: str) -> dict[str, object]:
    return {
        name: _convert(level, hints[name], f'"{place}", {name}') if name in hints else level
        for name, level in arguments.items()
    }


def _convert(level: Level, hint: Any, what: str) -> object:  # noqa: ANN401 (a type hint)
    try:
        return msgspec.convert(level, hint, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        choices = _choices(hint)
        expected = f"expected one of {', '.join(choices)}" if choices else _first_line(error)
        raise UsageError(f"{what}: {expected}, found {level_text(level)}") from error
    except (TypeError, NotImplementedError):
        # msgspec does not know this type; the target itself will refuse a wrong level.
        return level


def _decoded(kind: type, level: object) -> object:
    if kind is Path and isinstance(level, str):
        return Path(level)
    raise NotImplementedError


def _choices(hint: object) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint)]
    return []


def _check_complete(function: Callable[..., object], call: functools.partial[object], place: str) -> None:
    try:
        inspect.signature(function).bind(*call.args, **call.keywords)
    except TypeError as error:
        raise UsageError(f'"{place}": {error}; give it under [fixed]') from None


def _shown(arguments: Mapping[str, Level]) -> str:
    return ", ".join(f"{name}={level_text(level)}" for name, level in arguments.items())


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].replace("`", "")


def spelled(
    arguments: Mapping[str, Level], template: str | None = None, *, key_values: bool = False
) -> list[str]:
    """Return arguments as the words of a command line: by a template, as "key=value", or as options.

    A template is one or several words with "{name}" and "{value}" in them: "--{name}={value}". An option has
    the name of its argument, which may bring its own dashes. A flag stands alone: "amp" is left out where it
    is false, "amp/no-amp" then has its other name.
    """
    template = "{name}={value}" if template is None and key_values else template
    if template is None:
        return [word for name, level in arguments.items() for word in _words(name, level)]
    parts = shlex.split(template)
    return [
        part.replace("{name}", name).replace("{value}", str(level))
        for name, level in arguments.items()
        for part in parts
    ]


def _words(name: str, level: Level) -> list[str]:
    flags = [one if one.startswith("-") else f"--{one}" for one in name.split("/")]
    if isinstance(level, bool):
        return flags[:1] if level else flags[1:]
    return [flags[0], str(level)]


def takes_key_values(script: Path) -> bool:
    """Return whether a script takes "key=value", as those of Hydra and OmegaConf do."""
    return _KEY_VALUE.search(script.read_text(encoding="utf-8", errors="replace")) is not None


def check_template(template: str, *, place: str) -> None:
    """Check that a template has a place for the name and one for the value.

    Raises:
        UsageError: one of them is missing.
    """
    if "{name}" not in template or "{value}" not in template:
        example = "--{name}={value}"
        raise UsageError(
            f'{place}: argument needs {{name}} and {{value}}, as in "{example}", found "{template}"'
        )
