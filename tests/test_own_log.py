"""perfkit's own log states what the committed ledger states, over launches of commits that exist."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import git
import pytest

from perfkit.commands.log import read_change_log, render_log
from perfkit.config import Project, load_project

ROOT = Path(__file__).parent.parent


@pytest.fixture
def repository() -> git.Repo:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout of perfkit")
    return git.Repo(ROOT)


@pytest.fixture
def committed_ledger(repository: git.Repo, tmp_path: Path) -> Path:
    """Return a ledger of the files that git knows: local measurements are not part of the log yet."""
    project = load_project(ROOT)
    for name in repository.git.ls_files(str(project.ledger_path)).splitlines():
        target = tmp_path / (ROOT / name).relative_to(project.ledger_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return tmp_path


def test_the_log_is_what_the_ledger_holds(
    committed_ledger: Path, repository: git.Repo, tmp_path: Path
) -> None:
    committed = tmp_path / "perf_log.md"
    committed.write_text(repository.git.show(":perf_log.md") + "\n")

    result = render_log(project=_project(), ledger=committed_ledger, file=committed, check=True)

    assert not result.changed


def test_five_rows_rest_on_five_launches_each(committed_ledger: Path, repository: git.Repo) -> None:
    tables = read_change_log(project=_project(), ledger=committed_ledger).tables
    compared = Counter(
        entry.commit
        for table in tables
        for entry in table.entries
        for cell in entry.cells
        if cell is not None and cell.launches >= 5 and cell.ratio is not None
    )

    assert len(compared) >= 5
    assert {"commit"} == {repository.git.cat_file("-t", sha) for sha in compared}


def _project() -> Project:
    return load_project(ROOT)
