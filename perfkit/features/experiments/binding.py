"""A target with a variant's arguments as a call: by keywords, in a dataclass, or as a command line."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import re
import shlex
import sys
import sysconfig
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
# This many files of a program are searched for its options.
_MOST_FILES = 200
_LIBRARIES = ("site-packages", "dist-packages")
_KEY_VALUE = re.compile(r"hydra\.main|OmegaConf\.from_cli\(")
# A program that takes its command line apart by hand.
_SPLITS = re.compile(r"""(?:split|partition)\(\s*["']=["']""")
_DASHES = re.compile(r"""(?:startswith|removeprefix|lstrip|strip)\(\s*["']-""")
# Parsers whose options are named as the fields or parameters are that they come from.
_AS_WRITTEN = re.compile(
    r"HfArgumentParser|LightningCLI|jsonargparse|simple_parsing|from tap import|import tap\b"
)
_READS = re.compile(
    r"\b(?:import|from) +(?:argparse|click|typer|fire|absl|tyro|docopt|optparse|getopt|cyclopts|draccus)\b"
    r"|\bargv\b|ArgumentParser|argument_parser|CLI\b|" + _AS_WRITTEN.pattern
)
_PYTHON_FILE = re.compile(r"""["']([\w./-]+\.py)["']""")


def load_bound(
    target: Target,
    arguments: Mapping[str, Level],
    template: str | None = None,
    command_line: Sequence[str] = (),
) -> Call:
    """Import a target and return its call with these arguments.

    A function takes them by keyword, or as the fields of a dataclass if that is its only parameter; a script
    and a function of a command line take them as options, spelled by the template or as their source has
    them, behind the words of ``command_line``.

    Raises:
        UsageError: there is no such target, it takes no such argument, or refuses the value of one.
    """
    if target.is_script:
        loaded = load_target(target.place, change_code=lambda code: code)
        words = [*command_line, *spelled(arguments, Path(target.place), template)]
        return functools.partial(_run_with, loaded.call, target.place, words)
    function = load_function(target.place)
    if is_hydra_main(function):
        words = [*command_line, *spelled(arguments, _file_of(function), template)]
        return functools.partial(_run_with, function, target.place, words)
    parameters = _parameters(function, target.place)
    if command_line and [*parameters] not in [[name] for name in _COMMAND_LINES]:
        raise UsageError(f'"{target.place}" takes no command line; give its arguments under [fixed]')
    if len(parameters) == 1:
        name, parameter = next(iter(parameters.items()))
        if name in _COMMAND_LINES:
            words = [*command_line, *spelled(arguments, _file_of(function), template)]
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


def _file_of(function: Callable[..., object]) -> Path | None:
    """Return the file that a function is written in, None where it is in none."""
    try:
        return Path(inspect.getfile(inspect.unwrap(function)))
    except (TypeError, ValueError):
        return None


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


@dataclass(frozen=True, kw_only=True)
class _Option:
    """An option as the program declares it: its flag, that of its opposite, and the type of its value.

    ``is_flag`` options take no value; one that is ``joined`` has it in the same word.
    """

    flag: str
    opposite: str | None = None
    is_flag: bool = False
    kind: str = ""
    joined: bool = False
    default: str = ""

    def words(self, level: Level) -> list[str]:
        """Return what sets it to a level."""
        if isinstance(level, bool) and self.is_flag:
            chosen = self.flag if level else self.opposite
            return [] if chosen is None else [chosen]
        if self.joined:
            return [f"{self.flag}={level}"]
        if isinstance(level, bool) and self.kind == "int":
            return [self.flag, str(int(level))]
        # Any text but the empty one is true to ``bool``.
        text = "" if level is False and self.kind == "bool" else str(level)
        return [self.flag, text]


def spelled(arguments: Mapping[str, Level], program: Path | None, template: str | None = None) -> list[str]:
    """Return arguments as the words of a command line, by a template or as the program's source has them.

    A template is one or several words with "{name}" and "{value}" in them: "--{name}={value}".
    """
    if template is not None:
        parts = shlex.split(template)
        return [
            part.replace("{name}", name).replace("{value}", str(level))
            for name, level in arguments.items()
            for part in parts
        ]
    texts = () if program is None else _texts(program)
    return [word for name, level in arguments.items() for word in _words(name, level, texts)]


def declared_default(name: str, program: Path) -> str:
    """Return the default of an option as a program's source has it, "" where it has none."""
    found = (_declared(text).get(_plain(name)) for text in _texts(program))
    return next((option.default for option in found if option is not None), "")


def reads_command_line(program: Path) -> bool:
    """Return whether a program's source has anything that reads options."""
    return any(_READS.search(text) for text in _texts(program))


def reads_key_values(program: Path) -> bool:
    """Return whether a program takes "key=value", whose keys no help need list."""
    return _joined("", _texts(program)) is not None


def _words(name: str, level: Level, texts: Sequence[str]) -> list[str]:
    for text in texts:
        option = _declared(text).get(_plain(name))
        if option is not None:
            return option.words(level)
    if name.startswith("-"):
        return _Option(flag=name, is_flag=True).words(level)
    joined = _joined(name, texts)
    if joined is not None:
        return [f"{joined}={level}"]
    return _Option(flag=_flag(name, texts), is_flag=True).words(level)


def _joined(name: str, texts: Sequence[str]) -> str | None:
    """Return what stands before the "=" where the program takes "key=value", None where it does not."""
    for text in texts:
        if _KEY_VALUE.search(text):
            return name
        if "sys.argv" in text and _SPLITS.search(text):
            return f"--{name}" if _DASHES.search(text) else name
    return None


def _flag(name: str, texts: Sequence[str]) -> str:
    """Return the option as a usage text in the program has it, or as most parsers would name it."""
    parts = "[-_]".join(map(re.escape, re.split("[-_]", name)))
    pattern = re.compile(rf"(?<![\w-])--{parts}(?![\w-])")
    for text in texts:
        found = pattern.search(text)
        if found is not None:
            return found[0]
    if "." in name or any(map(_AS_WRITTEN.search, texts)):
        return f"--{name}"
    return f"--{name.replace('_', '-')}"


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


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


@functools.cache
def _declared(text: str) -> dict[str, _Option]:
    """Return the options that a source declares by calls, as argparse, click and absl take them."""
    options: dict[str, _Option] = {}
    for call in _walked(text):
        for name, option in _of_call(call) if isinstance(call, ast.Call) else ():
            options.setdefault(name, option)
    return options


def _walked(text: str) -> Iterator[ast.AST]:
    """Yield the nodes of a source, none of one that cannot be read."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        yield from ast.walk(ast.parse(text))


def _of_call(call: ast.Call) -> Iterator[tuple[str, _Option]]:
    given = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if _name(call.func).startswith("DEFINE_") and given:
        yield _plain(given[0]), _Option(flag=f"--{given[0]}", joined=True)
        return
    keywords = {word.arg: word.value for word in call.keywords if word.arg is not None}
    kind, action = _name(keywords.get("type")), _name(keywords.get("action"))
    is_flag = action.startswith("store_") or action == "BooleanOptionalAction" or "is_flag" in keywords
    flags = [flag for flag in given if re.fullmatch(r"--?[A-Za-z][\w.-]*(/--?[\w.-]+)?", flag)]
    for flag in flags:
        shown, _, opposite = flag.partition("/")
        if action == "BooleanOptionalAction":
            opposite = f"--no-{shown.removeprefix('--')}"
        option = _Option(
            flag=shown,
            opposite=opposite or None,
            is_flag=is_flag or bool(opposite),
            kind=kind,
            default=_name(keywords.get("default")),
        )
        yield _plain(shown), option
        if flag == flags[-1] and (dest := _name(keywords.get("dest"))):
            yield _plain(dest), option


def _name(node: ast.expr | None) -> str:
    """Return the last name of "argparse.BooleanOptionalAction", or a text as it is."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return getattr(node, "attr", getattr(node, "id", ""))


@functools.cache
def _texts(program: Path) -> tuple[str, ...]:
    """Return the source of a program, then those of the files in its project that it names or imports."""
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    entries = [entry for entry in sys.path if not any(one in entry for one in _LIBRARIES)]
    folders = [program.parent, *(Path(entry) for entry in entries if entry not in standard)]
    left, seen, texts = [program], {program}, []
    while left and len(seen) < _MOST_FILES:
        file = left.pop(0)
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        texts.append(text)
        found = [one for one in _named(text, file, folders) if one not in seen]
        seen.update(found)
        left += dict.fromkeys(found)
    return tuple(texts)


def _named(text: str, file: Path, folders: Sequence[Path]) -> Iterator[Path]:
    for node in _walked(text):
        for module, places in _imported(node, file, folders):
            for place in places:
                path = place.joinpath(*module.split("."))
                yield from (one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file())
    for name in _PYTHON_FILE.findall(text):
        if (file.parent / name).is_file():
            yield file.parent / name


def _imported(node: ast.AST, file: Path, folders: Sequence[Path]) -> Iterator[tuple[str, Sequence[Path]]]:
    """Yield the modules that a statement imports, and the folders in which they are looked for."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, folders) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        places = [file.parents[node.level - 1]] if 0 < node.level <= len(file.parents) else folders
        above = f"{node.module}." if node.module else ""
        if node.module:
            yield node.module, places
        yield from ((f"{above}{alias.name}", places) for alias in node.names if alias.name != "*")
