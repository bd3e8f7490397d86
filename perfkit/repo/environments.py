"""The environment that a side is measured in, where it is not the present one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from perfkit.agent import packages as probe
from perfkit.bounded import read_text
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.identity import fingerprint
from perfkit.model import ABSENT, PACKAGE, SIDES, Side
from perfkit.repo.files import caches, describe_folder, hash_files, source_names
from perfkit.repo.git import outside_repository, try_git
from perfkit.runner.commands import SAFE_PATH, Interpreter, run_command, tail_of
from perfkit.temporary import remove_folder, temporary_folder

MOST_KEPT = 8
PYTHON = "python"
COMPLETE, _WANTED = "complete.json", "wanted.txt"
# Names the folders of the present environment in one that is built on top of it.
PRESENT = "perfkit_present.pth"
_PROBE_LIMIT_S, _INSTALL_LIMIT_S = 120.0, 3600.0
_OLDEST = (3, 11)
_OPTION = re.compile(r"(?:-r|--requirement)[ =]*(.+)")
# Such lines name a file of more requirements, or of constraints.
_INCLUDING = ("-r", "-c", "--requirement", "--constraint")
_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]*)=(?!=)(.*)")
_FILES = (".txt", ".toml", ".lock")
# Where a package is built from, and at which commit, branch or tag.
_BRANCH = re.compile(r"git\+(\w+://[^/\s]*/[^@#\s]*)(?:@([^#\s;]+))?")
_COMMIT = re.compile("[0-9a-f]{40}")
_HARNESS = ("pytest", "pytest-benchmark")
_MOST_REASON = 400
_T = TypeVar("_T")
# What uv draws before its sentences.
_DRAWN = "×╰─▶│ \t"
# Variables by which installers choose packages and their sources.
_OBEYED = ("PIP_", "UV_")


@dataclass(frozen=True, kw_only=True)
class SideEnvironment:
    """The environment of a side, by the versions of all its packages.

    ``wanted`` is what a person asked for, with the ``variables`` to set; ``named`` are packages asked for by
    name, None where a file or folder stands for all. ``conflicts`` are the installer's sentences.
    """

    wanted: tuple[str, ...]
    interpreter: Interpreter
    python: str
    packages: Mapping[str, str]
    named: frozenset[str] | None = frozenset()
    conflicts: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def variable(self, name: str) -> str | None:
        """Return a variable's value on this side, None where it is not set."""
        return self.variables.get(name, os.environ.get(name))


Environments = Mapping[Side, SideEnvironment]


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """The facts of an interpreter; ``problem`` is why it cannot import the harness."""

    python: str
    release: tuple[int, int]
    packages: Mapping[str, str]
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class _Whole:
    """What is kept with a folder that is complete; a folder of lent packages has no interpreter."""

    answer: _Answer | None = None
    conflicts: tuple[str, ...] = ()


def check_wanted(wanted: Mapping[Side, Sequence[str]]) -> None:
    """Check, before the machine's lock is waited for, that what is wanted can be read."""
    for side, every in wanted.items():
        values = [one for one in every if not _VARIABLE.fullmatch(one)]
        if not _is_folder(values, side):
            for value in values:
                requirements_of(value, side)


def side_environments(
    wanted: Mapping[Side, Sequence[str]], *, log: Callable[[str], None]
) -> Mapping[Side, SideEnvironment]:
    """Return the environments of both sides, built where necessary; none where none is wanted."""
    if not any(wanted.values()):
        return {}
    return {side: _environment(tuple(wanted.get(side, ())), side, log) for side in SIDES}


def changed_packages(environments: Environments) -> dict[str, tuple[str | None, str | None]]:
    """Return the versions of each package that differs between the sides, None where it is absent."""
    base, head = (environments[side].packages for side in SIDES)
    names = sorted(base.keys() | head.keys())
    return {name: (base.get(name), head.get(name)) for name in names if base.get(name) != head.get(name)}


def changed_members(environments: Environments) -> dict[str, tuple[str | None, str | None]]:
    """Return all that differs between the sides: packages, Python, and variables, which have capitals."""
    base, head = (environments[side] for side in SIDES)
    others = {
        name: (base.variable(name), head.variable(name)) for name in {**base.variables, **head.variables}
    }
    others[PYTHON] = (base.python, head.python)
    return {
        **changed_packages(environments),
        **{name: pair for name, pair in others.items() if pair[0] != pair[1]},
    }


def fact_of(name: str) -> str:
    """Return the fact of an environment that has the version of one of its members."""
    return name if name in (PYTHON, "torch") or name.isupper() else f"{PACKAGE} {name}"


def installed_facts(environments: Environments) -> dict[Side, dict[str, str]]:
    """Return the facts of each side's environment: Python, torch, and all that differs."""
    if not environments:
        return {}
    members = changed_members(environments)
    return {
        side: {
            PYTHON: one.python,
            "torch": one.packages.get("torch", ABSENT),
            **{fact_of(name): pair[number] or ABSENT for name, pair in members.items()},
        }
        for number, (side, one) in enumerate((side, environments[side]) for side in SIDES)
    }


def unnamed_changes(environments: Environments) -> tuple[str, ...]:
    """Return the packages that differ although nobody asked for that; none where a side is a whole list."""
    names = [environments[side].named for side in SIDES]
    if None in names:
        return ()
    asked = frozenset[str]().union(*(found for found in names if found is not None))
    return tuple(name for name in changed_packages(environments) if name not in asked)


def _environment(asked: tuple[str, ...], side: Side, log: Callable[[str], None]) -> SideEnvironment:
    variables = {found[1]: found[2] for one in asked if (found := _VARIABLE.fullmatch(one))}
    made = _installed(tuple(one for one in asked if not _VARIABLE.fullmatch(one)), side, log)
    interpreter = replace(made.interpreter, variables={**made.interpreter.variables, **variables})
    return replace(made, wanted=asked, interpreter=interpreter, variables=variables)


def _installed(wanted: tuple[str, ...], side: Side, log: Callable[[str], None]) -> SideEnvironment:
    if not wanted:
        return _described(wanted, Interpreter(), _ask(Interpreter()))
    if _is_folder(wanted, side):
        return _existing(Path(wanted[0]).absolute(), wanted, side)
    asked = [requirements_of(one, side) for one in wanted]
    lines = [line for one in asked for line in one.lines]
    place = kept_folder(environment_key(lines), lambda folder: _build(folder, lines, side, log))
    whole = msgspec.json.decode((place / COMPLETE).read_bytes(), type=_Whole)
    interpreter = Interpreter(python=str(place / "bin" / "python"))
    names = [one.name for one in asked]
    named = None if None in names else frozenset(filter(None, names))
    described = _described(wanted, interpreter, whole.answer or _ask(interpreter), named=named)
    return replace(described, conflicts=whole.conflicts)


def _is_folder(wanted: Sequence[str], side: Side) -> bool:
    folders = [one for one in wanted if (Path(one) / "bin" / "python").exists()]
    if folders and len(wanted) > 1:
        raise UsageError(
            f"--{side}-with {folders[0]} is an environment, which is measured as it is: give it alone"
        )
    return bool(folders)


def _described(
    wanted: tuple[str, ...],
    interpreter: Interpreter,
    answer: _Answer,
    *,
    named: frozenset[str] | None = frozenset(),
) -> SideEnvironment:
    return SideEnvironment(
        wanted=wanted, interpreter=interpreter, python=answer.python, packages=answer.packages, named=named
    )


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """The lines of a requirements file that a value stands for, and the package that it names."""

    lines: tuple[str, ...]
    name: str | None


def requirements_of(value: str, side: Side) -> Requirements:
    """Read one value of an option."""
    option = f"--{side}-with {value}"
    text = value.strip()
    match = _OPTION.fullmatch(text)
    file = Path(match.group(1).strip() if match else text)
    if match or (file.suffix in _FILES and "==" not in text and "@" not in text):
        if not file.is_file():
            raise UsageError(f"{option}: there is no file {file}; name one that is there, or a requirement")
        return Requirements(lines=tuple(_lines_of(file.absolute(), option)), name=None)
    if not text or text.startswith("-") or "\n" in text:
        raise UsageError(
            f"{option} is no requirement; write it as pip does (numpy==2.4.0), or name a file of"
            " requirements, the folder of an environment, or a variable (OMP_NUM_THREADS=1)"
        )
    if file.parent.name == "bin" and file.name.startswith("python") and file.is_file():
        raise UsageError(f"{option} is a Python; name the folder of its environment: {file.parents[1]}")
    if file.is_dir() and not any((file / name).is_file() for name in ("pyproject.toml", "setup.py")):
        raise UsageError(f"{option} is a folder without bin/python; make an environment there, or name one")
    if file.exists():
        name = file.name.partition("-")[0] if file.is_file() else _project_name(file)
        return Requirements(lines=(str(file.absolute()),), name=canonicalize_name(name))
    try:
        return Requirements(lines=(text,), name=canonicalize_name(Requirement(text).name))
    except InvalidRequirement as error:
        raise UsageError(
            f"{option}: there is no such file or folder, and it is no requirement of pip's form"
        ) from error


def _project_name(folder: Path) -> str:
    try:
        described = tomllib.loads(read_text(folder / "pyproject.toml"))
        return str(described["project"]["name"])
    except (OSError, KeyError, ValueError):
        return folder.name


def _lines_of(file: Path, option: str) -> Iterator[str]:
    """Yield the lines of requirements that a file stands for; a lock may have any name."""
    content: dict[str, Any] = {}
    why: Exception | None = None
    try:
        content = tomllib.loads(read_text(file))
    except (OSError, ValueError) as error:
        why = error
    if "package" in content and "version" in content:
        yield from _exported(file, option)
    elif "package" in content or file.name == "Pipfile.lock":
        raise UsageError(
            f"{option}: locks of Poetry, PDM and Pipenv are not read; export it to a file of requirements:"
            " poetry export, pdm export, or pipenv requirements"
        )
    elif file.suffix != ".toml" and "packages" not in content:
        # Both installers read the rest of such a line as a shell does.
        yield f"-r {shlex.quote(str(file))}"
    else:
        try:
            if "packages" in content:
                for one in content["packages"]:
                    marker = f" ; {one['marker']}" if "marker" in one else ""
                    yield f"{one['name']}=={one['version']}{marker}"
            else:
                yield from content["project"].get("dependencies", ())
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{option}: neither a pylock.toml whose packages have versions nor a pyproject.toml with a"
                f" [project] ({why or error}); export it to a file of requirements"
            ) from error


def _exported(file: Path, option: str) -> list[str]:
    """Return the requirements of a lock of uv, whose project lies beside it, or here."""
    uv = _uv()
    if uv is None:
        raise UsageError(f"{option}: only uv reads uv.lock: install it, or export a file of requirements")
    command = [uv, "export", "--frozen", "--no-emit-project", "--no-hashes", "--no-header", "--no-annotate"]
    with temporary_folder() as folder:
        beside, place = file.with_name("pyproject.toml"), file.parent
        if file.name != "uv.lock" or not beside.is_file():
            place = folder
            shutil.copy(file, place / "uv.lock")
            shutil.copy(beside if beside.is_file() else "pyproject.toml", place / "pyproject.toml")
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{option}: uv cannot export it: {installer_error(done.stderr.splitlines())}")
    return done.stdout.splitlines()


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def environment_key(lines: Sequence[str]) -> str:
    """Return the name of the environment of such requirements, after all that it may depend on."""
    return fingerprint(
        {
            "python": f"{sys.version} {sys.base_prefix} {sys.prefix} {platform.platform()}",
            "wanted": "\n".join(lines),
            "files": repr([content_of(place) for place in _named_places(lines)]),
            "branches": repr([try_git(Path.cwd(), "ls-remote", *one) for one in _named_branches(lines)]),
            "installed": "\n".join(
                sorted(f"{name}=={version}" for name, version in probe.packages().items())
            ),
            "present": repr(_present_folders()),
            "variables": repr(sorted(one for one in os.environ.items() if one[0].startswith(_OBEYED))),
            "installer": "uv" if _uv() else "pip",
        }
    )


def _named_branches(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return the repositories that requirements name with what may move there: a branch, or a tag."""
    files = (place for place in _named_places(lines) if place.is_file() and place.suffix in _FILES)
    texts = [*lines, *(read_text(file, errors="replace") for file in files)]
    found = _BRANCH.findall("\n".join(texts))
    return sorted({(url, ref or "HEAD") for url, ref in found if not _COMMIT.fullmatch(ref)})


def _named_places(lines: Sequence[str]) -> list[Path]:
    """Return the local files and folders that requirements and their included files name."""
    found: dict[Path, None] = {}
    here = Path.cwd()
    waiting = [(line, here) for line in lines]
    while waiting:
        line, within = waiting.pop()
        try:
            words = shlex.split(re.sub(r"^(-[rce])(?=\S)", r"\1 ", line.strip()), comments=True)
        except ValueError:
            continue
        includes = line.lstrip().startswith(_INCLUDING)
        for word in words:
            place = re.split(r"[\[;]", re.sub(r"^--[a-z]+=|^file://", "", word))[0]
            # An included file may have any name; another word is a path where it looks like one.
            if not place or not (includes or "/" in place or place in {".", ".."}):
                continue
            for begin in (here, within):
                one = (begin / place).resolve()
                if one in found or not one.exists():
                    continue
                found[one] = None
                if includes and one.is_file():
                    waiting += [(inner, one.parent) for inner in _read_lines(one)]
    return sorted(found)


def _read_lines(file: Path) -> list[str]:
    try:
        return read_text(file, errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the requirements {file} ({error.strerror or error})") from error


def content_of(place: Path) -> str:
    """Return a hash of a file, or of what a package is built of in a folder."""
    if place.is_file():
        return fingerprint({"content": place.read_bytes().hex()})
    listed = try_git(place, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if not listed:
        # It is in no repository, or in one that ignores it.
        return describe_folder(place).sha
    # Sources that git ignores were generated, and those of a submodule are listed in its own repository.
    names = source_names(place).union(name for name in listed.split("\0") if (place / name).is_file())
    return hash_files(place, names)


def _present_folders() -> list[str]:
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    named = ("site-packages", "dist-packages")
    return [entry for entry in sys.path if entry in installed or Path(entry).name in named]


def kept_folder(key: str, build: Callable[[Path], None]) -> Path:
    """Return the kept folder of a key, built if it is not there as a whole; this many others are kept.

    Its last file marks it as complete: a build that was killed has left none, and is begun anew. The
    lock of the machine is held, so that no other process builds meanwhile.
    """
    place = caches() / "environments" / key
    if not (place / COMPLETE).is_file():
        remove_folder(place)
        try:
            place.mkdir(parents=True)
        except OSError as error:
            raise NotMeasuredError(
                f"cannot keep an environment in {place.parent} ({error.strerror}); name another place by"
                " XDG_CACHE_HOME"
            ) from error
        try:
            build(place)
        except BaseException:
            remove_folder(place)
            raise
    os.utime(place)
    newest_first = sorted(place.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns, reverse=True)
    for number, other in enumerate(newest_first):
        if number >= MOST_KEPT or not (other / COMPLETE).is_file():
            remove_folder(other)
    return place


def _complete(place: Path, whole: _Whole) -> None:
    new = place / f"{COMPLETE}.new"
    new.write_bytes(msgspec.json.encode(whole))
    new.rename(place / COMPLETE)


def _build(place: Path, lines: Sequence[str], side: Side, log: Callable[[str], None]) -> None:
    """Build an environment of requirements in an empty folder."""
    log(f"building the environment of {side}")
    venv.EnvBuilder(symlinks=True).create(place)
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars={"base": str(place)}))
    # With this call the files of the present environment that name further folders are obeyed as well.
    added = [f"import site; site.addsitedir({folder!r})\n" for folder in _present_folders()]
    (packages / PRESENT).write_text("".join(added))
    (place / _WANTED).write_text("\n".join(lines) + "\n")
    python = place / "bin" / "python"
    uv = _uv()
    output = (
        _install_with_pip(place, python, side) if uv is None else _install_with_uv(uv, place, python, side)
    )
    answer = _ask(Interpreter(python=str(python)))
    if answer.problem is not None:
        raise UsageError(
            f"--{side}-with: with these packages the harness cannot be imported ({answer.problem});"
            " name versions that pytest and pytest-benchmark work with"
        )
    conflicts = tuple(line.strip() for line in output if "which is incompatible" in line)
    _complete(place, _Whole(answer=answer, conflicts=conflicts))


def _install_with_pip(place: Path, python: Path, side: Side) -> Sequence[str]:
    """Install what is wanted and not present in such a version, and return the output of pip.

    pip finds the present packages through the new environment, and cannot remove them, as they lie outside.
    """
    # Asking all finders for pip would keep setuptools from being imported afterwards.
    if PathFinder.find_spec("pip") is None:
        raise UsageError("neither uv nor pip is installed here: run `python -m ensurepip`, or install uv")
    options = ["--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--progress-bar=off"]
    command = [str(python), *SAFE_PATH, "-m", "pip", "install", *options, "-r", str(place / _WANTED)]
    return _run(command, place, side)


def _install_with_uv(uv: str, place: Path, python: Path, side: Side) -> Sequence[str]:
    """Install what is wanted and not present in such a version, and return the output of uv.

    uv does not look for packages outside of an environment, so it solves the requirements first, preferring
    the present versions, and then installs those packages of its solution that are not present.
    """
    present = {name: version.partition("+")[0] for name, version in probe.packages().items()}
    solved, changed = place / "solved.txt", place / "changed.txt"
    solved.write_text("".join(f"{name}=={version}\n" for name, version in present.items()))
    options = ["--python", str(python), "--no-header", "--no-annotate", "--output-file", str(solved)]
    output = _run([uv, "pip", "compile", str(place / _WANTED), *options], place, side)
    lines = [line for line in solved.read_text().splitlines() if not _is_present(line, present)]
    changed.write_text("\n".join(lines))
    if lines:
        output = _run(
            [uv, "pip", "install", "--no-deps", "--python", str(python), "-r", str(changed)], place, side
        )
    return output


def _is_present(line: str, present: Mapping[str, str]) -> bool:
    name, _, version = line.partition(";")[0].strip().partition("==")
    return present.get(canonicalize_name(name)) == version.partition("+")[0]


def _run(command: Sequence[str], place: Path, side: Side) -> Sequence[str]:
    log = place / "output.log"
    ending = run_command(
        command, output=log, limit_s=_INSTALL_LIMIT_S, environment=outside_repository(os.environ)
    )
    lines = tail_of(log, 200)
    if ending.status != 0:
        reason = installer_error(lines) or ending.words
        raise UsageError(f"--{side}-with: the environment cannot be built: {reason}")
    return lines


def installer_error(lines: Sequence[str]) -> str:
    """Return why an installer failed, in a line: its conflict, its error, or its last line."""
    conflict = _from_first(lines, "The conflict is caused by:")[1:]
    by_pip = "; ".join(map(str.strip, itertools.takewhile(str.strip, conflict)))
    by_uv = " ".join(line.strip(_DRAWN) for line in _from_first(lines, "×", "error:"))
    marked = " ".join(_from_first(lines, "ERROR:")[:1]).removeprefix("ERROR:").strip()
    # A traceback ends in what it is about.
    reason = by_pip or by_uv or marked.removesuffix("Exception:") or " ".join(lines[-1:])
    return reason if len(reason) <= _MOST_REASON else f"{reason[:_MOST_REASON]}…"


def _from_first(lines: Sequence[str], *signs: str) -> Sequence[str]:
    begins = (place for place, line in enumerate(lines) if line.strip().startswith(signs))
    return lines[next(begins, len(lines)) :]


def _existing(folder: Path, wanted: tuple[str, ...], side: Side) -> SideEnvironment:
    interpreter = Interpreter(python=str(folder / "bin" / "python"))
    own = _ask(interpreter)
    option = f"--{side}-with {wanted[0]}"
    if own.release < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise UsageError(f"{option} has {own.python}, and benchmarks are measured by Python {oldest} on")
    if own.problem is not None:
        interpreter = _lend_harness(interpreter, own)
        problem = _ask(interpreter).problem
        if problem is not None:
            raise UsageError(
                f"{option} cannot run pytest ({own.problem}), and that of perfkit does not work there"
                f" ({problem}): run `{interpreter.python} -m pip install {' '.join(_HARNESS)}`"
            )
    return _described(wanted, interpreter, own, named=None)


def _lend_harness(interpreter: Interpreter, own: _Answer) -> Interpreter:
    lent = [name for name in installed_closure(_HARNESS) if name not in own.packages]
    key = fingerprint({"lent": repr(lent), "from": repr(sorted(_places(lent)))})
    place = kept_folder(key, lambda folder: _link(lent, folder))
    path = filter(None, (str(place / "site-packages"), os.environ.get("PYTHONPATH")))
    return replace(interpreter, variables={"PYTHONPATH": os.pathsep.join(path)})


def installed_closure(names: Sequence[str]) -> dict[str, str]:
    """Return the versions of installed packages, and of those installed ones that they need."""
    found: dict[str, str] = {}
    waiting = [*names]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # It is for another system or version of Python.
            continue
        found[name] = distribution.version
        needed = [Requirement(line) for line in distribution.requires or ()]
        waiting += [one.name for one in needed if not one.marker or "extra" not in str(one.marker)]
    return found


def _places(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        one = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}
        yield from (Path(str(one.locate_file(top))) for top in tops)


def _link(names: Sequence[str], place: Path) -> None:
    folder = place / "site-packages"
    folder.mkdir()
    for file in _places(names):
        (folder / file.name).symlink_to(file)
    _complete(place, _Whole())


def _ask(interpreter: Interpreter) -> _Answer:
    """Return the facts of an interpreter."""
    return answer_of(interpreter, Path(probe.__file__).read_text(encoding="utf-8"), _Answer)


def answer_of(interpreter: Interpreter, text: str, kind: type[_T]) -> _T:
    """Return the JSON that a program on an interpreter's packages prints."""
    command = [interpreter.python, "-c", text]
    environment = {**outside_repository(os.environ), **interpreter.variables}
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=Path(interpreter.python).parent,
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=kind)
    except (OSError, subprocess.TimeoutExpired, IndexError, msgspec.DecodeError) as error:
        raise NotMeasuredError(
            f"{interpreter.python} does not list its packages ({error}); run it by hand to see why"
        ) from error


def is_of_another_system(module: str) -> bool:
    """Return whether a module is one of Python's own that this system lacks, as ``winreg`` is of Windows."""
    name = module.partition(".")[0]
    return name in sys.stdlib_module_names and not _can_be_found(name)


def why_not_found(module: str) -> str | None:
    """Return why a module that is here, or Python's own, is not imported; None where it is neither."""
    name = module.partition(".")[0]
    if is_of_another_system(name):
        return f"{name} is a module of Python's own that this system lacks"
    packages = importlib.metadata.packages_distributions().get(name)
    if packages:
        return f"{packages[0]} is installed here, but {module} is not found in it"
    if _can_be_found(name):
        return f"{name} can be imported here, but {module} is not found from this code"
    return None


def _can_be_found(name: str) -> bool:
    try:
        return name in sys.builtin_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
