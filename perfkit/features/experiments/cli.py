"""``perfkit experiment``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.options import (
    DocumentOption,
    JsonOption,
    LedgerOption,
    MarginOption,
    RepoOption,
    SetOption,
    WaitOption,
    assignment,
    examples,
    ledger_at,
    margin_share,
    project_in,
    seed_option,
)
from perfkit.cli.output import emit, log, stages
from perfkit.errors import UsageError
from perfkit.extras import need

if TYPE_CHECKING:
    from perfkit.features.experiments.command import Measured

_experiment = typer.Typer(
    no_args_is_help=True,
    help="Compare variants of one training: every variant in a fresh process, once in every block.",
    epilog=examples(
        "perfkit experiment run precision.toml --budget 10min",
        "perfkit experiment show 0199c2",
    ),
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(_experiment, name="experiment")


@_experiment.command(
    "run",
    epilog=examples(
        "perfkit experiment run precision.toml",
        "perfkit experiment run precision.toml --factor batch_size=1,2 --budget 20min",
        "perfkit experiment run precision.toml --json - | jq .trials",
    ),
)
def run_(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="What is varied, of which target.")],
    *,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVEL,LEVEL…", help="Vary this too, or at these levels; may be given often."
        ),
    ] = None,
    fixed: SetOption = None,
    blocks: Annotated[
        int | None, typer.Option(metavar="N", help="The most blocks (default: the experiment's own).")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='No block is begun after it, "90s" or "5min" (default: its own).'),
    ] = None,
    margin: MarginOption = None,
    seed: Annotated[int | None, seed_option("Draws the order in blocks, and their seeds.")] = None,
    wait: WaitOption = None,
    repo: RepoOption = None,
    ledger: LedgerOption = None,
    markdown: DocumentOption = None,
    json: JsonOption = None,
) -> None:
    """Run the experiment that a file defines. Stopped, the same command goes on.

    Exit code: 0 every main effect decided, 3 one undecided, 4 a variant failed or did not do what its name
    promises.
    """
    from perfkit.config import parse_duration
    from perfkit.features.experiments.command import run_experiment
    from perfkit.features.experiments.definition import (
        checked,
        parse_level,
        read_experiment,
        with_levels,
    )
    from perfkit.features.experiments.effects import exit_code_of

    experiment = read_experiment(file)
    varied = dict(assignment(text, "--factor") for text in factor or ())
    values = dict(assignment(text, "--set") for text in fixed or ())
    changes = {
        "blocks": blocks,
        "budget_s": None if budget is None else parse_duration(budget, key="--budget"),
        "margin": margin_share(margin),
        "seed": seed,
    }
    changed = with_levels(
        experiment,
        {name: tuple(map(parse_level, levels.split(","))) for name, levels in varied.items()},
        {name: parse_level(value) for name, value in values.items()},
    )
    given = {name: value for name, value in changes.items() if value is not None}
    changed = checked(replace(changed, **given), place=experiment.name)  # type: ignore[arg-type]
    need("torch", by="perfkit experiment")
    project = project_in(repo)
    place = ledger_at(ledger or project.ledger_place)
    with stages() as progress:
        measured = run_experiment(changed, project=project, ledger=place, progress=progress, wait_s=wait)
    _report(measured, markdown, json)
    sys.exit(exit_code_of(measured.record))


@_experiment.command(
    "show",
    epilog=examples(
        "perfkit experiment show 0199c2",
        "perfkit experiment show 0199c2 --markdown docs/experiments/precision.md",
    ),
)
def show_(
    run: Annotated[str, typer.Argument(help="The beginning or the end of its run's id.")],
    *,
    ledger: LedgerOption = None,
    markdown: DocumentOption = None,
    json: JsonOption = None,
) -> None:
    """Show an experiment of the ledger again; nothing is measured."""
    from perfkit.config import load_project
    from perfkit.features.experiments.command import recorded_experiment

    place = ledger_at(ledger or load_project(Path.cwd()).ledger_place, to_read=True)
    _report(recorded_experiment(run, ledger=place), markdown, json)


@_experiment.command(
    "precision", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
@_experiment.command(
    "augmentation", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def moved(context: typer.Context) -> None:
    """Name the file that took the place of a former command."""
    raise UsageError(
        "this is a file of perfkit's repository; "
        f"`perfkit experiment run benchmarks/experiments/{context.info_name}.toml`"
    )


def _report(measured: Measured, markdown: Path | None, json: str | None) -> None:
    from perfkit.features.experiments.command import write_document
    from perfkit.features.experiments.report import experiment_view
    from perfkit.features.experiments.summary import head_lines
    from perfkit.report.gate.wording import after_waiting

    def write() -> None:
        if measured.waited_s:
            log(f"measured{after_waiting(measured.waited_s)}", to_json=json)
        if markdown is not None:
            write_document(measured, markdown)

    emit(
        experiment_view(measured.record),
        measured.record,
        json=json,
        verdict=": ".join(head_lines(measured.record)),
        then=(write,),
        unrecorded=measured.unrecorded,
    )
