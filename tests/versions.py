"""``make versions`` runs the tests on every supported Python, and on the lowest versions of dependencies.

Each has an environment of its own below .versions, which the next run uses again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
# As `make unit` runs most tests.
IN_TWO = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")
LOWEST = "lowest"
PASSED, FAILED = "passed", "failed"
# Where versions differ: the interpreter's profilers and imports, and what the libraries accept and return.
TESTS = (
    *("cli", "gating", "ledger", "plugin", "profiling", "repo", "report", "runner", "stats"),
    "commands/test_profile.py",
)
_UV = (sys.executable, "-m", "uv")


def main(names: Sequence[str]) -> int:
    """Run the tests of the named versions, or of all; return 1 if one failed, else 4 if one was skipped."""
    outcomes = {name: _outcome(name) for name in names or [*supported(), LOWEST]}
    for name, outcome in outcomes.items():
        print(f"{name:8}{outcome}")
    if FAILED in outcomes.values():
        return 1
    return 0 if {PASSED} == set(outcomes.values()) else 4


def supported() -> list[str]:
    """Return the Python versions that perfkit declares, the lowest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python ::" in line]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def _outcome(name: str) -> str:
    version = supported()[0] if name == LOWEST else name
    interpreter = next(_interpreters(version), None)
    if interpreter is None:
        return f"skipped: no python{version} answers on the search path or in pyenv"
    print(f"== {name}: {interpreter}", flush=True)
    python = str(ROOT / ".versions" / name / "bin" / "python")
    chosen = ["--resolution=lowest-direct"] if name == LOWEST else ["--constraints=constraints.txt"]
    tests = [f"tests/{test}" for test in TESTS]
    ran = (
        _run(*_UV, "venv", "--quiet", "--allow-existing", f"--python={interpreter}", f".versions/{name}")
        and _run(*_UV, "pip", "install", "--quiet", f"--python={python}", *chosen, "--editable=.[dev]")
        and _run(python, "-m", "pytest", "-q", *IN_TWO, "-m", "not alone and not slow", *tests)
    )
    return PASSED if ran else FAILED


def _interpreters(version: str) -> Iterator[str]:
    """Yield what answers as a Python of this version."""
    below = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for place in (shutil.which(f"python{version}"), *sorted(map(str, below.glob(f"{version}.*/bin/python")))):
        # On the search path there may be one that only explains how to choose it.
        if place and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0:
            yield place


def _run(*command: str) -> bool:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
