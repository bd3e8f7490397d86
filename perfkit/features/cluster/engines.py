"""The engine of a Dask cluster: what it sends to workers, their check, and pairs of commits."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from perfkit.agent.counters.model import INSTRUCTIONS
from perfkit.commands.tasks import (
    Code,
    Doing,
    Engine,
    EngineChoice,
    MachineClass,
    PairPlan,
    Task,
    TaskQueue,
    class_names,
    needed_code,
    open_engine,
    own_class,
    run_of,
)
from perfkit.config import load_project
from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS, NotMeasuredError
from perfkit.features.cluster.dask import DaskEngine, scheduler_address
from perfkit.features.cluster.worker import CheckedWorker, bundle_name, make_bundle
from perfkit.gating.bisecting import TIME
from perfkit.gating.counters import check_valgrind
from perfkit.gating.pairs import PairMeter, Wanted
from perfkit.identity import utc_now
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Row
from perfkit.model.comparisons import Explanation
from perfkit.repo.commits import BenchmarkSource, commit_range, open_repository, resolve
from perfkit.repo.source import benchmark_files, commit_of_files
from perfkit.temporary import temporary_folder

# Laying out a pair takes longer than a launch of it, so that a task makes several.
_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class PairTerms:
    """What all tasks of a bisection share; ``source`` is the commit that holds the benchmark's file."""

    plan: PairPlan
    code: Code
    machine: MachineClass
    source: str

    def task(self, places: Sequence[int], *, benchmark: Benchmark | None, seed: int) -> Task:
        """Return a batch of one or two places as a task; the benchmark is None where it is not known yet."""
        wanted, metric = self.plan.wanted, self.plan.metric
        commits = wanted.commits
        settings = {
            "good": commits.sha(0),
            "bad": commits.sha(commits.last),
            "benchmark": wanted.benchmark,
            "known": "" if benchmark is None else msgspec.json.encode(benchmark).decode(),
            "source": self.source,
            "metric": metric,
            "alpha": repr(wanted.alpha),
            "all parents": "yes" if self.plan.all_parents else "",
        }
        return Task(
            kind="pair",
            commits=tuple(commits.sha(place) for place in dict.fromkeys(places)),
            machine=self.machine,
            code=self.code,
            stamp=utc_now(),
            benchmarks=wanted.source.file,
            launches=_BATCH if metric == TIME else 1,
            seed=seed,
            settings={name: text for name, text in settings.items() if text},
        )


@contextmanager
def open_remote_pairs(
    choice: EngineChoice, plan: PairPlan, ledger: Ledger, *, log: Callable[[str], None]
) -> Iterator[RemotePairMeter]:
    """Open what measures pairs on one class of an engine's machines."""
    wanted = plan.wanted
    project, overlay = wanted.project, _uncommitted(wanted)
    # All other commits of the range come with the last one.
    sent = [wanted.commits.sha(wanted.commits.last)]
    head = resolve(open_repository(project.root), "HEAD").sha
    code = needed_code(choice, project=project, head=head, overlay=overlay, commits=sent)
    with open_engine(choice, project=project, code=code, commits=sent, wait_s=None, log=log) as engine:
        machine, *others = engine.classes()
        if others:
            log(f"measuring on {machine.text}, not on {class_names(others)}; --machine names another")
        terms = PairTerms(plan=plan, code=code, machine=machine, source=wanted.source.sha or overlay or "")
        with RemotePairMeter(terms, ledger, log=log, engine=engine) as remote:
            yield remote


def _uncommitted(wanted: Wanted) -> str | None:
    """Return a commit of the benchmark's files of the working tree, None where a commit has them already."""
    if wanted.source.sha is not None:
        return None
    root = wanted.project.root
    top = open_repository(root)
    return commit_of_files(top, benchmark_files(top, root, wanted.source.file, ignored=()))


class RemotePairMeter(PairMeter):
    """Measures pairs of commits by tasks of an engine, and hands out the launches of a batch one by one."""

    profiles = False

    def __init__(
        self, terms: PairTerms, ledger: Ledger, *, log: Callable[[str], None], engine: Engine
    ) -> None:
        super().__init__(terms.plan.wanted, ledger, log=log)
        self._engine, self._terms, self._metric = engine, terms, terms.plan.metric
        self._known_runs = set(ledger.outcomes_of_runs("bisect"))
        self._left: dict[tuple[int, int], list[float]] = {}
        self._values: dict[int, float] = {}

    def open(self, base: int, head: int) -> Mapping[int, str]:
        """Have a batch of a pair measured, unless some of it is left; return which places cannot be."""
        if self._metric == TIME:
            unusable = {} if self._left.get((base, head)) else self._asked((base, head))
        else:
            uncounted = [place for place in (base, head) if place not in self._values]
            unusable = self._asked(uncounted) if uncounted else {}
        self.open_pair = None if unusable else (base, head)
        return unusable

    def launch(self) -> float:
        """Return the log ratio of the next launch of the open pair."""
        if self.open_pair is None:
            raise RuntimeError("no pair is open")
        left = self._left[self.open_pair]
        found = left.pop(0)
        if not left:
            self.open_pair = None
        return found

    def count(self, places: Sequence[int], metric: str) -> Mapping[int, float | str]:
        """Return the counts of one or two places; one that cannot be counted has the reason."""
        if metric != self._metric:
            raise RuntimeError(f"workers are asked for {self._metric}, not for {metric}")
        unusable = self.open(places[0], places[-1])
        return {**{place: self._values[place] for place in places if place in self._values}, **unusable}

    def ran(self) -> frozenset[tuple[str, str]]:
        """Return nothing: nothing runs here."""
        return frozenset()

    def explain(self, base: int, head: int) -> Explanation | None:  # noqa: ARG002 (as on this machine)
        """Return nothing: a profile is no row of a ledger."""
        return None

    def _asked(self, places: Sequence[int]) -> Mapping[int, str]:
        """Have a batch of places measured, file it and keep it; return which of them cannot be measured."""
        names = " and ".join(self._sha(place)[:10] for place in dict.fromkeys(places))
        self._log(f"asking a worker for {names}")
        batch = _Batch(self._next_task(places), ledger=self._ledger)
        self._engine.perform(batch)
        if batch.reason:
            raise NotMeasuredError(f"no worker could measure {names}: {batch.reason}")
        self.runs.append(run_of(batch.task))
        self._known_runs.add(run_of(batch.task))
        self._learn(batch.rows)
        found = self._read(batch.rows, self._metric)
        self._values |= found.counts
        if not found.unusable:
            for pair in found.pairs:
                self._left.setdefault((pair.base, pair.head), []).extend(pair.log_ratios)
        return found.unusable

    def _next_task(self, places: Sequence[int]) -> Task:
        """Return the first batch of places that is not in the ledger."""
        tasks = (self._terms.task(places, benchmark=self.benchmark, seed=seed) for seed in itertools.count())
        return next(task for task in tasks if run_of(task) not in self._known_runs)

    def _learn(self, rows: Sequence[Row]) -> None:
        """Take over from the first rows with values which benchmark it is, and where it is measured."""
        measured = next((row for row in rows if row.outcome.values), None)
        if self.benchmark is None and measured is not None:
            self.benchmark = measured.outcome.benchmark
            self.machine, self.environment = measured.machine, measured.environment


class _Batch(TaskQueue):
    """The one task that an engine is to do now, and its rows once they are filed."""

    def __init__(self, task: Task, *, ledger: Ledger) -> None:
        super().__init__([task], ledger.path)
        self.task, self.rows, self.reason = task, list[Row](), ""

    def filed(self, task: Task, rows: list[Row], seconds: float) -> None:  # noqa: ARG002 (of the base class)
        """Keep the rows."""
        self.rows = rows

    def failed(self, task: Task, reason: str) -> None:  # noqa: ARG002 (there is only one)
        """Keep why it could not be done."""
        self.reason = reason


def measure_pair(doing: Doing) -> None:
    """Measure the batch of a pair of a task, and record it; what cannot be measured is a row too."""
    task, settings = doing.task, doing.task.settings
    metric, known = settings["metric"], settings.get("known")
    if metric == INSTRUCTIONS:
        check_valgrind()
    project = load_project(doing.project)
    commits = commit_range(
        project.root, settings["good"], settings["bad"], all_parents="all parents" in settings
    )
    places = [commits.places()[sha] for sha in task.commits]
    # The file's origin is part of a report, which the command writes.
    source = BenchmarkSource(sha=settings["source"], file=task.benchmarks, kind="bad")
    benchmark = msgspec.json.decode(known, type=Benchmark) if known else None
    with temporary_folder() as folder:
        alpha = float(settings["alpha"])
        wanted = Wanted.laid(project, commits, settings["benchmark"], source, folder, alpha=alpha)
        with PairMeter(wanted, Ledger(doing.ledger), log=doing.log, benchmark=benchmark) as meter:
            if metric != TIME:
                meter.count(places, metric)
            elif not meter.open(places[0], places[-1]):
                for _ in range(task.launches):
                    if not isinstance(meter.launch(), float):
                        break


__all__ = ["check_engine", "check_exit_code", "check_url", "open_remote", "open_remote_pairs", "sent_code"]


def check_url(url: str) -> None:
    """Refuse what is no ``dask://HOST:PORT``."""
    scheduler_address(url)


def sent_code(choice: EngineChoice, code: Code, commits: Sequence[str]) -> Code:
    """Return where workers find the code of these commits."""
    sent = _sent(choice, code, commits)
    address = choice.address or ""
    return dataclasses.replace(code, bundle=bundle_name(sent, address), address=address)


@contextmanager
def open_remote(
    choice: EngineChoice, top: Path, code: Code, commits: Sequence[str], log: Callable[[str], None]
) -> Iterator[Engine]:
    """Open a cluster whose workers get the code of a repository."""
    bundle = partial(make_bundle, top, _sent(choice, code, commits))
    with DaskEngine(choice.url, bundle=bundle, log=log, wanted=choice.machines) as engine:
        yield engine


def check_engine(url: str, *, log: Callable[[str], None]) -> tuple[CheckedWorker, ...]:
    """Look at every worker of a cluster, and send a tiny task there and back."""
    here = own_class()
    task = Task(
        kind="check",
        commits=("0" * 40,),
        machine=here,
        code=Code(head="0" * 40),
        stamp=datetime.fromtimestamp(0, UTC),
    )
    # Nobody answers for as long as a connection may take.
    log(f"asking {url} for its workers")
    with DaskEngine(url, log=log) as engine:
        log("looking at the workers")
        return tuple(engine.check(task))


def check_exit_code(workers: Sequence[CheckedWorker]) -> int:
    """Return 0 where there are workers and all are fit, else 4."""
    return EXIT_PASS if workers and all(one.fit for one in workers) else EXIT_NOT_MEASURED


def _sent(choice: EngineChoice, code: Code, commits: Sequence[str]) -> list[str]:
    """Return the commits that are sent to workers: what they cannot clone."""
    benchmarks = [code.overlay] if code.overlay else []
    return benchmarks if choice.address else [*dict.fromkeys((*commits, code.head)), *benchmarks]
