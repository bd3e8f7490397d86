"""The files by which a service of continuous integration runs perfkit: templates, filled in for a project."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from perfkit.choices import Service
from perfkit.config import is_url, load_project
from perfkit.features.init.files import new_file, read_as_is
from perfkit.features.init.records import Layout, PlannedFile
from perfkit.repo.git import try_git

_PYTHON = "3.12"
# A shell ends with the message where the variable is empty.
_ASKED = '"${PERFKIT:?say where perfkit comes from}"'
_FOR_NOTES = (
    "for a note on each merge request, the CI variable PERFKIT_GITLAB_TOKEN needs a token of scope api, set"
    " for the environment perfkit-comment alone"
)
# What `perfkit comment` needs.
_FOR_COMMENT = ("msgspec", "rich", "typer")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"^([A-Za-z_][\w-]*):", re.MULTILINE)
_ITEM = re.compile(r"^( *)- +repo:", re.MULTILINE)

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
    remarks = [
        _FOR_NOTES,
        *_remark_on_installing("the CI variable"),
    ]
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
        told = json.dumps(hook)[1:-1]
        return [], [f"{name} does not end with its list of repos, so it stays as it is: add to that {told}"]
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
    """Return packages and all that they need, perfkit left out, in the versions that are installed here.

    A job that may write installs these and no others: whoever owns a name cannot bring new code into it.
    """
    found: dict[str, str] = {}
    waiting = [*names]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # It is for another system or version of Python.
            continue
        found[name] = distribution.version
        needed = [one for one in distribution.requires or () if "extra ==" not in one]
        waiting += [match[0] for one in needed if (match := _NAME.match(one))]
    return [f"{name}=={found[name]}" for name in sorted(found) if name != "perfkit"]


def _dependencies(root: Path, layout: Layout) -> str:
    """Return a file that changes with what is installed; a job fails that looks for one that is not there."""
    if layout.installable:
        return "pyproject.toml" if (root / "pyproject.toml").is_file() else "setup.py"
    return layout.requirements or "**/*.py"


def requirement() -> str | None:
    """Return what pip installs this perfkit by: a commit, or a file with its hash; None where unknown.

    The name alone is never enough: on an index anybody may own it.
    """
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
    """Tell whether others can read a URL, and whether they may: it holds no name or password."""
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
