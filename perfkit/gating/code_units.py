"""The parts of a Python file that decide whether what runs is the same: functions, bindings, and the rest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

MODULE = "<module>"
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators that only wrap the function, by what is imported; all others may keep it, or read it.
_PLAIN = frozenset({
    "functools.lru_cache", "functools.cache", "functools.cached_property",
    "contextlib.contextmanager", "contextlib.asynccontextmanager", "abc.abstractmethod",
    "typing.overload", "typing.final", "typing.override", "typing_extensions.overload",
    "typing_extensions.final", "typing_extensions.override", "torch.no_grad", "torch.inference_mode",
    "torch.enable_grad", "pytest.fixture",
})  # fmt: skip
_BUILTIN = frozenset({"property", "staticmethod", "classmethod"})
_ACCESSORS = frozenset({"setter", "getter", "deleter"})
# Classes whose making does nothing with what is in the body of a subclass.
_PLAIN_BASES = frozenset({
    "object", "ABC", "Generic", "Module", "BaseException", "Exception", "ArithmeticError", "AttributeError",
    "ImportError", "KeyError", "LookupError", "NotImplementedError", "OSError", "RuntimeError", "TypeError",
    "UserWarning", "ValueError", "Warning",
})  # fmt: skip
_SPECIAL_BUT_PLAIN = frozenset({"__all__", "__version__", "__author__", "__license__", "__copyright__"})
# What looks at names that it does not mention.
_LOOKS_AROUND = frozenset({
    "vars", "dir", "globals", "__dict__", "f_globals", "f_locals", "__globals__", "__subclasses__",
    "getmembers", "getmembers_static", "__getattribute__", "get_objects", "get_referrers", "resolve_name",
})  # fmt: skip
# These do so where the name is no constant.
_ACCESS = frozenset({"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"})
# Texts of which a field may be an attribute.
_FORMATS = frozenset({"format", "format_map"})
READS_HEADERS = frozenset({
    "signature", "Signature", "get_type_hints", "get_annotations", "getfullargspec", "__annotations__",
    "__defaults__", "__kwdefaults__", "__signature__",
})  # fmt: skip
READS_CODE = frozenset({
    "__code__", "co_code", "co_consts", "co_names", "getsource", "getsourcelines", "findsource", "get_source",
    "Bytecode", "getclosurevars",
})  # fmt: skip
READS_DOCS = frozenset({"__doc__", "getdoc"})
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class Mentions:
    """The names that code mentions.

    ``own`` are those of variables, ``words`` attributes and words in texts. Those in ``called`` are mentioned
    in calls alone, those ``imported`` in imports alone. ``looks_around`` means that it may find names that it
    does not mention.
    """

    own: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    looks_around: bool = False

    @property
    def every(self) -> frozenset[str]:
        """All names."""
        return self.own | self.words


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method; a ``plain`` one does nothing but bind its name where it is defined."""

    name: str
    plain: bool
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.lineno

    @cached_property
    def text(self) -> str:
        """The whole function, without docstrings."""
        return ast.dump(self.node)

    @cached_property
    def header(self) -> str:
        """The function without its body."""
        return _without_bodies(self.node)

    @cached_property
    def mentions(self) -> Mentions:
        """What it mentions, with all that is in it."""
        return _mentions(ast.walk(self.node), in_function=True)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that may do anything where it runs, but for the bodies of functions in it."""

    node: ast.AST
    line: int
    text: str


@dataclass(kw_only=True)
class Class:
    """A class: its header, the last names of its bases, and its members in order.

    It may be ``plain`` where making it does nothing with its members as far as its own header and body show.
    """

    header: str
    bases: tuple[str, ...]
    line: int = field(compare=False)
    plain: bool
    members: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Import:
    """A name that a file binds by an import, from a module's last part or "" for the package around."""

    module: str
    name: str
    bound: str


@dataclass(kw_only=True)
class Units:
    """The parts of a file.

    Attributes:
        functions: by qualified name, in order.
        bindings: what constants and imports bind, by class ("" for the module) and name.
        statements: all others, in order.
        classes: by qualified name.
        imports: the names that are imported.
        stars: the last parts of the modules of which all is imported.
        docs: docstrings by qualified name.
    """

    functions: dict[str, list[Function]] = field(default_factory=dict)
    bindings: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    classes: dict[str, Class] = field(default_factory=dict)
    imports: list[Import] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    docs: dict[str, str] = field(default_factory=dict)

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

    @cached_property
    def mentions(self) -> Mentions:
        """What the statements mention."""
        nodes = (found for one in self.statements for found in _outside_bodies(one.node))
        return _mentions(nodes, in_function=False)

    def mentions_of(self, unit: str) -> Iterator[Mentions]:
        """Yield what a function, or what runs at import, mentions."""
        if unit == MODULE:
            yield self.mentions
        yield from (one.mentions for one in self.functions.get(unit, ()))


def units_of(text: bytes) -> Units:
    """Return the parts of a file.

    Raises:
        SyntaxError, ValueError, RecursionError: it cannot be parsed.
    """
    tree = ast.parse(text)
    reader = _Reader(tree)
    reader.read(tree.body, "")
    return reader.units


class _Reader:
    """Sorts the statements of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self.units = Units()
        self._imported = dict(_imported(tree.body))
        self._docs: dict[int, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | _FUNCTIONS):
                docs = ast.get_docstring(node, clean=False)
                if docs is not None:
                    self._docs[id(node)] = docs
                    node.body = node.body[1:] or [ast.Pass()]
        self.units.docs[MODULE] = self._docs.get(id(tree), "")

    def read(self, body: Sequence[ast.stmt], owner: str) -> None:
        """Sort the statements of a module or a class."""
        properties: set[str] = set()
        for node in body:
            if isinstance(node, _FUNCTIONS):
                self._read_function(node, owner, properties)
            elif isinstance(node, ast.ClassDef):
                self._read_class(node, owner)
            elif _does_nothing(node) or self._is_for_types(node):
                continue
            elif isinstance(node, ast.Import | ast.ImportFrom) and not _is_special_import(node):
                self._read_import(node, owner)
            else:
                bound = _bound_literals(node, in_class=bool(owner))
                if bound:
                    for name in bound:
                        self._bind(owner, name, ast.dump(node))
                else:
                    self._read_statement(node, owner)

    def _bind(self, owner: str, name: str, text: str) -> None:
        self.units.bindings.setdefault((owner, name), []).append(text)
        self._add_member(owner, text)

    def _add_member(self, owner: str, text: str) -> None:
        if owner in self.units.classes:
            self.units.classes[owner].members.append(text)

    def _read_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, properties: set[str]
    ) -> None:
        name = f"{owner}.{node.name}" if owner else node.name
        decorated = all(self._is_plain(one, properties) for one in node.decorator_list)
        if node.decorator_list and decorated:
            properties.add(node.name)
        header = _annotations_and_defaults(node)
        plain = decorated and all(map(_is_literal, header[1])) and not any(map(_calls, header[0]))
        plain &= not _is_special(node.name)
        function = Function(name=name, plain=plain, node=node)
        self._add_function(function)
        self._add_member(owner, function.header)
        if not plain:
            self.units.statements.append(Statement(node=node, line=node.lineno, text=function.header))

    def _is_plain(self, decorator: ast.expr, properties: set[str]) -> bool:
        called = decorator
        if isinstance(decorator, ast.Call):
            called = decorator.func
            if not all(map(_is_literal, [*decorator.args, *(one.value for one in decorator.keywords)])):
                return False
        if isinstance(called, ast.Attribute) and called.attr in _ACCESSORS:
            return isinstance(called.value, ast.Name) and called.value.id in properties
        if isinstance(called, ast.Name) and called.id in _BUILTIN:
            return called.id not in self._imported
        parts: list[str] = []
        while isinstance(called, ast.Attribute):
            parts.insert(0, called.attr)
            called = called.value
        if not isinstance(called, ast.Name) or called.id not in self._imported:
            return False
        whole = ".".join([self._imported[called.id], *parts])
        return whole in _PLAIN or whole.startswith("pytest.mark.")

    def _read_class(self, node: ast.ClassDef, owner: str) -> None:
        name = f"{owner}.{node.name}" if owner else node.name
        header = _without_bodies(ast.ClassDef(**{**dict(ast.iter_fields(node)), "body": []}))
        self._add_member(owner, header)
        bases = tuple(
            _last_name(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases
        )
        plain = not (node.decorator_list or node.keywords or name in self.units.classes) and not any(
            isinstance(one, _FUNCTIONS) and one.name in {"__init_subclass__", "__set_name__"}
            for one in node.body
        )
        self.units.docs[name] = self._docs.get(id(node), "")
        self.units.classes[name] = Class(header=header, bases=bases, line=node.lineno, plain=plain)
        if not plain:
            outside = ast.ClassDef(**{**dict(ast.iter_fields(node)), "body": []})
            self.units.statements.append(Statement(node=outside, line=node.lineno, text=header))
        self.read(node.body, name)

    def _read_import(self, node: ast.Import | ast.ImportFrom, owner: str) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                bound = alias.asname or alias.name.partition(".")[0]
                module, text = "", f"import {alias.name} as {alias.asname}"
            else:
                bound = alias.asname or alias.name
                module = (node.module or "").rpartition(".")[2]
                text = f"from {'.' * node.level}{node.module} import {alias.name}"
            self.units.imports.append(Import(module=module, name=alias.name.rpartition(".")[2], bound=bound))
            self._bind(owner, bound, text)

    def _is_for_types(self, node: ast.stmt) -> bool:
        """Return whether a statement is one of those that only checkers of types read."""
        if not isinstance(node, ast.If) or node.orelse or _last_name(node.test) != "TYPE_CHECKING":
            return False
        root = node.test.value if isinstance(node.test, ast.Attribute) else node.test
        return isinstance(root, ast.Name) and self._imported.get(root.id, "").startswith("typing")

    def _read_statement(self, node: ast.stmt, owner: str) -> None:
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            self.units.stars.append((node.module or "").rpartition(".")[2])
        text = _without_bodies(node)
        self.units.statements.append(Statement(node=node, line=getattr(node, "lineno", 0), text=text))
        self._add_member(owner, text)
        for name, function in _inner_functions(node, owner):
            self._add_function(Function(name=name, plain=False, node=function))

    def _add_function(self, function: Function) -> None:
        self.units.functions.setdefault(function.name, []).append(function)
        docs = [self._docs[id(one)] for one in ast.walk(function.node) if id(one) in self._docs]
        self.units.docs[function.name] = "\0".join(docs)


def _imported(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the names that a module binds, with the place of those that it imports."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{'.' * node.level}{node.module}.{alias.name}"
        elif isinstance(node, ast.ClassDef | _FUNCTIONS):
            yield node.name, ""
        else:
            yield from (
                (one.id, "") for one in ast.walk(node) if isinstance(one, ast.Name) and _is_stored(one)
            )


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_special_import(node: ast.Import | ast.ImportFrom) -> bool:
    return any(alias.name == "*" for alias in node.names) or (
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
    )


def _bound_literals(node: ast.stmt, *, in_class: bool) -> tuple[str, ...]:
    """Return the names that a statement binds to constants, if it does nothing else."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and not in_class and not _calls(node.annotation):
        targets = [node.target]
    value = getattr(node, "value", None)
    names = tuple(one.id for one in targets if isinstance(one, ast.Name))
    whole = len(names) == len(targets) and not any(map(_is_special, names))
    return names if whole and value is not None and _is_literal(value) else ()


def _is_special(name: str) -> bool:
    """Return whether others than the code that mentions a name look at it, such as pytest or Python."""
    if name.startswith(("pytest", "collect_ignore")):
        return True
    return name.startswith("__") and name.endswith("__") and name not in _SPECIAL_BUT_PLAIN


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_literal, node.elts))
    if isinstance(node, ast.Dict):
        return all(one is not None and _is_literal(one) for one in [*node.keys, *node.values])
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    return isinstance(node, ast.BinOp) and _is_literal(node.left) and _is_literal(node.right)


def _calls(node: ast.AST) -> bool:
    unsafe = ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom
    return any(isinstance(one, unsafe) for one in ast.walk(node))


def _annotations_and_defaults(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
) -> tuple[list[ast.expr], list[ast.expr]]:
    arguments = node.args
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    annotations = [one.annotation for one in every if one is not None and one.annotation is not None]
    annotations += [] if node.returns is None else [node.returns]
    return annotations, [*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)]


def _inner_functions(
    node: ast.AST, owner: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions that a statement defines, with their qualified names."""
    for child in ast.iter_child_nodes(node):
        name = f"{owner}.{child.name}" if owner and hasattr(child, "name") else getattr(child, "name", owner)
        if isinstance(child, _FUNCTIONS):
            yield name, child
        elif isinstance(child, ast.ClassDef):
            yield from _inner_functions(child, name)
        elif not isinstance(child, ast.Lambda):
            yield from _inner_functions(child, owner)


def _without_bodies(node: ast.AST) -> str:
    """Describe a node, without the bodies of the functions in it."""
    functions = [one for one in ast.walk(node) if isinstance(one, _FUNCTIONS)]
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
        if name == "body" and isinstance(node, _FUNCTIONS):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _outside_bodies(child)


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _mentions(nodes: Iterable[ast.AST], *, in_function: bool) -> Mentions:
    own: set[str] = set()
    words: set[str] = set()
    called: set[str] = set()
    valued: set[str] = set()
    imported: set[str] = set()
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
            around |= name == "locals" and not in_function
            around |= name in _FORMATS and not isinstance(getattr(node, "value", None), ast.Constant)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
            valued.add(node.arg)
        else:
            named = {*_named_by(node)}
            words |= named
            if isinstance(node, ast.alias | ast.ImportFrom):
                imported |= named
            else:
                valued |= named
    return Mentions(
        own=frozenset(own),
        words=frozenset(words),
        called=frozenset(called - valued - imported),
        imported=frozenset(imported - valued - called),
        looks_around=around,
    )


def _is_by_constant(call: ast.Call) -> bool:
    where = 0 if _last_name(call.func) in {"attrgetter", "methodcaller"} else 1
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
    """Return the names that a node mentions that is neither a name nor an attribute."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _WORD.findall(node.value)
    if isinstance(node, ast.alias):
        return (*node.name.split("."), *([] if node.asname is None else [node.asname]))
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")
    if isinstance(node, ast.MatchClass):
        return node.kwd_attrs
    if isinstance(node, ast.Global | ast.Nonlocal):
        return node.names
    return ()


def is_plain(name: str, classes: Mapping[str, Sequence[Class]]) -> bool:
    """Return whether making a class does nothing with its members: all classes of a name and their bases."""
    waiting, known = [name], set[str]()
    while waiting:
        one = waiting.pop()
        if one in known:
            continue
        known.add(one)
        found = classes.get(one, ())
        if not all(each.plain for each in found) or not (found or one in _PLAIN_BASES):
            return False
        waiting += [base for each in found for base in each.bases]
    return True
