"""A task is the same run however often it is done, and is filed once; its code travels as a bundle."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cluster import simulated_tasks
from forked_commands import run_pytest
from object_server import BUCKET, object_server
from repositories import Repository
from synthetic import build_row

from perfkit.commands.tasks import (
    Code,
    Task,
    decode,
    encode,
    file_name,
    file_once,
    own_class,
    pack,
    perform_here,
    run_of,
    unpack,
)
from perfkit.errors import NotMeasuredError, RecordingError, RepositoryError
from perfkit.features.cluster.worker import (
    bundle_name,
    clone_of,
    make_bundle,
    make_clone,
    own_version,
    run_work,
)
from perfkit.identity import short_run_id
from perfkit.ledger.remote import ledger_folder
from perfkit.ledger.soundness import check_file
from perfkit.ledger.store import Ledger
from perfkit.repo.source import benchmark_files, benchmark_versions, commit_of_files

BENCHMARKS = """
import pytest


@pytest.mark.parametrize('n', [1, 2])
@pytest.mark.filterwarnings(
    'ignore'
)
def test_plain(benchmark, n):
    # A comment.
    benchmark.pedantic(lambda: n, rounds=1)

    # An end.

class TestAll:
    def test_inside(self, benchmark):
        benchmark.pedantic(lambda: 1, rounds=1)

    def test_no_benchmark(self):
        pass
"""


@pytest.fixture
def task() -> Task:
    """Return a task that records a row and measures nothing."""
    return dataclasses.replace(simulated_tasks(1, seconds=0)[0], kind="check")


def _silent(_: str) -> None:
    """Let a line pass."""


def test_a_run_follows_from_what_is_measured(task: Task) -> None:
    later = dataclasses.replace(task, stamp=task.stamp + timedelta(days=1))
    elsewhere = dataclasses.replace(task, code=Code(head="1" * 40, bundle="abc", address="git://host"))
    others = [
        dataclasses.replace(task, commits=("1" * 40,)),
        dataclasses.replace(task, launches=2),
        dataclasses.replace(task, settings={}),
        dataclasses.replace(task, machine=dataclasses.replace(task.machine, torch="none")),
        dataclasses.replace(task, code=dataclasses.replace(task.code, overlay="2" * 40)),
    ]

    assert {run_of(task)} == {run_of(later), run_of(elsewhere), run_of(decode(encode(task)))}
    assert 6 == len({run_of(task), *map(run_of, others)})
    assert f"20260102T030405Z-check-{short_run_id(run_of(task))}.parquet" == file_name(task)


def test_a_task_done_twice_is_filed_once(task: Task, tmp_path: Path) -> None:
    first, second = (perform_here(task, tmp_path, _silent) for _ in range(2))

    assert [True, False] == [file_once(tmp_path / "ledger", task, one) for one in (first, second)]
    (file,) = Ledger(tmp_path / "ledger").files()
    assert first == file.read_bytes()
    assert () == check_file(file).problems
    assert [run_of(task)] == [row.run_id for row in unpack(task, first)]


@pytest.mark.parametrize("days", [0, 1])
def test_a_task_whose_run_was_compacted_is_not_filed_again(task: Task, tmp_path: Path, days: int) -> None:
    ledger = tmp_path / "ledger"
    again = dataclasses.replace(task, stamp=task.stamp + timedelta(days=days))
    file_once(ledger, task, perform_here(task, tmp_path, _silent))
    Ledger(ledger).append([build_row(1.0)])
    Ledger(ledger).compact()

    assert not file_once(ledger, again, perform_here(again, tmp_path, _silent))
    assert 2 == len(Ledger(ledger).rows())


def test_two_machines_file_a_task_into_a_store_once(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto")
    url = f"s3://{BUCKET}/tasks"
    contents = [perform_here(task, tmp_path, _silent) for _ in range(2)]
    with object_server() as server:
        for name, text in server.environment().items():
            monkeypatch.setenv(name, text)
        mirrors = []
        for machine in ("one", "other"):
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
            mirrors.append(ledger_folder(url))
        filed = [file_once(mirror, task, content) for mirror, content in zip(mirrors, contents, strict=True)]

    assert [True, False] == filed
    assert [[contents[0]]] * 2 == [[file.read_bytes() for file in Ledger(one).files()] for one in mirrors]


def test_what_is_no_task_or_of_another_run_is_refused(task: Task, tmp_path: Path) -> None:
    other = dataclasses.replace(task, seed=1)
    content = perform_here(other, tmp_path, _silent)

    with pytest.raises(NotMeasuredError, match="a file of another run"):
        unpack(task, content)
    with pytest.raises(NotMeasuredError, match="a damaged file"):
        unpack(task, content[:-40])
    with pytest.raises(NotMeasuredError, match="holds no task of this version"):
        decode(b'{"kind": "check"}')
    with pytest.raises(NotMeasuredError, match="ended without a row"):
        pack(task, tmp_path / "empty")


def test_a_task_that_finds_no_room_here_is_reported(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = perform_here(task, tmp_path, _silent)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))

    with pytest.raises(RecordingError, match=r"cannot write what a worker sent to .*gone \(No such file"):
        unpack(task, content)


def test_a_task_for_other_machines_is_not_done(task: Task, tmp_path: Path) -> None:
    foreign = dataclasses.replace(task, machine=dataclasses.replace(task.machine, machine_id="another"))
    file = tmp_path / "task.json"
    file.write_text(encode(foreign))

    with pytest.raises(NotMeasuredError, match=r"for the machines another .* and this is"):
        run_work(file, folder=tmp_path, into=tmp_path, log=_silent)
    with pytest.raises(NotMeasuredError, match='no kind of task "unheard_of"'):
        perform_here(dataclasses.replace(task, kind="unheard_of"), tmp_path, _silent)
    assert own_class() == task.machine
    assert own_version() == own_version()


def test_code_travels_as_a_bundle_and_leaves_no_trace(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = repository.commit({"mycode.py": "1", "benchmarks/bench_a.py": "committed"})
    repository.git.git.commit("--quiet", "--allow-empty", "--amend", "-m", "Another")
    head = repository.git.head.commit.hexsha
    (repository.root / "benchmarks/bench_a.py").write_text("today's")
    refs = repository.git.git.for_each_ref()
    status = repository.git.git.status("--porcelain")
    files = benchmark_files(repository.root, repository.root, "benchmarks", ignored=())
    overlay = commit_of_files(repository.root, files)
    commits = [old, head, overlay]
    code = Code(head=head, overlay=overlay, bundle=bundle_name(commits, ""))

    clone = make_clone(code, make_bundle(repository.root, commits))

    assert overlay == commit_of_files(repository.root, files)
    assert (refs, status) == (repository.git.git.for_each_ref(), repository.git.git.status("--porcelain"))
    assert clone == clone_of(code)
    made = Repository(clone, type(repository.git)(clone))
    assert head == made.git.head.commit.hexsha
    assert "today's" == made.git.git.show(f"{overlay}:benchmarks/bench_a.py")
    assert ["benchmarks/bench_a.py"] == made.git.git.ls_tree("-r", "--name-only", overlay).split()
    assert "1" == made.git.git.show(f"{old}:mycode.py")


def test_code_from_an_address_is_cloned(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    head = repository.commit({"mycode.py": "1"})
    address = str(repository.root)

    clone = make_clone(Code(head=head, bundle="a", address=address), b"")

    assert "1" == (clone / "mycode.py").read_text()
    with pytest.raises(RepositoryError, match="has no commit 1111111111; push it there first"):
        make_clone(Code(head="1" * 40, bundle="b", address=address), b"")
    assert None is clone_of(Code(head="1" * 40, bundle="b", address=address))


def test_versions_by_source_are_those_of_rows(repository: Repository) -> None:
    repository.commit({"bench/test_a.py": BENCHMARKS, "bench/test_broken.py": "def ("})
    run_pytest("bench/test_a.py", "--perfkit-ledger=ledger", cwd=repository.root).check_returncode()
    rows = Ledger(repository.root / "ledger").rows()

    found = benchmark_versions(sorted((repository.root / "bench").glob("*.py")), repository.root)

    recorded = {(row.outcome.benchmark.name.partition("[")[0], row.outcome.benchmark.version) for row in rows}
    assert recorded == set(found.items())


def test_no_stamp_is_ever_in_the_way() -> None:
    (task,) = simulated_tasks(1, seconds=0)
    unknown = dataclasses.replace(task, stamp=datetime.fromtimestamp(0, UTC))

    assert file_name(unknown).startswith("19700101T000000Z-simulated-")
