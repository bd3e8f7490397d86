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
    """The sentence says how many files became how few, and that git still has the old ones."""
    told = _perfkit("compact", "--dry-run", cwd=ledger)
    done = _perfkit("compact", cwd=ledger)
    again = _perfkit("compact", "--json", "-", cwd=ledger)
    verified = _perfkit("check", "--json", "-", cwd=ledger)

    assert [0] * 4 == [one.returncode for one in (told, done, again, verified)]
    assert "3 files would be put into 1, which leaves 1 file." == told.stdout.splitlines()[0]
    assert done.stdout.startswith("3 files became 1, ")
    assert "Git keeps the removed files in its history" in done.stdout
    assert [] == json.loads(again.stdout)["parts"]
    found = json.loads(verified.stdout)
    assert (1, 6, 3, []) == (found["files"], found["rows"], found["runs"], found["problems"])
    assert whole(range(3)) == seen(ledger)


def test_who_leaves_standard_error_is_no_disk_that_refuses(ledger: Path) -> None:
    """What is told of a repair has a reader that leaves: nothing is changed, and that is no mistake."""
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


def test_what_is_wrong_is_told_and_repaired(ledger: Path) -> None:
    """With the way back for what git has; the ledger is whole again after it."""
    (file, *_) = sorted(ledger.glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])

    found = _perfkit("check", cwd=ledger)
    told = _perfkit("check", "--fix", "--dry-run", cwd=ledger)
    done = _perfkit("check", "--fix", cwd=ledger)
    after = _perfkit("check", cwd=ledger)

    assert [4, 0, 0, 0] == [one.returncode for one in (found, told, done, after)]
    assert found.stdout.startswith("NOT SOUND: 1 problem in ")
    assert f"  {file.name}: its bytes are not those that were written" in found.stdout
    assert "1 repair would be made" in told.stdout
    assert done.stdout.startswith("SOUND: 1 repair made, and nothing is left to do")
    assert after.stdout.startswith("SOUND: ")
    assert "1 file in quarantine" in after.stdout

    (line,) = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("git -C")]
    subprocess.run(line.split(), cwd=ledger, check=True, capture_output=True)
    assert whole(range(3)) == seen(ledger)


def test_check_leaves_a_run_that_was_cut_off_and_fix_recovers_it(ledger: Path) -> None:
    """Looking changes nothing, other than with the commands that work with rows."""
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
    """Once: a second time nothing comes; what is damaged there stays, and the exit code says so."""
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


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_no_ledger_is_not_merged(ledger: Path, tmp_path: Path, *, there: bool) -> None:
    """It was mistyped, whether it is there or not."""
    other = tmp_path / "other"
    if there:
        other.mkdir()
        (other / "notes.txt").write_text("none")

    done = _perfkit("merge", str(other), cwd=ledger)

    assert 2 == done.returncode
    assert f"there is no ledger at {other}; name the folder" in done.stderr


def test_a_name_that_is_no_text_can_be_told(ledger: Path) -> None:
    """On a terminal and as JSON; no sign of it reaches a terminal as a command."""
    (ledger / os.fsdecode(b"\xff\x1b[2J\n.parquet")).write_bytes(b"")

    done = _perfkit("check", "--json", "-", cwd=ledger)

    assert 4 == done.returncode
    assert "\\udcff\\x1b[2J\\n.parquet" == json.loads(done.stdout)["problems"][0]["file"]
    assert "\x1b[2J" not in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_has_examples_and_a_wrong_place_is_one_line(ledger: Path, verb: str) -> None:
    """As every command's; a ledger that is not there is not begun."""
    other = ["elsewhere"] if verb == "merge" else []

    told = _perfkit(*verb.split(), "--help", cwd=ledger)
    done = _perfkit(*verb.split(), *other, "--ledger", "nowhere", cwd=ledger)

    assert f"$ perfkit ledger {verb}" in told.stdout
    assert (0, 2) == (told.returncode, done.returncode)
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
    """With any options, in one line, and no help lists it."""
    done = _perfkit(*old, cwd=ledger)
    listed = _perfkit("--help", cwd=ledger)

    assert 2 == done.returncode
    assert f"perfkit: `perfkit ledger {old[0]}` is now `perfkit ledger {new}`\n" == done.stderr
    assert f" {old[0]} " not in listed.stdout


def test_a_dry_run_without_fix_is_a_mistake(ledger: Path) -> None:
    """Checking alone never changes anything."""
    assert 2 == _perfkit("check", "--dry-run", cwd=ledger).returncode
