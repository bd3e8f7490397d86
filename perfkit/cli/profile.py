"""``perfkit profile``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from perfkit.cli.options import JsonOption, LedgerOption, WaitOption, examples, is_quiet, ledger_at
from perfkit.cli.output import tell

if TYPE_CHECKING:
    from perfkit.records import PassName


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit profile train --out first_profile.stat",
            "perfkit profile package.module:function --steps 20",
            "perfkit profile train.py --passes clean,cprofile -- --epochs 1 --lr 0.01",
            "perfkit profile train --lines auto",
            "perfkit profile train --lines package.losses:triplet_loss",
        )
    )(profile)


def profile(
    target: Annotated[str, typer.Argument(help='A configured name, "package.module:function", or a script.')],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="What the target finds in sys.argv.")
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="The .stat file; default: TARGET.stat among the profiles."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="End each pass after this many optimizer steps.")] = None,
    passes: Annotated[
        str, typer.Option(help="Which passes to make.")
    ] = "clean,balance,counts,cprofile,torch",
    lines: Annotated[
        list[str] | None,
        typer.Option(metavar="FUNCTION", help="Time package.module:function by line; auto: your slowest."),
    ] = None,
    trace_all: Annotated[
        bool, typer.Option("--trace-all", help="Trace every step, not a few after a warm-up.")
    ] = False,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Record nothing; works without git too.")
    ] = False,
    wait: WaitOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """Profile a training loop: its times, what a step is made of and counts, and two profilers' views.

    Each pass is a process of its own; only the clean pass gives times to the ledger.
    """
    from perfkit.config import load_project
    from perfkit.jobs.profile import ProfileRequest, run_profile
    from perfkit.views.console import console_on
    from perfkit.views.profile_report import WHOLE_COLUMNS, render_report

    project = load_project(Path.cwd())
    request = ProfileRequest(
        target=target,
        arguments=tuple(arguments or ()),
        out=out or project.path(project.config.profiles) / f"{Path(target.rpartition(':')[2]).stem}.stat",
        steps=steps,
        passes=cast(
            "tuple[PassName, ...]", tuple(name.strip() for name in passes.split(",") if name.strip())
        ),
        lines=tuple(lines or ()),
        trace_all=trace_all,
        wait_s=wait,
        progress=not is_quiet(),
        ledger=None if no_ledger else ledger_at(ledger or project.ledger_place),
    )
    summary = run_profile(request, project=project)
    columns = min(console_on(sys.stdout).width, WHOLE_COLUMNS)
    tell(render_report(summary, folder=request.out.parent, columns=columns), summary, json=json)
