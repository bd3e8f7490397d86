"""The benchmarks of today: the working tree's files of them, as a commit that can be laid over any other."""

from __future__ import annotations

import ast
import inspect
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.identity import source_version
from perfkit.repo.commands import list_with_git, run_git, run_git_checkout

_FIXTURE = "benchmark"
_AT_ONCE = 500
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Nobody's, and of no time: equal files make an equal commit.
_COMMIT = "tree {}\nauthor perfkit <perfkit> 0 +0000\ncommitter perfkit <perfkit> 0 +0000\n\nBenchmarks\n"


def benchmark_files(top: Path, root: Path, benchmarks: str, *, ignored: Collection[Path]) -> list[str]:
    """Return the files below a path of benchmarks and the conftest files above it, relative to ``top``.

    Ignored files, and those below ``ignored``, are none of them.

    Raises:
        UsageError: there is no such path, or it is the whole project.
    """
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

    Raises:
        RepositoryError: git cannot read them, or the repository cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        run_git_checkout(top, "read-tree", "--empty", index=index)
        for begin in range(0, len(files), _AT_ONCE):
            run_git_checkout(
                top, "update-index", "--add", "--", *files[begin : begin + _AT_ONCE], index=index
            )
        tree = run_git_checkout(top, "write-tree", index=index).strip()
        text = Path(folder) / "commit"
        text.write_text(_COMMIT.format(tree), encoding="utf-8")
        return run_git(top, "hash-object", "-t", "commit", "-w", str(text)).strip()


def benchmark_versions(files: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the tests that take the benchmark fixture, without parameters, with the version of each.

    Nothing is imported. A file that cannot be parsed has none.
    """
    found: dict[str, str] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            continue
        name = file.relative_to(root).as_posix()
        lines = text.splitlines(keepends=True)
        found |= {f"{name}::{test}": version for test, version in _versions(tree, lines)}
    return found


def _versions(
    tree: ast.Module | ast.ClassDef, lines: Sequence[str], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _versions(node, lines, f"{prefix}{node.name}::")
        elif isinstance(node, _FUNCTIONS) and _takes_benchmark(node):
            begin = min((node.lineno, *(decorator.lineno for decorator in node.decorator_list)))
            # To a function's source belong the comments behind its last line, which its tree leaves out.
            yield f"{prefix}{node.name}", source_version("".join(inspect.getblock(lines[begin - 1 :])))


def _takes_benchmark(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return node.name.startswith("test") and any(argument.arg == _FIXTURE for argument in arguments)
