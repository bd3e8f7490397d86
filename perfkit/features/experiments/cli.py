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
        "perfkit experiment run train.py --factor amp=off,bf16 --measure accuracy -- --epochs 1",
        "perfkit experiment run precision.toml --factor batch_size=1,2 --budget 20min",
        "perfkit experiment run precision.toml --json - | jq .trials",
    ),
)
def run_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml|SCRIPT.py", help="What is varied, or a script to vary.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENTS]", help="What a script gets in every variant."),
    ] = None,
    *,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVEL,LEVEL…",
            help="Vary this too, or at these levels; may be given often. Of a script: its own option, or a"
            " trick that is applied from outside, such as amp=off,bf16.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,NAME…",
            help='Also numbers that a script prints behind their names, as in "accuracy: 0.91", or at'
            " NAME=EXPRESSION. Times and memory are always measured.",
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
    """Run the experiment of a file, or vary options of a script. Stopped, the same command goes on.

    Exit code: 0 every main effect decided, 3 one undecided, 4 a variant failed or did not do what its name
    promises.
    """
    from perfkit.config import parse_duration
    from perfkit.features.experiments.command import fitting_sizes, run_experiment
    from perfkit.features.experiments.definition import (
        checked,
        define,
        definition_text,
        parse_level,
        read_experiment,
        script_document,
        wanted_numbers,
        with_levels,
    )
    from perfkit.features.experiments.effects import exit_code_of

    texts = factor or []
    is_script = file.suffix == ".py"
    # A script's batch sizes and workers can go without levels.
    bare = {text.replace("-", "_"): None for text in texts if is_script and "=" not in text}
    varied = dict(assignment(text, "--factor") for text in texts if text.replace("-", "_") not in bare)
    values = dict(assignment(text, "--set") for text in fixed or ())
    numbers = wanted_numbers(measure or ())
    project = project_in(repo)
    doubled = None
    if is_script:
        document, doubled = script_document(
            file, root=project.root, command_line=arguments or (), factors={**varied, **bare}, fixed=values
        )
        experiment = define(document, place=str(file), name=file.stem)
    else:
        experiment = with_levels(
            read_experiment(file),
            {name: tuple(map(parse_level, levels.split(","))) for name, levels in varied.items()},
            {name: parse_level(value) for name, value in values.items()},
        )
    changes = {
        "blocks": blocks,
        "budget_s": None if budget is None else parse_duration(budget, key="--budget"),
        "margin": margin_share(margin),
        "seed": seed,
        "command_line": tuple(arguments) if arguments else None,
        "returned": {**experiment.returned, **numbers},
    }
    given = {name: value for name, value in changes.items() if value is not None}
    changed = checked(replace(experiment, **given), place=experiment.name)  # type: ignore[arg-type]
    need("torch", by="perfkit experiment")
    place = ledger_at(ledger or project.ledger_place)
    fitting = None
    if doubled is not None:
        with stages() as progress:
            fitting = fitting_sizes(changed, doubled, project=project, progress=progress, wait_s=wait)
        changed = with_levels(changed, {doubled: fitting.levels}, {})
    if is_script:
        log(f"# this experiment as a file\n{definition_text(changed)}\n", to_json=json)
    with stages() as progress:
        measured = run_experiment(changed, project=project, ledger=place, progress=progress, wait_s=wait)
    _report(measured, markdown, json)
    if fitting is not None:
        log(fitting.sentence, to_json=json)
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
