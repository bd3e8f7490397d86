"""``perfkit doctor`` and ``perfkit calibrate``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages

_DEFAULT_SLOWDOWN = "5%"
# Each gate of a calibration has a seed of its own, some 100,000 times as large.
_MOST_SEED = 2**46


def register(app: typer.Typer) -> None:
    """Add both verbs."""
    app.command(
        epilog=options.examples(
            "perfkit doctor",
            "perfkit doctor --margin 1% && perfkit gate --margin 1%",
            "perfkit doctor --seconds 60 --json doctor.json",
        )
    )(doctor)
    app.command(
        epilog=options.examples(
            "perfkit calibrate",
            "perfkit calibrate --gates 60 --plant 3% --plant 5% --margin 1%",
            "perfkit calibrate --select loss --gates 5 --json calibration.json",
            "perfkit calibrate --engine dask://scheduler:8786",
        )
    )(calibrate)


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
    from perfkit.commands.calibrate import run_doctor
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


def calibrate(
    *,
    gates: Annotated[
        int, typer.Option(metavar="N", help="A/A gates, and as many for each injected slowdown.")
    ] = 20,
    slowdowns: Annotated[
        list[str] | None,
        typer.Option(
            "--plant",
            metavar="PERCENT",
            help=f"An injected slowdown; may be given often ({_DEFAULT_SLOWDOWN}).",
        ),
    ] = None,
    benchmarks: options.BenchmarksOption = None,
    select: options.SelectOption = None,
    margin: options.MarginOption = None,
    alpha: options.AlphaOption = None,
    budget: Annotated[float | None, options.seconds_option("For each gate (default: as for a gate).")] = None,
    wait: options.WaitOption = None,
    repo: options.RepoOption = None,
    engine: options.EngineOption = "local",
    machine: options.MachineOption = None,
    clone: options.CloneOption = None,
    seed: Annotated[
        int, options.seed_option("Draws the order of gates, launches and sides.", most=_MOST_SEED)
    ] = 0,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            metavar="PLACE",
            help="Folder or URL of its own ledger (default: beside the project's).",
        ),
    ] = None,
    json: options.JsonOption = None,
) -> None:
    """Measure how often the gate errs and what it finds, on this machine and your own benchmarks.

    Runs gates of HEAD against itself, and with slowdowns injected into one benchmark after the other. If
    stopped, the same command continues. Exit code: 0 trusted, 1 errs more often than alpha, 3 leaves too much
    undecided.
    """
    from perfkit.commands.calibrate import CalibrateRequest, run_calibrate
    from perfkit.commands.tasks import EngineChoice
    from perfkit.config import parse_percent
    from perfkit.report.calibration import calibration_decision, calibration_view

    options.check_rates(alpha=alpha, budget=budget)
    project = options.project_in(repo)
    own = f"{str(project.ledger_place).rstrip('/')}-calibration"
    request = CalibrateRequest(
        gates=gates,
        slowdowns=tuple(parse_percent(text, key="--plant") for text in slowdowns or [_DEFAULT_SLOWDOWN]),
        benchmarks=benchmarks,
        select=select,
        margin=options.margin_share(margin),
        alpha=alpha,
        budget_s=budget,
        ledger=options.ledger_at(ledger or own),
        seed=seed,
        wait_s=wait,
        engine=EngineChoice(url=engine, machines=tuple(machine or ()), address=clone),
    )
    with stages() as progress:
        found = run_calibrate(request, project=project, progress=progress)
    emit(calibration_view(found), found, json=json, verdict=calibration_decision(found))
    sys.exit(found.exit_code)
