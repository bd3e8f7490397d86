"""What is settled, and refused, before the first pass of a profile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import get_args

from perfkit.config import Project
from perfkit.errors import RepositoryError, UsageError
from perfkit.ledger.store import Ledger
from perfkit.machine.facts import read_machine
from perfkit.measure.clock import utc_now
from perfkit.profiling.targets import Target, resolve_target
from perfkit.records import Commit, Machine, PassName
from perfkit.repo.commits import read_commit

DEFAULT_PASSES: tuple[PassName, ...] = ("clean", "balance", "counts", "cprofile", "torch")

# Given in place of a function's name, it stands for the functions with the most own time.
AUTO = "auto"
# Stands between name and ending of files that were captured before a target failed.
PARTIAL = ".partial"
_SUFFIX = ".stat"
_ENDINGS = (
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
    Without ``ledger`` nothing is recorded there, and a project without commits can be profiled too.
    ``wait_s`` is how long to wait for another perfkit, None for as long as it takes.
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
    wait_s: float | None = None


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

    @property
    def name(self) -> str:
        """The beginning of every artifact's name."""
        return self.out.name.removesuffix(_SUFFIX)

    def beside(self, ending: str) -> Path:
        """Return the path of the artifact with this ending."""
        return self.out.with_name(f"{self.name}{ending}")


def settle(request: ProfileRequest, project: Project) -> SettledProfile:
    """Settle and check everything that can be wrong before the first pass."""
    target = resolve_target(request.target, project, folder=Path.cwd())
    passes = _passes(request)
    out = _output_file(request.out)
    recorded = request.ledger is not None and "clean" in passes
    commit = _commit(out, project, required=recorded)
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
    if AUTO in request.lines and "cprofile" not in request.passes:
        raise UsageError("--lines auto takes its functions from the cprofile pass; make that as well")
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
