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
# Imports every module of the core from the first folder that is given, and prints the commands that each has.
PROGRAM = """
import importlib, pkgutil, sys
for folder in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "perfkit"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    import perfkit
    for found in pkgutil.walk_packages(perfkit.__path__, "perfkit.") if folder == sys.argv[1] else ():
        if not found.name.startswith(("perfkit.features.", "perfkit.integrations.", "perfkit.__main__")):
            importlib.import_module(found.name)
    from perfkit.cli.app import whole_command_line
    print(perfkit.__file__, *whole_command_line().commands)
    sys.path.remove(folder)
"""


def test_the_core_works_without_each_feature(tmp_path: Path) -> None:
    without = {"all": BUILT_IN, **{name: (name,) for name in BUILT_IN}}
    for folder, names in without.items():
        # With its bytecode, which compiling anew would take most of the time.
        shutil.copytree(PACKAGE, tmp_path / folder / "perfkit")
        for name in names:
            shutil.rmtree(tmp_path / folder / "perfkit/features" / name)
        with (tmp_path / folder / "perfkit/extensions.py").open("a") as registry:
            registry.write(f"BUILT_IN = {tuple(name for name in BUILT_IN if name not in names)}\n")

    done = _run(PROGRAM, tmp_path, *(str(tmp_path / folder) for folder in without))

    assert not done.stderr
    known = dict(zip(BUILT_IN, features(), strict=True))
    for (folder, names), line in zip(without.items(), done.stdout.splitlines(), strict=True):
        file, *commands = line.split()
        assert str(tmp_path / folder / "perfkit/__init__.py") == file
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
