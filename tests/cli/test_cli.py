"""The command line, run in real processes, gives help, exit codes and one line for each mistake."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run, run_perfkit
from repositories import Repository
from synthetic import START, build_row

from perfkit.cli.app import whole_command_line
from perfkit.errors import UsageError
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
def test_a_command_recovers_what_was_cut_off_and_reports_it(
    measured: Repository, command: tuple[str, ...]
) -> None:
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


def test_quiet_reports_nothing_that_went_well(measured: Repository) -> None:
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


HEAVY = {"torch", "scipy", "pandas", "numpy", "pyarrow", "git"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], HEAVY),
        (["gate", "--help"], HEAVY),
        (["log", "--json", "/dev/null"], {"torch", "scipy", "pandas"}),
    ],
)
def test_heavy_libraries_are_imported_only_where_needed(
    measured: Repository, words: list[str], heavy: set[str]
) -> None:
    program = (
        f"import sys; sys.argv = ['perfkit', *{words}]\n"
        "from perfkit.cli.app import app\n"
        "app(standalone_mode=False)\n"
        f"sys.exit(', '.join(sorted({heavy} & set(sys.modules))) or 0)"
    )
    done = run([sys.executable, "-c", program], cwd=measured.root)

    assert 0 == done.returncode, done.stderr


def test_json_on_standard_output_is_only_json(measured: Repository) -> None:
    done = _perfkit("ledger", "list", "--json", "-", cwd=measured.root)

    assert [("0199-aaaa", 0), ("0199-bbbb", 1)] == [
        (run["run_id"], run["failed"]) for run in json.loads(done.stdout)
    ]
    assert "199-aaaa" in done.stderr


def test_a_configuration_mistake_is_reported_by_every_command(measured: Repository) -> None:
    (measured.root / "pyproject.toml").write_text("[tool.perfkit]\nmargn = '2%'\n")

    done = _perfkit("log", cwd=measured.root)

    assert 2 == done.returncode
    assert 'unknown key "tool.perfkit.margn"; did you mean "margin"?' in done.stderr


def test_shells_complete_verbs_and_options(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{PERFKIT.parent}:{os.environ['PATH']}"}
    program = """
    perfkit --show-completion >shown && source shown && complete -p perfkit
    COMP_WORDS=(perfkit ga); COMP_CWORD=1; _perfkit_completion perfkit; echo "${COMPREPLY[@]}"
    COMP_WORDS=(perfkit gate --ma); COMP_CWORD=2; _perfkit_completion perfkit; echo "${COMPREPLY[@]}"
    perfkit --install-completion
    """

    done = run(["bash", "-c", program], cwd=tmp_path, env=environment)

    assert (0, "") == (done.returncode, done.stderr)
    assert ["gate", "--margin --markdown"] == done.stdout.splitlines()[1:3]
    assert "perfkit" in (tmp_path / ".bashrc").read_text()


def test_tables_in_a_pipe_are_as_wide_as_columns_allows(measured: Repository) -> None:
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


@pytest.fixture(scope="module")
def root() -> Any:  # noqa: ANN401 (the library's own type moves)
    """Return the command line as the library makes it."""
    return whole_command_line()


def _shown(root: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:  # noqa: ANN401
    with pytest.raises(SystemExit) as ended:
        root.main(list(arguments), prog_name="perfkit")
    assert 0 == ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("names", [(), ("ledger", "compact")])
def test_help_is_what_the_option_prints(
    root: Any,  # noqa: ANN401
    names: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = _shown(root, capsys, *names, "--help")

    assert shown == _shown(root, capsys, "help", *names)
    assert " ".join(("Usage: perfkit", *names, "[OPTIONS]")) in shown
    assert "Others" not in shown


def test_perfkit_alone_prints_ten_lines(tmp_path: Path) -> None:
    alone = _perfkit(cwd=tmp_path)

    assert (2, "") == (alone.returncode, alone.stderr)
    assert 10 >= len(alone.stdout.splitlines()) > alone.stdout.count("  perfkit ") >= 5


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("gat",), 'no command "perfkit gat"; did you mean `perfkit gate`? `perfkit help` lists'),
        (("ledger", "compat"), "did you mean `perfkit ledger compact`? `perfkit help ledger` lists"),
        (("xyzzy",), 'no command "perfkit xyzzy"; `perfkit help` lists'),
        (("work",), 'no command "perfkit work"'),
        (("gate", "now"), "`perfkit gate` has no commands of its own; `perfkit help gate` shows"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest(
    root: Any,  # noqa: ANN401
    names: tuple[str, ...],
    message: str,
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 (the command line wraps it)
        root.main(["help", *names], prog_name="perfkit", standalone_mode=False)

    error = getattr(raised.value, "error", raised.value)
    assert isinstance(error, UsageError)
    assert message in str(error)


def test_a_bug_report_begins_with_the_versions(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['perfkit', '--version', '--env']\n"
        "import perfkit.cli.app\n"
        "try: perfkit.cli.app.app(standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )

    done = run([sys.executable, "-c", program], cwd=tmp_path)

    facts = dict(line.split(": ", 1) for line in done.stdout.splitlines()[1:])
    assert (0, "") == (done.returncode, done.stderr)
    assert f"perfkit {importlib.metadata.version('perfkit')}" == done.stdout.splitlines()[0]
    assert ["Python", "torch", "pytest", "pytest-benchmark", "OS", "CPU", "cores", "GPU"] == list(facts)
    assert importlib.metadata.version("pytest-benchmark") == facts["pytest-benchmark"]
    assert platform.python_version() == facts["Python"].rpartition(" ")[2]


def test_the_environment_goes_with_the_version(root: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match="perfkit --version --env"):
        root.main(["--env"], prog_name="perfkit", standalone_mode=False)
