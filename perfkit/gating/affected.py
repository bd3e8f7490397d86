"""Decides which benchmarks a change can affect, from what they ran on both sides and what differs.

What is not known counts as affected.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from perfkit.model import SIDES, Side
from perfkit.model.comparisons import ChangedFunction, Runs
from perfkit.repo.code_units import (
    MODULE,
    READS_CODE,
    READS_DOCS,
    READS_HEADERS,
    Item,
    Mentions,
    Units,
    differing_functions,
    looks_around,
    units_of,
    watched_classes,
    words_of,
)
from perfkit.runner.lockstep.tracing import Code, Ran, SideTrace
from perfkit.units import counted

_TEXT_SUFFIXES = frozenset({".md", ".rst", ".pyi", ".typed", ".lock"})
_TEXT_NAMES = re.compile(
    r"(?i)(licen[cs]e|copying|notice|authors|contributors|codeowners|changelog|changes|news|citation\.cff"
    r"|readme|makefile|\.gitignore|\.gitattributes|\.gitmodules|\.mailmap|\.editorconfig|\.dockerignore"
    r"|\.pre-commit-config\.yaml|\.pre-commit-hooks\.yaml|\.readthedocs\.ya?ml|\.coveragerc|\.flake8|\.pylintrc"
    r"|mypy\.ini|\.?ruff\.toml|renovate\.json|dependabot\.yml|poetry\.lock|pdm\.lock|pipfile\.lock"
    r"|package-lock\.json|dockerfile|docker-compose\.ya?ml|mkdocs\.ya?ml|noxfile\.py|\.gitlab-ci\.yml"
    r"|\.travis\.yml|justfile|manifest\.in"
    r"|(requirements|constraints)([-_.][\w.-]*)?\.(txt|in)|environment[\w-]*\.ya?ml)(\.(md|rst|txt))?$"
)
_TEXT_FOLDERS = frozenset({
    ".github", ".circleci", ".gitlab", ".vscode", ".idea", ".claude", ".cursor", ".devcontainer",
})  # fmt: skip
# Tables of pyproject.toml that change nothing that runs.
_HARMLESS_TOOLS = frozenset({
    "bandit", "black", "bumpversion", "check-manifest", "codespell", "commitizen", "coverage", "cspell",
    "flake8", "interrogate", "isort", "mypy", "perfkit", "pydocstyle", "pylint", "pyright", "ruff",
    "semantic_release", "towncrier", "tox", "ty", "typos", "vulture", "yapf",
})  # fmt: skip
_HARMLESS_DATA = frozenset({
    "authors", "classifiers", "dependencies", "description", "keywords", "license", "license-files",
    "maintainers", "optional-dependencies", "readme", "requires-python", "urls", "version",
})  # fmt: skip
_SUFFIXES = frozenset({"md", "rst", "svg", "txt", "py", "pyi", "toml", "cfg", "ini", "yml", "yaml", "json"})
_READERS_OF_DOCS = frozenset({
    "click", "cmd", "docopt", "doctest", "fastapi", "fire", "ply", "pydantic", "pydoc", "sly", "typer",
})  # fmt: skip
# Python imports these by itself.
_STARTUP = frozenset({"sitecustomize.py", "usercustomize.py"})


@dataclass(frozen=True, kw_only=True)
class Changed:
    """The files that differ, relative to the top, by kind, and a reader of any file of a side.

    What perfkit writes, ``outputs``, is no difference.
    """

    python: frozenset[str]
    texts: frozenset[str]
    others: frozenset[str]
    read: Callable[[Side, str], bytes | None]
    outputs: frozenset[str] = frozenset()
    _units: dict[tuple[Side, str], Units | None] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> frozenset[str]:
        """All of them but ``outputs``."""
        return self.python | self.texts | self.others

    def units(self, side: Side, file: str) -> Units | None:
        """Return the parts of a file on a side, none of a missing one, and None where it cannot be read."""
        if side == "base" and file not in self.python:
            side = "head"
        key = side, file
        if key not in self._units:
            text = self.read(side, file)
            try:
                found: Units | None = Units() if text is None else units_of(text)
                if found is not None and file in self.python:
                    found.describe()
            except (SyntaxError, ValueError, RecursionError):
                found = None
            self._units[key] = found
        return self._units[key]


def changed_lines(changed: Changed, side: Side) -> Mapping[str, Sequence[range]]:
    """Return the lines of functions that differ, or that the other side lacks, by file; no tests' ones."""
    found: dict[str, Sequence[range]] = {}
    for file in changed.python:
        base, head = (changed.units(one, file) for one in SIDES)
        if base is not None and head is not None and not _is_test(file):
            own = (base if side == "base" else head).functions
            differing = differing_functions(base, head) & own.keys()
            found[file] = [one.lines for name in differing for one in own[name]]
    return found


def first_changed_line(changed: Changed, file: str, line: int) -> int:
    """Return the first line of head that differs in the function at a line, that line where none is known."""
    base, head = (changed.units(side, file) for side in SIDES)
    if base is None or head is None:
        return line
    for name, found in head.functions.items():
        for old, new in zip(base.functions.get(name, ()), found, strict=False):
            if line in new.lines:
                return new.first_difference(old)
    return line


def sort_changed(files: Iterable[str], read: Callable[[Side, str], bytes | None]) -> Changed:
    """Sort files that differ into Python, what nothing runs, and everything else."""
    python: set[str] = set()
    texts: set[str] = set()
    others: set[str] = set()
    for file in files:
        path = PurePosixPath(file)
        if read("base", file) == read("head", file):
            # It is a link, or may be executed on one side alone.
            others.add(file)
        elif path.suffix == ".py":
            python.add(file)
        elif path.name == "pyproject.toml":
            (texts if _same_tables(read("base", file), read("head", file)) else others).add(file)
        elif (
            path.suffix in _TEXT_SUFFIXES
            or _TEXT_NAMES.match(path.name)
            or not _TEXT_FOLDERS.isdisjoint(path.parts)
        ):
            texts.add(file)
        else:
            others.add(file)
    return Changed(python=frozenset(python), texts=frozenset(texts), others=frozenset(others), read=read)


def _same_tables(base: bytes | None, head: bytes | None) -> bool:
    try:
        old, new = (tomllib.loads((text or b"").decode()) for text in (base, head))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    for document in (old, new):
        for table, harmless in (("tool", _HARMLESS_TOOLS), ("project", _HARMLESS_DATA)):
            for name in harmless:
                document.get(table, {}).pop(name, None)
        document.pop("dependency-groups", None)
        if base is not None and not document.get("tool", True):
            # A first table of a harmless tool makes this one.
            del document["tool"]
    return old == new


def differs_in_bodies(changed: Changed) -> bool:
    """Return whether only functions and imports differ, so that most benchmarks may be unaffected."""
    pairs = [[changed.units(side, file) for side in SIDES] for file in changed.python]
    return not changed.others and all(base and head and _fixed(base) == _fixed(head) for base, head in pairs)


def _fixed(units: Units) -> Counter[Item]:
    return Counter(one for one in units.items if not one.free)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Why each affected benchmark may differ, and by which hash the code of the others is the same.

    Others ``skipped`` themselves on both sides, for a reason.
    ``everything`` is why all are affected, None where that depends on the benchmark. ``loaded`` are own files
    of which anything ran, and the timed calls of ``direct`` benchmarks run functions that differ.
    ``first_only`` has the benchmarks whose later calls run less than half of what the first one runs,
    ``cached`` those where they run nothing of it on head, and something on base, and
    ``notices`` those that run code of the change which asks whether it is measured.
    """

    affected: Mapping[str, str]
    same: Mapping[str, str]
    skipped: Mapping[str, str] = field(default_factory=dict)
    functions: tuple[ChangedFunction, ...] = ()
    everything: str | None = None
    loaded: frozenset[str] = frozenset()
    direct: frozenset[str] = frozenset()
    first_only: Mapping[str, str] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()
    notices: Mapping[str, str] = field(default_factory=dict)


def decide(nodes: Sequence[str], traces: Mapping[Side, SideTrace], changed: Changed) -> Decision:
    """Decide which benchmarks a change can affect, and how the functions that it changed are run."""
    deciding = _Deciding(traces=traces, changed=changed)
    why = deciding.why_all()
    found = {node: why or deciding.why(node) for node in nodes}
    affected = {node: why for node, why in found.items() if why is not None}
    skipped = {node: why for node, why in traces["head"].skipped.items() if node not in affected}
    return Decision(
        affected=affected,
        same={node: deciding.digest(node) for node in nodes if node not in affected | skipped},
        skipped=skipped,
        functions=tuple(deciding.functions(nodes)),
        everything=why,
        loaded=deciding.imported,
        direct=frozenset(node for node in nodes if deciding.runs_directly(node)),
        first_only={node: why for node in nodes if (why := deciding.first_only(node))},
        cached=frozenset(node for node in nodes if deciding.is_cached(node)),
        notices={node: why for node in nodes if (why := deciding.notices(node))},
    )


def notices(changed: Changed) -> str | None:
    """Return where code of a change asks whether it is measured, if anything but tests does, run or not."""
    found = _Deciding(traces={}, changed=changed).noticed
    return first_notice(one for one in found if _OF_TESTS.isdisjoint(PurePosixPath(one.file).parts[:-1]))


@dataclass(frozen=True, kw_only=True)
class _Name:
    """A name of a file ("" for any) that only one side binds, or binds otherwise.

    That of a ``function`` does nothing where it is only called: what it runs is known.
    """

    file: str
    name: str
    function: bool


@dataclass(kw_only=True)
class _Differences:
    """What differs between the files that were loaded.

    Attributes:
        modules: why what runs at import differs, by file.
        functions: the names of functions that differ, by file.
        headers: those of which also the header does.
        names: what else is bound otherwise.
        files: the words in the names of files that nothing opened.
        python: whether any file that was loaded differs.
        docs: whether a docstring does.
        free: the statements by which names come and go, which mention nothing that matters.
    """

    modules: dict[str, str] = field(default_factory=dict)
    functions: dict[str, frozenset[str]] = field(default_factory=dict)
    headers: bool = False
    names: set[_Name] = field(default_factory=set)
    files: set[frozenset[str]] = field(default_factory=set)
    python: bool = False
    docs: bool = False
    free: set[Item] = field(default_factory=set)

    def reasons(self, file: str, mentions: Mentions) -> Iterator[str]:
        """Yield the differences that code in a file depends on."""
        every = mentions.every
        if self.names and mentions.looks_around:
            yield "looks at all names"
        for one in self.names:
            known = mentions.words if one.file not in ("", file) else every
            if one.name in known and not (one.function and one.name in mentions.called):
                yield f"mentions {one.name}, which differs"
        for words in self.files:
            if words <= every or ("__file__" in every and words & every & _SUFFIXES):
                yield f"mentions the file {'.'.join(sorted(words))}, which differs"
        used = every - mentions.imported
        if self.headers and used & READS_HEADERS:
            yield "reads the headers of functions"
        if self.python and used & READS_CODE:
            yield "reads code or its lines"
        if self.docs and used & READS_DOCS:
            yield "reads docstrings"


@dataclass(kw_only=True)
class _Deciding:
    """The change seen through the traces of both sides."""

    traces: Mapping[Side, SideTrace]
    changed: Changed
    _found: _Differences = field(default_factory=_Differences)
    _known: dict[Code, str | None] = field(default_factory=dict)
    _modules: dict[tuple[Side, str], Mentions] = field(default_factory=dict)

    @cached_property
    def imported(self) -> frozenset[str]:
        """The own files of which anything ran on either side."""
        return frozenset(
            file
            for trace in self.traces.values()
            for ran in (trace.imported, *trace.ran.values())
            for file, _, _ in ran.codes
            if file
        )

    def why_all(self) -> str | None:
        """Return why every benchmark may be affected, None where that depends on the benchmark."""
        return next(self._reasons(), None)

    def _reasons(self) -> Iterator[str]:
        base, head = (self.traces[side].imported for side in SIDES)
        yield from (f"at import {why}" for why in (*base.unknown, *head.unknown))
        yield from (f"{file} differs" for file in sorted(self.changed.others))
        if self.traces["base"].inferred:
            alone = (one for one in sorted(self.changed.python) if self.changed.read("head", one) is None)
            yield from (f"base alone has {one}, and was not traced" for one in alone)
        early = self.traces["base"].early | self.traces["head"].early
        for file in sorted(early & self.changed.python):
            yield f"{file} was loaded before tracing began"
        yield from (f"{one} differs" for one in self.changed.python if PurePosixPath(one).name in _STARTUP)
        self._compare_files()
        yield from filter(None, (self._why_ran(base, head, ", which runs at import"),))

    def why(self, node: str) -> str | None:
        """Return why a benchmark may be affected, None where it cannot be."""
        if any(node not in self.traces[side].ran for side in SIDES):
            return "it did not pass while it was traced"
        if len({node in self.traces[side].skipped for side in SIDES}) > 1:
            return "it skips itself on one side alone"
        base, head = (self.traces[side].ran[node] for side in SIDES)
        return next(iter((*base.unknown, *head.unknown)), None) or self._why_ran(base, head, "")

    def _why_ran(self, base: Ran, head: Ran, at: str) -> str | None:
        """Return why what ran may differ."""
        why = next(self._reasons_of(base, head), None)
        return f"{why}{at}" if why else None

    def _reasons_of(self, base: Ran, head: Ran) -> Iterator[str]:
        yield from (f"it reads {one}" for one in self._opened(base.opened | head.opened))
        for file, name in sorted(base.inspected | head.inspected):
            if name.partition(".<locals>")[0] in self._found.functions.get(file, ()):
                yield f"the code of {name} is read, which differs ({file})"
        looks = base.looks | head.looks
        words = Mentions(words=looks, looks_around=looks_around(looks))
        yield from (f"a library that it calls {why}" for why in self._found.reasons("", words))
        generated = {**base.generated, **head.generated}
        yield from filter(None, (self._why_code(one, generated) for one in sorted(base.codes | head.codes)))
        for side, own, others in (("base", base.codes, head.codes), ("head", head.codes, base.codes)):
            names = {code[:2] for code in others}
            for code in sorted(own - others):
                if not (code[:2] in names and self._has_other_docs(code)):
                    yield f"{side} alone runs {f'{code[1]} ({code[0]})' if code[0] else 'generated code'}"
        if base.modules != head.modules:
            yield "the sides import other modules, or in another order"
        modules = (*head.modules, *self.traces["head"].imported.modules)
        readers = _READERS_OF_DOCS.intersection(name.partition(".")[0] for name in modules)
        if self._found.docs and readers:
            yield f"docstrings differ, and {min(readers)} reads them"

    def _has_other_docs(self, code: Code) -> bool:
        """Return whether code differs in its docstring, which moves its constants; the rest was compared."""
        base, head = (self.changed.units(side, code[0]) or Units() for side in SIDES)
        unit = head.unit_of(code[1])
        return unit != MODULE and base.docs.get(unit) != head.docs.get(unit)

    def _opened(self, opened: Collection[str]) -> Iterator[str]:
        """Yield the changed files that were opened, and those in a folder that was listed."""
        for file in sorted(self.changed.texts | self.changed.python):
            if file in opened or str(PurePosixPath(file).parent) in opened:
                yield file

    def _why_code(self, code: Code, generated: Mapping[str, frozenset[str]]) -> str | None:
        """Return why code that ran may do something else on the other side."""
        file, qualified, digest = code
        if not file:
            words = generated.get(digest, frozenset())
            mentions = Mentions(
                words=words - READS_HEADERS - READS_CODE - READS_DOCS, looks_around=looks_around(words)
            )
            why = next(self._found.reasons(file, mentions), None)
            return f"generated code {why}" if why else None
        if not digest and file in self._found.modules:
            return self._found.modules[file]
        if code not in self._known:
            try:
                self._known[code] = self._why_text(file, qualified)
            except RecursionError:
                self._known[code] = f"{file} cannot be read"
        return self._known[code]

    def _why_text(self, file: str, qualified: str) -> str | None:
        sides: tuple[Side, ...] = SIDES if file in self.changed.python else ("head",)
        for side in sides:
            units = self.changed.units(side, file)
            if units is None:
                return f"{file} cannot be read"
            unit = units.unit_of(qualified)
            if unit in self._found.functions.get(file, ()):
                return f"{unit} differs ({file})"
            found = [one.mentions for one in units.functions.get(unit, ())]
            for mentions in found or [self._mentions_of_module(side, file, units)]:
                if why := next(self._found.reasons(file, mentions), None):
                    return f"{unit} ({file}) {why}"
        return None

    def _mentions_of_module(self, side: Side, file: str, units: Units) -> Mentions:
        """Return what runs at import mentions, found once for all class bodies of a file."""
        if (side, file) not in self._modules:
            self._modules[side, file] = units.mentions(frozenset(self._found.free))
        return self._modules[side, file]

    def _compare_files(self) -> None:
        """Find what differs."""
        found = self._found
        for file in sorted(self.changed.python):
            path = PurePosixPath(file)
            there = [self.changed.read(side, file) is not None for side in SIDES]
            if not all(there):
                found.names.add(_Name(file="", name=_module(file), function=False))
                found.files.add(_file_words(path))
            found.python = True
            if file in self.imported:
                base, head = (self.changed.units(side, file) for side in SIDES)
                if base is None or head is None:
                    found.modules[file] = f"{file} cannot be read"
                else:
                    self._compare(file, base, head)
        found.files |= {_file_words(PurePosixPath(one)) for one in self.changed.texts}
        if found.names and any(units.has_stars for units in self._loaded("head").values()):
            # What one file binds may be a name of another one.
            found.names = {replace(one, file="") for one in found.names}

    def _compare(self, file: str, base: Units, head: Units) -> None:
        old, new = Counter(base.items), Counter(head.items)
        gone = [one for one in base.items if not new[one]]
        come = [one for one in head.items if not old[one]]
        there = {(one.owner, one.name) for one in head.items}
        for one in (*gone, *come):
            free = one.free and (old[one], new[one]) in {(1, 0), (0, 1)}
            # Only a trace of base shows whether it runs what head lacks, which C code may look up by name.
            known = (one.owner, one.name) in there or not self.traces["base"].inferred
            if not (free and known) or PurePosixPath(file).name == "conftest.py" or self._is_watched(one):
                where = f"{file}:{one.line}"
                found = f"{one.kind} {one.name}" if one.name else "a module-level statement"
                self._found.modules.setdefault(file, f"{found} differs ({where})")
            self._found.free.add(one)
            self._found.names |= set(_names_of(file, one))
        if [one for one in base.items if one not in gone] != [one for one in head.items if one not in come]:
            self._found.modules.setdefault(file, f"{file} is in another order")
        both = {(one.owner, one.name) for one in gone} & {(one.owner, one.name) for one in come}
        self._found.headers |= any((one.owner, one.name) in both for one in come if one.kind == "function")
        self._found.functions[file] = differing_functions(base, head)
        common = base.docs.keys() & head.docs.keys()
        self._found.docs |= any(base.docs[name] != head.docs[name] for name in common)

    def _is_watched(self, one: Item) -> bool:
        """Return whether somebody may look at the members of a class, one of which comes or goes."""
        return bool(one.owner) and (one.owner.rpartition(".")[2] in self._watched or self._has_protocols)

    def _loaded(self, side: Side) -> Mapping[str, Units]:
        units = {file: self.changed.units(side, file) for file in self.imported}
        return {file: one for file, one in units.items() if one is not None}

    @cached_property
    def _watched(self) -> frozenset[str]:
        """The classes whose members somebody may look at on either side."""
        return frozenset[str]().union(*(watched_classes(self._loaded(side)) for side in SIDES))

    @cached_property
    def _has_protocols(self) -> bool:
        """Whether classes may be searched for the methods of a protocol."""
        found = (units.mentions(frozenset()) for side in SIDES for units in self._loaded(side).values())
        return any({"runtime_checkable", "__subclasshook__"} & one.every for one in found)

    def runs_directly(self, node: str) -> bool:
        """Return whether the timed calls of a benchmark run a function that differs."""
        ran = self.traces["head"].ran.get(node, Ran()).parts.get("later", frozenset())
        return any(
            name.partition(".<locals>")[0] in self._found.functions.get(file, ()) for file, name, _ in ran
        )

    def first_only(self, node: str) -> str | None:
        """Return how few functions of the first call a later one runs on head, None for half or more."""
        first, later = self._of_calls("head", node)
        common = len(first & later)
        few = f"a later one runs {common} of its {counted(len(first), 'function')}"
        return few if 2 * common < len(first) else None

    def is_cached(self, node: str) -> bool:
        """Return whether later calls run nothing of what the first one runs, on head alone."""
        (of_base, base), (of_head, head) = (self._of_calls(side, node) for side in SIDES)
        return bool(of_base & base) and bool(of_head) and not of_head & head

    def _of_calls(self, side: Side, node: str) -> list[set[Code]]:
        """Return the functions that the first call of a benchmark runs, and those of later ones."""
        parts = self.traces[side].ran.get(node, Ran()).parts
        return [
            {code for code in parts.get(part, ()) if code[2] and not _is_test(code[0])}
            for part in ("first", "later")
        ]

    @cached_property
    def noticed(self) -> tuple[Notice, ...]:
        """The places in the change that ask whether it is measured."""
        pairs = (
            (file, self.changed.units("base", file), self.changed.units("head", file))
            for file in sorted(self.changed.python)
            if not _is_test(file) and may_notice(self.changed.read("head", file))
        )
        return tuple(one for file, old, new in pairs if old and new for one in notices_of(file, old, new))

    def notices(self, node: str) -> str | None:
        """Return where what a benchmark runs on head asks whether it is measured, None where it does not."""
        if not self.noticed or node not in self.traces["head"].ran:
            return first_notice(self.noticed)
        codes = self.traces["head"].imported.codes | self.traces["head"].ran[node].codes
        ran = {
            (file, (self.changed.units("head", file) or Units()).unit_of(name))
            for file, name, _ in codes
            if file
        }
        return first_notice(one for one in self.noticed if (one.file, one.unit) in ran)

    def digest(self, node: str) -> str:
        """Return a hash of what a benchmark ran."""
        trace = self.traces["head"]
        codes = sorted(trace.imported.codes | trace.ran[node].codes)
        return hashlib.sha256(json.dumps(codes).encode()).hexdigest()[:16]

    def functions(self, nodes: Sequence[str]) -> Iterator[ChangedFunction]:
        """Yield the functions that head changed or added, and where they run."""
        head = self.traces["head"]
        rans = [head.ran.get(node, Ran()) for node in nodes]
        # What was not seen in an incomplete trace may have run.
        is_complete = not any(node not in head.ran or head.ran[node].unknown for node in nodes)
        none = frozenset[Code]()
        parts: tuple[tuple[Runs, frozenset[Code]], ...] = (
            ("timed", none.union(*(ran.parts.get("later", none) for ran in rans))),
            ("first call", none.union(*(ran.parts.get("first", none) for ran in rans))),
            ("set-up", none.union(*(ran.parts.get("setup", none) for ran in rans))),
            ("import", head.imported.codes),
        )
        for file in sorted(self.changed.python):
            old, new = self.changed.units("base", file), self.changed.units("head", file)
            if old is None or new is None or _is_test(file):
                continue
            differing = differing_functions(old, new)
            for name, found in new.functions.items():
                if name not in differing:
                    continue
                ran = (
                    where
                    for where, codes in parts
                    if any(place == file and new.unit_of(code) == name for place, code, _ in codes)
                )
                runs: Runs = next(ran, "never")
                known = is_complete or runs == "timed"
                yield ChangedFunction(name=name, file=file, line=found[0].line, runs=runs, known=known)


def _module(file: str) -> str:
    path = PurePosixPath(file)
    return path.parent.name if path.name == "__init__.py" else path.stem


def _names_of(file: str, one: Item) -> Iterator[_Name]:
    """Yield the names by which others know what a statement binds."""
    if not one.name:
        return
    function = one.kind == "function"
    is_import = one.kind in ("import", "alias")
    place = file if is_import and not one.owner else ""
    yield _Name(file=place, name=one.name, function=function)
    if one.owner and one.name.startswith("__"):
        mangled = f"_{one.owner.rpartition('.')[2].lstrip('_')}{one.name}"
        yield _Name(file="", name=mangled, function=function)


def _file_words(path: PurePosixPath) -> frozenset[str]:
    return frozenset(words_of(path.name))


def _is_test(file: str) -> bool:
    return PurePosixPath(file).name.startswith(("test_", "bench_", "conftest"))


# Modules and variables that only a measured process has, in whole words; a hook of pytest is an attribute.
_WORD = re.compile(r"\.?[\w*-]*(pytest|perfkit)[\w.*-]*|CI|GITHUB_ACTIONS|\.git", re.IGNORECASE)
_MODULES = frozenset({"pytest", "_pytest", "pytest_benchmark", "perfkit"})
# What tests share asks for pytest as they do.
_OF_TESTS = frozenset({"test", "tests"})
# By these code finds out from where it is called.
_STACK = frozenset({
    "_getframe", "_current_frames", "currentframe", "extract_stack", "walk_stack", "format_stack",
    "print_stack", "stack",
})  # fmt: skip
_PROCESS = _STACK - {"stack"} | {"gettrace", "getprofile", "getppid", "isatty", "ttyname"}
_DOTTED = frozenset({"gc.isenabled", "inspect.stack", "sys.monitoring", "sys.stdin"})
_MAY_ASK = re.compile(
    rf"pytest|perfkit|\bCI\b|GITHUB_ACTIONS|\.git\b|isenabled|monitoring|stdin|{'|'.join(_STACK | _PROCESS)}",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A unit of head's code (a function, or MODULE) that asks for something, and the words for that."""

    file: str
    unit: str
    text: str


def may_notice(text: bytes | None) -> bool:
    """Return whether a file may ask whether it is measured, before it is parsed."""
    return text is not None and _MAY_ASK.search(text.decode(errors="replace")) is not None


def notices_of(file: str, base: Units, head: Units) -> Iterator[Notice]:
    """Yield where head's version of a file asks whether it is measured, by what base's does not mention."""
    every: list[Any] = [*(one for found in base.functions.values() for one in found), *base.items]
    known = {word for one in every for word, _ in _asked(one.node)}
    # Code that looks at the stack may do so in another way.
    looks = any(word.rpartition(".")[2] in _STACK for word in known)
    differing, old = differing_functions(base, head), Counter(base.items)
    units: list[tuple[str, ast.AST]] = [
        *((name, one.node) for name in differing for one in head.functions.get(name, ())),
        *((MODULE, one.node) for one in head.items if not old[one] and one.kind != "function"),
    ]
    for unit, node in units:
        for word, line in _asked(node):
            if word not in known and not (looks and word.rpartition(".")[2] in _STACK):
                yield Notice(file=file, unit=unit, text=f"{file}:{line} asks for {word}")


def first_notice(notices: Iterable[Notice]) -> str | None:
    """Return the words of the first of some notices, and how many others there are."""
    texts = [*dict.fromkeys(one.text for one in notices)]
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"{texts[0]}{more}" if texts else None


def _asked(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the words by which code may ask whether it is measured, each with its line."""
    for one in ast.walk(node):
        line = getattr(one, "lineno", 0)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and _WORD.fullmatch(one.value):
            yield one.value, line
        elif isinstance(one, ast.Attribute):
            dotted = f"{one.value.id if isinstance(one.value, ast.Name) else ''}.{one.attr}"
            if one.attr in _PROCESS or dotted in _DOTTED:
                yield dotted.lstrip("."), line
        elif isinstance(one, ast.Name) and (one.id in _PROCESS or one.id in _MODULES):
            yield one.id, line
        elif isinstance(one, ast.alias | ast.ImportFrom):
            name = (one.name if isinstance(one, ast.alias) else one.module) or ""
            if name in _PROCESS or name.partition(".")[0] in _MODULES:
                yield name, line
