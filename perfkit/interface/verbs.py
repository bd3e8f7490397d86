"""Gates, profiles and explanations as functions, whose results show themselves in a notebook."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perfkit.choices import FailOn, Inconclusive, check_seed
from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS
from perfkit.model import ProfileSummary
from perfkit.model.comparisons import GateReport, Verdict
from perfkit.model.profiles import Difference

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perfkit.commands.explain import ExplainedProfiles
    from perfkit.config import Project

Folder = str | Path
Passes = Sequence[Literal["clean", "balance", "counts", "cprofile", "torch", "lines", "memory"]]


class _Shown:
    """A result that prints as its command would, and that a notebook shows in colours."""

    @abstractmethod
    def _view(self) -> RenderableType:
        """Return what the command prints."""

    def __str__(self) -> str:
        from perfkit.report.console import as_text

        return as_text(self._view())

    def _repr_html_(self) -> str:
        from perfkit.report.console import as_html

        return as_html(self._view())


@dataclass(frozen=True, kw_only=True, repr=False)
class GateResult(_Shown):
    """What a gate found; ``report`` has all of it, and ``exit_code`` is that of the command."""

    report: GateReport
    exit_code: int

    @property
    def passed(self) -> bool:
        """Whether the change may be merged: everything was measured and decided, and nothing regressed."""
        return self.exit_code == 0

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdict on the time of each benchmark, by its node id."""
        return {one.benchmark.name: one.verdict for one in self.report.comparisons}

    @property
    def ratios(self) -> Mapping[str, tuple[float, float, float]]:
        """Head / base of the time of each benchmark that has one, with the ends of its interval."""
        return {
            one.benchmark.name: (one.estimate.ratio, one.estimate.low, one.estimate.high)
            for one in self.report.comparisons
            if one.estimate is not None
        }

    def to_markdown(self) -> str:
        """Return the comment for a pull request."""
        from perfkit.report.gate.markdown import render_comment

        return render_comment(self.report)

    def _view(self) -> RenderableType:
        from perfkit.report.gate.terminal import gate_view

        return gate_view(self.report)

    def __repr__(self) -> str:
        return f"<perfkit gate {self.report.run_id}: exit code {self.exit_code}>"


@dataclass(frozen=True, kw_only=True, repr=False)
class ProfileResult(_Shown):
    """What a profile learned: ``summary`` has all of it, and ``folder`` its files.

    ``exit_code`` is that of the command: 4 where a pass failed, see ``summary.problem``.
    """

    summary: ProfileSummary
    folder: Path

    @property
    def exit_code(self) -> int:
        """0, or 4 where something that was asked for could not be measured."""
        return EXIT_PASS if self.summary.problem is None else EXIT_NOT_MEASURED

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that were written, such as the one for snakeviz."""
        return tuple(self.folder / name for name in self.summary.artifacts)

    def _view(self) -> RenderableType:
        from perfkit.report.profiles import summary_view

        return summary_view(self.summary, folder=self.folder)

    def __repr__(self) -> str:
        return f"<perfkit profile in {self.folder}>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Explained(_Shown):
    """What differs between two profiles, in parts that add up: ``difference`` has all of it."""

    difference: Difference
    profiles: ExplainedProfiles | None = None

    def to_html(self) -> str:
        """Return the page with the difference, which needs no network."""
        from perfkit.report.explain import difference_page

        return difference_page(self.difference, flames=self.profiles.flames() if self.profiles else None)

    def to_markdown(self) -> str:
        """Return the difference for a pull request."""
        from perfkit.report.explain import difference_markdown

        return difference_markdown(self.difference)

    def _view(self) -> RenderableType:
        from perfkit.report.explain import difference_view

        return difference_view(self.difference)

    def __repr__(self) -> str:
        return "<perfkit explanation>"


def gate(
    base: str | None = None,
    head: str | None = None,
    *,
    benchmarks: str | None = None,
    select: str | None = None,
    margin: float | None = None,
    alpha: float | None = None,
    budget_s: float | None = None,
    fail_on: FailOn | None = None,
    inconclusive: Inconclusive | None = None,
    fail_fast: bool = False,
    exact_only: bool = False,
    instructions: bool = False,
    against: str | None = None,
    seed: int = 0,
    wait_s: float | None = None,
    repository: Folder | None = None,
    ledger: Folder | None = None,
    progress: bool = True,
) -> GateResult:
    """Compare two versions of the code as ``perfkit gate`` does, record that, and return verdicts.

    ``base`` and ``head`` are commits, branches or "worktree"; what is None follows from the configuration of
    the ``repository``, by default that of the current folder. ``margin`` and ``alpha`` are shares (0.02 is
    2 %), ``budget_s`` and ``wait_s`` seconds. What regressed is a result and no exception.

    Raises:
        PerfkitError: nothing could be compared; its ``exit_code`` is the command's.
    """
    from perfkit.commands.gate import GateRequest, run_gates
    from perfkit.gating.design import Terms
    from perfkit.report.gate.terminal import GateProgress

    check_seed("seed", seed)
    project = _project(repository)
    request = GateRequest(
        base=base,
        head=head,
        benchmarks=benchmarks,
        select=select,
        terms=Terms(
            margin=margin,
            alpha=alpha,
            budget_s=budget_s,
            fail_on=fail_on,
            inconclusive=inconclusive,
            fail_fast=fail_fast,
        ),
        ledger=_ledger(ledger, project),
        seed=seed,
        exact_only=exact_only,
        instructions=instructions,
        wait_s=wait_s,
    )
    with GateProgress(enabled=progress) as shown:
        gated = run_gates(request, against, project=project, progress=shown)
    if gated.failure is not None:
        raise gated.failure
    return GateResult(report=gated.report, exit_code=gated.exit_code)


def profile(
    target: str,
    arguments: Sequence[str] = (),
    *,
    out: Folder | None = None,
    steps: int | None = None,
    step_at: str | None = None,
    passes: Passes | None = None,
    lines: Sequence[str] = (),
    trace_all: bool = False,
    wait_s: float | None = None,
    repository: Folder | None = None,
    ledger: Folder | None = None,
    record: bool = True,
    progress: bool = True,
) -> ProfileResult:
    """Profile a training loop as ``perfkit profile`` does, and return what that learned.

    ``target`` is a configured name, "package.module:function" or a script, and ``arguments`` what that finds
    in sys.argv. ``out`` is the .stat file; the other files lie beside it. ``wait_s`` is in seconds.
    ``step_at`` is "FILE:LINE", a loop or line whose turns are the steps, or "loader".
    All passes but that of lines are made by default, without torch only clean and cprofile.

    Raises:
        PerfkitError: it could not be profiled; its ``exit_code`` is the command's.
    """
    from perfkit.commands.profile import ProfileRequest, run_profile, usual_place

    project = _project(repository)
    request = ProfileRequest(
        target=target,
        arguments=tuple(arguments),
        out=usual_place(target, project) if out is None else Path(out),
        steps=steps,
        step_at=step_at,
        passes=None if passes is None else tuple(passes),
        lines=tuple(lines),
        trace_all=trace_all,
        wait_s=wait_s,
        ledger=_ledger(ledger, project) if record else None,
        progress=progress,
    )
    return ProfileResult(summary=run_profile(request, project=project), folder=request.out.parent)


def explain(
    base: str | Path,
    head: str | Path,
    *,
    target: str | None = None,
    arguments: Sequence[str] = (),
    steps: int = 40,
    own: Sequence[str] = (),
    wait_s: float | None = None,
    repository: Folder | None = None,
    progress: bool = True,
) -> Explained:
    """Return what differs between two profiles as ``perfkit explain`` does, in parts that add up.

    ``base`` and ``head`` are files of profiles, or commits, which are profiled here and now by ``target`` for
    this many ``steps``. ``own`` are the packages to take for one's own code; ``wait_s`` is in seconds.

    Raises:
        PerfkitError: they cannot be read or profiled; its ``exit_code`` is the command's.
    """
    from perfkit.commands.explain import ExplainRequest, run_explain

    request = ExplainRequest(
        base=str(base),
        head=str(head),
        target=target,
        arguments=tuple(arguments),
        steps=steps,
        own=tuple(own),
        wait_s=wait_s,
    )
    profiles = run_explain(request, project=_project(repository), log=_StderrLog(enabled=progress))
    return Explained(difference=profiles.difference, profiles=profiles)


@dataclass(frozen=True, kw_only=True)
class _StderrLog:
    """Prints progress to standard error, where that is wanted."""

    enabled: bool

    def info(self, text: str) -> None:
        if self.enabled:
            print(text, file=sys.stderr)  # noqa: T201 (progress, as the command prints it)


def _project(repository: Folder | None) -> Project:
    from perfkit.config import load_project

    return load_project(Path.cwd() if repository is None else Path(repository))


def _ledger(place: Folder | None, project: Project) -> Path:
    from perfkit.ledger.recording import recover_leftovers
    from perfkit.ledger.remote import ledger_folder
    from perfkit.report.console import visible

    folder = ledger_folder(project.ledger_place if place is None else place)
    for found in recover_leftovers(folder):
        print(f"perfkit: {visible(found.text)}", file=sys.stderr)  # noqa: T201 (as the commands do)
    return folder
