"""`perfkit compare` on real repositories judges what the ledger has, and refuses what it lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_perfkit, run_pytest
from repositories import Repository, create_repository
from synthetic import ENVIRONMENT, MACHINE, build_row

from perfkit.agent.counters.model import Cause, Count, Counts
from perfkit.ledger.store import Ledger
from perfkit.model import Environment, Machine, Row, Source
from perfkit.model.counters import count_outcomes

SUITE = "import work\n\ndef test_work(benchmark):\n    benchmark(work.work)\n"
# A clock that counts the work: what a session reads depends on nothing else.
WORK = """
ticks = 0


def work():
    global ticks
    ticks += {units}


def clock():
    global ticks
    ticks += 1
    return ticks * 1e-6
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A repository with two commits, and a ledger beside it."""

    repository: Repository
    base: str
    head: str

    @property
    def ledger(self) -> Path:
        """Where its measurements are kept."""
        return self.repository.root.with_name("ledger")

    def file(self, *rows: Row) -> None:
        """Put rows in the ledger, a file per run."""
        runs: dict[str, list[Row]] = {}
        for row in rows:
            runs.setdefault(row.run_id, []).append(row)
        for run in runs.values():
            Ledger(self.ledger).append(run)

    def runs(self, sha: str, levels: Sequence[float], **options: Any) -> list[Row]:  # noqa: ANN401
        """Return rows of runs of a commit, one at each level in seconds and each at another hour."""
        label = options.pop("label", "run")
        return [
            build_row(level, level, sha=sha, run=f"{sha[:4]}{number}{label}", minute=60 * number, **options)
            for number, level in enumerate(levels)
        ]

    def repeat_over_hours(self) -> None:
        """Have each run of the ledger three times, in sessions some hours apart."""
        rows = list(Ledger(self.ledger).rows())
        shutil.rmtree(self.ledger)
        places = {run: place for place, run in enumerate(sorted({row.run_id for row in rows}))}
        self.file(
            *(
                replace(
                    row,
                    run_id=f"{row.run_id[:-1]}{session}",
                    recorded_at=row.recorded_at + timedelta(hours=4 * session + 2 * places[row.run_id]),
                )
                for session in range(3)
                for row in rows
            )
        )

    def compare(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Run the command as a person does; the report is empty where it wrote none."""
        command = ["compare", *(arguments or (self.base, self.head))]
        done = run_perfkit(*command, "--ledger", str(self.ledger), "--json", "-", cwd=self.repository.root)
        return done, json.loads(done.stdout) if done.stdout else {}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a repository whose second commit does three times the work."""
    root = tmp_path / "project"
    root.mkdir()
    repository = Repository(root, create_repository(root))
    settings = (
        "[tool.pytest.ini_options]\n"
        'addopts = ["--benchmark-max-time=0.02", "--benchmark-timer=work.clock", "-p", "no:cacheprovider"]\n'
    )
    files = {"pyproject.toml": settings, ".gitignore": "__pycache__/\n.benchmarks/\n"}
    base = repository.commit({**files, "test_speed.py": SUITE, "work.py": WORK.format(units=300)}, "Begin")
    # Of another size: Python takes bytecode for current where size and second of a source are the same.
    head = repository.commit({"work.py": WORK.format(units="+900")}, "Slow down")
    return Scene(repository=repository, base=base, head=head)


def test_sessions_at_two_commits_are_compared(scene: Scene) -> None:
    for sha in (scene.base, scene.head):
        scene.repository.git.git.checkout("--quiet", sha)
        options = ("--benchmark-autosave", f"--perfkit-ledger={scene.ledger}")
        run_pytest(*options, cwd=scene.repository.root).check_returncode()

    done, report = scene.compare("--margin", "20%", scene.base[:8], "HEAD")

    (found,) = report["comparisons"]
    assert (3, "INCONCLUSIVE", None) == (done.returncode, found["verdict"], found["estimate"]), done.stderr
    assert 1.5 < found["head_s"] / found["base_s"] < 6, "the numbers come first, then why they decide nothing"
    shown = " ".join(done.stderr.split())
    assert "nothing known yet" not in shown
    assert "base was measured in 1 session and head in 1" in shown
    assert f"perfkit backfill {scene.base[:10]} {scene.head[:10]}" in shown

    scene.repeat_over_hours()
    done, report = scene.compare("--margin", "20%", scene.base[:8], "HEAD")

    (found,) = report["comparisons"]
    assert (1, "REGRESSED") == (done.returncode, found["verdict"]), done.stderr
    assert pytest.approx(3, rel=0.01) == found["estimate"]["ratio"]
    assert "not interleaved" in done.stderr
    assert "exit code 1" in " ".join(done.stderr.split())


def test_what_a_gate_found_to_be_the_same_code_needs_no_times(scene: Scene) -> None:
    row = build_row(sha=scene.head, name="b.py::test_same", source="gate", side="head")
    scene.file(replace(row, outcome=replace(row.outcome, same_as=scene.base)))

    for commits in ((scene.base, scene.head), (scene.head, scene.base)):
        done, report = scene.compare(*commits)
        assert (0, ["SAME CODE"]) == (done.returncode, [one["verdict"] for one in report["comparisons"]])

    scene.file(*scene.runs(scene.base, [0.01], name="b.py::test_other"))
    assert 4 == scene.compare()[0].returncode


def test_each_finding_has_its_verdict(scene: Scene) -> None:
    levels = [0.0100, 0.0101, 0.0102, 0.0099]
    for sha in (scene.base, scene.head):
        scene.file(*scene.runs(sha, levels, name="b.py::test_same", label="same"))
        version = "v1" if sha == scene.base else "v2"
        scene.file(*scene.runs(sha, levels, name="b.py::test_changed", version=version, label="changed"))
    scene.file(*scene.runs(scene.base, levels, name="b.py::test_gone", label="gone"))
    scene.file(*scene.runs(scene.head, levels, name="b.py::test_new", label="new"))
    scene.file(*scene.runs(scene.base, levels, name="b.py::test_broken", label="fine"))
    scene.file(
        build_row(
            sha=scene.head, name="b.py::test_broken", run="broken", status="error", message="ValueError: no"
        )
    )

    done, report = scene.compare(scene.base, scene.head, "--margin", "10%")

    verdicts = {one["benchmark"]["name"][6:]: one["verdict"] for one in report["comparisons"]}
    assert {
        "test_same": "UNCHANGED",
        "test_changed": "CHANGED",
        "test_gone": "MISSING",
        "test_new": "NEW",
        "test_broken": "FAILED",
    } == verdicts
    assert 4 == done.returncode
    assert "ValueError: no" in done.stderr


@pytest.mark.parametrize("source", ["calibrate", "tricks"])
def test_code_that_was_changed_on_purpose_is_not_compared(scene: Scene, source: Source) -> None:
    levels = [0.0100, 0.0101, 0.0102, 0.0099]
    for sha in (scene.base, scene.head):
        scene.file(*scene.runs(sha, levels))
    scene.file(*scene.runs(scene.head, [0.5] * 4, source=source, label=source))

    done, report = scene.compare(scene.base, scene.head, "--margin", "10%")

    assert 0 == done.returncode, done.stderr
    assert ["UNCHANGED"] == [one["verdict"] for one in report["comparisons"]]


def test_dirty_and_foreign_runs_are_left_out_and_reported(scene: Scene) -> None:
    levels = [0.0100, 0.0101, 0.0102, 0.0099]
    elsewhere = replace(MACHINE, machine_id="m2")
    for sha in (scene.base, scene.head):
        scene.file(*scene.runs(sha, levels))
    scene.file(*scene.runs(scene.head, [0.5], dirty=True, label="dirty"))
    scene.file(*scene.runs(scene.head, [0.7, 0.7], machine=elsewhere, label="far"))

    done, report = scene.compare(scene.base, scene.head, "--margin", "10%")

    assert 0 == done.returncode, done.stderr
    assert [
        "left out, measured with uncommitted changes: 1 run",
        "left out, measured on another machine or in another environment: 2 runs",
    ] == report["notes"]


def test_a_rule_of_the_configuration_holds(scene: Scene) -> None:
    rule = '[[tool.perfkit.rules]]\nmatch = "*test_a"\ngate = false\n'
    (scene.repository.root / "pyproject.toml").write_text(rule)
    for sha, level in ((scene.base, 0.01), (scene.head, 0.05)):
        scene.file(*scene.runs(sha, [level, level * 1.01, level * 0.99]))

    done, report = scene.compare()

    (found,) = report["comparisons"]
    assert ("REGRESSED", False, 4) == (found["verdict"], found["gating"], done.returncode)


@pytest.mark.parametrize("part", ["machine", "environment"])
def test_times_of_two_places_are_refused(scene: Scene, part: str) -> None:
    place: dict[str, Any] = {"machine": replace(MACHINE, machine_id="m2")}
    if part == "environment":
        place = {"environment": replace(ENVIRONMENT, env_id="e2")}
    scene.file(*scene.runs(scene.base, [0.01, 0.01]), *scene.runs(scene.head, [0.01, 0.01], **place))

    done, report = scene.compare()

    assert (4, {}) == (done.returncode, report)
    assert f"not measured on one {part}" in done.stderr
    assert "perfkit backfill" in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())


def test_a_commit_without_times_is_named(scene: Scene) -> None:
    scene.file(*scene.runs(scene.base, [0.01, 0.01]))

    done, _ = scene.compare()

    assert 4 == done.returncode
    assert f'has no times of {scene.head[:10]} "Slow down"' in done.stderr


def _counted(*operators: int, sha: str, run: str, **options: Any) -> list[Row]:  # noqa: ANN401
    """Return rows that counted a training step: its operators, and the reason why nothing else."""
    causes = (Cause(what="aten::mm", place="net.py:3", amount=operators[-1], text="x @ w"),)
    count = Count(metric="operators", unit="1", values=tuple(map(float, operators)), causes=causes)
    row = build_row(sha=sha, run=run, name="profile:train", **options)
    return [
        replace(row, outcome=outcome)
        for outcome in count_outcomes(
            row.outcome.benchmark, Counts(counts=(count,), not_counted={"flops": "no formula"})
        )
    ]


def test_counts_are_compared_from_any_machine(scene: Scene) -> None:
    elsewhere = Machine(machine_id="another", facts=MACHINE.facts)
    scene.file(*_counted(100, 100, sha=scene.base, run="base"))
    scene.file(*_counted(90, 90, sha=scene.head, run="old"))
    scene.file(*_counted(300, 300, sha=scene.head, run="head", machine=elsewhere, minute=5))

    done, report = scene.compare()

    grown, unknown = report["exact"]
    assert (1, [], "REGRESSED") == (done.returncode, report["comparisons"], grown["verdict"])
    assert (100, 300) == (grown["base"], grown["head"])
    assert [("aten::mm", "net.py:3", 100, 300)] == [
        (one["what"], one["place"], one["base"], one["head"]) for one in grown["causes"]
    ]
    assert "not counted: no formula" == unknown["message"]


def test_counts_under_another_torch_are_not_compared(scene: Scene) -> None:
    other = Environment(env_id="e2", facts={**ENVIRONMENT.facts, "torch": "2.0.0"})
    scene.file(*_counted(100, 100, sha=scene.base, run="base"))
    scene.file(*_counted(300, 300, sha=scene.head, run="head", environment=other))

    done, report = scene.compare()

    assert (4, {}) == (done.returncode, report)
    assert "has no times" in done.stderr
