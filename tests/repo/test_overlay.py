"""Head's benchmark files are laid over a base, listed, and taken off again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from perfkit.errors import RepositoryError
from perfkit.repo.files import overlay, restore


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Return head with a same, a changed and a new benchmark, and base with the first two."""
    head = {"b/bench_same.py": "1", "b/bench_changed.py": "2", "b/deep/bench_new.py": "3"}
    base = {"b/bench_same.py": "1", "b/bench_changed.py": "1", "b/bench_own.py": "1"}
    return _write(tmp_path / "head", head), _write(tmp_path / "base", base)


FILES = ("b/bench_same.py", PurePosixPath("b/bench_changed.py"), "b/deep/bench_new.py")


def test_only_what_differs_is_reported(roots: tuple[Path, Path]) -> None:
    head, base = roots

    assert ("b/bench_changed.py", "b/deep/bench_new.py") == overlay(FILES, source=head, target=base)
    assert _contents(base) == {**_contents(head), "b/bench_own.py": "1"}
    assert () == overlay(FILES, source=head, target=base)


def test_restoring_brings_back_what_base_had(roots: tuple[Path, Path]) -> None:
    head, base = roots
    before = _contents(base)
    overlay(FILES, source=head, target=base)
    (head / "b/bench_changed.py").write_text("4")
    overlay(FILES, source=head, target=base)

    for file in (*FILES, "b/bench_own.py"):
        restore(base, file)

    assert before == _contents(base)
    assert not (base / "b/deep").exists()


def test_links_are_laid_as_what_they_lead_to(roots: tuple[Path, Path]) -> None:
    head, base = roots
    (head / "b/bench_link.py").symlink_to("bench_changed.py")
    (base / "b/bench_link.py").symlink_to("bench_own.py")

    assert ("b/bench_link.py",) == overlay(["b/bench_link.py"], source=head, target=base)
    assert ("2", "1") == ((base / "b/bench_link.py").read_text(), (base / "b/bench_own.py").read_text())

    restore(base, "b/bench_link.py")
    assert "bench_own.py" == str((base / "b/bench_link.py").readlink())


def test_cached_bytecode_never_stands_for_another_version(roots: tuple[Path, Path]) -> None:
    head, base = roots
    name = "b/bench_changed.py"
    for root, value in ((head, 2), (base, 1)):
        (root / name).write_text(f"VALUE = {value}\n")
        os.utime(root / name, (1_000_000_000, 1_000_000_000))

    seen = [_imported(base)]
    overlay([name], source=head, target=base)
    seen.append(_imported(base))
    restore(base, name)
    seen.append(_imported(base))

    assert ["1", "2", "1"] == seen


def _imported(root: Path) -> str:
    command = [sys.executable, "-c", "import bench_changed; print(bench_changed.VALUE)"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root / "b")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", ["../bench_x.py", "b/outside/bench_x.py", "/bench_x.py"])
def test_nothing_is_laid_outside_the_checkout(roots: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    head, base = roots
    _write(tmp_path, {"head/b/outside/bench_x.py": "1", "bench_x.py": "1"})
    (tmp_path / "elsewhere").mkdir()
    (base / "b/outside").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RepositoryError, match="leads out of the checkout"):
        overlay([name], source=head, target=base)
    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_a_missing_or_blocked_file_is_one_line(roots: tuple[Path, Path]) -> None:
    head, base = roots
    with pytest.raises(RepositoryError, match=r"bench_none\.py.*No such file"):
        overlay(["b/bench_none.py"], source=head, target=base)
    (base / "b/deep").write_text("a file")
    with pytest.raises(RepositoryError, match=r"cannot copy .*bench_new\.py"):
        overlay(["b/deep/bench_new.py"], source=head, target=base)
