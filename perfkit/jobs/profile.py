"""``perfkit profile``: passes over a training loop, their artifacts, ledger rows and index."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import get_args

from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RepositoryError, UsageError
from perfkit.ledger.identity import new_run_id
from perfkit.ledger.store import Ledger
from perfkit.machine.facts import read_machine
from perfkit.measure.clock import utc_now
from perfkit.profiling.exchange import PassResult, PassSpec, Problem
from perfkit.profiling.launch import output_tail, run_pass
from perfkit.profiling.save import SCHEMA_VERSION, encode_summary, load_summary
from perfkit.profiling.targets import Target, resolve_target
from perfkit.records import (
    Benchmark,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    PassName,
    PassSummary,
    ProfileSummary,
    Row,
)
from perfkit.repo.commits import read_commit
from perfkit.views.markers import replace_between_markers
from perfkit.views.profiles_index import render_index
from perfkit.views.progress import PassProgress

STEP_TIME = Metric(name="step_time", unit="s")
TOTAL_TIME = Metric(name="total_time", unit="s")
DEFAULT_PASSES: tuple[PassName, ...] = ("clean", "cprofile", "torch")

_SUFFIX = ".stat"
_ENDINGS = (
    ".stat",
    ".txt",
    "_filtered.txt",
    ".trace.json.gz",
    "_ops.csv",
    "_lines.txt",
    ".json",
    ".error.txt",
)
_ENVIRONMENT_READER = "perfkit.machine.environment:read_environment"
_UNKNOWN_ENVIRONMENT = Environment(env_id="unknown", facts={})
_INDEX_HEAD = """# Profiles

Look at one with `snakeviz NAME.stat` or `python -m pstats NAME.stat`; a trace opens at <https://ui.perfetto.dev>.
Write notes anywhere outside the two markers below: they are kept.
"""


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """What is to be profiled and where the results go.

    ``out`` names the ``.stat`` file; the other artifacts lie beside it. ``steps`` ends each pass early.
    Without ``ledger`` nothing is recorded there, and a project without commits can be profiled too.
    """

    target: str
    out: Path
    arguments: tuple[str, ...] = ()
    steps: int | None = None
    passes: tuple[PassName, ...] = DEFAULT_PASSES
    lines: tuple[str, ...] = ()
    trace_all: bool = False
    ledger: Path | None = None
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A request with all that is settled before anything is measured."""

    request: ProfileRequest
    project: Project
    target: Target
    passes: tuple[PassName, ...]
    out: Path
    commit: Commit | None
    machine: Machine
    recorded_at: datetime

    @property
    def name(self) -> str:
        return self.out.name.removesuffix(_SUFFIX)

    def beside(self, ending: str) -> Path:
        """Return the path of the artifact with this ending."""
        return self.out.with_name(f"{self.name}{ending}")


def run_profile(request: ProfileRequest, *, project: Project) -> ProfileSummary:
    """Make the passes, record the clean one, write the artifacts, and return what was learned.

    Raises:
        UsageError: the target, a pass, a function or the place of the output is wrong; nothing is written.
        RepositoryError: there is no commit to record under.
        LedgerError: the ledger cannot be written.
        NotMeasuredError: the target failed; the traceback lies beside ``out``, older artifacts stay.
    """
    run = _prepare(request, project)
    with _staging(run.out) as staging, PassProgress(enabled=request.progress) as progress:
        results = _make_passes(run, staging, progress)
        summary = _summarise(run, results)
        (staging / f"{run.name}.json").write_bytes(encode_summary(summary))
        _publish(run, staging, summary.artifacts)
    _render_index(run)
    return summary


def _prepare(request: ProfileRequest, project: Project) -> _Run:
    """Settle and check everything that can be wrong before the first pass."""
    target = resolve_target(request.target, project, folder=Path.cwd())
    passes = _passes(request)
    out = _output_file(request.out)
    recorded = request.ledger is not None and "clean" in passes
    commit = _commit(out, project, required=recorded)
    if recorded and request.ledger is not None:
        Ledger(request.ledger).check_writable()
    return _Run(
        request=request,
        project=project,
        target=target,
        passes=passes,
        out=out,
        commit=commit,
        machine=read_machine(),
        recorded_at=utc_now(),
    )


def _passes(request: ProfileRequest) -> tuple[PassName, ...]:
    known = get_args(PassName)
    wrong = [name for name in request.passes if name not in known]
    if wrong:
        raise UsageError(f'unknown pass "{wrong[0]}"; passes are {", ".join(known)}')
    if request.steps is not None and request.steps < 1:
        raise UsageError(f"steps must be at least 1, found {request.steps}")
    if "lines" in request.passes and not request.lines:
        raise UsageError("the lines pass needs functions; name them with --lines package.module:function")
    asked = {*request.passes, *(("lines",) if request.lines else ())}
    if not asked:
        raise UsageError(f"no pass was asked for; passes are {', '.join(known)}")
    return tuple(name for name in known if name in asked)


def _output_file(out: Path) -> Path:
    """Return the absolute path of the ``.stat`` file; no artifact may have the name of a folder."""
    given = Path(os.path.abspath(out))  # noqa: PTH100 (resolve() would follow a link that is to be replaced)
    file = given if given.name.endswith(_SUFFIX) else given.with_name(f"{given.name}{_SUFFIX}")
    occupied = [path for path in (given, *_family(file)) if path.is_dir()]
    if occupied:
        raise UsageError(f"cannot write {occupied[0]}: it is a folder; give --out the name of a file")
    return file


def _family(out: Path) -> list[Path]:
    """Return the paths of all artifacts that a profile can have."""
    return [out.with_name(f"{out.name.removesuffix(_SUFFIX)}{ending}") for ending in _ENDINGS]


def _commit(out: Path, project: Project, *, required: bool) -> Commit | None:
    """Return the commit; what this profile writes is not part of what was profiled."""
    try:
        return read_commit(project.root, ignored=(*project.output_paths, *_family(out)))
    except RepositoryError as error:
        if not required:
            return None
        raise RepositoryError(f"{error}; or profile without recording: --no-ledger") from error


@contextlib.contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """Yield a temporary folder on the same file system as the output, so that a rename completes it.

    The output's own folder is made where it is missing and the one above it exists.
    """
    try:
        out.parent.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            prefix=f".{out.name}-", dir=out.parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise UsageError(
            f"cannot write {out} ({error.strerror or error}); give another place with --out"
        ) from error
    with folder as name:
        yield Path(name)


def _make_passes(run: _Run, staging: Path, progress: PassProgress) -> list[PassResult]:
    results: list[PassResult] = []
    for name in run.passes:
        result = _make_pass(run, name, staging, results, progress)
        if name == "clean":
            _record(run, result)
        if result.problem is not None:
            _fail(run, name, result.problem, staging)
        results.append(result)
    return results


def _make_pass(
    run: _Run, name: PassName, staging: Path, earlier: Sequence[PassResult], progress: PassProgress
) -> PassResult:
    """Make one pass and move its files up into the staging folder."""
    spec = _spec(run, name, staging / name, earlier)
    Path(spec.folder).mkdir()
    progress.begin(name, spec.steps or spec.known_steps)
    result = run_pass(spec, progress.advance)
    for file in result.files:
        (Path(spec.folder) / file).rename(staging / file)
    if result.summary is not None:
        progress.end(name, result.summary.steps, result.summary.total_s)
    return result


def _spec(run: _Run, name: PassName, folder: Path, earlier: Sequence[PassResult]) -> PassSpec:
    request = run.request
    known = [result.summary.steps for result in earlier if result.summary is not None]
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
        lines=request.lines,
        environment_reader=_ENVIRONMENT_READER,
    )


def _record(run: _Run, result: PassResult) -> None:
    """Append the clean pass to the ledger, a failed target too; a mistake in the request is no result."""
    ledger, commit = run.request.ledger, run.commit
    if ledger is None or commit is None or (result.problem is not None and result.problem.kind == "usage"):
        return
    run_id = new_run_id()
    rows = [
        Row(
            run_id=run_id,
            recorded_at=run.recorded_at,
            source="profile",
            commit=commit,
            machine=run.machine,
            environment=result.environment or _UNKNOWN_ENVIRONMENT,
            outcome=outcome,
            policy=_policy(run),
        )
        for outcome in _outcomes(run, result)
    ]
    Ledger(ledger).append(rows)


def _outcomes(run: _Run, result: PassResult) -> list[Outcome]:
    params = {"arguments": " ".join(run.request.arguments)} if run.request.arguments else {}
    if run.request.steps is not None:
        params["steps"] = str(run.request.steps)
    benchmark = Benchmark(name=f"profile:{run.target.name}", version=result.version, params=params)
    if result.problem is not None:
        problem = result.problem
        return [
            Outcome(benchmark=benchmark, metric=TOTAL_TIME, status=problem.status, message=problem.message)
        ]
    return [*_step_outcomes(benchmark, result.summary), *_total_outcomes(benchmark, result.summary)]


def _step_outcomes(benchmark: Benchmark, summary: PassSummary | None) -> list[Outcome]:
    if summary is None or not summary.step_s:
        return []
    return [Outcome(benchmark=benchmark, metric=STEP_TIME, loops=1, values=summary.step_s)]


def _total_outcomes(benchmark: Benchmark, summary: PassSummary | None) -> list[Outcome]:
    if summary is None:
        return []
    return [Outcome(benchmark=benchmark, metric=TOTAL_TIME, loops=1, values=(summary.total_s,))]


def _policy(run: _Run) -> Mapping[str, str]:
    steps = run.request.steps
    return {"steps": "all" if steps is None else str(steps), "first_step": "has the set-up in it"}


def _fail(run: _Run, name: PassName, problem: Problem, staging: Path) -> None:
    """Say what went wrong; what the target said last is kept beside the output."""
    if problem.kind == "usage":
        raise UsageError(problem.message)
    tail = output_tail(staging / name)
    error_file = run.beside(".error.txt")
    text = f"{problem.message}\n\n{problem.details}\nlast output of the {name} pass:\n{tail}\n"
    (staging / error_file.name).write_text(text, encoding="utf-8")
    (staging / error_file.name).replace(error_file)
    said = "" if problem.details or not tail else f", saying: {tail.splitlines()[-1].strip()}"
    raise NotMeasuredError(f"{problem.message}{said}; more in {_shown(error_file)}")


def _summarise(run: _Run, results: Sequence[PassResult]) -> ProfileSummary:
    files = [file for result in results for file in result.files]
    environments = [result.environment for result in results if result.environment is not None]
    return ProfileSummary(
        schema_version=SCHEMA_VERSION,
        name=run.name,
        target=run.target.name,
        arguments=run.request.arguments,
        recorded_at=run.recorded_at,
        commit=run.commit,
        machine=run.machine,
        environment=environments[0] if environments else _UNKNOWN_ENVIRONMENT,
        configuration=_configuration(run),
        passes=tuple(result.summary for result in results if result.summary is not None),
        entries=tuple(entry for result in results for entry in result.entries),
        artifacts=(*files, f"{run.name}.json"),
    )


def _configuration(run: _Run) -> dict[str, str]:
    request = run.request
    return {
        "passes": ",".join(run.passes),
        "steps": "all" if request.steps is None else str(request.steps),
        "trace": "all steps" if request.trace_all else "a window of steps",
        "own": ",".join(run.project.config.own),
        "lines": ",".join(request.lines),
    }


def _publish(run: _Run, staging: Path, artifacts: Sequence[str]) -> None:
    """Put the complete artifacts in their places; the error of an earlier try is over."""
    for name in artifacts:
        (staging / name).replace(run.out.with_name(name))
    run.beside(".error.txt").unlink(missing_ok=True)


def _render_index(run: _Run) -> None:
    """Render the index of the configured profiles folder, where this profile went there."""
    folder = run.project.path(run.project.config.profiles)
    if folder.resolve() != run.out.parent.resolve():
        return
    index = folder / "README.md"
    before = index.read_text(encoding="utf-8") if index.exists() else _INDEX_HEAD
    summaries, damaged = _saved_profiles(folder)
    text = replace_between_markers(before, render_index(summaries, damaged=damaged), name="profiles")
    temporary = index.with_name(f".{index.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(index)


def _saved_profiles(folder: Path) -> tuple[list[ProfileSummary], dict[str, str]]:
    summaries: list[ProfileSummary] = []
    damaged: dict[str, str] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            summaries.append(load_summary(file))
        except UsageError as error:
            damaged[file.name] = str(error).removeprefix(f"{file} ")
    return summaries, damaged


def _shown(path: Path) -> Path:
    """Return a path as the person would type it from the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
