"""The core works without any of its features, and with those of other packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import run

import perfkit
from perfkit.extensions import BUILT_IN, Feature, features

PACKAGE = Path(perfkit.__file__).parent
# Imports every module of the core, and prints the commands that are left.
PROGRAM = """
import importlib, pkgutil, sys
import perfkit
for found in pkgutil.walk_packages(perfkit.__path__, "perfkit."):
    if not found.name.startswith(("perfkit.features.", "perfkit.integrations.", "perfkit.__main__")):
        importlib.import_module(found.name)
from perfkit.cli.app import whole_command_line
print(perfkit.__file__, *whole_command_line().commands)
"""


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_core_works_without_a_feature(name: str, tmp_path: Path) -> None:
    feature = features()[BUILT_IN.index(name)]
    copied = tmp_path / "perfkit"
    # With its bytecode, which compiling anew would take most of the time.
    shutil.copytree(PACKAGE, copied)
    shutil.rmtree(copied / "features" / name)
    registry = copied / "extensions.py"
    registry.write_text(registry.read_text().replace(f'"{name}", ', "").replace(f', "{name}")', ")"))

    done = _run(PROGRAM, tmp_path)

    assert not done.stderr
    file, *commands = done.stdout.split()
    assert str(copied / "__init__.py") == file
    assert {"gate", "profile", "ledger"} <= set(commands)
    assert not {command.name for command in feature.commands if not command.group} & set(commands)


def test_a_package_can_bring_a_feature(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "from perfkit.extensions import Command, Feature\n"
        'FEATURE = Feature(commands=(Command(name="theirs", module="theirs", summary="Do more."),))\n'
        "def register(app):\n"
        '    app.command("theirs")(lambda: print("done"))\n'
    )
    installed = tmp_path / "theirs-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[perfkit.features]\ntheirs = theirs:FEATURE\n")

    done = _run(
        "from perfkit.cli import main; import sys; sys.argv = ['perfkit', 'theirs']; main()", tmp_path
    )

    assert "done\n" == done.stdout
    assert not done.stderr


def test_each_built_in_feature_shows_what_it_is() -> None:
    assert all(isinstance(feature, Feature) for feature in features())


def _run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
    return run([sys.executable, "-c", program], cwd=folder, env=environment)
