"""``perfkit doctor``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit doctor",
            "perfkit doctor --margin 1% && perfkit gate --margin 1%",
            "perfkit doctor --seconds 60 --json doctor.json",
        )
    )(doctor)


def doctor(
    *,
    margin: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="The margin to be fit for (default: as configured, 2%)."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to measure identical code.")] = 10.0,
    seed: Annotated[int, options.seed_option("Draws the order of launches and sides.")] = 0,
    wait: options.WaitOption = None,
    json: options.JsonOption = None,
) -> None:
    """Check how steady this machine is, and which changes a gate could detect on it.

    Makes A/A launches: identical code against itself. Exit code: 0 fit for the margin, 3 unfit.
    """
    from perfkit.commands.doctor import run_doctor
    from perfkit.errors import UsageError
    from perfkit.report.calibration import doctor_decision, doctor_view

    if not seconds > 0:
        raise UsageError(f"--seconds must be above zero, found {seconds:g}")
    share = options.margin_share(margin)
    with stages() as progress:
        fitness = run_doctor(
            margin=share,
            seconds=seconds,
            seed=seed,
            wait_s=wait,
            project=options.project_in(None),
            progress=progress,
        )
    emit(doctor_view(fitness), fitness, json=json, verdict=doctor_decision(fitness))
    sys.exit(fitness.exit_code)
