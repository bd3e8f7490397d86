"""What is settled, and refused, before the first pass of a profile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import get_args

from perfkit.config import Project
from perfkit.errors import RepositoryError, UsageError
from perfkit.extras import is_installed, need
from perfkit.ledger.store import Ledger
from perfkit.model import Commit, Machine, PassName
from perfkit.profiling.passes.ranks import check_port
from perfkit.profiling.passes.step_lines import StepLine, find_step_line
from perfkit.profiling.passes.targets import Target, resolve_target
from perfkit.repo.commits import read_commit
from perfkit.runner.agent.loading import is_script
from perfkit.runner.clock import utc_now
from perfkit.runner.machine.facts import read_machine
from perfkit.runner.notebooks import is_notebook

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


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """What is to be profiled and where the results go.

    ``out`` names the ``.stat`` file; the other artifacts lie beside it. ``steps`` ends each pass early.
    ``step_at`` is "FILE:LINE", the line that ends a step in place of an optimizer.
    ``passes`` None stands for the default ones, of which those that watch torch need it installed.
    Without ``ledger`` nothing is recorded there, and a project without commits can be profiled too.
    ``wait_s`` is how long to wait for another perfkit, None for as long as it takes. ``ranks`` processes of
    the script form a distributed loop, which meet at ``port``, by default a free one; when none of them makes
    a step for ``stall_limit_s`` seconds, they hang.
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
    """Return the ``.stat`` file of a target where none is named: among the profiles, by the target's name.

    A method has the name of its class before its own, as other classes may have one that is called alike.
    """
    name = Path(target.rpartition(":")[2])
    is_file = is_script(target) or is_notebook(target)
    return project.path(project.config.profiles) / f"{name.stem if is_file else name.name}{_SUFFIX}"


@dataclass(frozen=True, kw_only=True)
class SettledProfile:
    """A request with all that is settled before anything is measured."""

    request: ProfileRequest
    project: Project
    target: Target
    passes: tuple[PassName, ...]
    out: Path
    commit: Commit | None
    machine: Machine
    recorded_at: datetime
    step_at: StepLine | None = None

    @property
    def name(self) -> str:
        """The beginning of every artifact's name."""
        return self.out.name.removesuffix(_SUFFIX)

    def beside(self, ending: str) -> Path:
        """Return the path of the artifact with this ending."""
        return self.out.with_name(f"{self.name}{ending}")


def settle(request: ProfileRequest, project: Project) -> SettledProfile:
    """Settle and check everything that can be wrong before the first pass."""
    target = resolve_target(request.target, project, folder=Path.cwd(), notebooks=True)
    _check_ranks(request, target)
    passes = _passes(request)
    step_at = None if request.step_at is None else find_step_line(request.step_at, Path.cwd())
    out = _output_file(request.out, ranks=request.ranks or 1)
    recorded = request.ledger is not None and "clean" in passes
    commit = _commit(out, project, required=recorded, ranks=request.ranks or 1)
    if recorded and request.ledger is not None:
        Ledger(request.ledger).check_writable()
    return SettledProfile(
        request=request,
        project=project,
        target=target,
        passes=passes,
        out=out,
        commit=commit,
        machine=read_machine(),
        recorded_at=utc_now(),
        step_at=step_at,
    )


def _check_ranks(request: ProfileRequest, target: Target) -> None:
    """Refuse ranks that cannot be started, or could not meet."""
    ranks = request.ranks
    if ranks is None:
        return
    if ranks < 1:
        raise UsageError(f"ranks must be at least 1, found {ranks}; give their number, such as --ranks 2")
    if request.stall_limit_s <= 0:
        raise UsageError(f"--stall-limit must be above 0 seconds, found {request.stall_limit_s:g}")
    if not target.is_script or target.is_notebook:
        kind = "notebook" if target.is_notebook else "function"
        raise UsageError(
            f'"{target.name}" is a {kind}, and ranks are started as torchrun starts them, each with a script;'
            f" write a script that does its work, and profile that with --ranks {ranks}"
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
    """Return the paths of all artifacts that a profile can have."""
    name = out.name.removesuffix(_SUFFIX)
    names = [rank_artifact(name, rank) for rank in range(ranks)]
    return [out.with_name(f"{each}{ending}") for each in names for ending in ENDINGS]


def rank_artifact(name: str, rank: int) -> str:
    """Return the beginning of the names of a rank's files: those of rank 0 have that of the profile."""
    return f"{name}.rank{rank}" if rank else name


def _commit(out: Path, project: Project, *, required: bool, ranks: int) -> Commit | None:
    """Return the commit; what this profile writes is not part of what was profiled."""
    try:
        return read_commit(project.root, ignored=(*project.output_paths, *_family(out, ranks)))
    except RepositoryError as error:
        if not required:
            return None
        raise RepositoryError(f"{error}; or profile without recording: --no-ledger") from error
