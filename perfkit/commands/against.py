"""``perfkit gate --against``: head against its base, and against a release as well: no drift creeps in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfkit.commands.gate import run_gate
from perfkit.commands.measuring import measuring
from perfkit.commands.plan import plan_gate
from perfkit.commands.rules import with_rules_of_base
from perfkit.commands.surveying import GateRequest, resolve_request
from perfkit.config import Project
from perfkit.errors import EXIT_INTERRUPTED, PerfkitError, RepositoryError, RunInterruptedError
from perfkit.model.comparisons import GatePlan, GateReport, worst
from perfkit.model.progress import ComparisonProgress
from perfkit.repo.commits import open_repository, releases, resolve
from perfkit.repo.sides import WORKTREE, Side, SidePair, is_same_code, named_side, resolve_sides
from perfkit.report.gate.decision import decision_word


@dataclass(frozen=True, kw_only=True)
class Gated:
    """A gate's report, with that against a release in it, and the exit code of both.

    ``failure`` is what kept the comparison with the release from its end.
    """

    report: GateReport
    exit_code: int
    failure: PerfkitError | None = None

    @property
    def unrecorded(self) -> str | None:
        """What kept the end of a gate's record from the ledger, None where both are whole."""
        other = self.report.against
        return self.report.unrecorded or (other.unrecorded if other else None)


def last_release(project: Project) -> str:
    """Return the newest tag that HEAD comes from and is not at itself.

    Raises:
        RepositoryError: there is none.
    """
    head = resolve(open_repository(project.root), "HEAD").sha
    before = [name for name, sha in releases(project.root).items() if sha != head]
    if not before:
        raise RepositoryError(
            "--against-release: HEAD comes from no tag; fetch them with `git fetch --tags --unshallow`,"
            " or name a commit: --against REF"
        )
    return before[-1]


def run_gates(
    request: GateRequest, against: str | None, *, project: Project, progress: ComparisonProgress
) -> Gated:
    """Gate head against its base, then against a release: that of ``against``, or else the configured one.

    An empty name is no release. Each is a whole gate, with a budget and a probability of error of its own.

    Raises:
        RepositoryError: the release cannot be found, or is head itself.
        PerfkitError: whatever keeps the first gate from its end.
    """
    request, project = _ruled(request, project)
    # The code of a gate of environments is mostly one, which a release says nothing of.
    release = None if request.of_environments else _release(request, against, project)
    if release is None or release.is_base:
        report = run_gate(request, project=project, progress=progress)
        report = replace(report, notes=(*_notes(release), *report.notes))
        return Gated(report=report, exit_code=report.exit_code)
    # Nobody else measures in between.
    with measuring(progress.info, wait_s=request.wait_s) as waited_s:
        report = replace(run_gate(request, project=project, progress=progress), waited_s=waited_s)
        progress.info(f"{decision_word(report)} against its base; now against {release.name}")
        try:
            other = run_gate(
                release.request_for(request, report.head.sha), project=project, progress=progress
            )
        except PerfkitError as error:
            return Gated(report=report, exit_code=error.exit_code, failure=_told(error, release, report))
        except KeyboardInterrupt:
            stopped = RunInterruptedError("interrupted before anything was measured")
            return Gated(report=report, exit_code=stopped.exit_code, failure=_told(stopped, release, report))
    return Gated(
        report=replace(report, against=replace(other, release=release.name)),
        exit_code=worst((report.exit_code, other.exit_code)),
    )


def plan_gates(
    request: GateRequest, against: str | None, *, project: Project, progress: ComparisonProgress
) -> GatePlan:
    """Plan the gates that ``run_gates`` would make.

    Raises:
        RepositoryError: the release cannot be found, or is head itself.
        PerfkitError: whatever keeps a plan from its end.
    """
    request, project = _ruled(request, project)
    release = _release(request, against, project)
    plan = plan_gate(request, project=project, progress=progress)
    if release is None or release.is_base:
        return replace(plan, notes=(*_notes(release), *plan.notes))
    other = plan_gate(release.request_for(request, plan.head.sha), project=project, progress=progress)
    return replace(plan, against=replace(other, release=release.name))


def _ruled(request: GateRequest, project: Project) -> tuple[GateRequest, Project]:
    """Return the request and the project with the rules that decide; against a release these are the same."""
    if request.rules == "head":
        return request, project
    ruled = with_rules_of_base(project, resolve_request(request, project))
    return replace(request, changed_rules=ruled.changed, dropped_targets=ruled.dropped), ruled.project


@dataclass(frozen=True, kw_only=True)
class _Release:
    """A release that head is compared with, besides the ``pair`` of head and its base."""

    name: str
    side: Side
    pair: SidePair

    @property
    def is_base(self) -> bool:
        return is_same_code(self.side, self.pair.base)

    def request_for(self, request: GateRequest, head: str) -> GateRequest:
        """Return the request of its gate; ``head`` is the commit that the gate before it compared.

        What a name stands for may move while that gate runs.
        """
        source, kind = self.side, self.pair.head.kind
        named = {"commit": head, "worktree": WORKTREE, "directory": str(self.pair.head.source)}[kind]
        base = source.commit.sha if source.kind == "commit" else str(source.source)
        return replace(request, base=base, head=named)


def _release(request: GateRequest, against: str | None, project: Project) -> _Release | None:
    """Return the release that was named, or else is configured; None where there is none."""
    name = project.config.gate.against if against is None else against
    if not name:
        return None
    place = f"--against {name}" if against else f'[tool.perfkit.gate] against = "{name}"'
    ignored = (*project.output_paths, request.ledger)
    pair = resolve_sides(project.root, base=request.base, head=request.head, ignored=ignored)
    try:
        side = named_side(project.root, name)
    except RepositoryError as error:
        raise RepositoryError(f"{place}: {error}") from error
    if is_same_code(side, pair.head):
        raise RepositoryError(
            f"{place} is head itself, so there is nothing to compare; name an earlier release,"
            " or none: --against ''"
        )
    return _Release(name=name, side=side, pair=pair)


def _notes(release: _Release | None) -> tuple[str, ...]:
    return (f"{release.name} is base itself, so head is compared once",) if release else ()


def _told(error: PerfkitError, release: _Release, report: GateReport) -> PerfkitError:
    """Return an error that names its comparison; it does not hide what the one before it decided."""
    told = PerfkitError(f"against {release.name}: {error}")
    interrupted = error.exit_code == EXIT_INTERRUPTED
    told.exit_code = error.exit_code if interrupted else worst((report.exit_code, error.exit_code))
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told
