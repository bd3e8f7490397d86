"""`perfkit show` prints profiles, and ends with one line where it cannot."""

from __future__ import annotations

import cProfile
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import run_perfkit

SAVED = Path(__file__).resolve().parents[2] / "profiles" / "first_profile.json"
TRACE = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 5, "dur": 20}]}


def show(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return run_perfkit("show", *arguments, cwd=cwd)


def own_work() -> str:
    """Call a function of a library."""
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


def test_several_profiles_are_shown_in_their_order(folder: Path) -> None:
    done = show("b.json", "a.prof", str(SAVED), cwd=folder)
    assert (0, "") == (done.returncode, done.stderr)
    places = [done.stdout.index(name) for name in ("b.json", "a.prof", "first_profile.json")]
    assert sorted(places) == places
    assert "aten::add" in done.stdout
    assert "perfkit summary" in done.stdout


def test_json_is_for_machines_and_the_view_goes_elsewhere(folder: Path) -> None:
    done = show("a.prof", "b.json", "--json", "-", cwd=folder)
    found = json.loads(done.stdout)
    assert ["a.prof", "b.json"] == [reading["name"] for reading in found]
    assert ["cProfile", "torch trace"] == [reading["origin"] for reading in found]
    assert "own_work" in [one["function"] for one in found[0]["functions"]]
    assert "own_work" in done.stderr


def test_json_goes_to_a_file(folder: Path) -> None:
    done = show("b.json", "--json", "out.json", cwd=folder)
    assert "aten::add" in done.stdout
    assert 20e-6 == pytest.approx(json.loads((folder / "out.json").read_text())[0]["total_s"])


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
