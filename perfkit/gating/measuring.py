"""What a change edits of how it is measured itself: benchmarks, settings, pins, acceptances."""

from __future__ import annotations

import ast
import configparser
import contextlib
import hashlib
import json
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from perfkit.errors import RepositoryError
from perfkit.gating.coverage import find_changed, project_folder, reader_of
from perfkit.gating.rules import RULES, changed_value, rules_are_read
from perfkit.gating.sides import OpenSides
from perfkit.gating.survey import Survey
from perfkit.ledger.annotations import ACCEPTANCES
from perfkit.model import Benchmark, Side
from perfkit.model.comparisons import (
    MEASURING,
    ChangedFunction,
    Comparison,
    MeasuringEdit,
    MeasuringKind,
)
from perfkit.repo.code_units import changed_functions
from perfkit.repo.files import has_replaced
from perfkit.repo.sides import changed_files
from perfkit.repo.trailers import KEY, accepted_in
from perfkit.units import counted

_KINDS: tuple[MeasuringKind, ...] = get_args(MeasuringKind)
_CONFTEST = "conftest.py"
_TEST_FOLDERS = frozenset({"tests", "test", "testing", "benchmarks", "benchmark", "bench", "benches"})
_PINS = re.compile(
    r"(?i)((requirements|constraints)[\w.-]*\.(txt|in)|(uv|poetry|pdm)\.lock|pylock[\w.-]*\.toml"
    r"|pipfile(\.lock)?|environment[\w-]*\.ya?ml|\.python-version)$"
)
_CI = re.compile(
    r"\.(github/workflows|circleci|gitlab)/|(\.gitlab-ci|\.pre-commit-config|azure-pipelines)\.ya?ml$"
    r"|Jenkinsfile$"
)
# Files with settings, and the beginnings of the keys that matter. The table of perfkit has others that a gate
# does not read.
_SETTINGS: Mapping[str, tuple[tuple[str, MeasuringKind], ...]] = {
    "pyproject.toml": (
        ("tool.perfkit.", "perfkit"),
        ("tool.pytest.", "pytest"),
        *((key, "pin") for key in (
            "project.dependencies", "project.optional-dependencies.", "project.requires-python",
            "dependency-groups.", "build-system.requires", "tool.uv.", "tool.poetry.dependencies.",
            "tool.poetry.group.", "tool.pdm.dev-dependencies.",
        )),
    ),
    **dict.fromkeys(("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "tox.ini"),
                    (("pytest.", "pytest"),)),
    "setup.cfg": (("tool:pytest.", "pytest"), ("options.install_requires", "pin"),
                  ("options.extras_require.", "pin")),
}  # fmt: skip
_WITHOUT_EFFECT = ("log", "report", "history", "backfill", "prepare_for", "profiles")
# Two lines that differ are shown where these are no longer.
_LONGEST_LINE = 40
_NEW = "new, "


def with_measuring_edits(
    sides: OpenSides,
    surveyed: Survey,
    *,
    ledger: Path,
    of_head: bool,
    strict: bool,
    functions: Sequence[ChangedFunction] = (),
) -> Survey:
    """Add to a survey what head edits of how it is measured, with a finding on it where a gate is strict.

    ``of_head`` means that the rules of head decide. A new file of benchmarks is no finding, as it changes
    nothing that was measured before. Of the ``functions`` that head changes it is known where they run.
    """
    edits = _Edits(sides=sides, surveyed=surveyed, ledger=ledger, of_head=of_head, functions=functions)
    found = edits.found()
    surveyed = replace(surveyed, measuring=tuple(edit for edit, _ in found))
    found = [one for one in found if not (one[0].kind == "benchmark" and one[0].what.startswith(_NEW))]
    if not found or not strict:
        return surveyed
    whole = json.dumps([(edit.kind, edit.path, edit.what, token) for edit, token in found])
    finding = Comparison(
        benchmark=Benchmark(name=MEASURING, version=hashlib.sha256(whole.encode()).hexdigest()[:16]),
        verdict="CHANGED",
        margin=sides.project.config.margin_share,
        message=f"the change edits how it is measured ({counted(len(found), 'edit')})",
    )
    return replace(surveyed, findings=(*surveyed.findings, finding))


_Edit = tuple[MeasuringEdit, str]


@dataclass(frozen=True, kw_only=True)
class _Edits:
    """The edits of a change, each with a text that differs where the same place is edited otherwise."""

    sides: OpenSides
    surveyed: Survey
    ledger: Path
    of_head: bool
    functions: Sequence[ChangedFunction] = ()
    _texts: dict[tuple[Side, str], str | None] = field(default_factory=dict)

    def found(self) -> list[_Edit]:
        """Return all edits, those that weigh most first."""
        if self.sides.environments:
            return []
        edits = [*self._markers(), *self._trailers()]
        edits += [one for file in sorted(self._changed) for one in self._of_file(file)]
        return sorted(edits, key=lambda one: _KINDS.index(one[0].kind))

    @cached_property
    def _changed(self) -> Collection[str]:
        known = changed_files(self.sides.pair)
        if known is not None:
            return known
        found = self.surveyed.changed or find_changed(self.sides, self.surveyed.laid, ())
        return found.files | found.outputs

    @cached_property
    def _read(self) -> Callable[[Side, str], bytes | None]:
        return reader_of(self.sides, self.surveyed.laid)

    @cached_property
    def _folder(self) -> PurePosixPath:
        return project_folder(self.sides)

    @cached_property
    def _by_file(self) -> Mapping[str, list[str]]:
        """The benchmarks of each file, relative to the project."""
        found: dict[str, list[str]] = {}
        names = [one.benchmark.name for one in (*self.surveyed.compared, *self.surveyed.numbers)]
        for name in (*names, *(one.benchmark.name for one in self.surveyed.findings)):
            if "::" in name:
                found.setdefault(name.partition("::")[0], []).append(name)
        return found

    def _text(self, side: Side, file: str) -> str | None:
        if (side, file) not in self._texts:
            own = self._own(file) or ""
            laid = side == "base" and own in self.surveyed.laid
            is_new = laid and not has_replaced(self.sides.roots.base, own)
            content = None if is_new else self._read(side, file)
            self._texts[side, file] = None if content is None else content.decode("utf-8", "replace")
        return self._texts[side, file]

    def _both(self, file: str) -> tuple[str | None, str | None]:
        return self._text("base", file), self._text("head", file)

    def _own(self, file: str) -> str | None:
        """Return the place of a file in the project, None outside of it."""
        path = PurePosixPath(file)
        return path.relative_to(self._folder).as_posix() if path.is_relative_to(self._folder) else None

    def _markers(self) -> Iterator[_Edit]:
        for name, what in self.surveyed.markers.items():
            edit = MeasuringEdit(
                kind="marker", path=name, what=what, effect=self._rules_of, benchmarks=(name,)
            )
            yield edit, what

    def _trailers(self) -> Iterator[_Edit]:
        base, head = self.sides.pair.base, self.sides.pair.head
        if "directory" in (base.kind, head.kind):
            return
        with contextlib.suppress(RepositoryError):
            for one in accepted_in(head.source, base.commit.sha, head.commit.sha)[0]:
                if one.benchmark != MEASURING:
                    yield _edit("acceptance", KEY, f"{one.benchmark}: {one.reason}", "accepts it")

    def _of_file(self, file: str) -> Iterator[_Edit]:
        before, after = self._both(file)
        if before == after:
            return
        if self._is_acceptance(file):
            yield from _of_acceptance(file, before, after)
        elif _CI.search(file):
            if "perfkit" in f"{before}{after}":
                yield self._of_lines("CI", file, "none in this gate")
        # What lies above the project concerns it as well, what lies beside it does not.
        elif (own := self._own(file)) is not None or PurePosixPath(file).parent in self._folder.parents:
            yield from self._of_project(file, own)

    def _of_project(self, file: str, own: str | None) -> Iterator[_Edit]:
        path = PurePosixPath(file)
        if path.name in _SETTINGS:
            yield from self._of_settings(file, path.name)
        elif own is not None and (kind := self._kind_of_code(own)) is not None:
            yield self._of_lines(kind, file, self._laid(own), self._concerned(kind, own))
        elif own is not None and own in self._prepare_files:
            yield self._of_lines("prepare", file, "each side's own")
        elif _is_pin(path):
            yield self._of_lines("pin", file, "not installed")
        elif own is not None and path.suffix != ".py" and (names := self._readers(PurePosixPath(own))):
            yield self._of_lines("helper", file, self._laid(own), names)

    def _of_lines(
        self, kind: MeasuringKind, file: str, effect: str, benchmarks: tuple[str, ...] = ()
    ) -> _Edit:
        before, after = self._both(file)
        what = _lines(before, after, in_full=kind == "pin")
        return (
            MeasuringEdit(kind=kind, path=file, what=what, effect=effect, benchmarks=benchmarks),
            hashlib.sha256((after or "").encode()).hexdigest(),
        )

    def _kind_of_code(self, own: str) -> MeasuringKind | None:
        path = PurePosixPath(own)
        if path.suffix != ".py":
            return None
        if path.name == _CONFTEST:
            return "conftest" if self._below(path.parent) else None
        if own in self._by_file or own in self.surveyed.laid:
            return "benchmark"
        return "helper" if own in self._helpers else None

    def _laid(self, own: str) -> str:
        return "head's on both sides" if own in self.surveyed.laid else "each side's own"

    def _below(self, folder: PurePosixPath) -> tuple[str, ...]:
        files = (file for file in self._by_file if PurePosixPath(file).is_relative_to(folder))
        return tuple(name for file in files for name in self._by_file[file])

    def _concerned(self, kind: MeasuringKind, own: str) -> tuple[str, ...]:
        """Return the benchmarks that an edited file concerns."""
        if kind == "conftest":
            return self._below(PurePosixPath(own).parent)
        if kind == "helper":
            return tuple(
                name for file in self._by_file if own in self._closure(file) for name in self._by_file[file]
            )
        names = self._by_file.get(own, [])
        before, after = self._both((self._folder / own).as_posix())
        functions = changed_functions((before or "").encode(), (after or "").encode())
        edited = [name for name in names if name in self.surveyed.edited]
        alone = {_function(name) for name in edited}
        # What else differs in the file may be a part of what any of its benchmarks does.
        return tuple(edited if functions is not None and alone.issuperset(functions) else names)

    def _readers(self, own: PurePosixPath) -> tuple[str, ...]:
        """Return the benchmarks whose files name one of data, by its stem where it lies beside or below."""

        def reads(file: str) -> bool:
            places = ((self._folder / one).as_posix() for one in (file, *self._closure(file)))
            text = "\n".join(part or "" for place in places for part in self._both(place))
            words = re.findall(r"\w+", text) if own.is_relative_to(PurePosixPath(file).parent) else ()
            return own.name in text or own.stem in words

        return tuple(name for file, names in self._by_file.items() if reads(file) for name in names)

    @cached_property
    def _helpers(self) -> frozenset[str]:
        """The changed files in test folders that benchmarks import, relative to the project."""
        if self._own_changed.isdisjoint(self._candidates):
            return frozenset()
        return self._own_changed.intersection(file for one in self._by_file for file in self._closure(one))

    @cached_property
    def _own_changed(self) -> frozenset[str]:
        return frozenset(own for file in self._changed if (own := self._own(file)) is not None)

    @cached_property
    def _candidates(self) -> frozenset[str]:
        """The files of test folders, imported or changed, that have no benchmarks themselves.

        Beside the project's own modules at its top, they are those that only set-ups run.
        """
        folders = {str(PurePosixPath(file).parent) for file in self._by_file}
        prepared = {self._own(one.file) for one in self.functions if one.runs == "set-up"}
        prepared -= {self._own(one.file) for one in self.functions if one.runs != "set-up"}
        return frozenset(
            file
            for file in self.surveyed.loaded | self._own_changed
            if file.endswith(".py")
            and file not in self._by_file
            and PurePosixPath(file).name != _CONFTEST
            and (
                _TEST_FOLDERS.intersection(PurePosixPath(file).parts[:-1])
                or (folders - {"."}).intersection(map(str, PurePosixPath(file).parents))
                or ("." in folders and file in prepared and "/" not in file)
            )
        )

    def _closure(self, file: str) -> frozenset[str]:
        """Return the candidates that a file of benchmarks, or a conftest above it, mentions or leads to."""
        waiting = [file, *(str(folder / _CONFTEST) for folder in PurePosixPath(file).parents)]
        found: set[str] = set()
        while waiting:
            place = (self._folder / waiting.pop()).as_posix()
            words = set[str]().union(*map(_words, self._both(place)))
            news = {one for one in self._candidates - found if _module(one) in words}
            found |= news
            waiting += news
        return frozenset(found)

    @cached_property
    def _prepare_files(self) -> frozenset[str]:
        """The words of the commands that prepare a side, which may be files."""
        texts = self._both((self._folder / "pyproject.toml").as_posix())
        found = [_read_settings("pyproject.toml", text).get("tool.perfkit.prepare") for text in texts]
        words: list[str] = []
        for command in (*found, self.sides.project.config.prepare):
            with contextlib.suppress(ValueError):
                words += shlex.split(command, comments=True) if isinstance(command, str) else []
        return frozenset(word.removeprefix("./") for word in words)

    def _of_settings(self, file: str, name: str) -> Iterator[_Edit]:
        before, after = (_read_settings(name, text) for text in self._both(file))
        for key in dict.fromkeys((*before, *after)):
            kind = next((kind for begin, kind in _SETTINGS[name] if key.startswith(begin)), None)
            old, new = before.get(key), after.get(key)
            if kind is None or old == new:
                continue
            shown = key.removeprefix("tool.perfkit.")
            if kind == "perfkit" and shown.partition(".")[0] in _WITHOUT_EFFECT:
                continue
            edit = MeasuringEdit(
                kind=kind, path=file, what=_value(shown, old, new), effect=self._effect_of(kind, shown)
            )
            yield edit, repr((old, new))

    def _effect_of(self, kind: MeasuringKind, key: str) -> str:
        if kind == "perfkit":
            return self._rules_of if key.partition(".")[0] in RULES else "head's decide"
        return "not installed" if kind == "pin" else "each side's own"

    @property
    def _rules_of(self) -> str:
        if self.of_head:
            return "head's decide"
        return "base's decide" if rules_are_read(self.sides.project, self.sides.pair) else "neither decides"

    def _is_acceptance(self, file: str) -> bool:
        place = self.ledger / ACCEPTANCES.folder
        return (self.sides.pair.head.source / file).parent.resolve() == place.resolve()


def _edit(kind: MeasuringKind, path: str, what: str, effect: str) -> _Edit:
    return MeasuringEdit(kind=kind, path=path, what=what, effect=effect), what


def _of_acceptance(file: str, before: str | None, after: str | None) -> Iterator[_Edit]:
    try:
        kept = json.loads(after or before or "")
        benchmark, reason = kept["benchmark"], kept["reason"]
    except (ValueError, KeyError, TypeError):
        benchmark, reason = "unreadable", ""
    if benchmark == MEASURING:
        return
    if after is None:
        yield _edit("acceptance", file, f"removed: {benchmark}", "accepts nothing")
    else:
        yield _edit("acceptance", file, f"{benchmark}: {reason}", "accepts it")


def _read_settings(name: str, text: str | None) -> dict[str, Any]:
    """Return the settings of a file by their whole keys; nothing where it cannot be read."""
    try:
        if name.endswith(".toml"):
            return dict(_flat(tomllib.loads(text or "")))
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text or "")
        return dict(_flat({section: dict(parser[section]) for section in parser.sections()}))
    except (tomllib.TOMLDecodeError, configparser.Error):
        return {}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _value(key: str, before: object, after: object) -> str:
    """Return how a setting differs; of lists, what goes and what comes."""
    if not all(one is None or isinstance(one, list) for one in (before, after)):
        return changed_value(key, before, after)
    old, new = (one if isinstance(one, list) else [] for one in (before, after))
    gone, come = ([one for one in some if one not in others] for some, others in ((old, new), (new, old)))
    if not gone and not come:
        return f"{key}: in another order"
    return changed_value(key, *(", ".join(map(str, one)) or None for one in (gone, come)))


def _lines(before: str | None, after: str | None, *, in_full: bool) -> str:
    """Return how many lines of a file differ; ``in_full`` the only one that does."""
    if before is None:
        return f"{_NEW}{counted(len((after or '').splitlines()), 'line')}"
    if after is None:
        return "removed"
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    gone, come = (list((some - others).elements()) for some, others in ((old, new), (new, old)))
    if not gone and not come:
        return "lines in another order"
    if in_full and len(gone) == len(come) == 1 and max(map(len, (*gone, *come))) <= _LONGEST_LINE:
        return f"{gone[0].strip()} -> {come[0].strip()}"
    return f"+{len(come)} -{len(gone)} {'line' if len(gone) + len(come) == 1 else 'lines'}"


def _function(name: str) -> str:
    """Return the qualified name of the function of a benchmark."""
    return name.partition("[")[0].partition("::")[2].replace("::", ".")


def _module(file: str) -> str:
    path = PurePosixPath(file)
    return path.parent.name if path.stem == "__init__" else path.stem


def _words(text: str | None) -> set[str]:
    """Return the words by which a file may name another one, all of them where it cannot be parsed.

    Those that it defines itself, as a function or a fixture that it asks for, may be the names of tests too.
    """
    try:
        nodes = [*ast.walk(ast.parse(text or ""))]
    except (SyntaxError, ValueError, RecursionError):
        return set(re.findall(r"\w+", text or ""))
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names += [getattr(node, "module", None) or "", *(one.name for one in node.names)]
        elif isinstance(node, ast.Attribute):
            names.append(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.append(node.value)
    return set(re.findall(r"\w+", "\n".join(names)))


def _is_pin(path: PurePosixPath) -> bool:
    listed = path.parent.name == "requirements" and path.suffix in (".txt", ".in")
    return (listed or _PINS.match(path.name) is not None) and {"docs", "doc"}.isdisjoint(path.parts)
