"""Runs the GPU study in eleven minutes: ``gpu_study.py [--stage NAME] [--limit SECONDS] [--small]``.

Each stage is a process of its own with a time limit. Its tables, rows and output are kept as it goes, so that
a stage that fails or is cut costs itself only. A stage that is done is not run again. ``--small`` runs all
of it at small sizes on the CPU; none of its figures holds for a device.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NO_DEVICE = "no CUDA device found by torch; run `make gpu` on a machine that has one (nothing was measured)"
_EXIT_FAILED, _EXIT_NO_DEVICE = 1, 2
_ENOUGH_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of ``stages.py`` and the seconds it may take."""

    name: str
    limit_s: float


# In order of value: what a cut leaves out is worth least.
STAGES = (
    Stage(name="facts", limit_s=50),
    Stage(name="operators", limit_s=40),
    Stage(name="gates", limit_s=200),
    Stage(name="profile", limit_s=120),
    Stage(name="precision_images", limit_s=100),
    Stage(name="precision_text", limit_s=110),
    Stage(name="precision_small", limit_s=110),
    Stage(name="tricks", limit_s=85),
    Stage(name="overhead", limit_s=30),
    Stage(name="cold", limit_s=60),
    Stage(name="residency", limit_s=60),
    Stage(name="more_gates", limit_s=300),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages that are not done yet, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", action="append", choices=[one.name for one in STAGES])
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="folder of tables, rows and output"
    )
    parser.add_argument("--limit", type=float, default=660.0, help="seconds for everything")
    parser.add_argument("--each", type=float, default=float("inf"), help="most seconds for a stage")
    parser.add_argument("--small", action="store_true", help="small, on the CPU")
    asked = parser.parse_args(arguments)
    if not asked.small and not _has_device():
        print(NO_DEVICE, file=sys.stderr)
        return _EXIT_NO_DEVICE
    asked.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + asked.limit
    states = _states(asked.out)
    for stage in STAGES:
        if (asked.stage and stage.name not in asked.stage) or states.get(stage.name) == "done":
            continue
        left = min(stage.limit_s, asked.each, end - time.monotonic())
        if left < _ENOUGH_S:
            print(f"{stage.name}: not run, {left:.0f} s are left", flush=True)
            continue
        states[stage.name] = _run(stage.name, asked.out, left, small=asked.small)
        (asked.out / "states.json").write_text(json.dumps(states, indent=1) + "\n")
    return 0 if all(states.get(one.name) == "done" for one in STAGES) else _EXIT_FAILED


def _has_device() -> bool:
    import torch

    return torch.cuda.is_available()


def _states(out: Path) -> dict[str, str]:
    file = out / "states.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _run(name: str, out: Path, limit_s: float, *, small: bool) -> str:
    """Run a stage within its limit, print and keep its output, and return how it ended."""
    begun = time.monotonic()
    command = [sys.executable, str(HERE / "stages.py"), name, str(out.absolute()), f"{limit_s - 3:.0f}"]
    with (out / f"{name}.log").open("a") as log:
        process = subprocess.Popen(
            [*command, *(["--small"] if small else [])],
            cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        )  # fmt: skip
        try:
            ended = "done" if process.wait(limit_s) == 0 else f"failed with exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"cut after {limit_s:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    print(f"== {name}: {ended} ({time.monotonic() - begun:.0f} s)", flush=True)
    shown = out / f"{name}.md" if ended == "done" else out / f"{name}.log"
    print(shown.read_text()[-6000:], flush=True)
    return ended


if __name__ == "__main__":
    sys.exit(main())
