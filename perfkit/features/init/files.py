"""The files that begin a project: its configuration, its first benchmarks, and what git is to ignore."""

from __future__ import annotations

import fnmatch
import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from perfkit import bounded
from perfkit.errors import UsageError
from perfkit.features.init.records import Layout, PlannedFile

CONFIGURATION = "pyproject.toml"
IGNORED = (".benchmarks/",)
_FOLDER = "benchmarks"
_STEM = "first_benchmarks"


def read_as_is(file: Path) -> str | None:
    """Return a file's text with its own line ends; None where there is no file.

    Raises:
        UsageError: it cannot be read as UTF-8 text.
    """
    try:
        return bounded.read_text(file, newline="")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file} as text ({error}); mend it or move it away") from error


def benchmark_place(layout: Layout) -> str:
    """Return where first benchmarks go: a file that pytest collects by its configured names."""
    names = layout.python_files
    if "bench_*.py" in names:
        return f"{_FOLDER}/bench_first.py"
    wanted = f"test_{_STEM}.py"
    if any(fnmatch.fnmatch(wanted, name) for name in names):
        return f"{_FOLDER}/{wanted}"
    pattern = next((name for name in names if name.endswith(".py") and "/" not in name), "test_*.py")
    return f"{_FOLDER}/{pattern.replace('*', _STEM)}"


def existing_benchmarks(layout: Layout) -> str | None:
    """Return the path of all benchmarks that are there: an asv suite, a file, or their common folder."""
    if not layout.benchmark_files:
        return layout.asv_benchmarks
    if len(layout.benchmark_files) == 1:
        return layout.benchmark_files[0]
    folder = os.path.commonpath([PurePosixPath(name).parent for name in layout.benchmark_files])
    return folder if folder not in {"", "."} else None


def is_collected_by_default(place: str, layout: Layout) -> bool:
    """Tell whether pytest collects a file also when nothing was named: so it does without test paths."""
    return not layout.test_paths or any(
        PurePosixPath(place).is_relative_to(path.removeprefix("./") or ".") for path in layout.test_paths
    )


def needs_configuration(layout: Layout, *, benchmarks: str | None) -> bool:
    """Tell whether a gate of this project needs any setting that is not the default."""
    return benchmarks not in {None, _FOLDER} or bool(layout.copied) or layout.prepare is not None


def configuration(layout: Layout, *, benchmarks: str | None) -> str:
    """Return the text of ``[tool.perfkit]``; what has its default is left out, except for where to look."""
    lines = ["[tool.perfkit]"]
    if layout.packages:
        lines.append(f"own = {json.dumps(list(layout.packages))}  # whose code is called own in profiles")
    if benchmarks is not None:
        lines.append(f"benchmarks = {json.dumps(benchmarks)}")
    if layout.copied:
        lines.append("# Git ignores these, so that a fresh checkout lacks them.")
        lines.append(f"copy = {json.dumps(list(layout.copied))}")
    if layout.prepare is not None:
        lines.append("# Builds the compiled modules in each checkout.")
        lines.append(f"prepare = {json.dumps(layout.prepare)}")
    if layout.scripts:
        lines += [
            "",
            "# Take the # away to have a step of it counted in every gate, and to profile it by its name.",
        ]
        lines.append("# [tool.perfkit.targets]")
        lines += [f"# {_target_name(one.path)} = {json.dumps(one.path)}" for one in layout.scripts[:3]]
    return "\n".join(lines) + "\n"


def configured(root: Path, section: str) -> PlannedFile | None:
    """Return the project's configuration with a section more, None where it has one already.

    Raises:
        UsageError: the section cannot be added at the end of the file.
    """
    before = read_as_is(root / CONFIGURATION)
    if before is None:
        why = "where perfkit's settings are; with it, pip builds this project in isolation, as is usual today"
        return PlannedFile(path=CONFIGURATION, before=None, after=section, why=why)
    document = tomllib.loads(before.replace("\r\n", "\n"))
    if "perfkit" in document.get("tool", {}):
        return None
    after = _joined(before, section, between="\n")
    try:
        added = tomllib.loads(after.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"[tool.perfkit] cannot be added at the end of {root / CONFIGURATION} ({error}); write [tool] as"
            " a table of its own, then run `perfkit init` again"
        ) from error
    added["tool"].pop("perfkit")
    if added != {"tool": {}, **document}:
        raise UsageError(
            f"[tool.perfkit] at the end of {root / CONFIGURATION} would change what stands above it"
        )
    return PlannedFile(path=CONFIGURATION, before=before, after=after, why="where perfkit's settings are")


def ignoring(root: Path) -> PlannedFile | None:
    """Return ``.gitignore`` with the lines that it lacks, None where it has them."""
    before = read_as_is(root / ".gitignore")
    there = {line.strip().strip("/") for line in (before or "").splitlines()}
    missing = [line for line in IGNORED if line.strip("/") not in there]
    if not missing:
        return None
    after = _joined(before or "", "\n".join(missing) + "\n", between="")
    return PlannedFile(
        path=".gitignore", before=before, after=after, why="what pytest-benchmark saves by itself"
    )


def new_file(root: Path, path: str, text: str, *, why: str) -> PlannedFile | None:
    """Return a file that is to be made; None where a file of that name is there, which stays as it is."""
    place = root / path
    if place.exists() or place.is_symlink():
        return None
    return PlannedFile(path=path, before=None, after=text, why=why)


def unwritable(root: Path, files: Sequence[PlannedFile]) -> Iterator[str]:
    """Yield the files that cannot be written where they belong."""
    for file in files:
        place = root / file.path
        nearest = next(folder for folder in place.parents if folder.exists())
        if not os.access(place if place.exists() else nearest, os.W_OK) or not nearest.is_dir():
            yield file.path


def _joined(before: str, text: str, *, between: str) -> str:
    """Add a text at the end of another one, with that one's line ends."""
    end = "" if not before or before.endswith("\n") else "\n"
    added = f"{end}{between if before else ''}{text}"
    return before + (added.replace("\n", "\r\n") if "\r\n" in before else added)


def _target_name(path: str) -> str:
    stem = PurePosixPath(path).stem
    return stem if stem.replace("_", "").replace("-", "").isalnum() else "train"
