"""The parts of passes: targets, own code, texts of profiles, operators, samples, summaries, stragglers."""

from __future__ import annotations

import cProfile
import csv
import json
import pstats
import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import perfkit.config
from perfkit.config import Config, Project
from perfkit.errors import UsageError
from perfkit.model import (
    Balance,
    Commit,
    Environment,
    Machine,
    PassSummary,
    PhaseSeconds,
    ProfileEntry,
    ProfileSummary,
)
from perfkit.model.readings import FORWARD, RANKS
from perfkit.profiling.passes import meter
from perfkit.profiling.passes.functions import filtered_text, full_text, portable, read_entries
from perfkit.profiling.passes.instruments import write_operators
from perfkit.profiling.passes.launch import find_straggler
from perfkit.profiling.passes.meter import Meter
from perfkit.profiling.passes.periods import batch_size
from perfkit.profiling.passes.samples import Sampler
from perfkit.profiling.passes.target_code import OwnCode, find_own_code
from perfkit.profiling.passes.targets import resolve_target
from perfkit.profiling.read.summary_file import encode_summary, load_summary, may_be_summary

HERE = Path(__file__).resolve()
ROOT = Path("/project")
OWN = OwnCode(root=HERE.parent, trees=(HERE.parent,))
SHARED_PROFILE = HERE.parents[2].parent / "shared" / "data" / "first_profile.stat"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a configured function and a configured script."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "fit.py").write_text("")
    targets = {"train": "demo.training:main", "fit": "scripts/fit.py"}
    return Project(root=tmp_path, config=Config(targets=targets))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("train", "demo.training:main"),
        ("fit", "scripts/fit.py"),
        ("fit.py", "scripts/fit.py"),
        ("demo.training:main", "demo.training:main"),
        ("demo:Trainer.run", "demo:Trainer.run"),
    ],
)
def test_a_target_is_a_configured_name_a_script_or_a_function(
    project: Project, name: str, place: str
) -> None:
    found = resolve_target(name, project, folder=project.root / "scripts")
    assert place.endswith(".py") == found.is_script
    assert (name, str(project.root / place) if found.is_script else place) == (found.name, found.place)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", 'unknown target "trian"; did you mean "train"'),
        ("zzz", r"known names: fit, train\."),
        ("demo.training", "package.module:function"),
        ("demo:main()", "unknown target"),
        ("missing.py", "no script"),
        ("train.py:main", 'did you mean "train:main"'),
        ("./src/demo/training.py::main", 'did you mean "demo.training:main"'),
        ("my nb.ipynb", r"is a notebook.*`jupyter nbconvert --to script 'my nb.ipynb'` and profile my nb.py"),
        ("", "unknown target"),
    ],
)
def test_any_other_target_is_one_line(project: Project, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve_target(name, project, folder=project.root)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"no names are configured.*\[tool\.perfkit\.targets\]"):
        resolve_target("train", Project(root=project.root, config=Config()), folder=project.root)


@pytest.mark.parametrize(
    ("file", "root", "owned"),
    [
        ("/project/src/demo/loss.py", ROOT, True),
        ("/elsewhere/demo/loss.py", ROOT, False),
        ("/project/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", ROOT, False),
        (json.__file__, Path("/"), False),
        ("~", ROOT, False),
    ],
)
def test_without_names_all_of_the_project_is_own(file: str, root: Path, *, owned: bool) -> None:
    assert owned == find_own_code((), root=root, script=None).owns(file)


def test_names_restrict_own_code(tmp_path: Path) -> None:
    (tmp_path / "src" / "demo_package").mkdir(parents=True)
    own = find_own_code(("demo_package",), root=tmp_path, script=None)
    assert own.owns(str(tmp_path / "src" / "demo_package" / "loss.py"))
    assert not own.owns(str(tmp_path / "setup.py"))
    script = Path("/elsewhere/train.py")
    assert find_own_code(("json",), root=ROOT, script=script).owns(str(script))
    assert find_own_code((), root=ROOT, script=script).owns("/elsewhere/model.py")
    ours = find_own_code(("perfkit",), root=ROOT, script=None)
    assert ours.owns(str(perfkit.config.__file__))
    assert not ours.owns(str(meter.__file__))


def own_work() -> float:
    """Call a function of this file and one of a library."""
    return sum(own_part(number) for number in range(20))


def own_part(number: int) -> float:
    return len(re.escape(str(number)))


@pytest.fixture(scope="module")
def stats() -> pstats.Stats:
    """Return the profile of some own and some library code."""
    profiler = cProfile.Profile()
    profiler.runcall(own_work)
    return pstats.Stats(profiler)


def totals(text: str) -> str:
    found = re.search(r"\d+ function calls.*in .* seconds", text)
    assert found is not None
    return found[0]


def test_a_cprofile_is_text_with_all_functions_or_ones_own(stats: pstats.Stats) -> None:
    full, filtered = full_text(stats, OWN), filtered_text(stats, OWN)

    assert "Ordered by: cumulative time" in full
    assert "builtins.len" in full
    assert full.index("(own_work)") < full.index("(own_part)")
    assert totals(full) == totals(filtered)
    rows = filtered.partition("ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n")[2]
    assert {HERE.name} == {row.split()[5].split(":")[0] for row in rows.splitlines()}


def test_entries_keep_calls_and_both_times(stats: pstats.Stats) -> None:
    entries = {entry.function: entry for entry in read_entries(stats, OWN)}
    assert (20, "own") == (entries["own_part"].calls, entries["own_part"].kind)
    assert "library" == entries["{built-in method builtins.sum}"].kind
    assert all(entry.cumulative_s >= entry.own_s for entry in entries.values())


def test_a_portable_profile_names_no_place_of_this_machine(stats: pstats.Stats, tmp_path: Path) -> None:
    portable(stats, OWN).dump_stats(tmp_path / "x.stat")
    saved = pstats.Stats(str(tmp_path / "x.stat"))

    assert str(HERE.parent).encode() not in (tmp_path / "x.stat").read_bytes()
    assert totals(full_text(stats, OWN)) == totals(full_text(saved, OWN))
    assert (HERE.name, own_part.__code__.co_firstlineno, "own_part") in vars(saved)["stats"]
    timing = (1, 2, 0.5, 1.0, {("/a/site-packages/x.py", 1, "g"): (1, 2, 0.5, 1.0)})
    copies = pstats.Stats()
    vars(copies)["stats"] = {(f"/{place}/site-packages/x.py", 1, "f"): timing for place in ("a", "b")}
    assert {("x.py", 1, "f"): (2, 4, 1.0, 2.0, {("x.py", 1, "g"): (2, 4, 1.0, 2.0)})} == vars(
        portable(copies, OWN)
    )["stats"]


@pytest.mark.skipif(not SHARED_PROFILE.is_file(), reason="the profile of another project is not at hand")
def test_the_profile_of_another_project_has_waits() -> None:
    own, stats = (
        OwnCode(root=Path("/content"), trees=(Path("/content/src"),)),
        pstats.Stats(str(SHARED_PROFILE)),
    )
    entries = {entry.function: entry for entry in read_entries(stats, own)}
    assert "wait" == entries["__next__"].kind == entries["{method 'acquire' of '_thread.lock' objects}"].kind
    assert 309.7 == pytest.approx(entries["__next__"].cumulative_s, abs=0.1)
    assert ("own", 80800) == (entries["distance_function"].kind, entries["distance_function"].calls)
    assert "in 328.638 seconds" in filtered_text(stats, own)


@dataclass
class Total:
    """The sum of one operator's events, in microseconds."""

    key: str
    count: int
    self_cpu_time_total: float
    cpu_time_total: float
    self_device_time_total: float = 0.0
    device_time_total: float = 0.0


def operators(tmp_path: Path, *totals: Total, steps: int) -> list[dict[str, str]]:
    write_operators(totals, tmp_path / "ops.csv", steps=steps)
    with (tmp_path / "ops.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_the_table_of_operators_is_in_seconds_and_per_step(tmp_path: Path) -> None:
    mm = Total("aten::mm", 6, 3000.0, 4500.0)
    (row,) = operators(tmp_path, mm, steps=3)
    assert ("aten::mm", "6", "2", "", "") == tuple(
        row[name] for name in ("operator", "calls", "calls_per_step", "self_device_s", "device_s")
    )
    assert [0.003, 0.0045, 0.001] == [
        float(row[name]) for name in ("self_cpu_s", "cpu_s", "self_cpu_s_per_step")
    ]
    (row,) = operators(tmp_path, mm, steps=0)
    assert ("", "") == (row["calls_per_step"], row["self_cpu_s_per_step"])
    step, add = Total("ProfilerStep*", 1, 99.0, 99.0), Total("aten::add", 1, 2.0, 2.0)
    rows = operators(tmp_path, step, add, Total("aten::mm", 1, 1.0, 1.0, 5.0, 5.0), steps=1)
    assert ["aten::mm", "aten::add"] == [row["operator"] for row in rows]


IMAGES = torch.zeros(7, 3)


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (IMAGES, 7),
        ((IMAGES, torch.zeros(9)), 7),
        ([IMAGES], 7),
        ({"names": ["a"], "images": IMAGES}, 7),
        ({"nested": ("text", [IMAGES])}, 7),
        (["a"] * 7, 7),
        (torch.tensor(1.0), None),
        (object(), None),
        (3, None),
    ],
)
def test_the_size_of_a_batch_is_that_of_its_first_tensor(batch: object, size: int | None) -> None:
    assert size == batch_size(batch)


@pytest.mark.parametrize(("given", "samples"), [(12, 12), (None, None), (True, None), ("12", None)])
def test_the_targets_own_count_of_samples_wins(given: object, samples: int | None) -> None:
    watch = Meter(limit=None, report=lambda _: False, loaders=True)
    assert samples == watch.finish("clean", result=SimpleNamespace(samples=given)).samples


SUMMARY = ProfileSummary(
    schema_version=1,
    name="first_profile",
    target="train",
    arguments=("--epochs", "1"),
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    commit=Commit(sha="a" * 40, time=datetime(2026, 1, 2, tzinfo=UTC), subject="Start", branch="main"),
    machine=Machine(machine_id="m1", facts={"cpu": "Test CPU"}),
    environment=Environment(env_id="e1", facts={"torch": "2.13.0"}),
    configuration={"steps": "all"},
    passes=(PassSummary(name="clean", total_s=1.5, step_s=(1.0, 0.25), samples=None),),
    entries=(
        ProfileEntry(file="a.py", line=1, function="f", calls=2, own_s=0.1, cumulative_s=0.2, kind="own"),
    ),
    artifacts=("first_profile.json",),
)
WHOLE = encode_summary(SUMMARY)


def test_a_summary_is_read_back_or_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(WHOLE)
    assert SUMMARY == load_summary(tmp_path / "x.json")
    for data, message in (
        (WHOLE[: len(WHOLE) // 2], r"x\.json is damaged or no saved profile"),
        (encode_summary(replace(SUMMARY, schema_version=99)), r"schema version 99.*up to 1"),
    ):
        (tmp_path / "x.json").write_bytes(data)
        with pytest.raises(UsageError, match=message):
            load_summary(tmp_path / "x.json")
    with pytest.raises(UsageError, match="cannot read"):
        load_summary(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("data", "may_be"),
    [
        (WHOLE, True),
        (WHOLE[:100], True),
        (b"1.", True),
        (b'{"$schema": "x", "profiles": []}', False),
        (b'{"schema": {}, "schema_version": 1}', False),
        (b"[1]", False),
        (None, True),
    ],
    ids=["profile", "half", "half a number", "speedscope", "bisect", "list", "missing"],
)
def test_other_documents_are_no_damaged_profiles(tmp_path: Path, data: bytes | None, *, may_be: bool) -> None:
    if data is not None:
        (tmp_path / "x.json").write_bytes(data)
    assert may_be == may_be_summary(tmp_path / "x.json")


def _balance(forward: list[float], together: list[float], residual: float = 0.0) -> Balance:
    phases = (
        PhaseSeconds(name=FORWARD, seconds=tuple(forward)),
        PhaseSeconds(name=RANKS, seconds=tuple(together)),
    )
    whole = tuple(a + b + residual for a, b in zip(forward, together, strict=True))
    return Balance(step_s=whole, phases=phases)


@pytest.mark.parametrize(
    "together",
    [[[0.0, 0.5, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0]], [[0.03] * 4, [0.0] * 4], [[0.0] * 4], [[], []], []],
    ids=["by turns", "by little", "one rank", "no steps", "no ranks"],
)
def test_no_straggler_is_invented(together: list[list[float]]) -> None:
    assert find_straggler([_balance([1.0] * len(times), times) for times in together]) is None


def test_a_loop_that_ends_in_an_if_is_sampled_on_its_lines() -> None:
    sampler = Sampler(OwnCode(root=Path(__file__).parent, packages=(Path(__file__),)))
    begun = time.perf_counter()
    sampler.start()
    turns = 0
    for number in range(5_000_000):
        if number % 1000 == 0:
            turns += 1
    sampler.stop()

    lines = {one.lines[0] for one in sampler.samples((begun, time.perf_counter())) if one.lines}

    assert lines
    assert all(line.text for line in lines)
