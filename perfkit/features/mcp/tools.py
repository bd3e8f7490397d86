"""The tools of the server: their arguments, the commands that these stand for, and what these answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from perfkit.commands.schemas import document_named, schema_of
from perfkit.errors import UsageError

_Ref = Annotated[str | None, Meta(description="a commit, branch or tag")]
_Select = Annotated[str | None, Meta(description="only benchmarks that match, as pytest's -k")]
_Target = Annotated[str | None, Meta(description="a script, package.module:function or configured name")]
_Budget = Annotated[float | None, Meta(description="seconds")]
_BETWEEN_PATHS = re.compile(r"""[\s='",;:]+""")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call may have; each field is the option of its name unless it is positional."""

    words: ClassVar[tuple[str, ...]]
    positional: ClassVar[tuple[str, ...]] = ()
    documents: ClassVar[tuple[str, ...]]

    def command(self) -> list[str]:
        """Return the arguments of perfkit for it."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        placed = [given.pop(name, ()) for name in self.positional]
        options = [f"--{name}={value}" for name, value in given.items()]
        return [*self.words, *options, *(one for value in placed for one in _listed(value))]


class Check(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Is the working tree (or HEAD) faster than its base, and are its results the same? A short answer."""

    words = ("check",)
    documents = ("check",)
    base: _Ref = None
    select: _Select = None
    target: _Target = None
    budget: _Budget = None


class Gate(Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compare two commits in full: verdict and interval of each benchmark, counters, what moved."""

    words = ("gate",)
    documents = ("gate",)
    head: _Ref = None
    margin: Annotated[str | None, Meta(description="the largest change to ignore, such as 2%")] = None


class Why(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Explain a recorded gate (run), or profile two commits (base, head) and explain what differs."""

    words = ("explain",)
    positional = ("run", "base", "head")
    documents = ("explain", "gate")
    run: Annotated[str | None, Meta(description="the run_id of a check or gate")] = None
    base: _Ref = None
    head: _Ref = None
    target: _Target = None

    def command(self) -> list[str]:
        """Return the arguments of perfkit for it: a run is judged anew, commits are profiled."""
        if self.run is not None and (self.base, self.head, self.target) == (None, None, None):
            return ["ledger", "judge", self.run]
        if self.run is not None or self.base is None or self.head is None:
            raise UsageError("why takes a run, or base and head")
        # With a target no name of a commit is taken for a file.
        return Arguments.command(msgspec.structs.replace(self, target=self.target or "train"))


class Bisect(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find the commit between good and bad that made a benchmark slower."""

    words = ("bisect",)
    positional = ("good", "bad")
    documents = ("bisect",)
    good: Annotated[str, Meta(description="the older commit, before the change")]
    bad: Annotated[str, Meta(description="a later commit, after the change")]
    benchmark: Annotated[str, Meta(description="a node id, or the end of one")]
    metric: Annotated[str | None, Meta(description="time (default), or a counter such as syncs")] = None
    budget: _Budget = None


class History(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show trends of recorded measurements, their change points and alarms; measures nothing."""

    words = ("history", "show")
    positional = ("benchmarks",)
    documents = ("history",)
    benchmarks: Annotated[list[str] | None, Meta(description="node ids, or ends of some")] = None
    since: Annotated[str | None, Meta(description="30d, 8w, 1y or a date")] = None


TOOLS: Mapping[str, type[Arguments]] = {
    kind.__name__.lower(): kind for kind in (Check, Gate, Why, Bisect, History)
}


def command_of(name: str, given: Mapping[str, Any], top: Path) -> list[str]:
    """Return the arguments of perfkit for a call, none of which names a path outside of a repository."""
    if name not in TOOLS:
        raise UsageError(f'there is no tool "{name}"; there are {", ".join(TOOLS)}')
    try:
        arguments = msgspec.convert(given, TOOLS[name])
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from error
    for key, value in msgspec.structs.asdict(arguments).items():
        for text in _listed(value):
            if isinstance(text, str):
                _check_inside(f"{name}: {key}", text, top)
    return arguments.command()


def input_schema(tool: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    _, defined = msgspec.json.schema_components([tool])
    return {
        key: value for key, value in defined[tool.__name__].items() if key not in ("title", "description")
    }


def output_schema(tool: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's answer, an object at its root, as clients ask for."""
    schemas = [schema_of(document_named(name)) for name in tool.documents]
    defined = {name: one for schema in schemas for name, one in schema["$defs"].items()}
    roots = [{"$ref": schema["$ref"]} for schema in schemas]
    return {"type": "object", **(roots[0] if len(roots) == 1 else {"anyOf": roots}), "$defs": defined}


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check_inside(what: str, text: str, top: Path) -> None:
    """Refuse a text that is an option, or in which a word names a place outside of the repository."""
    if text.startswith("-"):
        raise UsageError(f'{what} begins with "-": {text!r}')
    for word in _BETWEEN_PATHS.split(text):
        try:
            inside = (top / word).resolve().is_relative_to(top)
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise UsageError(f"{what} names a place outside of {top}: {text!r}")
