"""``perfkit profile``: passes over a training loop, their artifacts, ledger rows and index."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from perfkit.commands.measuring import measuring
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
from perfkit.identity import new_run_id
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
    ProfileEntry,
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
from perfkit.profiling.passes.targets import training_loop
from perfkit.profiling.passes.workers import WORKER_FILE
from perfkit.profiling.read.files import read_profile
from perfkit.profiling.read.summary_file import SCHEMA_VERSION, encode_summary, saved_profiles
from perfkit.profiling.read.trace_file import backward_nodes
from perfkit.repo.leftovers import sweep
from perfkit.report.profiles import index_markdown
from perfkit.report.progress import PassProgress
from perfkit.temporary import temporary_folder
from perfkit.units import counted

__all__ = ["ProfileRequest", "run_profile", "usual_place"]
# A balance pass runs beside a clean one for this many seconds of steps, and for at least this many steps.
_BESIDE_S = 6.0
_FEWEST_BESIDE = 12
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
        staging(run.out) as folder,
        PassLauncher() as launcher,
    ):
        sweep(progress.info, place=run.out.parent, prefix=STAGING_PREFIX)
        scene = _Scene(run=run, folder=folder, progress=progress, launcher=launcher)
        passes, unrecorded = None, None
        try:
            with recording(run) as record:
                passes = _make_passes(scene, record)
        except RecordingError as error:
            if passes is None:
                raise
            # The passes are made: their artifacts are no less worth for a ledger that is full.
            unrecorded = error
        if passes.results:
            summary = replace(_summarise(run, passes, folder), waited_s=waited_s)
            (folder / f"{passes.artifact}.json").write_bytes(encode_summary(summary))
            publish(run, folder, summary.artifacts, artifact=passes.artifact)
        _write_errors(run, passes, folder)
        if passes.of_target is not None or not passes.results:
            _fail(run, passes, passes.of_target or passes.failures[0])
    list_in_index(run)
    if unrecorded is not None:
        file = _shown(run.out.with_name(f"{passes.artifact}.json"))
        unrecorded.add_note(f"the profile itself is in {file}: `perfkit show {file}` shows it")
        raise unrecorded
    return summary


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """What the passes have to do, where they leave their files, their progress, and what starts them."""

    run: ProfilePlan
    folder: Path
    progress: PassProgress
    launcher: PassLauncher


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """A pass that failed, the reason, where its output is, and the number of steps done before."""

    name: PassName
    problem: Problem
    steps: int
    folders: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """The passes made and the failures of others; ``of_target`` cut all of them short."""

    artifact: str
    made: tuple[MadePass, ...]
    failures: tuple[_Failure, ...] = ()
    of_target: _Failure | None = None

    @property
    def results(self) -> tuple[PassResult, ...]:
        return tuple(made.result for made in self.made)


def _make_passes(scene: _Scene, record: Callable[[PassResult], None]) -> _Passes:
    """Make the passes; if the target fails, the remaining ones end with the last step before the failure."""
    run = scene.run
    whole: list[MadePass] = []
    failures: list[_Failure] = []
    of_target: _Failure | None = None
    for name in run.passes:
        made = _make_pass(scene, name, [one.result for one in whole], of_target)
        problem = made.result.problem
        _check_steps(run, made.result.summary)
        if name in ("clean", "counts") and (problem is None or not whole):
            record(made.recorded)
        if problem is None:
            whole.append(made)
            continue
        if problem.kind == "usage":
            raise UsageError(problem.message)
        failure = _Failure(name=name, problem=problem, steps=made.result.steps_before, folders=made.folders)
        failures.append(failure)
        if problem.kind == "failed" and not whole:
            is_second, of_target = of_target is not None, of_target or failure
            if is_second or not failure.steps:
                break
    artifact = f"{run.name}{PARTIAL}" if of_target else run.name
    return _Passes(artifact=artifact, made=tuple(whole), failures=tuple(failures), of_target=of_target)


def _check_steps(run: ProfilePlan, summary: PassSummary | None) -> None:
    """Refuse a pass that saw none of the steps that it was to end after, before it is recorded."""
    if summary is None or summary.steps or (run.request.steps is None and run.step_at is None):
        return
    if run.step_at is not None:
        raise NotMeasuredError(
            f"{run.request.step_at} was not reached, so {run.target.name} made no step;"
            " give --step-at a line that each step runs"
        )
    script = Path(run.target.place)
    loop = training_loop(script) if script.suffix == ".py" else None
    line = "FILE:LINE" if loop is None else f"{_shown(script)}:{loop}"
    raise NotMeasuredError(
        f"no optimizer's step was seen in {run.target.name}, so --steps {run.request.steps} ended nothing;"
        f" where it updates its weights by hand, name a line that each step runs: --step-at {line}"
    )


def _make_pass(
    scene: _Scene, name: PassName, earlier: Sequence[PassResult], of_target: _Failure | None
) -> MadePass:
    folder, progress = scene.folder, scene.progress
    spec = _spec(scene.run, name, folder / name, earlier)
    if of_target is not None:
        spec = replace(spec, artifact=f"{scene.run.name}{PARTIAL}", steps=of_target.steps)
    progress.begin(name, spec.steps or spec.known_steps)
    if scene.run.request.ranks is None:
        made = _on_one_process(scene, spec, earlier)
    else:
        made = make_ranked_pass(scene.run, spec, progress.advance, scene.launcher)
    results = made.ranks or (made.result,)
    for place, result in zip(made.folders, results, strict=False):
        for file in result.files:
            (place / file).rename(folder / file)
    if made.result.summary is not None:
        progress.end(name, made.result.summary.steps, made.result.summary.total_s)
    return made


def _on_one_process(scene: _Scene, spec: PassSpec, earlier: Sequence[PassResult]) -> MadePass:
    """Make a pass over a loop of one process; the balance pass runs beside a clean one where that is fair."""
    Path(spec.folder).mkdir()
    clean = next((one.summary for one in earlier if one.summary and one.summary.name == "clean"), None)
    if spec.name == "balance" and clean is not None and not clean.on_device:
        result = _beside_clean(scene, spec, clean)
    else:
        result = run_pass(spec, scene.progress.advance, scene.launcher)
    return MadePass(result=result, recorded=result, folders=(Path(spec.folder),))


def _beside_clean(scene: _Scene, spec: PassSpec, clean: PassSummary) -> PassResult:
    """Make a pass in turns with a clean one, long enough to measure what its hooks cost."""
    step_s = clean.typical_step_s or _BESIDE_S
    steps = min(clean.steps, max(_FEWEST_BESIDE, round(_BESIDE_S / step_s)))
    companion = replace(spec, name="clean", folder=f"{spec.folder}-beside", steps=steps)
    Path(companion.folder).mkdir()
    both = run_side_by_side((companion, spec), scene.progress.advance, scene.launcher)
    result = both.results[1]
    if result.balance is None:
        return result
    return replace(result, balance=replace(result.balance, cost=both.ratio))


def _spec(run: ProfilePlan, name: PassName, folder: Path, earlier: Sequence[PassResult]) -> PassSpec:
    request = run.request
    known = [result.summary.steps for result in earlier if result.summary is not None]
    line_entries: tuple[ProfileEntry, ...] = ()
    if name == "lines" and AUTO in request.lines:
        line_entries = choose_functions([entry for result in earlier for entry in result.entries])
    return PassSpec(
        name=name,
        target=run.target,
        arguments=request.arguments,
        root=str(run.project.root),
        own=run.project.config.own,
        folder=str(folder),
        artifact=run.name,
        steps=request.steps,
        known_steps=known[0] if known else None,
        trace_all=request.trace_all,
        lines=tuple(place for place in request.lines if place != AUTO),
        step_at=run.step_at,
        line_entries=line_entries,
        environment_reader=_ENVIRONMENT_READER,
    )


def _write_errors(run: ProfilePlan, passes: _Passes, folder: Path) -> None:
    """Keep the tracebacks and the last output of the passes that failed, beside the profile."""
    if not passes.failures:
        return
    texts = []
    for failure in passes.failures:
        first, *others = failure.folders
        texts.append(f"{failure.problem.message}\n\n{failure.problem.details}")
        tails = [f"last output of the {failure.name} pass:\n{output_tail(first)}\n"]
        tails += [f"and of {other.name}:\n{output_tail(other)}\n" for other in others]
        texts.append("".join(tails))
    error_file = run.beside(".error.txt")
    (folder / error_file.name).write_text("\n".join(texts), encoding="utf-8")
    (folder / error_file.name).replace(error_file)


def _fail(run: ProfilePlan, passes: _Passes, failure: _Failure) -> NoReturn:
    kept = ""
    if passes.results:
        file = _shown(run.out.with_name(f"{passes.artifact}.json"))
        kept = f"; the {counted(failure.steps, 'step')} before it are in {file}"
    raise NotMeasuredError(f"{_described(failure)}; more in {_shown(run.beside('.error.txt'))}{kept}")


def _described(failure: _Failure) -> str:
    return described(failure.problem, failure.folders[0])


def _problem(run: ProfilePlan, passes: _Passes) -> str | None:
    if passes.of_target is not None:
        return passes.of_target.problem.message
    if passes.failures:
        failed = "; ".join(f"the {one.name} pass failed: {_described(one)}" for one in passes.failures)
        return f"{failed}; more in {_shown(run.beside('.error.txt'))}"
    return None


def _summarise(run: ProfilePlan, passes: _Passes, folder: Path) -> ProfileSummary:
    results, code = passes.results, code_names(run.project)
    stat, trace = (folder / f"{passes.artifact}{ending}" for ending in (".stat", ".trace.json.gz"))
    everywhere = [result for made in passes.made for result in made.ranks or (made.result,)]
    files = [file for result in everywhere for file in result.files]
    ranks = rank_profiles(passes.made, passes.artifact)
    environments = [result.environment for result in results if result.environment is not None]
    return ProfileSummary(
        schema_version=SCHEMA_VERSION,
        name=passes.artifact,
        target=run.target.name,
        arguments=run.request.arguments,
        recorded_at=run.recorded_at,
        commit=run.commit,
        machine=run.machine,
        environment=environments[0] if environments else UNKNOWN_ENVIRONMENT,
        configuration=_configuration(run),
        problem=_problem(run, passes),
        passes=tuple(result.summary for result in results if result.summary is not None),
        entries=tuple(entry for result in results for entry in result.entries),
        artifacts=(*files, f"{passes.artifact}.json"),
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


def _configuration(run: ProfilePlan) -> dict[str, str]:
    request = run.request
    return {
        "passes": ",".join(run.passes),
        "steps": "all" if request.steps is None else str(request.steps),
        "trace": "all steps" if request.trace_all else "a window of steps",
        "own": ",".join(run.project.config.own),
        "lines": ",".join(request.lines),
        **({} if request.step_at is None else {"step_at": request.step_at}),
        **({} if request.ranks is None else {"ranks": str(request.ranks)}),
    }


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@dataclass(frozen=True, kw_only=True)
class MadePass:
    """A pass: the result (of rank 0), all ranks' results, the one to record, and the folders of output."""

    result: PassResult
    recorded: PassResult
    folders: tuple[Path, ...]
    ranks: tuple[PassResult, ...] = ()


def make_ranked_pass(
    run: ProfilePlan, spec: PassSpec, on_steps: Callable[[int], None], launcher: PassLauncher
) -> MadePass:
    """Make a pass on all ranks; they meet at a port that is free now, unless one was asked for."""
    request = run.request
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
    for one in specs:
        Path(one.folder).mkdir()
    found = run_ranks(specs, on_steps, launcher, stall_limit_s=request.stall_limit_s)
    folders = tuple(Path(one.folder) for one in specs)
    if found.problem is not None:
        version = next((result.version for result in found.results if result.version), "")
        failed = PassResult(problem=found.problem, version=version)
        first = folders[found.failed or 0]
        others = tuple(folder for folder in folders if folder != first)
        return MadePass(result=failed, recorded=failed, folders=(first, *others))
    summaries = [result.summary for result in found.results if result.summary is not None]
    slowest = found.results[slowest_rank(summaries)] if spec.name == "clean" else found.results[0]
    return MadePass(result=found.results[0], recorded=slowest, folders=folders, ranks=found.results)


def rank_profiles(passes: Sequence[MadePass], artifact: str) -> tuple[RankProfile, ...]:
    """Return what all passes found of each rank; nothing for a loop of one process."""
    found = []
    for rank in range(min((len(made.ranks) for made in passes), default=0)):
        results, stat = [made.ranks[rank] for made in passes], f"{rank_artifact(artifact, rank)}.stat"
        found.append(
            RankProfile(
                rank=rank,
                passes=tuple(result.summary for result in results if result.summary is not None),
                balance=next((result.balance for result in results if result.balance is not None), None),
                file=stat if any(stat in result.files for result in results) else None,
            )
        )
    return tuple(found)


@contextmanager
def recording(run: ProfilePlan) -> Iterator[Callable[[PassResult], None]]:
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
    return [
        Row(
            run_id=run_id,
            recorded_at=run.recorded_at,
            source="profile",
            commit=commit,
            machine=run.machine,
            environment=result.environment or UNKNOWN_ENVIRONMENT,
            outcome=outcome,
            policy=ProfilePolicy(steps=run.request.steps),
        )
        for outcome in _outcomes(run, result)
    ]


def _outcomes(run: ProfilePlan, result: PassResult) -> list[Outcome]:
    params = {"arguments": " ".join(run.request.arguments)} if run.request.arguments else {}
    if run.request.ranks is not None:
        params["ranks"] = str(run.request.ranks)
    if run.request.steps is not None:
        params["steps"] = str(run.request.steps)
    if run.step_at is not None:
        # The line's number changes with every other edit, and with it the history would end.
        params["step_at"] = f"{Path(run.step_at.file).name}: {run.step_at.text}"
    benchmark = Benchmark(name=f"profile:{run.target.name}", version=result.version, params=params)
    problem, summary = result.problem, result.summary
    if problem is not None:
        failed = Outcome(
            benchmark=benchmark, metric=TOTAL_TIME, status=problem.status, message=problem.message
        )
        return [failed]
    if result.counts is not None:
        return list(count_outcomes(benchmark, result.counts))
    times = {STEP_TIME: summary.step_s, TOTAL_TIME: (summary.total_s,)} if summary is not None else {}
    return [
        Outcome(benchmark=benchmark, metric=metric, loops=1, values=values)
        for metric, values in times.items()
        if values
    ]


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
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


def publish(run: ProfilePlan, staging: Path, artifacts: Sequence[str], *, artifact: str) -> None:
    """Put the complete artifacts in their places, and remove those of former workers and ranks."""
    for name in artifacts:
        (staging / name).replace(run.out.with_name(name))
    run.beside(".error.txt").unlink(missing_ok=True)
    one_of_many = re.compile(f"{re.escape(artifact)}({WORKER_FILE}|{_RANKS})")
    for file in run.out.parent.glob(f"{glob.escape(artifact)}.*"):
        if one_of_many.fullmatch(file.name) and file.name not in artifacts:
            file.unlink()


def list_in_index(run: ProfilePlan) -> None:
    """Render the index of the configured profiles folder, if this profile was written to it."""
    folder = run.project.path(run.project.config.profiles)
    if folder.resolve() != run.out.parent.resolve():
        return
    index = folder / "README.md"
    before = read_text(index, default=_INDEX_HEAD)
    summaries, damaged = saved_profiles(folder)
    text = replace_between_markers(before, index_markdown(summaries, damaged=damaged), name="profiles")
    replace_text(index, text, option="--out")
