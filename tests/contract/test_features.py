"""The core works without any of its features, and with those of other packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from forked_commands import run

import perfkit
from perfkit.extensions import BUILT_IN, Feature, features

PACKAGE = Path(perfkit.__file__).parent
# In a copy of perfkit: imports every module of the core without any feature, and prints what commands there
# are then, and without each feature.
PROGRAM = """
import importlib, pkgutil, sys
from pathlib import Path
import perfkit
features, names = Path(perfkit.__path__[0], "features"), sys.argv[1:]
for one in [names, *([name] for name in names)]:
    for loaded in [*sys.modules]:
        if loaded.startswith(("perfkit.features", "perfkit.cli", "perfkit.extensions")):
            del sys.modules[loaded]
    for name in one:
        (features / name).rename(features / f"{name} is gone")
    importlib.invalidate_caches()
    importlib.import_module("perfkit.extensions").BUILT_IN = [name for name in names if name not in one]
    for found in pkgutil.walk_packages(perfkit.__path__, "perfkit.") if one is names else ():
        if not found.name.startswith(("perfkit.features.", "perfkit.integrations.", "perfkit.__main__")):
            importlib.import_module(found.name)
    from perfkit.cli.app import whole_command_line
    print(perfkit.__file__, *whole_command_line().commands)
    for name in one:
        (features / f"{name} is gone").rename(features / name)
"""


def test_the_core_works_without_each_feature(tmp_path: Path) -> None:
    # With its bytecode, which compiling anew would take most of the time.
    shutil.copytree(PACKAGE, tmp_path / "perfkit")

    done = _run(PROGRAM, tmp_path, *BUILT_IN)

    assert not done.stderr
    known = dict(zip(BUILT_IN, features(), strict=True))
    without = [BUILT_IN, *((name,) for name in BUILT_IN)]
    for names, line in zip(without, done.stdout.splitlines(), strict=True):
        file, *commands = line.split()
        assert str(tmp_path / "perfkit/__init__.py") == file
        assert {"gate", "profile", "ledger"} <= set(commands)
        gone = {command.name for name in names for command in known[name].commands if not command.group}
        assert not gone & set(commands)


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


def _run(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
    return run([sys.executable, "-c", program, *arguments], cwd=folder, env=environment)
