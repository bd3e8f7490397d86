"""The command line, run in real processes, gives exit codes and one line for each mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from repositories import Repository
from synthetic import START, build_row

from perfkit.ledger.store import Ledger

PERFKIT = Path(sys.executable).with_name("perfkit")


def _perfkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_perfkit(*arguments, cwd=cwd)


@pytest.fixture
def measured(repository: Repository) -> Repository:
    """Return a repository with two runs in its ledger."""
    sha = repository.commit({"a.py": "1", "pyproject.toml": ""}, "Add a")
    ledger = Ledger(repository.root / "benchmarks/ledger")
    ledger.append([build_row(0.5, sha=sha, run="0199-aaaa")])
    ledger.append([build_row(sha=sha, run="0199-bbbb", minute=1, status="error", message="ValueError: no")])
    return repository


@pytest.mark.parametrize(
    "command", [("ledger", "list"), ("log",), ("compare", "HEAD", "HEAD"), ("experiment", "show", "0199")]
)
def test_a_command_recovers_what_was_cut_off_and_says_so(
    measured: Repository, command: tuple[str, ...]
) -> None:
    """In a line on standard error, once; what the command says itself is as ever."""
    ledger = measured.root / "benchmarks/ledger"
    run = Ledger(ledger).run(source="gate", run_id="0199-cccc", recorded_at=START)
    run.add([build_row(0.5, run="0199-cccc", launch=launch) for launch in range(2)])
    run.leave()

    first, second = (_perfkit(*command, cwd=measured.root) for _ in range(2))

    file = ledger / "20260102T030405Z-gate-0199-cccc.parquet"
    assert (
        f"perfkit: a gate of 02 Jan 03:04 UTC was cut off; its 2 rows are recovered in {file}, marked partial"
        == first.stderr.splitlines()[0]
    )
    assert "cut off" not in second.stderr
    assert 2 == sum(row.partial for row in Ledger(ledger).rows())


def test_quiet_tells_of_nothing_that_went_well(measured: Repository) -> None:
    """Rows that were recovered are no warning, and rows that could not be are one."""
    ledger = measured.root / "benchmarks/ledger"
    for name in ("0199-cccc", "0199-dddd"):
        run = Ledger(ledger).run(source="gate", run_id=name, recorded_at=START)
        run.add([build_row(0.5, run=name)])
        run.leave()
    staged = run.staged
    staged.write_text("no run of perfkit\n")

    done = _perfkit("ledger", "list", "--quiet", cwd=measured.root)

    assert "3 runs\n" == done.stdout
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert str(staged) in done.stderr


@pytest.mark.parametrize("heavy", ["torch", "scipy", "pandas", "pyarrow", "git", "perfkit.model"])
def test_help_imports_nothing_heavy(heavy: str) -> None:
    """The help is there at once: no library that costs time is loaded for it."""
    program = f"import sys, perfkit.cli.app; sys.exit({heavy!r} in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", program], check=False).returncode


@pytest.mark.parametrize("verb", ["gate", "accept"])
def test_the_help_of_a_verb_imports_nothing_heavy(verb: str, tmp_path: Path) -> None:
    """What measuring and judging need is loaded only by a gate that measures."""
    program = (
        f"import sys; sys.argv = ['perfkit', {verb!r}, '--help']\n"
        "from perfkit.cli.app import app\n"
        "app(standalone_mode=False)\n"
        "loaded = {'torch', 'scipy', 'pandas', 'numpy', 'pyarrow', 'git'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(loaded)) or 0)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stderr
    assert f"$ perfkit {verb}" in done.stdout


@pytest.mark.parametrize("heavy", ["torch", "scipy", "pandas"])
def test_the_log_needs_no_torch(measured: Repository, heavy: str) -> None:
    """Rendering the log loads neither torch nor pandas."""
    program = (
        "import sys; sys.argv = ['perfkit', 'log', '--json', '/dev/null']\n"
        "from perfkit.cli.app import app\n"
        f"app(standalone_mode=False)\nsys.exit({heavy!r} in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=measured.root, check=False)

    assert 0 == done.returncode


@pytest.mark.parametrize(
    "verb",
    ["gate", "accept", "profile", "log", "log note", "ledger", "ledger list", "ledger show", "backfill"],
)
def test_every_help_has_an_example(verb: str, tmp_path: Path) -> None:
    """Each command shows how it is used."""
    done = _perfkit(*verb.split(), "--help", cwd=tmp_path)

    assert 0 == done.returncode
    assert "Examples:" in done.stdout
    assert f"$ perfkit {verb}" in done.stdout


def test_the_runs_are_listed(measured: Repository) -> None:
    """The list has a line per run, under the end of its id."""
    done = _perfkit("ledger", "list", cwd=measured.root)

    assert 0 == done.returncode
    assert ["199-aaaa" in done.stdout, "199-bbbb" in done.stdout] == [True, True]


def test_json_on_standard_output_is_only_json(measured: Repository) -> None:
    """A machine can read what --json - prints; the view goes to standard error."""
    done = _perfkit("ledger", "list", "--json", "-", cwd=measured.root)

    assert [("0199-aaaa", 0), ("0199-bbbb", 1)] == [
        (run["run_id"], run["failed"]) for run in json.loads(done.stdout)
    ]
    assert "199-aaaa" in done.stderr


def test_a_run_is_shown(measured: Repository) -> None:
    """One run's rows appear with their times, failures with their cause."""
    good = _perfkit("ledger", "show", "aaaa", cwd=measured.root)
    bad = _perfkit("ledger", "show", "bbbb", cwd=measured.root)

    assert "500 ms" in good.stdout
    assert "ValueError: no" in bad.stdout


def test_a_failed_measurement_shows_in_the_log(measured: Repository) -> None:
    """The newest run failed, so the cell says why."""
    done = _perfkit("log", cwd=measured.root)

    assert 0 == done.returncode
    assert "failed: ValueError: no" in (measured.root / "perf_log.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("ledger", "show", "zzzz"), 2, 'no run "zzzz"'),
        (("ledger", "list", "--ledger", "nowhere"), 2, "there is no ledger at nowhere"),
        (("log", "--ledger", "nowhere"), 2, "there is no ledger at nowhere"),
        (("log", "--check"), 1, "does not show what the ledger"),
        (("log", "note", "nowhere", "x"), 2, 'unknown commit "nowhere"'),
        (("backfill", "nowhere"), 2, 'unknown commit "nowhere"'),
        (("log", "--json", "/nowhere/x.json"), 2, "cannot write /nowhere/x.json"),
        (("nonsense",), 2, "nonsense"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(
    measured: Repository, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    """No traceback: what happened and the next step, on standard error."""
    done = _perfkit(*arguments, cwd=measured.root)

    assert code == done.returncode
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_unreadable_image_is_one_line(tmp_path: Path, workers: str) -> None:
    """A training that meets a broken file ends with its name and the next step, and with exit code 4."""
    for label in ("a", "b"):
        for number in range(5):
            file = tmp_path / "images" / label / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"no image")
    target = "benchmarks.workloads.metric_learning.training:main"
    options = ["--no-ledger", "--passes", "clean", "--out", "x.stat"]
    arguments = ["--data", "images", "--p", "2", "--k", "2", "--workers", workers]

    done = _perfkit("profile", target, *options, "--", *arguments, cwd=tmp_path)

    assert 4 == done.returncode
    progress, error = done.stderr.splitlines()
    assert "clean pass begins" == progress
    assert "expected a readable image" in error
    assert "replace the file or remove it" in error


def test_a_configuration_mistake_is_told_by_every_command(measured: Repository) -> None:
    """An unknown key stops the command before anything else happens."""
    (measured.root / "pyproject.toml").write_text("[tool.perfkit]\nmargn = '2%'\n")

    done = _perfkit("log", cwd=measured.root)

    assert 2 == done.returncode
    assert 'unknown key "tool.perfkit.margn"; did you mean "margin"?' in done.stderr


def test_a_half_file_stops_reading_and_names_itself(measured: Repository) -> None:
    """A ledger file cut in half is named; nothing is rendered from the rest as if it were all."""
    file = Ledger(measured.root / "benchmarks/ledger").files()[0]
    file.write_bytes(file.read_bytes()[:200])

    done = _perfkit("log", cwd=measured.root)

    assert 2 == done.returncode
    assert f"{file} is not a readable ledger file" in done.stderr
    assert not (measured.root / "perf_log.md").exists()


def test_shells_complete_verbs_and_options(tmp_path: Path) -> None:
    """The script that a shell asks for completes in it, and installing writes it to the user's folder."""
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{PERFKIT.parent}:{os.environ['PATH']}"}
    program = """
    perfkit --show-completion >shown && source shown && complete -p perfkit
    COMP_WORDS=(perfkit ga); COMP_CWORD=1; _perfkit_completion perfkit; echo "${COMPREPLY[@]}"
    COMP_WORDS=(perfkit gate --ma); COMP_CWORD=2; _perfkit_completion perfkit; echo "${COMPREPLY[@]}"
    perfkit --install-completion
    """

    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert ["gate", "--margin --markdown"] == done.stdout.splitlines()[1:3]
    assert "perfkit" in (tmp_path / ".bashrc").read_text()


def test_an_unknown_shell_is_no_verdict(tmp_path: Path) -> None:
    """Exit code 1 would mean that something became slower."""
    program = (
        "import sys, shellingham\n"
        "shellingham.detect_shell = lambda: ('tcsh', 'tcsh')\n"
        "sys.argv = ['perfkit', '--show-completion']\n"
        "from perfkit.cli import main\n"
        "main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert 2 == done.returncode
    assert "tcsh" in done.stdout + done.stderr


def test_tables_in_a_pipe_are_as_wide_as_columns_says(measured: Repository) -> None:
    """COLUMNS is how a script says what its reader has room for; without it there are 100."""
    name = "benchmarks/bench_distances.py::test_precompute_pairwise_distances[20000-500-euclidean]"
    Ledger(measured.root / "benchmarks/ledger").append([build_row(0.5, run="0199-dddd", name=name)])
    widths = {}
    for columns in ("", "60", "200"):
        environment = {**os.environ, "COLUMNS": columns}
        done = run_perfkit("ledger", "show", "dddd", cwd=measured.root, env=environment, check=True)
        widths[columns] = max(len(line.rstrip()) for line in done.stdout.splitlines())

    assert 60 >= widths["60"]
    assert 100 >= widths[""] > 60
    assert 100 <= widths["200"] <= 200 or widths["200"] > widths[""]


def test_a_name_in_a_table_is_broken_between_its_words(measured: Repository) -> None:
    """At 80 columns and less a name goes on in the next line; JSON has it whole."""
    name = "bench_distances.py::test_precompute_pairwise_distances[200-5-euclidean]"
    Ledger(measured.root / "benchmarks/ledger").append([build_row(0.5, run="0199-dddd", name=name)])

    done = run_perfkit(
        "ledger",
        "show",
        "dddd",
        "--json",
        "run.json",
        cwd=measured.root,
        env={**os.environ, "COLUMNS": "64"},
        check=True,
    )

    assert ["bench_distances.py::", "test_precompute_pairwise_distances", "[200-5-euclidean]"] == [
        line.split()[0] for line in done.stdout.splitlines()[3:6]
    ]
    assert name in (measured.root / "run.json").read_text()
