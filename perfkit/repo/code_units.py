"""The parts of a Python file that decide whether what runs is the same: functions and what is imported."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TypeGuard

MODULE = "<module>"
_Def = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators that do nothing but wrap a method.
_PLAIN = frozenset({"property", "staticmethod", "classmethod"})
# Classes that do nothing with what is in the body of a subclass.
_PLAIN_BASES = frozenset({
    "object", "ABC", "Module", "Exception", "ArithmeticError", "AttributeError", "ImportError", "KeyError",
    "LookupError", "NotImplementedError", "OSError", "RuntimeError", "TypeError", "UserWarning", "ValueError",
})  # fmt: skip
# Where these come from, or are builtins, an annotation runs nothing of the project's.
_TYPES = frozenset({"typing", "typing_extensions", "collections", "types", "numbers", "os", "pathlib", "re"})
_BUILTIN_TYPES = frozenset({"list", "dict", "tuple", "set", "frozenset", "type"})
VERSION = "__version__"
# Items that only bind a name.
_MOVABLE = frozenset({"function", "import", "alias"})
# What a star import takes.
_ALL = "Assign(targets=[Name(id='__all__'"
# What looks at names that it does not mention.
_LOOKS_AROUND = frozenset({
    "vars", "dir", "globals", "__dict__", "f_globals", "f_locals", "__globals__", "__subclasses__",
    "getmembers", "getmembers_static", "__getattribute__", "get_objects", "get_referrers", "get_referents",
    "resolve_name", "locate", "vformat", "get_field", "run_module", "run_path", "get_code", "exec_module",
    "create_autospec",
})  # fmt: skip
# These do so where the name is no constant, and texts of which a field may be an attribute.
_ACCESS = frozenset({
    "getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller", "find_spec", "getattr_static",
    "import_module", "__import__",
})  # fmt: skip
# The name is the first thing that these are given.
_BY_FIRST = frozenset({"attrgetter", "methodcaller", "find_spec", "import_module", "__import__"})
_FORMATS = frozenset({"format", "format_map"})
_RUNS_TEXTS = frozenset({"eval", "exec", "compile"})
READS_HEADERS = frozenset({
    "signature", "Signature", "get_type_hints", "get_annotations", "getfullargspec", "getcallargs",
    "__annotations__", "__defaults__", "__kwdefaults__", "__signature__", "get_overloads", "create_autospec",
    "iscoroutinefunction", "isgeneratorfunction", "__abstractmethods__", "isabstract", "singledispatch",
})  # fmt: skip
READS_CODE = frozenset({
    "co_firstlineno", "getsource", "getsourcelines", "getsourcefile", "findsource", "getcomments",
    "get_source", "get_code", "getclosurevars", "f_lineno", "tb_lineno", "extract_stack", "format_exc",
    "print_exc", "format_tb", "__firstlineno__",
})  # fmt: skip
READS_DOCS = frozenset({"__doc__", "getdoc", "help"})
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class Mentions:
    """The names that code mentions: ``own`` are those of variables, ``words`` attributes and words in texts.

    Those in ``called`` are mentioned in calls alone, those ``imported`` in imports alone. ``looks_around``
    means that it may find names that it does not mention.
    """

    own: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    looks_around: bool = False

    @cached_property
    def every(self) -> frozenset[str]:
        """All names."""
        return self.own | self.words


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method, and where it is the only thing in a body that ``plain``ly binds its name."""

    name: str
    node: _Def
    plain: bool

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.lineno

    @property
    def lines(self) -> range:
        """Its lines, with those of its decorators."""
        first = min([self.line, *(one.lineno for one in self.node.decorator_list)])
        return range(first, (self.node.end_lineno or self.line) + 1)

    @cached_property
    def text(self) -> str:
        """The whole function, without docstrings."""
        return ast.dump(self.node)

    def first_difference(self, other: Function) -> int:
        """Return the line of its first statement that differs from the other's, its own where none does."""
        known = (text for _, text in other.heads())
        return next((line for line, text in self.heads() if text != next(known, None)), self.line)

    def heads(self) -> Iterator[tuple[int, str]]:
        """Yield its statements in order, each with its line, and of one with a body the head alone."""
        for one in sorted(filter(_has_line, ast.walk(self.node)), key=attrgetter("lineno")):
            yield one.lineno, ast.unparse(one).lstrip("\n").partition("\n")[0]

    @cached_property
    def mentions(self) -> Mentions:
        """What it mentions, with all that is in it."""
        return _mentions(ast.walk(self.node))


def _has_line(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Return whether a node is a statement of the file, and not one in place of a docstring."""
    return isinstance(node, ast.stmt) and hasattr(node, "lineno")


@dataclass(frozen=True, kw_only=True)
class Item:
    """A statement of a module or class body, but for the bodies of functions in it.

    A ``free`` one only binds ``name``: a plain function, an import or a version.
    """

    kind: str
    owner: str
    name: str
    text: str
    line: int = field(compare=False)
    free: bool = field(compare=False)
    node: ast.AST = field(compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.kind, self.owner, self.name, self.text))


@dataclass(kw_only=True)
class Units:
    """The parts of a file: ``functions`` by qualified name, ``items`` in order, the last names of ``bases``.

    ``docs`` are docstrings by qualified name, and ``has_stars`` is whether it imports all of a module. The
    classes in ``watched`` are made in a way that may look at what is in them.
    """

    functions: dict[str, list[Function]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    bases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    watched: set[str] = field(default_factory=set)
    docs: dict[str, str] = field(default_factory=dict)
    has_stars: bool = False

    def unit_of(self, qualified: str) -> str:
        """Return the name of the function that a code object is a part of, MODULE where it is of none."""
        outermost = qualified.partition(".<locals>")[0]
        return outermost if outermost in self.functions else MODULE

    def describe(self) -> None:
        """Describe all functions now.

        Raises:
            RecursionError: one is too deep.
        """
        for function in (one for found in self.functions.values() for one in found):
            assert function.text  # noqa: S101 (it is kept)

    def mentions(self, without: frozenset[Item]) -> Mentions:
        """Return what the statements mention, but for some, and for imports under their own names."""
        nodes = (
            found
            for one in self.items
            if one not in without and one.kind != "import" and not one.text.startswith(_ALL)
            for found in _outside_bodies(one.node)
        )
        return _mentions(nodes)


def units_of(text: bytes) -> Units:
    """Return the parts of a file.

    Raises:
        SyntaxError, ValueError, RecursionError: it cannot be parsed.
    """
    tree = ast.parse(text)
    reader = _Reader(tree)
    reader.read(tree.body, "")
    return reader.units


def differing_functions(base: Units, head: Units) -> frozenset[str]:
    """Return the names of functions that differ, or that one side lacks."""

    def texts(units: Units, name: str) -> list[str]:
        return [one.text for one in units.functions.get(name, ())]

    names = base.functions.keys() | head.functions.keys()
    return frozenset(name for name in names if texts(base, name) != texts(head, name))


def changed_functions(base: bytes, head: bytes) -> tuple[str, ...] | None:
    """Return the qualified names of functions of the text ``head`` that differ from those of ``base``.

    None where code outside of functions differs, or a text cannot be read.
    """
    try:
        old, new = units_of(base), units_of(head)
        differing = differing_functions(old, new)
    except (SyntaxError, ValueError, RecursionError):
        return None
    before, after = ([one for one in units.items if one.kind not in _MOVABLE] for units in (old, new))
    return tuple(name for name in new.functions if name in differing) if before == after else None


class _Reader:
    """Sorts the statements of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self.units = Units()
        self._docs: dict[int, str] = {}
        self._bound: Counter[str] = Counter()
        self._from: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | _Def):
                docs = ast.get_docstring(node, clean=False)
                if docs is not None:
                    self._docs[id(node)] = docs
                    node.body = node.body[1:] or [ast.Pass()]
            for name, module in _bound(node):
                self._bound[name] += 1
                self._from[name] = module
        self.units.has_stars = self._bound["*"] > 0
        self.units.docs[MODULE] = self._docs.get(id(tree), "")

    def read(self, body: Sequence[ast.stmt], owner: str) -> None:
        """Sort the statements of a module or a class."""
        for node in body:
            if isinstance(node, _Def):
                self._read_function(node, owner)
            elif isinstance(node, ast.ClassDef):
                self._read_class(node, owner)
            elif isinstance(node, ast.Import | ast.ImportFrom) and _is_plain_import(node):
                self._read_import(node, owner)
            elif not (_does_nothing(node) or self._is_for_types(node)):
                text = _without_bodies(node)
                version = owner == "" and text.startswith(f"Assign(targets=[Name(id='{VERSION}'")
                version &= isinstance(getattr(node, "value", None), ast.Constant)
                name = VERSION if version else ""
                self._add("statement", owner, name, node, text=text, free=bool(version))
                for inner, function in _inner_functions(node, owner):
                    self._add_function(Function(name=inner, node=function, plain=False))

    def _add(self, kind: str, owner: str, name: str, node: ast.AST, *, text: str, free: bool) -> None:
        line = getattr(node, "lineno", 0)
        item = Item(kind=kind, owner=owner, name=name, text=text, line=line, free=free, node=node)
        self.units.items.append(item)

    def _add_function(self, function: Function) -> None:
        self.units.functions.setdefault(function.name, []).append(function)
        docs = [self._docs[id(one)] for one in ast.walk(function.node) if id(one) in self._docs]
        self.units.docs[function.name] = "\0".join(docs)

    def _read_function(self, node: _Def, owner: str) -> None:
        annotations, defaults = _annotations_and_defaults(node)
        plain = (
            all(self._is_plain(one) for one in node.decorator_list)
            and all(map(_is_literal, defaults))
            and all(map(self._runs_nothing, annotations))
            and not _is_special(node.name)
        )
        name = f"{owner}.{node.name}" if owner else node.name
        self._add_function(Function(name=name, node=node, plain=plain))
        kind = "generator" if any(map(_yields, node.body)) else ""
        self._add("function", owner, node.name, node, text=kind + _without_bodies(node), free=plain)

    def _is_plain(self, decorator: ast.expr) -> bool:
        name = decorator.id if isinstance(decorator, ast.Name) else ""
        return name in _PLAIN and not self._bound[name] and not self.units.has_stars

    def _runs_nothing(self, annotation: ast.expr) -> bool:
        """Return whether evaluating an annotation runs nothing of the project's."""
        for node in ast.walk(annotation):
            if isinstance(node, ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.Lambda):
                return False
            if isinstance(node, ast.Subscript):
                root = node.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                name = root.id if isinstance(root, ast.Name) else ""
                builtin = name in _BUILTIN_TYPES and not self._bound[name]
                if not builtin and self._from.get(name, "").partition(".")[0] not in _TYPES:
                    return False
        return True

    def _read_class(self, node: ast.ClassDef, owner: str) -> None:
        name = f"{owner}.{node.name}" if owner else node.name
        outside = ast.ClassDef(**{**dict(ast.iter_fields(node)), "body": []})
        outside.lineno = node.lineno
        self._add("class", owner, node.name, outside, text=ast.dump(outside), free=False)
        self.units.docs[name] = self._docs.get(id(node), "")
        self.units.bases[name] = tuple(map(_last_name, node.bases))
        hooks = {"__init_subclass__", "__set_name__", "__subclasshook__", "__class_getitem__"}
        if node.decorator_list or node.keywords or owner or self._bound[node.name] > 1:
            self.units.watched.add(name)
        if any(isinstance(one, _Def) and one.name in hooks for one in node.body):
            self.units.watched.add(name)
        self.read(node.body, name)

    def _read_import(self, node: ast.Import | ast.ImportFrom, owner: str) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                bound = alias.asname or alias.name.partition(".")[0]
                text = f"import {alias.name} as {alias.asname}"
            else:
                bound = alias.asname or alias.name
                text = f"from {'.' * node.level}{node.module} import {alias.name}"
            # Under another name it is mentioned.
            kind = "import" if alias.asname in (None, alias.name) else "alias"
            self._add(kind, owner, bound, alias, text=text, free=not _is_special(bound))

    def _is_for_types(self, node: ast.stmt) -> bool:
        """Return whether a statement is one of those that only checkers of types read."""
        if not isinstance(node, ast.If) or node.orelse or _last_name(node.test) != "TYPE_CHECKING":
            return False
        root = node.test.value if isinstance(node.test, ast.Attribute) else node.test
        name = root.id if isinstance(root, ast.Name) else ""
        return self._from.get(name, "").startswith("typing") and self._bound[name] == 1


def _bound(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that a node binds by itself, and the place of those that it imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{'.' * node.level}{node.module}.{alias.name}"
    elif isinstance(node, ast.ClassDef | _Def):
        yield node.name, ""
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id, ""
    elif isinstance(node, ast.Global):
        yield from ((name, "") for name in node.names)


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_plain_import(node: ast.Import | ast.ImportFrom) -> bool:
    star = any(alias.name == "*" for alias in node.names)
    return not star and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _is_special(name: str) -> bool:
    """Return whether others than the code that mentions a name look at it, such as pytest or Python."""
    return name.startswith(("pytest", "collect_ignore")) or (name.startswith("__") and name.endswith("__"))


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Tuple):
        return all(map(_is_literal, node.elts))
    return isinstance(node, ast.UnaryOp) and _is_literal(node.operand)


def _annotations_and_defaults(node: _Def) -> tuple[list[ast.expr], list[ast.expr]]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    annotations = [one.annotation for one in every if one.annotation is not None]
    annotations += [] if node.returns is None else [node.returns]
    return annotations, [*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)]


def _yields(node: ast.AST) -> bool:
    """Return whether a statement has the function around it be a generator."""
    if isinstance(node, _Def | ast.Lambda):
        return False
    return isinstance(node, ast.Yield | ast.YieldFrom) or any(map(_yields, ast.iter_child_nodes(node)))


def _inner_functions(node: ast.AST, owner: str) -> Iterator[tuple[str, _Def]]:
    """Yield the functions that a statement defines, with their qualified names."""
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", None)
        inner = f"{owner}.{name}" if owner else str(name)
        if isinstance(child, _Def):
            yield inner, child
        elif isinstance(child, ast.ClassDef):
            yield from _inner_functions(child, inner)
        elif not isinstance(child, ast.Lambda):
            yield from _inner_functions(child, owner)


def _without_bodies(node: ast.AST) -> str:
    """Describe a node, without the bodies of the functions in it."""
    functions = [one for one in ast.walk(node) if isinstance(one, _Def)]
    bodies = [one.body for one in functions]
    for one in functions:
        one.body = []
    text = ast.dump(node)
    for one, body in zip(functions, bodies, strict=True):
        one.body = body
    return text


def _outside_bodies(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, _Def):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _outside_bodies(child)


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _mentions(nodes: Iterable[ast.AST]) -> Mentions:
    own: set[str] = set()
    words: set[str] = set()
    texts: set[str] = set()
    called: set[str] = set()
    imported: set[str] = set()
    valued: set[str] = set()
    functions: set[int] = set()
    by_name: set[int] = set()
    around = False
    for node in nodes:
        # A parent comes before its children.
        by_name.update(map(id, _looked_up_by_name(node)))
        if isinstance(node, ast.Call):
            functions.add(id(node.func))
            around |= _last_name(node.func) in _ACCESS and not _is_by_constant(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = _last_name(node)
            (called if id(node) in functions else valued).add(name)
            (own if isinstance(node, ast.Name) else words).add(name)
            around |= name in _LOOKS_AROUND and id(node) not in by_name and not _is_of_instance(node)
            around |= name in _ACCESS and id(node) not in functions
            around |= name in _FORMATS and not isinstance(getattr(node, "value", None), ast.Constant)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
            valued.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.update(words_of(node.value))
        elif isinstance(node, ast.alias):
            words.update(node.name.split("."))
            imported.update(node.name.split("."))
            around |= node.asname is not None and node.name in _LOOKS_AROUND | _ACCESS
        else:
            valued.update(_named_by(node))
            words.update(_named_by(node))
    around |= bool(texts & (_LOOKS_AROUND | _ACCESS)) and bool((own | words) & _RUNS_TEXTS)
    words |= texts
    return Mentions(
        own=frozenset(own),
        words=frozenset(words),
        called=frozenset(called - valued - texts - imported),
        imported=frozenset(imported - called - valued - texts),
        looks_around=around,
    )


def words_of(text: str) -> list[str]:
    """Return the words of a text that may be names."""
    return _WORD.findall(text)


def looks_around(words: Iterable[str]) -> bool:
    """Return whether words of generated code may find names that it does not mention."""
    return not (_LOOKS_AROUND | _ACCESS).isdisjoint(words)


def _is_by_constant(call: ast.Call) -> bool:
    where = 0 if _last_name(call.func) in _BY_FIRST else 1
    names = call.args[where : where + 1] if where else call.args
    return bool(names) and all(isinstance(one, ast.Constant) for one in names)


def _looked_up_by_name(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the namespaces in which a node looks up one constant name."""
    found: ast.AST | None = None
    name: ast.AST | None = None
    if isinstance(node, ast.Subscript):
        found, name = node.value, node.slice
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        found, name = node.comparators[0], node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        found, name = (node.func.value, node.args[0]) if node.func.attr == "get" else (None, None)
    if isinstance(found, ast.Call):
        found = found.func
    if found is not None and isinstance(name, ast.Constant):
        yield found


def _is_of_instance(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _named_by(node: ast.AST) -> Iterable[str]:
    """Return the names that a node of a rarer kind mentions."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")
    if isinstance(node, ast.MatchClass):
        return node.kwd_attrs
    if isinstance(node, ast.Global | ast.Nonlocal):
        return node.names
    return ()


def watched_classes(files: Mapping[str, Units]) -> frozenset[str]:
    """Return the last names of classes whose members, or those of a class derived from them, are watched."""
    bases: dict[str, set[str]] = {}
    found: set[str] = set()
    for units in files.values():
        found |= {name.rpartition(".")[2] for name in units.watched}
        for name, own in units.bases.items():
            bases.setdefault(name.rpartition(".")[2], set()).update(own)
    while True:
        derived = {
            name
            for name, own in bases.items()
            if any(base in found or (base not in bases and base not in _PLAIN_BASES) for base in own)
        }
        above = {base for name in found | derived for base in bases.get(name, ())}
        if derived | above <= found:
            return frozenset(found)
        found |= derived | above
