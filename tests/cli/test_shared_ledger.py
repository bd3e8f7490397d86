"""Every door takes the URL of a ledger in a store, and ends as documented when the store fails."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import run_perfkit, run_pytest
from repositories import Repository
from synthetic import build_row

from perfkit.ledger.remote import ledger_folder, shown_place
from perfkit.ledger.store import Ledger

pytest.importorskip("obstore")
pytest.importorskip("moto")
pytest.importorskip("flask_cors")

from object_server import BUCKET, ObjectServer, object_server

SUITE = "def test_sum(benchmark):\n    assert 45 == benchmark(sum, range(10))\n"


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    """Return one store for all tests of this file."""
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """Return the store, in good health, and an environment that leads to it."""
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    yield running
    running.denied, running.before = set(), None


@pytest.fixture
def url(server: ObjectServer, request: pytest.FixtureRequest) -> str:
    """Return the URL of a ledger of the test's own."""
    assert server.url
    return f"s3://{BUCKET}/{request.node.name}"


@pytest.fixture
def project(repository: Repository, url: str) -> Path:
    """Return a project with one benchmark, whose configured ledger is in the store."""
    settings = f'[tool.perfkit]\nledger = "{url}"\n'
    repository.commit({"test_suite.py": SUITE, "pyproject.toml": settings}, "Add a suite")
    return repository.root


def _run(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return (run_pytest if program == "pytest" else run_perfkit)(*arguments, cwd=folder)


def _pytest(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return _run("pytest", "--benchmark-max-time=0.01", "--perfkit-no-counts", *arguments, folder=folder)


def test_a_session_files_into_the_configured_store(project: Path, url: str) -> None:
    measured = _pytest("--benchmark-autosave", folder=project)
    listed = _run("perfkit", "ledger", "list", "--json", "-", folder=project)
    shown = _run("perfkit", "log", folder=project)

    (row,) = Ledger(ledger_folder(url)).rows()
    assert 0 == measured.returncode, measured.stdout
    assert f"-> {url}/{row.recorded_at:%Y%m%dT%H%M%SZ}-pytest-{row.run_id[-12:]}.parquet" in measured.stdout
    assert 0 == listed.returncode, listed.stderr
    assert row.run_id in listed.stdout
    assert 0 == shown.returncode, shown.stderr
    assert {"test_suite.py", "pyproject.toml", "perf_log.md", ".git"} == {
        path.name
        for path in project.iterdir()
        if path.name not in ("__pycache__", ".pytest_cache", ".benchmarks")
    }
    assert not row.commit.dirty


def test_a_session_that_could_not_file_reports_it(project: Path, url: str, server: ObjectServer) -> None:
    server.denied = {"PUT"}
    refused = _pytest("--benchmark-autosave", folder=project)
    server.denied = set()

    def before(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(".parquet"):
            server.denied = {"PUT"}

    server.before = before
    unfiled = _pytest("--benchmark-autosave", folder=project)
    server.denied, server.before = set(), None
    later = _run("perfkit", "ledger", "list", folder=project)

    assert f"perfkit: cannot write to the ledger {url} (permission denied: Access Denied)" in refused.stderr
    assert "passed" not in refused.stdout
    assert 4 == unfiled.returncode
    assert "1 passed" in unfiled.stdout
    assert f"perfkit: 1 file is not yet in {url} (permission denied" in unfiled.stdout
    assert f"perfkit: 1 file of earlier commands is in {url} now\n" == later.stderr
    assert 0 == later.returncode


def test_a_note_that_is_not_in_the_store_is_no_success(project: Path, url: str, server: ObjectServer) -> None:
    Ledger(ledger_folder(url)).append([build_row(0.5)])
    server.denied = {"PUT"}

    noted = _run("perfkit", "log", "note", "HEAD", "faster", folder=project)
    read = _run("perfkit", "ledger", "list", "--ledger", url, folder=project)

    line = f"perfkit: 1 file is not yet in {url} (permission denied: Access Denied), but safe in "
    assert 4 == noted.returncode
    assert noted.stderr.startswith(line)
    assert 1 == noted.stderr.count("\n")
    assert 0 == read.returncode
    assert read.stderr.startswith(line)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://none/x", "cannot read the ledger s3://none/x (there is no such bucket)"),
        ("s4://rows/x", "a ledger in a store must read s3://BUCKET/PATH"),
        (f"s3://{BUCKET}/nothing", f"there is no ledger at s3://{BUCKET}/nothing"),
        ("nowhere", "there is no ledger at nowhere"),
    ],
)
def test_a_wrong_place_is_one_line(project: Path, place: str, message: str) -> None:
    done = _run("perfkit", "ledger", "list", "--ledger", place, folder=project)

    assert 2 == done.returncode
    assert done.stderr.startswith(f"perfkit: {message}")
    assert 1 == done.stderr.count("\n")
    assert not [path for path in project.iterdir() if path.name.startswith("s")]


def test_a_folder_moves_into_a_store_and_is_kept_small_there(project: Path, url: str) -> None:
    there = Ledger(project / "there")
    for number in range(3):
        there.append([build_row(run=f"{number:012}", launch=number)])

    merged = _run("perfkit", "ledger", "merge", "there", "--ledger", url, folder=project)
    compacted = _run("perfkit", "ledger", "compact", "--all", folder=project)
    verified = _run("perfkit", "ledger", "check", folder=project)
    back = _run("perfkit", "ledger", "merge", url, "--ledger", "there", folder=project)

    assert [0, 0, 0, 0] == [done.returncode for done in (merged, compacted, verified, back)]
    (file,) = Ledger(ledger_folder(url)).files()
    assert f"{url}/{file.name}" == shown_place(file)
    assert [0, 1, 2] == [row.placement.launch for row in Ledger(ledger_folder(url)).rows()]
    assert [0, 1, 2] == [row.placement.launch for row in there.rows()]
