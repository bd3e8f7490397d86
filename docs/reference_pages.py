"""Writes the reference pages from the code: at each build of the site, and by `make reference`."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

import perfkit
from perfkit import config, errors
from perfkit.cli.app import app as cli
from perfkit.ledger.schema import SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parent / "reference"


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the site is built."""
    app.connect("builder-inited", lambda _: write())
    return {"parallel_read_safe": True}


def write() -> None:
    """Write each page; a page that is as it was is left alone, so that a build goes on from the last one."""
    FOLDER.mkdir(exist_ok=True)
    pages = {
        "commands.md": commands(),
        "python.md": python(),
        "configuration.md": configuration(),
        "exit-codes.md": exit_codes(),
        "columns.md": columns(),
    }
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        file = FOLDER / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def commands() -> Iterator[str]:
    """Yield the page of all commands: what each does, its arguments and options, and examples."""
    root = typer.main.get_command(cli)
    yield "# Commands"
    yield ""
    yield "Each command ends with one of the [exit codes](exit-codes.md), and has `--help`."
    for path, command in _commands(root, "perfkit"):
        yield from ["", f"## `{path}`", "", *_paragraphs(command.help or "")]
        parameters = [one for one in command.params if not getattr(one, "hidden", False)]
        if parameters:
            yield from ["", "| option | what |", "| :--- | :--- |"]
            yield from (_parameter(one) for one in parameters)
        examples = re.findall(r"^\$ (.+)$", command.epilog or "", re.MULTILINE)
        if examples:
            yield from ["", "```text", *(line.strip() for line in examples), "```"]


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (the library's own types)
    if hasattr(command, "commands"):
        for name, one in sorted(command.commands.items()):
            if not one.hidden:
                yield from _commands(one, f"{path} {name}")
    else:
        yield path, command


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""


def _parameter(one: Any) -> str:  # noqa: ANN401 (likewise)
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    if one.param_type_name == "argument":
        names = f"`{one.metavar or one.name.upper()}`"
    elif one.metavar:
        names = f"{names} `{one.metavar}`"
    told = " ".join((getattr(one, "help", None) or "").split())
    return f"| {_cell(names)} | {_cell(told)} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def python() -> Iterator[str]:
    """Yield the page of what `import perfkit` has, and of the errors it raises."""
    yield "# Python interface"
    yield ""
    yield "How they are used is in [perfkit in Python](../python.md)."
    yield from ["", "```{eval-rst}", ".. currentmodule:: perfkit", ""]
    for name in sorted(perfkit.__all__):
        kind = "autoclass" if inspect.isclass(getattr(perfkit, name)) else "autofunction"
        members = ["   :members:"] if kind == "autoclass" else []
        yield from [f".. {kind}:: perfkit.{name}", *members, ""]
    yield from ["```", "", "## Errors", "", "```{eval-rst}", ".. automodule:: perfkit.errors", "   :members:"]
    yield from ["   :show-inheritance:", "```"]


def configuration() -> Iterator[str]:
    """Yield the page of all keys under `[tool.perfkit]`, with their defaults."""
    yield "# Configuration"
    yield ""
    yield "All of it lies in `pyproject.toml`, and every key has a default."
    for struct in _structs():
        yield from ["", f"## {struct.__name__}", "", *_paragraphs(_as_markdown(struct.__doc__ or ""))]
        yield from ["| key | type | default |", "| :--- | :--- | :--- |"]
        for field in msgspec.structs.fields(struct):
            default = "required" if field.required else f"`{_default(field)}`"
            yield f"| `{field.encode_name}` | {_cell(_type(field.type))} | {_cell(default)} |"


def _structs() -> list[type[msgspec.Struct]]:
    found = [one for _, one in inspect.getmembers(config, inspect.isclass) if issubclass(one, msgspec.Struct)]
    ours = [one for one in found if one.__module__ == config.__name__ and one is not config.Project]
    return sorted(ours, key=lambda one: (one is not config.Config, one.__name__))


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "see below"
    return "none" if value is None else str(list(value) if isinstance(value, tuple) else value)


def _type(kind: Any) -> str:  # noqa: ANN401 (a type of any form)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(_type(part) for part in parts if part is not types.NoneType)
    if origin is tuple:
        return f"list of {_type(parts[0])}"
    if origin is not None and len(parts) == 2:  # noqa: PLR2004 (a key and a value)
        return f"table of {_type(parts[1])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    return {"str": "text", "float": "number", "int": "whole number", "bool": "true or false"}.get(
        getattr(kind, "__name__", ""), str(kind)
    )


def _as_markdown(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text)


_CODES = {
    errors.EXIT_PASS: "All is well: nothing regressed, and all was decided.",
    errors.EXIT_REGRESSED: "Something regressed, or a rendered file is not what the ledger says.",
    errors.EXIT_USAGE: "The command line, the configuration, a file or the repository cannot be used.",
    errors.EXIT_INCONCLUSIVE: "Nothing regressed, and something was left undecided.",
    errors.EXIT_NOT_MEASURED: "Something that should have been measured was not.",
    errors.EXIT_INTERNAL: "A mistake of perfkit's own; the line says where its report lies.",
    errors.EXIT_INTERRUPTED: "A person stopped it; what was measured is kept.",
    errors.EXIT_PIPE_CLOSED: "Whoever read its output has gone.",
}


def exit_codes() -> Iterator[str]:
    """Yield the page of exit codes, each with the errors that lead to it."""
    yield from ["# Exit codes", "", "| code | meaning | errors in Python |", "| ---: | :--- | :--- |"]
    found = [one for _, one in inspect.getmembers(errors, inspect.isclass) if hasattr(one, "exit_code")]
    for code, meaning in _CODES.items():
        names = ", ".join(f"`{one.__name__}`" for one in found if one.exit_code == code)
        yield f"| {code} | {meaning} | {names} |"


def columns() -> Iterator[str]:
    """Yield the page of the ledger's columns."""
    yield from ["# Columns of the ledger", ""]
    yield f"Version {SCHEMA_VERSION}. What they mean is in [the ledger and the log](../ledger.md)."
    yield from ["", "| column | type |", "| :--- | :--- |"]
    for field in SCHEMA:
        yield f"| `{field.name}` | {_cell(str(field.type))} |"


if __name__ == "__main__":
    write()
