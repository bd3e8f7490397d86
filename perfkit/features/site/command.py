"""``perfkit report``: static pages of a project's history, and pictures of its trends to link to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from perfkit.commands.history import Histories, HistoryRequest, read_history
from perfkit.config import Project
from perfkit.errors import LedgerError, NotMeasuredError, UsageError
from perfkit.features.site.pages import site_files, trend_files
from perfkit.features.site.series import (
    Document,
    DocumentKind,
    GateFinding,
    GateSummary,
    ProfileEntryPoint,
    Reference,
    Site,
)
from perfkit.identity import shown_run_id
from perfkit.ledger.queries import one_connection
from perfkit.ledger.store import Ledger
from perfkit.model import ProfileSummary
from perfkit.model.comparisons import Comparison, ExactComparison, GateReport, Log
from perfkit.model.history import GateRatio, HistoryReport
from perfkit.model.results import (
    COLD_AUTOTUNING,
    COLD_COMPILING,
    DEVICE_TIME,
    HOST_TIME,
    OF_CHANGED_CODE,
    TIME_SET_ASIDE,
    TYPICAL_TIME,
    WALL_TIME,
    Metric,
    RunSummary,
)
from perfkit.profiling.read.summary_file import saved_profiles
from perfkit.repo.commits import beside_head, newest_on_names
from perfkit.repo.files import digest_of, keep_reports
from perfkit.repo.git import reading_only
from perfkit.report.history import short_sha

DEFAULT_OUT = "site"
# The files that perfkit wrote, so that a later report removes those that are no longer part of the site.
_LIST = ".perfkit-report"
# Recomputing a gate takes a fraction of a second, so only the newest are; the others show their rows.
_JUDGED_GATES = 20
# Small files of these kinds are copied into the site, so that it can be served alone.
_COPIED = {".txt", ".html", ".md", ".svg", ".png", ".csv"}
_LARGEST_COPY = 2 << 20
_KEPT_VERDICTS = """
SELECT run_id, benchmark, metric, any_value(unit) AS unit, bool_or("exact") AS exact,
    any_value(policy['verdict']) AS verdict, any_value(policy['gating']) AS gating,
    any_value(policy['base']) AS base, max("commit") FILTER (side = 'head') AS head
FROM ledger WHERE source = 'gate' AND metric <> 'typical time'
GROUP BY run_id, benchmark, metric ORDER BY run_id, benchmark, metric
"""


@dataclass(frozen=True, kw_only=True)
class WrittenFiles:
    """What a report left in a folder: its files, how many of them it changed, and how many it removed."""

    folder: Path
    files: int
    changed: int
    removed: int


@reading_only()
def make_report(*, project: Project, ledger: Path, out: Path, progress: Log | None = None) -> WrittenFiles:
    """Write the pages of a project's history into a folder; a page that would be the same is not touched."""
    _check_folder(out, option="--out")
    if progress is not None:
        progress.info("reading the history")
    site, copies = read_site(project=project, ledger=ledger)
    files: Iterator[tuple[str, str | Path]] = (
        file for group in (site_files(site), sorted(copies.items())) for file in group
    )
    if progress is not None:
        progress.info("writing pages")
    return _write(out, files)


@reading_only()
def write_trends(
    *, project: Project, ledger: Path, folder: Path, benchmarks: tuple[str, ...] = ()
) -> WrittenFiles:
    """Write a picture for each benchmark, or for some, and machine into a folder, for texts to link to."""
    _check_folder(folder, option="--trends")
    history = read_history(project, ledger, HistoryRequest(benchmarks=benchmarks))
    return _write(folder, trend_files(Site(project=_title(project), history=history)))


@reading_only()
@one_connection()
def read_site(*, project: Project, ledger: Path) -> tuple[Site, Mapping[str, Path]]:
    """Return all that the pages show, and the files to copy, by their places in the site."""
    histories = Histories(project, ledger)
    kept, base = histories.ledger, histories.base
    runs = tuple(kept.runs())
    tags = tuple(Reference(name=name, commit=sha) for name, sha in histories.tags.items())
    since = (*tags[-1:], *([] if base is None else [Reference(name=short_sha(base), commit=base)]))
    history = _whole_history(histories)
    known = histories.commits.facts({one.commit for one in (*tags, *since)})
    measured = {sha for trend in history.trends for sha in trend.commits}
    summaries, damaged = saved_profiles(project.path(project.config.profiles))
    oldest_first = sorted(summaries, key=lambda summary: (summary.recorded_at, summary.name))
    shelf = _Shelf(project)
    report = project.config.report
    site = Site(
        project=_title(project),
        history=replace(history, commits={**known, **history.commits}),
        runs=runs,
        gates=tuple(_gates(project, ledger, kept, runs)),
        profiles=tuple(_profile(project, summary, shelf) for summary in oldest_first),
        documents=tuple(_documents(project, shelf)),
        releases=tags,
        since=since,
        names=tuple(
            Reference(name=name, commit=sha) for name, sha in newest_on_names(project.root, measured).items()
        ),
        commit_url=report.commit_url,
        range_url=report.range_url,
        aside=beside_head(project.root, measured),
        watched=frozenset({WALL_TIME.name, *project.config.exact.gate}),
        notes=tuple(f"The profile {name} cannot be read: {reason}" for name, reason in damaged.items()),
    )
    return site, shelf.files


def _title(project: Project) -> str:
    return project.config.report.title or project.root.name


def _whole_history(histories: Histories) -> HistoryReport:
    """Return the history of times and, behind it, those of all other metrics that runs of commits have."""
    found: list[HistoryReport] = []
    nothing: NotMeasuredError | None = None
    for metric in _metrics(histories.ledger):
        try:
            found.append(histories.read(HistoryRequest(metric=metric)))
        except NotMeasuredError as error:
            nothing = nothing or error
    if not found:
        raise nothing or NotMeasuredError(
            f"{histories.place} has no runs yet; measure with `perfkit gate` first"
        )
    first = found[0]
    # Drifts and silences are those of the times; a counter that is no longer taken is no alarm.
    return replace(
        first,
        trends=tuple(trend for report in found for trend in report.trends),
        points=tuple(point for report in found for point in report.points),
        commits={sha: facts for report in reversed(found) for sha, facts in report.commits.items()},
        machines={name: one for report in found for name, one in report.machines.items()},
        environments={name: one for report in found for name, one in report.environments.items()},
    )


def _metrics(kept: Ledger) -> list[str]:
    """Return the metrics that runs of commits have, the time first."""
    changed = ", ".join(f"'{source}'" for source in sorted((*OF_CHANGED_CODE, "experiment", "profile")))
    found = kept.ask(f"SELECT DISTINCT metric FROM ledger WHERE source NOT IN ({changed}) ORDER BY metric")  # noqa: S608 (perfkit's own words)
    # Other metrics of the same calls would repeat each change point.
    parts = (COLD_COMPILING, COLD_AUTOTUNING)
    times = (WALL_TIME, TYPICAL_TIME, DEVICE_TIME, HOST_TIME, TIME_SET_ASIDE)
    aspects = {one.name for one in (*times, *parts)}
    others = [str(name) for (name,) in found if name not in aspects]
    return [WALL_TIME.name, *others]


def _gates(project: Project, ledger: Path, kept: Ledger, runs: Sequence[RunSummary]) -> Iterator[GateSummary]:
    """Yield the gates, oldest first: the newest recomputed with intervals, the others from their rows."""
    gates = [run for run in runs if run.source == "gate"]
    verdicts = _kept_verdicts(kept) if len(gates) > _JUDGED_GATES else {}
    for number, run in enumerate(gates):
        if len(gates) - number > _JUDGED_GATES:
            base, head, findings = verdicts[run.run_id]
        else:
            # Imported late: it takes as long as all else, and a ledger may have no gates.
            from perfkit.gating.rows import recompute_gate

            try:
                report = recompute_gate(run.run_id, ledger=ledger, project=project)
                base, head, findings = report.base.sha, report.head.sha, tuple(_findings(report))
            except LedgerError as error:
                unread = GateFinding(benchmark="-", metric=WALL_TIME, verdict=None, message=str(error))
                base, head, findings = run.commits[0], run.commits[-1], (unread,)
        yield GateSummary(
            run_id=run.run_id,
            recorded_at=run.recorded_at,
            base=base,
            head=head,
            machine_id=run.machine_id,
            findings=findings,
        )


def _findings(report: GateReport) -> Iterator[GateFinding]:
    alpha = report.policy.alpha
    for timed in report.comparisons:
        one = timed.estimate
        ratio = None if one is None else GateRatio(ratio=one.ratio, low=one.low, high=one.high, alpha=alpha)
        yield _finding(timed, WALL_TIME, ratio)
    for exact in report.exact:
        value = exact.ratio
        ratio = None if value is None else GateRatio(ratio=value, low=value, high=value, alpha=0.0)
        yield _finding(exact, exact.metric, ratio)


def _finding(found: Comparison | ExactComparison, metric: Metric, ratio: GateRatio | None) -> GateFinding:
    accepted = f"accepted: {found.accepted}" if found.accepted else None
    return GateFinding(
        benchmark=found.benchmark.name,
        metric=metric,
        verdict=found.verdict,
        gating=found.gating,
        ratio=ratio,
        message=accepted or found.message,
    )


def _kept_verdicts(kept: Ledger) -> dict[str, tuple[str, str, tuple[GateFinding, ...]]]:
    """Return base, head and findings of each gate from its rows, without recomputing."""
    found: dict[str, tuple[str, str, tuple[GateFinding, ...]]] = {}
    for run_id, benchmark, metric, unit, exact, verdict, gating, *commits in kept.ask(_KEPT_VERDICTS):
        base, head, findings = found.get(run_id, ("", "", ()))
        finding = GateFinding(
            benchmark=benchmark,
            metric=Metric(name=metric, unit=unit, exact=exact),
            verdict=verdict,
            gating=gating == "true",
            message=f"`perfkit ledger judge {shown_run_id(run_id)}` shows by how much",
        )
        found[run_id] = (commits[0] or base, commits[1] or head, (*findings, finding))
    return found


class _Shelf:
    """The files that are copied into a site, by their places in it."""

    def __init__(self, project: Project) -> None:
        self._root = project.root.resolve()
        self.files: dict[str, Path] = {}

    def place(self, file: Path) -> str | None:
        """Return where a file will be in the site, None for one that is too large or of another kind."""
        if file.suffix not in _COPIED or not file.is_file() or file.stat().st_size > _LARGEST_COPY:
            return None
        inside = file.resolve()
        path = inside.relative_to(self._root) if inside.is_relative_to(self._root) else Path(file.name)
        # Browsers show a text, but store a file in markdown.
        place = PurePosixPath("files", *path.parts).as_posix() + (".txt" if file.suffix == ".md" else "")
        self.files[place] = file
        return place


def _profile(project: Project, summary: ProfileSummary, shelf: _Shelf) -> ProfileEntryPoint:
    folder = project.path(project.config.profiles)
    places = {name: shelf.place(folder / Path(name).name) for name in summary.artifacts}
    return ProfileEntryPoint(
        summary=summary, links={name: place for name, place in places.items() if place is not None}
    )


def _documents(project: Project, shelf: _Shelf) -> Iterator[Document]:
    files = {file for pattern in project.config.report.documents for file in project.root.glob(pattern)}
    for file in sorted(files):
        place = shelf.place(file)
        if place is not None:
            yield Document(
                title=_title_of(file),
                kind=_kind_of(file),
                link=place,
                picture=shelf.place(file.with_suffix(".svg")) if file.suffix != ".svg" else None,
            )


def _kind_of(file: Path) -> DocumentKind:
    if file.suffix == ".html":
        return "explanation"
    return "experiment" if {"experiments", "tricks"} & set(file.parts) else "document"


def _title_of(file: Path) -> str:
    """Return the first heading of a document, or its title as a page, or its name."""
    text = file.read_text(encoding="utf-8", errors="replace")[:20_000]
    found = re.search(r"^#\s+(.+)$|<title>(.*?)</title>", text, re.MULTILINE)
    return next((part.strip() for part in found.groups() if part), file.name) if found else file.name


def _check_folder(folder: Path, *, option: str) -> None:
    """Refuse a folder that holds what perfkit did not write: a report would mix with it."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder; choose another with {option}")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _LIST).is_file():
        raise UsageError(
            f"{folder} holds files that `perfkit report` did not write;"
            f" empty it or choose another with {option}"
        )


def _write(folder: Path, files: Iterable[tuple[str, str | Path]]) -> WrittenFiles:
    """Write what differs, then remove what an earlier report wrote and this one has not."""
    names: list[str] = []
    changed: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = _listed(folder)
        # While files are written the list has both, so that a report that is cut off leaves none unknown.
        with (folder / _LIST).open("a", encoding="utf-8") as listed:
            for name, content in files:
                if name not in before:
                    listed.write(f"{name}\n")
                    listed.flush()
                names.append(name)
                changed += filter(None, [_put(folder / name, content)])
        gone = before - set(names)
        for name in sorted(gone):
            (folder / name).unlink(missing_ok=True)
        of_list = _put(folder / _LIST, "".join(f"{name}\n" for name in sorted(names)))
        keep_reports(filter(None, [*changed, of_list]))
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or folder} ({error.strerror or error}); make room or make it"
            " writable, or choose another folder with --out"
        ) from error
    return WrittenFiles(folder=folder, files=len(names), changed=len(changed), removed=len(gone))


def _listed(folder: Path) -> set[str]:
    """Return the files that an earlier report wrote; a name that leads out of the folder is not one."""
    file = folder / _LIST
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {line for line in lines if line and not {"..", ""} & set(line.split("/"))}


def _put(file: Path, content: str | Path) -> str | None:
    """Replace a file by a complete new one and return its digest, None where it is the same."""
    data = content.encode("utf-8") if isinstance(content, str) else content.read_bytes()
    if file.is_file() and file.read_bytes() == data:
        return None
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return digest_of(data)
