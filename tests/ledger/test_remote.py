"""A ledger in a store is shared by machines: none loses, overwrites or counts twice what another recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from repositories import Repository
from synthetic import START, build_row

import perfkit
from perfkit.errors import LedgerError, RecordingError, UsageError
from perfkit.features.store import mirror
from perfkit.ledger.annotations import Note, add_note, read_notes
from perfkit.ledger.remote import ledger_folder, mirrored_url, put_pending, shown_place
from perfkit.ledger.store import Ledger

obstore = pytest.importorskip("obstore")
pytest.importorskip("moto")
pytest.importorskip("flask_cors")

from object_server import BUCKET, ObjectServer, object_server  # noqa: E402 (after it is known to be there)

WRITER = """
import sys
from synthetic import build_row
from perfkit.ledger.remote import ledger_folder
from perfkit.ledger.store import Ledger

url, writer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = Ledger(ledger_folder(url))
for number in range(count):
    ledger.append([build_row(run=f"{writer}-{number:04}", launch=number)])
"""
OPENER = """
import sys
from perfkit.ledger.remote import ledger_folder
ledger_folder(sys.argv[1])
"""


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
    running.asked.clear()
    yield running
    running.denied, running.lost, running.ignores_conditions, running.held = set(), 0, False, None
    running.before = None


@pytest.fixture
def url(server: ObjectServer, request: pytest.FixtureRequest) -> str:
    """Return the URL of a ledger of the test's own."""
    assert server.url
    return f"s3://{BUCKET}/{request.node.name}"


class Machines:
    """Several machines: each has a cache of its own."""

    def __init__(self, folder: Path, url: str, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._url, self._patch = folder, url, patch

    def open(self, name: str) -> Ledger:
        """Open the ledger on a machine, as a command there does."""
        with self._patch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self._folder / name))
            return Ledger(ledger_folder(self._url))

    def launches(self, name: str) -> list[int]:
        """Return the launches of all rows that a machine sees when it opens the ledger."""
        return _launches(self.open(name))


@pytest.fixture
def machines(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Return machines that share the ledger of the test."""
    return Machines(tmp_path, url, monkeypatch)


def _launches(ledger: Ledger) -> list[int]:
    return sorted(row.placement.launch for row in ledger.rows())


def _append(ledger: Ledger, *launches: int) -> list[Path]:
    return [
        ledger.append([build_row(run=f"{launch:012}", minute=launch, launch=launch)]) for launch in launches
    ]


def _objects(url: str) -> list[str]:
    store = obstore.store.from_url(url, client_options={"allow_http": True})
    return sorted(meta["path"] for meta in store.list().collect())


def _put(url: str, name: str, content: bytes) -> None:
    obstore.store.from_url(url, client_options={"allow_http": True}).put(name, content)


def _remove(url: str, name: str) -> None:
    obstore.store.from_url(url, client_options={"allow_http": True}).delete(name)


def _names(ledger: Ledger) -> list[str]:
    return sorted(file.name for file in ledger.path.glob("*.parquet"))


def test_what_one_machine_records_another_reads(machines: Machines, url: str) -> None:
    here = machines.open("here")
    with here.run(source="gate", run_id="run-1", recorded_at=START) as run:
        run.add([build_row(run="run-1", launch=3)])
    add_note(here.path, Note(commit="a" * 40, text="Größer", recorded_at=START))

    there = machines.open("there")

    assert [3] == _launches(there)
    assert ["Größer"] == [note.text for note in read_notes(there.path).values()]
    (note,) = (here.path / "notes").iterdir()
    assert ["20260102T030405Z-gate-run-1.parquet", f"notes/{note.name}"] == _objects(url)
    assert f"{url}/20260102T030405Z-gate-run-1.parquet" == shown_place(here.files()[0])
    assert url == mirrored_url(there.path)
    assert mirrored_url(there.path.parent) is None


def test_what_is_gone_from_the_store_goes_here(machines: Machines, server: ObjectServer, url: str) -> None:
    here = machines.open("here")
    first, _ = _append(here, 0, 1)
    server.denied = {"PUT"}
    with pytest.raises(RecordingError):
        _append(here, 2)
    _remove(url, first.name)

    assert [1, 2] == machines.launches("here")


def test_what_cannot_be_put_is_pending(machines: Machines, server: ObjectServer, url: str) -> None:
    here = machines.open("here")
    server.denied = {"PUT"}

    with pytest.raises(RecordingError) as caught:
        _append(here, 0)
    refused = put_pending(here.path)

    message = (
        f"1 file is not yet in {url} (permission denied: Access Denied), but safe in {here.path}: "
        "the next perfkit command on that ledger tries again"
    )
    assert 4 == caught.value.exit_code
    assert message == str(caught.value)
    assert refused is not None
    assert message == refused.text
    assert shown_place(here.files()[0]).endswith(f"not yet in {url}")
    assert [] == machines.launches("there")
    server.denied = set()
    done = put_pending(here.path)
    assert done is not None
    assert f"1 file of earlier commands is in {url} now" == done.text
    assert [0] == machines.launches("there")


def test_a_training_does_not_wait_for_a_store(
    machines: Machines,
    server: ObjectServer,
    url: str,
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    repository.commit({"pyproject.toml": ""})
    monkeypatch.chdir(repository.root)
    answers = [threading.Event(), None]
    for server.held in answers:
        with perfkit.training("net", warmup=0, balance=0, ledger=url) as run:
            for _ in range(3):
                run.step()
        if server.held is not None:
            assert f"not yet in {url} (it does not answer)" in capsys.readouterr().err
            server.held.set()

    put_pending(machines.open("here").path)
    assert "not yet in" not in capsys.readouterr().err
    assert 2 == len({row.run_id for row in machines.open("there").rows()})


def test_without_a_network_nothing_is_lost(
    machines: Machines, url: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machines.open("here")
    _append(here, 0)
    with server.unreachable(), monkeypatch.context() as patch:
        patch.setattr(mirror, "RETRIES", 0)
        with pytest.raises(LedgerError) as unread:
            machines.open("here")
        with pytest.raises(RecordingError, match=r"\(the connection broke\), but safe in"):
            _append(here, 1)

    assert (
        f"cannot read the ledger {url} (the connection broke); what it had when it was read last is in "
        f"{here.path}, which is a ledger, too"
    ) == str(unread.value)
    assert [0, 1] == _launches(Ledger(here.path))
    _append(here, 2)
    assert [0, 1, 2] == machines.launches("there")


def test_a_store_that_does_not_answer_is_reported(
    machines: Machines, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machines.open("here")
    monkeypatch.setattr(mirror, "ANSWER_S", 0.1)
    server.held = threading.Event()

    with pytest.raises(RecordingError, match=r"\(it does not answer\)"):
        _append(here, 0)

    server.held.set()


def test_a_lost_answer_is_no_loss(machines: Machines, server: ObjectServer, url: str) -> None:
    here = machines.open("here")
    server.lost = 1

    (file,) = _append(here, 0)

    assert [file.name] == _objects(url)
    assert 2 == server.asked.count(f"PUT /{BUCKET}/{url.rpartition('/')[2]}/{file.name}")


@pytest.mark.parametrize("opened_first", [False, True])
def test_another_content_under_the_same_name_is_an_error(
    machines: Machines, server: ObjectServer, url: str, *, opened_first: bool
) -> None:
    here, there = machines.open("here"), machines.open("there")
    (mine,) = _append(there, 0)
    server.denied = {"PUT"}
    with pytest.raises(RecordingError):
        here.append([build_row(0.25, run=f"{0:012}", launch=7)])
    server.denied = set()

    if opened_first:
        with pytest.raises(LedgerError) as caught:
            machines.open("here")
        shown = str(caught.value)
    else:
        done = put_pending(here.path)
        assert done is not None
        shown = done.text

    assert f"{here.path / mine.name} and {url}/{mine.name} have one name and differ" in shown
    assert [7] == _launches(here)
    assert [0] == machines.launches("third")


def test_of_two_writers_of_one_name_one_wins(machines: Machines, url: str) -> None:
    ledgers = [machines.open(f"machine-{number}") for number in range(6)]
    together = threading.Barrier(len(ledgers))

    def record(number: int) -> bool:
        together.wait()
        try:
            ledgers[number].append([build_row(run="run-1", launch=number)])
        except RecordingError:
            return False
        return True

    with ThreadPoolExecutor(len(ledgers)) as pool:
        won = [number for number, done in enumerate(pool.map(record, range(len(ledgers)))) if done]

    assert 1 == len(won)
    assert won == machines.launches("reader")
    assert 1 == len(_objects(url))


def test_processes_append_at_once(url: str, tmp_path: Path) -> None:
    writers, runs = 3, 4
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, f"writer-{number}", str(runs)],
            env={**_environment(), "XDG_CACHE_HOME": str(tmp_path / f"machine-{number // 2}")},
        )
        for number in range(writers)
    ]

    assert [0] * writers == [process.wait() for process in processes]
    rows = Ledger(ledger_folder(url)).rows()
    expected = [f"writer-{writer}-{number:04}" for writer in range(writers) for number in range(runs)]
    assert expected == sorted(row.run_id for row in rows)


def test_a_copy_that_was_killed_is_completed(machines: Machines, server: ObjectServer, url: str) -> None:
    _append(machines.open("there"), *range(8))
    server.held, answered = threading.Event(), threading.Event()

    def before(method: str, path: str) -> None:
        if path.endswith("05.parquet"):
            answered.set()
        elif method == "GET":
            server_held.set()

    server_held, server.before = server.held, before
    process = subprocess.Popen([sys.executable, "-c", OPENER, url], env=_environment())
    assert answered.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.held.set()
    server.asked.clear()

    folder = ledger_folder(url)
    (folder / ".x.parquet.1.download").write_bytes(b"half")
    Ledger(folder).files()[1].write_bytes(b"half")

    assert list(range(8)) == _launches(Ledger(ledger_folder(url)))
    assert [] == [*folder.glob(".*.download")]
    assert [] == [asked for asked in server.asked if asked.startswith("PUT")]


def test_while_a_store_is_compacted_every_row_is_seen_once(machines: Machines, server: ObjectServer) -> None:
    here = machines.open("here")
    _append(here, 0, 1, 2)
    machines.open("old")
    seen: list[list[int]] = []
    inside = threading.Lock()

    def before(_method: str, _path: str) -> None:
        if inside.acquire(blocking=False):
            try:
                seen.extend((machines.launches("old"), machines.launches(f"new-{len(seen)}")))
            finally:
                inside.release()

    server.before = before
    here.compact()
    server.before = None

    assert [[0, 1, 2]] * 6 == seen, "its requests put a file, list all and remove three"
    assert [0, 1, 2] == machines.launches("old")


def test_a_compacting_between_list_and_copy_is_noticed(machines: Machines, server: ObjectServer) -> None:
    here = machines.open("here")
    _append(here, 0, 1, 2)
    once = threading.Event()

    def before(method: str, path: str) -> None:
        if method == "GET" and path.endswith(".parquet") and not once.is_set():
            once.set()
            here.compact()

    server.before = before

    assert [0, 1, 2] == machines.launches("there")
    assert once.is_set()


def test_a_compacting_that_was_cut_off_is_finished_by_the_next(
    machines: Machines, server: ObjectServer, url: str
) -> None:
    here = machines.open("here")
    _append(here, 0, 1, 2)
    server.denied = {"PUT"}
    with pytest.raises(RecordingError, match="1 file is not yet in"):
        here.compact()
    assert 3 == len(_objects(url))
    assert [0, 1, 2] == machines.launches("here") == machines.launches("there")
    server.denied = {"POST"}
    with pytest.raises(RecordingError, match=r"the old files cannot be removed \(permission denied"):
        here.compact()
    assert 4 == len(_objects(url))
    assert [0, 1, 2] == machines.launches("here") == machines.launches("there")
    assert 1 == len(_names(machines.open("there"))), "a glob over the copy is right at once"
    server.denied = set()

    here.compact()

    assert 1 == len(_objects(url))


def test_two_machines_that_compact_alike_may_both(machines: Machines, url: str) -> None:
    here, there = machines.open("here"), machines.open("there")
    _append(here, 0, 1)
    machines.open("there").compact()
    (name,) = _objects(url)
    other = here.path.parent / "other"
    Ledger(other).append([build_row(run=f"{0:012}", launch=0)])
    Ledger(other).append([build_row(run=f"{1:012}", minute=1, launch=1, name="bench_b.py::test_b")])
    Ledger(other).compact()
    (here.path / name).write_bytes(next(other.glob("*.parquet")).read_bytes())

    done = put_pending(here.path)

    assert done is not None
    assert (name,) == done.put
    assert 2 == len(_objects(url))
    assert [0, 1] == machines.launches("here") == machines.launches("there") == _launches(there)


def test_a_store_that_replaces_objects_is_refused(machines: Machines, server: ObjectServer) -> None:
    here = machines.open("here")
    server.ignores_conditions = True

    with pytest.raises(LedgerError, match="replaces an object despite If-None-Match"):
        here.check_writable()


def test_a_store_that_takes_nothing_is_refused(machines: Machines, server: ObjectServer, url: str) -> None:
    here = machines.open("here")
    here.check_writable()
    here.check_writable()
    server.denied = {"PUT"}

    with pytest.raises(LedgerError) as caught:
        here.check_writable()

    assert f"cannot write to the ledger {url} (permission denied: Access Denied); " in str(caught.value)
    assert [] == here.files()


def test_a_reader_without_permission_is_reported(machines: Machines, server: ObjectServer) -> None:
    _append(machines.open("there"), 0)
    server.denied = {"GET"}

    with pytest.raises(LedgerError, match=r"\(permission denied: Access Denied\)") as caught:
        machines.open("here")

    assert "a-secret" not in str(caught.value)
    assert "an-access-key" not in str(caught.value)


def test_names_that_are_no_ledger_files_are_left_alone(machines: Machines, url: str) -> None:
    _append(machines.open("there"), 0)
    for name in (
        ".hidden.parquet",
        "deep/er/x.parquet",
        "readme.md",
        "notes/.x.json",
        "deep/er/notes/a.json",
    ):
        _put(url, name, b"x")

    here = machines.open("here")

    assert [0] == _launches(here)
    assert 1 == len([file for file in here.path.rglob("*") if file.is_file() and ".remote" not in file.parts])


def test_the_same_url_of_another_server_is_another_ledger(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machines.open("here")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(mirror, "RETRIES", 0)

    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        machines.open("here")
    with pytest.raises(RecordingError, match=r"the environment names http://127\.0\.0\.1:9"):
        _append(here, 0)

    assert str(here.path) not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "printed"),
    [
        ("s3://", "must read s3://BUCKET/PATH"),
        ("s3:///path", "must read s3://BUCKET/PATH"),
        ("https://host/bucket", "must read s3://BUCKET/PATH"),
        ("hdfs://host/x", "found hdfs://host/x"),
        ("file://host/x", "must read"),
        ("s3://key:word@bucket/x", "s3://…@bucket/x must name a place and nothing else"),
        ("s3://bucket/x?token=word", "s3://bucket/x must name a place and nothing else"),
        (Path("s3://bucket/x"), "s3:/bucket/x is a URL that was made a path; give it as text"),
    ],
)
def test_a_url_of_another_form_is_refused(place: str | Path, printed: str) -> None:
    with pytest.raises(UsageError) as caught:
        ledger_folder(place)

    assert printed in str(caught.value)
    assert "word" not in str(caught.value)


def test_without_the_feature_a_url_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("perfkit.ledger.remote.features", tuple)

    with pytest.raises(UsageError, match="nothing installed opens ledgers at URLs"):
        ledger_folder("s3://bucket/x")
    assert tmp_path == ledger_folder(tmp_path)
    assert mirrored_url(tmp_path) is None


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(UsageError, match=r"not installed; `pip install 'perfkit\[cloud\]'`"):
        ledger_folder("gs://bucket/x")


def test_a_cache_that_cannot_be_written_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(LedgerError, match=rf"cannot keep a copy of {url} in .+; set XDG_CACHE_HOME"):
        ledger_folder(url)


def test_a_shared_drive_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(tmp_path, f"file://{tmp_path}/a drive/rows", monkeypatch)
    here = machines.open("here")
    here.check_writable()
    _append(here, 0, 1)
    add_note(here.path, Note(commit="a" * 40, text="x", recorded_at=START))

    machines.open("there").compact()

    assert [0, 1] == machines.launches("here")
    assert 1 == len(read_notes(machines.open("third").path))
    assert 1 == len([*(tmp_path / "a drive/rows").glob("*.parquet")])


def test_python_opens_a_url(machines: Machines, url: str) -> None:
    _append(machines.open("there"), 0, 1)

    assert 2 == len(perfkit.open_ledger(url).to_pandas())


def _environment() -> dict[str, str]:
    tests = Path(__file__).parent.parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tests), *sys.path))}
