"""Read the layout of a repository from its files alone: nothing of it is imported or run."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perfkit import bounded
from perfkit.choices import Service
from perfkit.repo.git import list_with_git
from perfkit.repo.prepare import build_backend, build_command, version_files
from perfkit.repo.working_tree import ignored_files

# Folders at the top that hold no code of the project's own.
_NO_PACKAGES = frozenset({
    "asv_bench", "bench", "benchmark", "benchmarks", "build", "ci", "config", "configs", "data", "dist",
    "doc", "docs", "env", "example", "examples", "notebooks", "script", "scripts", "test", "testing",
    "tests", "tools", "venv",
})  # fmt: skip
_OWN_TESTS = frozenset({"test", "tests", "testing"})
_NO_MODULES = frozenset({"conftest", "fabfile", "noxfile", "setup", "tasks", "versioneer"})
_SOURCE_FOLDERS = ("src", "lib", "python")
_COMPILED = (".so", ".pyd", ".dylib")
_COMPILED_SOURCES = (".c", ".cc", ".cpp", ".cu", ".f90", ".pyx", ".rs")
# These build backends are for compiled modules.
_COMPILERS = ("maturin", "mesonpy", "scikit_build_core.build", "skbuild")
_MEASURES = re.compile(r"def test\w*\([^)]*\bbenchmark(?:_weave)?\b|usefixtures\([\"']benchmark")
_MAIN = re.compile(r"^if __name__\s*==\s*[\"']__main__[\"']", re.MULTILINE)
_TRAINERS = (
    ("Hugging Face Trainer", re.compile(r"from transformers import [^#]*\bTrainer\b|transformers\.Trainer")),
    ("Lightning", re.compile(r"\b(?:pytorch_lightning|lightning)\b[\s\S]*\bTrainer\(")),
    ("training loop", re.compile(r"\.backward\(|\boptimizer\.step\(")),
)
_SERVICES: tuple[tuple[str, Service], ...] = (
    (".github/workflows/", "github"),
    (".gitlab-ci.yml", "gitlab"),
    (".pre-commit-config.yaml", "pre-commit"),
)
# A larger file holds data rather than code that a person wrote.
_MOST_BYTES = 1 << 20
_MOST_COPIED = 10
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
# What tests are written with, what a file defines at its top, and a test at any depth.
_TESTED_WITH = re.compile(r"^(?:import|from)[ \t]+(?:pytest|hypothesis|unittest)\b", re.MULTILINE)
_DEFINED = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_CODE = re.compile(r"\S")
_TEST = re.compile(r"^[ \t]*(?:async[ \t]+)?def test_", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class FoundScript:
    """A training script, and its kind: "Lightning", "Hugging Face Trainer" or "training loop"."""

    path: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a repository is made of; paths are relative to the project's root, with slashes.

    ``packages`` maps packages and modules to their places. Git ignores the ``copied`` files, which a checkout
    lacks, and ``version_files``, which perfkit brings by itself; ``prepare`` builds compiled extensions.
    """

    packages: dict[str, str]
    sources: tuple[str, ...]
    scripts: tuple[FoundScript, ...]
    benchmark_files: tuple[str, ...]
    asv_benchmarks: str | None
    copied: tuple[str, ...]
    version_files: tuple[str, ...]
    prepare: str | None
    python_files: tuple[str, ...]
    test_paths: tuple[str, ...]
    pytest_file: str | None
    services: tuple[Service, ...]
    installable: bool
    requirements: str | None
    nested_projects: tuple[str, ...]


def read_layout(root: Path) -> Layout:
    """Return what the project at ``root`` is made of."""
    files = project_files(root)
    python = [name for name in files if name.endswith(".py")]
    texts = {name: text for name in python if (text := read_code(root / name)) is not None}
    sources = [folder for folder in _SOURCE_FOLDERS if _holds_packages(folder, python)]
    packages = _packages(python, texts, sources)
    pytest_file, options = _pytest_options(root)
    versions = version_files(root)
    return Layout(
        packages=packages,
        sources=("", *sources),
        scripts=tuple(_scripts(texts)),
        benchmark_files=tuple(name for name, text in texts.items() if _MEASURES.search(text)),
        asv_benchmarks=_asv_folder(root, files),
        copied=tuple(_ignored_code(root, packages, versions)),
        version_files=versions,
        prepare=_prepare(root, files, packages),
        python_files=_words(options.get("python_files")) or ("test_*.py", "*_test.py"),
        test_paths=_words(options.get("testpaths")),
        pytest_file=pytest_file,
        services=tuple(
            dict.fromkeys(service for start, service in _SERVICES if any(f.startswith(start) for f in files))
        ),
        installable=_is_installable(root),
        requirements="requirements.txt" if "requirements.txt" in files else None,
        nested_projects=tuple(
            str(PurePosixPath(name).parent)
            for name in files
            if PurePosixPath(name).name in {"pyproject.toml", "setup.py"} and "/" in name
        ),
    )


def read_code(file: Path) -> str | None:
    """Return the text of a file of code; None where it cannot be read, or is too large for code."""
    try:
        return bounded.read_text(file, most=_MOST_BYTES)
    except (OSError, UnicodeDecodeError):
        return None


def project_files(root: Path) -> list[str]:
    """Return the files that git tracks or would track, without those of submodules."""
    names = list_with_git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    return sorted({name for name in names if (root / name).is_file()})


def _holds_packages(folder: str, python: Iterable[str]) -> bool:
    """Return whether a folder holds code and is no package itself."""
    inside = [name for name in python if name.startswith(f"{folder}/")]
    return bool(inside) and f"{folder}/__init__.py" not in inside


def _packages(python: Sequence[str], texts: Mapping[str, str], sources: Sequence[str]) -> dict[str, str]:
    """Return packages by name, then modules that can be imported without doing anything."""
    found: dict[str, str] = {}
    for source in (*sources, ""):
        start = f"{source}/" if source else ""
        inside = [name.removeprefix(start) for name in python if name.startswith(start)]
        tops = {name.partition("/")[0] for name in inside if "/" in name}
        for top in sorted(tops - _NO_PACKAGES - set(_SOURCE_FOLDERS)):
            # Below src a package may do without a file of its own; at the top such a folder holds anything.
            is_package = top.isidentifier() and (source or f"{top}/__init__.py" in inside)
            if is_package and not _is_of_tests(f"{start}{top}", texts):
                found.setdefault(top, f"{start}{top}")
        for name in inside:
            stem = name.removesuffix(".py")
            text = texts.get(f"{start}{name}", "")
            is_module = "/" not in name and stem.isidentifier() and stem not in _NO_MODULES
            if is_module and not holds_tests(text) and does_nothing(text):
                found.setdefault(stem, f"{start}{name}")
    return {name: place for name, place in found.items() if not name.startswith(("test_", "_"))}


def holds_tests(text: str) -> bool:
    """Return whether code is for tests: it imports what they are written with, or defines nothing else."""
    names = _DEFINED.findall(text)
    alone = bool(names) and all(name.startswith(("test_", "Test")) for name in names)
    return bool(_TESTED_WITH.search(text)) or (alone and bool(_TEST.search(text)))


def _is_of_tests(folder: str, texts: Mapping[str, str]) -> bool:
    """Return whether most files of a folder are tests, its own folder of tests aside."""
    start = f"{folder}/"
    inside = {name.removeprefix(start): text for name, text in texts.items() if name.startswith(start)}
    counted = [
        text
        for name, text in inside.items()
        if (_DEFINED if name.endswith("__init__.py") else _CODE).search(text)
        and not _OWN_TESTS & {*PurePosixPath(name).parts}
    ]
    most = 2 * sum(map(holds_tests, counted)) > len(counted)
    # A plugin of pytest imports it in most files, and has no test among them.
    return most and any(map(_TEST.search, counted))


def does_nothing(text: str) -> bool:
    """Return whether importing code only defines things: no call, loop or block stands by itself."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    blocks = (ast.For, ast.While, ast.With, ast.Delete, ast.Raise)
    return not any(
        isinstance(node, blocks) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in tree.body
    )


def _scripts(texts: Mapping[str, str]) -> Iterator[FoundScript]:
    for name, text in texts.items():
        if _MAIN.search(text) and not {"tests", "test"} & set(PurePosixPath(name).parts):
            kind = next((kind for kind, pattern in _TRAINERS if pattern.search(text)), None)
            if kind is not None:
                yield FoundScript(path=name, kind=kind)


def _asv_folder(root: Path, files: Iterable[str]) -> str | None:
    """Return the folder of an asv suite's benchmarks, as its configuration names it."""
    for name in files:
        if PurePosixPath(name).name in {"asv.conf.json", "asv.conf.jsonc"}:
            try:
                text = bounded.read_text(root / name)
                settings = json.loads(re.sub(r",(\s*[}\]])", r"\1", _COMMENT.sub("", text)))
            except (OSError, ValueError):
                settings = {}
            folder = settings.get("benchmark_dir") if isinstance(settings, dict) else None
            place = os.path.normpath(PurePosixPath(name).parent / str(folder or "benchmarks"))
            if (root / place).is_dir():
                return place
    return None


def _ignored_code(root: Path, packages: Mapping[str, str], versions: Sequence[str]) -> Iterator[str]:
    """Yield the code below packages that git ignores: no checkout has it."""
    folders = [place for place in packages.values() if (root / place).is_dir()]
    patterns = [f":(glob){folder}/**/*{ending}" for folder in folders for ending in (".py", ".json")]
    if patterns:
        found = sorted(set(ignored_files(root, patterns)) - set(versions))
        # As many are the mark of a build or an environment, which is no matter of single files.
        yield from found if len(found) <= _MOST_COPIED else ()


def _prepare(root: Path, files: Iterable[str], packages: Mapping[str, str]) -> str | None:
    """Return the command that builds the compiled modules of a project, None where it has none."""
    command = build_command(root)
    if command is None:
        return None
    described = "".join(read_code(root / name) or "" for name in ("pyproject.toml", "setup.py"))
    folders = [place for place in packages.values() if (root / place).is_dir()]
    built = ignored_files(root, [f":(glob){folder}/**/*{end}" for folder in folders for end in _COMPILED])
    backend = build_backend(root) or ""
    compiles = "ext_modules" in described or "ext-modules" in described or backend in _COMPILERS
    has_sources = any(name.endswith(_COMPILED_SOURCES) for name in files)
    return command if built or (compiles and has_sources) else None


def _is_installable(root: Path) -> bool:
    if (root / "setup.py").is_file():
        return True
    document = _toml(root / "pyproject.toml")
    return "project" in document or "build-system" in document


def _pytest_options(root: Path) -> tuple[str | None, Mapping[str, object]]:
    """Return the first of pytest's files that has its configuration, in its own order, and its options."""
    for name in ("pytest.ini", ".pytest.ini"):
        if (root / name).is_file():
            return name, _ini(root / name, "pytest")
    tools = _toml(root / "pyproject.toml").get("tool")
    pytest = tools.get("pytest") if isinstance(tools, dict) else None
    options = pytest.get("ini_options", pytest) if isinstance(pytest, dict) else None
    if isinstance(options, dict):
        return "pyproject.toml", options
    for name, section in (("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
        if found := _ini(root / name, section):
            return name, found
    return None, {}


def _ini(file: Path, section: str) -> Mapping[str, object]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(file, encoding="utf-8")
        return dict(parser[section]) if section in parser else {}
    except (configparser.Error, UnicodeDecodeError):
        return {}


def _toml(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(bounded.read_text(file))
    except (OSError, ValueError):
        return {}


def _words(value: object) -> tuple[str, ...]:
    """Return a setting of pytest's as words; a file of TOML may give it as a list."""
    return tuple(value.split() if isinstance(value, str) else map(str, value or ()))  # type: ignore[call-overload]
