"""No row that was added to a run is lost or counted twice, wherever a process is killed."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import math
import os
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from killing import die, in_child, kill_after, killed_at
from ledger_files import add_run, run_id
from ledger_rows import rows
from repositories import Repository
from synthetic import START, build_row

from perfkit.errors import LedgerError, RecordingError
from perfkit.ledger.files import OnStep, ignore_log
from perfkit.ledger.recording import Recovered, Run, recover
from perfkit.ledger.schema import from_cells, to_cells
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.model import Placement, Row
from perfkit.model.comparisons import Policy
from perfkit.model.policies import JudgedPolicy
from perfkit.repo.commits import read_commit
from perfkit.repo.working_tree import describe_working_tree

NAME = "20260102T030405Z-gate-run-1"
JUDGED = JudgedPolicy(
    rules=Policy(alpha=0.01, family=2, looks=(10, 15)), margin=0.02, gating=True, verdict="UNCHANGED"
)


def _begin(ledger: Path, *, run: str = "run-1", on_step: OnStep = ignore_log) -> Run:
    return Ledger(ledger, on_step=on_step).run(source="gate", run_id=run, recorded_at=START)


def _rows(*launches: int) -> list[Row]:
    return [build_row(0.25, launch=launch, source="gate") for launch in launches]


def _launches(ledger: Path) -> list[int]:
    return [row.placement.launch for row in Ledger(ledger).rows()]


def _staged(ledger: Path) -> list[str]:
    folder = ledger / ".staged"
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def _recovered(ledger: Path) -> Recovered:
    (found,) = recover(ledger)
    return found


@settings(max_examples=30)
@given(rows)
def test_a_row_survives_its_staged_line(row: Row) -> None:
    assert row == from_cells(json.loads(json.dumps(to_cells(row))))


def test_values_that_are_no_numbers_survive(tmp_path: Path) -> None:
    kill_after(lambda: _begin(tmp_path).add([build_row(math.inf, -math.inf, math.nan)]))

    assert 1 == _recovered(tmp_path).rows
    (row,) = Ledger(tmp_path).rows()
    assert (math.inf, -math.inf) == row.outcome.values[:2]
    assert math.isnan(row.outcome.values[2])


def test_a_run_is_one_file_at_the_end(tmp_path: Path) -> None:
    with _begin(tmp_path) as run:
        run.add(_rows(0))
        run.add([])
        run.add(_rows(1, 2))
        assert (0, 1, 2) == tuple(row.placement.launch for row in run.rows)
        assert [".gitignore", f"{NAME}.jsonl"] == _staged(tmp_path)
        assert "*\n" == (tmp_path / ".staged/.gitignore").read_text()
        file = run.publish(lambda row: dataclasses.replace(row, policy=JUDGED))

    assert tmp_path / f"{NAME}.parquet" == file == run.file
    assert [(launch, JUDGED, False) for launch in (0, 1, 2)] == [
        (row.placement.launch, row.policy, row.partial) for row in Ledger(tmp_path).rows()
    ]
    assert [] == _staged(tmp_path)
    assert () == recover(tmp_path)


def test_a_run_ends_once(tmp_path: Path) -> None:
    with _begin(tmp_path) as run:
        run.add(_rows(0))
        run.publish()
        for again in (run.publish, run.discard, lambda: run.add(_rows(1))):
            with pytest.raises(RuntimeError, match="this run is over"):
                again()

    with pytest.raises(LedgerError, match="the run run-1 is in the ledger already"):
        _begin(tmp_path)
    assert [0] == _launches(tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no")])
def test_an_exception_publishes_what_was_added(tmp_path: Path, error: BaseException) -> None:
    run = _begin(tmp_path)
    run.add(_rows(0, 1))
    with pytest.raises(type(error)) as caught, run:
        raise error

    assert error is caught.value
    assert f"its rows so far are in {tmp_path / NAME}.parquet" == run.kept
    assert [(0, True), (1, True)] == [(row.placement.launch, row.partial) for row in Ledger(tmp_path).rows()]
    assert () == recover(tmp_path)


@pytest.mark.parametrize("step", ["pwrite", "fsync"])
def test_an_interruption_while_rows_are_written_gives_none_of_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    run = _begin(tmp_path)
    run.add(_rows(0))
    write, before = getattr(os, step), signal.getsignal(signal.SIGINT)

    def press_ctrl_c(*arguments: object) -> object:
        monkeypatch.setattr(os, step, write)
        signal.raise_signal(signal.SIGINT)
        return write(*arguments)

    monkeypatch.setattr(os, step, press_ctrl_c)
    # Where tests run in several processes, something else may answer Ctrl-C in this one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), run:
            run.add(_rows(1))
    finally:
        signal.signal(signal.SIGINT, before)

    assert [(0, True), (1, True)] == [(row.placement.launch, row.partial) for row in Ledger(tmp_path).rows()]
    assert [] == _staged(tmp_path)


# After which steps of a run a process is killed, with the launches that are then in the ledger.
_ENDS = [
    ("run begun", [], []),
    ("rows staged", [0], [0]),
    ("rows staged", [0, 1], [0, 1]),
    ("temporary file written", [0, 1], [0, 1]),
    ("file published", [0, 1], []),
    ("staged file removed", [0, 1], []),
]


def _two_launches(ledger: Path, on_step: OnStep) -> None:
    with _begin(ledger, on_step=on_step) as run:
        run.add(_rows(0))
        run.add(_rows(1))


@pytest.mark.parametrize("step", range(1, len(_ENDS) + 1))
def test_a_run_killed_at_any_step_is_recovered_once(tmp_path: Path, step: int) -> None:
    _, kept, partial = _ENDS[step - 1]

    assert killed_at(step, lambda on_step: _two_launches(tmp_path, on_step))
    found = recover(tmp_path)

    assert kept == _launches(tmp_path)
    assert partial == [row.placement.launch for row in Ledger(tmp_path).rows() if row.partial]
    assert [len(partial)] * bool(partial) == [one.rows for one in found]
    assert [] == _staged(tmp_path)
    assert [] == [*tmp_path.glob(".*.tmp")]
    assert () == recover(tmp_path)


def test_what_was_published_before_the_kill_counts_once_after_compacting(tmp_path: Path) -> None:
    Ledger(tmp_path).append([build_row(run="earlier", minute=-1)])

    def published(name: str) -> None:
        if name == "file published":
            die()

    def work() -> None:
        with _begin(tmp_path, on_step=published) as run:
            run.add(_rows(7))

    in_child(work)
    Ledger(tmp_path).append([build_row(run="later", minute=1)])
    Ledger(tmp_path).compact()
    Ledger(tmp_path).append([build_row(run="latest", minute=2)])
    Ledger(tmp_path).compact()

    assert () == recover(tmp_path)
    assert 4 == len(Ledger(tmp_path).rows())
    assert [] == _staged(tmp_path)


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    with _begin(tmp_path) as run:
        run.add(_rows(0))
        assert () == recover(tmp_path)
        assert 0 == in_child(lambda: os._exit(len(recover(tmp_path))))
        run.add(_rows(1))

    assert [0, 1] == _launches(tmp_path)


def test_a_number_that_no_column_holds_is_refused_at_once(tmp_path: Path) -> None:
    with _begin(tmp_path) as run:
        run.add([dataclasses.replace(_rows(0)[0], placement=Placement(launch=0, seed=2**63 - 1))])
        with pytest.raises(RecordingError, match=f"seed is {2**63}, and must be from"):
            run.add([dataclasses.replace(_rows(1)[0], placement=Placement(launch=1, seed=2**63))])

    assert [0] == _launches(tmp_path)
    assert [2**63 - 1] == [row.placement.seed for row in Ledger(tmp_path).rows()]


def _recover_without_locks(ledger: Path, *, on_step: OnStep = ignore_log) -> None:
    """Recover as another host does where locks hold on one host only."""

    def recover_there() -> None:
        fcntl.flock = lambda *_: None
        recover(ledger, on_step=on_step)

    in_child(recover_there)


@pytest.mark.parametrize("stale", [False, True])
def test_a_run_that_another_host_took_for_cut_off_is_recorded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stale: bool
) -> None:
    look = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        found = look(descriptor)
        if not found.st_nlink and ".jsonl" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return found

    if stale:
        monkeypatch.setattr(os, "fstat", fstat)
    with _begin(tmp_path) as run:
        run.add(_rows(0))
        _recover_without_locks(tmp_path)
        run.add(_rows(1))
        run.add(_rows(2))
        _recover_without_locks(tmp_path)
        run.add(_rows(3))
        _recover_without_locks(tmp_path)

    assert [0, 1, 2, 3] == _launches(tmp_path)
    assert [False] * 4 == [row.partial for row in Ledger(tmp_path).rows()]
    assert [run.file] == [*tmp_path.glob("*.parquet")]
    assert () == verify(tmp_path)[0].problems
    assert [] == _staged(tmp_path)


def test_a_run_that_was_taken_for_cut_off_and_is_killed_then_loses_no_row(tmp_path: Path) -> None:
    def work() -> None:
        run = _begin(tmp_path)
        run.add(_rows(0))
        _recover_without_locks(tmp_path)
        run.add(_rows(1))
        run.add(_rows(2))
        die()

    in_child(work)

    assert 3 == _recovered(tmp_path).rows
    assert [0, 1, 2] == _launches(tmp_path)
    assert [True] * 3 == [row.partial for row in Ledger(tmp_path).rows()]
    assert () == verify(tmp_path)[0].problems


def test_a_part_that_was_compacted_meanwhile_counts_no_row_twice(tmp_path: Path) -> None:
    add_run(tmp_path, 1)
    first, second = (build_row(0.5, run=run_id(2), launch=launch, source="gate") for launch in (0, 1))
    with _begin(tmp_path, run=run_id(2)) as run:
        run.add([first])
        _recover_without_locks(tmp_path)
        Ledger(tmp_path).compact()
        run.add([second])

    assert [0, 1] == [row.placement.launch for row in Ledger(tmp_path).rows_of(run_id(2))]
    assert 4 == len(Ledger(tmp_path).rows())
    assert () == verify(tmp_path)[0].problems


def test_a_child_that_outlives_its_run_holds_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    ready_in, ready_out = os.pipe()

    def work() -> None:
        with _begin(tmp_path) as run:
            run.add(_rows(0))
            if os.fork() == 0:
                os.close(writing)
                os.write(ready_out, b".")
                os.read(reading, 1)
                raise KeyboardInterrupt
            # On a busy machine the child may not have run at all yet.
            os.read(ready_in, 1)
            die()

    in_child(work)
    found = recover(tmp_path)
    os.close(writing)

    assert [1] == [one.rows for one in found]
    assert [True] == [row.partial for row in Ledger(tmp_path).rows()]


def test_two_recoveries_at_once_publish_each_run_once(tmp_path: Path) -> None:
    for number in range(8):
        kill_after(lambda number=number: _begin(tmp_path, run=f"run-{number}").add(_rows(number)))  # type: ignore[misc]
    found: list[Recovered] = []
    together = threading.Barrier(3)

    def work() -> None:
        together.wait()
        found.extend(recover(tmp_path))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(f"run-{number}" for number in range(8)) == sorted(str(one.run_id) for one in found)
    assert list(range(8)) == _launches(tmp_path)


def _staged_run(ledger: Path, *batches: list[Row]) -> Path:
    """Leave a run behind whose process was killed, and return its staged file."""

    def work() -> None:
        run = _begin(ledger)
        for batch in batches:
            run.add(batch)

    kill_after(work)
    return ledger / f".staged/{NAME}.jsonl"


@pytest.mark.parametrize("end", [b"", b"{", b"0123456789abcdef [{"])
def test_a_torn_last_line_is_passed_over(tmp_path: Path, end: bytes) -> None:
    staged = _staged_run(tmp_path, _rows(0), _rows(1))
    with staged.open("ab") as stream:
        stream.write(end)

    found = _recovered(tmp_path)

    assert (2, "") == (found.rows, found.problem)
    assert [0, 1] == _launches(tmp_path)


@pytest.mark.parametrize(
    ("line", "kept"), [(0, [0, 1, 2]), (2, [0, 2]), (3, [0, 1])], ids=["header", "between", "last"]
)
def test_a_damaged_line_is_reported_and_kept(tmp_path: Path, line: int, kept: list[int]) -> None:
    staged = _staged_run(tmp_path, _rows(0), _rows(1), _rows(2))
    lines = staged.read_bytes().split(b"\n")
    lines[line] = bytes([lines[line][0] ^ 1]) + lines[line][1:]
    content = b"\n".join(lines)
    staged.write_bytes(content)

    with pytest.raises(LedgerError, match="1 damaged line beside"):
        Run.resume(tmp_path, folder=staged.parent)
    found = _recovered(tmp_path)

    assert f"{NAME}.damaged has 1 damaged line with more" in found.text
    assert kept == _launches(tmp_path)
    assert [".gitignore", f"{NAME}.damaged"] == _staged(tmp_path)
    assert content == (tmp_path / f".staged/{NAME}.damaged").read_bytes()
    assert () == recover(tmp_path)


def test_a_run_of_which_nothing_can_be_read_is_kept(tmp_path: Path) -> None:
    staged = _staged_run(tmp_path, _rows(0), _rows(1))
    first, *_ = staged.read_bytes().split(b"\n")
    staged.write_bytes(first + b"\nx\ny\nz")

    found = _recovered(tmp_path)

    assert "has 3 damaged lines" in found.text or "has 2 damaged lines" in found.text
    assert [] == Ledger(tmp_path).files()
    assert [".gitignore", f"{NAME}.damaged"] == _staged(tmp_path)


@pytest.mark.parametrize("first", ["[]", '{"perfkit_staged": "x"}', "\xff"])
def test_what_is_no_staged_run_is_left_where_it_is(tmp_path: Path, first: str) -> None:
    staged = _staged_run(tmp_path)
    content = first.encode("latin-1") + b"\nrest"
    staged.write_bytes(content)

    for _ in range(2):
        assert "is no staged run of perfkit; move it away" in _recovered(tmp_path).text
    assert content == staged.read_bytes()


@pytest.mark.parametrize("newer", [{"perfkit_staged": 2}, {"schema": 99}, {"schema": 99, "source": None}])
def test_a_run_of_a_newer_perfkit_is_left_for_it(tmp_path: Path, newer: dict[str, object]) -> None:
    staged = _staged_run(tmp_path, _rows(0))
    first, rest = staged.read_bytes().split(b"\n", 1)
    header = {**json.loads(first), "perfkit": "9.9.9", "more": 1, **newer}
    staged.write_bytes(json.dumps(header).encode() + b"\n" + rest)

    for _ in range(2):
        shown = _recovered(tmp_path).text
        assert f"{staged} was written by a newer perfkit (9.9.9); upgrade perfkit to recover it" in shown
    assert [] == Ledger(tmp_path).files()


def test_a_run_killed_before_its_first_line_leaves_nothing(tmp_path: Path) -> None:
    staged = _staged_run(tmp_path)
    staged.write_bytes(staged.read_bytes()[:20])

    assert () == recover(tmp_path)
    assert [] == _staged(tmp_path)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK])
def test_a_file_system_without_hard_links_takes_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with _begin(tmp_path) as run:
        run.add(_rows(0))
    file = Ledger(tmp_path).append([build_row(run="run-2", minute=1)])
    with pytest.raises(LedgerError, match="File exists"):
        Ledger(tmp_path).append([build_row(run="run-2", minute=1), build_row(run="run-2", minute=1)])

    assert [run.file, file] == Ledger(tmp_path).files()
    assert 2 == len(Ledger(tmp_path).rows())
    assert [] == [*tmp_path.glob(".*.tmp")]


def test_a_run_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "unfinished"
    ledger = Ledger(tmp_path / "ledger")

    def work() -> None:
        run = ledger.run(source="experiment", run_id="run-1", recorded_at=START, folder=folder)
        run.add(_rows(0))
        with run.staged.open("ab") as stream:
            stream.write(b"0123456789abcdef [torn")

    kill_after(work)
    run = Run.resume(ledger.path, folder=folder)
    assert run is not None
    assert () == recover(ledger.path)
    with pytest.raises(LedgerError, match="another perfkit is measuring"):
        Run.resume(ledger.path, folder=folder)
    with run:
        run.add(_rows(1))

    assert [0, 1] == _launches(ledger.path)
    assert Run.resume(ledger.path, folder=folder) is None


def test_staged_rows_are_no_uncommitted_change(repository: Repository) -> None:
    repository.commit({"code.py": "x = 1\n"})
    with _begin(repository.root / "any/where") as run:
        run.add(_rows(0))
        assert not read_commit(repository.root).dirty
        assert not describe_working_tree(repository.root, ignored=()).dirty


@settings(max_examples=10)
@given(text=rows.map(lambda row: row.outcome.benchmark.name))
def test_bytes_that_are_no_text_do_not_keep_a_row_out(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    ledger.append([build_row(status="error", message=f"{text}\udcff")])

    assert [f"{text}\\udcff"] == [row.outcome.message for row in ledger.rows()]
