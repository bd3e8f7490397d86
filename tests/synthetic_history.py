"""Builders of synthetic histories: trends with injected steps, and sites around them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from perfkit.features.site.series import Document, GateFinding, GateSummary, Reference, Site
from perfkit.ledger.history.change_points import with_returns
from perfkit.model.history import (
    ChangePoint,
    CommitFacts,
    Creep,
    GateRatio,
    HistoryReport,
    Silence,
    Stretch,
    Trend,
)
from perfkit.model.results import WALL_TIME, Machine, Metric, RunSummary

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
MACHINE = "5f1c0ffee001"
OPERATORS = Metric(name="operators", unit="1", exact=True)
ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "e0aaaaaaaaaa": {"python": "CPython 3.12.4", "torch": "2.8.0", "threads": "2"},
    "e1bbbbbbbbbb": {"python": "CPython 3.12.4", "torch": "2.9.1", "threads": "2"},
}
# A name with markup, quotes, a pipe, an end of line, a control, a reversal and a template's expression.
HOSTILE = 'bench.py::test[<script>alert("1")</script>|a\'b&amp;\n\x1b[31mred\u202e{{ 7 * 7 }}]'
_SUBJECTS = (
    "Reuse the distance matrix",
    "Vectorise the triplet loss",
    "Let the sampler draw without replacement",
    "Move normalisation to the loader",
    "Tidy the training loop",
    "Log less often",
    "Fuse the optimizer's step",
    "Read images in larger blocks",
    "Type the configuration",
    "Simplify the learning-rate schedule",
)


def sha_of(number: int) -> str:
    """Return the hash of the synthetic commit of a number."""
    return hashlib.sha1(f"commit {number}".encode(), usedforsecurity=False).hexdigest()


def run_of(number: int) -> str:
    """Return the id of the synthetic run of a number."""
    digits = hashlib.sha256(f"run {number}".encode()).hexdigest()
    return f"0192{digits[:4]}-{digits[4:8]}-7{digits[8:11]}-8{digits[11:14]}-{digits[14:26]}"


def commit_facts(count: int, *, hours: float = 7.0) -> dict[str, CommitFacts]:
    """Return the facts of so many commits, one after another."""
    return {
        sha_of(number): CommitFacts(
            sha=sha_of(number),
            subject=f"{_SUBJECTS[number % len(_SUBJECTS)]} ({number})",
            time=START + timedelta(hours=hours * number),
            author=("Ada", "Grace", "Edsger")[number % 3],
            place=number,
        )
        for number in range(count)
    }


def trend(
    name: str = "bench_losses.py::test_triplet[200]",
    *,
    runs: int = 60,
    level: float = 0.010,
    steps: Mapping[int, float] | None = None,
    noise: float = 0.01,
    machine: str = MACHINE,
    metric: Metric = WALL_TIME,
    version: str = "v1",
    first: int = 0,
    environment_from: int | None = None,
    hours: float = 7.0,
    drift: float = 0.0,
    lockstep: bool = False,
) -> Trend:
    """Return a trend whose level is multiplied by a ratio at each of ``steps``; the same for equal input."""
    chance = random.Random(f"{name} {machine} {metric.name} {version}")  # noqa: S311 (no secret)
    means, now = [], level
    for place in range(runs):
        now *= (steps or {}).get(place, 1.0) * (1 + drift)
        means.append(now * (1 + chance.gauss(0, noise)))
    if metric.exact:
        means = [float(round(mean)) for mean in means]
    commits = range(first, first + runs)
    names = tuple(ENVIRONMENTS)
    return Trend(
        benchmark=name,
        version=version,
        metric=metric,
        machine_id=machine,
        run_ids=tuple(run_of(number) for number in commits),
        commits=tuple(sha_of(number) for number in commits),
        recorded_at=tuple(START + timedelta(hours=hours * number + 0.5) for number in commits),
        sources=tuple(("gate", "pytest", "backfill")[number % 3] for number in commits),
        env_ids=tuple(
            names[int(environment_from is not None and place >= environment_from)] for place in range(runs)
        ),
        launches=tuple(1 if number % 17 == 0 else 10 for number in commits),
        means=tuple(means),
        sds=tuple(
            None if number % 17 == 0 else 0.0 if metric.exact else mean * noise * 1.5
            for number, mean in zip(commits, means, strict=True)
        ),
        levels=tuple(means),
        lockstep=lockstep,
    )


def step_of(
    found: Trend, place: int, *, until: int | None = None, since: int = 0, **others: object
) -> ChangePoint:
    """Return the step that a trend has at a place, with what was before and after it."""
    before, after = found.means[since:place], found.means[place:until]
    left, right = (sum(part) / len(part) for part in (before, after))
    digits = hashlib.sha256(f"{found.benchmark} {found.metric.name} {place}".encode()).hexdigest()
    point = ChangePoint(
        point_id=digits[:8],
        benchmark=found.benchmark,
        version=found.version,
        metric=found.metric,
        machine_id=found.machine_id,
        place=place,
        last_before=found.commits[place - 1],
        first_after=found.commits[place],
        commits=1,
        before=Stretch(mean=left, sd=left * 0.01, runs=len(before)),
        after=Stretch(mean=right, sd=right * 0.01, runs=len(after)),
        ratio=right / left,
        low=right / left * 0.99,
        high=right / left * 1.01,
        chance=0.00021,
    )
    return replace(point, **others)  # type: ignore[arg-type]  # the caller names the record's own fields


def machine(machine_id: str = MACHINE, **facts: str) -> Machine:
    """Return a machine with some facts."""
    known = {"cpu": "AMD EPYC 7B13", "logical_cpus": "2", "ram_gib": "8", "gpus": "", "system": "Linux 6.6"}
    return Machine(machine_id=machine_id, facts={**known, **facts})


def history(trends: Sequence[Trend], points: Sequence[ChangePoint] = (), **others: object) -> HistoryReport:
    """Return a history of trends, with facts of as many commits as the longest has."""
    known = {sha: place for found in trends for place, sha in enumerate(found.commits)}
    together: dict[tuple[str, str, str, str], list[ChangePoint]] = {}
    for one in points:
        key = (one.benchmark, one.version, one.metric.name, one.machine_id)
        together.setdefault(key, []).append(one)
    report = HistoryReport(
        trends=tuple(trends),
        points=tuple(one for own in together.values() for one in with_returns(own)),
        commits=commit_facts(max(known.values(), default=0) + 40),
        machines={machine_id: machine(machine_id) for machine_id in {found.machine_id for found in trends}},
        environments=ENVIRONMENTS,
        noise={
            machine: {found.benchmark: 0.008 for found in trends if found.machine_id == machine}
            for machine in {found.machine_id for found in trends}
        },
    )
    return replace(report, **others)  # type: ignore[arg-type]  # the caller names the record's own fields


def lively_site(runs: int = 60) -> Site:
    """Return a site on which everything occurs: losses, gains, drift, silence, machines, metrics, gates."""
    slower = trend(steps={40: 1.124}, runs=runs, environment_from=25)
    back = trend("bench_losses.py::test_contrastive[200]", steps={20: 1.3, 35: 1 / 1.31}, runs=runs)
    faster = trend(
        "bench_training.py::test_training_epoch", level=0.64, steps={30: 0.42}, runs=runs, noise=0.02
    )
    drifting = trend("bench_distances.py::test_cdist[400-64]", level=0.00042, drift=0.0011, runs=runs)
    steady = trend("bench_dataloading.py::test_collate", level=0.0031, runs=runs)
    silent = trend("bench_dataloading.py::test_decode", level=0.0221, runs=max(runs - 20, 2), noise=0.03)
    other = trend(machine="77aa77aa77aa", level=0.0041, runs=runs, noise=0.004)
    counted = trend(metric=OPERATORS, level=1240, steps={40: 1.05}, noise=0.0, runs=runs)
    old = trend("bench_sampler.py::test_sampler", level=0.00091, runs=runs // 2)
    new = trend(
        "bench_sampler.py::test_sampler", level=0.00105, runs=runs // 2, first=runs // 2, version="v2"
    )
    few = trend("bench_new.py::test_augment[mixup]", level=0.0071, runs=2, first=runs - 2)
    points = [
        step_of(slower, 40, commits=3, gate=GateRatio(ratio=1.119, low=1.108, high=1.131, alpha=0.01)),
        step_of(counted, 40),
        step_of(back, 20, until=35),
        step_of(back, 35, since=20),
        step_of(faster, 30, state="accepted", reason="Vectorised the loss, see the notes"),
        step_of(drifting, 30, state="ignored", reason="noise of the machine"),
    ]
    trends = [slower, back, faster, drifting, steady, silent, other, counted, old, new, few]
    first, last = drifting.commits[0], drifting.commits[-1]
    report = history(
        trends,
        points,
        creeps=(Creep(benchmark=drifting.benchmark, machine_id=MACHINE, since=first, until=last,
                      ratio=1.064, low=1.051, high=1.077, margin=0.02),),
        silences=(Silence(benchmark=silent.benchmark, machine_id=MACHINE, last_commit=silent.commits[-1],
                          last_at=silent.recorded_at[-1], days=6, commits=20),),
        machines={
            MACHINE: machine(),
            "77aa77aa77aa": machine("77aa77aa77aa", gpus="NVIDIA L4", logical_cpus="8"),
        },
        dirty_runs=3,
    )  # fmt: skip
    return Site(
        project="metric-learning",
        history=report,
        runs=tuple(_run(number) for number in range(runs)),
        gates=tuple(_gate(number) for number in range(3)),
        releases=(Reference(name="v1.0", commit=sha_of(10)), Reference(name="v1.1", commit=sha_of(28))),
        since=(Reference(name="v1.1", commit=sha_of(28)), Reference(name="main", commit=sha_of(runs - 5))),
        watched=frozenset({"time", "operators"}),
        commit_url="https://forge.example/metric-learning/commit/{commit}",
        range_url="https://forge.example/metric-learning/compare/{before}...{after}",
    )


def hostile_site() -> Site:
    """Return a site in which each text that comes from outside tries to be something else."""
    found = trend(HOSTILE, runs=8, steps={4: 1.5})
    named = Reference(name="<v1>", commit=sha_of(2))
    facts = {
        sha: replace(one, subject='"><img src=x onerror=alert(1)>\u2028\x00', author="</script>")
        for sha, one in commit_facts(8).items()
    }
    gate = GateSummary(
        run_id=run_of(1),
        recorded_at=START,
        base=sha_of(1),
        head=sha_of(2),
        machine_id=MACHINE,
        findings=(
            GateFinding(benchmark=HOSTILE, metric=OPERATORS, verdict="FAILED", message="<b>\ud800</b>"),
        ),
    )
    run = RunSummary(
        run_id=run_of(1), recorded_at=START, source="import:<i>", commits=(sha_of(1),), subject="<u>",
        dirty=True, benchmarks=1, launches=1, rows=1, failed=1, machine_id="<machine>",
    )  # fmt: skip
    environments = {**ENVIRONMENTS, next(iter(ENVIRONMENTS)): {"</script><b>": "&<>\"'"}}
    point = step_of(found, 4, cause="environment", detail="<s>torch</s>", state="accepted", reason="<em>")
    report = history([found], [point], commits=facts, environments=environments)
    report = replace(report, machines={MACHINE: machine(cpu="<q>CPU</q>")}, notes=("<mark>",))
    document = Document(title="<h6>", kind="explanation", link="javascript:alert(1)/a b?c#d.html")
    return Site(
        project="<title>", history=report, runs=(run,), gates=(gate,), documents=(document,),
        releases=(named,), since=(replace(named, name='"v1'),),
        commit_url='https://forge.example/"onmouseover=x/{commit}', notes=("<ins>",),
    )  # fmt: skip


def large_site(*, commits: int, benchmarks: int) -> Site:
    """Return a site with so many commits, and a trend of all of them for each benchmark."""
    trends, points = [], []
    for number in range(benchmarks):
        found = trend(
            f"bench_part{number // 10}.py::test_operation[{number}]",
            runs=commits,
            level=0.001 * (1 + number),
            steps={commits // 2: 1.1, commits - commits // 5: 0.8},
            environment_from=commits // 3,
        )
        trends.append(found)
        points += [
            step_of(found, commits // 2, until=commits - commits // 5),
            step_of(found, commits - commits // 5, since=commits // 2),
        ]
    site = Site(project="large", history=history(trends, points))
    return replace(site, runs=tuple(_run(number) for number in range(commits)))


def _run(number: int) -> RunSummary:
    return RunSummary(
        run_id=run_of(number),
        recorded_at=START + timedelta(hours=7 * number + 0.5),
        source=("gate", "pytest", "backfill")[number % 3],
        commits=(sha_of(number), sha_of(number + 1))[: 2 - number % 2],
        subject=_SUBJECTS[number % len(_SUBJECTS)],
        dirty=number % 11 == 5,
        benchmarks=8,
        launches=10,
        rows=160,
        failed=number % 13 == 4,
        machine_id=MACHINE,
    )


def _gate(number: int) -> GateSummary:
    ratio = (1.119, 1.002, 0.91)[number]
    verdict = ("REGRESSED", "UNCHANGED", "IMPROVED")[number]
    return GateSummary(
        run_id=run_of(100 + number),
        recorded_at=START + timedelta(hours=7 * (40 + number)),
        base=sha_of(39 + number),
        head=sha_of(40 + number),
        machine_id=MACHINE,
        findings=(
            GateFinding(
                benchmark="bench_losses.py::test_triplet[200]",
                metric=WALL_TIME,
                verdict=verdict,  # type: ignore[arg-type]  # one of the words above
                ratio=GateRatio(ratio=ratio, low=ratio - 0.01, high=ratio + 0.01, alpha=0.01),
            ),
            GateFinding(
                benchmark="bench_dataloading.py::test_decode",
                metric=WALL_TIME,
                verdict="FAILED",
                gating=False,
                message="FileNotFoundError: images/0.png",
            ),
        ),
    )
