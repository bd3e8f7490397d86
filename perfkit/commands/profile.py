"""``perfkit profile``: passes over a training loop, their artifacts, ledger rows and index."""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NoReturn, get_args

from perfkit.agent.functions import is_script
from perfkit.commands.show import code_names
from perfkit.commands.text_files import read_text, replace_between_markers, replace_text
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RecordingError, RepositoryError, UsageError
from perfkit.extras import is_installed, need
from perfkit.identity import new_run_id, utc_now
from perfkit.ledger.recording import RunFacts
from perfkit.ledger.store import Ledger
from perfkit.model import (
    STEP_TIME,
    Benchmark,
    Commit,
    Environment,
    Machine,
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
from perfkit.profiling.passes.launch import (
    PassLauncher,
    check_port,
    described,
    find_straggler,
    free_port,
    output_tail,
    run_pass,
    run_ranks,
    run_side_by_side,
    slowest_rank,
)
from perfkit.profiling.passes.targets import LOADER, Target, Unit, find_step_line, resolve_target
from perfkit.profiling.passes.workers import WORKER_FILE
from perfkit.profiling.read.formats import read_profile
from perfkit.profiling.read.summary_file import SCHEMA_VERSION, encode_summary, saved_profiles
from perfkit.profiling.read.trace_file import backward_nodes
from perfkit.repo.commits import read_commit
from perfkit.repo.leftovers import sweep
from perfkit.report.profiles import index_markdown
from perfkit.report.progress import PassProgress
from perfkit.runner.lock import measuring
from perfkit.runner.machine.facts import read_machine
from perfkit.runner.targets import is_notebook
from perfkit.temporary import temporary_folder
from perfkit.units import counted

DEFAULT_PASSES: tuple[PassName, ...] = ("clean", "balance", "counts", "cprofile", "torch")
# They watch torch at work. Without it there is nothing that they could see.
TORCH_PASSES: tuple[PassName, ...] = ("balance", "counts", "torch")
# Given in place of a function's name, it stands for the functions with the most own time.
AUTO = "auto"
# Stands between name and ending of files that were captured before a target failed.
PARTIAL = ".partial"
_SUFFIX = ".stat"
ENDINGS = (
    ".stat",
    ".txt",
    "_filtered.txt",
    ".trace.json.gz",
    "_ops.csv",
    "_lines.txt",
    "_memory.txt",
    ".json",
    ".error.txt",
)
TORCHRUN = "torchrun"
_HERE = ("localhost", "127.0.0.1", "::1", "")
_USUAL = "perfkit profile --out FILE torchrun --nproc-per-node 2 train.py"


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """What is to be profiled and where the results go.

    ``out`` names the ``.stat`` file, beside which the others lie; ``step_at`` is the "FILE:LINE" that ends
    a step, or "loader". ``ranks`` processes form a distributed loop, which hangs when none makes a
    step for ``stall_limit_s``.
    """

    target: str
    out: Path
    arguments: tuple[str, ...] = ()
    steps: int | None = None
    step_at: str | None = None
    passes: tuple[PassName, ...] | None = None
    lines: tuple[str, ...] = ()
    trace_all: bool = False
    ledger: Path | None = None
    progress: bool = True
    wait_s: float | None = None
    ranks: int | None = None
    port: int | None = None
    stall_limit_s: float = 600.0


def usual_place(target: str, project: Project) -> Path:
    """Return the ``.stat`` file of a target among the profiles, by the target's name and class."""
    name = Path(target.rpartition(":")[2])
    is_file = is_script(target) or is_notebook(target)
    return project.path(project.config.profiles) / f"{name.stem if is_file else name.name}{_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class ProfilePlan:
    """A request with all that is known before anything is measured."""

    request: ProfileRequest
    project: Project
    target: Target
    passes: tuple[PassName, ...]
    out: Path
    commit: Commit | None
    machine: Machine
    recorded_at: datetime
    unit: Unit

    @property
    def name(self) -> str:
        """The beginning of every artifact's name."""
        return self.out.name.removesuffix(_SUFFIX)

    def beside(self, ending: str) -> Path:
        """Return the path of the artifact with this ending."""
        return self.out.with_name(f"{self.name}{ending}")


def plan_profile(request: ProfileRequest, project: Project) -> ProfilePlan:
    """Check everything that can be wrong before the first pass."""
    target = resolve_target(request.target, project, folder=Path.cwd(), any_kind=True)
    _check_ranks(request, target)
    passes = _passes(request)
    unit = Unit(loader=request.step_at == LOADER)
    if request.step_at is not None and not unit.loader:
        unit = Unit(line=find_step_line(request.step_at, Path.cwd()))
    out = _output_file(request.out, ranks=request.ranks or 1)
    recorded = request.ledger is not None and "clean" in passes
    commit = _commit(out, project, required=recorded, ranks=request.ranks or 1)
    if recorded and request.ledger is not None:
        Ledger(request.ledger).check_writable()
    return ProfilePlan(
        request=request,
        project=project,
        target=target,
        passes=passes,
        out=out,
        commit=commit,
        machine=read_machine(),
        recorded_at=utc_now(),
        unit=unit,
    )


def _check_ranks(request: ProfileRequest, target: Target) -> None:
    ranks = request.ranks
    if ranks is None:
        return
    if ranks < 1:
        raise UsageError(f"ranks must be at least 1, found {ranks}; give their number, such as --ranks 2")
    if request.stall_limit_s <= 0:
        raise UsageError(f"--stall-limit must be above 0 seconds, found {request.stall_limit_s:g}")
    if target.is_notebook or not (target.is_script or target.is_module):
        kind = "notebook" if target.is_notebook else "function"
        raise UsageError(
            f'"{target.name}" is a {kind}, and ranks are started as torchrun starts them, each with a script'
            f" or a module; write a script that does its work, and profile that with --ranks {ranks}"
        )
    if request.port is not None:
        check_port(request.port)


def _passes(request: ProfileRequest) -> tuple[PassName, ...]:
    known = get_args(PassName)
    given = _default_passes() if request.passes is None else request.passes
    wrong = [name for name in given if name not in known]
    if wrong:
        raise UsageError(f'unknown pass "{wrong[0]}"; passes are {", ".join(known)}')
    if request.steps is not None and request.steps < 1:
        raise UsageError(f"steps must be at least 1, found {request.steps}")
    if "lines" in given and not request.lines:
        raise UsageError("the lines pass needs functions; name them with --lines package.module:function")
    if AUTO in request.lines and "cprofile" not in given:
        raise UsageError("--lines auto takes its functions from the cprofile pass; make that as well")
    asked = {*given, *(("lines",) if request.lines else ())}
    if not asked:
        raise UsageError(f"no pass was asked for; passes are {', '.join(known)}")
    for name in TORCH_PASSES:
        if name in asked:
            need("torch", by=f"the {name} pass")
    if "lines" in asked:
        need("line_profiler", by="--lines")
    return tuple(name for name in known if name in asked)


def _default_passes() -> tuple[PassName, ...]:
    left_out = () if is_installed("torch") else TORCH_PASSES
    return tuple(name for name in DEFAULT_PASSES if name not in left_out)


def _output_file(out: Path, *, ranks: int) -> Path:
    """Return the absolute path of the ``.stat`` file; no artifact may have the name of a folder."""
    given = Path(os.path.abspath(out))  # noqa: PTH100 (resolve() would follow a link that is to be replaced)
    file = given if given.name.endswith(_SUFFIX) else given.with_name(f"{given.name}{_SUFFIX}")
    occupied = [path for path in (given, *_family(file, ranks)) if path.is_dir()]
    if occupied:
        raise UsageError(f"cannot write {occupied[0]}: it is a folder; give --out the name of a file")
    return file


def _family(out: Path, ranks: int) -> list[Path]:
    name = out.name.removesuffix(_SUFFIX)
    names = [rank_artifact(name, rank) for rank in range(ranks)]
    return [out.with_name(f"{each}{ending}") for each in names for ending in ENDINGS]


def rank_artifact(name: str, rank: int) -> str:
    """Return the beginning of the names of a rank's files: those of rank 0 have that of the profile."""
    return f"{name}.rank{rank}" if rank else name


def _commit(out: Path, project: Project, *, required: bool, ranks: int) -> Commit | None:
    try:
        return read_commit(project.root, ignored=(*project.output_paths, *_family(out, ranks)))
    except RepositoryError as error:
        if not required:
            return None
        raise RepositoryError(f"{error}; or profile without recording: --no-ledger") from error


@dataclass(frozen=True, kw_only=True)
class StartedRanks:
    """A target, its arguments, and its number of ranks, None for a single process."""

    target: str
    arguments: tuple[str, ...]
    ranks: int | None
    port: int | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"torchrun: {message}; perfkit starts the ranks itself, all on this machine, and takes"
            f" --nproc-per-node and --master-port: `{_USUAL}`"
        )


def started_ranks(target: str, arguments: tuple[str, ...], *, ranks: int | None) -> StartedRanks:
    """Return what is started: the target, or the script of a torchrun command line."""
    if target != TORCHRUN:
        return StartedRanks(target=target, arguments=arguments, ranks=ranks)
    if ranks is not None:
        raise UsageError(f"--ranks {ranks} and torchrun both give the number of ranks; leave out --ranks")
    parser = _parser()
    found = parser.parse_args(list(arguments))
    if found.script is None:
        parser.error("no script is named")
    if found.nnodes.rpartition(":")[2] != "1" or found.node_rank != 0:
        raise UsageError(
            f"torchrun --nnodes {found.nnodes} --node-rank {found.node_rank}: a profile has all its ranks on"
            " this machine; leave both out"
        )
    if found.master_addr not in _HERE:
        raise UsageError(
            f"torchrun --master-addr {found.master_addr}: a profile has all its ranks on this machine; leave"
            " it out"
        )
    return StartedRanks(
        target=found.script,
        arguments=tuple(found.arguments),
        ranks=_ranks(found.nproc_per_node),
        port=found.master_port,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=TORCHRUN, add_help=False)
    parser.add_argument("--nproc-per-node", "--nproc_per_node", default="1")
    parser.add_argument("--master-port", "--master_port", type=int)
    parser.add_argument("--master-addr", "--master_addr", default="")
    parser.add_argument("--nnodes", default="1")
    parser.add_argument("--node-rank", "--node_rank", type=int, default=0)
    parser.add_argument("-m", "--module", action="store_true")
    # On one machine, and with ranks that are started once, these change nothing.
    parser.add_argument("--standalone", action="store_true")
    for name in ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "max-restarts"):
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}")
    parser.add_argument("script", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _ranks(text: str) -> int:
    """Return a number of processes, which may be named by what there is one for: "gpu", "cpu" or "auto"."""
    gpus = len([name for name in read_machine().facts.get("gpus", "").split(", ") if name])
    cpus = os.cpu_count() or 1
    named = {"gpu": gpus, "cpu": cpus, "auto": gpus or cpus}
    try:
        return named[text] if text in named else int(text)
    except ValueError:
        raise UsageError(
            f'torchrun --nproc-per-node "{text}": expected a number, or one of {", ".join(named)}'
        ) from None


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
                if made.result.is_interrupted:
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
        # Evaluations are cut out on both sides only where both watch the loop as a first pass does.
        companion = replace(spec, name="clean", folder=f"{spec.folder}-beside", steps=steps, known_steps=None)
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
