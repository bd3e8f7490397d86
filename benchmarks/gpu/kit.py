"""Packs what a machine with a GPU and no package index lacks: ``kit.py [FOLDER]``, for ``make gpu-kit``.

The folder gets perfkit and what it needs as wheels, and the study. There, ``run.sh`` installs them beside the
packages that are installed already, and runs the study.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The machine has Python 3.12 with torch 2.11, torchvision, transformers, pytest, pytest-benchmark, pyarrow,
# scipy, typer, rich, jinja2 and psutil, and lacks these.
LACKING = ("duckdb", "msgspec", "gitpython", "gitdb", "smmap", "line_profiler", "snakeviz", "tornado")
MOST_BYTES = 60 << 20
PYTHON = "3.12"
_RUN = """#!/usr/bin/env bash
# Installs the wheels into a folder of their own, in front of what is installed, and runs the study.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
site="$(mktemp -d)"
python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$here"/wheels/*.whl
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PERFKIT_COMMIT="${PERFKIT_COMMIT:-$(cat "$here/commit")}"
exec python3 "$here/benchmarks/gpu/gpu_study.py" "$@"
"""


def main(folder: Path) -> int:
    """Fill the folder and print its size."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (17, 27, 28, 31, 34)] + ["manylinux2014_x86_64"]
    subprocess.run(
        [
            *(*pip, "download", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON),
            *("--implementation", "cp", "--dest", str(wheels), "-c", str(ROOT / "constraints.txt")),
            *(part for one in platforms for part in ("--platform", one)),
            *LACKING,
        ],
        check=True,
    )
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)], check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (folder / "commit").write_text(commit.stdout)
    study = folder / "benchmarks" / "gpu"
    study.mkdir(parents=True, exist_ok=True)
    for file in (*HERE.glob("*.py"), *HERE.glob("*.toml")):
        (study / file.name).write_bytes(file.read_bytes())
    workloads, ignored = HERE.parent / "workloads", shutil.ignore_patterns("__pycache__")
    shutil.copytree(workloads, folder / "benchmarks" / "workloads", ignore=ignored, dirs_exist_ok=True)
    (folder / "run.sh").write_text(_RUN)
    (folder / "run.sh").chmod(0o755)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / (1 << 20):.1f} MiB; next, on the machine with the GPU: {folder.name}/run.sh")
    if size > MOST_BYTES:
        print(f"expected at most {MOST_BYTES >> 20} MiB, found {size >> 20}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/gpu-kit")))
