"""The files that begin a project: configuration, ignored files, and continuous integration."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import importlib.resources
import json
import os
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perfkit import bounded
from perfkit.choices import Service
from perfkit.config import is_url, load_project
from perfkit.errors import UsageError
from perfkit.features.init.layout import Layout
from perfkit.repo.environments import installed_closure
from perfkit.repo.git import try_git

CONFIGURATION = "pyproject.toml"
IGNORED = (".benchmarks/",)
_FOLDER = "benchmarks"
_STEM = "first_benchmarks"
_PYTHON = "3.12"
# A shell ends with the message where the variable is empty.
_ASKED = '"${PERFKIT:?set what pip installs perfkit from}"'
_FOR_NOTES = (
    "for a note on each merge request, the CI variable PERFKIT_GITLAB_TOKEN needs a token of scope api, set"
    " for the environment perfkit-comment alone"
)
# Files that pin what is installed, as git names them.
_LOCKS = "uv.lock pylock.toml 'requirements*.txt'"
# What `perfkit comment` needs.
_FOR_COMMENT = ("msgspec", "rich", "typer")
_KEY = re.compile(r"^([A-Za-z_][\w-]*):", re.MULTILINE)
_ITEM = re.compile(r"^( *)- +repo:", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """A file as it is, None where there is none, and as it would be."""

    path: str
    before: str | None
    after: str
    why: str


@dataclass(frozen=True, kw_only=True)
class StartingPlan:
    """What was found, what would be written, what a reader should know, and which commands come next."""

    root: str
    found: tuple[str, ...]
    files: tuple[PlannedFile, ...]
    remarks: tuple[str, ...]
    next_commands: tuple[str, ...]


def read_as_is(file: Path) -> str | None:
    """Return a file's text with its own line ends; None where there is no file."""
    try:
        return bounded.read_text(file, newline="")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file} as text ({error}); mend it or move it away") from error


def benchmark_place(layout: Layout, *, folder: str = _FOLDER, stem: str = _STEM) -> str:
    """Return where first benchmarks go: a file that pytest collects by its configured names."""
    names = layout.python_files
    if "bench_*.py" in names:
        return f"{folder}/bench_{stem.removesuffix('_benchmarks')}.py"
    wanted = f"test_{stem}.py"
    if any(fnmatch.fnmatch(wanted, name) for name in names):
        return f"{folder}/{wanted}"
    pattern = next((name for name in names if name.endswith(".py") and "/" not in name), "test_*.py")
    return f"{folder}/{pattern.replace('*', stem)}"


def existing_benchmarks(layout: Layout) -> str | None:
    """Return the path of all benchmarks that are there: an asv suite, a file, or their common folder."""
    if not layout.benchmark_files:
        return layout.asv_benchmarks
    if len(layout.benchmark_files) == 1:
        return layout.benchmark_files[0]
    folder = os.path.commonpath([PurePosixPath(name).parent for name in layout.benchmark_files])
    return folder if folder not in {"", "."} else None


def is_collected_by_default(place: str, layout: Layout) -> bool:
    """Return whether pytest collects a file also when nothing was named: so it does without test paths."""
    return not layout.test_paths or any(
        PurePosixPath(place).is_relative_to(path.removeprefix("./") or ".") for path in layout.test_paths
    )


def needs_configuration(layout: Layout, *, benchmarks: str | None) -> bool:
    """Return whether a gate of this project needs any setting that is not the default."""
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
    """Return the project's configuration with a section more, None where it has one already."""
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
    """Return ``.gitignore`` with the lines that it lacks, None where it has them or is ignored itself."""
    if try_git(root, "check-ignore", "--quiet", ".gitignore") is not None:
        return None
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


Planned = tuple[list[PlannedFile | None], list[str]]


def service_files(service: Service, root: Path, layout: Layout) -> Planned:
    """Return the files that a service needs, None for each that is there, and what is to be done by hand."""
    if service == "github":
        return _github(root, _values(root, layout, unknown="${{ vars.PERFKIT }}"))
    if service == "gitlab":
        return _gitlab(root, _values(root, layout, unknown=""))
    return _pre_commit(root)


def _github(root: Path, values: Mapping[str, str]) -> Planned:
    top = try_git(root, "rev-parse", "--show-toplevel")
    remarks = [
        'make the job "gate" a required check, once it has run: Settings, Branches, on github.com',
        *_remark_on_installing("the repository's variable"),
    ]
    if top is not None and Path(top).resolve() != root.resolve():
        remarks.append(f"GitHub reads workflows at the top of the repository alone: move .github to {top}")
    named = {"perfkit.yml": "github_gate.yml", "perfkit-comment.yml": "github_comment.yml"}
    why = {
        "perfkit.yml": "counts at each push, the gate on pull requests",
        "perfkit-comment.yml": "its comment",
    }
    return _new(
        root,
        {f".github/workflows/{name}": (_filled(file, values), why[name]) for name, file in named.items()},
        remarks,
    )


def _gitlab(root: Path, values: Mapping[str, str]) -> Planned:
    own, include = ".gitlab/perfkit.yml", "include:\n  - local: .gitlab/perfkit.yml\n"
    remarks = [_FOR_NOTES, *_remark_on_installing("the CI variable")]
    if (root / ".gitlab-ci.yml").exists():
        remarks.append(f"add to .gitlab-ci.yml, which stays as it is: {json.dumps(include)[1:-1]}")
        return _new(root, {own: (_filled("gitlab.yml", values), "the gate on merge requests")}, remarks)
    texts = {
        own: (_filled("gitlab.yml", values), "the gate on merge requests"),
        ".gitlab-ci.yml": (include, "what GitLab reads"),
    }
    return _new(root, texts, remarks)


def _pre_commit(root: Path) -> Planned:
    name, hook = ".pre-commit-config.yaml", _template("pre_commit.yml")
    before = read_as_is(root / name)
    remarks = ["`pre-commit install` has it run from now on, with the perfkit of this environment"]
    if before is None:
        return _new(
            root, {name: ("repos:\n" + textwrap.indent(hook, "  "), "counts before each commit")}, remarks
        )
    if "perfkit" in before:
        return [], [f"{name} names perfkit already and stays as it is"]
    keys, item = _KEY.findall(before), _ITEM.search(before)
    if item is None or not keys or keys[-1] != "repos":
        text = json.dumps(hook)[1:-1]
        return [], [f"{name} does not end with its list of repos, so it stays as it is: add to that {text}"]
    text = textwrap.indent(hook, item[1])
    end = "" if before.endswith("\n") else "\n"
    added = f"{end}{text}".replace("\n", "\r\n" if "\r\n" in before else "\n")
    return [
        PlannedFile(path=name, before=before, after=before + added, why="counts before each commit")
    ], remarks


def _new(root: Path, texts: Mapping[str, tuple[str, str]], remarks: list[str]) -> Planned:
    files: list[PlannedFile | None] = []
    for path, (text, why) in texts.items():
        files.append(new_file(root, path, text, why=why))
        if files[-1] is None:
            remarks.append(f"{path} is there already and stays as it is")
    return files, remarks


def _values(root: Path, layout: Layout, *, unknown: str) -> dict[str, str]:
    """Return what the templates leave open; ``unknown`` stands for perfkit where its source is not known."""
    parts = [_ASKED]
    if layout.requirements:
        parts = ["-r", layout.requirements, *parts]
    if layout.installable:
        parts = ["-e", ".", *parts]
    return {
        "BRANCH": _main_branch(root),
        "PYTHON": _PYTHON,
        "PERFKIT": json.dumps(requirement() or unknown),
        "LEDGER": _ledger_folder(root),
        "LOCKS": _LOCKS,
        "INSTALL": f"python -m pip install {' '.join(parts)}",
        "INSTALL_ALONE": f"python -m pip install --no-deps {_ASKED}",
        "PINNED": " ".join(_pinned("perfkit")),
        "PINNED_FOR_COMMENT": " ".join(_pinned(*_FOR_COMMENT)),
        "DEPENDENCIES": _dependencies(root, layout),
    }


def _ledger_folder(root: Path) -> str:
    """Return the folder of the configured ledger as a job finds it."""
    folder = load_project(root).config.ledger
    return json.dumps("benchmarks/ledger" if is_url(folder) else Path(folder).as_posix())


def _pinned(*names: str) -> list[str]:
    """Return packages with their dependencies in the installed versions, so that a job installs no others."""
    found = installed_closure(names)
    return [f"{name}=={found[name]}" for name in sorted(found) if name != "perfkit"]


def _dependencies(root: Path, layout: Layout) -> str:
    """Return a file that changes with what is installed; a job fails that looks for one that is not there."""
    if layout.installable:
        return "pyproject.toml" if (root / "pyproject.toml").is_file() else "setup.py"
    return layout.requirements or "**/*.py"


def requirement() -> str | None:
    """Return what pip installs this perfkit by; its name alone may be anybody's on an index."""
    distribution = importlib.metadata.distribution("perfkit")
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    url, folder = origin.get("url", ""), origin.get("subdirectory")
    inside = f"#subdirectory={folder}" if folder else ""
    if commit := origin.get("vcs_info", {}).get("commit_id"):
        return f"perfkit @ git+{url}@{commit}{inside}" if _is_public(url) else None
    digest = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    if digest and _is_public(url):
        return f"perfkit @ {url}#sha256={digest}"
    return _checked_out(Path(url.removeprefix("file://"))) if "dir_info" in origin else None


def _is_public(url: str) -> bool:
    """Return whether others can read a URL, and whether they may: it holds no name or password."""
    return url.startswith(("https://", "ssh://git@")) and ("@" not in url or url.startswith("ssh://git@"))


def _checked_out(folder: Path) -> str | None:
    """Return the commit of a checkout that its remote has, None where others cannot have the same."""
    url = try_git(folder, "remote", "get-url", "origin") or ""
    sha = try_git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    is_there = sha and try_git(folder, "branch", "--remotes", "--contains", sha)
    if not (is_there and _is_public(url)) or try_git(folder, "diff", "--name-only", "HEAD"):
        return None
    return f"perfkit @ git+{url}@{sha}"


def _remark_on_installing(where: str) -> list[str]:
    if requirement() is not None:
        return []
    text = (
        f"it is not known where this perfkit comes from, and a name alone may be anybody's: set {where}"
        ' PERFKIT, such as "perfkit @ git+https://HOST/PATH@COMMIT"; until then the job ends at Install'
    )
    return [text]


def _main_branch(root: Path) -> str:
    named = try_git(root, "rev-parse", "--abbrev-ref", "origin/HEAD")
    if named and named != "origin/HEAD":
        return named.removeprefix("origin/")
    present = [name for name in ("main", "master") if try_git(root, "rev-parse", "--verify", "--quiet", name)]
    return (present or ["main"])[0]


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = _template(template)
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _template(name: str) -> str:
    return (importlib.resources.files("perfkit.features.init") / "templates" / name).read_text(
        encoding="utf-8"
    )
