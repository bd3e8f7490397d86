"""``perfkit why``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from perfkit.cli import options
from perfkit.cli.output import emit
from perfkit.errors import RunInterruptedError
from perfkit.extras import need
from perfkit.report.names import Folded, named_table, spaced
from perfkit.units import human_bytes, human_percent, human_seconds

if TYPE_CHECKING:
    from perfkit.features.why.causes import WhyCause, WhyReport
    from perfkit.model import RatioInterval

_MOST_CAUSES = 4
_MOST_PARTS = 4
_MORE = "A change may save more than its line takes: the rest of a step then finds its data in the caches."


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit why train.py",
            "perfkit why package.module:function --steps 300",
            "perfkit why train.py --try -- --epochs 1",
        )
    )(why)


def why(
    target: Annotated[
        str,
        typer.Argument(
            help='A configured name, "package.module:function", a script, a module for `python -m`, or a'
            " notebook."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="What the target finds in sys.argv.")
    ] = None,
    *,
    steps: Annotated[int | None, typer.Option(help="Sample this many steps, not 20 seconds of them.")] = None,
    tries: Annotated[
        bool,
        typer.Option("--try", help="Try the first change side by side, where it can be made from outside."),
    ] = False,
    wait: options.WaitOption = None,
    json: options.JsonOption = None,
) -> None:
    """Name what slows a training loop, by file and line, and what the next change would give.

    The loop is run three times, sampled, counted and with its memory watched, which takes about a minute.
    """
    need("torch", by="perfkit why")
    from perfkit.config import load_project
    from perfkit.features.why.causes import INTERRUPTED, find_causes
    from perfkit.report.progress import PassProgress

    project = load_project(Path.cwd())
    with PassProgress(enabled=not options.is_quiet()) as progress:
        report = find_causes(
            target, arguments or (), project=project, steps=steps, wait_s=wait, tries=tries, progress=progress
        )
    failure = RunInterruptedError(INTERRUPTED) if report.not_seen == INTERRUPTED else None
    view = why_view(report, arguments or ())
    emit(view, report, json=json, verdict=report.verdict, failure=failure)


def why_view(report: WhyReport, arguments: Sequence[str] = ()) -> Group:
    """Return the verdict, the time of a step, the causes with their gains, and the next command."""
    from perfkit.features.why.causes import INTERRUPTED

    likely = report.causes[0].gain[1] if report.causes else 0.0
    after = f"; with the first change about {human_seconds((1 - likely) * report.step_s)}" if likely else ""
    step = f"a step takes {human_seconds(report.step_s)} (mean of {report.steps})"
    parts = [f"{name} {100 * share:.0f} %" for name, share in list(report.shares.items())[:_MOST_PARTS]]
    head = Group(Folded(report.verdict, style="bold"), Folded(f"{step}: {', '.join(parts)}{after}"))
    lost = report.not_seen
    if lost and lost != INTERRUPTED:
        lost = f"not seen: {lost}"
    given = shlex.join([report.target, *(("--", *arguments) if arguments else ())])
    tried = None if report.tried is None else Folded(_tried(report.tried))
    shown = report.causes[:_MOST_CAUSES]
    return spaced(
        head,
        *(_cause(one, report) for one in shown),
        Folded(_MORE) if any(one.gain[1] * report.step_s > one.part_s for one in shown) else None,
        tried,
        Folded(f"warning: {lost}", style="yellow") if lost else None,
        Text(f"next: {_next(report, given)}"),
    )


def _cause(cause: WhyCause, report: WhyReport) -> Group:
    low, likely, high = cause.gain
    table = named_table(cause.place or cause.name, "part of a step", "change saves", "90 % interval")
    interval = f"{100 * low:.0f} to {human_percent(high)}"
    part = f"{human_seconds(cause.part_s)}, {human_percent(cause.part_s / report.step_s)}"
    row = (part, human_percent(likely), interval) if likely else ("-", "-", "-")
    table.add_row(Text(cause.text or cause.name), *row)
    grown = f", and {human_bytes(round(cause.bytes))} more stay after each" if cause.bytes and likely else ""
    what = [] if cause.what == report.verdict and not grown else [Folded(f"{cause.what}{grown}")]
    return Group(table, *what, Folded(f"change: {cause.change}"))


def _tried(found: RatioInterval) -> str:
    low, likely, high = (100 * (one - 1) for one in (found.low, found.ratio, found.high))
    return (
        f"tried side by side: a step takes {likely:+.1f} % with the first change"
        f" ({low:+.1f} to {high:+.1f} %, {found.pairs} turns each)"
    )


def _next(report: WhyReport, given: str) -> str:
    if not report.causes:
        return f"perfkit tricks --apply-to {shlex.quote(report.target)}"
    if report.causes[0].trial and report.tried is None and not report.not_seen:
        return f"perfkit why --try {given}"
    return f"perfkit why {given}   (after the change)"
