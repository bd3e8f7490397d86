"""Writes the index of saved profiles as a markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfkit.model import ProfileSummary
from perfkit.report.markdown_table import cell_code, code, escape, table_head, table_row
from perfkit.report.profile_report import waiting_share
from perfkit.units import human_percent, human_seconds

_COLUMNS = (
    "Profile", "Date (UTC)", "Commit", "Target", "Steps",
    "Total", "Per step", "Per sample", "Waiting for data", "Files",
)  # fmt: skip
_SHA_DIGITS = 10
_TRACE = ".trace.json.gz"


def render_index(summaries: Sequence[ProfileSummary], *, damaged: Mapping[str, str] | None = None) -> str:
    """Return the table, oldest profile first; ``damaged`` maps names of unreadable files to the reason."""
    ordered = sorted(summaries, key=lambda summary: (summary.recorded_at, summary.name))
    rows = [*table_head(_COLUMNS), *(table_row(_cells(summary)) for summary in ordered)]
    unread = sorted((damaged or {}).items())
    notes = [f"- {code(name)} cannot be read: {escape(reason)}" for name, reason in unread]
    return "\n".join(rows + ([""] if notes else []) + notes)


def _cells(summary: ProfileSummary) -> list[str]:
    main = summary.main_pass
    return [
        escape(summary.name),
        f"{summary.recorded_at:%Y-%m-%d %H:%M}",
        _commit(summary),
        cell_code(" ".join((summary.target, *summary.arguments))),
        str(main.steps),
        human_seconds(main.total_s),
        human_seconds(main.typical_step_s),
        human_seconds(main.sample_s),
        human_percent(waiting_share(summary)),
        ", ".join(_file(name, summary.name) for name in summary.artifacts),
    ]


def _commit(summary: ProfileSummary) -> str:
    if summary.commit is None:
        return "-"
    return f"{summary.commit.sha[:_SHA_DIGITS]}{' (changed files)' if summary.commit.dirty else ''}"


def _file(file: str, name: str) -> str:
    """Return a link to an artifact, or the name of a trace, which is too large to be kept with the others."""
    kind = file.removeprefix(name).lstrip("._")
    return kind if file.endswith(_TRACE) else f"[{kind}]({file})"
