"""Decides which benchmarks a change can affect, from what they ran on both sides and what differs.

What is not known counts as affected.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import PurePosixPath

from perfkit.gating.code_units import (
    MODULE,
    READS_CODE,
    READS_DOCS,
    READS_HEADERS,
    Class,
    Mentions,
    Units,
    is_plain,
    units_of,
)
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import ChangedFunction, Runs
from perfkit.runner.lockstep.tracing import Code, Ran, SideTrace

_TEXT_SUFFIXES = frozenset({".md", ".rst", ".svg", ".pyi", ".typed", ".lock"})
_TEXT_NAMES = re.compile(
    r"(?i)(licen[cs]e|copying|notice|authors|contributors|codeowners|changelog|changes|news|citation\.cff"
    r"|readme|makefile|\.gitignore|\.gitattributes|\.gitmodules|\.mailmap|\.editorconfig|\.dockerignore"
    r"|\.pre-commit-config\.yaml|\.pre-commit-hooks\.yaml|\.readthedocs\.ya?ml|\.coveragerc|\.flake8|\.pylintrc"
    r"|mypy\.ini|\.?ruff\.toml|renovate\.json|dependabot\.yml|poetry\.lock|pdm\.lock|pipfile\.lock"
    r"|package-lock\.json|dockerfile|docker-compose\.ya?ml|mkdocs\.ya?ml|noxfile\.py|\.gitlab-ci\.yml|\.travis\.yml|justfile|manifest\.in"
    r"|[\w-]*(requirements|constraints)[\w-]*\.(txt|in)|environment[\w-]*\.ya?ml)(\.(md|rst|txt))?$"
)
_TEXT_FOLDERS = frozenset({".github", ".circleci", ".gitlab", ".vscode", ".idea"})
# Tables of pyproject.toml that change nothing that runs.
_HARMLESS_TOOLS = frozenset({
    "bandit", "black", "bumpversion", "check-manifest", "codespell", "commitizen", "coverage", "cspell",
    "flake8", "interrogate", "isort", "mypy", "pydocstyle", "pylint", "pyright", "ruff", "semantic_release",
    "towncrier", "tox", "ty", "typos", "vulture", "yapf",
})  # fmt: skip
_HARMLESS_DATA = frozenset({
    "authors", "classifiers", "dependencies", "description", "keywords", "license", "license-files",
    "maintainers", "optional-dependencies", "readme", "requires-python", "urls", "version",
})  # fmt: skip
# Python imports these by itself.
_SUFFIXES = frozenset({"md", "rst", "svg", "txt", "py", "pyi", "toml", "cfg", "ini", "yml", "yaml", "json"})
_WORD = re.compile(r"[^\W\d]\w*")
_READERS_OF_DOCS = frozenset({"click", "docopt", "fire", "ply", "sly", "typer"})
_STARTUP = frozenset({"sitecustomize.py", "usercustomize.py"})


@dataclass(frozen=True, kw_only=True)
class Changed:
    """The files that differ, relative to the top, by kind, and a reader of any file of a side."""

    python: frozenset[str]
    texts: frozenset[str]
    others: frozenset[str]
    read: Callable[[Side, str], bytes | None]


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
    return old == new


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Why each affected benchmark may differ, and by which hash the code of the others is the same.

    ``everything`` is why all are affected, None where that depends on the benchmark. ``loaded`` are own files
    of which anything ran, and the timed calls of ``direct`` benchmarks run functions that differ.
    """

    affected: Mapping[str, str]
    same: Mapping[str, str]
    functions: tuple[ChangedFunction, ...] = ()
    everything: str | None = None
    loaded: frozenset[str] = frozenset()
    direct: frozenset[str] = frozenset()


def decide(nodes: Sequence[str], traces: Mapping[Side, SideTrace], changed: Changed) -> Decision:
    """Decide which benchmarks a change can affect, and how the functions that it changed are run."""
    deciding = _Deciding(traces=traces, changed=changed)
    why = deciding.why_all()
    found = {node: why or deciding.why(node) for node in nodes}
    affected = {node: why for node, why in found.items() if why is not None}
    return Decision(
        affected=affected,
        same={node: deciding.digest(node) for node in nodes if node not in affected},
        functions=tuple(deciding.functions(nodes)),
        everything=why,
        loaded=deciding.imported,
        direct=frozenset(node for node in nodes if deciding.runs_directly(node)),
    )


@dataclass(kw_only=True)
class _Differences:
    """What differs between the files that were loaded.

    Attributes:
        modules: why what runs at import differs, by file.
        functions: the names of functions that differ, by file.
        names: what else has another value, by file ("" for a class attribute) and name: whether that is only
            a function that one side lacks, which does nothing until it is called.
        files: the words in the names of files that came, went or changed, and that nothing opened.
        headers: whether the header of any function differs.
        docs: whether a docstring differs.
    """

    modules: dict[str, str] = field(default_factory=dict)
    functions: dict[str, frozenset[str]] = field(default_factory=dict)
    names: dict[tuple[str, str], bool] = field(default_factory=dict)
    files: set[frozenset[str]] = field(default_factory=set)
    headers: bool = False
    docs: bool = False

    def add(self, file: str, name: str, *, is_function: bool) -> None:
        """Add a name of a file, "" for a class attribute or a module, which other files mention as well."""
        self.names[file, name] = is_function and self.names.get((file, name), True)

    def why(self, file: str, mentions: Mentions) -> str | None:
        """Return which of the differences code in a file depends on."""
        return next(self._reasons(file, mentions), None)

    def _reasons(self, file: str, mentions: Mentions) -> Iterator[str]:
        every = mentions.every
        if mentions.looks_around and self.names:
            yield "looks at all names"
        for (place, name), is_function in self.names.items():
            known = mentions.words if place and place != file else every
            if name in known and not (is_function and name in mentions.called):
                yield f"mentions {name}, which differs"
        for words in self.files:
            if words <= every or ("__file__" in every and words & every & _SUFFIXES):
                yield f"mentions the file {'.'.join(sorted(words))}, which differs"
        used = every - mentions.imported
        if self.headers and used & READS_HEADERS:
            yield "reads the headers of functions"
        if any(self.functions.values()) and used & READS_CODE:
            yield "reads the code of functions"
        if self.docs and used & READS_DOCS:
            yield "reads docstrings"


@dataclass(kw_only=True)
class _Deciding:
    """The change seen through the traces of both sides."""

    traces: Mapping[Side, SideTrace]
    changed: Changed
    _units: dict[tuple[Side, str], Units | None] = field(default_factory=dict)
    _found: _Differences = field(default_factory=_Differences)
    _known: dict[Code, str | None] = field(default_factory=dict)

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
        early = self.traces["base"].early | self.traces["head"].early
        for file in sorted(early & self.changed.python):
            yield f"{file} was loaded before tracing began"
        yield from (f"{one} differs" for one in self.changed.python if PurePosixPath(one).name in _STARTUP)
        self._compare_files()
        yield from filter(None, (self._why_ran(base, head, " at import"),))

    def why(self, node: str) -> str | None:
        """Return why a benchmark may be affected, None where it cannot be."""
        if any(node not in self.traces[side].ran for side in SIDES):
            return "it did not pass while it was traced"
        base, head = (self.traces[side].ran[node] for side in SIDES)
        return next(iter((*base.unknown, *head.unknown)), None) or self._why_ran(base, head, "")

    def _why_ran(self, base: Ran, head: Ran, at: str) -> str | None:
        """Return why what ran may differ."""
        if opened := self._opened(base.opened | head.opened):
            return f"it reads {opened}{at}"
        codes = {"base": base.codes, "head": head.codes}
        for code in sorted(codes["base"] | codes["head"]):
            why = self._why_code(code, {**base.generated, **head.generated})
            if why is not None:
                return why + (at and ", which runs at import")
        for side, others in (("base", codes["head"]), ("head", codes["base"])):
            names = {code[:2] for code in others}
            for code in sorted(codes[side] - others):
                if not (code[:2] in names and self._has_other_docs(code)):
                    return (
                        f"{side} alone runs {f'{code[1]} ({code[0]})' if code[0] else 'generated code'}{at}"
                    )
        if base.modules != head.modules:
            return f"the sides import other modules, or in another order{at}"
        libraries = {
            name.partition(".")[0] for name in (*head.modules, *self.traces["head"].imported.modules)
        }
        if self._found.docs and (readers := libraries & _READERS_OF_DOCS):
            return f"docstrings differ, and {min(readers)} reads them"
        return None

    def _has_other_docs(self, code: Code) -> bool:
        """Return whether code differs in its docstring, which moves its constants; the rest was compared."""
        base, head = (self._of(side, code[0]) or Units() for side in SIDES)
        unit = head.unit_of(code[1])
        return unit != MODULE and base.docs.get(unit) != head.docs.get(unit)

    def _opened(self, opened: Collection[str]) -> str | None:
        """Return a changed file that was opened, or one in a folder that was listed."""
        for file in sorted(self.changed.texts | self.changed.python):
            if file in opened or str(PurePosixPath(file).parent) in opened:
                return file
        return None

    def _why_code(self, code: Code, generated: Mapping[str, frozenset[str]]) -> str | None:
        """Return why code that ran may do something else on the other side."""
        file, qualified, digest = code
        if not file:
            words = generated.get(digest, frozenset()) - READS_HEADERS - READS_CODE - READS_DOCS
            why = self._found.why(file, Mentions(words=words))
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
            units = self._of(side, file)
            if units is None:
                return f"{file} cannot be read"
            unit = units.unit_of(qualified)
            if unit in self._found.functions.get(file, ()):
                return f"{unit} differs ({file})"
            for mentions in units.mentions_of(unit):
                if why := self._found.why(file, mentions):
                    return f"{unit} ({file}) {why}"
        return None

    def _of(self, side: Side, file: str) -> Units | None:
        """Return the parts of a file on a side; a file that is not there has none."""
        if side == "base" and file not in self.changed.python:
            side = "head"
        key = side, file
        if key not in self._units:
            text = self.changed.read(side, file)
            try:
                found: Units | None = Units() if text is None else units_of(text)
                if found is not None and file in self.changed.python:
                    found.describe()
            except (SyntaxError, ValueError, RecursionError):
                found = None
            self._units[key] = found
        return self._units[key]

    def _compare_files(self) -> None:
        """Find what differs, and the names that are imported from it."""
        for file in sorted(self.changed.python):
            path = PurePosixPath(file)
            there = [self.changed.read(side, file) is not None for side in SIDES]
            if not all(there):
                self._found.add("", _module(file), is_function=False)
                self._found.files.add(_file_words(path))
            if file in self.imported:
                base, head = (self._of(side, file) for side in SIDES)
                if base is None or head is None:
                    self._found.modules[file] = f"{file} cannot be read"
                    continue
                self._compare(file, base, head)
        self._found.files |= {_file_words(PurePosixPath(one)) for one in self.changed.texts}
        self._follow_imports()

    def _compare(self, file: str, base: Units, head: Units) -> None:
        for old, new in zip_longest(base.statements, head.statements):
            if old is None or new is None or old.text != new.text:
                line = (new or old).line
                self._found.modules[file] = f"a statement that runs at import differs ({file}:{line})"
                break
        self._compare_functions(file, base, head)
        for key in base.bindings.keys() | head.bindings.keys():
            if base.bindings.get(key) != head.bindings.get(key):
                owner, name = key
                self._found.add("" if owner else file, name, is_function=False)
        self._compare_classes(file, base, head)
        common = base.docs.keys() & head.docs.keys()
        self._found.docs |= any(base.docs[name] != head.docs[name] for name in common)
        if PurePosixPath(file).name == "conftest.py" and (
            base.functions.keys() != head.functions.keys() or base.bindings != head.bindings
        ):
            self._found.modules.setdefault(file, f"{file} differs")

    def _compare_functions(self, file: str, base: Units, head: Units) -> None:
        differing = set()
        for name in base.functions.keys() | head.functions.keys():
            old, new = base.functions.get(name, []), head.functions.get(name, [])
            if [one.text for one in old] == [one.text for one in new]:
                continue
            differing.add(name)
            owner, _, short = name.rpartition(".")
            self._found.headers |= bool(old and new) and [one.header for one in old] != [
                one.header for one in new
            ]
            if not (old and new):
                self._found.add("" if owner else file, short, is_function=True)
                if owner and short in self._in_protocols:
                    self._found.modules.setdefault(file, f"{name} may make its class one of a protocol")
        self._found.functions[file] = frozenset(differing)

    @cached_property
    def _in_protocols(self) -> frozenset[str]:
        """The names of the methods of protocols, for which classes may be searched."""
        return frozenset(
            name.rpartition(".")[2]
            for file in self.imported
            if (units := self._of("head", file)) is not None
            for name in units.functions
            if (owner := units.classes.get(name.rpartition(".")[0])) and "Protocol" in owner.bases
        )

    def _compare_classes(self, file: str, base: Units, head: Units) -> None:
        for name in base.classes.keys() | head.classes.keys():
            old, new = base.classes.get(name), head.classes.get(name)
            if old == new:
                continue
            owner, _, short = name.rpartition(".")
            plain = all(is_plain(short, self._classes(side)) for side in SIDES)
            if (old and new and old.header != new.header) or not plain:
                line = (new or old or Class(header="", bases=(), line=0, plain=False)).line
                self._found.modules.setdefault(file, f"the class {name} differs ({file}:{line})")
            elif not (old and new):
                self._found.add("" if owner else file, short, is_function=False)

    def _classes(self, side: Side) -> Mapping[str, Sequence[Class]]:
        """Return the classes of all files that were loaded, by their last names."""
        if side not in self._by_name:
            found: dict[str, list[Class]] = {}
            for file in self.imported:
                for name, one in (self._of(side, file) or Units()).classes.items():
                    found.setdefault(name.rpartition(".")[2], []).append(one)
            self._by_name[side] = found
        return self._by_name[side]

    _by_name: dict[Side, Mapping[str, Sequence[Class]]] = field(default_factory=dict)

    def _follow_imports(self) -> None:
        """Add the names under which other files import what differs."""
        known = -1
        while known != len(self._found.names) and self._found.names:
            known = len(self._found.names)
            for file in self.imported:
                for side in SIDES if file in self.changed.python else SIDES[1:]:
                    self._follow(file, self._of(side, file) or Units())

    def _follow(self, file: str, units: Units) -> None:
        names = self._found.names
        for one in units.imports:
            for (place, name), is_function in list(names.items()):
                from_there = not place or not one.module or _module(place) == one.module
                if name == one.name and place != file and from_there:
                    self._found.add(file, one.bound, is_function=is_function)
        for star in units.stars:
            for (place, name), is_function in list(names.items()):
                if place and place != file and _module(place) == star:
                    self._found.add(file, name, is_function=is_function)
                    if name == "__all__":
                        self._found.modules.setdefault(file, f"{file} imports all names of {place}")

    def runs_directly(self, node: str) -> bool:
        """Return whether the timed calls of a benchmark run a function that differs."""
        ran = self.traces["head"].ran.get(node, Ran()).parts.get("later", frozenset())
        return any(
            name.partition(".<locals>")[0] in self._found.functions.get(file, ()) for file, name, _ in ran
        )

    def digest(self, node: str) -> str:
        """Return a hash of what a benchmark ran."""
        trace = self.traces["head"]
        codes = sorted(trace.imported.codes | trace.ran[node].codes)
        return hashlib.sha256(json.dumps(codes).encode()).hexdigest()[:16]

    def functions(self, nodes: Sequence[str]) -> Iterator[ChangedFunction]:
        """Yield the functions that head changed or added, and where they run."""
        head = self.traces["head"]
        rans = [head.ran.get(node, Ran()) for node in nodes]
        none = frozenset[Code]()
        parts: tuple[tuple[Runs, frozenset[Code]], ...] = (
            ("timed", none.union(*(ran.parts.get("later", none) for ran in rans))),
            ("first call", none.union(*(ran.parts.get("first", none) for ran in rans))),
            ("set-up", none.union(*(ran.parts.get("setup", none) for ran in rans))),
            ("import", head.imported.codes),
        )
        for file in sorted(self.changed.python):
            old, new = self._of("base", file), self._of("head", file)
            if old is None or new is None or _is_test(file):
                continue
            for name, found in new.functions.items():
                if [one.text for one in found] == [one.text for one in old.functions.get(name, ())]:
                    continue
                ran = (
                    where
                    for where, codes in parts
                    if any(place == file and new.unit_of(code) == name for place, code, _ in codes)
                )
                yield ChangedFunction(name=name, file=file, line=found[0].line, runs=next(ran, "never"))


def _module(file: str) -> str:
    path = PurePosixPath(file)
    return path.parent.name if path.name == "__init__.py" else path.stem


def _file_words(path: PurePosixPath) -> frozenset[str]:
    return frozenset(_WORD.findall(path.name))


def _is_test(file: str) -> bool:
    return PurePosixPath(file).name.startswith(("test_", "bench_", "conftest"))
