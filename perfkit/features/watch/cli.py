"""``perfkit watch``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages


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
    from perfkit.features.watch.report import report_of, watch_view
    from perfkit.features.watch.stacks import sampled

    seconds = parse_duration(duration, key="--for")
    with stages() as progress:
        found = sampled(pid, max(1, round(seconds)), progress)
    report = report_of(found)
    emit(watch_view(report), report, json=json, verdict=report.verdict)
