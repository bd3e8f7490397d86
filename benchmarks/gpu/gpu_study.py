"""Measures what docs/gpu.md leaves open, on a CUDA device: ``gpu_study.py [--part PART] [--rehearse]``.

Each part adds its rows to the ledger in ``--out`` and writes a table there. A part whose table is there is
not measured again. With ``--rehearse`` small sizes run on the CPU: that shows that the study works, and none
of its figures holds for a device.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import perfkit
from perfkit.compare.sides import staged_launcher
from perfkit.measure.lockstep.launch import LaunchRules
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.measure.lockstep.pace import Pace
from perfkit.measure.lockstep.residency import measure_presence
from perfkit.measure.lockstep.schedule import schedule
from perfkit.stats.location import location
from perfkit.units import human_bytes, human_seconds

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NO_DEVICE = (
    "no CUDA device that torch can use was found: run `make gpu` where there is one; nothing was measured"
)
_EXIT_NO_DEVICE = 2
# The figures that are to be reached; docs/gpu.md names them.
GATES, PLANT, FOUND, SECONDS_PER_BENCHMARK = 20, "1%", 19, 30
MOST_OVERHEAD, MOST_DEVIATION = 0.01, 0.02
BENCHMARKS = 6
_EXPERIMENTS = ("precision_images", "precision_text_train", "precision_text_infer")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Where it is measured, how much of it, and where rows and tables go."""

    device: str
    out: Path
    size: int
    calls: int

    @property
    def ledger(self) -> Path:
        """The study's own ledger."""
        return self.out / "ledger"

    def write(self, part: str, lines: Sequence[str]) -> None:
        """Write a part's table beside the ledger, and print it."""
        self.out.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines) + "\n"
        (self.out / f"{part}.md").write_text(text)
        print(text, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for and not there yet, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="this part only (repeatable)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of tables and ledger")
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU")
    asked = parser.parse_args(arguments)
    import torch

    if not asked.rehearse and not torch.cuda.is_available():
        print(NO_DEVICE, file=sys.stderr)
        return _EXIT_NO_DEVICE
    scene = (
        Scene(device="cpu", out=asked.out, size=32, calls=5)
        if asked.rehearse
        else Scene(device="cuda", out=asked.out, size=2048, calls=200)
    )
    for part in asked.part or PARTS:
        if (scene.out / f"{part}.md").exists():
            print(f"{part}: measured already, see {scene.out / part}.md; remove it to measure again")
            continue
        PARTS[part](scene)
    return 0


def operators(device: str, size: int) -> Mapping[str, Callable[[], object]]:
    """Return ten operators of different kinds, each with its inputs on a device."""
    import torch
    from torch.nn import functional

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device)

    square, other = made(size, size), made(size, size)
    images, kernel = made(16, 16, size // 8 + 3, size // 8 + 3), made(32, 16, 3, 3)
    heads = made(2, 8, size // 4, 64)
    rows = torch.randint(0, size, (size,), device=device)
    return {
        "matmul": lambda: square @ other,
        "add": lambda: square + other,
        "gelu": lambda: functional.gelu(square),
        "sum": square.sum,
        "softmax": lambda: square.softmax(dim=-1),
        "layer_norm": lambda: functional.layer_norm(square, (size,)),
        "cumsum": lambda: square.cumsum(dim=-1),
        "conv2d": lambda: functional.conv2d(images, kernel),
        "index_select": lambda: square.index_select(0, rows),
        "attention": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
    }


def measure_operators(scene: Scene) -> None:
    """Compare perfkit's times of ten operators with triton's and torch's own timers."""
    lines = [
        "| operator | perfkit, L2 flushed | do_bench | ratio | perfkit, in a row | torch Timer | ratio |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    worst: list[float] = []
    for name, call in operators(scene.device, scene.size).items():
        for _ in range(scene.calls):
            call()
        flushed = _flushed_s(f"gpu operator {name}", call, scene)
        in_a_row = _in_a_row_s(f"gpu operator {name} in a row", call, scene)
        triton_s, torch_s = _triton_s(call), _torch_s(call, scene)
        ratios = [
            mine / theirs if theirs else None for mine, theirs in ((flushed, triton_s), (in_a_row, torch_s))
        ]
        worst += [abs(ratio - 1) for ratio in ratios if ratio is not None]
        cells = (
            _us(flushed), _us(triton_s), _ratio(ratios[0]), _us(in_a_row), _us(torch_s), _ratio(ratios[1]),
        )  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Largest deviation {100 * max(worst):.1f} %, at most {100 * MOST_DEVIATION:g} % is aimed at.",
    ]
    scene.write("operators", lines)


def _flushed_s(name: str, call: Callable[[], object], scene: Scene) -> float:
    part = perfkit.timed(name, flush_l2=True)
    for _ in range(scene.calls):
        with part:
            call()
    return _filed(part, scene)


def _in_a_row_s(name: str, call: Callable[[], object], scene: Scene) -> float:
    part = perfkit.timed(name)
    for _ in range(9):
        with part:
            for _ in range(scene.calls):
                call()
    return _filed(part, scene) / scene.calls


def _filed(part: perfkit.timed, scene: Scene) -> float:
    """File a part's times and return the median of the device's, or of all where there is no device."""
    values = part.device.device_s if part.device and part.device.device_s else part.seconds
    median = statistics.median(values)
    part.file(scene.ledger)
    return median


def _triton_s(call: Callable[[], object]) -> float | None:
    """Return what triton measures, None where it is not installed or there is no device for it."""
    try:
        from triton.testing import do_bench  # type: ignore[import-not-found]

        return float(do_bench(call, return_mode="median")) * 1e-3
    except (ImportError, RuntimeError, AssertionError):
        return None


def _torch_s(call: Callable[[], object], scene: Scene) -> float:
    from torch.utils.benchmark import Timer

    return float(
        Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=scene.calls / 1000).median
    )


def measure_overhead(scene: Scene) -> None:
    """Measure what the clock of phases adds to a training step, in rounds with and without it by turns."""
    step, steps = _training_step(scene), max(scene.calls // 4, 2)
    ratios = []
    for number in range(2 * 20 if scene.device != "cpu" else 4):
        seconds = {}
        for hooked in (False, True) if number % 2 else (True, False):
            seconds[hooked] = _round_s(step, steps, hooked=hooked)
        ratios.append(seconds[True] / seconds[False])
    middle = statistics.median(ratios) - 1
    low, high = (sorted(ratios)[place] - 1 for place in (len(ratios) // 4, -1 - len(ratios) // 4))
    told = (
        f"The instrumented step takes {100 * middle:+.2f} % (half of {len(ratios)} paired rounds between"
        f" {100 * low:+.2f} and {100 * high:+.2f} %); at most {100 * MOST_OVERHEAD:g} % is aimed at."
    )
    scene.write("overhead", [told])


def _training_step(scene: Scene) -> Callable[[Callable[[str], object], Callable[[], object]], None]:
    import torch
    from torch import nn

    width = scene.size
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(4))).to(scene.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, width, device=scene.device)

    def step(begin: Callable[[str], object], end: Callable[[], object]) -> None:
        optimizer.zero_grad(set_to_none=True)
        begin("forward")
        loss = model(inputs).square().mean()
        end()
        begin("backward")
        loss.backward()
        end()
        begin("optimizer")
        optimizer.step()
        end()

    return step


def _round_s(step: Callable[..., None], steps: int, *, hooked: bool) -> float:
    import torch

    from perfkit.profiling.balance.clock import PhaseClock, choose_clock

    phases = PhaseClock(choose_clock)
    part = perfkit.timed("gpu overhead, instrumented" if hooked else "gpu overhead, bare")
    with part:
        for _ in range(steps):
            if hooked:
                phases.start_step()
                step(phases.begin, phases.end)
                phases.end_step()
            else:
                step(lambda _: None, lambda: None)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    if hooked:
        phases.balance()
    (seconds,) = part.seconds
    part.forget()
    return seconds


def measure_gates(scene: Scene) -> None:
    """Gate the suite of this folder against itself, and with a slowdown planted."""
    few = scene.device == "cpu"
    command = [
        # The project's own gate selects other benchmarks.
        *("calibrate", "--benchmarks", str((HERE / "gpu_suite.py").relative_to(ROOT)), "--select", "test_"),
        *("--gates", "1" if few else str(GATES), "--plant", PLANT, "--margin", "0.5%"),
        *("--budget", str(60 if few else SECONDS_PER_BENCHMARK * BENCHMARKS)),
        *("--ledger", str(scene.ledger), "--repo", str(ROOT)),
    ]
    begun = time.monotonic()
    told = _perfkit(command)
    minutes = (time.monotonic() - begun) / 60
    aims = (
        f"Aimed at: no gate of {GATES} wrong, the plant found in {FOUND} of {GATES}; took {minutes:.0f} min."
    )
    scene.write("gates", ["```text", told.strip(), "```", "", aims])


def measure_residency(scene: Scene) -> None:
    """Compare rounds of each benchmark beside the other side with those alone, and launches by turns."""
    few = scene.device == "cpu"
    lines = [
        "| benchmark | reserved | longer beside the other: base | head | sd of launches: beside | apart |",
        "| :--- | ---: | ---: | ---: | ---: | ---: |",
    ]
    with tempfile.TemporaryDirectory() as place, _suite(Path(place)) as launcher:
        (listed,) = launcher.survey(["head"]).values()
        nodes = list(listed.found)[: 1 if few else None]
        lines += [_residency_of(node, launcher, launches=3 if few else 20) for node in nodes]
    aims = (
        "Aimed at: no benchmark whose rounds beside the other side differ by more than 0.5 %. Intervals are"
        " of a process each; deviations are of the log ratio of a launch."
    )
    scene.write("residency", [*lines, "", aims])


@contextmanager
def _suite(place: Path) -> Iterator[Launcher]:
    with staged_launcher(HERE / "gpu_suite.py", place, environment=os.environ, seed=1) as launcher:
        yield launcher


def _residency_of(node: str, launcher: Launcher, *, launches: int) -> str:
    paces: dict[str, Pace] = {}
    rules = LaunchRules(launch_s=0.05, limit_s=lambda _: 120.0)
    spreads = []
    record = launcher.launch(next(schedule(seed=1)), [node], paces=paces, rules=rules)
    timing = record.timings[node]
    reserved = sum(one.peak for held in timing.memory.values() for one in held)
    found = measure_presence(
        node, lambda side: launcher.start(side, nodes=[node]), pace=paces[node], limit_s=120.0
    )
    for apart in (False, True):
        if apart:
            launcher.residents.alone[node] = "it is measured so here"
        slots = itertools.islice(schedule(seed=2), launches)
        made = [launcher.launch(slot, [node], paces=paces, rules=rules).timings[node] for slot in slots]
        spreads.append(statistics.stdev(location(one.base_s, one.head_s) for one in made))
    effects = [
        f"{100 * one.low:+.2f} to {100 * one.high:+.2f} %"
        for one in (found.effects.values() if found else ())
    ] or ["failed", "failed"]
    cells = (
        node.rpartition("::")[2], human_bytes(reserved), *effects, *(f"{100 * one:.2f} %" for one in spreads),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def measure_cold_start(scene: Scene) -> None:
    """Tell what first calls are made of, and after how many calls times have settled."""
    lines = [
        "| call | first call | compiling | autotuning | calls until settled | typical call |",
        "| :--- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, call in _first_calls(scene).items():
        part = perfkit.timed(f"gpu cold start {name}", warmup="settle")
        for _ in range(scene.calls):
            with part:
                call()
            if not part.unsettled:
                break
        cold = part.cold_start
        seconds = (cold.total_s, cold.compiling_s, cold.autotuning_s) if cold else (None, None, None)
        settled = "not settled" if part.unsettled else str(part.warmup)
        typical = statistics.median(part.seconds) if part.seconds else None
        cells = (name, *map(human_seconds, seconds), settled, human_seconds(typical))
        lines.append(f"| {' | '.join(cells)} |")
        if part.seconds:
            part.file(scene.ledger)
        part.forget()
    scene.write("cold", lines)


def _first_calls(scene: Scene) -> Mapping[str, Callable[[], object]]:
    """Return calls whose first ones differ: plain, tried by cuDNN, compiled, compiled with kernels tried."""
    import torch
    from torch import nn

    few = scene.device == "cpu"
    width = scene.size
    inputs = torch.randn(width, width, device=scene.device)
    images = torch.randn(16, 16, 64, 64, device=scene.device)
    torch.backends.cudnn.benchmark = True
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()).to(scene.device) for _ in range(2)]
    how: list[dict[str, Any]] = (
        [{"backend": "aot_eager"}, {"backend": "eager"}]
        if few
        else [{}, {"mode": "max-autotune-no-cudagraphs"}]
    )
    plain, tuned = (torch.compile(layer, **one) for layer, one in zip(layers, how, strict=True))
    convolution = nn.Conv2d(16, 32, 3).to(scene.device)
    return {
        "matmul": lambda: inputs @ inputs,
        "convolution, cudnn.benchmark": lambda: convolution(images),
        "torch.compile": lambda: plain(inputs).sum().backward(),
        "torch.compile, max-autotune": lambda: tuned(inputs).sum().backward(),
    }


def measure_precision(scene: Scene) -> None:
    """Run the three experiments on mixed precision, at the size that is trained with."""
    lines = []
    for name in _EXPERIMENTS:
        small = _SMALL[name] if scene.device == "cpu" else ()
        command = [
            *("experiment", "run", str(HERE / f"{name}.toml"), "--ledger", str(scene.ledger)),
            *itertools.chain.from_iterable(("--set", one) for one in small),
            *(("--blocks", "2", "--factor", "precision=default,bf16") if small else ()),
        ]
        lines += [f"## {name}", "", "```text", _perfkit(command).strip(), "```", ""]
    scene.write("precision", lines)


_SMALL: Mapping[str, tuple[str, ...]] = {
    "precision_images": (
        *("device=cpu", "image_size=16", "batch_size=8", "batches=6", "epochs=1", "workers=0"),
    ),
    **dict.fromkeys(
        ("precision_text_train", "precision_text_infer"),
        ("device=cpu", "batch_size=4", "max_length=16", "hidden_size=16", "layers=1", "heads=2", "workers=0"),
    ),
}


def _perfkit(arguments: Sequence[str]) -> str:
    """Run a command of perfkit and return what it printed; its own verdicts are no failure of the study."""
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode in {2, 70, 130}:
        raise SystemExit(f"perfkit {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f} µs"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


PARTS: Mapping[str, Callable[[Scene], None]] = {
    "operators": measure_operators,
    "overhead": measure_overhead,
    "residency": measure_residency,
    "cold": measure_cold_start,
    "gates": measure_gates,
    "precision": measure_precision,
}


if __name__ == "__main__":
    sys.exit(main())
