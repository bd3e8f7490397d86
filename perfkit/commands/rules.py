"""The rules of a gate are those of base, so that no change decides how it is judged itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfkit.config import Config, Project, parse_config, read_config
from perfkit.errors import ConfigError
from perfkit.repo.commands import try_git
from perfkit.repo.sides import Side, SidePair, folder_in

# Keys of [tool.perfkit] that say what is compared and what fails; the others say where output goes.
_RULES = ("targets", "benchmarks", "asv", "margin", "prepare", "gate", "exact", "rules")
_FILE = "pyproject.toml"
_SHA_DIGITS = 10


@dataclass(frozen=True, kw_only=True)
class Ruled:
    """A project with the rules that decide, a phrase on each that head changes, and the targets it drops."""

    project: Project
    changed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def with_rules_of_base(project: Project, pair: SidePair) -> Ruled:
    """Return a project with the rules of base.

    Raises:
        ConfigError: the configuration of a side is not valid.
    """
    if pair.head.kind == "directory" and project.root != pair.head.source:
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


def _rules_of(side: Side, project: Project) -> dict[str, Any]:
    config = _config_of(side, project)
    return {key: getattr(config, key) for key in _RULES}


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
    """Return nested rules by their dotted keys."""
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


def _shown(value: object) -> str:
    return "not set" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower()
