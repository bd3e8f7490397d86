"""Read Python source without importing it: markers, and today's benchmark files."""

from __future__ import annotations

import ast
import inspect
import tempfile
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.identity import source_version
from perfkit.repo.git import list_with_git, run_git, run_git_checkout

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_FIXTURE = "benchmark"
# Nobody's, and of no time: equal files make an equal commit.
_COMMIT = "tree {}\nauthor perfkit <perfkit> 0 +0000\ncommitter perfkit <perfkit> 0 +0000\n\nBenchmarks\n"


@dataclass(frozen=True, kw_only=True)
class _Test:
    """A function of a module or class: its node id, and the decorators of it and of its classes."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    decorators: tuple[ast.expr, ...]


def _parsed(files: Iterable[Path], root: Path) -> Iterator[tuple[str, ast.Module, list[_Test]]]:
    for file in files:
        try:
            with tokenize.open(file) as stream:
                text = stream.read()
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        yield text, tree, list(_tests(tree, f"{file.relative_to(root).as_posix()}::"))


def _tests(tree: ast.Module | ast.ClassDef, prefix: str, outer: tuple[ast.expr, ...] = ()) -> Iterator[_Test]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, f"{prefix}{node.name}::", (*outer, *node.decorator_list))
        elif isinstance(node, _FUNCTIONS):
            yield _Test(name=prefix + node.name, node=node, decorators=(*outer, *node.decorator_list))


def marked_benchmarks(files: Iterable[Path], root: Path, key: str) -> frozenset[str]:
    """Return the node ids, without parameters, of the tests that ``@pytest.mark.perfkit(key=True)`` marks."""
    found: set[str] = set()
    for _, tree, tests in _parsed(files, root):
        module = _module_marks(tree)
        found |= {one.name for one in tests if any(_sets(mark, key) for mark in (*module, *one.decorators))}
    return frozenset(found)


def _module_marks(tree: ast.Module) -> Sequence[ast.expr]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            return node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
    return ()


def _sets(mark: ast.expr, key: str) -> bool:
    return (
        isinstance(mark, ast.Call)
        and isinstance(mark.func, ast.Attribute)
        and mark.func.attr == "perfkit"
        and any(
            word.arg == key and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in mark.keywords
        )
    )


def benchmark_files(top: Path, root: Path, benchmarks: str, *, ignored: Collection[Path]) -> list[str]:
    """Return the files below a path of benchmarks and the conftest files above it, relative to ``top``."""
    place = (root / benchmarks.partition("::")[0]).resolve()
    if not place.exists() or not place.is_relative_to(root) or place == root:
        what = "is the whole project" if place == root else "is not there"
        raise UsageError(
            f"the benchmarks that are laid over each commit: {benchmarks} {what}; name their file or folder"
            " with --benchmarks, or keep each commit's own with --own-benchmarks"
        )
    above = [folder / "conftest.py" for folder in place.parents if folder.is_relative_to(root)]
    paths = [place, *(file for file in above if file.is_file())]
    listed = list_with_git(
        top, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
        *(f":(literal){path.relative_to(top).as_posix()}" for path in paths),
    )  # fmt: skip
    outside = [path.resolve() for path in ignored]
    return sorted(
        name
        for name in set(listed)
        if (top / name).is_file() and not any((top / name).resolve().is_relative_to(one) for one in outside)
    )


def commit_of_files(top: Path, files: Sequence[str]) -> str:
    """Return a commit of these files of the working tree and nothing else; no branch or index changes.

    Equal files make an equal commit. Git drops it some weeks after nobody has used it.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        run_git_checkout(top, "read-tree", "--empty", index=index)
        names = "".join(f"{name}\0" for name in files).encode(errors="surrogateescape")
        run_git_checkout(top, "update-index", "--add", "-z", "--stdin", index=index, given=names)
        tree = run_git_checkout(top, "write-tree", index=index).strip()
        text = Path(folder) / "commit"
        text.write_text(_COMMIT.format(tree), encoding="utf-8")
        return run_git(top, "hash-object", "-t", "commit", "-w", str(text)).strip()


def benchmark_versions(files: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the tests that take the benchmark fixture, without parameters, with the version of each."""
    found: dict[str, str] = {}
    for text, _, tests in _parsed(files, root):
        lines = text.splitlines(keepends=True)
        for one in tests:
            if _takes_benchmark(one.node):
                begin = min(part.lineno for part in (one.node, *one.node.decorator_list))
                # To a function's source belong the comments behind its last line, which its tree leaves out.
                found[one.name] = source_version("".join(inspect.getblock(lines[begin - 1 :])))
    return found


def _takes_benchmark(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return node.name.startswith("test") and any(argument.arg == _FIXTURE for argument in arguments)
