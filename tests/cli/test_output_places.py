"""A place of output that cannot be written is refused before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked_commands import run_perfkit


@pytest.mark.parametrize(
    "command",
    [
        "gate --markdown",
        "experiment run --markdown",
        "experiment run none.toml --json",
        "experiment show 0199 --markdown",
        "tricks --markdown",
        "explain a.stat b.stat --markdown",
        "explain main HEAD --html",
        "show a.stat --json",
        "compare main HEAD --json",
        "doctor --json",
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_once(command: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()

    done = run_perfkit(*command.split(), "taken", cwd=tmp_path)

    option = command.rsplit(maxsplit=1)[-1]
    output = f"perfkit: cannot write taken (it is a folder); choose another with {option}\n"
    assert (2, "", output) == (done.returncode, done.stdout, done.stderr)
    assert ["taken"] == [path.name for path in tmp_path.iterdir()]


def test_a_document_leaves_room_for_its_picture(tmp_path: Path) -> None:
    command = ["tricks", "--markdown", "found.svg"]

    done = run_perfkit(*command, cwd=tmp_path)

    assert 2 == done.returncode
    assert "cannot write found.svg: its picture has that name; end --markdown in .md" in done.stderr
