"""These helpers make an environment like that of ``pip install perfkit``, without what its extras bring.

Its packages are links to those of this environment: making one takes no index, and a fraction of a second.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import tomllib
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_COMMAND = "#!{python}\nfrom perfkit.cli import main\n\nmain()\n"
# Each command in one process takes the time of one start for all of them.
_COMMANDS = """
import contextlib, io, json, sys
from perfkit.cli import main

done = []
for arguments in json.loads(sys.argv[1]):
    sys.argv, output, errors = ["perfkit", *arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            done.append([end.code, output.getvalue(), errors.getvalue()])
print(json.dumps(done))
"""


@dataclass(frozen=True, kw_only=True)
class LightEnvironment:
    """An environment with what perfkit cannot do without, and its commands."""

    bin: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.bin / "python"

    def perfkit(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of perfkit in it."""
        return self.run(self.bin / "perfkit", *arguments, cwd=cwd)

    def several(self, *commands: Sequence[str], cwd: Path) -> list[tuple[int, str, str]]:
        """Run commands of perfkit one after the other in one process; return exit codes and both streams."""
        done = self.run(self.python, "-c", _COMMANDS, json.dumps(commands), cwd=cwd)
        assert 0 == done.returncode, done.stderr
        return [(code, output, shown) for code, output, shown in json.loads(done.stdout)]

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run any command; what the caller's PYTHONPATH names is not found in it."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def light_environment(place: Path) -> LightEnvironment:
    """Make an environment of the core dependencies in a folder."""
    venv.create(place, symlinks=True, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    for distribution in core_distributions():
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            source = Path(str(distribution.locate_file(name)))
            if source.exists():
                (packages / name).symlink_to(source)
    described = importlib.metadata.distribution("perfkit").locate_file("perfkit-0.1.0.dist-info")
    (packages / "perfkit-0.1.0.dist-info").symlink_to(str(described))
    (packages / "perfkit.pth").write_text(f"{ROOT}\n")
    command = place / "bin" / "perfkit"
    command.write_text(_COMMAND.format(python=place / "bin" / "python"))
    command.chmod(0o755)
    return LightEnvironment(bin=place / "bin")


def core_distributions() -> Iterator[importlib.metadata.Distribution]:
    """Yield what perfkit's dependencies without any extra bring, as far as it is installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left, seen = [Requirement(line) for line in project["dependencies"]], set[str]()
    while left:
        required = left.pop()
        name = canonicalize_name(required.name)
        if name in seen or not (required.marker is None or required.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        yield found
        left += [Requirement(line) for line in found.requires or ()]
