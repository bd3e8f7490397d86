"""Fills pages of the site as it is built: the reference from the code, the navigation from lists of links.

`make reference` fills the reference in the repository as well, for those who read it there.
"""

from __future__ import annotations

import functools
import inspect
import json
import pkgutil
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import perfkit
from perfkit import config, errors
from perfkit.cli.app import whole_command_line
from perfkit.ledger.schema import SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# What results of the functions are, beside what `import perfkit` has.
RESULTS = (
    "perfkit.interface.verbs.GateResult",
    "perfkit.interface.verbs.ProfileResult",
    "perfkit.interface.verbs.Explained",
    "perfkit.ledger.store.Ledger",
)
# Their lists are the navigation of the site.
CONTENTS = ("index", "howto/index", "reference/index", "measured/index")

_FILLED = re.compile(r"(<!-- begin: make reference -->\n).*?(<!-- end: make reference -->\n)", re.DOTALL)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#:]+)\.md\)", re.MULTILINE)
# A block of lines to be typed that no test runs; the site shows it as it shows those that are run.
_TYPED = re.compile(r"^```text\n(?=(?:perfkit|pip|pytest|git|make) )", re.MULTILINE)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
# A number and its unit stay on one line of a narrow cell.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mun]?s|[KMG]iB|B)(?!\w))|(?<=±) (?=\d)")
# An option that so many commands describe alike is described once, and these are not listed either.
_SHARED_BY = 2
_OF_NEARLY_ALL = ("--json", "--quiet")
# How many examples a command has on its page; its help has all.
_EXAMPLES = 2
_CLICK_KINDS = {"text": "TEXT", "integer": "NUMBER", "float": "NUMBER", "path": "PATH"}
_KINDS = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Have Sphinx fill each page when it reads it."""

    def read(_: Sphinx, page: str, text: list[str]) -> None:
        text[0] = filled(page, text[0])

    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda *_: list(PAGES))
    return {"parallel_read_safe": True}


def filled(page: str, text: str) -> str:
    """Return a page's text as the site has it: filled in, with navigation, and units beside their numbers."""
    if page in PAGES:
        text = _with(text, PAGES[page]())
    if page in CONTENTS:
        entries = [f"{title.replace('`', '')} <{target}>" for title, target in contents(text)]
        text = "\n".join([text, "```{toctree}", ":hidden:", "", *entries, "```", ""])
    text = _TYPED.sub("```sh\n", text)
    return _ROW.sub(lambda row: _UNIT.sub("\N{NO-BREAK SPACE}", row[0]), text)


def stored(page: str, text: str) -> str:
    """Return a page of the reference as it lies in the repository, where nothing but markdown is shown."""
    return _with(text, python_names() if page == "reference/python" else PAGES[page]())


def _with(text: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines).strip("\n")
    text, times = _FILLED.subn(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", text)
    if times != 1:
        raise ValueError(f"a page has {times} places to fill; it needs one:\n{text}")
    return text


def write() -> None:
    """Fill the reference in the repository."""
    for page in PAGES:
        file = Path(__file__).parent / f"{page}.md"
        file.write_text(stored(page, file.read_text(encoding="utf-8")), encoding="utf-8")


def contents(text: str) -> list[tuple[str, str]]:
    """Return title and document of each line of a page's lists that begins with a link to a document."""
    return _ENTRY.findall(text)


@functools.cache
def meanings() -> dict[str, Any]:
    """Return what keys and columns mean, in words."""
    return tomllib.loads((Path(__file__).parent / "meanings.toml").read_text(encoding="utf-8"))


def commands() -> Iterator[str]:
    """Yield the page of all commands: what each does, its arguments and options, and examples."""
    found = list(each_command())
    shared = shared_options(found)
    yield from ["## Shared options", ""]
    yield from ["Nearly every command has `--json` and `--quiet`; it lists its others under *Also*.", ""]
    yield from (f"- {option}" for option in shared.values())
    for path, command in found:
        yield from ["", f"## {path}", "", *_paragraphs(command.help or "")]
        parameters = [one for one in command.params if not getattr(one, "hidden", False)]
        described = {one.name: _described(one) for one in parameters}
        yield from (f"- {text}" for text in described.values() if text not in shared.values())
        also = [one.opts[0] for one in parameters if described[one.name] in shared.values()]
        if also := [f"`{name}`" for name in also if name not in _OF_NEARLY_ALL]:
            yield f"- Also {', '.join(also)}."
        examples = [line.strip() for line in re.findall(r"^\$ (.+)$", command.epilog or "", re.MULTILINE)]
        shown = [line for line in examples if line != path][:_EXAMPLES] or examples
        if shown:
            yield from ["", "```text", *shown, "```"]


def shared_options(found: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return name and description of each option that several commands describe alike."""
    options = [
        (one.opts[0], _described(one))
        for _, command in found
        for one in command.params
        if one.param_type_name == "option" and not getattr(one, "hidden", False)
    ]
    return dict(sorted({option for option in options if options.count(option) >= _SHARED_BY}))


def _described(one: Any) -> str:  # noqa: ANN401 (the library's own types)
    names, meaning = _names(one), _told(one)
    return f"{names}: {meaning}" if meaning else names


def each_command() -> Iterator[tuple[str, Any]]:
    """Yield the program itself and each of its commands that is not hidden, with the words one types."""
    root = whole_command_line()
    yield "perfkit", root
    yield from _commands(root, "perfkit")


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (the library's own types)
    for name, one in sorted(command.commands.items()):
        if one.hidden:
            continue
        below = getattr(one, "commands", None)
        if below is None or one.invoke_without_command:
            yield f"{path} {name}", one
        if below is not None:
            yield from _commands(one, f"{path} {name}")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""


def _names(one: Any) -> str:  # noqa: ANN401 (likewise)
    """Return how a parameter is typed: `--every N`, or `GOOD` for an argument."""
    if one.param_type_name == "argument":
        return f"`{one.metavar or one.name.upper()}`" + ("…" if one.nargs == -1 and not one.metavar else "")
    names = [*one.opts, *one.secondary_opts]
    value = "" if one.is_flag else f" {one.metavar or _kind(one)}"
    return ", ".join([*(f"`{name}`" for name in names[:-1]), f"`{names[-1]}{value}`"])


def _kind(one: Any) -> str:  # noqa: ANN401 (likewise)
    if not hasattr(one, "type_descriptor"):
        # Earlier versions of typer have the types of click.
        return "|".join(getattr(one.type, "choices", ())) or _CLICK_KINDS.get(
            one.type.name.split()[0], "VALUE"
        )
    annotation = one.type_descriptor.annotation
    chosen = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()
    return "|".join(map(str, chosen)) if chosen else _KINDS.get(annotation, "VALUE")


def _told(one: Any) -> str:  # noqa: ANN401 (likewise)
    """Return what a parameter means, whether it is optional or may be repeated, and its default."""
    said = " ".join((getattr(one, "help", None) or "").split())
    if getattr(one, "multiple", False):
        said = re.sub(r"; may be given often|(?<=.) \(repeatable\)", "", said) + " Repeatable."
    required = getattr(one, "required", False)
    if one.param_type_name == "option" and required:
        said += " Required."
    if one.param_type_name == "argument" and not required and "[" not in (one.metavar or ""):
        said += " Optional."
    default = getattr(one, "default", None)
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    if plain and default != "" and "default" not in said.lower():
        said += f" Default: `{default}`."
    return said.strip()


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def python() -> Iterator[str]:
    """Yield the page of what `import perfkit` has, of its results, and of the errors it raises."""
    yield from ["```{eval-rst}", ".. currentmodule:: perfkit", ""]
    for name in sorted(perfkit.__all__):
        kind = "autoclass" if inspect.isclass(getattr(perfkit, name)) else "autofunction"
        members = ["   :members:"] if kind == "autoclass" else []
        yield from [f".. {kind}:: perfkit.{name}", *members, ""]
    yield from ["```", "", "## Results", "", "```{eval-rst}"]
    for name in RESULTS:
        yield from [f".. autoclass:: {name}()", "   :members:", ""]
    yield from ["```", "", "## Errors", "", "Each is raised with one line that says what to do next.", ""]
    yield from [
        "```{eval-rst}",
        ".. automodule:: perfkit.errors",
        "   :members:",
        "   :show-inheritance:",
        "```",
    ]


def python_names() -> Iterator[str]:
    """Yield what fits a page without Sphinx: each name and the beginning of its description."""
    yield from ["`help(perfkit.gate)` and the site (`make site`) describe arguments and fields.", ""]
    found = [(f"perfkit.{name}", getattr(perfkit, name)) for name in sorted(perfkit.__all__)]
    found += [(name, pkgutil.resolve_name(name)) for name in RESULTS]
    for name, one in found:
        first = next(_paragraphs(inspect.getdoc(one) or ""))
        yield f"- `{name}`: {_as_markdown(first)}"


def _as_markdown(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text)


def configuration() -> Iterator[str]:
    """Yield the page of all keys under `[tool.perfkit]`, with their meanings, types and defaults."""
    known = {table for table, _, _ in tables()}
    for table, repeated, struct in tables():
        told = meanings()["configuration"][table]
        above, _, key = table.rpartition(".")
        yield from ["", f"## `[[{table}]]`" if repeated else f"## `[{table}]`", ""]
        if meaning := meanings()["configuration"].get(above, {}).get(key):
            yield from [meaning, ""]
        for field in msgspec.structs.fields(struct):
            # What is a table of its own has a section.
            if f"{table}.{field.encode_name}" not in known:
                kind = _type(field.type)
                said = f"{told[field.encode_name]} {kind[0].upper()}{kind[1:]}{_default(field)}."
                yield f"- `{field.encode_name}`: {said}"


def tables(
    struct: type[msgspec.Struct] = config.Config, table: str = "tool.perfkit", *, repeated: bool = False
) -> Iterator[tuple[str, bool, type[msgspec.Struct]]]:
    """Yield each table of the configuration: its name in TOML, whether there may be several, and its keys."""
    yield table, repeated, struct
    for field in msgspec.structs.fields(struct):
        inner = typing.get_args(field.type)[:1] or (field.type,)
        if isinstance(inner[0], type) and issubclass(inner[0], msgspec.Struct):
            several = typing.get_origin(field.type) is tuple
            yield from tables(inner[0], f"{table}.{field.encode_name}", repeated=several)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ", required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None or isinstance(value, msgspec.Struct) or value in ((), {}):
        return ""
    return f", default `{json.dumps(value)}`"


def _type(kind: Any) -> str:  # noqa: ANN401 (a type of any form)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{json.dumps(part)}`" for part in parts)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(_type(part) for part in parts if part is not types.NoneType)
    if origin is tuple:
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"table of {_type(parts[1])}"
    return {str: "text", float: "number", int: "number", bool: "true or false"}[kind]


_CODES = {
    errors.EXIT_PASS: "All is well: nothing regressed, and all was decided.",
    errors.EXIT_REGRESSED: "Something regressed, or a rendered file is not what the ledger says.",
    errors.EXIT_USAGE: "The command line, the configuration, a file or the repository cannot be used.",
    errors.EXIT_INCONCLUSIVE: "Nothing regressed, and something was left undecided.",
    errors.EXIT_NOT_MEASURED: (
        "Something that should have been measured was not, or another perfkit held the machine for too long."
    ),
    errors.EXIT_INTERNAL: "A mistake of perfkit's own; the line says where its report lies.",
    errors.EXIT_INTERRUPTED: "It was stopped, by Ctrl-C or a signal; what was measured is kept.",
    errors.EXIT_PIPE_CLOSED: "The reader of its output has gone.",
}


def exit_codes() -> Iterator[str]:
    """Yield the page of exit codes, each with the errors that lead to it."""
    found = [one for _, one in inspect.getmembers(errors, inspect.isclass) if hasattr(one, "exit_code")]
    for code, meaning in _CODES.items():
        names = ", ".join(f"`{one.__name__}`" for one in found if one.exit_code == code)
        yield f"- {code}: {meaning} {f'In Python {names}.' if names else ''}".rstrip()


def columns() -> Iterator[str]:
    """Yield the page of the ledger's columns."""
    yield from [f"This is version {SCHEMA_VERSION} of the columns.", ""]
    for field in SCHEMA:
        meaning = meanings()["columns"][field.name]
        yield f"- `{field.name}` ({_stored(field.type)}): {meaning}"


def _stored(kind: Any) -> str:  # noqa: ANN401 (pyarrow's own types)
    """Return a type of parquet in a few words; the parts of a cause are told in its meaning."""
    text = str(kind)
    if text.startswith(("list<element: struct", "list<item: struct")):
        return "list of records"
    text = re.sub(r"^list<\w+: (\w+)>$", r"list of \1", text)
    return re.sub(r"^map<(\w+), (\w+)>$", r"map of \1 to \2", text)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "reference/commands": commands,
    "reference/configuration": configuration,
    "reference/python": python,
    "reference/exit-codes": exit_codes,
    "reference/columns": columns,
}


if __name__ == "__main__":
    write()
