"""What a running training spends its time in, as its stacks show it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from perfkit.cli import options
from perfkit.cli.output import emit, stages
from perfkit.features.watch.stacks import OWN, WAITING, Stack, Watched
from perfkit.model.readings import DATA, RANKS
from perfkit.report.names import Folded, named_table, spaced
from perfkit.units import counted, human_percent

_MOST_LINES, _MOST_OF_WORKERS = 10, 3
# No process hangs that keeps half a core busy, or that was seen less often.
_BUSY, _FEWEST_SAMPLES = 0.5, 50
_MOST_OF, _SHOWN = 0.9, 0.005
_WAITS = {DATA: "waits for the loader", RANKS: "waits for other ranks", WAITING: "waits"}


@dataclass(frozen=True, kw_only=True)
class WatchLine:
    """A line, the part of a step that it is in, and its share of the time of ``who``.

    ``who`` is "training" or "loader workers", and a process and thread where the training hangs.
    """

    who: str
    part: str
    place: str
    function: str
    text: str
    share: float


@dataclass(frozen=True, kw_only=True)
class WatchReport:
    """Where a running training spends its time; ``parts`` are shares, largest first.

    A training ``hangs`` if no stack or own variable of its processes and its loaders' workers changed, and it
    used next to no CPU. ``lines`` are then of all threads.
    """

    pid: int
    verdict: str
    seconds: float
    samples: int
    processes: int
    workers: int
    hangs: bool
    parts: dict[str, float]
    lines: tuple[WatchLine, ...]
    next: str


def report_of(found: Watched) -> WatchReport:
    """Return what the stacks of a training show."""
    threads: defaultdict[tuple[int, str], list[Stack]] = defaultdict(list)
    for one in found.stacks:
        threads[one.pid, one.thread].append(one)
    workers = {one.pid for one in found.stacks if one.is_worker}
    training = _training_threads(threads, workers, found)
    of_workers = [key for key in threads if key[0] in workers and threads[key][0].is_main]
    hangs = all(_is_stuck(threads[key], found) for key in (*training, *of_workers))
    taken = [one for key in training for one in threads[key]]
    total = sum(one.count for one in taken)
    parts: Counter[str] = Counter()
    for one in taken:
        parts[one.part] += one.count
    if hangs:
        # What waits for another rank or a worker hangs because that one does.
        first = sorted((*training, *of_workers), key=lambda key: threads[key][0].part in (DATA, RANKS))
        lines = [
            _lines(threads[key], " ".join(map(str, key)))[0] for key in dict.fromkeys((*first, *threads))
        ]
        function = threads[first[0]][0].frames[0].partition(" (")[0]
        verdict = f"hangs in {function} for {found.seconds:.0f} s ({lines[0].place})"
        command = f"py-spy dump --locals --pid {first[0][0]}"
    else:
        few = _lines([one for key in of_workers for one in threads[key]], "loader workers")
        lines = (
            _lines(taken, "training")[: _MOST_LINES - len(few[:_MOST_OF_WORKERS])] + few[:_MOST_OF_WORKERS]
        )
        part, count = parts.most_common(1)[0]
        most = next(one for one in lines if one.part == part)
        share = f"{human_percent(count / total)} of the time"
        alone = f" alone {human_percent(most.share)}" if most.share < _MOST_OF * count / total else ""
        verb = f"{_WAITS[part]} {share}" if part in _WAITS else f"spends {share} in {part}"
        verdict = f"{verb} ({most.place}{alone})"
        command = _next([pid for pid, _ in training], found.pid)
    return WatchReport(
        pid=found.pid,
        verdict=verdict,
        seconds=found.seconds,
        samples=total,
        processes=len(training),
        workers=len(workers),
        hangs=hangs,
        parts={part: count / total for part, count in parts.most_common()},
        lines=tuple(lines[:_MOST_LINES]),
        next=command,
    )


def _training_threads(
    threads: dict[tuple[int, str], list[Stack]], workers: set[int], found: Watched
) -> list[tuple[int, str]]:
    """Return the thread of each process that trains: no loader's worker, and no parent that only waits."""

    def rank(key: tuple[int, str]) -> tuple[int, bool]:
        own = [one for one in threads[key] if one.line and one.part not in (OWN, WAITING)]
        return sum(one.count for one in own), threads[key][0].is_main

    best: dict[int, tuple[int, str]] = {}
    for key, stacks in threads.items():
        if key[0] not in workers and any(one.line for one in stacks):
            best[key[0]] = max(best.get(key[0], key), key, key=rank)
    in_steps = [key for key in best.values() if rank(key)[0]]
    if any(not _is_stuck(threads[key], found) for key in in_steps):
        return in_steps
    others = [key for key in best.values() if key[0] != found.pid or key in in_steps]
    return others or list(best.values()) or [max(threads, key=lambda key: (key[0] == found.pid, *rank(key)))]


def _is_stuck(stacks: Sequence[Stack], found: Watched) -> bool:
    return (
        len({one.frames for one in stacks}) == 1
        and stacks[0].pid not in found.moved
        and sum(one.count for one in stacks) >= _FEWEST_SAMPLES
        and found.cpu_s.get(stacks[0].pid, 0.0) < _BUSY * found.seconds
    )


def _lines(stacks: Sequence[Stack], who: str) -> list[WatchLine]:
    """Return the lines of stacks, the one with the largest share first."""
    by_line: defaultdict[tuple[str, str], list[Stack]] = defaultdict(list)
    for one in stacks:
        by_line[one.part, one.line.place if one.line else one.frames[0] if one.frames else ""].append(one)
    total = sum(one.count for one in stacks)
    return sorted((_line(found, who, total) for found in by_line.values()), key=lambda one: -one.share)


def _line(stacks: Sequence[Stack], who: str, total: int) -> WatchLine:
    most = max(stacks, key=lambda one: one.count)
    function, _, file = (most.frames[0] if most.frames else "").removesuffix(")").partition(" (")
    return WatchLine(
        who=who,
        part=most.part,
        place=most.line.place if most.line else file,
        function=most.line.function if most.line else function,
        text=most.line.text if most.line else "",
        share=sum(one.count for one in stacks) / total,
    )


def _next(ranks: Sequence[int], root: int) -> str:
    """Return the command that looks closer: at the script, where a command line shows it."""
    for pid in (ranks[0], root):
        with contextlib.suppress(OSError):
            words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[1:-1]
            at = next((at for at, word in enumerate(words) if not word.startswith("-")), 0)
            if words[at:] and words[at].endswith(".py"):
                script = str(Path(f"/proc/{pid}/cwd").resolve() / words[at]).removeprefix(f"{Path.cwd()}/")
                given = shlex.join([script, *(["--", *words[at + 1 :]] if words[at + 1 :] else [])])
                several = f"profile --ranks {len(ranks)}" if pid != root and len(ranks) > 1 else "why"
                return f"perfkit {several} {given}"
    return f"py-spy record --output flames.svg --duration 60 --subprocesses --pid {root}"


def watch_view(report: WatchReport) -> Group:
    """Return the verdict, the parts of the time, the lines and the next command."""
    parts = ", ".join(
        f"{part} {100 * share:.0f} %" for part, share in report.parts.items() if share >= _SHOWN
    )
    ranks = f", {report.processes} ranks" if report.processes > 1 else ""
    workers = f", {counted(report.workers, 'loader worker')}" if report.workers else ""
    head = f"{report.seconds:.0f} s, {report.samples:,} samples{ranks}{workers}: {parts}"
    table = named_table("line", "part", "share")
    for one in report.lines:
        who = "" if one.who == "training" else f"{one.who}: "
        table.add_row(
            Text(f"{who}{one.place} in {one.function}: {one.text}"), one.part, human_percent(one.share)
        )
    pasted = Text(f"next: {report.next}", no_wrap=True, overflow="ignore")
    return Group(spaced(Group(Folded(report.verdict, style="bold"), Folded(head)), table), pasted)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=options.examples("perfkit watch 4711", "perfkit watch 4711 --for 5min"))(watch)


def watch(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The process of the training, or its launcher.")],
    *,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help='How long to sample, "90s" or "5min".')
    ] = "60s",
    json: options.JsonOption = None,
) -> None:
    """Show which lines a running training spends its time in, and whether it hangs, without changing it.

    Ranks and loader workers that the process started are watched, too. Ctrl-C ends the sampling early.
    """
    from perfkit.config import parse_duration
    from perfkit.features.watch.stacks import sampled

    seconds = parse_duration(duration, key="--for")
    with stages() as progress:
        found = sampled(pid, max(1, round(seconds)), progress)
    report = report_of(found)
    emit(watch_view(report), report, json=json, verdict=report.verdict)
