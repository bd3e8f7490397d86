"""First benchmarks: calls that tests and examples make, or that are made up; those that run are kept."""

from __future__ import annotations

import ast
import contextlib
import doctest
import fnmatch
import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import msgspec

from perfkit.errors import NotMeasuredError
from perfkit.features.init.child import Attempt, Candidate, FirstBenchmark, Order, Step, is_good, is_passable
from perfkit.features.init.layout import Layout, holds_tests, project_files, read_code
from perfkit.features.init.recording import TOO_LARGE, VARIABLE, Call
from perfkit.repo.code_units import changed_functions
from perfkit.repo.commits import open_repository, read_at
from perfkit.repo.environments import is_of_another_system
from perfkit.repo.git import try_git
from perfkit.runner.commands import Ending, run_command
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


_RECORDING = "perfkit.features.init.recording"
# So long may tests and each script run, and what they call be tried.
_TESTS_S, _SCRIPT_S, _TRYING_S = 120.0, 30.0, 60.0
# After so many seconds of CPU time no other test begins, to find what is called longest and to record it.
_LOOKING_S, _MOST_LOOKING_S = 8.0, 60.0
# Statuses of pytest: wrong usage, and an error of its own.
_PYTEST_FAILED = (3, 4)
# This many functions are recorded, of which this many become first benchmarks.
_MOST_RECORDED, _MOST_PROPOSED = 30, 5
_SOURCES = _TESTS, _DOCSTRINGS, _ = "the tests", "the docstrings' examples", "the README's examples"
_READMES = ("README.md", "README.rst", "README.txt", "README")
# The lines that run a notebook, without what only Jupyter knows.
_NOTEBOOK = (
    "notebook = Path(__file__).resolve().parents[1] / PLACE",
    "cells = json.loads(notebook.read_text())['cells']",
    "code = '\\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code')",
    "code = compile(re.sub('(?m)^[%!].*$', '', code), str(notebook), 'exec')",
    "benchmark(lambda: exec(code, {'__name__': '__main__'}))",
)
_BLOCK = re.compile(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Each example may need a library or a file that is not there.
_SCRIPT = """\
for block in {blocks!r}:
    try:
        exec(compile(block, "README", "exec"), globals())
    except Exception:
        pass
"""
_Key = tuple[str, str]


def longest_calls(
    root: Path, layout: Layout, log: Callable[[str], None]
) -> tuple[tuple[FirstBenchmark, ...], str, tuple[str, ...]]:
    """Return benchmarks of what tests, docstrings or the README call longest.

    Returns:
        The benchmarks, the sources of their calls, and the functions whose arguments are too large to write.
    """
    places = [str((root / place).resolve()) for place in layout.packages.values()]
    changed = _last_changed(root) & {(file, name) for file, _, name in _public(root, layout)}
    proposed: list[FirstBenchmark] = []
    sources: list[str] = []
    too_large: dict[_Key, str] = {}

    def is_changed(one: FirstBenchmark) -> bool:
        return (one.candidate.file, one.candidate.name) in changed

    for source in _SOURCES:
        with temporary_folder() as folder:
            words = _words(source, root, layout, folder, changed)
            if not words or not places:
                continue
            log(f"running {source} for at most {2 * _LOOKING_S:.0f} s, to find what they call longest")
            lines, _ = _run(root, layout, words, limit_s=_MOST_LOOKING_S, places=places, stop_s=_LOOKING_S)
            # After a first source, only what the last commit changed is missing.
            keys = [key for key in _longest(root, layout, lines) if not proposed or key in changed]
            # What the last commit cost is asked next.
            keys.sort(key=lambda key: key not in changed)
            keys = keys[:_MOST_RECORDED]
            if not keys:
                continue
            words = _words(source, root, layout, folder, keys)
            lines, _ = _run(root, layout, words, limit_s=_MOST_LOOKING_S, functions=keys, stop_s=_LOOKING_S)
        called = _decoded(lines)
        calls = {key: [one for one in found if one.direct] for key, found in called.items()}
        too_large |= {key: key[1] for key, found in called.items() if _are_too_large(found)}
        kept, _ = tried(root, layout, calls) if calls else ({}, {})
        ranked = [kept[key] for key in keys if key in kept]
        good = [one for one in ranked if is_good(one.call_s)]
        passable = [one for one in ranked if is_passable(one.call_s) and one not in good]
        if found := [*good, *passable]:
            proposed += found
            sources.append(source)
        if proposed and (not changed or any(map(is_changed, proposed))):
            break
    proposed.sort(key=is_changed, reverse=True)
    distinct = {one.attempt.body: one for one in proposed}
    for one in proposed:
        too_large.pop((one.candidate.file, one.candidate.name), None)
    return tuple(distinct.values())[:_MOST_PROPOSED], " and ".join(sources), tuple(too_large.values())


def _are_too_large(calls: Sequence[Call]) -> bool:
    return not any(one.direct for one in calls) and any(one.problem.endswith(TOO_LARGE) for one in calls)


def notebook_runs(root: Path, layout: Layout) -> tuple[FirstBenchmark, ...]:
    """Return benchmarks of the notebooks that run from top to bottom."""
    calls = {}
    for place in [name for name in project_files(root) if name.endswith(".ipynb")][:_MOST_PROPOSED]:
        attempt = Attempt(
            imports=("import json", "import re", "from pathlib import Path"),
            body=tuple(line.replace("PLACE", repr(place)) for line in _NOTEBOOK),
            may_return_nothing=True,
        )
        name = re.sub(r"\W+", "_", PurePosixPath(place).stem)
        one = Call(file=place, name=name, module="", by="", direct=True, attempt=attempt, problem="")
        calls[place, name] = [one]
    return tuple(tried(root, layout, calls)[0].values()) if calls else ()


def _words(source: str, root: Path, layout: Layout, folder: Path, keys: Collection[_Key]) -> Sequence[str]:
    """Return the words after ``python -m`` that run tests or examples, those that call ``keys`` first."""
    if source == _TESTS:
        tests = _tests(root, layout, keys)
        return _pytest(*tests) if tests else ()
    if source == _DOCSTRINGS:
        files = [file for file in _files(root, layout) if ">>> " in (read_code(file) or "")]
        top = open_repository(root)
        wanted = {(top / file).resolve() for file, _ in keys}
        files.sort(key=lambda file: file.resolve() not in wanted)
        return _pytest("--doctest-modules", *(str(file.relative_to(root)) for file in files)) if files else ()
    blocks: list[str] = []
    for text in filter(None, (read_code(root / name) for name in _READMES)):
        with contextlib.suppress(ValueError):
            blocks += (one.source for one in doctest.DocTestParser().get_examples(text))
        blocks += (one for one in _BLOCK.findall(text) if ">>>" not in one)
    script = folder / "README"
    script.write_text(_SCRIPT.format(blocks=blocks), encoding="utf-8")
    return (_RECORDING, str(script)) if blocks else ()


def _pytest(*words: str) -> tuple[str, ...]:
    options = ("-p", _RECORDING, "-p", "no:cacheprovider", "-q", "--continue-on-collection-errors")
    return "pytest", *options, "--assert=plain", "--benchmark-disable", *words


def _longest(root: Path, layout: Layout, lines: Sequence[str]) -> list[_Key]:
    """Return the public functions among those that code of others called, the longest first."""
    named = {(file, line): name for file, line, name in _public(root, layout)}
    found: Counter[_Key] = Counter()
    for file, line, seconds in map(json.loads, lines):
        if name := named.get((file, line)):
            found[file, name] += seconds
    return [key for key, _ in found.most_common()]


def _last_changed(root: Path) -> frozenset[_Key]:
    """Return the functions that the last commit changed, by file and name."""
    top = open_repository(root)
    names = try_git(top, "diff", "--name-only", "--no-renames", "HEAD~1", "HEAD", "--", "*.py") or ""
    return frozenset(
        (file, function)
        for file in names.splitlines()[:_MOST_RECORDED]
        for function in changed_functions(*(read_at(top, sha, file) or b"" for sha in ("HEAD~1", "HEAD")))
        or ()
    )


def _public(root: Path, layout: Layout) -> Iterator[tuple[str, int, str]]:
    """Yield file, first line and name of the public functions and methods of a project."""
    top = open_repository(root).resolve()
    exported = " ".join(read_code(root / place / "__init__.py") or "" for place in layout.packages.values())
    for file in _files(root, layout):
        try:
            tree = ast.parse(read_code(file) or "")
        except (SyntaxError, ValueError, RecursionError):
            continue
        is_private = re.search(r"/_[^_]", file.relative_to(root).as_posix())
        for line, function in _functions(tree, ""):
            if not is_private or re.search(rf"\b{function.partition('.')[0]}\b", exported):
                yield file.resolve().relative_to(top).as_posix(), line, function


def _files(root: Path, layout: Layout) -> Iterator[Path]:
    for place in layout.packages.values():
        yield from sorted((root / place).rglob("*.py")) if (root / place).is_dir() else [root / place]


def _functions(tree: ast.Module | ast.ClassDef, begin: str) -> Iterator[tuple[int, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _functions(node, f"{begin}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and re.match(r"[^_]|__(init|call)__", node.name):
            yield min([node.lineno, *(one.lineno for one in node.decorator_list)]), begin + node.name


def recorded(
    root: Path, layout: Layout, left: Collection[_Key], log: Callable[[str], None]
) -> tuple[Mapping[_Key, Sequence[Call]], str]:
    """Run the tests, and scripts for the rest; return the calls by function, and why others have none."""
    log("running the tests, to record how they call the functions")
    tests = _pytest(*_tests(root, layout, left))
    lines, ending = _run(root, layout, tests, limit_s=_TESTS_S, functions=[*left])
    if ending.status in _PYTEST_FAILED:
        raise NotMeasuredError(f"the tests cannot be run: pytest {ending.words}")
    for script in layout.scripts:
        calls = _decoded(lines)
        wanted = [key for key in left if not any(call.attempt for call in calls.get(key, ()))]
        lines += _run(root, layout, (_RECORDING, script.path), limit_s=_SCRIPT_S, functions=wanted)[0]
    over = ending.status is None
    why = f"no test called it in {_TESTS_S:.0f} s" if over else "no test or script calls it"
    return _decoded(lines), why


def _run(
    root: Path, layout: Layout, words: Sequence[str], *, limit_s: float, **asked: object
) -> tuple[list[str], Ending]:
    """Run a module of Python that reports what was asked for; return its lines, and how it ended."""
    places = [*(str(root / source) for source in layout.sources), os.environ.get("PYTHONPATH", "")]
    top = str(open_repository(root).resolve())
    with temporary_folder() as folder:
        out = folder / "calls"
        out.write_text("")
        order = {"root": top, "packages": [*layout.packages], "out": str(out), **asked}
        variables = {VARIABLE: json.dumps(order), "PYTHONPATH": os.pathsep.join(filter(None, places))}
        ending = run_command(
            [sys.executable, "-m", *words],
            output=folder / "log",
            limit_s=limit_s,
            environment={**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"},
            folder=root,
        )
        return out.read_text(encoding="utf-8").splitlines(), ending


def _decoded(lines: Sequence[str]) -> Mapping[_Key, Sequence[Call]]:
    calls: dict[_Key, list[Call]] = defaultdict(list)
    for line in lines:
        call = msgspec.json.decode(line, type=Call)
        calls[call.file, call.name].append(call)
    return calls


def _tests(root: Path, layout: Layout, left: Collection[_Key]) -> list[str]:
    """Return the files of tests, those first that mention the functions that few mention."""
    names = {part for _, name in left for part in name.split(".") if not part.startswith("__")}
    mentioned = {
        file: {name for name in names if name in (read_code(root / file) or "")}
        for file in project_files(root)
        if any(fnmatch.fnmatch(PurePosixPath(file).name, pattern) for pattern in layout.python_files)
    }
    often = Counter(name for found in mentioned.values() for name in found)
    return sorted(mentioned, key=lambda file: -sum(1 / often[name] for name in mentioned[file]))


def tried(
    root: Path, layout: Layout, calls: Mapping[_Key, Sequence[Call]]
) -> tuple[Mapping[_Key, FirstBenchmark], Mapping[_Key, str]]:
    """Return a benchmark of each function that can be called, and why there is none of the others."""
    # Where a test as a whole was tried, why its call was not is the better reason.
    problems = {
        key: f"{one.by} gives it {one.problem}"
        for key, found in calls.items()
        for one in found[:1]
        if one.problem
    }
    candidates = [*_candidates(calls)]
    order = Order(root=str(root), sources=layout.sources, candidates=tuple(candidates), every=True)
    with temporary_folder() as folder:
        reply = ask("perfkit.features.init.child:main", order, Step, limit_s=_TRYING_S, folder=folder)
    kept: dict[_Key, FirstBenchmark] = {}
    for step in reply.messages:
        candidate = candidates[step.candidate]
        key, attempt = (candidate.file, candidate.name), candidate.attempts[step.attempt]
        if step.call_s is not None:
            attempt = replace(attempt, body=attempt.anew) if step.is_anew else attempt
            kept[key] = FirstBenchmark(candidate=candidate, attempt=attempt, call_s=step.call_s)
        elif step.problem:
            problems.setdefault(key, f"called as the tests do, it ends with {step.problem}")
    return kept, problems


def _candidates(calls: Mapping[_Key, Sequence[Call]]) -> Iterator[Candidate]:
    """Yield the ways to call each function, those with the most data first, and tests as a whole last."""
    for (file, name), found in calls.items():
        ranked = sorted(found, key=lambda call: (not call.direct, -len(str(call.attempt))))
        if attempts := tuple(call.attempt for call in ranked if call.attempt):
            yield Candidate(module=found[0].module, name=name, file=file, attempts=attempts)
