"""``perfkit show``, ``show env`` and ``view`` show profiles and environments, or name what is wrong."""

from __future__ import annotations

import cProfile
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from synthetic import build_row

from perfkit.ledger.store import Ledger
from perfkit.model import Environment, Machine, Placement, Row, Side, Source

TRACE = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 5, "dur": 20}]}


def show(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_perfkit("show", *arguments, cwd=cwd)


def own_work() -> str:
    return re.escape("a.b")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a cProfile, a trace and a broken file."""
    profiler = cProfile.Profile()
    profiler.runcall(own_work)
    profiler.dump_stats(tmp_path / "a.prof")
    (tmp_path / "b.json").write_text(json.dumps(TRACE))
    (tmp_path / "broken.prof").write_bytes((tmp_path / "a.prof").read_bytes()[:50])
    return tmp_path


def test_json_is_for_machines_and_the_view_goes_elsewhere(folder: Path) -> None:
    done = show("a.prof", "b.json", "--json", "-", cwd=folder)
    found = json.loads(done.stdout)
    assert ["a.prof", "b.json"] == [reading["name"] for reading in found]
    assert ["cProfile", "torch trace"] == [reading["origin"] for reading in found]
    assert "own_work" in [one["function"] for one in found[0]["functions"]]
    assert "own_work" in done.stderr


def test_every_function_can_be_had_as_text(folder: Path) -> None:
    done = show("a.prof", "--txt", cwd=folder)
    assert "ncalls  tottime  percall  cumtime  percall filename:lineno(function)" in done.stdout
    assert "(own_work)" in done.stdout
    assert "(escape)" in done.stdout


@pytest.mark.parametrize(("package", "function"), [("test_show", "own_work"), ("re", "escape")])
def test_a_package_can_be_taken_for_own(folder: Path, package: str, function: str) -> None:
    done = show("a.prof", "--filtered", package, cwd=folder)
    rows = done.stdout.partition("filename:lineno(function)\n")[2].splitlines()
    assert [function] == [re.sub(r".*\((\w+)\)$", r"\1", row) for row in rows if row]
    assert re.search(r"a\.prof: \d+ calls in", done.stdout)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("a.prof", "broken.prof"), "broken.prof is cut short or no cProfile"),
        (("text.prof",), "text.prof is no profile that perfkit knows"),
        (("pickle.prof",), "pickle.prof is a pickle"),
        (("crash.prof",), "crash.prof cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(folder: Path, files: tuple[str, ...], expected: str) -> None:
    (folder / "text.prof").write_text("no profile")
    (folder / "pickle.prof").write_bytes(b"\x80\x04N.")
    # A tuple within itself, as a key: the reader itself does not survive it.
    (folder / "crash.prof").write_bytes(b"{\xa9\x01r\x00\x00\x00\x00N0")
    done = show(*files, cwd=folder)
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_torch_is_loaded(folder: Path) -> None:
    program = (
        "import sys; sys.argv = ['perfkit', 'show', 'a.prof']\n"
        "from perfkit.cli.app import app\n"
        "app(standalone_mode=False)\n"
        "sys.exit(', '.join({'torch', 'scipy', 'pandas', 'pyarrow', 'git'} & set(sys.modules)) or 0)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr


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
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a ledger of runs whose surroundings differ as their names do."""
    runs_folder = tmp_path_factory.mktemp("surroundings")
    ledger = Ledger(runs_folder / "ledger")
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
    return runs_folder


def show_env(runs_folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["show", "env", *arguments, "--ledger", "ledger"]
    return run_perfkit(*command, cwd=runs_folder)


def lines(runs_folder: Path, *arguments: str) -> list[str]:
    done = show_env(runs_folder, *arguments)
    assert (0, "") == (done.returncode, done.stderr)
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]


def test_what_forbids_a_comparison_comes_first(runs_folder: Path) -> None:
    assert [
        "perfkit compares no times of these two, since",
        "  torch 2.12.1 became 2.13.0",
        "Times may also differ because",
        "  CPU governor powersave became performance",
        "What else differs means little:",
        "  load of the last minute 0.10 became 0.20",
    ] == lines(runs_folder, "first", "newer")[2:]


def test_a_commit_and_a_file_name_runs_too(runs_folder: Path) -> None:
    (file,) = (runs_folder / "ledger").glob("*newer-torch.parquet")
    assert lines(runs_folder, "same", "newer") == lines(runs_folder, "same", str(file))
    assert lines(runs_folder, "same", "newer") == lines(runs_folder, "same", NEW[:8])
    assert "pytest er-torch" in lines(runs_folder, NEW)[0]


def test_both_sides_of_a_gate_of_environments_are_compared(runs_folder: Path) -> None:
    found = lines(runs_folder, "two-sides")
    assert ["base", "head"] == [line.split()[2] for line in found[:2]]
    assert "  x 1.0 is not there any more" == found[3]


def test_json_has_the_changes(runs_folder: Path) -> None:
    done = show_env(runs_folder, "first", "newer", "--json", "-")
    found = json.loads(done.stdout)
    assert ["first-run", "newer-torch"] == [one["run_id"] for one in found["found"]]
    assert ("torch", "2.12.1", "2.13.0", "forbids") == tuple(
        found["changes"][0][key] for key in ("fact", "before", "after", "weight")
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["nowhere"],
            (
                'no run "nowhere" in ledger, and none of a commit of that name;'
                ' see "perfkit ledger list --ledger '
            ),
        ),
        (["nowhere.parquet"], "there is no file nowhere.parquet"),
        ([], "show env takes one run or two, found 0"),
        (["first", "newer", "other"], "show env takes one run or two, found 3"),
        (["first", "--txt"], "--txt, --filtered, --speedscope, --firefox and --fits show files"),
    ],
)
def test_what_is_not_known_ends_with_one_line(runs_folder: Path, arguments: list[str], expected: str) -> None:
    done = show_env(runs_folder, *arguments)
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == len(done.stderr.splitlines())
    assert expected in done.stderr


PERFKIT = Path(sys.executable).with_name("perfkit")
_LONG_S = 60


@pytest.fixture
def viewed(tmp_path: Path) -> Path:
    """Return the profile of next to nothing."""
    file = tmp_path / "some.stat"
    profiler = cProfile.Profile()
    profiler.runcall(sorted, [3, 1, 2])
    profiler.dump_stats(file)
    return file


def test_an_address_is_printed_and_served(viewed: Path) -> None:
    command = [str(PERFKIT), "view", str(viewed), "--server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            with urllib.request.urlopen(_address(process), timeout=_LONG_S) as answer:  # noqa: S310 (http)
                page = answer.read().decode()
        finally:
            os.killpg(process.pid, signal.SIGINT)
    assert "snakeviz" in page
    assert 0 == process.returncode


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    address = next((line.strip() for line in process.stdout if line.startswith("http://")), None)
    assert address is not None
    return address


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2}]}',
            "is a torch trace",
        ),
        (b"nothing of the kind", "no profile that perfkit knows"),
    ],
)
def test_what_snakeviz_cannot_show_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(content)

    done = run_perfkit("view", str(file))

    assert 2 == done.returncode
    assert message in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())
