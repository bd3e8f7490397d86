"""Help on any command, with the name that was meant, and what a bug report should begin with."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run

from perfkit.cli.app import whole_command_line
from perfkit.errors import UsageError


@pytest.fixture(scope="module")
def root() -> Any:  # noqa: ANN401 (the library's own type moves)
    """Return the command line as the library makes it."""
    return whole_command_line()


def _shown(root: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:  # noqa: ANN401
    with pytest.raises(SystemExit) as ended:
        root.main(list(arguments), prog_name="perfkit")
    assert 0 == ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("names", [(), ("gate",), ("ledger",), ("ledger", "compact"), ("history", "accept")])
def test_help_is_what_the_option_prints(
    root: Any,  # noqa: ANN401
    names: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = _shown(root, capsys, *names, "--help")

    assert shown == _shown(root, capsys, "help", *names)
    assert " ".join(("Usage: perfkit", *names, "[OPTIONS]")) in shown


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
