"""``perfkit experiment``."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY, dataclass, replace
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
from perfkit.cli.output import log, stages, tell
from perfkit.errors import UsageError
from perfkit.extras import need

if TYPE_CHECKING:
    from perfkit.features.experiments.command import Measured
    from perfkit.features.experiments.records import Experiment, Level

_experiment = typer.Typer(
    no_args_is_help=True,
    help="Compare variants of one training: every variant in a fresh process, once in every block.",
    epilog=examples(
        "perfkit experiment run precision.toml --budget 10min",
        "perfkit experiment show --markdown docs/experiments/precision.md",
    ),
)

FactorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--factor", metavar="NAME=LEVEL,LEVEL…", help="Vary this too, or at these levels; may be given often."
    ),
]
BlocksOption = Annotated[
    int | None, typer.Option(metavar="N", help="The most blocks (default: as the experiment says).")
]
BudgetOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help='No block is begun after it, "90s" or "5min" (default: as it says).'),
]
SeedOption = Annotated[int | None, seed_option("Draws the order in blocks, and their seeds.")]

# Whatever followed the former command's name.
_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


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
    factor: FactorOption = None,
    fixed: SetOption = None,
    blocks: BlocksOption = None,
    budget: BudgetOption = None,
    margin: MarginOption = None,
    seed: SeedOption = None,
    wait: WaitOption = None,
    repo: RepoOption = None,
    ledger: LedgerOption = None,
    markdown: DocumentOption = None,
    json: JsonOption = None,
) -> None:
    """Run the experiment that a file defines. Stopped, the same command goes on.

    Exit code: 0 every main effect decided, 3 one undecided, 4 a variant failed or did not do what its name
    says.
    """
    from perfkit.features.experiments.definition import read_experiment

    changes = _Changes(factor, fixed, blocks=blocks, budget=budget, margin=margin, seed=seed)
    _run(changes.made_to(read_experiment(file)), repo, ledger, markdown, json, wait_s=wait)


def _moved(kind: str) -> None:
    """Name the file that took the place of a former command."""

    @_experiment.command(kind, hidden=True, context_settings=_ANY_ARGUMENTS)
    def command() -> None:
        raise UsageError(
            f"this is a file of perfkit's repository; "
            f"`perfkit experiment run benchmarks/experiments/{kind}.toml`"
        )


for _kind in ("precision", "augmentation"):
    _moved(_kind)


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
    _tell(recorded_experiment(run, ledger=place), markdown, json)


def _run(
    experiment: Experiment,
    repo: Path | None,
    ledger: str | None,
    markdown: Path | None,
    json: str | None,
    *,
    wait_s: float | None,
) -> None:
    from perfkit.features.experiments.command import run_experiment
    from perfkit.features.experiments.effects import exit_code_of

    need("torch", by="perfkit experiment")
    project = project_in(repo)
    place = ledger_at(ledger or project.ledger_place)
    with stages() as progress:
        measured = run_experiment(experiment, project=project, ledger=place, progress=progress, wait_s=wait_s)
    _tell(measured, markdown, json)
    sys.exit(exit_code_of(measured.record))


def _tell(measured: Measured, markdown: Path | None, json: str | None) -> None:
    from perfkit.features.experiments.command import write_document
    from perfkit.features.experiments.report.terminal import experiment_view
    from perfkit.features.experiments.report.wording import head_lines
    from perfkit.report.gate.wording import after_waiting

    def say_waited() -> None:
        if measured.waited_s:
            log(f"measured{after_waiting(measured.waited_s)}", to_json=json)

    def write() -> None:
        if markdown is not None:
            write_document(measured, markdown)

    tell(
        experiment_view(measured.record),
        measured.record,
        json=json,
        verdict=": ".join(head_lines(measured.record)),
        then=(say_waited, write),
        unrecorded=measured.unrecorded,
    )


@dataclass(frozen=True)
class _Changes:
    """What the command line says in place of what an experiment says itself."""

    factors: list[str] | None
    fixed: list[str] | None
    _: KW_ONLY
    blocks: int | None
    budget: str | None
    margin: str | None
    seed: int | None

    def made_to(self, experiment: Experiment) -> Experiment:
        """Return the experiment with the changes."""
        from perfkit.features.experiments.definition import checked, parse_duration, parse_level, with_levels

        varied: dict[str, tuple[Level, ...]] = {}
        for text in self.factors or []:
            name, levels = assignment(text, "--factor")
            varied[name] = tuple(parse_level(level) for level in levels.split(","))
        assigned = (assignment(text, "--set") for text in self.fixed or [])
        values = {name: parse_level(value) for name, value in assigned}
        own = {
            "blocks": self.blocks,
            "budget_s": None if self.budget is None else parse_duration(self.budget, key="--budget"),
            "margin": margin_share(self.margin),
            "seed": self.seed,
        }
        said = {name: value for name, value in own.items() if value is not None}
        changed = replace(with_levels(experiment, varied, values), **said)  # type: ignore[arg-type]
        return checked(changed, place=experiment.name)
