"""`perfkit show env` says where a run measured, and what differs between two runs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from synthetic import build_row

from perfkit.ledger.store import Ledger
from perfkit.model import Environment, Machine, Placement, Row, Side, Source

OLD, NEW = "a" * 40, "b" * 40
MACHINE = {"cpu": "Fast CPU", "logical_cpus": "8", "ram_gib": "32", "gpus": "", "load_1min": "0.10"}
QUIET = {**MACHINE, "governor": "performance", "load_1min": "0.20"}
POWERSAVE = {**MACHINE, "governor": "powersave"}
TORCH = {"python": "CPython 3.11.7", "torch": "2.12.1", "threads": "8"}


def measured(
    run: str,
    *,
    sha: str = OLD,
    machine: dict[str, str] = POWERSAVE,
    environment: dict[str, str] = TORCH,
    side: Side | None = None,
    source: Source = "pytest",
) -> Row:
    """Return a row of a run, with the facts of its machine and environment."""
    return replace(
        build_row(1.0, sha=sha, run=run, source=source),
        machine=Machine(machine_id=str(sorted(machine.items())), facts=machine),
        environment=Environment(env_id=str(sorted(environment.items())), facts=environment),
        placement=Placement(side=side),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a ledger of runs whose surroundings differ in what their names say."""
    folder = tmp_path_factory.mktemp("surroundings")
    ledger = Ledger(folder / "ledger")
    ledger.append([measured("first-run")])
    ledger.append([measured("newer-torch", sha=NEW, environment={**TORCH, "torch": "2.13.0"}, machine=QUIET)])
    ledger.append([measured("other-cpu", machine={**POWERSAVE, "cpu": "Slow CPU"})])
    ledger.append([measured("same-again")])
    sides: tuple[tuple[Side, str], ...] = (("base", "1.0"), ("head", "absent"))
    ledger.append(
        [
            measured(
                "two-sides", side=side, source="environments", environment={**TORCH, "package x": version}
            )
            for side, version in sides
        ]
    )
    return folder


def show_env(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on the ledger."""
    command = ["show", "env", *arguments, "--ledger", "ledger"]
    return run_perfkit(*command, cwd=folder)


def lines(folder: Path, *arguments: str) -> list[str]:
    """Return the lines that it prints."""
    done = show_env(folder, *arguments)
    assert (0, "") == (done.returncode, done.stderr)
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]


def test_a_run_is_shown_as_a_table(folder: Path) -> None:
    found = lines(folder, "first")
    assert any(line.split() == ["CPU", "governor", "powersave"] for line in found)
    assert any(line.split() == ["GPUs", "none"] for line in found)
    assert any(line.split() == ["torch", "2.12.1"] for line in found)


def test_what_forbids_a_comparison_comes_first(folder: Path) -> None:
    assert [
        "perfkit compares no times of these two, since",
        "  torch 2.12.1 became 2.13.0",
        "Times may also differ because",
        "  CPU governor powersave became performance",
        "What else differs means little:",
        "  load of the last minute 0.10 became 0.20",
    ] == lines(folder, "first", "newer")[2:]


def test_another_machine_forbids_a_comparison(folder: Path) -> None:
    assert [
        "perfkit compares no times of these two, since",
        "  CPU Fast CPU became Slow CPU",
    ] == lines(folder, "first", "other")[2:]


def test_a_commit_and_a_file_name_runs_too(folder: Path) -> None:
    (file,) = (folder / "ledger").glob("*newer-torch.parquet")
    assert lines(folder, "same", "newer") == lines(folder, "same", str(file))
    assert lines(folder, "same", "newer") == lines(folder, "same", NEW[:8])
    assert "pytest er-torch" in lines(folder, NEW)[0]


def test_runs_that_are_alike_are_said_to_be(folder: Path) -> None:
    told = "The machines and environments are alike in all that is recorded of them."
    assert told == lines(folder, "first", "same")[-1]


def test_both_sides_of_a_gate_of_environments_are_compared(folder: Path) -> None:
    found = lines(folder, "two-sides")
    assert ["base", "head"] == [line.split()[2] for line in found[:2]]
    assert "  x 1.0 is not there any more" == found[3]


def test_json_has_the_changes(folder: Path) -> None:
    done = show_env(folder, "first", "newer", "--json", "-")
    found = json.loads(done.stdout)
    assert ["first-run", "newer-torch"] == [one["run_id"] for one in found["found"]]
    assert ("torch", "2.12.1", "2.13.0", "forbids") == tuple(
        found["changes"][0][key] for key in ("fact", "before", "after", "weight")
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["nowhere"],
            'no run "nowhere" in ledger, and none of a commit of that name; see "perfkit ledger list"',
        ),
        (["nowhere.parquet"], "there is no file nowhere.parquet"),
        ([], "show env takes one run or two, found 0"),
        (["first", "newer", "other"], "show env takes one run or two, found 3"),
        (["first", "--txt"], "--txt, --filtered, --speedscope, --firefox and --fits show files"),
    ],
)
def test_what_is_not_known_ends_with_one_line(folder: Path, arguments: list[str], told: str) -> None:
    done = show_env(folder, *arguments)
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == len(done.stderr.splitlines())
    assert told in done.stderr
