"""What the core knows of features: names of what to import once it is asked for."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field

# The features that come with perfkit, each a folder of perfkit/features.
BUILT_IN = (
    *("cluster", "exchange", "experiments", "hosting", "init", "mcp", "site", "store"),
    *("tricks", "watch", "why"),
)
_GROUP = "perfkit.features"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command. ``module`` has a function ``register(app)``, which adds it to a Typer app.

    Attributes:
        name: the word after ``perfkit``, or after ``perfkit GROUP``.
        module: imported when the command is run.
        summary: the line that `perfkit --help` shows.
        group: the command that it is a part of, such as "ledger".
        hidden: no help lists it.
    """

    name: str
    module: str
    summary: str = ""
    group: str | None = None
    hidden: bool = False


@dataclass(frozen=True)
class Document:
    """A kind of JSON document: who writes it, its version, and the record that it is made of."""

    name: str
    version: int
    record: str
    written_by: str
    is_list: bool = False

    @property
    def stamp(self) -> Mapping[str, str | int]:
        """The value of "schema" in each document."""
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature beside the core: the FEATURE of its package.

    A package of its own names it as an entry point of the group "perfkit.features".

    Attributes:
        commands: what it adds to the command line.
        policies: the policy of its rows by their kind, as "module:Class".
        engines: the module that measures on the machines of a URL, by the scheme of the URL.
        mirrors: the module that opens ledgers at URLs; see perfkit/ledger/remote.py.
        documents: the JSON documents that its commands write.
    """

    commands: tuple[Command, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    mirrors: str = ""
    documents: tuple[Document, ...] = ()


@functools.cache
def features() -> tuple[Feature, ...]:
    """Return the features that are installed, those of other packages last."""
    built_in = [importlib.import_module(f"{_GROUP}.{name}").FEATURE for name in BUILT_IN]
    return (*built_in, *(entry.load() for entry in importlib.metadata.entry_points(group=_GROUP)))


def commands_of(group: str | None) -> list[Command]:
    """Return the features' commands below a command, or at the top."""
    return [command for feature in features() for command in feature.commands if command.group == group]
