"""Benchmarks of the calls that a project's tests, docstrings, README and scripts make of its functions."""

from __future__ import annotations

import ast
import contextlib
import doctest
import fnmatch
import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec

from perfkit.errors import NotMeasuredError
from perfkit.features.init.child import Attempt, Candidate, FirstBenchmark, Order, Step, is_good, is_passable
from perfkit.features.init.layout import Layout, project_files, read_code
from perfkit.features.init.recording import TOO_LARGE, VARIABLE, Call
from perfkit.repo.code_units import changed_functions
from perfkit.repo.commits import open_repository, read_at
from perfkit.repo.git import try_git
from perfkit.runner.commands import Ending, run_command
from perfkit.runner.requests import ask
from perfkit.temporary import temporary_folder

_RECORDING = "perfkit.features.init.recording"
# So long may tests and each script run, and what they call be tried.
_TESTS_S, _SCRIPT_S, _TRYING_S = 120.0, 30.0, 60.0
# After so many seconds of CPU time no other test begins, to find what is called longest and to record it.
_LOOKING_S, _MOST_LOOKING_S = 8.0, 60.0
# Statuses of pytest: wrong usage, and an error of its own.
_PYTEST_FAILED = (3, 4)
# This many functions are recorded, of which this many become first benchmarks.
_MOST_RECORDED, _ENOUGH = 30, 5
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
    return tuple(distinct.values())[:_ENOUGH], " and ".join(sources), tuple(too_large.values())


def _are_too_large(calls: Sequence[Call]) -> bool:
    return not any(one.direct for one in calls) and any(one.problem.endswith(TOO_LARGE) for one in calls)


def notebook_runs(root: Path, layout: Layout) -> tuple[FirstBenchmark, ...]:
    """Return benchmarks of the notebooks that run from top to bottom."""
    calls = {}
    for place in [name for name in project_files(root) if name.endswith(".ipynb")][:_ENOUGH]:
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
