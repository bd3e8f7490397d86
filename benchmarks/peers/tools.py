"""Each tool as its users run it: by its own defaults and its own rule of decision."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_ASV_LINE = re.compile(r"^\|\s*([+\-~!x]?)\s*\|[^|]*\|[^|]*\|\s*~?[\d.]+\s*\|\s*works\.\w+\.time_(\w+)")
_PYTEST_LINE = re.compile(r"test_(\w+) \S+ - Field '\w+' has failed")
_PYPERF_LINE = re.compile(r"^(\w+): .*: ([\d.]+)x (slower|faster)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A pair laid out: the repository, both commits, a checkout of each, and a folder to work in."""

    repository: Path
    base: str
    head: str
    checkouts: Mapping[str, Path]
    folder: Path
    asv_folder: Path
    ledger: Path
    margin: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a tool said: what it calls slower and faster, its ratios, and how long it took in seconds."""

    slower: tuple[str, ...]
    faster: tuple[str, ...]
    ratios: Mapping[str, float]
    wall_s: float
    exit_code: int


class ToolError(Exception):
    """A tool is not installed, or broke."""


def run_perfkit(scene: Scene) -> Finding:
    """Gate the pair."""
    command = [sys.executable, "-m", "perfkit", "gate", "--repo", str(scene.repository), "--base", scene.base]
    options = ["--head", scene.head, "--margin", scene.margin, "--ledger", str(scene.ledger)]
    done, wall_s = _run([*command, *options, "--seed", str(scene.seed), "--json", "-"], fine=(0, 1, 3))
    found = {
        one["benchmark"]["name"].rpartition("test_")[2]: one for one in json.loads(done.stdout)["comparisons"]
    }
    return Finding(
        slower=tuple(name for name, one in found.items() if one["verdict"] == "REGRESSED"),
        faster=tuple(name for name, one in found.items() if one["verdict"] == "IMPROVED"),
        ratios={name: one["estimate"]["ratio"] for name, one in found.items() if one["estimate"]},
        wall_s=wall_s,
        exit_code=done.returncode,
    )


def set_up_asv(scene: Scene) -> None:
    """Build asv's environment for the project, which no comparison then has to."""
    scene.asv_folder.mkdir(parents=True, exist_ok=True)
    write_pth = (
        "import os, sysconfig, sys; open(os.path.join(sysconfig.get_path('purelib'), 'suite.pth'), 'w')"
    )
    settings = {
        "version": 1,
        "project": "suite",
        "repo": str(scene.repository),
        "branches": ["main"],
        "environment_type": "virtualenv",
        "pythons": [f"{sys.version_info.major}.{sys.version_info.minor}"],
        "matrix": {"req": {"torch": [_version("torch")], "numpy": [_version("numpy")]}},
        "benchmark_dir": str(HERE / "asv_suite"),
        "env_dir": str(scene.asv_folder / "env"),
        "results_dir": str(scene.asv_folder / "results"),
        "build_command": [],
        "install_command": [f'python -c "{write_pth}.write(sys.argv[1])" {{build_dir}}'],
        "uninstall_command": [],
    }
    (scene.asv_folder / "asv.conf.json").write_text(json.dumps(settings))
    _asv(scene, "machine", "--yes")
    # It ends with 1 where all went well: its list of environments becomes the exit status.
    _asv(scene, "setup", fine=(0, 1))


def run_asv(scene: Scene) -> Finding:
    """Compare the pair as its documentation advises for noisy machines, rounds interleaved."""
    options = ["-f", "1.02", "-a", "rounds=4", "--interleave-rounds"]
    done, wall_s = _asv(scene, "continuous", *options, scene.base, scene.head, fine=(0, 1))
    said, _ = _asv(scene, "compare", "-f", "1.02", scene.base, scene.head)
    lines = [found for line in said.stdout.splitlines() if (found := _ASV_LINE.match(line))]
    if not lines:
        raise ToolError(f"asv compared nothing: {said.stdout[-300:]} {done.stderr[-300:]}")
    # Its table rounds ratios to two digits.
    medians = {side: _asv_medians(scene, sha) for side, sha in (("base", scene.base), ("head", scene.head))}
    return Finding(
        slower=tuple(line[2] for line in lines if line[1] == "+"),
        faster=tuple(line[2] for line in lines if line[1] == "-"),
        ratios={name: medians["head"][name] / median for name, median in medians["base"].items()},
        wall_s=wall_s,
        exit_code=done.returncode,
    )


def run_pytest_benchmark(scene: Scene) -> Finding:
    """Save base's run, and let head's run fail where its mean is more than the margin above it."""
    storage = scene.folder / "pytest-benchmark"
    command = [sys.executable, "-m", "pytest", "-p", "no:perfkit", "-p", "no:cacheprovider", "bench_six.py"]
    save = [f"--benchmark-storage=file://{storage}", "--benchmark-save=base"]
    _, base_s = _run([*command, *save], cwd=scene.checkouts["base"])
    (saved,) = storage.rglob("*_base.json")
    result = scene.folder / "head.json"
    compare = ["--benchmark-compare=0001", f"--benchmark-compare-fail=mean:{scene.margin}"]
    done, head_s = _run(
        [*command, save[0], *compare, f"--benchmark-json={result}"],
        cwd=scene.checkouts["head"],
        fine=(0, 1),
    )
    means = {side: _pytest_means(file) for side, file in (("base", saved), ("head", result))}
    return Finding(
        slower=tuple(dict.fromkeys(_PYTEST_LINE.findall(done.stdout + done.stderr))),
        faster=(),
        ratios={name: means["head"][name] / mean for name, mean in means["base"].items()},
        wall_s=base_s + head_s,
        exit_code=done.returncode,
    )


def run_pyperf(scene: Scene) -> Finding:
    """Run both sides by its quicker way, since its default takes twice as long, and ask what differs."""
    files, wall_s = {}, 0.0
    for side, checkout in scene.checkouts.items():
        files[side] = scene.folder / f"pyperf-{side}.json"
        command = [sys.executable, str(HERE / "pyperf_suite.py"), "--inherit-environ=PYTHONPATH"]
        _, seconds = _run([*command, "--fast", "-o", str(files[side])], extra={"PYTHONPATH": str(checkout)})
        wall_s += seconds
    done, seconds = _run(
        [sys.executable, "-m", "pyperf", "compare_to", str(files["base"]), str(files["head"])]
    )
    said = _PYPERF_LINE.findall(done.stdout)
    means = {side: _pyperf_means(file) for side, file in files.items()}
    return Finding(
        slower=tuple(name for name, _, word in said if word == "slower"),
        faster=tuple(name for name, _, word in said if word == "faster"),
        ratios={name: means["head"][name] / mean for name, mean in means["base"].items()},
        wall_s=wall_s + seconds,
        exit_code=done.returncode,
    )


RUN: Mapping[str, Callable[[Scene], Finding]] = {
    "perfkit": run_perfkit,
    "asv": run_asv,
    "pytest-benchmark": run_pytest_benchmark,
    "pyperf": run_pyperf,
}


def _asv(scene: Scene, verb: str, *options: str, fine: tuple[int, ...] = (0,)) -> tuple[Done, float]:
    settings = ["--config", str(scene.asv_folder / "asv.conf.json")]
    return _run([sys.executable, "-m", "asv", verb, *settings, *options], cwd=scene.asv_folder, fine=fine)


Done = subprocess.CompletedProcess[str]


def _run(
    command: list[str],
    *,
    cwd: Path | None = None,
    extra: Mapping[str, str] | None = None,
    fine: tuple[int, ...] = (0,),
) -> tuple[Done, float]:
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(extra or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode not in fine:
        words = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise ToolError(f"{' '.join(command[1:4])} ended with {done.returncode}: {words}")
    return done, time.monotonic() - begun


def _asv_medians(scene: Scene, sha: str) -> dict[str, float]:
    """Return what asv's file on a commit has as the result of each benchmark, in seconds."""
    (file,) = (scene.asv_folder / "results").rglob(f"{sha[:8]}-*.json")
    kept = json.loads(file.read_text())
    result = kept["result_columns"].index("result")
    return {name.rpartition("time_")[2]: row[result][0] for name, row in kept["results"].items()}


def _pytest_means(file: Path) -> dict[str, float]:
    found = json.loads(file.read_text())["benchmarks"]
    return {one["name"].removeprefix("test_"): float(one["stats"]["mean"]) for one in found}


def _pyperf_means(file: Path) -> dict[str, float]:
    import pyperf

    return {one.get_name(): float(one.mean()) for one in pyperf.BenchmarkSuite.load(str(file))}


def _version(distribution: str) -> str:
    from importlib.metadata import version

    return version(distribution).partition("+")[0]
