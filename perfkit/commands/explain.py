"""``perfkit explain``: what differs between two profiles, or between two commits that it profiles itself."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.commands.show import code_names, read_profiles
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RunInterruptedError, UsageError
from perfkit.extras import is_installed
from perfkit.model import SIDES, Balance, Commit, PassName, Side
from perfkit.model.comparisons import Log
from perfkit.model.profiles import Difference, FlameFrame
from perfkit.model.readings import MemorySnapshot, Reading, StepTimes
from perfkit.profiling.diff.difference import CleanSteps, explain, merged
from perfkit.profiling.diff.flames import flames_of
from perfkit.profiling.passes.exchange import PassResult, PassSpec
from perfkit.profiling.passes.launch import PassLauncher, SideBySide, described, run_pass, run_side_by_side
from perfkit.profiling.passes.targets import Target, resolve_target, target_on
from perfkit.profiling.passes.workers import WORKER_FILE
from perfkit.profiling.read.formats import is_pickle, read_memory, read_profile
from perfkit.profiling.read.names import CodeNames
from perfkit.profiling.read.summary_file import phases_of_balance
from perfkit.repo.checkout import Generated, Roots, checkouts, project_roots
from perfkit.repo.git import is_shallow
from perfkit.repo.sides import names_commit, resolve_sides
from perfkit.runner.lock import measuring
from perfkit.temporary import temporary_folder

_STAT = ".stat"
_NAME = "profile"
_DEFAULT_TARGET = "train"
# A name that begins with one of the first is a path and not a commit; a profile's name ends with one of the
# second.
_PATHS = (".", "/")
_PROFILES = (_STAT, ".prof", ".pstats", ".json", ".json.gz")
# Each side's cProfile is made twice, in an order in which a drift of the machine affects both sides alike.
_IN_TURN: tuple[Side, ...] = ("base", "head", "head", "base")


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """Two files of profiles, or two commits and the ``target`` that is profiled at both."""

    base: str
    head: str
    target: str | None = None
    arguments: tuple[str, ...] = ()
    steps: int = 40
    own: tuple[str, ...] = ()
    wait_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ExplainedProfiles:
    """What differs between two profiles, and both of them as they were read."""

    difference: Difference
    base: Reading
    head: Reading

    def flames(self) -> FlameFrame | None:
        """Return both profiles' calls in one tree; None where one does not know who called whom."""
        return flames_of(self.base, self.head)


def run_explain(
    request: ExplainRequest, *, project: Project, log: Log, progress: Log | None = None
) -> ExplainedProfiles:
    """Return what differs between two files of profiles, or two commits that are profiled now."""
    names = (request.base, request.head)
    files = [] if request.target else [name for name in names if _is_file(name, project)]
    if not files:
        _check_known(request, project)
        both = [] if request.target else [name for name in names if _exists(name)]
        for name in both:
            log.info(f"{name} is a commit and a file: the commit is compared; ./{name} names the file")
        return _explain_commits(request, project=project, log=log)
    for name in names:
        if not _exists(name) and names_commit(project.root, name):
            raise UsageError(
                f"{files[0]} is a file and {name} a commit: name two files or two commits"
                " (with --target both are commits)"
            )
    base, head = map(Path, names)
    code = code_names(project, request.own)
    readings = read_profiles((base, head), project=project, own=request.own, progress=progress)
    # Profiles of loaders' workers beside them count too.
    difference = explain(*readings, workers=(_workers(base, code), _workers(head, code)))
    return ExplainedProfiles(difference=difference, base=readings[0], head=readings[1])


def snapshots_of(base: str, head: str) -> tuple[MemorySnapshot, MemorySnapshot] | None:
    """Return two memory snapshots where both names are files of such, None where neither is."""
    names = [name for name in (base, head) if _exists(name) and is_pickle(Path(name))]
    if not names:
        return None
    if len(names) == 1 and base != head:
        other = head if names == [base] else base
        raise UsageError(f"{names[0]} is a memory snapshot and {other} is none; name two of one kind")
    return read_memory(Path(base)), read_memory(Path(head))


def _check_known(request: ExplainRequest, project: Project) -> None:
    """Refuse names that stand for nothing, before it matters what would be profiled at them."""
    names = dict.fromkeys((request.base, request.head))
    unknown = [f'"{name}"' for name in names if not (names_commit(project.root, name) or _is_folder(name))]
    if not unknown or request.target:
        return
    problem = f"{unknown[0]} is neither a file nor a commit"
    if len(unknown) > 1:
        problem = f"{' and '.join(unknown)} are neither files nor commits"
    clone = ", after `git fetch --unshallow` in this shallow clone" if is_shallow(project.root) else ""
    raise UsageError(
        f"{problem}; name two profiles, such as before.stat after.stat, or two commits that"
        f" `git log --oneline` lists{clone}"
    )


def _is_file(name: str, project: Project) -> bool:
    """Return whether a name is written as a path, or is a file and no commit that git knows."""
    if _is_folder(name):
        return False
    if name.startswith(_PATHS) or (name.endswith(_PROFILES) and _exists(name)):
        return True
    return (name.endswith(_PROFILES) or _exists(name)) and not names_commit(project.root, name)


def _exists(name: str) -> bool:
    return os.path.isfile(name)  # noqa: PTH113 (Path.is_file raises for a name that is too long)


def _is_folder(name: str) -> bool:
    return os.path.isdir(name)  # noqa: PTH112 (likewise)


def _explain_commits(request: ExplainRequest, *, project: Project, log: Log) -> ExplainedProfiles:
    """Profile a training loop at two commits, both sides in turns, and return what differs."""
    if request.steps < 1:
        raise UsageError(f"--steps must be at least 1, found {request.steps}")
    if request.target is None and _DEFAULT_TARGET not in project.config.targets:
        raise UsageError(
            f'--target is missing: no "{_DEFAULT_TARGET}" is configured under [tool.perfkit.targets], so name'
            ' what to profile at both commits: a script such as train.py, or "package.module:function"'
        )
    target = resolve_target(request.target or _DEFAULT_TARGET, project, folder=Path.cwd())
    pair = resolve_sides(project.root, base=request.base, head=request.head, ignored=project.output_paths)
    for remark in pair.remarks:
        log.info(remark)
    with (
        measuring(log.info, wait_s=request.wait_s),
        checkouts(pair, generated=Generated.of(project)) as laid,
        temporary_folder() as folder,
        PassLauncher() as launcher,
    ):
        scene = _Scene(request, project, target, project_roots(project, pair, laid), folder, launcher)
        log.info("clean passes, by turns")
        clean = scene.side_by_side("clean")
        balance: SideBySide | None = None
        if is_installed("torch"):
            # Without torch a loop has no steps, and nothing that a step is made of.
            log.info("balance passes, by turns")
            balance = scene.side_by_side("balance")
        readings: dict[Side, list[Reading]] = {side: [] for side in SIDES}
        workers: dict[Side, list[Reading]] = {side: [] for side in SIDES}
        code = code_names(project, request.own)
        for number, side in enumerate(_IN_TURN, start=1):
            log.info(f"cProfile {number} of {len(_IN_TURN)}, on {side}")
            stat = scene.profile(side, number)
            readings[side].append(read_profile(stat, code))
            workers[side] += [found] if (found := _workers(stat, code)) else []
    base, head = (
        _side_reading(
            readings[side],
            _title(pair.side(side).commit),
            None if balance is None else balance.results[place].balance,
        )
        for place, side in enumerate(SIDES)
    )
    base_workers, head_workers = (
        merged(workers[side], f"{side}'s workers") if workers[side] else None for side in SIDES
    )
    base_s, head_s = (result.summary.typical_step_s if result.summary else None for result in clean.results)
    steps = CleanSteps(base_s=base_s, head_s=head_s, ratio=clean.ratio) if base_s and head_s else None
    difference = explain(base, head, workers=(base_workers, head_workers), clean=steps)
    return ExplainedProfiles(difference=difference, base=base, head=head)


@dataclass(frozen=True)
class _Scene:
    """Both sides laid out, and a folder for what their passes leave."""

    request: ExplainRequest
    project: Project
    target: Target
    roots: Roots
    folder: Path
    launcher: PassLauncher

    def side_by_side(self, name: PassName) -> SideBySide:
        base, head = (self._spec(name, side, f"{name}-{side}") for side in SIDES)
        both = run_side_by_side((base, head), lambda _: None, self.launcher)
        for side, spec, result in zip(SIDES, (base, head), both.results, strict=True):
            _check(side, spec, result)
        return both

    def profile(self, side: Side, number: int) -> Path:
        spec = self._spec("cprofile", side, f"cprofile-{number}-{side}")
        _check(side, spec, run_pass(spec, lambda _: None, self.launcher))
        return Path(spec.folder) / f"{_NAME}{_STAT}"

    def _spec(self, name: PassName, side: Side, folder: str) -> PassSpec:
        root = self.roots.root(side).resolve()
        (self.folder / folder).mkdir()
        return PassSpec(
            name=name,
            target=target_on(self.target, root, project=self.project.root),
            arguments=self.request.arguments,
            root=str(root),
            own=self.project.config.own,
            folder=str(self.folder / folder),
            artifact=_NAME,
            steps=self.request.steps,
            from_root=True,
        )


def _check(side: Side, spec: PassSpec, result: PassResult) -> None:
    if result.is_interrupted:
        raise RunInterruptedError("interrupted; nothing was compared")
    problem = result.problem
    if problem is None:
        return
    if problem.kind == "usage":
        raise UsageError(f"on {side}: {problem.message}")
    raise NotMeasuredError(f"on {side}: {described(problem, Path(spec.folder))}")


def _side_reading(readings: Sequence[Reading], name: str, balance: Balance | None) -> Reading:
    """Return the cProfiles of a side as one, with the phases of its balance pass for as many steps."""
    steps = sum(one.steps.count for one in readings if one.steps)
    found = replace(
        merged(readings, name), steps=StepTimes(count=steps, sign="optimizer.step") if steps else None
    )
    return found if balance is None or not steps else replace(found, phases=phases_of_balance(balance, steps))


def _title(commit: Commit) -> str:
    subject = f' "{commit.subject}"' if commit.subject else ""
    return f"{commit.sha[:10]}{' with changes' if commit.dirty else ''}{subject}"


def _workers(file: Path, code: CodeNames) -> Reading | None:
    """Return the workers' profiles beside a profile as one, None where there are none."""
    if file.suffix != _STAT:
        return None
    of_worker = re.compile(re.escape(file.stem) + WORKER_FILE)
    beside = file.parent.glob(f"{glob.escape(file.stem)}.worker*{_STAT}")
    found = sorted(one for one in beside if of_worker.fullmatch(one.name))
    return merged([read_profile(one, code) for one in found], f"{file.stem}'s workers") if found else None
