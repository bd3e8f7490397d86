"""What a profile taught, as text that fits a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from perfkit.records import PassSummary, ProfileEntry, ProfileSummary
from perfkit.units import counted, human_percent, human_seconds

_COLUMNS = 80
_ENTRIES = 8
_NAME_COLUMNS = 43
_WORTH_TELLING = 0.001
_FEW_STEPS = 3
_FASTER_THAN_CLEAN = 0.9
_PASS_TITLES = {"clean": "clean", "cprofile": "cProfile", "torch": "torch", "lines": "lines"}


def render_report(summary: ProfileSummary, *, folder: Path = Path()) -> str:
    """Return times, passes, the largest entries, warnings, and what to type next.

    ``folder`` is where the artifacts are, as the reader would type it.
    """
    sections = (
        _headline(summary),
        _passes(summary),
        *_entry_tables(summary),
        "\n".join(_wrapped(f"warning: {warning}") for warning in warnings(summary)),
        _files(summary, folder),
        _next_commands(summary, folder),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def warnings(summary: ProfileSummary) -> list[str]:
    """Return what keeps the numbers from meaning what they seem to mean."""
    return list(_warnings(summary))


def waiting_share(summary: ProfileSummary) -> float | None:
    """Return the part of the whole time spent waiting for data: 1.0 is all of it, None is not known."""
    main = summary.main_pass
    return None if main.data_wait_s is None or not main.total_s else main.data_wait_s / main.total_s


def _headline(summary: ProfileSummary) -> str:
    main = summary.main_pass
    lines = [
        f"{summary.target}: {human_seconds(main.total_s)} in all, {counted(main.steps, 'optimizer step')}"
    ]
    if main.step_s:
        lines.append(f"  time per step     {human_seconds(main.typical_step_s)}  ({_basis(main)})")
    if main.sample_s is not None:
        rate = f"{1 / main.sample_s:.0f} samples/s, {main.samples} samples"
        lines.append(f"  time per sample   {human_seconds(main.sample_s)}  ({rate})")
    if main.data_wait_s is not None:
        lines.append(f"  waiting for data  {human_seconds(main.data_wait_s)}  ({_waiting(summary)})")
    return "\n".join(lines)


def _basis(main: PassSummary) -> str:
    used = len(main.typical_steps)
    left_out = ", the first left out for its set-up" if used < main.steps else ""
    return f"median of {used}{left_out}" if used > 1 else "the only one, with the set-up in it"


def _waiting(summary: ProfileSummary) -> str:
    workers = summary.main_pass.data_workers
    how = "loaded in the process itself" if not workers else f"with {counted(workers, 'worker')}"
    return f"{human_percent(waiting_share(summary))} of the total; {how}"


def _passes(summary: ProfileSummary) -> str:
    head = f"{'pass':<10}{'steps':>7}{'total':>11}{'per step':>11}   profiled / clean"
    return "\n".join((head, *(_pass_line(summary, found) for found in summary.passes)))


def _pass_line(summary: ProfileSummary, found: PassSummary) -> str:
    ratio = summary.distortion(found.name)
    distortion = f"{ratio:.2f}" if ratio is not None else "-"
    return (
        f"{_PASS_TITLES[found.name]:<10}{found.steps:>7}{human_seconds(found.total_s):>11}"
        f"{human_seconds(found.typical_step_s):>11}   {distortion}"
    )


def _entry_tables(summary: ProfileSummary) -> Iterator[str]:
    """Yield the tables of a cProfile: waiting, own code by both times, library code by its own time."""
    own = [entry for entry in summary.entries if entry.kind == "own"]
    library = [entry for entry in summary.entries if entry.kind == "library"]
    waits = [entry for entry in summary.entries if _is_data_wait(entry)]
    profiled = summary.pass_named("cprofile")
    if profiled is None:
        return
    total_s = profiled.total_s
    yield f"in the cProfile pass ({human_seconds(total_s)}):"
    yield _table("waiting for data, by cumulative time", sorted(waits, key=_cumulative), total_s)
    yield _table("own code, by cumulative time", sorted(own, key=_cumulative), total_s)
    yield _table("own code, by own time", sorted(own, key=_own), total_s)
    yield _table("library code, by own time", sorted(library, key=_own), total_s)


def _is_data_wait(entry: ProfileEntry) -> bool:
    return entry.kind == "wait" and entry.function == "__next__"


def _cumulative(entry: ProfileEntry) -> float:
    return -entry.cumulative_s


def _own(entry: ProfileEntry) -> float:
    return -entry.own_s


def _table(title: str, entries: Sequence[ProfileEntry], total_s: float) -> str:
    """Return the first entries under a title, with shares of the whole cProfile pass."""
    if not entries:
        return ""
    head = f"{title:<{_NAME_COLUMNS}}{'calls':>8}{'own':>9}{'cumulative':>11}{'share':>9}"
    seconds = attrgetter("own_s" if title.endswith("by own time") else "cumulative_s")
    shown = [entry for entry in entries[:_ENTRIES] if seconds(entry) >= _WORTH_TELLING * total_s]
    lines = [_entry_line(entry, seconds(entry) / total_s if total_s else None) for entry in shown]
    return "\n".join((head, *(lines or [f"  nothing above {human_percent(_WORTH_TELLING)}"])))


def _entry_line(entry: ProfileEntry, share: float | None) -> str:
    return (
        f"  {_shortened(_entry_name(entry)):<{_NAME_COLUMNS - 2}}{entry.calls:>8}"
        f"{human_seconds(entry.own_s):>9}{human_seconds(entry.cumulative_s):>11}{human_percent(share):>9}"
    )


def _entry_name(entry: ProfileEntry) -> str:
    if entry.line == 0:
        return entry.function
    return f"{entry.function}  {entry.file}:{entry.line}"


def _shortened(name: str) -> str:
    """Return a name that fits its column: its beginning, and the end of its path."""
    room = _NAME_COLUMNS - 3
    if len(name) <= room:
        return name
    head, gap, tail = name.partition("  ")
    kept = room - len(head) - len(gap) - 1
    return f"{head}{gap}…{tail[-kept:]}" if gap and kept > 0 else f"{name[: room - 1]}…"


def _warnings(summary: ProfileSummary) -> Iterator[str]:
    main = summary.main_pass
    if main.name != "clean":
        yield f"no clean pass was made: all times above carry the cost of {_PASS_TITLES[main.name]}"
    if main.steps == 0:
        yield "no optimizer step was seen in this process: there is no time per step"
    elif main.steps < _FEW_STEPS:
        yield (
            f"only {counted(main.steps, 'step')}, the set-up in the first: totals of profiles with different"
            " numbers of steps are not comparable"
        )
    if any((summary.distortion(found.name) or 1.0) < _FASTER_THAN_CLEAN for found in summary.passes):
        yield "a profiled pass was faster than the clean one: the machine was busy; measure again"
    if summary.commit is not None and summary.commit.dirty:
        yield "tracked files differ from the commit this is filed under"
    if summary.commit is None:
        yield "not filed under a commit"


def _files(summary: ProfileSummary, folder: Path) -> str:
    return "\n".join(("files", *(f"  {folder / name}" for name in summary.artifacts)))


def _next_commands(summary: ProfileSummary, folder: Path) -> str:
    lines = []
    for name in summary.artifacts:
        if name.endswith(".stat"):
            lines.append(f"  snakeviz {folder / name}             (in the browser)")
            lines.append(f"  python -m pstats {folder / name}     (in the terminal)")
        if name.endswith(".trace.json.gz"):
            lines.append(f"  open {folder / name} at https://ui.perfetto.dev")
    return "\n".join(("look further", *lines)) if lines else ""


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=_COLUMNS, subsequent_indent="  ")
