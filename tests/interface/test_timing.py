"""``perfkit.timed`` times parts of a program and files them, in real processes and repositories."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_commands import run
from forked_scripts import run_script
from repositories import Repository

import perfkit
from perfkit.agent import clock as cold_start
from perfkit.agent.clock import CompileTimes
from perfkit.errors import NotMeasuredError, RepositoryError, UsageError
from perfkit.interface import timing
from perfkit.ledger.store import Ledger
from perfkit.model import Row

PROGRAM = """
import perfkit

step = perfkit.timed("step", warmup=1)

@perfkit.timed("square")
def square(number):
    return number * number

for number in range(4):
    with step:
        square(number)
try:
    with step:
        raise ValueError("this is not counted")
except ValueError:
    pass
"""


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Path:
    repository.commit({"pyproject.toml": "", "program.py": PROGRAM})
    monkeypatch.chdir(repository.root)
    return repository.root


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each reading of the clock be a second after the one before."""
    seconds = itertools.count()
    monkeypatch.setattr(timing, "_read_clock", lambda: float(next(seconds)))


def _rows(place: Path) -> list[Row]:
    return sorted(Ledger(place).rows(), key=lambda row: (row.outcome.benchmark.name, row.placement.launch))


def _run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return run_script(program, cwd=folder)


def test_a_program_files_its_times_when_it_ends(project: Path) -> None:
    done = run([sys.executable, "program.py"], cwd=project)

    square, step = _rows(project / "benchmarks/ledger")
    assert 0 == done.returncode
    assert ("timed:square", "timed:step") == (square.outcome.benchmark.name, step.outcome.benchmark.name)
    assert (4, 3) == (len(square.outcome.values), len(step.outcome.values))
    assert (0, 1) == (square.outcome.warmup, step.outcome.warmup)
    assert {"timed"} == {square.source, step.source}
    assert square.run_id == step.run_id
    assert f"-> run {step.run_id[-8:]} of the ledger" in done.stderr

    # The version of a function follows its source.
    (project / "program.py").write_text(PROGRAM.replace("number * number", "number**2"))
    run([sys.executable, "program.py"], cwd=project).check_returncode()

    versions = {
        (one.outcome.benchmark.name, one.outcome.benchmark.version)
        for one in _rows(project / "benchmarks/ledger")
    }
    assert ["timed:square", "timed:square", "timed:step"] == sorted(name for name, _ in versions)


@pytest.mark.usefixtures("clock")
def test_times_are_read_at_both_ends(project: Path) -> None:
    part = perfkit.timed("part")
    with part:
        pass
    with part, part:
        pass

    assert (1.0, 1.0, 3.0) == part.seconds
    assert part.mean == pytest.approx(5 / 3)
    assert part.sd == pytest.approx(1.1547, abs=1e-4)
    run_id = part.file(project / "other")
    (row,) = _rows(project / "other")
    assert (run_id, (1.0, 1.0, 3.0)) == (row.run_id, row.outcome.values)
    assert part.mean is None
    assert '<perfkit.timed "part": nothing yet>' == repr(part)


def test_a_part_that_a_loop_makes_in_each_turn_is_one_row(project: Path) -> None:
    loop = "for _ in range(400):\n    with perfkit.timed('{0}', warmup={0!r}):\n        sum(range(1000))\n"
    loops = "".join(loop.format(warmup) for warmup in ("settle", 0, 2)).replace("timed('", "timed('step ")

    done = _run(project, f"import perfkit\n{loops}with perfkit.timed('after'):\n    pass\n")

    found = {
        row.outcome.benchmark.name: (len(row.outcome.values), row.outcome.warmup)
        for row in _rows(project / "benchmarks/ledger")
        if row.outcome.metric.name == "time"
    }
    kept, apart = found.pop("timed:step settle")
    assert {"timed:step 0": (400, 0), "timed:step 2": (398, 2), "timed:after": (1, 0)} == found
    assert 400 == kept + (apart or 0)
    # One line mentions each once.
    assert (1, 3) == (done.stderr.count("\n"), done.stderr.count('"step'))


def test_parts_that_are_entered_several_times_stay_apart(project: Path) -> None:
    block = """
for epoch in range(30):
    step = perfkit.timed("step", warmup=2)
    for _ in range(5):
        with step:
            pass
for turn in range(40):
    try:
        with perfkit.timed("steady", warmup="settle"):
            if not turn:
                raise ValueError
            sum(range(1000))
    except ValueError:
        pass
for turn in range(2):
    with perfkit.timed("rare"):
        pass
rare = [perfkit.timed("rare") for _ in range(30)]
"""

    _run(project, f"import perfkit\n{block}")

    rows = _rows(project / "benchmarks/ledger")
    steps = [row.outcome for row in rows if row.outcome.benchmark.name == "timed:step"]
    assert [(3, 2)] * 30 == [(len(one.values), one.warmup) for one in steps]
    rare = [row.placement.launch for row in rows if row.outcome.benchmark.name == "timed:rare"]
    assert [0, 1] == rare
    metrics = [row.outcome.metric.name for row in rows if row.outcome.benchmark.name == "timed:steady"]
    assert ["cold start", "time"] == sorted(metrics)


COROUTINES = """
import asyncio, perfkit

@perfkit.timed("fetch")
async def fetch(event, others):
    for other in others:
        other.set()
    await event.wait()
    return "fetched"

@perfkit.timed("fails")
async def fails():
    raise ValueError

async def main():
    first, second = asyncio.Event(), asyncio.Event()
    print(*await asyncio.gather(fetch(first, []), fetch(second, [first, second])))
    try:
        await fails()
    except ValueError:
        print(asyncio.iscoroutinefunction(fetch))

readings = iter([0.0, 1.0, 11.0, 111.0])
from perfkit.interface import timing
timing._read_clock = lambda: next(readings, 0.0)
asyncio.run(main())
"""


def test_a_coroutine_function_is_timed_until_it_has_been_awaited(project: Path) -> None:
    done = _run(project, COROUTINES)

    assert "fetched fetched\nTrue\n" == done.stdout, done.stderr
    (row,) = _rows(project / "benchmarks/ledger")
    assert "timed:fetch" == row.outcome.benchmark.name
    # The one that began second ends first.
    assert (11.0 - 1.0, 111.0 - 0.0) == row.outcome.values


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_that_makes_a_generator_is_refused(kind: str) -> None:
    scope: dict[str, Callable[[], object]] = {}
    exec(f"{kind} batches():\n    yield 1\n", scope)  # noqa: S102 (both kinds of a text of this test)

    with pytest.raises(
        UsageError, match=r'batches makes a generator, .* write `with perfkit.timed."load".:` '
    ):
        perfkit.timed("load")(scope["batches"])
    with pytest.raises(UsageError, match=r"partial\(.*\) makes a generator"):
        perfkit.timed("load")(functools.partial(scope["batches"]))


def test_a_process_that_is_forked_files_nothing(project: Path) -> None:
    program = """
import os, sys
import perfkit

part = perfkit.timed("part")
with part:
    pass
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
"""
    _run(project, program)

    assert 1 == len(_rows(project / "benchmarks/ledger"))


def test_nothing_is_filed_under_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = _run(tmp_path, "import perfkit\nwith perfkit.timed('part'):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    part = perfkit.timed("part")
    with part:
        pass

    assert 0 == done.returncode
    assert done.stderr.startswith("perfkit: the times of this program were not filed: ")
    assert 1 == done.stderr.count("\n")
    with pytest.raises(RepositoryError, match="in no git repository"):
        part.file()
    part.forget()


def test_a_part_states_what_it_needs(project: Path) -> None:
    with pytest.raises(UsageError, match="needs a name"):
        perfkit.timed(" ")
    with pytest.raises(UsageError, match="found -1"):
        perfkit.timed("part", warmup=-1)
    with pytest.raises(NotMeasuredError, match='nothing was timed as "part"'):
        perfkit.timed("part").file(project / "other")


ON_A_DEVICE = """
import sys
sys.path.insert(0, FOLDER)
from fake_devices import FakeAccelerator
from perfkit.agent import clock
from perfkit.interface import timing
import perfkit

device = FakeAccelerator()
timing._read_clock = device.read_clock
clock.BlockClock.__init__.__defaults__ = (lambda: device,)
step = perfkit.timed("step", warmup=1, flush_l2=True)
for _ in range(3):
    with step:
        device.launch(0.125, 0.5)
"""


def test_a_part_on_an_accelerator_files_the_times_of_the_device_too(project: Path) -> None:
    agent = Path(__file__).parent.parent / "runner"

    done = _run(project, ON_A_DEVICE.replace("FOLDER", repr(str(agent))))

    rows = {row.outcome.metric.name: row for row in _rows(project / "benchmarks/ledger")}
    assert 0 == done.returncode, done.stderr
    expected = {"time": (0.5,) * 2, "device time": (0.5,) * 2, "host time": (0.125,) * 2}
    assert {name: pytest.approx(values) for name, values in expected.items()} == {
        name: row.outcome.values for name, row in rows.items()
    }
    assert {("L2 flushed",)} == {row.policy.marks for row in rows.values()}


def test_steady_times_keep_the_cold_start_apart(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    durations = [90.0, 8.0, 8.0, *[1.0] * 20]
    readings = itertools.accumulate(itertools.chain.from_iterable((1.0, one) for one in durations))
    monkeypatch.setattr(timing, "_read_clock", lambda: next(readings))
    step = perfkit.timed("step", warmup="settle")
    for _ in durations:
        with step:
            pass
    assert (3, 90.0) == (step.warmup, step.cold_start_s)

    step.file(tmp_path / "rows")

    rows = {row.outcome.metric.name: row.outcome for row in _rows(tmp_path / "rows")}
    assert {"time": (1.0,) * 20, "cold start": (90.0,)} == {name: row.values for name, row in rows.items()}
    assert 3 == rows["time"].warmup
    assert project == Path.cwd()


def test_times_that_are_not_steady_are_reported_and_not_filed(project: Path) -> None:
    program = 'import perfkit\nwith perfkit.timed("step", warmup="settle"):\n    pass\n'

    done = _run(project, program)

    assert 'perfkit: "step" has not warmed up in 1 time, so nothing of it was filed\n' == done.stderr
    assert not (project / "benchmarks/ledger").exists()
    with pytest.raises(UsageError, match='at least 0, or "settle", found never'):
        perfkit.timed("step", warmup="never")  # type: ignore[arg-type]


def test_a_first_time_that_compiled_is_split(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = []
    for name, after in (("known", {"_compile.compile_inner": 60.0}), ("unknown", {"a_new_name": 60.0})):
        readings = iter((CompileTimes(seconds={}, graphs=0), CompileTimes(seconds=after, graphs=1)))
        monkeypatch.setattr(timing, "read_compile_times", lambda found=readings: next(found))
        monkeypatch.setattr(cold_start, "read_compile_times", lambda found=readings: next(found))
        durations = [90.0, *[1.0] * 20]
        clock = itertools.accumulate(itertools.chain.from_iterable((1.0, one) for one in durations))
        monkeypatch.setattr(timing, "_read_clock", lambda found=clock: next(found))
        parts.append(perfkit.timed(name, warmup="settle"))
        for _ in durations:
            with parts[-1]:
                pass
    for part in parts:
        part.file(tmp_path / "rows")

    rows = {
        (row.outcome.benchmark.name, row.outcome.metric.name): row
        for row in _rows(tmp_path / "rows")
        if row.outcome.metric.name != "time"
    }
    assert {
        ("timed:known", "cold start"): (90.0,),
        ("timed:known", "cold start: compiling"): (60.0,),
        ("timed:known", "cold start: autotuning"): (0.0,),
        ("timed:unknown", "cold start"): (90.0,),
    } == {key: row.outcome.values for key, row in rows.items()}
    assert () == rows["timed:known", "cold start"].policy.marks
    assert (cold_start.UNREPORTED,) == rows["timed:unknown", "cold start"].policy.marks
    assert project == Path.cwd()
