"""Decides which benchmarks a change can affect, from what they ran on both sides and what differs.

What is not known counts as affected.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from perfkit.gating.code_units import MODULE, Function, Mentions, Statement, Units, units_of
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import ChangedFunction, Runs
from perfkit.runner.lockstep.tracing import Code, Ran, SideTrace

_TEXT_SUFFIXES = frozenset({".md", ".rst", ".svg", ".pyi", ".typed", ".lock"})
_TEXT_NAMES = re.compile(
    r"(?i)(licen[cs]e|copying|notice|authors|contributors|codeowners|changelog|changes|news|citation\.cff"
    r"|readme|makefile|\.gitignore|\.gitattributes|\.gitmodules|\.mailmap|\.editorconfig|\.dockerignore"
    r"|\.pre-commit-config\.yaml|\.pre-commit-hooks\.yaml|\.readthedocs\.ya?ml|\.coveragerc|\.flake8|\.pylintrc"
    r"|mypy\.ini|\.?ruff\.toml|renovate\.json|dependabot\.yml|poetry\.lock|pdm\.lock|pipfile\.lock"
    r"|package-lock\.json|\.gitlab-ci\.yml|\.travis\.yml|justfile|manifest\.in"
    r"|[\w-]*(requirements|constraints)[\w-]*\.(txt|in)|environment[\w-]*\.ya?ml)(\.(md|rst|txt))?$"
)
_TEXT_FOLDERS = frozenset({".github", ".circleci", ".gitlab", ".vscode", ".idea"})
# Tables of pyproject.toml that change how code is built, found or measured.
_TABLES = (
    ("build-system",), ("project", "entry-points"), ("project", "scripts"), ("project", "dependencies"),
    ("project", "dynamic"), ("tool", "pytest"), ("tool", "perfkit"), ("tool", "setuptools"),
    ("tool", "hatch"), ("tool", "poetry"), ("tool", "pdm"), ("tool", "flit"), ("tool", "cibuildwheel"),
    ("tool", "scikit-build"), ("tool", "meson-python"), ("tool", "maturin"),
)  # fmt: skip
# Python imports these by itself.
_STARTUP = frozenset({"sitecustomize.py", "usercustomize.py"})
_WILD_WORDS = re.compile(
    rb"__dict__|__getattribute__|__globals__|__import__|__subclasses__|\b(dir|eval|exec|getmembers|getmodule|"
    rb"globals|locals|vars|import_module|find_spec|walk_packages|iter_modules)\b|import \*"
)
Texts = Mapping[Side, Mapping[str, bytes]]


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
        if path.suffix == ".py":
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
    return all(_table(old, path) == _table(new, path) for path in _TABLES)


def _table(document: Mapping[str, object], path: Sequence[str]) -> object:
    found: object = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Why each affected benchmark may differ, and by which hash the code of the others is the same.

    ``everything`` is why all are affected, None where that depends on the benchmark. ``loaded`` are own files
    of which anything ran.
    """

    affected: Mapping[str, str]
    same: Mapping[str, str]
    functions: tuple[ChangedFunction, ...] = ()
    everything: str | None = None
    loaded: frozenset[str] = frozenset()


def decide(nodes: Sequence[str], traces: Mapping[Side, SideTrace], changed: Changed) -> Decision:
    """Decide which benchmarks a change can affect, and how the functions that it changed are run."""
    deciding = _Deciding(traces=traces, changed=changed)
    why = deciding.why_all()
    functions = tuple(deciding.functions(nodes))
    if why is not None:
        affected = dict.fromkeys(nodes, why)
        return Decision(
            affected=affected, same={}, functions=functions, everything=why, loaded=deciding.imported
        )
    found = {node: deciding.why(node) for node in nodes}
    affected = {node: why for node, why in found.items() if why is not None}
    same = {node: deciding.digest(node) for node in nodes if node not in affected}
    return Decision(affected=affected, same=same, functions=functions, loaded=deciding.imported)


@dataclass(kw_only=True)
class _Deciding:
    """The change seen through the traces of both sides.

    ``_names`` are names whose value may differ; ``_tainted`` are those of functions that differ and were run
    by any benchmark, or that a decorator may have wrapped; ``_classes`` are classes that differ, and
    ``_modules`` those whose names differ.
    """

    traces: Mapping[Side, SideTrace]
    changed: Changed
    _units: dict[tuple[Side, str], Units | None] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _tainted: set[str] = field(default_factory=set)
    _classes: set[tuple[str, str]] = field(default_factory=set)
    _modules: set[str] = field(default_factory=set)
    _differing: dict[str, frozenset[str]] = field(default_factory=dict)
    _in_modules: set[str] = field(default_factory=set)
    _with_docs: bool = False

    @property
    def imported(self) -> frozenset[str]:
        """The own files of which anything ran on either side."""
        return frozenset(file for side in SIDES for file, _ in self._every_code(side) if file)

    def why_all(self) -> str | None:
        """Return why every benchmark may be affected, None where that depends on the benchmark."""
        return next(self._reasons(), None)

    def _reasons(self) -> Iterator[str]:
        base, head = (self.traces[side] for side in SIDES)
        yield from (f"at import {why}" for why in (*base.unknown, *head.unknown))
        yield from (f"{file} differs" for file in sorted(self.changed.others))
        for file in sorted((base.early | head.early) & self.changed.python):
            yield f"{file} was loaded before tracing began"
        if opened := self._opened(base.opened | head.opened):
            yield f"{opened} differs and is read at import"
        yield from (f"{one} differs" for one in self.changed.python if PurePosixPath(one).name in _STARTUP)
        yield from (f"one side alone imports {name}" for name in sorted(base.libraries ^ head.libraries))
        imported = self.imported
        self._with_docs = any(b"__doc__" in (self.changed.read("head", one) or b"") for one in imported)
        yield from filter(None, (self._why_statements(imported),))
        yield from filter(None, (self._why_imported(),))

    def _opened(self, opened: Iterable[str]) -> str | None:
        """Return a changed file that was opened, or whose folder was listed while it came or went."""
        wanted = set(opened)
        for file in sorted(self.changed.texts | self.changed.python):
            folder = str(PurePosixPath(file).parent)
            both = all(self.changed.read(side, file) is not None for side in SIDES)
            if file in wanted or (folder in wanted and not both):
                return file
        return None

    def _why_imported(self) -> str | None:
        """Return why what ran at import affects all."""
        codes = {side: self.traces[side].imported for side in SIDES}
        if {code for code in codes["base"] if not code[0]} != {code for code in codes["head"] if not code[0]}:
            return "code generated at import differs"
        every = {side: self._every_code(side) for side in SIDES}
        for side, other in zip(SIDES, reversed(SIDES), strict=True):
            for file, name in sorted(codes[side] - every[other]):
                units = self._of(side, file)
                if units is None or (name != MODULE and not self._is_body(side, file, name)):
                    return f"{side} alone runs {name} ({file}) at import"
                if not all(one.pure for one in units.statements) and file not in self.changed.python:
                    return f"{side} alone imports {file}"
        return self._why_codes(codes["base"] | codes["head"], at=" at import", in_module=False)

    def _every_code(self, side: Side) -> frozenset[Code]:
        trace = self.traces[side]
        return trace.imported.union(*(ran.codes for ran in trace.ran.values()))

    def _why_statements(self, imported: frozenset[str]) -> str | None:
        """Find the names whose value may differ, and return why statements affect all, if they do."""
        for file in sorted(self.changed.python):
            if file not in imported:
                if any(self.changed.read(side, file) is None for side in SIDES):
                    path = PurePosixPath(file)
                    self._names.add(path.parent.name if path.name == "__init__.py" else path.stem)
                continue
            why = self._why_file(file)
            if why is not None:
                return why
        self._taint()
        return self._close(imported)

    def _why_file(self, file: str) -> str | None:
        old, new = self._of("base", file), self._of("head", file)
        if old is None or new is None:
            return f"{file} cannot be read"
        differing = {
            name
            for name in old.functions.keys() | new.functions.keys()
            if [one.text for one in old.functions.get(name, ())]
            != [one.text for one in new.functions.get(name, ())]
        }
        self._differing[file] = frozenset(differing)
        before, after = (Counter((one.owner, one.text) for one in units.statements) for units in (old, new))
        ones = [
            *(one for one in old.statements if before[one.owner, one.text] > after[one.owner, one.text]),
            *(one for one in new.statements if after[one.owner, one.text] > before[one.owner, one.text]),
        ]
        common = set(old.order) & set(new.order)
        if [one for one in old.order if one in common] != [one for one in new.order if one in common]:
            return f"{file} is in another order"
        for one in ones:
            self._in_modules.add(file)
            if not one.pure or PurePosixPath(file).name == "conftest.py":
                return f"a statement that runs at import differs ({file}:{one.line})"
            self._bind(file, one)
        for name in differing:
            why = self._why_function(file, old.functions.get(name, ()), new.functions.get(name, ()))
            if why is not None:
                return why
        return None

    def _bind(self, file: str, one: Statement) -> None:
        self._names |= one.names
        owner = one.kind.removeprefix("class ") if one.kind.startswith("class ") else one.owner
        if owner:
            self._classes.add((file, owner))
            self._names.add(owner.rpartition(".")[2])
        path = PurePosixPath(file)
        self._modules.add(path.parent.name if path.name == "__init__.py" else path.stem)

    def _why_function(self, file: str, old: Sequence[Function], new: Sequence[Function]) -> str | None:
        one = (*new, *old)[0]
        owner, _, short = one.name.rpartition(".")
        if old and new:
            if [each.decorators for each in old] != [each.decorators for each in new]:
                if any(each.decorated for each in (*old, *new)):
                    return f"the decorators of {one.name} differ ({file}:{one.line})"
                self._tainted.add(short)
            if [each.signature for each in old] != [each.signature for each in new]:
                if any(each.impure for each in (*old, *new)):
                    return f"a default of {one.name} differs ({file}:{one.line})"
                self._tainted.add(short)
        else:
            self._names.add(short)
            if any(each.decorated for each in (*old, *new)):
                return f"one side alone decorates {one.name} ({file}:{one.line})"
            if owner and short.startswith("__"):
                self._classes.add((file, owner))
                self._names.add(owner.rpartition(".")[2])
            if not owner and (
                short.startswith(("__", "pytest_")) or PurePosixPath(file).name == "conftest.py"
            ):
                return f"one side alone has {one.name} ({file}:{one.line})"
        if any(each.decorated for each in (*old, *new)):
            self._tainted.add(short)
        return None

    def _taint(self) -> None:
        for trace in self.traces.values():
            for ran in trace.ran.values():
                for file, name in ran.codes:
                    if name in self._differing.get(file, ()):
                        short = name.rpartition(".")[2]
                        if not short.startswith("__"):
                            self._tainted.add(short)

    def _close(self, imported: frozenset[str]) -> str | None:
        """Add the names whose value follows from names that differ, until there are no more."""
        if not self._names and not self._tainted:
            return None
        texts = {
            (side, file): text
            for side in SIDES
            for file in imported
            if (side == "head" or file in self.changed.python)
            and (text := self.changed.read(side, file)) is not None
        }
        while True:
            known = len(self._names), len(self._tainted), len(self._classes)
            for (side, file), text in texts.items():
                if not self._may_mention(text):
                    continue
                units = self._of(side, file)
                if units is None:
                    return f"{file} cannot be read"
                why = self._follow(file, units)
                if why is not None:
                    return why
            if known == (len(self._names), len(self._tainted), len(self._classes)):
                return None

    def _follow(self, file: str, units: Units) -> str | None:
        for one in units.statements:
            if one.kind.removeprefix("import ") in self._modules:
                self._modules |= one.names
            is_header = one.kind.startswith("class ")
            depends = self._depends(one.mentions)
            if not depends and not one.mentions.names & self._tainted:
                continue
            # Where a class has a keyword or a decorator, its making may do anything with what differs.
            if not one.pure and (not is_header or one.mentions.names & self._names):
                return f"a statement at import depends on what differs ({file}:{one.line})"
            if depends:
                self._bind(file, one)
            else:
                self._tainted |= one.names
        for each in (each for found in units.functions.values() for each in found):
            if each.outside.names & self._names:
                if each.decorated:
                    return f"a decorated function depends on what differs ({file}:{each.line})"
                self._tainted.add(each.name.rpartition(".")[2])
        return None

    def _depends(self, mentions: Mentions) -> bool:
        return bool(
            mentions.names & self._names
            or mentions.bare & self._modules
            or (mentions.wild and (self._names or self._classes))
        )

    def _may_mention(self, text: bytes) -> bool:
        wanted = {*self._names, *self._tainted, *self._modules}
        return any(name.encode() in text for name in wanted) or bool(_WILD_WORDS.search(text))

    def _of(self, side: Side, file: str) -> Units | None:
        """Return the parts of a file on a side; a file that is not there has none."""
        if side == "base" and file not in self.changed.python:
            side = "head"
        key = side, file
        if key not in self._units:
            text = self.changed.read(side, file)
            try:
                found: Units | None = Units() if text is None else units_of(text, with_docs=self._with_docs)
            except (SyntaxError, ValueError, RecursionError):
                found = None
            self._units[key] = found
        return self._units[key]

    def why(self, node: str) -> str | None:
        """Return why a benchmark may be affected, None where it cannot be."""
        if any(node not in self.traces[side].ran for side in SIDES):
            return "it did not pass while it was traced"
        base, head = (self.traces[side].ran[node] for side in SIDES)
        for ran in (base, head):
            if ran.unknown:
                return ran.unknown[0]
        if opened := self._opened(base.opened | head.opened):
            return f"it reads {opened}"
        why = self._why_codes(base.codes | head.codes, at="", in_module=True)
        if why is not None:
            return why
        everywhere = self.traces["base"].imported & self.traces["head"].imported
        if (base.codes ^ head.codes) - everywhere:
            file, name = min((base.codes ^ head.codes) - everywhere)
            return f"one side alone runs {f'{name} ({file})' if file else 'generated code'}"
        return None

    def _why_codes(self, codes: Iterable[Code], *, at: str, in_module: bool) -> str | None:
        """Return why code that ran depends on what differs."""
        own = sorted(code for code in codes if code[0])
        differs = (self._why_text(code, at, in_module=in_module) for code in own)
        depends = (self._why_mentions(code, at) for code in own)
        return next(filter(None, (*differs, *depends)), None)

    def _why_text(self, code: Code, at: str, *, in_module: bool) -> str | None:
        file, qualified = code
        if file not in self.changed.python:
            return None
        base, head = (self._of(side, file) for side in SIDES)
        if base is None or head is None:
            return f"{file} cannot be read"
        names = {base.unit_of(qualified), head.unit_of(qualified)}
        if differing := names & self._differing.get(file, frozenset()):
            return f"{min(differing)} differs ({file}), which runs{at}"
        # The statements of a module that is imported bind names, and are judged by these.
        binds = not in_module and (qualified == MODULE or self._is_body("head", file, qualified))
        if MODULE in names and file in self._in_modules and not binds:
            return f"statements of {file} differ, which run{at}"
        return None

    def _why_mentions(self, code: Code, at: str) -> str | None:
        file, qualified = code
        if not (self._names or self._tainted or self._classes):
            return None
        owner = qualified.partition(".<locals>")[0].rpartition(".")[0]
        while owner:
            if (file, owner) in self._classes and not self._is_body("head", file, qualified):
                return f"the class {owner} differs ({file})"
            owner = owner.rpartition(".")[0]
        for side in SIDES:
            text = self.changed.read(side, file)
            if text is None or (side == "base" and file not in self.changed.python):
                continue
            if not self._may_mention(text):
                continue
            units = self._of(side, file)
            if units is None:
                return f"{file} cannot be read"
            for one in units.functions.get(units.unit_of(qualified), ()):
                if self._depends(one.mentions) or one.mentions.names & self._tainted:
                    return (
                        f"{one.name} depends on what differs ({file}:{one.line}){at and ', which runs'}{at}"
                    )
        return None

    def _is_body(self, side: Side, file: str, qualified: str) -> bool:
        """Return whether a code object is a class body, which runs where the class is made."""
        units = self._of(side, file) or Units()
        return any(one.kind == f"class {qualified}" for one in units.statements)

    def digest(self, node: str) -> str:
        """Return a hash of what a benchmark ran."""
        digest = hashlib.sha256()
        trace = self.traces["head"]
        for file, qualified in sorted(trace.imported | trace.ran[node].codes):
            units = self._of("head", file) if file else None
            found = units.functions.get(units.unit_of(qualified), ()) if units else ()
            digest.update("\0".join((file, qualified, *(one.text for one in found))).encode())
        return digest.hexdigest()[:16]

    def functions(self, nodes: Sequence[str]) -> Iterator[ChangedFunction]:
        """Yield the functions that head changed or added, and where they run."""
        rans = [self.traces["head"].ran.get(node, Ran()) for node in nodes]
        parts: tuple[tuple[Runs, frozenset[Code]], ...] = (
            ("timed", frozenset().union(*(ran.later for ran in rans))),
            ("first call", frozenset().union(*(ran.first for ran in rans))),
            ("set-up", frozenset().union(*(ran.setup for ran in rans))),
            ("import", self.traces["head"].imported),
        )
        for file in sorted(self.changed.python):
            old, new = self._of("base", file), self._of("head", file)
            if old is None or new is None:
                continue
            for name, found in new.functions.items():
                if [one.text for one in found] == [one.text for one in old.functions.get(name, ())]:
                    continue
                ran = (
                    where
                    for where, codes in parts
                    if any(place == file and new.unit_of(code) == name for place, code in codes)
                )
                if not _is_test(file):
                    yield ChangedFunction(name=name, file=file, line=found[0].line, runs=next(ran, "never"))


def _is_test(file: str) -> bool:
    return PurePosixPath(file).name.startswith(("test_", "bench_", "conftest"))
