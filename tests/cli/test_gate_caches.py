"""Sides share no cache of built code: a library from a shared place is refused, twice in a row too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gating import git_project

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="a library has to be compiled")
SOURCE = "long work(void) {{ volatile long s = 0; for (long i = 0; i < {}; i++) s += i; return s; }}\n"
APP = """
import ctypes, os, pathlib, subprocess
cache = pathlib.Path({cache})
cache.mkdir(parents=True, exist_ok=True)
library = cache / "demo_op.so"
if not library.exists():
    source = str(pathlib.Path(__file__).with_name("op.c"))
    subprocess.run(["gcc", "-O0", "-shared", "-fPIC", "-o", str(library), source], check=True)
work = ctypes.CDLL(str(library)).work
"""
TEST = (
    "from app import work\ndef test_work(benchmark):\n    benchmark.pedantic(work, rounds=5, iterations=20)\n"
)


@pytest.mark.parametrize(
    "cache",
    [
        "pathlib.Path.home() / '.cache/demo'",
        "os.environ['XDG_CACHE_HOME'] + '/demo'",
        "os.environ['ELSEWHERE']",
    ],
)
def test_a_library_in_a_shared_cache_is_refused(tmp_path: Path, cache: str) -> None:
    project = git_project(
        tmp_path, {"app.py": APP.format(cache=cache), "op.c": SOURCE.format(20_000), "test_app.py": TEST}
    )
    project.commit({"op.c": SOURCE.format(200_000)})
    home = tmp_path / "home"
    home.mkdir()
    extra = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "ELSEWHERE": str(tmp_path / "elsewhere"),
    }

    for _ in range(2):
        gated = project.gate("--budget", "20", extra=extra)
        assert 4 == gated.exit_code
        assert "demo_op.so" in gated.stderr


def test_each_side_has_its_own_folder_of_extensions(tmp_path: Path) -> None:
    app = APP.format(cache="os.environ['TORCH_EXTENSIONS_DIR']")
    project = git_project(tmp_path, {"app.py": app, "op.c": SOURCE.format(20_000), "test_app.py": TEST})
    project.commit({"op.c": SOURCE.format(200_000)})
    shared = tmp_path / "extensions"

    gated = project.gate("--budget", "40", extra={"TORCH_EXTENSIONS_DIR": str(shared)})

    assert {"test_work": "REGRESSED"} == gated.verdicts
    assert 1 == gated.exit_code
    assert not shared.exists()
