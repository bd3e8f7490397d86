"""The log file is written between its markers, checked, and shows people's own descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_commands import run_perfkit
from repositories import Repository
from synthetic import build_row

from perfkit.commands.log import RenderedLog, note_commit, render_log
from perfkit.config import load_project
from perfkit.errors import LedgerError, NotMeasuredError, OutOfDateError, RepositoryError, UsageError
from perfkit.ledger.store import Ledger


def _render(repository: Repository, *, check: bool = False) -> RenderedLog:
    project = load_project(repository.root)
    return render_log(
        project=project, ledger=project.ledger_path, file=repository.root / "perf_log.md", check=check
    )


@pytest.fixture
def measured(repository: Repository) -> Repository:
    """Return a repository whose only commit has a row in the ledger."""
    sha = repository.commit({"a.py": "1", "pyproject.toml": ""}, "Add a")
    Ledger(repository.root / "benchmarks/ledger").append([build_row(1.0, sha=sha, subject="Add a")])
    return repository


def test_the_log_is_written_once_and_then_up_to_date(measured: Repository) -> None:
    assert _render(measured).changed
    assert not _render(measured).changed
    assert not _render(measured, check=True).changed
    assert "| 1.000, - † | Add a |" in (measured.root / "perf_log.md").read_text()


def test_a_benchmark_without_any_time_has_no_column(measured: Repository) -> None:
    """Such as a target whose name was mistyped; alone it is no log."""
    sha = measured.git.head.commit.hexsha
    ledger = Ledger(measured.root / "benchmarks/ledger")
    ledger.append([build_row(name="perfkit_target.py", sha=sha, run="run-2", status="skipped")])
    _render(measured)

    assert "perfkit_target" not in (measured.root / "perf_log.md").read_text()


def test_notes_outside_the_markers_are_kept(measured: Repository) -> None:
    _render(measured)
    file = measured.root / "perf_log.md"
    file.write_text("# Mine\n\n" + file.read_text() + "\nMy conclusions.\n")
    Ledger(measured.root / "benchmarks/ledger").append([build_row(2.0, run="r2", sha="b" * 40, minute=1)])

    _render(measured)

    text = file.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("\nMy conclusions.\n")
    assert "2.000, - †" in text


def test_check_shows_a_stale_file_and_writes_nothing(measured: Repository) -> None:
    with pytest.raises(OutOfDateError, match="run `perfkit log`") as caught:
        _render(measured, check=True)

    assert 1 == caught.value.exit_code
    assert not (measured.root / "perf_log.md").exists()


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_an_empty_ledger_shows_how_to_begin(repository: Repository, *, check: bool, columns: bool) -> None:
    column = '[[tool.perfkit.log.columns]]\ntitle = "a"\nbenchmark = "a"\n' if columns else ""
    repository.commit({"pyproject.toml": column}, "Begin")
    (repository.root / "benchmarks/ledger").mkdir(parents=True)

    of = r"any benchmark of \[tool.perfkit.log\] at" if columns else "any benchmark at"
    with pytest.raises(
        NotMeasuredError, match=f"nothing to render yet: .*{of}.*--benchmark-autosave"
    ) as caught:
        _render(repository, check=check)

    assert 4 == caught.value.exit_code
    assert not (repository.root / "perf_log.md").exists()


def test_runs_on_uncommitted_changes_alone_are_no_log(measured: Repository) -> None:
    file = measured.root / "perf_log.md"
    file.write_text("# Mine\n")
    for old in Ledger(measured.root / "benchmarks/ledger").files():
        old.unlink()
    Ledger(measured.root / "benchmarks/ledger").append([build_row(1.0, dirty=True)])

    with pytest.raises(NotMeasuredError, match="only 1 run on uncommitted changes; commit your changes"):
        _render(measured)

    assert "# Mine\n" == file.read_text()


def test_a_note_describes_its_commit(measured: Repository) -> None:
    project = load_project(measured.root)
    for text in ("First words", "Better words"):
        note_commit(project=project, ledger=project.ledger_path, ref="HEAD", text=text)

    _render(measured)

    assert "| Better words |" in (measured.root / "perf_log.md").read_text()


def test_a_note_needs_a_commit_and_words(measured: Repository) -> None:
    project = load_project(measured.root)
    with pytest.raises(RepositoryError, match='unknown commit "nowhere"'):
        note_commit(project=project, ledger=project.ledger_path, ref="nowhere", text="x")
    with pytest.raises(UsageError, match="a note needs a text"):
        note_commit(project=project, ledger=project.ledger_path, ref="HEAD", text=" ")


def test_a_damaged_note_is_named(measured: Repository) -> None:
    folder = measured.root / "benchmarks/ledger/notes"
    folder.mkdir()
    (folder / "x.json").write_text("{")

    with pytest.raises(LedgerError, match=r"x\.json is not a readable note"):
        _render(measured)


def test_an_unwritable_file_is_one_line(measured: Repository, tmp_path: Path) -> None:
    project = load_project(measured.root)
    with pytest.raises(UsageError, match=r"cannot write .*choose another with --out"):
        render_log(project=project, ledger=project.ledger_path, file=tmp_path / "no" / "x.md", check=False)


def test_an_option_before_a_command_is_refused(repository: Repository) -> None:
    repository.commit({"a.py": ""})

    done = run_perfkit("log", "--ledger", "other", "note", "HEAD", "text", cwd=repository.root)

    assert 2 == done.returncode
    assert "--ledger belongs behind the command" in done.stderr
    assert not (repository.root / "benchmarks").exists()
