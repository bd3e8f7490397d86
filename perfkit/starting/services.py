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
from perfkit.records.starting import Layout, PlannedFile
from perfkit.repo.commands import try_git
from perfkit.starting.files import new_file, read_as_is

_PYTHON = "3.12"
_KEY = re.compile(r"^([A-Za-z_][\w-]*):", re.MULTILINE)
_ITEM = re.compile(r"^( *)- +repo:", re.MULTILINE)

Planned = tuple[list[PlannedFile | None], list[str]]


def service_files(service: Service, root: Path, layout: Layout) -> Planned:
    """Return the files that a service needs, None for each that is there, and what is to be done by hand."""
    values = _values(root, layout)
    if service == "github":
        return _github(root, values)
    if service == "gitlab":
        return _gitlab(root, values)
    return _pre_commit(root)


def _github(root: Path, values: Mapping[str, str]) -> Planned:
    top = try_git(root, "rev-parse", "--show-toplevel")
    remarks = [
        'make the job "gate" a required check, once it has run: Settings, Branches, on github.com',
        *_remark_on_installing(values),
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
        "for a note on each merge request, the CI variable PERFKIT_GITLAB_TOKEN needs a token of scope api",
        *_remark_on_installing(values),
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


def _values(root: Path, layout: Layout) -> dict[str, str]:
    perfkit = requirement()
    parts = [perfkit]
    if layout.requirements:
        parts = ["-r", layout.requirements, *parts]
    if layout.installable:
        parts = ["-e", ".", *parts]
    return {
        "BRANCH": _main_branch(root),
        "PYTHON": _PYTHON,
        "PERFKIT": perfkit,
        "INSTALL": f"python -m pip install {' '.join(parts)}",
        "DEPENDENCIES": _dependencies(root, layout),
    }


def _dependencies(root: Path, layout: Layout) -> str:
    """Return a file that changes with what is installed; a job fails that looks for one that is not there."""
    if layout.installable:
        return "pyproject.toml" if (root / "pyproject.toml").is_file() else "setup.py"
    return layout.requirements or "**/*.py"


def requirement() -> str:
    """Return what pip installs this perfkit by: the commit of a repository where it came from one."""
    distribution = importlib.metadata.distribution("perfkit")
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        origin = {}
    commit = origin.get("vcs_info", {}).get("commit_id")
    if commit is not None:
        return f"'perfkit @ git+{origin['url']}@{commit}'"
    return "perfkit"


def _remark_on_installing(values: Mapping[str, str]) -> list[str]:
    if values["PERFKIT"] != "perfkit":
        return []
    return [
        "the files install `perfkit` by its name: write there where you have it from, if that is elsewhere"
    ]


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
    return (importlib.resources.files("perfkit.starting") / "templates" / name).read_text(encoding="utf-8")
