"""What workers measure of pairs is filed once and handed out launch by launch, without any worker here."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from gating import benchmark, git_project, work
from synthetic import build_row

from perfkit.commands.tasks import Code, MachineClass, PairPlan, Task, Work, own_class, pack, run_of
from perfkit.config import load_project
from perfkit.errors import NotMeasuredError
from perfkit.features.cluster.engines import PairTerms, RemotePairMeter
from perfkit.gating.bisecting import TIME
from perfkit.gating.design import gate_policy
from perfkit.gating.pairs import Wanted
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Environment, Metric, Outcome, Row
from perfkit.model.policies import BisectPolicy
from perfkit.repo.commits import commit_range, find_benchmark

FILE = "tests/test_speed.py"
NODE = f"{FILE}::test_steady"
CALLS = Metric(name="python_calls", unit="1", exact=True)


@dataclass
class FakeEngine:
    """Does tasks at once: commits have levels in seconds by place, or reasons why they cannot be measured.

    The first ``losses`` tasks are lost at first.
    """

    levels: dict[str, float]
    broken: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    losses: int = 0
    folder: Path = Path()
    asked: list[Task] = field(default_factory=list)

    def classes(self) -> tuple[MachineClass, ...]:
        """Return one class."""
        return (own_class(),)

    def perform(self, work: Work) -> None:
        """Do the tasks that there are."""
        while (task := work.next(own_class())) is not None:
            if self.losses:
                self.losses -= 1
                work.give_back(task)
                continue
            self.asked.append(task)
            if self.refusal:
                work.failed(task, self.refusal)
                continue
            ledger = Path(tempfile.mkdtemp(dir=self.folder))
            Ledger(ledger).append(list(self._rows(task)))
            work.done(task, pack(task, ledger), seconds=1.0)

    def _rows(self, task: Task) -> Iterator[Row]:
        policy = BisectPolicy(
            rules=gate_policy(alpha=0.05, family=1, served=True),
            margin=0.02,
            gating=True,
            good=task.settings["good"],
            bad=task.settings["bad"],
        )
        made = partial(dataclasses.replace, run_id="scratch", source="bisect", policy=policy)
        failed = [sha for sha in task.commits if sha in self.broken]
        for sha in failed:
            row = build_row(1.0, name=FILE, sha=sha)
            output = dataclasses.replace(row.outcome.benchmark, version="")
            # Of what did not import, torch's settings are not known.
            bare = Environment(env_id="bare", facts=dict([*row.environment.facts.items()][:1]))
            yield made(
                row,
                environment=bare,
                outcome=Outcome(benchmark=output, status="skipped", message=self.broken[sha]),
            )
        if failed:
            return
        for launch in range(task.launches):
            for side, sha in zip(SIDES, task.commits, strict=False):
                row = build_row(self.levels[sha], name=NODE, sha=sha)
                timed = task.settings["metric"] == TIME
                metric, causes = (row.outcome.metric, None) if timed else (CALLS, ())
                yield made(
                    row,
                    outcome=dataclasses.replace(row.outcome, metric=metric, causes=causes),
                    placement=dataclasses.replace(row.placement, side=side, launch=launch),
                )


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What to bisect, and an empty ledger for it."""

    wanted: Wanted
    ledger: Ledger
    folder: Path

    def sha(self, place: int) -> str:
        """Return the hash of a commit."""
        return self.wanted.commits.sha(place)

    def engine(self) -> FakeEngine:
        """Return an engine to which each commit is a second slower than the one before."""
        shas = [commit.sha for commit in self.wanted.commits.commits]
        return FakeEngine({sha: 1.0 + place for place, sha in enumerate(shas)}, folder=self.folder)

    def meter(self, engine: FakeEngine, metric: str = TIME) -> RemotePairMeter:
        """Return what measures by an engine."""
        source = self.wanted.source.sha
        assert source is not None
        plan = PairPlan(wanted=self.wanted, metric=metric)
        terms = PairTerms(plan=plan, code=Code(head=self.sha(3)), machine=own_class(), source=source)
        return RemotePairMeter(terms, self.ledger, log=lambda _: None, engine=engine)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return a range of three commits after the first."""
    text = "import work\n" + benchmark("steady", "work.steady")
    made = git_project(tmp_path, {FILE: text, "work.py": work(steady=1)})
    for number in range(3):
        made.commit({"README.md": str(number)})
    project = load_project(made.root)
    commits = commit_range(made.root, "HEAD~3", "HEAD")
    source = find_benchmark(commits, "test_steady", preferred="tests")
    folder = tmp_path / "laid"
    wanted = Wanted.laid(project, commits, "test_steady", source, folder, alpha=0.05)
    return Scene(wanted=wanted, ledger=Ledger(tmp_path / "ledger"), folder=tmp_path)


def test_a_batch_is_asked_for_once_and_handed_out_by_launches(scene: Scene) -> None:
    engine = scene.engine()
    with scene.meter(engine) as meter:
        assert {} == meter.open(0, 3)
        assert {} == meter.open(0, 3)
        found = [meter.launch() for _ in range(8)]
        used_up = meter.open_pair
        assert {} == meter.open(0, 3)
        anew = meter.open_pair

    assert (None, (0, 3)) == (used_up, anew)
    assert [pytest.approx(math.log(4.0))] * 8 == found
    assert [8, 8] == [task.launches for task in engine.asked]
    assert [(scene.sha(0), scene.sha(3))] * 2 == [task.commits for task in engine.asked]
    assert [run_of(task) for task in engine.asked] == meter.runs
    assert 2 == len(set(meter.runs))
    assert sorted(meter.runs) == sorted(run.run_id for run in scene.ledger.runs())
    assert NODE == (meter.benchmark and meter.benchmark.name)
    assert None is meter.explain(0, 3)


def test_what_is_left_of_a_pair_waits_until_it_is_asked_for_again(scene: Scene) -> None:
    engine = scene.engine()
    with scene.meter(engine) as meter:
        meter.open(0, 3)
        meter.launch()
        meter.open(0, 1)
        ratio = meter.launch()
        meter.open(0, 3)
        found = [meter.launch() for _ in range(7)]
        before, after = meter.levels(0, 1)

    assert pytest.approx(math.log(2.0)) == ratio
    assert 7 == len(found)
    assert 2 == len(engine.asked)
    assert (1.0, 2.0) == (before and before.mean, after and after.mean)


def test_the_next_command_goes_on_from_the_ledger(scene: Scene) -> None:
    first, second = scene.engine(), scene.engine()
    with scene.meter(first) as meter:
        meter.open(0, 3)
    with scene.meter(second) as again:
        again.open(0, 3)
        earlier = again.earlier(TIME)

    assert [(0, 3, 8)] == [(one.base, one.head, len(one.log_ratios)) for one in earlier.pairs]
    assert set() == set(meter.runs) & set(again.runs)
    assert [0, 1] == [first.asked[0].seed, second.asked[0].seed]


def test_commits_that_cannot_be_measured_are_reported_and_remembered(scene: Scene) -> None:
    engine = scene.engine()
    engine.broken = {scene.sha(1): "does not import"}
    with scene.meter(engine) as meter:
        meter.open(0, 3)
        assert {1: "does not import"} == meter.open(0, 1)
        assert None is meter.open_pair
        with pytest.raises(RuntimeError, match="no pair is open"):
            meter.launch()
    with scene.meter(scene.engine()) as again:
        again.open(0, 3)
        earlier = again.earlier(TIME)

    assert {1: "does not import"} == earlier.unusable


def test_counts_are_asked_for_once_each(scene: Scene) -> None:
    engine = scene.engine()
    with scene.meter(engine, CALLS.name) as meter:
        meter.open(0, 3)
        ends = meter.count((0, 3), CALLS.name)
        middle = meter.count((1,), CALLS.name)
        both = meter.count((1, 2), CALLS.name)

    assert {0: 1.0, 3: 4.0} == ends
    assert {1: 2.0} == middle
    assert {1: 2.0, 2: 3.0} == both
    places = [tuple(scene.sha(place) for place in one) for one in ((0, 3), (1,), (2,))]
    assert places == [task.commits for task in engine.asked]
    assert {0, 1, 2, 3} == set(meter.counts)


def test_a_lost_task_is_done_by_another_worker(scene: Scene) -> None:
    engine = scene.engine()
    engine.losses = 2
    with scene.meter(engine) as meter:
        assert {} == meter.open(0, 3)

    assert 1 == len(scene.ledger.runs())


def test_a_task_that_no_worker_can_do_ends_the_search(scene: Scene) -> None:
    engine = scene.engine()
    engine.refusal = "valgrind is not there"
    with scene.meter(engine) as meter, pytest.raises(NotMeasuredError) as caught:
        meter.open(0, 3)

    output = f"no worker could measure {scene.sha(0)[:10]} and {scene.sha(3)[:10]}: valgrind is not there"
    assert output == str(caught.value)
    assert 4 == caught.value.exit_code
    assert [] == scene.ledger.runs()
