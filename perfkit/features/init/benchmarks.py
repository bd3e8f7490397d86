"""First benchmarks: ways to call public functions and classes, of which those that run are kept."""

from __future__ import annotations

import ast
import doctest
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from perfkit.features.init.child import Attempt, Candidate, FirstBenchmark, Order, Step, is_good, is_passable
from perfkit.features.init.layout import Layout, holds_tests, read_code
from perfkit.repo.environments import is_of_another_system
from perfkit.repo.git import try_git
from perfkit.runner.requests import ask
from perfkit.temporary import temporary_folder
from perfkit.units import human_seconds

# Such functions write files, show something, use a network, or train as a whole.
_NOT_CALLED = re.compile(
    r"^_|^(?:main|cli|run|train|fit|evaluate|plot|show|print|save|load|write|read|open|download|upload|delete"
    r"|remove|clean|move|copy|install|register|set|reset|setup|configure|init|log|test|warn|raise|deprecat|exit)"
    r"(?:_|$)"
)
_NO_MODULE = re.compile(
    r"(?:^|[./])(?:_\w+|test\w*|cli|version|conftest|setup|vendor\w*|deprecated)(?=$|[./])"
)
_FLOATS = "torch.rand(256, 64)"
_CLASSES = "torch.randint(10, (256,))"
# Stand-ins for the data, by the number of arguments that take some: the first way that runs is kept.
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
}
_ARRAYS = ("np.random.default_rng(0).random((256, 64))", "np.random.default_rng(0).random(1024)")
_NUMBERS = "[number * 7 % 1000 for number in range(1000)]"
_TEXT = '"The quick brown fox jumps over the lazy dog. " * 20'
_PLAIN = (_NUMBERS, _TEXT, "1234567")
# Data and settings by their type hints.
_DATA = {"str": _TEXT, "int": "1234567", "float": "1234.567", "bytes": f"b{_TEXT}"}
_SETTINGS = {"int": "64", "float": "0.5", "bool": "False"}
_MOST_ATTEMPTS = 8
_LONGEST_LINE = 100
_MOST_EXAMPLE_LINES = 10
_MOST_COMMITS = 200
_ENOUGH = 5
_LIMIT_S = 90.0
_MOST_CANDIDATES = 400


@dataclass(frozen=True, kw_only=True)
class _Class:
    """A class of the project: the names of its bases, and its own methods."""

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

    def lineage(self, name: str) -> Iterator[_Class]:
        """Yield a class and those of its bases that are the project's own, nearest first."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop(0)
            if one in self.classes and one not in seen:
                seen.add(one)
                yield self.classes[one]
                waiting += self.classes[one].bases

    def methods(self, name: str) -> dict[str, ast.FunctionDef]:
        """Return the methods of a class, inherited ones included."""
        lines = tuple(self.lineage(name))
        return {method: node for one in reversed(lines) for method, node in one.methods.items()}


def find_candidates(root: Path, layout: Layout) -> tuple[Candidate, ...]:
    """Return ways to call functions and classes: those of torch first, then files that change often."""
    code = _read(root, layout)
    listed = try_git(root, "log", f"-{_MOST_COMMITS}", "--format=", "--name-only", "--relative") or ""
    changes = listed.splitlines()
    ranked = []
    for module, (file, tree) in code.modules.items():
        uses_torch = _imports(tree, "torch")
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not _NOT_CALLED.match(node.name):
                attempts = tuple(_attempts(node, module, code, uses_torch=uses_torch))[:_MOST_ATTEMPTS]
                if attempts:
                    candidate = Candidate(module=module, name=node.name, file=file, attempts=attempts)
                    ranked.append((not uses_torch, -changes.count(file), candidate))
    return tuple(found for *_, found in sorted(ranked, key=lambda one: one[:2]))


def _read(root: Path, layout: Layout) -> _Code:
    code = _Code()
    for name, place in layout.packages.items():
        files = sorted((root / place).rglob("*.py")) if (root / place).is_dir() else [root / place]
        for file in files:
            inside = file.relative_to(root / place).with_suffix("").parts if file != root / place else ()
            module = ".".join((name, *inside)).removesuffix(".__init__")
            text = None if _NO_MODULE.search(module) else read_code(file)
            if text is None or holds_tests(text):
                continue
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError):
                continue
            if _is_for_another_system(tree):
                continue
            code.modules[module] = (file.relative_to(root).as_posix(), tree)
            code.classes |= {
                node.name: _Class(
                    bases=tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases),
                    methods={one.name: one for one in node.body if isinstance(one, ast.FunctionDef)},
                )
                for node in tree.body
                if isinstance(node, ast.ClassDef)
            }
    return code


def _is_for_another_system(tree: ast.Module) -> bool:
    """Return whether a module imports, as its first act, one of Python's that this system lacks."""
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
    if isinstance(node, ast.ClassDef):
        yield from (_attempt(own, body) for body in _class_bodies(node.name, code, uses_torch=uses_torch))
    elif not node.decorator_list or uses_torch:
        for setup, arguments in _calls(node, uses_torch=uses_torch):
            yield _attempt(own, (*setup, f"benchmark({', '.join((node.name, *arguments))})"))
    yield from _examples(node, own, code)


def _class_bodies(name: str, code: _Code, *, uses_torch: bool) -> Iterator[tuple[str, ...]]:
    """Yield bodies for a metric (update, compute), a loss (with its gradients) or another module."""
    lines, methods = tuple(code.lineage(name)), code.methods(name)
    made = _made(name, methods.get("__init__"))
    if made is None or any(
        "Abstract" in base or base in {"ABC", "Protocol", "Enum"} for base in lines[0].bases
    ):
        return
    if "update" in methods and "compute" in methods:
        # A metric that forgets nothing would make each call slower than the one before.
        forgets = "reset" in methods or any("Metric" in one.bases for one in lines)
        before = (f"metric = {made}",) if forgets else ()
        begins = "    metric.reset()" if forgets else f"    metric = {made}"
        for setup, arguments in _calls(methods["update"], uses_torch=uses_torch, method=True):
            update = f"    metric.update({', '.join(arguments)})"
            work = ("def work():", begins, update, "    return metric.compute()")
            yield (*before, *setup, "", *work, "", "benchmark(work)")
    elif "forward" in methods:
        for setup, arguments in _calls(methods["forward"], uses_torch=True, method=True):
            if name.endswith("Loss") and any(_FLOATS in line for line in setup[:2]):
                data = (line.replace(_FLOATS, f"{_FLOATS[:-1]}, requires_grad=True)") for line in setup)
                value = f"    value = loss({', '.join(arguments)})"
                step = ("def step():", value, "    value.backward()", "    return value")
                yield (f"loss = {made}", *data, "", *step, "", "benchmark(step)")
            yield (f"module = {made}", *setup, f"benchmark({', '.join(('module', *arguments))})")
    elif "__call__" in methods:
        for setup, arguments in _calls(methods["__call__"], uses_torch=uses_torch, method=True):
            yield (f"call = {made}", *setup, f"benchmark({', '.join(('call', *arguments))})")


def _made(name: str, init: ast.FunctionDef | None) -> str | None:
    """Return the call that makes an object of a class, None where its arguments are not known."""
    given = {one.name: _setting(one) for one in (_required(init, method=True) if init else ())}
    if None in given.values():
        return None
    return f"{name}({', '.join(f'{argument}={value}' for argument, value in given.items())})"


def _calls(
    node: ast.FunctionDef, *, uses_torch: bool, method: bool = False
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield (lines that make the data, arguments) for ways to call a function."""
    parameters = list(_required(node, method=method))
    data = [one for one in parameters if _is_data(one, uses_torch=uses_torch)]
    fixed = {one.name: _setting(one) for one in parameters if one not in data}
    if None in fixed.values() or not data:
        return
    for values in _stand_ins(data, uses_torch=uses_torch):
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
    for one in positional[first : len(positional) - len(arguments.defaults)]:
        yield _Parameter(name=one.arg, hint=ast.unparse(one.annotation) if one.annotation else "")
    if any(default is None for default in arguments.kw_defaults):
        yield _Parameter(name=arguments.kwonlyargs[0].arg, hint="no value is known for this")


def _is_data(parameter: _Parameter, *, uses_torch: bool) -> bool:
    if not parameter.hint or any(word in parameter.hint for word in ("Tensor", "ndarray", "ArrayLike")):
        return True
    return not uses_torch and _plain(parameter) is not None


def _stand_ins(data: Sequence[_Parameter], *, uses_torch: bool) -> Iterator[tuple[str, ...]]:
    """Yield values for the parameters that take data."""
    if any(word in one.hint for one in data for word in ("ndarray", "ArrayLike")):
        yield from ((array,) * len(data) for array in _ARRAYS)
    elif uses_torch or any("Tensor" in one.hint for one in data):
        yield from _TENSORS.get(len(data), ())
    else:
        values = tuple(filter(None, map(_plain, data)))
        if len(values) == len(data):
            yield values
        yield from ((plain,) * len(data) for plain in _PLAIN if not any(one.hint for one in data))


def _plain(parameter: _Parameter) -> str | None:
    """Return plain data for a type hint: numbers, a text, a list of either."""
    kind, _, inner = parameter.hint.replace("typing.", "").removesuffix("]").partition("[")
    if kind.lower() in {"list", "sequence", "iterable", "collection", "tuple"}:
        plain = {"str": '[f"word {number}" for number in range(1000)]'}
        return plain.get(
            inner, _NUMBERS if inner.partition(",")[0] in {"", "int", "float", "Any", "T"} else None
        )
    return _DATA.get(kind) if not inner else None


def _setting(parameter: _Parameter) -> str | None:
    """Return a value for a parameter that takes no data, None where none is known."""
    choice = re.search(r"Literal\[\s*(\"[^\"]*\"|'[^']*'|\d+)", parameter.hint)
    return choice[1] if choice else _SETTINGS.get(parameter.hint)


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
            lines += (
                _gathering(call)
                if {"update", "compute"} <= code.methods(node.name).keys()
                else [_benchmarked(call)]
            )
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
    """Return the name by which a file's benchmark is named: "losses" for "src/package/losses.py"."""
    path = PurePosixPath(file)
    return path.parent.name if path.stem == "__init__" else path.stem


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The benchmarks that ran, how many were tried, why one did not run, and whose calls they are."""

    kept: tuple[FirstBenchmark, ...]
    tried: int
    import_problem: str | None = None
    source: str = ""


def try_candidates(
    candidates: Sequence[Candidate],
    *,
    root: Path,
    sources: Sequence[str],
    limit_s: float = _LIMIT_S,
    log: Callable[[str], None],
) -> Tried:
    """Try candidates in order until enough ran, or the time is over."""
    left = list(candidates[:_MOST_CANDIDATES])
    kept: list[FirstBenchmark] = []
    reserve: list[FirstBenchmark] = []
    problems: list[str] = []
    tried, deadline = 0, time.monotonic() + limit_s
    while left and len(kept) < _ENOUGH and time.monotonic() < deadline:
        log(f"trying which of {len(left)} functions and classes can be called")
        order = Order(
            root=str(root),
            sources=tuple(sources),
            candidates=tuple(left),
            enough=_ENOUGH - len(kept),
        )
        with temporary_folder() as folder:
            left_s = deadline - time.monotonic()
            reply = ask("perfkit.features.init.child:main", order, Step, limit_s=left_s, folder=folder)
        steps = reply.messages
        good, others = _sorted_out(steps, left)
        kept, reserve = [*kept, *good], [*reserve, *others]
        problems += [step.problem for step in steps if step.problem and step.attempt < 0]
        last = max((step.candidate for step in steps), default=len(left))
        tried += min(last + 1, len(left))
        if reply.ending.status == 0:
            break
        modules = {one.candidate.module for one in kept}
        left = [one for one in left[last + 1 :] if one.module not in modules]
    modules = {one.candidate.module for one in kept}
    for one in reserve:
        if len(kept) < _ENOUGH and one.candidate.module not in modules:
            kept.append(one)
            modules.add(one.candidate.module)
    # A module that is meant for another system keeps nobody from measuring the others.
    missing = "No module named "
    problems.sort(key=lambda problem: is_of_another_system(problem.rpartition(missing)[2].strip("'")))
    return Tried(kept=tuple(kept), tried=tried, import_problem=problems[0] if problems else None)


def _sorted_out(
    steps: Sequence[Step], candidates: Sequence[Candidate]
) -> tuple[list[FirstBenchmark], list[FirstBenchmark]]:
    """Return what ran and takes a good time, and what ran and takes a passable one, each once."""
    good: dict[int, FirstBenchmark] = {}
    others: dict[int, FirstBenchmark] = {}
    for step in steps:
        if step.call_s is not None and is_passable(step.call_s):
            candidate = candidates[step.candidate]
            one = FirstBenchmark(
                candidate=candidate, attempt=candidate.attempts[step.attempt], call_s=step.call_s
            )
            into = good if is_good(step.call_s) else others
            into.setdefault(step.candidate, one)
    return list(good.values()), [one for number, one in others.items() if number not in good]


def benchmark_file(
    kept: Sequence[FirstBenchmark], *, project: str, optional: bool, command: str = "perfkit init"
) -> str:
    """Return the file of first benchmarks; an ``optional`` one is skipped without pytest-benchmark."""
    named = list(_with_names(kept))
    imports = sorted(
        {line for one in kept for line in one.attempt.imports},
        key=lambda line: (line.startswith("from "), line),
    )
    heading: tuple[str, ...] = (
        f'"""First benchmarks of {project}, written by `{command}`: change them, add others, delete them.',
        "",
        "Each was run once before it was written here. Replace the data by data like yours.",
        '"""',
        "",
    )
    if optional:
        heading += ("import pytest", "", 'pytest.importorskip("pytest_benchmark")', "")
        imports = [f"{line}  # noqa: E402" for line in imports]
    parts = ["\n".join((*heading, *imports))]
    for name, one in named:
        summary = f'"""{one.candidate.name}: {human_seconds(one.call_s)} a call when this was written."""'
        lines = [
            f"def test_{name}(benchmark):",
            *(f"    {line}" if line else "" for line in (summary, *one.attempt.body)),
        ]
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts) + "\n"


def _with_names(kept: Sequence[FirstBenchmark]) -> Iterator[tuple[str, FirstBenchmark]]:
    """Yield each benchmark with a name of its own."""
    seen: set[str] = set()
    for one in kept:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", one.candidate.name).lower()
        name = re.sub(r"[._]+", "_", name).strip("_")
        if name in seen:
            name = f"{module_of(one.candidate.file)}_{name}"
        while name in seen:
            name += "_again"
        seen.add(name)
        yield name, one


def with_distinct_imports(kept: Sequence[FirstBenchmark]) -> tuple[FirstBenchmark, ...]:
    """Return benchmarks whose imports do not take each other's names: a later one has it in its body."""
    taken: dict[str, str] = {}
    result = []
    for one in kept:
        inner = []
        for line in one.attempt.imports:
            names = [part.partition(" as ")[2] or part for part in line.partition("import ")[2].split(", ")]
            if any(taken.get(name, line) != line for name in names):
                inner.append(line)
            else:
                taken |= dict.fromkeys(names, line)
        attempt = replace(
            one.attempt,
            imports=tuple(line for line in one.attempt.imports if line not in inner),
            body=(*inner, *one.attempt.body),
        )
        result.append(replace(one, attempt=attempt))
    return tuple(result)
