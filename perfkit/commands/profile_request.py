"""What a profile is asked: checked before the first pass, and read from a command line of ``torchrun``."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn, get_args

from perfkit.agent.functions import is_script
from perfkit.config import Project
from perfkit.errors import RepositoryError, UsageError
from perfkit.extras import is_installed, need
from perfkit.identity import utc_now
from perfkit.ledger.store import Ledger
from perfkit.model import Commit, Machine, PassName
from perfkit.profiling.passes.ranks import check_port
from perfkit.profiling.passes.targets import LOADER, Target, Unit, find_step_line, resolve_target
from perfkit.repo.commits import read_commit
from perfkit.runner.machine.facts import read_machine
from perfkit.runner.targets import is_notebook

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
    target = resolve_target(request.target, project, folder=Path.cwd(), notebooks=True)
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
    if found.module:
        raise UsageError(
            f"torchrun -m {found.script}: ranks are profiled of a script; name the file of the module"
        )
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
