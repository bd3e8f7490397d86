"""Each tool as its users run it, and what each of its rules of decision makes of what it measured.

All of them get the allocator that perfkit gives its launches: times depend on it, and it is for everyone.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pairs import QUICK_PYPERF, SLOW_PYPERF
from plan import FILES, SIX, Case
from study import gate_command

from perfkit.runner.commands import ALLOCATOR

HERE = Path(__file__).parent
# Its default, and the margin.
ASV_FACTORS = ("1.1", "1.02")
PYTEST_FIELDS = ("mean", "min")
# Of each side.
PROCESSES = 20
_T_TEST_ERROR = 0.01
_ASV_LINE = re.compile(
    r"^\|\s*(?P<mark>[+\-~!x]?)\s*\|[^|]*\|[^|]*\|\s*(?P<doubt>~?)[\d.]+\s*\|"
    r"\s*(?:works|hard)\.\w+\.time_(?P<name>\w+)"
)
_PYTEST_LINE = re.compile(r"test_(\w+) \S+ - Field '(\w+)' has failed")
_PYPERF_LINE = re.compile(r"^(\w+): .*: ([\d.]+)x (slower|faster)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A pair laid out: its case, the repository, both commits, a checkout of each, a folder to work in."""

    case: Case
    repository: Path
    base: str
    head: str
    checkouts: Mapping[str, Path]
    folder: Path
    asv_folder: Path
    ledger: Path

    @property
    def asv_benchmarks(self) -> str:
        """What asv calls the benchmarks of the pair."""
        return r"^works\." if self.case.benchmarks == SIX else r"^hard\."


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a rule makes of a measurement: what it calls slower, faster or undecided, and its ratios.

    ``undecided`` is None where the rule knows no such answer.
    """

    rule: str
    slower: tuple[str, ...]
    faster: tuple[str, ...]
    undecided: tuple[str, ...] | None
    ratios: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One measurement of a pair: how long it took in seconds, and what each rule makes of it.

    ``values`` are the measured seconds by side and benchmark, where the rules are this contest's own.
    """

    wall_s: float
    judgements: tuple[Judgement, ...]
    values: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


class ToolError(Exception):
    """A tool is not installed, or broke."""


def run_perfkit(scene: Scene) -> Finding:
    """Gate the pair."""
    command = gate_command(
        scene.case, root=scene.repository, base=scene.base, head=scene.head, ledger=scene.ledger
    )
    done, wall_s = _run(command, fine=(0, 1, 3))
    found = {
        one["benchmark"]["name"].rpartition("test_")[2]: one for one in json.loads(done.stdout)["comparisons"]
    }
    decided = ("REGRESSED", "IMPROVED", "UNCHANGED", "NOT SLOWER")
    judgement = Judgement(
        rule="perfkit",
        slower=tuple(name for name, one in found.items() if one["verdict"] == "REGRESSED"),
        faster=tuple(name for name, one in found.items() if one["verdict"] == "IMPROVED"),
        undecided=tuple(name for name, one in found.items() if one["verdict"] not in decided),
        ratios={name: one["estimate"]["ratio"] for name, one in found.items() if one["estimate"]},
    )
    return Finding(wall_s=wall_s, judgements=(judgement,))


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
    options = ["-f", "1.02", "-a", "rounds=4", "--interleave-rounds", "-b", scene.asv_benchmarks]
    done, wall_s = _asv(scene, "continuous", *options, scene.base, scene.head, fine=(0, 1))
    # Its table rounds ratios to two digits.
    medians = {side: _asv_medians(scene, sha) for side, sha in (("base", scene.base), ("head", scene.head))}
    both = medians["base"].keys() & medians["head"].keys()
    ratios = {name: medians["head"][name] / medians["base"][name] for name in sorted(both)}
    judgements: list[Judgement] = []
    for factor in ASV_FACTORS:
        printed, _ = _asv(scene, "compare", "-f", factor, scene.base, scene.head)
        judgements.append(judge_asv(printed.stdout, factor, ratios))
        if not judgements[-1].ratios:
            raise ToolError(f"asv compared nothing: {printed.stdout[-300:]} {done.stderr[-300:]}")
    return Finding(wall_s=wall_s, judgements=tuple(judgements))


def judge_asv(printed: str, factor: str, ratios: Mapping[str, float]) -> Judgement:
    """Return what ``asv compare`` prints; beyond the factor but not significant is undecided."""
    lines = [found for line in printed.splitlines() if (found := _ASV_LINE.match(line))]
    return Judgement(
        rule=f"asv, factor {factor}",
        slower=tuple(line["name"] for line in lines if line["mark"] == "+"),
        faster=tuple(line["name"] for line in lines if line["mark"] == "-"),
        undecided=tuple(line["name"] for line in lines if line["doubt"]),
        ratios={line["name"]: ratios[line["name"]] for line in lines if line["name"] in ratios},
    )


def run_pytest_benchmark(scene: Scene) -> Finding:
    """Save base's run, and let head's run fail where its mean, or minimum, is above it by the margin."""
    storage = scene.folder / "pytest-benchmark"
    command = [sys.executable, "-m", "pytest", "-p", "no:perfkit", "-p", "no:cacheprovider"]
    command += [FILES[scene.case.benchmarks], f"--benchmark-storage=file://{storage}"]
    _, base_s = _run([*command, "--benchmark-save=base"], cwd=scene.checkouts["base"], environment=ALLOCATOR)
    (saved,) = storage.rglob("*_base.json")
    result = scene.folder / "head.json"
    # It takes several conditions after one option only: a second one would replace the first.
    conditions = ["--benchmark-compare-fail", *(f"{field}:{scene.case.margin}" for field in PYTEST_FIELDS)]
    done, head_s = _run(
        [*command, "--benchmark-compare=0001", *conditions, f"--benchmark-json={result}"],
        cwd=scene.checkouts["head"],
        environment=ALLOCATOR,
        fine=(0, 1),
    )
    printed = done.stdout + done.stderr
    return Finding(
        wall_s=base_s + head_s,
        judgements=tuple(
            judge_pytest_benchmark(
                printed, field, _pytest_times(saved, field), _pytest_times(result, field), scene.case.margin
            )
            for field in PYTEST_FIELDS
        ),
    )


def judge_pytest_benchmark(
    printed: str, field: str, base: Mapping[str, float], head: Mapping[str, float], margin: str
) -> Judgement:
    """Return which benchmarks it prints as failed by a field; it praises nothing and decides always."""
    failed = [name for name, by in _PYTEST_LINE.findall(printed) if by == field]
    return Judgement(
        rule=f"pytest-benchmark, {field}:{margin}",
        slower=tuple(dict.fromkeys(failed)),
        faster=(),
        undecided=None,
        ratios={name: head[name] / seconds for name, seconds in base.items()},
    )


def run_quick_pyperf(scene: Scene) -> Finding:
    """Run both sides by its quicker way, and ask what differs."""
    return _run_pyperf(scene, QUICK_PYPERF, "--fast")


def run_slow_pyperf(scene: Scene) -> Finding:
    """Run both sides by its defaults, which take twice as long, and ask what differs."""
    return _run_pyperf(scene, SLOW_PYPERF)


def _run_pyperf(scene: Scene, name: str, *options: str) -> Finding:
    files, wall_s = {}, 0.0
    for side, checkout in scene.checkouts.items():
        files[side] = scene.folder / f"{name.replace(' ', '')}-{side}.json"
        # Its processes get no other variables than these.
        environment = {**ALLOCATOR, "PYTHONPATH": str(checkout)}
        command = [
            sys.executable,
            str(HERE / "pyperf_suite.py"),
            f"--inherit-environ={','.join(environment)}",
        ]
        _, seconds = _run(
            [*command, *options, "-o", str(files[side]), *scene.case.benchmarks], environment=environment
        )
        wall_s += seconds
    means = {side: _pyperf_means(file) for side, file in files.items()}
    ratios = {work: means["head"][work] / mean for work, mean in means["base"].items()}
    compare = [sys.executable, "-m", "pyperf", "compare_to", str(files["base"]), str(files["head"])]
    judgements = []
    for least in ((), ("--min-speed", scene.case.margin.rstrip("%"))):
        done, seconds = _run([*compare, *least])
        wall_s += seconds
        judgements.append(judge_pyperf(done.stdout, " ".join((name + ",", "compare_to", *least)), ratios))
    return Finding(wall_s=wall_s, judgements=tuple(judgements))


def judge_pyperf(printed: str, rule: str, ratios: Mapping[str, float]) -> Judgement:
    """Return what ``pyperf compare_to`` prints; it never separates what is equal from what is open."""
    lines = _PYPERF_LINE.findall(printed)
    return Judgement(
        rule=rule,
        slower=tuple(name for name, _, word in lines if word == "slower"),
        faster=tuple(name for name, _, word in lines if word == "faster"),
        undecided=None,
        ratios=ratios,
    )


def run_t_test(scene: Scene) -> Finding:
    """Time the works in fresh processes of each side by turns, as one would without any tool."""
    values: dict[str, dict[str, list[float]]] = {
        side: {name: [] for name in scene.case.benchmarks} for side in scene.checkouts
    }
    wall_s = 0.0
    for number in range(PROCESSES):
        # Each side is first equally often.
        for side in sorted(scene.checkouts, reverse=bool(number % 2)):
            environment = {**ALLOCATOR, "PYTHONPATH": str(scene.checkouts[side])}
            done, seconds = _run(
                [sys.executable, str(HERE / "plain_suite.py"), *scene.case.benchmarks],
                environment=environment,
            )
            wall_s += seconds
            for name, value in json.loads(done.stdout).items():
                values[side][name].append(value)
    return Finding(wall_s=wall_s, judgements=judge_t_test(values, scene.case.margin), values=values)


def judge_t_test(
    values: Mapping[str, Mapping[str, Sequence[float]]], margin: str
) -> tuple[Judgement, Judgement]:
    """Return what Welch's t-test of the log times finds at 1 %, by two readings of the margin.

    A difference counts where it is significant and larger than the margin, and is undecided where it is
    larger only; or where the 99 % interval lies beyond the margin, and is undecided where it reaches across.
    """
    least = float(margin.rstrip("%")) / 100
    tests = {name: _welch(values["base"][name], values["head"][name]) for name in values["base"]}
    ratios = {name: math.exp(test.difference) for name, test in tests.items()}
    large = {name for name, ratio in ratios.items() if abs(ratio - 1) > least}
    significant = {name for name, test in tests.items() if test.p_value < _T_TEST_ERROR}
    limits = {name: (math.exp(test.low), math.exp(test.high)) for name, test in tests.items()}
    return (
        Judgement(
            rule=f"t-test, p < 1 % and more than {margin.rstrip('%')} % apart",
            slower=tuple(name for name in tests if name in large & significant and ratios[name] > 1),
            faster=tuple(name for name in tests if name in large & significant and ratios[name] < 1),
            undecided=tuple(name for name in tests if name in large - significant),
            ratios=ratios,
        ),
        Judgement(
            rule=f"t-test, 99 % interval beyond {margin.rstrip('%')} %",
            slower=tuple(name for name, (low, _) in limits.items() if low > 1 + least),
            faster=tuple(name for name, (_, high) in limits.items() if high < 1 - least),
            undecided=tuple(name for name, reach in limits.items() if _reaches_across(*reach, least)),
            ratios=ratios,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Test:
    """A difference of log times, its p-value and its interval at the same error."""

    difference: float
    p_value: float
    low: float
    high: float


def _welch(base: Sequence[float], head: Sequence[float]) -> _Test:
    from scipy.stats import ttest_ind

    old, new = ([math.log(value) for value in side] for side in (base, head))
    found = ttest_ind(new, old, equal_var=False)
    low, high = found.confidence_interval(1 - _T_TEST_ERROR)
    difference = statistics.fmean(new) - statistics.fmean(old)
    return _Test(difference=difference, p_value=float(found.pvalue), low=float(low), high=float(high))


def _reaches_across(low: float, high: float, margin: float) -> bool:
    """Return whether an interval lies partly within the margin and partly beyond."""
    within = 1 - margin <= low and high <= 1 + margin
    return not within and low <= 1 + margin and high >= 1 - margin


RUN: Mapping[str, Callable[[Scene], Finding]] = {
    "perfkit": run_perfkit,
    "asv": run_asv,
    "pytest-benchmark": run_pytest_benchmark,
    "t-test": run_t_test,
    QUICK_PYPERF: run_quick_pyperf,
    SLOW_PYPERF: run_slow_pyperf,
}


def _asv(scene: Scene, verb: str, *options: str, fine: tuple[int, ...] = (0,)) -> tuple[Done, float]:
    settings = ["--config", str(scene.asv_folder / "asv.conf.json")]
    return _run(
        [sys.executable, "-m", "asv", verb, *settings, *options],
        cwd=scene.asv_folder,
        environment=ALLOCATOR,
        fine=fine,
    )


Done = subprocess.CompletedProcess[str]


def _run(
    command: list[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    fine: tuple[int, ...] = (0,),
) -> tuple[Done, float]:
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
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
    found = {name.rpartition("time_")[2]: row[result] for name, row in kept["results"].items()}
    # A benchmark that failed has no result.
    return {name: values[0] for name, values in found.items() if values and values[0] is not None}


def _pytest_times(file: Path, field: str) -> dict[str, float]:
    """Return the means or minima that it has saved."""
    found = json.loads(file.read_text())["benchmarks"]
    return {one["name"].removeprefix("test_"): float(one["stats"][field]) for one in found}


def _pyperf_means(file: Path) -> dict[str, float]:
    import pyperf

    return {one.get_name(): float(one.mean()) for one in pyperf.BenchmarkSuite.load(str(file))}


def _version(distribution: str) -> str:
    from importlib.metadata import version

    return version(distribution).partition("+")[0]
