"""Histories of real repositories: where a trend steps, what made it, and what nobody would have seen."""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import git
import pytest
from repositories import Repository, create_repository
from synthetic import ENVIRONMENT, MACHINE, build_row

from perfkit.commands import history as jobs
from perfkit.commands.backfill import BackfillRequest, Choice, run_range_backfill
from perfkit.commands.history import (
    HistoryRequest,
    Stated,
    days_ago,
    history_exit_code,
    read_history,
    state_point,
)
from perfkit.config import load_project
from perfkit.errors import NotMeasuredError, RepositoryError, UsageError
from perfkit.features.site.series import series_of, state_of
from perfkit.ledger.store import Ledger
from perfkit.model import Environment, Metric, Row
from perfkit.model.comparisons import Policy
from perfkit.model.history import HistoryReport, State
from perfkit.model.policies import JudgedPolicy, PytestPolicy
from perfkit.report.history import history_verdict, point_sentences, rise_sentence

NAME = "benchmarks/bench_a.py::test_a"
OTHER = "benchmarks/bench_a.py::test_b"
SENTINEL = "benchmarks/bench_a.py::test_machine"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = BEGIN + timedelta(days=41)
BENCHMARKS = """
import pytest

def test_a(benchmark): ...
def test_b(benchmark): ...

@pytest.mark.perfkit(sentinel=True)
def test_machine(benchmark): ...
"""


@dataclass
class Scene:
    """A repository with forty commits, the last twenty of which differ from the first in ``model.py``."""

    repository: Repository
    shas: list[str]

    @property
    def ledger(self) -> Path:
        """Its ledger."""
        return self.repository.root / "benchmarks/ledger"

    def measure(
        self,
        seconds: Callable[[int], float],
        *,
        name: str = NAME,
        first: int = 0,
        left_out: Collection[int] = (),
        seed: int = 1,
        **facts: Any,  # noqa: ANN401 (what a row may have)
    ) -> None:
        """Record a run of three launches at each commit, a day apart, with one per cent of noise."""
        source = random.Random(seed)  # noqa: S311 (noise, not a secret)
        rows = []
        for number, sha in enumerate(self.shas[first:], start=first):
            if number in left_out:
                continue
            level = seconds(number) * (1 + source.gauss(0, 0.01))
            rows += [
                replace(
                    build_row(
                        *(level * (1 + 0.001 * round_) for round_ in range(3)),
                        name=name,
                        sha=sha,
                        run=f"{name[-4:]}-{number:04}-{seed:012}",
                        launch=launch,
                        **{key: fact(number) if callable(fact) else fact for key, fact in facts.items()},
                    ),
                    recorded_at=BEGIN + timedelta(days=number),
                )
                for launch in range(3)
            ]
        Ledger(self.ledger).append(rows)

    def run_same_code(self, *pairs: tuple[int, int]) -> None:
        """Record that a benchmark runs the same code at both commits of each pair, found now."""
        rows = [build_row(sha=self.shas[one], run=f"same-0000-{one:06}{other:06}") for one, other in pairs]
        same = [
            replace(
                row, recorded_at=NOW, outcome=replace(row.outcome, same_as=self.shas[other], ran="0" * 16)
            )
            for row, (_, other) in zip(rows, pairs, strict=True)
        ]
        Ledger(self.ledger).append(same)

    def measure_together(
        self,
        levels: dict[str, Callable[[int], float]],
        machine: float,
        speed: Callable[[int], float] | None = None,
        environment: Callable[[int], Environment] = lambda _: ENVIRONMENT,
    ) -> None:
        """Record a run of all these benchmarks at each commit, a day apart, on a machine that scatters so.

        In each run fixed work took ``speed`` ms.
        """
        source = random.Random(7)  # noqa: S311 (noise, not a secret)
        rows = []
        for number, sha in enumerate(self.shas):
            factor = 1 + source.gauss(0, machine)
            facts = {"python_loop_ms": f"{speed(number) * factor:.4g}"} if speed else {}
            place = replace(MACHINE, facts={**MACHINE.facts, **facts})
            for name, seconds in levels.items():
                level = seconds(number) * factor * (1 + source.gauss(0, 0.005))
                row = build_row(level, level, name=name, sha=sha, run=f"all-{number:012}")
                at = BEGIN + timedelta(days=number)
                rows.append(replace(row, machine=place, recorded_at=at, environment=environment(number)))
        Ledger(self.ledger).append(rows)

    def gate(self, ratio: float, *, seed: int = 0, noise: float = 0.002) -> None:
        """Record a gate of each of the first ten changes, a day apart."""
        rows: list[Row] = []
        for number in range(10):
            base, head = self.shas[number], self.shas[number + 1]
            rows += _gate(base, head, ratio, run=f"gate-{seed}-{number:010}", day=number, noise=noise)
        Ledger(self.ledger).append(rows)

    def state(self, subject: str, state: State, reason: str) -> Stated:
        """State something about a change point, a benchmark or a machine."""
        project = load_project(self.repository.root)
        return state_point(project=project, ledger=self.ledger, subject=subject, state=state, reason=reason)

    def read(self, **request: Any) -> HistoryReport:  # noqa: ANN401 (what a request may have)
        """Return the history of the ledger."""
        return read_history(load_project(self.repository.root), self.ledger, HistoryRequest(**request))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return the repository that each test has a copy of."""
    root = tmp_path_factory.mktemp("template")
    repository = Repository(root, create_repository(root))
    for number in range(40):
        files = {"model.py": f"N = {number}\n", "benchmarks/bench_a.py": BENCHMARKS}
        repository.commit(files, f"Change {number}")
    repository.git.git.gc("--quiet")
    return repository


@pytest.fixture
def scene(template: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return the repository, at a day when its newest run is one day old."""
    monkeypatch.setattr(jobs, "utc_now", lambda: NOW)
    root = tmp_path / "project"
    shutil.copytree(template.root, root)
    copy = git.Repo(root)
    return Scene(Repository(root, copy), copy.git.rev_list("--reverse", "HEAD").split())


def test_a_step_is_found_where_it_was_made_and_asks_for_nothing_once_accepted(scene: Scene) -> None:
    scene.measure(lambda number: 1.0 if number < 20 else 1.1)

    report = scene.read()

    (point,) = report.points
    assert (scene.shas[19], scene.shas[20], 1) == (point.last_before, point.first_after, point.commits)
    assert point.low < 1.1 < point.high
    assert "code" == point.cause
    assert point.worse
    assert 1.0 == pytest.approx(point.before.mean, rel=0.01)
    assert 1.1 == pytest.approx(point.after.mean, rel=0.01)
    assert 20 == point.before.runs
    assert "Change 20" == report.commits[point.first_after].subject
    assert () == report.silences
    assert 1 == history_exit_code(report)

    stated = scene.state(point.point_id[:5], "accepted", "Exact distances")

    report = scene.read()
    assert ("A Tester", point.point_id) == (stated.state.author, stated.state.subject)
    assert [("accepted", "Exact distances")] == [(one.state, one.reason) for one in report.points]
    assert 0 == history_exit_code(report)


def test_a_loss_that_a_later_commit_undid_asks_for_nothing(scene: Scene) -> None:
    scene.measure(lambda number: 1.3 if 10 <= number < 25 else 1.0)

    report = scene.read()

    assert [(10, True, False), (25, False, True)] == [(p.place, p.undone, p.undoes) for p in report.points]
    assert 0 == history_exit_code(report)
    assert history_verdict(report).startswith("Nothing to look at")


def test_without_a_step_nothing_asks_for_attention_on_any_branch(scene: Scene) -> None:
    scene.repository.git.create_head("old", scene.shas[9])
    scene.measure(lambda _: 1.0)

    report = scene.read()

    assert () == report.points
    assert 0.005 < report.noise[MACHINE.machine_id][NAME] < 0.02
    assert 0 == history_exit_code(report)
    assert scene.shas[:10] == list(scene.read(branch="old").trends[0].commits)
    with pytest.raises(RepositoryError, match='unknown commit "nowhere"'):
        scene.read(branch="nowhere")


def test_a_range_of_commits_is_reported_where_some_were_not_measured(scene: Scene) -> None:
    scene.shas = scene.shas[:18] + scene.shas[22:]
    scene.measure(lambda number: 1.0 if number < 18 else 1.2)

    (point,) = scene.read().points

    assert (scene.shas[17], scene.shas[18], 5) == (point.last_before, point.first_after, point.commits)


def test_commits_that_run_the_same_code_are_acquitted(scene: Scene) -> None:
    scene.measure(lambda number: 1.0 if number < 20 else 1.2, left_out=range(17, 23))
    scene.run_same_code((17, 16), (18, 17), (21, 22), (23, 22))

    report = scene.read()

    (point,) = report.points
    assert [scene.shas[number] for number in (19, 20, 21)] == list(point.suspects)
    assert [scene.shas[number] for number in (17, 18, 22, 23)] == list(point.acquitted)
    assert (3, "code") == (point.commits, point.cause)
    assert "Change 20" == report.commits[scene.shas[20]].subject
    same = {17: 16, 18: 16, 21: 23, 22: 23}
    assert {scene.shas[one]: scene.shas[other] for one, other in same.items()} == report.trends[0].same_code
    assert scene.shas[19][:10] in point_sentences(point)[0]

    scene.run_same_code((23, 16))

    report = scene.read()
    (point,) = report.points
    assert {scene.shas[23]: scene.shas[16]} == report.trends[0].repeated
    assert (0, (), "machine") == (point.commits, point.suspects, point.cause)


def test_pairs_of_other_benchmark_files_acquit_nothing(scene: Scene) -> None:
    scene.measure(lambda number: 1.0 if number < 20 else 1.2, policy=PytestPolicy(mode="", overlay="0" * 40))
    scene.run_same_code((20, 19))

    (point,) = scene.read().points

    assert (1, "code") == (point.commits, point.cause)


def test_another_torch_is_named_and_no_commit(scene: Scene) -> None:
    newer = Environment(env_id="e2", facts={**ENVIRONMENT.facts, "torch": "2.14.0"})
    scene.measure(
        lambda number: 1.0 if number < 20 else 1.1,
        environment=lambda number: ENVIRONMENT if number < 20 else newer,
    )

    report = scene.read()

    assert [("environment", "torch 2.13.0 -> 2.14.0")] == [(one.cause, one.detail) for one in report.points]
    search = f"perfkit bisect --base-with torch==2.13.0 --head-with torch==2.14.0 --benchmark {NAME}"
    assert [search] == [one.command for one in report.points]
    assert 0 == history_exit_code(report)


def test_environments_in_turns_are_trends_of_their_own(scene: Scene) -> None:
    newer = Environment(env_id="e2", facts={**ENVIRONMENT.facts, "python": "3.13"})
    scene.measure(
        lambda number: 1.0 + 0.1 * (number % 2),
        environment=lambda number: newer if number % 2 else ENVIRONMENT,
    )

    report = scene.read()

    assert [20, 20] == [len(trend) for trend in report.trends]
    assert () == report.points


def test_a_sentinel_that_moved_as_well_acquits_the_commit(scene: Scene) -> None:
    scene.measure(lambda number: 1.0 if number < 20 else 1.1)
    scene.measure(lambda number: 2.0 if number < 20 else 2.2, name=SENTINEL, seed=2)

    points = {point.benchmark: point for point in scene.read().points}

    assert ("machine", f"the sentinel {SENTINEL} moved as well") == (points[NAME].cause, points[NAME].detail)
    assert "machine" == points[SENTINEL].cause


def test_commits_without_code_made_no_step(scene: Scene) -> None:
    last = scene.shas[-1]
    text = scene.repository.commit({"README.md": "Read me", "benchmarks/ledger/x": ""}, "Write more")
    scene.shas = [last] * 20 + [text] * 20
    scene.measure(lambda number: 1.0 if number < 20 else 1.1)

    (point,) = scene.read().points

    assert ("machine", "no code differs between the commits") == (point.cause, point.detail)


def _steady(_: int) -> float:
    return 1.0


def _slower(number: int) -> float:
    return 1.0 if number < 20 else 1.1


SEVERAL = [f"benchmarks/bench_a.py::test_a[{size}]" for size in range(5)]


@pytest.mark.parametrize(("moved", "total"), [(1, 4), (8, 12)])
def test_what_many_benchmarks_lose_at_once_stays_a_loss_of_each(scene: Scene, moved: int, total: int) -> None:
    names = [f"benchmarks/bench_a.py::test_a[{number:02}]" for number in range(total)]
    steps: dict[str, Callable[[int], float]] = dict.fromkeys(names, _steady)
    steps.update(dict.fromkeys(names[:moved], _slower))
    scene.measure_together(steps, machine=0.005)

    report = scene.read()

    losses = {(point.benchmark, point.first_after) for point in report.points if point.is_open}
    assert {(name, scene.shas[20]) for name in names[:moved]} == losses
    assert all(abs(point.ratio - 1.1) < 0.02 for point in report.points)
    assert [(moved, total, None)] * len(report.shifts) == [
        (shift.benchmarks, shift.measured, shift.cause) for shift in report.shifts
    ]
    assert len(report.shifts) or 2 * moved <= total
    assert 1 == history_exit_code(report)
    # Each benchmark alone reads as it does among the others.
    for name in (names[0], names[-1]):
        alone = scene.read(benchmarks=(name,))
        assert [point for point in report.points if point.benchmark == name] == list(alone.points)
        assert {name} == {trend.benchmark for trend in alone.trends}


def test_a_sentinel_that_stood_still_accuses_the_commit_of_all_which_one_statement_closes(
    scene: Scene,
) -> None:
    scene.measure_together({**dict.fromkeys(SEVERAL, _slower), SENTINEL: _steady}, machine=0.005)

    report = scene.read()

    assert [("code", 5, 5)] == [(one.cause, one.benchmarks, one.measured) for one in report.shifts]
    assert set(SEVERAL) == {point.benchmark for point in report.points if point.is_open}
    assert 1 == history_exit_code(report)

    scene.state(report.shifts[0].shift_id[:5], "ignored", "The runner was replaced")

    report = scene.read()
    assert {"ignored"} == {point.state for point in report.points}
    assert 0 == history_exit_code(report)


def _gate(base: str, head: str, ratio: float, *, run: str, day: int, noise: float = 0.002) -> Sequence[Row]:
    source = random.Random(run)  # noqa: S311 (noise, not a secret)
    policy = JudgedPolicy(rules=Policy(alpha=0.05, family=1, looks=(8, 12)), margin=0.02, gating=True)
    rows = []
    for launch in range(12):
        for side, sha, factor in (("base", base, 1.0), ("head", head, ratio)):
            level = factor * (1 + source.gauss(0, noise))
            row = build_row(
                *(level * (1 + 0.001 * number) for number in range(5)),
                sha=sha,
                run=run,
                launch=launch,
                block=launch,
                source="gate",
                policy=policy,
                side=side,  # type: ignore[arg-type]
            )
            placement = replace(row.placement, preloader=launch // 4)
            rows.append(replace(row, placement=placement, recorded_at=BEGIN + timedelta(days=day)))
    return rows


def test_a_gate_that_found_nothing_acquits_the_commits(scene: Scene) -> None:
    scene.measure(lambda number: 1.0 if number < 20 else 1.1)
    Ledger(scene.ledger).append(_gate(scene.shas[19], scene.shas[20], 1.0, run="gate-000000000001", day=20))

    (point,) = (point for point in scene.read().points if point.first_after == scene.shas[20])

    assert point.gate is not None
    assert point.gate.low < 1 < point.gate.high
    assert ("machine", "a gate of these commits, side by side, found no such change") == (
        point.cause,
        point.detail,
    )


def test_gates_on_a_busy_machine_do_not_widen_the_scatter_of_runs(scene: Scene) -> None:
    scene.measure(lambda _: 1.0)
    scene.gate(1.0, noise=0.1)

    assert scene.read().noise[MACHINE.machine_id][NAME] < 0.02


def test_gates_of_different_hours_make_one_trend(scene: Scene) -> None:
    gates: list[Row] = []
    for number in range(20, 39):
        hour = random.Random(number).uniform(0.7, 1.4)  # noqa: S311 (likewise)
        rows = _gate(scene.shas[number], scene.shas[number + 1], 1.0, run=f"gate-{number:012}", day=number)
        scaled = [
            replace(
                row, outcome=replace(row.outcome, values=tuple(hour * value for value in row.outcome.values))
            )
            for row in rows
        ]
        gates += scaled
    Ledger(scene.ledger).append(gates)

    (trend,) = scene.read().trends

    assert scene.shas[20:] == list(trend.commits)
    assert statistics.stdev(trend.levels) / statistics.fmean(trend.levels) < 0.01
    assert statistics.stdev(trend.means) / statistics.fmean(trend.means) > 0.1


def test_losses_that_each_gate_let_pass_add_up_to_an_alarm_from_the_last_release_on(scene: Scene) -> None:
    scene.gate(1.008)

    report = scene.read()

    (drift,) = report.creeps
    assert (NAME, scene.shas[0], scene.shas[10]) == (drift.benchmark, drift.since, drift.until)
    assert drift.low < 1.008**10 < drift.high
    assert drift.low > 1.02
    assert 1 == history_exit_code(report)

    # A gate against a release counts by its parts.
    against = _gate(scene.shas[0], scene.shas[10], 1.008**10, run="gate-against-0001", day=11)
    Ledger(scene.ledger).append(against)
    (drift,) = scene.read().creeps
    assert (scene.shas[0], scene.shas[10]) == (drift.since, drift.until)
    assert drift.low < 1.008**10 < drift.high

    scene.repository.git.create_tag("v1", scene.shas[9], message="Release 1")
    assert () == scene.read().creeps


def _change(scene: Scene, number: int, *ratios: float, amended: bool = False, merged: bool = True) -> None:
    """Push a change so many times, each gated against where it begins, and merge the last push."""
    git_, base = scene.repository.git.git, scene.repository.git.head.commit.hexsha
    git_.checkout("--quiet", "-b", f"change-{number}")
    rows: list[Row] = []
    for push, ratio in enumerate(ratios):
        if push and amended:
            git_.reset("--quiet", "--hard", base)
        head = scene.repository.commit({f"part{number}.py": f"N = {push}\n"}, f"Part {number}")
        rows += _gate(base, head, ratio, run=f"gate-{number:06}-{push:06}", day=number)
    Ledger(scene.ledger).append(rows)
    git_.checkout("--quiet", "main")
    if merged:
        git_.merge("--quiet", "--no-ff", "-m", f"Merge {number}", f"change-{number}")


@pytest.mark.parametrize("amended", [False, True])
def test_a_push_that_was_mended_before_its_merge_adds_no_loss(scene: Scene, amended: bool) -> None:  # noqa: FBT001 (a parameter)
    for number in range(3):
        _change(scene, number, 1.015, 1.0, amended=amended)

    assert () == scene.read().creeps


def test_changes_that_were_not_merged_add_no_loss(scene: Scene) -> None:
    for number in range(3):
        _change(scene, number, 1.015, merged=False)
        scene.repository.commit({"model.py": f"N = {number}\n"})

    assert () == scene.read().creeps


def _drifting(number: int) -> float:
    return float(1.02 ** max(number - 8, 0))


def test_a_drift_in_plain_runs_is_an_alarm(scene: Scene) -> None:
    levels: dict[str, Callable[[int], float]] = dict.fromkeys(SEVERAL[:4], _steady)
    levels[SEVERAL[0]] = _drifting
    scene.measure_together(levels, machine=0.005)

    report = scene.read()

    (drift,) = report.creeps
    assert (SEVERAL[0], scene.shas[39], "best", "code") == (
        drift.benchmark,
        drift.until,
        drift.origin,
        drift.cause,
    )
    assert scene.shas.index(drift.since) <= 9
    assert drift.low < 1.02**31 < drift.high
    assert drift.low > 1.3
    assert report.noise[MACHINE.machine_id][SEVERAL[0]] < 0.02
    assert 1 == history_exit_code(report)
    assert (drift,) == scene.read(benchmarks=SEVERAL[:1]).creeps


def test_a_rise_that_the_machine_may_have_made_is_unclear(scene: Scene) -> None:
    ramp: Callable[[int], float] = lambda number: 1.18 ** min(max((number - 14) / 12, 0), 1)  # noqa: E731
    scene.measure_together(dict.fromkeys(SEVERAL, ramp), machine=0.03)

    report = scene.read()

    assert set(SEVERAL) == {one.benchmark for one in report.rises} | {one.benchmark for one in report.creeps}
    assert len(report.rises)
    assert not history_verdict(report).startswith("Nothing")


@pytest.mark.parametrize(("moved", "since"), [(1, 37), (5, 35)])
def test_a_step_of_few_runs_is_probable(scene: Scene, moved: int, since: int) -> None:
    levels: dict[str, Callable[[int], float]] = dict.fromkeys(SEVERAL, _steady)
    levels.update(dict.fromkeys(SEVERAL[:moved], lambda number: 1.0 if number < since else 1.08))
    scene.measure_together(levels, machine=0.005)

    report = scene.read()

    assert () == report.points
    assert [(name, scene.shas[since - 1], scene.shas[since], 40 - since) for name in SEVERAL[:moved]] == [
        (one.benchmark, one.since, one.until, one.runs) for one in report.rises
    ]
    assert all(abs(one.ratio - 1.08) < 0.02 for one in report.rises)
    assert {"step"} == {one.kind for one in report.rises}
    assert f"{since - 34} more run" in rise_sentence(report.rises[0])
    assert ["unclear"] * moved + ["steady"] * (5 - moved) == [state_of(one).kind for one in series_of(report)]
    assert not history_verdict(report).startswith("Nothing")


def test_a_step_stays_probable_while_a_new_environment_has_few_runs(scene: Scene) -> None:
    newer = Environment(env_id="e2", facts={**ENVIRONMENT.facts, "torch": "2.14.0"})
    scene.measure(
        lambda number: 1.0 if number < 35 else 1.3,
        environment=lambda number: newer if number > 37 else ENVIRONMENT,
    )

    report = scene.read()

    assert () == report.points
    (rise,) = report.rises
    assert (scene.shas[34], scene.shas[35], 5) == (rise.since, rise.until, rise.runs)
    assert 1.3 == pytest.approx(rise.ratio, abs=0.1)
    assert not history_verdict(report).startswith("Nothing")


def test_what_a_new_environment_does_to_one_of_many_is_no_step_of_the_old_one(scene: Scene) -> None:
    newer = Environment(env_id="e2", facts={**ENVIRONMENT.facts, "torch": "2.14.0"})
    levels: dict[str, Callable[[int], float]] = dict.fromkeys(SEVERAL, _steady)
    levels[SEVERAL[0]] = lambda number: 1.0 if number < 36 else 2.0
    environment: Callable[[int], Environment] = lambda number: newer if number >= 36 else ENVIRONMENT  # noqa: E731
    scene.measure_together(levels, machine=0.005, environment=environment)

    assert () == scene.read().rises


@pytest.mark.parametrize("cause", ["machine", "code"])
def test_fixed_work_timed_in_each_run_shows_whether_the_machine_changed(scene: Scene, cause: str) -> None:
    def together(since: int) -> HistoryReport:
        shutil.rmtree(scene.ledger, ignore_errors=True)
        step: Callable[[int], float] = lambda number: 1.0 if number < since else 1.1  # noqa: E731
        speed = step if cause == "machine" else _steady
        scene.measure_together(dict.fromkeys(SEVERAL, step), machine=0.005, speed=speed)
        return scene.read()

    clear, few = together(20), together(36)

    (shift,) = clear.shifts
    assert (cause, {cause}) == (shift.cause, {one.cause for one in clear.points})
    assert (cause == "code") == history_exit_code(clear)
    assert [cause] * len(SEVERAL) == [one.cause for one in few.rises]
    kinds = {state_of(one).kind for one in series_of(few)}
    assert {"moved" if cause == "machine" else "unclear"} == kinds
    assert history_verdict(few).startswith("Nothing") == (cause == "machine")


def test_a_level_that_goes_to_and_fro_is_named(scene: Scene) -> None:
    for seed in range(3):
        scene.measure(lambda number: 1.0 + 0.2 * (number // 4 % 2), seed=seed)

    report = scene.read()

    assert () == report.points
    (rise,) = report.rises
    assert (9, 0) == (rise.changes, rise.runs)
    assert "9 times" in rise_sentence(rise)
    assert ["pattern"] == [state_of(one).kind for one in series_of(report)]
    assert "1 benchmark going to and fro" in history_verdict(report)


def test_patterns_a_possible_step_and_a_slow_rise_are_named(scene: Scene) -> None:
    def is_weekend(number: int) -> bool:
        return (BEGIN + timedelta(days=number)).weekday() >= 5

    coin = random.Random(1)  # noqa: S311 (noise, not a secret)
    levels: dict[str, Callable[[int], float]] = {
        f"{NAME}_alternates": lambda _: coin.choice((1.0, 1.1)),
        f"{NAME}_rests": lambda number: 1.1 if is_weekend(number) else 1.0,
        f"{NAME}_rises": lambda number: 1.02 ** max(number - 17, 0),
        NAME: lambda number: 1.0 if number < 37 else 1.045,
    }
    for seed, (name, seconds) in enumerate(levels.items(), start=1):
        scene.measure(seconds, name=name, seed=seed)

    report = scene.read()
    found = {one.benchmark.rpartition("_")[2]: one for one in report.rises}
    kinds = {one.benchmark.rpartition("_")[2]: state_of(one).kind for one in series_of(report)}

    assert () == report.points
    assert {"alternates": "two levels", "rests": "weekly", "a": "possible step"} == {
        name: one.kind for name, one in found.items() if name != "rises"
    }
    assert ("Saturday", "Sunday") == found["rests"].days
    assert 1.05 < found["alternates"].ratio < 1.15
    assert (3, scene.shas[37]) == (found["a"].runs, found["a"].until)
    assert found["a"].needed > 0
    assert f"{found['a'].needed} more runs should show" in rise_sentence(found["a"])
    assert kinds.pop("rises") in {"drift", "unclear"}
    assert {"alternates": "pattern", "rests": "pattern", "a": "maybe"} == kinds
    assert "1 benchmark may have changed" in history_verdict(report)


def test_a_sentinel_that_drifts_as_well_acquits_the_commits(scene: Scene) -> None:
    scene.measure_together(dict.fromkeys([NAME, SENTINEL], _drifting), machine=0.005)

    report = scene.read()

    assert [(NAME, "machine")] == [(one.benchmark, one.cause) for one in report.creeps]
    assert 0 == history_exit_code(report)


def test_a_drift_that_a_person_accepted_counts_from_there(scene: Scene) -> None:
    scene.measure(_drifting)
    (drift,) = scene.read().creeps

    scene.state(drift.creep_id, "accepted", "Exact distances")

    assert () == scene.read().creeps
    scene.shas = [*scene.shas, *(scene.repository.commit({"model.py": f"N = {n}\n"}) for n in range(40, 60))]
    replace(scene, shas=scene.shas).measure(_drifting, first=40, seed=3)
    (later,) = scene.read().creeps
    assert scene.shas.index(later.since) >= 38


def test_a_benchmark_that_is_measured_no_more_is_an_alarm(scene: Scene) -> None:
    scene.measure(lambda _: 1.0, name=OTHER, seed=2)
    scene.shas = scene.shas[:20]
    scene.measure(lambda _: 1.0)

    report = scene.read()

    (silence,) = report.silences
    assert (NAME, scene.shas[19], 20, 20) == (
        silence.benchmark,
        silence.last_commit,
        silence.days,
        silence.commits,
    )
    assert 0 == silence.stopped
    assert 4 == history_exit_code(report)

    scene.run_same_code((19, 18))

    assert () == scene.read().silences


def test_a_machine_that_measures_no_more_is_reported_once_until_it_is_retired(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.measure(lambda _: 1.0)
    scene.measure(lambda _: 1.0, name=OTHER, seed=2)
    monkeypatch.setattr(jobs, "utc_now", lambda: NOW + timedelta(days=30))

    report = scene.read()
    assert [(32, 0, 2)] == [(one.days, one.commits, one.stopped) for one in report.silences]
    assert 4 == history_exit_code(report)
    assert "1 machine stopped measuring, in 80 runs of 2 benchmarks." == history_verdict(report)
    assert (
        report.silences == scene.read(benchmarks=(NAME,)).silences == scene.read(benchmarks=(OTHER,)).silences
    )

    scene.state(MACHINE.machine_id, "ignored", "Replaced")

    assert () == scene.read().silences


def test_a_step_of_any_metric_is_known_by_its_id(scene: Scene) -> None:
    metric = Metric(name="operators", unit="", exact=True)
    scene.measure(lambda _: 1.0)
    counted = [
        build_row(
            100.0 if number < 20 else 200.0, sha=sha, name=NAME, run=f"0199-{number:012}", minute=number
        )
        for number, sha in enumerate(scene.shas)
    ]
    Ledger(scene.ledger).append(
        [replace(row, outcome=replace(row.outcome, metric=metric)) for row in counted]
    )
    (point,) = scene.read(metric=metric.name).points

    scene.state(point.point_id[:5], "accepted", "More of them, and quicker")

    assert ["accepted"] == [one.state for one in scene.read(metric=metric.name).points]
    asked = BackfillRequest(
        commits=(),
        launches=1,
        benchmarks="benchmarks",
        select=None,
        ledger=scene.ledger,
        seed=0,
        choice=Choice(around=point.point_id, tags=True),
    )
    with pytest.raises(RepositoryError, match=f"no commit of {point.point_id} has a tag"):
        run_range_backfill(asked, project=load_project(scene.repository.root), log=lambda _: None)


def test_what_the_ledger_lacks_is_reported_and_what_names_nothing_refused(scene: Scene) -> None:
    with pytest.raises(NotMeasuredError, match="has no time of a commit yet; measure with"):
        scene.read()
    scene.measure(lambda _: 1.0)
    for asked, lacks in (
        ({"benchmarks": ("test_x",)}, r"has no time of test_x; did you mean test_a"),
        ({"benchmarks": ("loss",)}, r"has no time of loss; it has benchmarks/bench_a\.py::test_a"),
        ({"metric": "operators"}, "has no operators of a commit yet"),
    ):
        with pytest.raises(NotMeasuredError, match=lacks):
            scene.read(**asked)

    for subject, reason, message in (
        ("ffffffff", "Wanted", "names no one change point or benchmark; `perfkit history` lists them"),
        ("benchmarks/", "Wanted", "names no one change point"),
        ("test_a", " ", 'needs a reason; `perfkit history accept test_a --reason "why"`'),
        ("test_a", "Why", "needs a reason"),
    ):
        with pytest.raises(UsageError, match=message):
            scene.state(subject, "accepted", reason)
    assert not (scene.ledger / "states").exists()


def test_rewritten_commits_stand_by_their_times(scene: Scene) -> None:
    known = list(scene.shas)
    scene.shas = [*known[:10], *("e" * 39 + digit for digit in "0123456789"), *known[20:]]
    scene.measure(lambda _: 1.0)

    report = scene.read()

    assert sorted(scene.shas) == sorted(report.trends[0].commits)
    (note,) = [note for note in report.notes if "10 commits of 40 are unknown to this clone" in note]
    assert "--unshallow" not in note


@pytest.mark.parametrize("text", ["30x", "", "yesterday", "2026-13-01", "d", "-3d"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since must read"):
        days_ago(text)
