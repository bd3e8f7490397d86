"""Finds public functions and classes that a first benchmark may call, and writes ways to call each.

Only their text is read. Whether a way works is found out by running it, in a process of its own.
"""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfkit.features.init.layout import holds_tests, read_code
from perfkit.features.init.records import Attempt, Candidate, Layout
from perfkit.repo.environments import is_of_another_system
from perfkit.repo.git import try_git

# What such functions do is seen elsewhere, in files, on a screen or in a network, or takes a whole training.
_NOT_CALLED = re.compile(
    r"^_|^(?:main|cli|run|train|fit|evaluate|plot|show|print|save|load|write|read|open|download|upload|delete"
    r"|remove|clean|move|copy|install|register|set|reset|setup|configure|init|log|test|warn|raise|deprecat|exit)"
    r"(?:_|$)"
)
_NOT_GIVEN = re.compile(r"path|file|dir(?:ectory)?$|folder|^root$|url|^out|output|device|callback|^fn$|^func")
_NO_MODULE = re.compile(
    r"(?:^|[./])(?:_\w+|test\w*|cli|version|conftest|setup|vendor\w*|deprecated)(?=$|[./])"
)
_LABELS = re.compile(r"label|target|^y$|y_true|class|index|ids$|gt")
_IMAGES = re.compile(r"image|img|pixel|frame|conv|pool|patch|ssim|psnr|fid")
_SIZES = {
    "num_classes": "10", "n_classes": "10", "num_labels": "10", "in_channels": "3", "channels": "3",
    "num_heads": "4", "heads": "4", "n_heads": "4", "num_layers": "2", "depth": "2", "n_layers": "2",
    "kernel_size": "3", "embedding_size": "64", "k": "5", "p": "2",
}  # fmt: skip
_TASKS = {"task": '"multiclass"', "reduction": '"mean"', "average": '"macro"', "mode": '"max"'}
_FLOATS = "torch.rand(256, 64)"
_CLASSES = "torch.randint(10, (256,))"
# What stands for the data, by how many arguments take some: the first way that runs is kept.
_TENSORS: Mapping[int, tuple[tuple[str, ...], ...]] = {
    1: (
        (_FLOATS,),
        ("torch.rand(8, 3, 32, 32)",),
        ("torch.rand(8, 32, 64)",),
        ("torch.rand(1024)",),
        (_CLASSES,),
    ),
    2: (
        (_FLOATS, _FLOATS),
        (_FLOATS, _CLASSES),
        ("torch.rand(256, 10).softmax(1)", _CLASSES),
        (_CLASSES, _CLASSES),
        ("torch.rand(1024)", "torch.rand(1024)"),
        ("torch.rand(1024)", "torch.randint(2, (1024,))"),
        ("torch.rand(4, 3, 64, 64)", "torch.rand(4, 3, 64, 64)"),
    ),
    3: ((_FLOATS, _FLOATS, _FLOATS), ("torch.rand(8, 32, 64)",) * 3, (_FLOATS, _CLASSES, _FLOATS)),
    4: ((_FLOATS,) * 4, ("torch.rand(8, 4, 32, 16)",) * 4, (_FLOATS, _CLASSES, _FLOATS, _CLASSES)),
}  # fmt: skip
_ARRAYS = ("np.random.default_rng(0).random((256, 64))", "np.random.default_rng(0).random(1024)")
_PLAIN = (
    "[number * 7 % 1000 for number in range(1000)]",
    '"The quick brown fox jumps over the lazy dog. " * 20',
    "1234567",
)
_MOST_ATTEMPTS = 8
_LONGEST_LINE = 100
_MOST_EXAMPLE_LINES = 10
_MOST_COMMITS = 200


@dataclass(frozen=True, kw_only=True)
class _Class:
    """A class of the project: the names of its bases, its own methods, and where it stands."""

    bases: tuple[str, ...]
    methods: Mapping[str, ast.FunctionDef]


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    name: str
    hint: str


@dataclass(kw_only=True)
class _Code:
    """The project's modules, and its classes by their names, since a method may stand in a base class."""

    modules: dict[str, tuple[str, ast.Module]] = field(default_factory=dict)
    classes: dict[str, _Class] = field(default_factory=dict)


def find_candidates(root: Path, layout: Layout) -> tuple[Candidate, ...]:
    """Return what a first benchmark may call: files that change often first, then what computes most."""
    code = _read(root, layout)
    changes = _changes(root)
    ranked = []
    for module, (file, tree) in code.modules.items():
        uses_torch = _imports(tree, "torch")
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not _NOT_CALLED.match(node.name):
                attempts = tuple(_attempts(node, module, code, uses_torch=uses_torch))[:_MOST_ATTEMPTS]
                if attempts:
                    candidate = Candidate(module=module, name=node.name, file=file, attempts=attempts)
                    ranked.append((-_weight(node, uses_torch=uses_torch), -changes.get(file, 0), candidate))
    return tuple(found for *_, found in sorted(ranked, key=lambda one: one[:2]))


def _read(root: Path, layout: Layout) -> _Code:
    code = _Code()
    for name, place in layout.packages.items():
        files = sorted((root / place).rglob("*.py")) if (root / place).is_dir() else [root / place]
        for file in files:
            inside = file.relative_to(root / place).with_suffix("").parts if file != root / place else ()
            module = ".".join((name, *inside)).removesuffix(".__init__")
            text = None if _NO_MODULE.search(module) else read_code(file)
            if text is not None and not holds_tests(text):
                try:
                    tree = ast.parse(text)
                except (SyntaxError, ValueError, RecursionError):
                    continue
                if _is_for_another_system(tree):
                    continue
                code.modules[module] = (file.relative_to(root).as_posix(), tree)
                code.classes |= {
                    node.name: _class(node) for node in tree.body if isinstance(node, ast.ClassDef)
                }
    return code


def _class(node: ast.ClassDef) -> _Class:
    return _Class(
        bases=tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases),
        methods={one.name: one for one in node.body if isinstance(one, ast.FunctionDef)},
    )


def _changes(root: Path) -> dict[str, int]:
    """Return in how many of the last commits each file changed; what changes often can become slower."""
    listed = try_git(root, "log", f"-{_MOST_COMMITS}", "--format=", "--name-only", "--relative") or ""
    names = listed.splitlines()
    return {name: names.count(name) for name in set(names)}


def _weight(node: ast.FunctionDef | ast.ClassDef, *, uses_torch: bool) -> int:
    """Return how much a function or class is likely to compute: losses and metrics before plain functions."""
    losses = bool(re.search(r"[Ll]oss|[Dd]istance|[Mm]etric|[Ss]core|[Aa]ttention|[Ee]ncoder", node.name))
    return 2 * uses_torch + losses


def _is_for_another_system(tree: ast.Module) -> bool:
    """Tell whether a module imports, as its first act, one of Python's that this system lacks."""
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]
    return any(map(is_of_another_system, names))


def _imports(tree: ast.Module, library: str) -> bool:
    return any(
        (isinstance(node, ast.Import) and any(one.name.partition(".")[0] == library for one in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == library)
        for node in ast.walk(tree)
    )


def _attempts(
    node: ast.FunctionDef | ast.ClassDef, module: str, code: _Code, *, uses_torch: bool
) -> Iterator[Attempt]:
    """Yield the ways to call a function or class, with data of a size that takes time before examples."""
    own = f"from {module} import {node.name}"
    if isinstance(node, ast.FunctionDef):
        if not node.decorator_list or uses_torch:
            for setup, arguments in _calls(node, uses_torch=uses_torch):
                yield _attempt(own, (*setup, f"benchmark({', '.join((node.name, *arguments))})"))
    else:
        yield from (_attempt(own, body) for body in _class_bodies(node.name, code, uses_torch=uses_torch))
    yield from _examples(node, own, code)


def _class_bodies(name: str, code: _Code, *, uses_torch: bool) -> Iterator[tuple[str, ...]]:
    """Yield bodies for a metric (update, compute), a loss (with its gradients) or another module."""
    lines = tuple(_lineage(name, code))
    methods = {method: node for one in reversed(lines) for method, node in one.methods.items()}
    made = _made(name, methods.get("__init__"))
    if made is None or any(
        "Abstract" in base or base in {"ABC", "Protocol", "Enum"} for base in lines[0].bases
    ):
        return
    if "update" in methods and "compute" in methods:
        # A metric that forgets nothing would make each call slower than the one before.
        forgets = "reset" in methods or any("Metric" in one.bases for one in lines)
        for setup, arguments in _calls(methods["update"], uses_torch=uses_torch, method=True):
            yield _metric_body(made, setup, arguments, forgets=forgets)
    elif "forward" in methods:
        for setup, arguments in _calls(methods["forward"], uses_torch=True, method=True):
            if name.endswith("Loss") and any(_FLOATS in line for line in setup[:2]):
                yield _loss_body(made, setup, arguments)
            yield (f"module = {made}", *setup, f"benchmark({', '.join(('module', *arguments))})")
    elif "__call__" in methods:
        for setup, arguments in _calls(methods["__call__"], uses_torch=uses_torch, method=True):
            yield (f"call = {made}", *setup, f"benchmark({', '.join(('call', *arguments))})")


def _metric_body(
    made: str, setup: Sequence[str], arguments: Sequence[str], *, forgets: bool
) -> tuple[str, ...]:
    before = (f"metric = {made}",) if forgets else ()
    begins = "    metric.reset()" if forgets else f"    metric = {made}"
    update = f"    metric.update({', '.join(arguments)})"
    work = ("def work():", begins, update, "    return metric.compute()")
    return (*before, *setup, "", *work, "", "benchmark(work)")


def _loss_body(made: str, setup: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    learnt = f"{_FLOATS[:-1]}, requires_grad=True)"
    step = (
        "def step():",
        f"    value = loss({', '.join(arguments)})",
        "    value.backward()",
        "    return value",
    )
    data = (line.replace(_FLOATS, learnt) for line in setup)
    return (f"loss = {made}", *data, "", *step, "", "benchmark(step)")


def _lineage(name: str, code: _Code) -> Iterator[_Class]:
    """Yield a class and those of its bases that are the project's own, nearest first."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop(0)
        if one in code.classes and one not in seen:
            seen.add(one)
            yield code.classes[one]
            waiting += code.classes[one].bases


def _made(name: str, init: ast.FunctionDef | None) -> str | None:
    """Return the call that makes an object of a class, None where its arguments cannot be told."""
    given = []
    for parameter in _required(init, method=True) if init else ():
        value = _value(parameter)
        if value is None:
            return None
        given.append(f"{parameter.name}={value}")
    return f"{name}({', '.join(given)})"


def _calls(
    node: ast.FunctionDef, *, uses_torch: bool, method: bool = False
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield (lines that make the data, arguments) for ways to call a function, with labels before without."""
    parameters = list(_required(node, method=method))
    labels = list(_labels(node)) if uses_torch else []
    for some in ([*parameters, *labels], parameters) if labels else (parameters,):
        yield from _calls_with(some, uses_torch=uses_torch)


def _calls_with(
    parameters: Sequence[_Parameter], *, uses_torch: bool
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    if any(_NOT_GIVEN.search(one.name) for one in parameters):
        return
    data = [one for one in parameters if _is_data(one, uses_torch=uses_torch)]
    fixed = {one.name: _value(one) for one in parameters if one not in data}
    if None in fixed.values() or not parameters or not data:
        return
    for values in _data(data, uses_torch=uses_torch):
        made = dict(zip((one.name for one in data), values, strict=True))
        random = ("torch.manual_seed(0)",) if any("torch." in value for value in values) else ()
        setup = (*random, *(f"{name} = {value}" for name, value in made.items()))
        yield setup, tuple(one.name if one.name in made else str(fixed[one.name]) for one in parameters)


def _required(node: ast.FunctionDef, *, method: bool = False) -> Iterator[_Parameter]:
    """Yield the parameters that must be given."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
    first = 1 if method and not static else 0
    needed = len(positional) - len(arguments.defaults)
    for one in positional[first:needed]:
        yield _Parameter(name=one.arg, hint=ast.unparse(one.annotation) if one.annotation else "")
    if arguments.vararg and arguments.vararg.annotation is None and method:
        yield from (_Parameter(name=name, hint="Tensor") for name in ("preds", "target"))
    if any(default is None for default in arguments.kw_defaults):
        yield _Parameter(name=arguments.kwonlyargs[0].arg, hint="no value is known for this")


def _labels(node: ast.FunctionDef) -> Iterator[_Parameter]:
    """Yield the parameter of labels that may be None, where it follows those that must be given."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    if arguments.defaults and _LABELS.search(positional[first].arg):
        default = arguments.defaults[0]
        if isinstance(default, ast.Constant) and default.value is None:
            yield _Parameter(name=positional[first].arg, hint="Tensor")


def _is_data(parameter: _Parameter, *, uses_torch: bool) -> bool:
    if any(word in parameter.hint for word in ("Tensor", "ndarray", "ArrayLike")):
        return True
    if parameter.hint:
        return not uses_torch and _plain(parameter) is not None
    return parameter.name not in _SIZES and parameter.name not in _TASKS


def _data(data: Sequence[_Parameter], *, uses_torch: bool) -> Iterator[tuple[str, ...]]:
    """Yield values for the parameters that take data; labels are tried as classes first."""
    if any(word in one.hint for one in data for word in ("ndarray", "ArrayLike")):
        yield from ((array,) * len(data) for array in _ARRAYS)
    elif uses_torch or any("Tensor" in one.hint for one in data):
        ways = list(_TENSORS.get(len(data), ()))
        if len(data) > 1 and _LABELS.search(data[1].name):
            ways.sort(key=lambda way: "randint" not in way[1])
        if any(_IMAGES.search(one.name) for one in data):
            ways.sort(key=lambda way: "3, " not in way[0])
        yield from ways
    else:
        values = [_plain(one) for one in data]
        if all(values):
            yield tuple(str(value) for value in values)
        yield from ((plain,) * len(data) for plain in _PLAIN if not any(one.hint for one in data))


def _plain(parameter: _Parameter) -> str | None:
    """Return plain data for a type hint: numbers, a text, a list of either."""
    hint = parameter.hint.replace("typing.", "")
    if re.match(r"(?:[Ll]ist|Sequence|Iterable|Collection|[Tt]uple)(?:\[(?:int|float|Any|T)\b.*)?$", hint):
        return _PLAIN[0]
    if re.match(r"(?:[Ll]ist|Sequence|Iterable)\[str\]$", hint):
        return '[f"word {number}" for number in range(1000)]'
    return {"str": _PLAIN[1], "int": _PLAIN[2], "float": "1234.567", "bytes": f"b{_PLAIN[1]}"}.get(hint)


def _value(parameter: _Parameter) -> str | None:
    """Return a value for a parameter that takes no data, None where none is known."""
    if _NOT_GIVEN.search(parameter.name):
        return None
    choice = re.search(r"Literal\[\s*(\"[^\"]*\"|'[^']*'|\d+)", parameter.hint)
    if choice:
        return choice[1]
    if parameter.name in _SIZES and parameter.hint in {"", "int", "float"}:
        return _SIZES[parameter.name]
    if parameter.name in _TASKS and parameter.hint in {"", "str"}:
        return _TASKS[parameter.name]
    if parameter.hint == "int" or (
        not parameter.hint and re.search(r"dim|size|features|hidden", parameter.name)
    ):
        return "64"
    return {"float": "0.5", "bool": "False"}.get(parameter.hint)


def _attempt(own: str, body: Sequence[str]) -> Attempt:
    text = "\n".join(body)
    libraries = [
        line for word, line in (("np.", "import numpy as np"), ("torch.", "import torch")) if word in text
    ]
    return Attempt(imports=(*libraries, own), body=tuple(body))


def _examples(node: ast.FunctionDef | ast.ClassDef, own: str, code: _Code) -> Iterator[Attempt]:
    """Yield the first example of a docstring that calls the function or an object of the class."""
    try:
        examples = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
        trees = [ast.parse(example.source) for example in examples]
    except (ValueError, SyntaxError, RecursionError):
        return
    statements = [statement for tree in trees for statement in tree.body]
    imports = [one for one in statements if isinstance(one, (ast.Import, ast.ImportFrom))]
    lines: list[str] = []
    names = {node.name}
    for statement in statements:
        call = _call_of(statement, names)
        if call is not None and not (
            isinstance(node, ast.ClassDef) and isinstance(call.func, ast.Name) and call.func.id == node.name
        ):
            lines += _gathering(call) if _is_metric(node.name, code) else [_benchmarked(call)]
            wanted = [ast.unparse(one) for one in imports]
            already = any(node.name in line for line in wanted)
            body = [line for text in lines for line in text.splitlines()]
            if len(body) <= _MOST_EXAMPLE_LINES and all(len(line) <= _LONGEST_LINE for line in body):
                yield Attempt(imports=(*wanted, *(() if already else (own,))), body=tuple(body))
            return
        if statement not in imports:
            lines.append(ast.unparse(statement))
        if isinstance(statement, ast.Assign) and call is not None:
            names |= {one.id for one in statement.targets if isinstance(one, ast.Name)}


def _is_metric(name: str, code: _Code) -> bool:
    """Tell whether a name is that of a class that gathers what it is given until it is reset."""
    methods = {method for one in _lineage(name, code) for method in one.methods}
    return {"update", "compute"} <= methods


def _gathering(call: ast.Call) -> list[str]:
    """Return the lines that benchmark a call of a metric, which forgets what it was given each time."""
    owner = ast.unparse(call.func).partition(".")[0]
    inner = ("def work():", f"    {owner}.reset()", f"    return {ast.unparse(call)}")
    return ["", *inner, "", "benchmark(work)"]


def _call_of(statement: ast.stmt, names: set[str]) -> ast.Call | None:
    """Return the call that a statement makes of one of the names, or of an attribute of one."""
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
        return None
    function: ast.expr = statement.value.func
    while isinstance(function, ast.Attribute):
        if function.attr in names:
            return statement.value
        function = function.value
    return statement.value if isinstance(function, ast.Name) and function.id in names else None


def _benchmarked(call: ast.Call) -> str:
    """Return the line that has a call benchmarked."""
    given = [ast.unparse(one) for one in (call.func, *call.args)]
    named = [
        f"{one.arg}={ast.unparse(one.value)}" if one.arg else f"**{ast.unparse(one.value)}"
        for one in call.keywords
    ]
    return f"benchmark({', '.join((*given, *named))})"


def module_of(file: str) -> str:
    """Return the name by which a file's benchmark is told: "losses" for "src/package/losses.py"."""
    path = PurePosixPath(file)
    return path.parent.name if path.stem == "__init__" else path.stem
