"""The upkeep of a ledger from the command line: one sentence first, then what to do, and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from forked_commands import PERFKIT, run_perfkit
from ledger_files import add_run, add_runs, run_id, seen, whole
from repositories import Repository
from synthetic import START, build_row

from perfkit.ledger.recording import Run
from perfkit.ledger.store import Ledger

VERBS = ("compact", "check", "check --fix", "merge")


def _perfkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_perfkit("ledger", *arguments, cwd=cwd)


@pytest.fixture
def ledger(repository: Repository) -> Path:
    """Return a committed ledger with three runs of a month that is over."""
    place = repository.root / "benchmarks/ledger"
    add_runs(place, range(3))
    repository.commit({"pyproject.toml": ""})
    return place


def test_a_ledger_is_compacted_and_stays_sound(ledger: Path) -> None:
    shown = _perfkit("compact", "--dry-run", cwd=ledger)
    done = _perfkit("compact", cwd=ledger)
    again = _perfkit("compact", "--json", "-", cwd=ledger)
    verified = _perfkit("check", "--json", "-", cwd=ledger)

    assert [0] * 4 == [one.returncode for one in (shown, done, again, verified)]
    assert "3 files would be put into 1, which leaves 1 file." == shown.stdout.splitlines()[0]
    assert done.stdout.startswith("3 files became 1, ")
    assert "Git keeps the removed files in its history" in done.stdout
    assert [] == json.loads(again.stdout)["parts"]
    found = json.loads(verified.stdout)
    assert (1, 6, 3, []) == (found["files"], found["rows"], found["runs"], found["problems"])
    assert whole(range(3)) == seen(ledger)


def test_a_closed_standard_error_is_no_failing_disk(ledger: Path) -> None:
    before = seen(ledger)
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        [PERFKIT, "ledger", "check", "--fix"],
        cwd=ledger,
        stdout=subprocess.PIPE,
        stderr=writing,
        text=True,
        check=False,
    )
    os.close(writing)

    assert (141, "") == (done.returncode, done.stdout)
    assert before == seen(ledger)


def test_what_is_wrong_is_reported_and_repaired(ledger: Path) -> None:
    (file, *_) = sorted(ledger.glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])

    found = _perfkit("check", cwd=ledger)
    shown = _perfkit("check", "--fix", "--dry-run", cwd=ledger)
    done = _perfkit("check", "--fix", cwd=ledger)
    after = _perfkit("check", cwd=ledger)

    assert [4, 0, 0, 0] == [one.returncode for one in (found, shown, done, after)]
    assert found.stdout.startswith("NOT SOUND: 1 problem in ")
    assert f"  {file.name}: its bytes are not those that were written" in found.stdout
    assert "1 repair would be made" in shown.stdout
    assert done.stdout.startswith("SOUND: 1 repair made, and nothing is left to do")
    assert after.stdout.startswith("SOUND: ")
    assert "1 file in quarantine" in after.stdout

    (line,) = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("git -C")]
    subprocess.run(line.split(), cwd=ledger, check=True, capture_output=True)
    assert whole(range(3)) == seen(ledger)


def test_files_that_git_does_not_have_are_not_brought_back_from_it(ledger: Path) -> None:
    (file, *_) = sorted(ledger.glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    (ledger / "junk.parquet").write_bytes(b"junk")

    found = json.loads(_perfkit("check", "--fix", "--json", "-", cwd=ledger).stdout)
    (ledger / "junk.parquet").write_bytes(b"junk")
    again = _perfkit("check", "--fix", cwd=ledger)

    assert [file.name] == found["tracked"]
    assert {"junk.parquet", file.name} == {action["file"] for action in found["actions"]}
    assert "moved into quarantine junk.parquet" in again.stdout
    assert "git -C" not in again.stdout


def test_check_leaves_a_run_that_was_cut_off_and_fix_recovers_it(ledger: Path) -> None:
    run: Run = Ledger(ledger).run(source="gate", run_id=run_id(60), recorded_at=START)
    run.add([build_row(0.5, run=run_id(60), source="gate")])
    run.leave()

    found = _perfkit("check", cwd=ledger)
    staged = run.staged.exists()
    done = _perfkit("check", "--fix", "--json", "-", cwd=ledger)

    assert staged
    assert (4, 0) == (found.returncode, done.returncode)
    assert "a run was cut off; it has 1 row of it" in found.stdout
    assert ["recovered"] == [action["kind"] for action in json.loads(done.stdout)["actions"]]
    assert 1 == seen(ledger)[run_id(60)]


def test_another_ledger_is_merged(ledger: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    add_runs(other, range(2, 5))

    done = _perfkit("merge", str(other), cwd=ledger)
    again = _perfkit("merge", str(other), "--json", "-", cwd=ledger)
    add_run(other, 5).write_bytes(b"PAR1")
    damaged = _perfkit("merge", str(other), cwd=ledger)

    assert f"2 runs were taken over from {other}; 1 run of it was here before.\n" == done.stdout
    assert [0, 0, 4] == [one.returncode for one in (done, again, damaged)]
    assert 0 == json.loads(again.stdout)["runs"]
    assert damaged.stdout.startswith("NOT ALL: 0 runs were taken over")
    assert whole(range(5)) == seen(ledger)


def test_a_name_that_is_no_text_can_be_printed(ledger: Path) -> None:
    (ledger / os.fsdecode(b"\xff\x1b[2J\n.parquet")).write_bytes(b"")

    done = _perfkit("check", "--json", "-", cwd=ledger)

    assert 4 == done.returncode
    assert "\\udcff\\x1b[2J\\n.parquet" == json.loads(done.stdout)["problems"][0]["file"]
    assert "\x1b[2J" not in done.stderr


@pytest.mark.parametrize("words", ["compact", "check", "check --fix", "merge elsewhere"])
def test_a_ledger_that_is_not_there_is_not_begun(ledger: Path, words: str) -> None:
    done = _perfkit(*words.split(), "--ledger", "nowhere", cwd=ledger)

    assert 2 == done.returncode
    assert "there is no ledger at nowhere" in done.stderr
    assert not (ledger / "nowhere").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("verify", "--json", "-"), "check"),
        (("repair", "--dry-run"), "check --fix"),
        (("pull", "--branch", "kept"), "sync --pull-only"),
        (("push", "--help"), "sync"),
    ],
)
def test_an_old_name_leads_to_the_new_one(ledger: Path, old: tuple[str, ...], new: str) -> None:
    done = _perfkit(*old, cwd=ledger)
    listed = _perfkit("--help", cwd=ledger)

    assert 2 == done.returncode
    assert f"perfkit: `perfkit ledger {old[0]}` is now `perfkit ledger {new}`\n" == done.stderr
    assert f" {old[0]} " not in listed.stdout


def test_a_dry_run_without_fix_is_a_mistake(ledger: Path) -> None:
    assert 2 == _perfkit("check", "--dry-run", cwd=ledger).returncode
