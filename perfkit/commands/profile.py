"""``perfkit profile``: passes over a training loop, their artifacts, ledger rows and index."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfkit.commands.profile_request import (
    AUTO,
    ENDINGS,
    PARTIAL,
    ProfilePlan,
    ProfileRequest,
    plan_profile,
    rank_artifact,
    usual_place,
)
from perfkit.commands.show import code_names
from perfkit.commands.text_files import read_text, replace_between_markers, replace_text
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RecordingError, UsageError
from perfkit.extras import is_installed
from perfkit.identity import new_run_id
from perfkit.ledger.recording import RunFacts
from perfkit.ledger.store import Ledger
from perfkit.model import (
    STEP_TIME,
    Benchmark,
    Commit,
    Environment,
    Metric,
    Outcome,
    PassName,
    PassSummary,
    ProfileSummary,
    RankProfile,
    Row,
)
from perfkit.model.counters import count_outcomes
from perfkit.model.policies import ProfilePolicy
from perfkit.profiling.passes.exchange import PassResult, PassSpec, Problem, RankPlace
from perfkit.profiling.passes.functions import choose_functions
from perfkit.profiling.passes.launch import PassLauncher, described, output_tail, run_pass, run_side_by_side
from perfkit.profiling.passes.ranks import find_straggler, free_port, run_ranks, slowest_rank
from perfkit.profiling.passes.targets import LOADER, Unit
from perfkit.profiling.passes.workers import WORKER_FILE
from perfkit.profiling.read.formats import read_profile
from perfkit.profiling.read.summary_file import SCHEMA_VERSION, encode_summary, saved_profiles
from perfkit.profiling.read.trace_file import backward_nodes
from perfkit.repo.leftovers import sweep
from perfkit.report.profiles import index_markdown
from perfkit.report.progress import PassProgress
from perfkit.runner.lock import measuring
from perfkit.temporary import temporary_folder
from perfkit.units import counted

__all__ = ["ProfileRequest", "run_profile", "usual_place"]
# A balance pass runs beside a clean one for this many seconds of steps, and for at least this many steps.
_BESIDE_S = 6.0
_FEWEST_BESIDE = 12
# So long a pass follows a training, where nobody asks for a number of steps, and later passes so many steps.
LIMIT_S = 60.0
INTERRUPTED = "interrupted; the profile has what was measured until then"
_MOST_STEPS = 200
_ENVIRONMENT_READER = "perfkit.runner.machine.facts:read_environment"
TOTAL_TIME = Metric(name="total_time", unit="s")
UNKNOWN_ENVIRONMENT = Environment(env_id="unknown", facts={})
# The prefix of temporary folders beside a profile: it hides them, since they come and go.
STAGING_PREFIX = ".perfkit-"
_RANKS = rf"\.rank\d+({'|'.join(map(re.escape, ENDINGS))}|{WORKER_FILE})"
_INDEX_HEAD = """# Profiles

Look at one with `snakeviz NAME.stat` or `python -m pstats NAME.stat`; a trace opens at <https://ui.perfetto.dev>.
Write notes anywhere outside the two markers below: they are kept.
"""


def run_profile(request: ProfileRequest, *, project: Project) -> ProfileSummary:
    """Make the passes, record the clean one, write the artifacts, and return what was learned."""
    run = plan_profile(request, project)
    with (
        PassProgress(enabled=request.progress) as progress,
        measuring(progress.info, wait_s=request.wait_s) as waited_s,
        _staging(run.out) as folder,
        PassLauncher() as launcher,
    ):
        sweep(progress.info, place=run.out.parent, prefix=STAGING_PREFIX)
        if request.steps is None:
            progress.info(f"a pass ends with the target or after {LIMIT_S:.0f} s; --steps N sets another end")
        making = _Making(run=run, folder=folder, progress=progress, launcher=launcher, unit=run.unit)
        unrecorded = None
        try:
            with _recording(run) as record:
                making.make_until_interrupted(record)
        except RecordingError as error:
            if not making.is_over:
                raise
            # The passes are made: their artifacts are no less worth for a ledger that is full.
            unrecorded = error
        if making.made:
            summary = replace(making.summary(), waited_s=waited_s)
            making.publish(summary)
        making.write_errors()
        if making.of_target is not None or not making.made:
            raise making.error(making.of_target or making.failures[0])
    _list_in_index(run)
    if unrecorded is not None:
        file = _shown(run.out.with_name(f"{making.artifact}.json"))
        unrecorded.add_note(f"the profile itself is in {file}: `perfkit show {file}` shows it")
        raise unrecorded
    return summary


@dataclass(frozen=True, kw_only=True)
class _MadePass:
    """A pass: the result (of rank 0), all ranks' results, the one to record, and the folders of output."""

    result: PassResult
    recorded: PassResult
    folders: tuple[Path, ...]
    ranks: tuple[PassResult, ...] = ()

    @property
    def results(self) -> tuple[PassResult, ...]:
        return self.ranks or (self.result,)


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """A pass that failed, the reason, where its output is, and the number of steps done before."""

    name: PassName
    problem: Problem
    steps: int
    folders: tuple[Path, ...]

    @property
    def described(self) -> str:
        return described(self.problem, self.folders[0])


@dataclass(kw_only=True)
class _Making:
    """A profile in the making: the passes made, and the failures of others.

    A failure ``of_target`` cuts all later passes short, after the last step before it.
    """

    run: ProfilePlan
    folder: Path
    progress: PassProgress
    launcher: PassLauncher
    unit: Unit
    made: list[_MadePass] = field(default_factory=list)
    failures: list[_Failure] = field(default_factory=list)
    of_target: _Failure | None = None
    is_over: bool = False
    is_interrupted: bool = False

    @property
    def artifact(self) -> str:
        return f"{self.run.name}{PARTIAL}" if self.of_target else self.run.name

    @property
    def results(self) -> list[PassResult]:
        return [made.result for made in self.made]

    @property
    def _error_file(self) -> Path:
        return self.run.beside(".error.txt")

    def make_until_interrupted(self, record: Callable[[PassResult], None]) -> None:
        """Make the passes, and keep those that were made when Ctrl-C ends that."""
        try:
            self.make_passes(record)
        except KeyboardInterrupt:
            if not self.made:
                raise
            self.is_interrupted = self.is_over = True

    def make_passes(self, record: Callable[[PassResult], None]) -> None:
        """Make the passes; if the target fails, the others end with the last step before the failure."""
        for name in self.run.passes:
            made = self._make_pass(name)
            if not self.made and self._knows_better(made.result):
                made = self._make_pass(name)
            problem = made.result.problem
            _check_steps(self.run, made.result.summary)
            if name in ("clean", "counts") and (problem is None or not self.made):
                record(made.recorded)
            if problem is None:
                self.made.append(made)
                if made.result.summary is not None and made.result.summary.ended == "interrupted":
                    raise KeyboardInterrupt
                continue
            if problem.kind == "usage":
                raise UsageError(problem.message)
            steps = made.result.steps_before
            self.failures.append(_Failure(name=name, problem=problem, steps=steps, folders=made.folders))
            if problem.kind == "failed" and not self.made:
                is_second = self.of_target is not None
                self.of_target = self.of_target or self.failures[-1]
                if is_second or not steps:
                    break
        self.is_over = True

    def _make_pass(self, name: PassName) -> _MadePass:
        spec = self._spec(name)
        self.progress.begin(name, spec.steps or spec.known_steps)
        if self.run.request.ranks is not None:
            made = self._on_ranks(spec)
        else:
            Path(spec.folder).mkdir(exist_ok=True)
            clean = next(
                (one.summary for one in self.results if one.summary and one.summary.name == "clean"), None
            )
            if name == "balance" and clean is not None and not clean.on_device:
                result = self._beside_clean(spec, clean)
            else:
                result = run_pass(spec, self.progress.advance, self.launcher)
            made = _MadePass(result=result, recorded=result, folders=(Path(spec.folder),))
        for place, result in zip(made.folders, made.results, strict=False):
            for file in result.files:
                (place / file).rename(self.folder / file)
        if made.result.summary is not None:
            self.progress.end(name, made.result.summary.steps, made.result.summary.total_s)
        return made

    def _knows_better(self, result: PassResult) -> bool:
        """Return whether a pass that saw no step found what could end one: a loop, or batches."""
        is_lost = result.summary is not None and not result.summary.steps and self.run.unit == Unit()
        self.unit = result.unit or self.unit
        return is_lost and self.unit != Unit()

    def _spec(self, name: PassName) -> PassSpec:
        run, request = self.run, self.run.request
        most = _MOST_STEPS if any(one.summary and one.summary.ended for one in self.results) else None
        known = [result.summary.steps for result in self.results if result.summary is not None]
        entries = [entry for result in self.results for entry in result.entries]
        return PassSpec(
            name=name,
            target=run.target,
            arguments=request.arguments,
            root=str(run.project.root),
            own=run.project.config.own,
            folder=str(self.folder / name),
            artifact=self.artifact,
            steps=self.of_target.steps if self.of_target else request.steps or most,
            limit_s=LIMIT_S if request.steps is None else None,
            known_steps=known[0] if known else None,
            trace_all=request.trace_all,
            lines=tuple(place for place in request.lines if place != AUTO),
            unit=self.unit,
            line_entries=choose_functions(entries) if name == "lines" and AUTO in request.lines else (),
            environment_reader=_ENVIRONMENT_READER,
        )

    def _beside_clean(self, spec: PassSpec, clean: PassSummary) -> PassResult:
        """Make a pass in turns with a clean one, long enough to measure what its hooks cost."""
        step_s = clean.typical_step_s or _BESIDE_S
        steps = min(clean.steps, max(_FEWEST_BESIDE, round(_BESIDE_S / step_s)))
        companion = replace(spec, name="clean", folder=f"{spec.folder}-beside", steps=steps)
        Path(companion.folder).mkdir()
        both = run_side_by_side((companion, spec), self.progress.advance, self.launcher)
        result = both.results[1]
        if result.balance is None:
            return result
        return replace(result, balance=replace(result.balance, cost=both.ratio))

    def _on_ranks(self, spec: PassSpec) -> _MadePass:
        """Make a pass on all ranks; they meet at a port that is free now, unless one was asked for."""
        request = self.run.request
        ranks, port = request.ranks or 1, request.port or free_port()
        specs = [
            replace(
                spec,
                folder=f"{spec.folder}.rank{rank}" if rank else spec.folder,
                artifact=rank_artifact(spec.artifact, rank),
                rank_place=RankPlace(rank=rank, ranks=ranks, port=port),
            )
            for rank in range(ranks)
        ]
        folders = tuple(Path(one.folder) for one in specs)
        for folder in folders:
            folder.mkdir(exist_ok=True)
        found = run_ranks(specs, self.progress.advance, self.launcher, stall_limit_s=request.stall_limit_s)
        if found.problem is not None:
            version = next((result.version for result in found.results if result.version), "")
            failed = PassResult(problem=found.problem, version=version)
            first = folders[found.failed or 0]
            others = tuple(folder for folder in folders if folder != first)
            return _MadePass(result=failed, recorded=failed, folders=(first, *others))
        summaries = [result.summary for result in found.results if result.summary is not None]
        slowest = found.results[slowest_rank(summaries)] if spec.name == "clean" else found.results[0]
        return _MadePass(result=found.results[0], recorded=slowest, folders=folders, ranks=found.results)

    def write_errors(self) -> None:
        """Keep the tracebacks and the last output of the passes that failed, beside the profile."""
        texts = []
        for failure in self.failures:
            first, *others = failure.folders
            texts.append(f"{failure.problem.message}\n\n{failure.problem.details}")
            tails = [f"last output of the {failure.name} pass:\n{output_tail(first)}\n"]
            tails += [f"and of {other.name}:\n{output_tail(other)}\n" for other in others]
            texts.append("".join(tails))
        if texts:
            staged = self.folder / self._error_file.name
            staged.write_text("\n".join(texts), encoding="utf-8")
            staged.replace(self._error_file)

    def error(self, failure: _Failure) -> NotMeasuredError:
        """Return the error that a command ends with for a failure."""
        kept = ""
        if self.made:
            file = _shown(self.run.out.with_name(f"{self.artifact}.json"))
            kept = f"; the {counted(failure.steps, 'step')} before it are in {file}"
        return NotMeasuredError(f"{failure.described}; more in {_shown(self._error_file)}{kept}")

    @property
    def _problem(self) -> str | None:
        if self.of_target is not None:
            return self.of_target.problem.message
        if self.is_interrupted:
            return INTERRUPTED
        main = self.results[0].summary
        if not self.failures and main is not None and not main.steps and is_installed("torch"):
            return _no_step(self.run)
        if not self.failures:
            return None
        failed = "; ".join(f"the {one.name} pass failed: {one.described}" for one in self.failures)
        return f"{failed}; more in {_shown(self._error_file)}"

    def summary(self) -> ProfileSummary:
        """Return what the passes found."""
        run, request, results, code = self.run, self.run.request, self.results, code_names(self.run.project)
        stat, trace = (self.folder / f"{self.artifact}{ending}" for ending in (".stat", ".trace.json.gz"))
        files = [file for made in self.made for result in made.results for file in result.files]
        ranks = self._rank_profiles()
        environments = [result.environment for result in results if result.environment is not None]
        return ProfileSummary(
            schema_version=SCHEMA_VERSION,
            name=self.artifact,
            target=run.target.name,
            arguments=request.arguments,
            recorded_at=run.recorded_at,
            commit=run.commit,
            machine=run.machine,
            environment=environments[0] if environments else UNKNOWN_ENVIRONMENT,
            configuration={
                "passes": ",".join(run.passes),
                "steps": "all" if request.steps is None else str(request.steps),
                "trace": "all steps" if request.trace_all else "a window of steps",
                "own": ",".join(run.project.config.own),
                "lines": ",".join(request.lines),
                **({} if request.step_at is None else {"step_at": request.step_at}),
                **({} if request.ranks is None else {"ranks": str(request.ranks)}),
            },
            problem=self._problem,
            passes=tuple(result.summary for result in results if result.summary is not None),
            entries=tuple(entry for result in results for entry in result.entries),
            artifacts=(*files, f"{self.artifact}.json"),
            waits=read_profile(stat, code).waits if stat.exists() else (),
            backward=backward_nodes(read_profile(trace, code)) if trace.exists() else (),
            lines=tuple(line for result in results for line in result.lines),
            roles=tuple(role for result in results for role in result.roles),
            counts=next((result.counts for result in results if result.counts is not None), None),
            memory=next((result.memory for result in results if result.memory is not None), None),
            balance=next((result.balance for result in results if result.balance is not None), None),
            ranks=ranks,
            straggler=find_straggler([rank.balance for rank in ranks if rank.balance is not None]),
        )

    def _rank_profiles(self) -> tuple[RankProfile, ...]:
        """Return what all passes found of each rank; nothing for a loop of one process."""
        found = []
        for rank in range(min((len(made.ranks) for made in self.made), default=0)):
            results = [made.ranks[rank] for made in self.made]
            stat = f"{rank_artifact(self.artifact, rank)}.stat"
            found.append(
                RankProfile(
                    rank=rank,
                    passes=tuple(result.summary for result in results if result.summary is not None),
                    balance=next((result.balance for result in results if result.balance is not None), None),
                    file=stat if any(stat in result.files for result in results) else None,
                )
            )
        return tuple(found)

    def publish(self, summary: ProfileSummary) -> None:
        """Put the complete artifacts in their places, and remove those of former workers and ranks."""
        (self.folder / f"{self.artifact}.json").write_bytes(encode_summary(summary))
        for name in summary.artifacts:
            (self.folder / name).replace(self.run.out.with_name(name))
        self._error_file.unlink(missing_ok=True)
        one_of_many = re.compile(f"{re.escape(self.artifact)}({WORKER_FILE}|{_RANKS})")
        for file in self.run.out.parent.glob(f"{glob.escape(self.artifact)}.*"):
            if one_of_many.fullmatch(file.name) and file.name not in summary.artifacts:
                file.unlink()


def _check_steps(run: ProfilePlan, summary: PassSummary | None) -> None:
    """Refuse a pass that saw none of the steps that it was to end after, before it is recorded."""
    asked = run.request.steps is not None or run.request.step_at is not None
    if summary is not None and not summary.steps and asked:
        raise NotMeasuredError(_no_step(run))


def _no_step(run: ProfilePlan) -> str:
    line = "a line that each step runs: --step-at FILE:LINE"
    if run.request.step_at is not None:
        return f"{run.request.step_at} was not reached, so {run.target.name} made no step; give {line}"
    return (
        f"no step was found in {run.target.name}: no optimizer stepped, no loop had backward passes and no"
        f" loader gave batches; name {line}"
    )


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@contextmanager
def _recording(run: ProfilePlan) -> Iterator[Callable[[PassResult], None]]:
    """Yield what records a pass at once, a failed target too; all passes are one run of the ledger."""
    ledger, commit = run.request.ledger, run.commit
    if ledger is None or commit is None:
        yield lambda _: None
        return
    with Ledger(ledger).run(source="profile", run_id=new_run_id(), recorded_at=run.recorded_at) as kept:
        yield lambda result: kept.add(_rows(run, commit, result, kept.run_id))


def _rows(run: ProfilePlan, commit: Commit, result: PassResult, run_id: str) -> list[Row]:
    if result.problem is not None and result.problem.kind == "usage":
        return []
    facts = RunFacts(
        run_id=run_id,
        recorded_at=run.recorded_at,
        source="profile",
        commit=commit,
        machine=run.machine,
        environment=result.environment or UNKNOWN_ENVIRONMENT,
    )
    policy = ProfilePolicy(steps=run.request.steps)
    return [facts.row(outcome, policy=policy) for outcome in _outcomes(run, result)]


def _outcomes(run: ProfilePlan, result: PassResult) -> list[Outcome]:
    params = {"arguments": " ".join(run.request.arguments)} if run.request.arguments else {}
    if run.request.ranks is not None:
        params["ranks"] = str(run.request.ranks)
    if run.request.steps is not None:
        params["steps"] = str(run.request.steps)
    unit = result.unit or run.unit
    if unit.line is not None:
        # The line's number changes with every other edit, and with it the history would end.
        params["step_at"] = f"{Path(unit.line.file).name}: {unit.line.text}"
    elif unit.loader:
        params["step_at"] = LOADER
    benchmark = Benchmark(name=f"profile:{run.target.name}", version=result.version, params=params)
    problem, summary = result.problem, result.summary
    if problem is not None:
        failed = Outcome(
            benchmark=benchmark, metric=TOTAL_TIME, status=problem.status, message=problem.message
        )
        return [failed]
    if result.counts is not None:
        return list(count_outcomes(benchmark, result.counts))
    times = {STEP_TIME: summary.step_s} if summary is not None else {}
    if summary is not None and not summary.ended:
        times[TOTAL_TIME] = (summary.total_s,)
    return [
        Outcome(benchmark=benchmark, metric=metric, loops=1, values=values)
        for metric, values in times.items()
        if values
    ]


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the output, on the same file system."""
    try:
        out.parent.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder(place=out.parent, prefix=STAGING_PREFIX))
            kept = stack.pop_all()
    except OSError as error:
        raise UsageError(
            f"cannot write {out} ({error.strerror or error}); give another place with --out"
        ) from error
    with kept:
        yield folder


def _list_in_index(run: ProfilePlan) -> None:
    """Render the index of the configured profiles folder, if this profile was written to it."""
    folder = run.project.path(run.project.config.profiles)
    if folder.resolve() != run.out.parent.resolve():
        return
    index = folder / "README.md"
    before = read_text(index, default=_INDEX_HEAD)
    summaries, damaged = saved_profiles(folder)
    text = replace_between_markers(before, index_markdown(summaries, damaged=damaged), name="profiles")
    replace_text(index, text, option="--out")
