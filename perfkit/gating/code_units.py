"""The parts of a Python file that can differ by themselves: functions, and the statements around them.

Texts are those of syntax trees, so that lines, comments and docstrings are no part of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_DECORATORS = frozenset({"property", "staticmethod", "classmethod", "setter", "getter", "deleter"})
_PLAIN_CLASS_DECORATORS = frozenset({
    "dataclass", "define", "frozen", "mutable", "attrs", "s", "final", "total_ordering", "runtime_checkable",
    "unique",
})  # fmt: skip
# Calls of these change nothing but what their result is bound to.
_PURE = frozenset({
    "Decimal", "Factory", "Fraction", "NewType", "ParamSpec", "Path", "PurePath", "TypeVar", "TypeVarTuple",
    "abs", "array", "asarray", "attrgetter", "attrib", "bool", "bytes", "cast", "compile", "complex", "count",
    "defaultdict", "deque", "dict", "divmod", "enumerate", "field", "float", "frozenset", "full",
    "getLogger", "ib", "int", "isinstance", "itemgetter", "len", "list", "max", "min", "namedtuple",
    "object", "ones", "partial", "range", "reversed", "round", "set", "sorted", "sqrt", "str", "sum",
    "tensor", "timedelta", "tuple", "type", "zeros", "zip",
})  # fmt: skip
# Who mentions one of these may see names that it does not mention.
_WILDCARDS = frozenset({
    "__dict__", "__getattribute__", "__globals__", "__subclasses__", "dir", "eval", "exec", "getmembers",
    "getmodule", "globals", "iter_modules", "locals", "vars", "walk_packages",
})  # fmt: skip
# These take the name of a module, which is mentioned where it is a constant.
_DYNAMIC = frozenset({"import_module", "find_spec", "__import__"})
_WORD = re.compile(r"[^\W\d]\w*")
_LONGEST_TEXT = 2000
MODULE = "<module>"


@dataclass(frozen=True, kw_only=True)
class Mentions:
    """The names that code mentions, those of them that are no base of an attribute, and wildcards in it."""

    names: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    wild: bool = False


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method with all that is nested in it; ``outside`` is evaluated when it is defined.

    ``decorated`` leaves out what only makes a property, a method or a test. ``impure`` means that defining it
    may do more than that.
    """

    name: str
    text: str
    line: int
    decorators: str
    decorated: bool
    signature: str
    impure: bool
    mentions: Mentions
    outside: Mentions


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that defines no function, of a module or (``owner``) a class body, or a class header.

    A ``pure`` one does nothing but bind ``names``. The ``kind`` of a header is "class" with its qualified
    name, that of an import "import" with the last part of what is imported.
    """

    owner: str
    text: str
    line: int
    names: frozenset[str]
    pure: bool
    mentions: Mentions
    kind: str = "statement"


@dataclass(frozen=True, kw_only=True)
class Units:
    """The parts of a file, in order; functions of one qualified name are kept together."""

    functions: dict[str, tuple[Function, ...]] = field(default_factory=dict)
    statements: tuple[Statement, ...] = ()
    order: tuple[str, ...] = ()

    def unit_of(self, qualified: str) -> str:
        """Return the name of the function that a code object is a part of, MODULE where it is of none."""
        outermost = qualified.partition(".<locals>")[0]
        if outermost in self.functions:
            return outermost
        return MODULE


def units_of(text: bytes, *, with_docs: bool = False) -> Units:
    """Return the parts of a file.

    Raises:
        SyntaxError, ValueError: it cannot be parsed.
    """
    tree = ast.parse(text)
    if not with_docs:
        _strip(tree)
    functions: dict[str, list[Function]] = {}
    statements: list[Statement] = []
    order: list[str] = []
    _walk(tree.body, "", functions, statements, order)
    return Units(
        functions={name: tuple(found) for name, found in functions.items()},
        statements=tuple(statements),
        order=tuple(order),
    )


def _strip(tree: ast.AST) -> None:
    """Take docstrings out, and other texts that stand as statements."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and any(map(_is_text, body)):
                kept = [one for one in body if not _is_text(one)]
                setattr(node, name, kept or [ast.Pass()])


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and (isinstance(node.value.value, str) or node.value.value is ...)
    )


def _walk(
    body: Sequence[ast.stmt],
    owner: str,
    functions: dict[str, list[Function]],
    statements: list[Statement],
    order: list[str],
) -> None:
    for node in body:
        if isinstance(node, _FUNCTIONS):
            name = f"{owner}.{node.name}" if owner else node.name
            functions.setdefault(name, []).append(_function(node, name))
            order.append(name)
        elif isinstance(node, ast.ClassDef):
            name = f"{owner}.{node.name}" if owner else node.name
            statements.append(_header(node, owner, name))
            order.append(f"class {name}")
            _walk(node.body, name, functions, statements, order)
        elif isinstance(node, ast.If | ast.Try) and not _is_for_types(node) and not _defines_class(node):
            one = _compound(node, owner, functions)
            statements.append(one)
            order.append(one.text)
        elif not isinstance(node, ast.Pass):
            for one in _statements(node, owner):
                statements.append(one)
                order.append(one.text)


def _compound(node: ast.If | ast.Try, owner: str, functions: dict[str, list[Function]]) -> Statement:
    """Return a condition around statements and functions, whose bodies do not run where it does."""
    inner: list[Statement] = []
    defined: dict[str, list[Function]] = {}
    handlers = [] if isinstance(node, ast.If) else node.handlers
    bodies = [node.body, node.orelse, *(one.body for one in handlers)]
    bodies += [] if isinstance(node, ast.If) else [node.finalbody]
    for body in bodies:
        _walk(body, owner, defined, inner, [])
    for name, found in defined.items():
        functions.setdefault(name, []).extend(found)
    every = [one for found in defined.values() for one in found]
    outside = _mentions([node.test] if isinstance(node, ast.If) else [])
    parts = [outside, *(one.mentions for one in inner), *(one.outside for one in every)]
    pure = not isinstance(node, ast.If) or _is_pure(node.test)
    names = {one.name.rpartition(".")[2] for one in every}
    return Statement(
        owner=owner,
        text=ast.dump(node),
        line=node.lineno,
        names=frozenset(names.union(*(one.names for one in inner))),
        pure=pure
        and all(one.pure for one in inner)
        and not any(one.decorated or one.impure or _is_special(one.name) for one in every),
        mentions=Mentions(
            names=frozenset[str]().union(*(one.names for one in parts)),
            bare=frozenset[str]().union(*(one.bare for one in parts)),
            wild=any(one.wild for one in parts),
        ),
    )


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING" and not node.orelse


def _defines_class(node: ast.stmt) -> bool:
    return any(isinstance(one, ast.ClassDef) for one in ast.walk(node))


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Function:
    arguments = node.args
    defaults = [*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)]
    annotations = [one.annotation for one in _arguments(arguments) if one.annotation is not None]
    annotations += [node.returns] if node.returns is not None else []
    decorated = not all(map(_is_plain, node.decorator_list))
    # Annotations are read by decorators, if at all.
    outside = [*node.decorator_list, *defaults, *(annotations if decorated else [])]
    body = ast.Module(body=node.body, type_ignores=[])
    return Function(
        name=name,
        text=ast.dump(node),
        line=node.lineno,
        decorators=" ".join(map(ast.dump, node.decorator_list)),
        decorated=decorated,
        signature=ast.dump(arguments) + (ast.dump(node.returns) if node.returns is not None else ""),
        impure=not all(map(_is_pure, defaults)),
        mentions=_mentions([body, *outside]),
        outside=_mentions(outside),
    )


def _is_plain(decorator: ast.expr) -> bool:
    """Return whether a decorator leaves the function as it is, or only makes it a method or a test."""
    if _last_name(decorator) in _PLAIN_DECORATORS:
        return True
    arguments: list[ast.expr] = []
    if isinstance(decorator, ast.Call):
        arguments = [*decorator.args, *(one.value for one in decorator.keywords)]
        decorator = decorator.func
    if not all(map(_is_pure, arguments)):
        return False
    while isinstance(decorator, ast.Attribute):
        decorator = decorator.value
    return isinstance(decorator, ast.Name) and decorator.id == "pytest"


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (one for one in (arguments.vararg, arguments.kwarg) if one is not None)


def _header(node: ast.ClassDef, owner: str, name: str) -> Statement:
    parts = [*node.decorator_list, *node.bases, *node.keywords]
    plain = all(_last_name(one) in _PLAIN_CLASS_DECORATORS for one in node.decorator_list)
    return Statement(
        owner=owner,
        text=f"class {name} {' '.join(map(ast.dump, parts))}",
        line=node.lineno,
        names=frozenset({node.name}),
        pure=plain and not node.keywords and all(map(_is_pure, node.bases)),
        mentions=_mentions(parts),
        kind=f"class {name}",
    )


def _statements(node: ast.stmt, owner: str) -> Iterator[Statement]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            one = (
                ast.Import(names=[alias])
                if isinstance(node, ast.Import)
                else ast.ImportFrom(module=node.module, names=[alias], level=node.level)
            )
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            bound = alias.asname or (
                alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name
            )
            made = _statement(one, owner, node.lineno, {bound}, pure=bound != "*" and not future)
            yield replace(made, kind=f"import {alias.name.rpartition('.')[2]}")
        return
    if isinstance(node, ast.If) and _is_for_types(node):
        for inner in node.body:
            yield from _statements(inner, owner)
        return
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    names = {name for target in targets for name in _bound(target)}
    simple = bool(targets) and all(map(_binds_names, targets))
    value = getattr(node, "value", None)
    pure = simple and (value is None or _is_pure(value)) and not any(map(_is_special, names))
    alias_type = type(node).__name__ == "TypeAlias"
    if alias_type:
        names = {node.name.id}  # type: ignore[attr-defined]
    yield _statement(node, owner, getattr(node, "lineno", 0), names, pure=pure or alias_type)


def _statement(node: ast.stmt, owner: str, line: int, names: set[str], *, pure: bool) -> Statement:
    return Statement(
        owner=owner,
        text=ast.dump(node),
        line=line,
        names=frozenset(names),
        pure=pure,
        mentions=_mentions([node]),
    )


def _is_special(name: str) -> bool:
    """Return whether others than the code that mentions a name look at it, such as pytest or Python."""
    return name.startswith(("pytest", "collect_ignore")) or (
        name.startswith("__") and name not in {"__all__", "__version__", "__author__", "__slots__"}
    )


def _bound(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _binds_names(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_binds_names, target.elts))
    if isinstance(target, ast.Starred):
        return _binds_names(target.value)
    return isinstance(target, ast.Name)


def _is_pure(node: ast.AST) -> bool:
    """Return whether evaluating an expression changes nothing, as far as its text shows."""
    return not any(
        isinstance(one, ast.Await | ast.Yield | ast.YieldFrom)
        or (isinstance(one, ast.Call) and _last_name(one.func) not in _PURE)
        for one in _evaluated(node)
    )


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _evaluated(child)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _mentions(nodes: Iterable[ast.AST]) -> Mentions:
    names: set[str] = set()
    bare: set[str] = set()
    bases: set[int] = set()
    wild = False
    for node in (found for one in nodes for found in ast.walk(one)):
        mentioned = {*_named_by(node)}
        names |= mentioned
        if isinstance(node, ast.Name | ast.Attribute | ast.Constant) and id(node) not in bases:
            bare |= mentioned
        if isinstance(node, ast.Attribute):
            # A parent comes before its children.
            bases.add(id(node.value))
        elif isinstance(node, ast.alias):
            wild |= node.name == "*"
        elif isinstance(node, ast.Call):
            wild |= _looks_up(node)
    wild |= not names.isdisjoint(_WILDCARDS)
    return Mentions(names=frozenset(names), bare=frozenset(bare), wild=wild)


def _named_by(node: ast.AST) -> Iterator[str]:
    """Return the names that a node mentions by itself."""
    found: Iterable[str | None] = ()
    if isinstance(node, ast.Name):
        found = (node.id,)
    elif isinstance(node, ast.Attribute):
        found = (node.attr,)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = _WORD.findall(node.value[:_LONGEST_TEXT])
    elif isinstance(node, ast.keyword | ast.arg):
        found = (node.arg,)
    elif isinstance(node, ast.alias):
        found = (*node.name.split("."), node.asname)
    elif isinstance(node, ast.ImportFrom):
        found = (node.module or "").split(".")
    elif isinstance(node, ast.MatchClass):
        found = node.kwd_attrs
    elif isinstance(node, ast.Global | ast.Nonlocal):
        found = node.names
    yield from filter(None, found)


def _looks_up(call: ast.Call) -> bool:
    """Return whether a call imports a module by a name that is no constant."""
    if _last_name(call.func) not in _DYNAMIC:
        return False
    return not (call.args and isinstance(call.args[0], ast.Constant))
