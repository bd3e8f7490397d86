"""What is rendered from a ledger twice is the same bytes, in any locale, time zone and width.

Files are the same at any width of the terminal, too; what is printed is fitted to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PERFKIT = Path(sys.executable).with_name("perfkit")
# A gate of perfkit's own ledger.
GATE = "b4d447d0c85f"
PLACES: tuple[Mapping[str, str], ...] = (
    {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "1", "COLUMNS": "80", "LANG": "C"},
    {
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Chatham",
        "PYTHONHASHSEED": "77",
        "COLUMNS": "80",
        "LANG": "de_DE.UTF-8",
        "LINES": "3",
        "NO_COLOR": "1",
    },
)
SLOW = frozenset(
    {"report", "history show", "ledger list", "ledger list as JSON", "ledger check", "show as JSON"}
)
COMMANDS = {
    "log": ["log", "--out", "{out}/log.md", "--json", "{out}/log.json"],
    "history": ["history", "--json", "{out}/history.json"],
    "history show": ["history", "show"],
    "report": ["report", "--out", "{out}/site"],
    "gate": ["ledger", "judge", "{gate}", "--markdown", "{out}/gate.md", "--json", "{out}/gate.json"],
    "ledger list": ["ledger", "list"],
    "ledger list as JSON": ["ledger", "list", "--json", "-"],
    "ledger show": ["ledger", "show", "{gate}"],
    "ledger check": ["ledger", "check"],
    "show": ["show", "profiles/first_profile.stat"],
    "show as JSON": ["show", "profiles/first_profile.stat", "--json", "{out}/profile.json"],
}


def _rendered(arguments: list[str], out: Path, place: Mapping[str, str]) -> dict[str, bytes]:
    """Return what a command prints and writes in a place, by the names of the files."""
    out.mkdir()
    output = [one.format(out=out, gate=GATE) for one in arguments]
    done = subprocess.run(
        [str(PERFKIT), *output], cwd=ROOT, env={**os.environ, **place}, capture_output=True, check=False
    )
    assert done.returncode in (0, 1, 3, 4), done.stderr.decode()
    assert b"Traceback" not in done.stderr
    written = {
        str(file.relative_to(out)): file.read_bytes().replace(str(out).encode(), b"OUT")
        for file in out.rglob("*")
        if file.is_file()
    }
    return {"printed": done.stdout.replace(str(out).encode(), b"OUT"), **written}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in COMMANDS]
)
def test_a_render_is_the_same_everywhere(tmp_path: Path, name: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout of perfkit")
    writes = any("{out}" in argument for argument in COMMANDS[name])
    here, there = PLACES
    with ThreadPoolExecutor() as pool:
        first, second = pool.map(
            lambda out, place: _rendered(COMMANDS[name], tmp_path / out, place),
            ("here", "there"),
            (here, {**there, "COLUMNS": "200"} if writes else there),
        )
    if writes:
        del first["printed"], second["printed"]

    assert first.keys() == second.keys()
    assert [] == [file for file in first if first[file] != second[file]]
    assert any(first.values())
