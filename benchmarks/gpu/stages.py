"""The stages of the GPU study: ``stages.py STAGE OUT SECONDS [--small]``, as ``gpu_study.py`` runs them.

A stage writes its table, ``OUT/STAGE.md``, anew after each part of it, and its rows to ``OUT/ledger``.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import targets
import torch

import perfkit
from perfkit.gating.sides import staged_launcher
from perfkit.runner.lockstep.launch import LaunchRules, schedule
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.residency import measure_presence
from perfkit.runner.lockstep.turns import LoopPlan
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.stats.interval import location
from perfkit.units import human_bytes, human_seconds

HERE = Path(__file__).parent
MARGIN, INJECTED = "0.5%", 0.01
# A gate ends as soon as it is decided; 30 s are aimed at. With 60 s it first checks if sides disturb.
GATE_BUDGET_S = 50


@dataclass(kw_only=True)
class Stage:
    """A stage that runs: where and for how long it may, at which size, and its table so far."""

    name: str
    out: Path
    device: str
    end_s: float
    lines: list[str] = field(default_factory=list)

    @property
    def small(self) -> bool:
        """Whether this is a trial on the CPU."""
        return self.device == "cpu"

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        return self.end_s - time.monotonic()

    @property
    def ledger(self) -> Path:
        """The study's own ledger."""
        return self.out / "ledger"

    def write(self, *lines: str) -> None:
        """Add lines to the table and write it."""
        self.lines += lines
        (self.out / f"{self.name}.md").write_text("\n".join(self.lines) + "\n")

    def perfkit(self, *arguments: str, expected: Iterable[int] = (0,), folder: Path = HERE) -> str:
        """Run a command of perfkit, print its output, and return its standard output.

        Raises:
            RuntimeError: it ended with an exit code that is not expected.
        """
        print(f"$ perfkit {' '.join(arguments)}", flush=True)
        # Progress on standard error is kept even if this stage is cut.
        done = subprocess.run(
            [sys.executable, "-m", "perfkit", *arguments],
            cwd=folder, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        print(done.stdout, flush=True)
        if done.returncode not in expected:
            raise RuntimeError(f"perfkit {arguments[0]} ended with exit code {done.returncode}")
        return done.stdout


def facts(stage: Stage) -> None:
    """Print what perfkit knows of the machine and its device."""
    print(*(f"{name}={value}" for name, value in sorted(os.environ.items()) if "CUDA" in name), sep="\n")
    if not stage.small:
        subprocess.run(["nvidia-smi"], check=False)
    machine, environment = read_machine(), read_environment()
    known = {**machine.facts, **environment.facts}
    stage.write(
        "| fact | value |", "| :--- | :--- |", *(f"| {key} | {known[key]} |" for key in sorted(known)), ""
    )
    doctor = stage.perfkit("doctor", "--seconds", "5" if stage.small else "8", expected=(0, 3))
    stage.write("```text", doctor.strip(), "```")


def _operators(device: str, size: int) -> Mapping[str, Callable[[], object]]:
    """Return ten operators of different kinds, each with its inputs on a device."""
    from torch.nn import functional

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device)

    square, left, right = made(size, size), made(size // 2, size // 2), made(size // 2, size // 2)
    images, kernel = made(32, 32, size // 32 + 3, size // 32 + 3), made(64, 32, 3, 3)
    heads = made(4, 16, size // 8, 64)
    rows = torch.randint(0, size, (size,), device=device)
    return {
        "matmul": lambda: left @ right,
        "add": lambda: square + square,
        "gelu": lambda: functional.gelu(square),
        "sum": square.sum,
        "softmax": lambda: square.softmax(dim=-1),
        "layer_norm": lambda: functional.layer_norm(square, (size,)),
        "cumsum": lambda: square.cumsum(dim=-1),
        "conv2d": lambda: functional.conv2d(images, kernel),
        "index_select": lambda: square.index_select(0, rows),
        "attention": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
    }


def operators(stage: Stage) -> None:
    """Compare perfkit's device times of ten operators with those of triton and torch."""
    stage.write(
        "| operator | perfkit, L2 flushed | do_bench | ratio | perfkit, in a row | torch Timer | ratio |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    )
    worst = {"do_bench": 0.0, "torch Timer": 0.0}
    for name, call in _operators(stage.device, 128 if stage.small else 8192).items():
        calls = 3 if stage.small else 100
        for _ in range(calls):
            call()
        flushed = _flushed_s(f"gpu operator {name}", call, stage, calls)
        in_a_row = _in_a_row_s(f"gpu operator {name} in a row", call, stage, calls)
        triton_s, torch_s = _triton_s(call), _torch_s(call)
        ratios = (flushed / triton_s if triton_s else None, in_a_row / torch_s)
        for rival, ratio in zip(worst, ratios, strict=True):
            worst[rival] = max(worst[rival], abs(ratio - 1) if ratio else 0.0)
        cells = (
            _us(flushed), _us(triton_s), _ratio(ratios[0]), _us(in_a_row), _us(torch_s), _ratio(ratios[1]),
        )  # fmt: skip
        stage.write(f"| {name} | {' | '.join(cells)} |")
    ends = ", ".join(f"{100 * off:.1f} % from {rival}" for rival, off in worst.items())
    stage.write("", f"Largest deviation: {ends}; at most 2 % is aimed at.")


def _flushed_s(name: str, call: Callable[[], object], stage: Stage, calls: int) -> float:
    part = perfkit.timed(name, flush_l2=True)
    for _ in range(calls):
        with part:
            call()
    return _recorded_s(part, stage)


def _in_a_row_s(name: str, call: Callable[[], object], stage: Stage, calls: int) -> float:
    part = perfkit.timed(name)
    for _ in range(9):
        with part:
            for _ in range(calls):
                call()
    return _recorded_s(part, stage) / calls


def _recorded_s(part: perfkit.timed, stage: Stage) -> float:
    """Record a part's times and return the device's median, or that of all where there is no device."""
    values = part.device.device_s if part.device and part.device.device_s else part.seconds
    median = statistics.median(values)
    part.file(stage.ledger)
    return median


def _triton_s(call: Callable[[], object]) -> float | None:
    """Return what triton measures, None where it is not installed or there is no device for it."""
    try:
        from triton.testing import do_bench  # type: ignore[import-not-found]

        return float(do_bench(call, return_mode="median")) * 1e-3
    except (ImportError, RuntimeError, AssertionError):
        return None


def _torch_s(call: Callable[[], object]) -> float:
    from torch.utils.benchmark import Timer

    return float(Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.2).median)


_STEP = """
import torch
from targets import resnet

EXTRA = {extra}


def make_step():
    torch.manual_seed(0)
    model = resnet("resnet18", "{device}")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images = torch.randn({count}, 3, {size}, {size}, device="{device}")
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, ({count},), device="{device}")
    extra = torch.ones(EXTRA, device="{device}")

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        # At the begin of a step it would hide in the time in which the device waits for its first launches.
        extra.mul_(1.0)
        optimizer.step()

    return step
"""
_BENCHMARK = """
from step import make_step


def test_resnet18_step(benchmark):
    benchmark(make_step())
"""


def gates(stage: Stage, pairs: int = 3, seed: int = 0) -> None:
    """Gate a ResNet-18 step against itself and against one that takes 1 % longer, by turns."""
    sides = stage.out / "sides"
    if not sides.exists():
        extra, step_s = _calibrated(stage)
        print(f"a step takes {human_seconds(step_s)}, an operation on {extra:,} numbers a hundredth of it")
        for side, amount in (("base", 1024), ("same", 1024), ("slower", extra)):
            (sides / side).mkdir(parents=True)
            (sides / side / "step.py").write_text(_step_source(stage, amount))
            (sides / side / "test_step.py").write_text(_BENCHMARK)
    stage.write(
        "| head | verdict | change | interval | launches | sd of launches | wall | exit code |",
        "| :--- | :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    )
    for number in range(seed, seed + pairs):
        for head in ("slower", "same"):
            if stage.left_s < (60 if stage.small else GATE_BUDGET_S - 10):
                stage.write("", f"Ended before the gates of seed {number}: {stage.left_s:.0f} s were left.")
                return
            stage.write(_gate(stage, sides, head, number))


def more_gates(stage: Stage) -> None:
    """Gate on while time is left."""
    gates(stage, pairs=10, seed=100)


def _gate(stage: Stage, sides: Path, head: str, seed: int) -> str:
    file = stage.out / f"{stage.name}-{head}-{seed}.json"
    # What an earlier run of this stage has gated is not gated again.
    if not file.exists():
        stage.perfkit(
            *("gate", "--base", str(sides / "base"), "--head", str(sides / head)),
            *("--benchmarks", "test_step.py", "--margin", MARGIN, "--seed", str(seed)),
            *("--budget", str(10 if stage.small else GATE_BUDGET_S)),
            *("--ledger", str(stage.ledger), "--json", str(file)),
            expected=(0, 1, 3),
            folder=sides,
        )
    document = json.loads(file.read_text())
    (one,) = document["comparisons"]
    measured = ("-",) * 4
    if estimate := one["estimate"]:
        change, low, high = (100 * (estimate[key] - 1) for key in ("ratio", "low", "high"))
        measured = (
            f"{change:+.2f} %", f"{low:+.2f} to {high:+.2f} %", str(estimate["launches"]),
            f"{100 * estimate['launch_sd']:.2f} %",
        )  # fmt: skip
    cells = (
        f"+{100 * INJECTED:g} %" if head == "slower" else "same", one["verdict"], *measured,
        f"{document['wall_s']:.1f} s", str(document["exit_code"]),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _step_source(stage: Stage, extra: int) -> str:
    count, size = (2, 32) if stage.small else (128, 224)
    return _STEP.format(extra=extra, device=stage.device, count=count, size=size)


def _calibrated(stage: Stage) -> tuple[int, float]:
    """Return how many numbers to multiply so that a step takes a hundredth longer, and the seconds of a step.

    Both steps run by turns, since on a device near its power cap a step grows by less than what is added.
    """
    amount = 1 << (16 if stage.small else 26)
    for _ in range(2):
        bare_s, longer_s = _steps_s(stage, 1024), _steps_s(stage, amount)
        ratios = [statistics.median(longer_s()) / statistics.median(bare_s()) for _ in range(8)]
        share = statistics.median(ratios) - 1
        print(f"{amount:,} numbers add {100 * share:.2f} % to a step", flush=True)
        amount = int(amount * min(max(INJECTED / share, 0.1), 10.0)) if share > 0 else 2 * amount
    return amount, statistics.median(bare_s())


def _steps_s(stage: Stage, extra: int) -> Callable[[], Sequence[float]]:
    """Return what times ten calls of a step with an operation on so many numbers."""
    space: dict[str, Any] = {}
    exec(_step_source(stage, extra), space)  # noqa: S102 (the source of the benchmark itself)
    step = space["make_step"]()

    def timed() -> Sequence[float]:
        part = perfkit.timed("calibration", warmup=2)
        for _ in range(10):
            with part:
                step()
        values = part.device.device_s if part.device and part.device.device_s else part.seconds
        found = tuple(values)
        part.forget()
        return found

    return timed


def profile(stage: Stage) -> None:
    """Profile two training loops, and hold the parts of a step against torch.profiler's own sums."""
    stage.write(
        "| loop | step | sum of phases | ratio | device busy | in the trace | ratio |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    )
    texts = []
    for which in ("resnet", "transformer"):
        place = stage.out / "profiles" / which
        place.mkdir(parents=True, exist_ok=True)
        arguments = ["--device", stage.device, *(["--small"] if stage.small else [])]
        printed = stage.perfkit(
            *("profile", "targets.py", "--steps", "12" if stage.small else "40"),
            *("--out", str(place / f"{which}.stat"), "--json", str(place / f"{which}.profile.json")),
            *("--ledger", str(stage.ledger), "--", which, *arguments),
        )
        shown = stage.perfkit(
            "show", str(place / f"{which}.trace.json.gz"), "--json", str(place / f"{which}.trace.json")
        )
        texts += ["", f"## {which}", "", "```text", printed.strip(), "", shown.strip(), "```"]
        stage.write(_profile_row(which, place))
    stage.write("", "Ratios from 0.98 to 1.02 are aimed at.", *texts)


def _profile_row(which: str, place: Path) -> str:
    found = json.loads((place / f"{which}.profile.json").read_text())
    balance = found["balance"]
    steps = balance["step_s"][1:]
    phases = [sum(parts[1:]) for parts in (one["seconds"] for one in balance["phases"])]
    step_s, sum_s = statistics.fmean(steps), sum(phases) / len(steps)
    reading = json.loads((place / f"{which}.trace.json").read_text())
    (trace,) = (
        reading["profiles"] if "profiles" in reading else reading if isinstance(reading, list) else [reading]
    )
    count = (trace.get("steps") or {}).get("count") or 0
    mine = trace.get("device_busy_s")
    theirs = _busy_s(place / f"{which}.trace.json.gz")
    cells = (
        human_seconds(step_s), human_seconds(sum_s), _ratio(sum_s / step_s),
        human_seconds(mine / count if mine and count else None),
        human_seconds(theirs / count if theirs and count else None),
        _ratio(mine / theirs if mine and theirs else None),
    )  # fmt: skip
    return f"| {which} | {' | '.join(cells)} |"


def _busy_s(file: Path) -> float | None:
    """Return the seconds in which a trace's device ran anything from its first profiled step to its last."""
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    steps = [one for one in events if str(one.get("name", "")).startswith("ProfilerStep#") and "dur" in one]
    steps = [one for one in steps if one.get("cat") == "user_annotation"]
    if not steps:
        return None
    begin, end = min(one["ts"] for one in steps), max(one["ts"] + one["dur"] for one in steps)
    work = sorted(
        (max(one["ts"], begin), min(one["ts"] + one["dur"], end))
        for one in events
        if one.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"} and "dur" in one
    )
    busy, reached = 0.0, begin
    for first, last in work:
        busy += max(last - max(first, reached), 0.0)
        reached = max(reached, last)
    return busy * 1e-6


def precision(stage: Stage) -> None:
    """Run the experiment of this stage's name, and tabulate it as its authors did."""
    small = {
        "precision_images": ("device=cpu", "size=32", "batch_size=8", "steps=8", "workers=0"),
        "precision_small": (
            "device=cpu",
            "size=32",
            "batch_size=2",
            "steps=8",
            "workers=0",
            "model=resnet18",
        ),
        "precision_text": ("device=cpu", "batch_size=2", "length=16", "steps=8", "small=true"),
    }[stage.name]
    printed = stage.perfkit(
        *("experiment", "run", f"{stage.name}.toml", "--ledger", str(stage.ledger)),
        *("--budget", f"{max(stage.left_s - 8, 5):.0f}s"),
        *("--markdown", str(stage.out / f"{stage.name}-report.md")),
        *(itertools.chain.from_iterable(("--set", one) for one in small) if stage.small else ()),
        *(("--blocks", "2", "--factor", "precision=default,bf16") if stage.small else ()),
        expected=(0, 3),
    )
    stage.write("```text", printed.strip(), "```")


def tricks(stage: Stage) -> None:
    """Try the tricks on the ResNet loop, on the device."""
    budget = str(max(int(stage.left_s) - 15, 20))
    printed = stage.perfkit(
        *("tricks", "--apply-to", "targets:images", "--ledger", str(stage.ledger), "--budget", budget),
        *itertools.chain.from_iterable(
            ("--set", one)
            for one in (
                *(f"device={stage.device}", "steps=8" if stage.small else "steps=30"),
                *(("size=32", "batch_size=8", "workers=0") if stage.small else ("batch_size=64", "size=224")),
            )
        ),
        *itertools.chain.from_iterable(
            ("--only", one) for one in (("channels_last",) if stage.small else ("bf16_autocast",))
        ),
    )
    stage.write("```text", printed.strip(), "```")


def overhead(stage: Stage) -> None:
    """Measure what the clock of phases adds to a training step, in rounds with and without it by turns."""
    from perfkit.profiling.passes.balance import PhaseClock, choose_clock

    model = targets.resnet("resnet18", stage.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    count, size = (2, 32) if stage.small else (64, 224)
    images = torch.randn(count, 3, size, size, device=stage.device)
    steps = 2 if stage.small else 20

    def round_s(*, hooked: bool) -> float:
        phases = PhaseClock(choose_clock)
        begin: Callable[[str], object] = phases.begin if hooked else lambda _: None
        end: Callable[[], object] = phases.end if hooked else lambda: None
        part = perfkit.timed("gpu overhead, instrumented" if hooked else "gpu overhead, bare")
        with part:
            for _ in range(steps):
                if hooked:
                    phases.start_step()
                optimizer.zero_grad(set_to_none=True)
                begin("forward")
                loss = model(images).square().mean()
                end()
                begin("backward")
                loss.backward()
                end()
                begin("optimizer")
                optimizer.step()
                end()
                if hooked:
                    phases.end_step()
        if hooked:
            phases.balance()
        (seconds,) = part.seconds
        part.forget()
        return seconds

    round_s(hooked=True)
    ratios = []
    for number in range(4 if stage.small else 20):
        seconds = {
            hooked: round_s(hooked=hooked) for hooked in ((False, True) if number % 2 else (True, False))
        }
        ratios.append(seconds[True] / seconds[False])
    middle = statistics.median(ratios) - 1
    error = 2.8 * statistics.stdev(ratios) / len(ratios) ** 0.5
    stage.write(
        f"The instrumented step takes {100 * middle:+.2f} % (± {100 * error:.2f}, 99 %, {len(ratios)} paired"
        f" rounds of {steps} steps); at most 1 % is aimed at."
    )


def cold(stage: Stage) -> None:
    """Tabulate what first calls are made of, and after how many calls times are steady."""
    stage.write(
        "| call | first call | compiling | autotuning | calls until steady | typical call |",
        "| :--- | ---: | ---: | ---: | ---: | ---: |",
    )
    for name, call in _first_calls(stage).items():
        part = perfkit.timed(f"gpu cold start {name}", warmup="settle")
        for _ in range(5 if stage.small else 100):
            with part:
                call()
            if not part.not_warm:
                break
        first = part.cold_start
        seconds = (first.total_s, first.compiling_s, first.autotuning_s) if first else (None, None, None)
        steady = "not steady" if part.not_warm else str(part.warmup)
        typical = statistics.median(part.seconds) if part.seconds else None
        cells = (name, *map(human_seconds, seconds), steady, human_seconds(typical))
        stage.write(f"| {' | '.join(cells)} |")
        if part.seconds:
            part.file(stage.ledger)
        part.forget()


def _first_calls(stage: Stage) -> Mapping[str, Callable[[], object]]:
    """Return calls whose first ones differ: plain, tried by cuDNN, compiled, compiled with kernels tried."""
    from torch import nn

    width = 64 if stage.small else 2048
    inputs = torch.randn(width, width, device=stage.device)
    images = torch.randn(16, 16, 64, 64, device=stage.device)
    torch.backends.cudnn.benchmark = True
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()).to(stage.device) for _ in range(2)]
    how: list[dict[str, Any]] = (
        [{"backend": "aot_eager"}, {"backend": "eager"}]
        if stage.small
        else [{}, {"mode": "max-autotune-no-cudagraphs"}]
    )

    @torch.inference_mode()
    def infer() -> None:
        tuned(inputs)

    plain, tuned = (torch.compile(layer, **one) for layer, one in zip(layers, how, strict=True))
    convolution = nn.Conv2d(16, 32, 3).to(stage.device)
    return {
        "matmul": lambda: inputs @ inputs,
        "convolution, cudnn.benchmark": lambda: convolution(images),
        "torch.compile": lambda: plain(inputs).sum().backward(),
        "torch.compile, max-autotune": infer,
    }


def residency(stage: Stage) -> None:
    """Compare rounds beside the other side with those alone, and launches together with those by turns."""
    stage.write(
        "| benchmark | reserved | longer beside the other: base | head | sd of launches: beside | by turns |",
        "| :--- | ---: | ---: | ---: | ---: | ---: |",
    )
    suite = stage.out / "sides" / "base" / "test_step.py"
    if not suite.exists():
        gates(stage, pairs=0)
    with _suite(suite, stage.out / "staged") as launcher:
        (listed,) = launcher.survey(["head"]).values()
        print(f"collected, {stage.left_s:.0f} s left", flush=True)
        for node in listed.found:
            stage.write(_residency_of(node, launcher, launches=3 if stage.small else 6))
    stage.write("", "At most 0.5 % longer beside the other side is aimed at.")


@contextmanager
def _suite(suite: Path, place: Path) -> Iterator[Launcher]:
    place.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(suite.parent), str(HERE)])}
    with staged_launcher(suite, place, environment=environment, seed=1) as launcher:
        yield launcher


def _residency_of(node: str, launcher: Launcher, *, launches: int) -> str:
    plans: dict[str, LoopPlan] = {}
    rules = LaunchRules(launch_s=0.05, limit_s=lambda _: 120.0)
    spreads = []
    record = launcher.launch(next(schedule(seed=1)), [node], plans=plans, rules=rules)
    print(f"the first launch took {record.seconds} s", flush=True)
    timing = record.timings[node]
    reserved = sum(one.peak for held in timing.memory.values() for one in held)
    found = measure_presence(
        node, lambda side: launcher.start(side, nodes=[node]), plan=plans[node], limit_s=120.0
    )
    print(f"beside the other side: {found}", flush=True)
    for apart in (False, True):
        if apart:
            launcher.residents.alone[node] = "it is measured so here"
        slots = itertools.islice(schedule(seed=2), launches)
        made = [launcher.launch(slot, [node], plans=plans, rules=rules).timings[node] for slot in slots]
        spreads.append(statistics.stdev(location(one.base_s, one.head_s) for one in made))
    effects = [
        f"{100 * one.low:+.2f} to {100 * one.high:+.2f} %"
        for one in (found.effects.values() if found else ())
    ] or ["failed", "failed"]
    cells = (
        node.rpartition("::")[2], human_bytes(reserved), *effects, *(f"{100 * one:.2f} %" for one in spreads),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f} µs"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


STAGES: Mapping[str, Callable[[Stage], None]] = {
    "facts": facts,
    "operators": operators,
    "gates": gates,
    "profile": profile,
    "precision_images": precision,
    "precision_small": precision,
    "precision_text": precision,
    "tricks": tricks,
    "overhead": overhead,
    "cold": cold,
    "residency": residency,
    "more_gates": more_gates,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args(arguments)
    stage = Stage(
        name=asked.stage,
        out=asked.out,
        device="cpu" if asked.small else "cuda",
        end_s=time.monotonic() + asked.seconds,
    )
    STAGES[asked.stage](stage)


if __name__ == "__main__":
    main()
