"""``perfkit init``."""

from __future__ import annotations

import sys
from typing import Annotated, get_args

import typer

from perfkit.choices import Service
from perfkit.cli.options import JsonOption, RepoOption, examples, project_in
from perfkit.cli.output import stages, tell


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=examples("perfkit init", "perfkit init --yes", "perfkit init --ci github --yes"))(init)


def init(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    ci: Annotated[
        list[str] | None,
        typer.Option(
            "--ci",
            metavar="github|gitlab|pre-commit",
            help="Also write what runs the gate there; may be given often.",
        ),
    ] = None,
    repo: RepoOption = None,
    json: JsonOption = None,
) -> None:
    """Look at this repository, and write a configuration and first benchmarks that run.

    It shows each file before it writes, asks on a terminal, and overwrites nothing. A benchmark is written
    only if it ran, in a limited process of its own. Where nothing can be called it says how to measure the
    training script as it is.
    """
    from perfkit.errors import UsageError
    from perfkit.features.init.command import plan_start, write_plan
    from perfkit.features.init.report import starting_sentence, starting_view

    if yes and dry_run:
        raise UsageError("--yes and --dry-run contradict each other; leave one of them out")
    services = [_service(name) for name in dict.fromkeys(ci or ())]
    project = project_in(repo)
    with stages() as progress:
        plan = plan_start(project, services=services, log=progress.info)
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not yes and not dry_run and json is None
    if not yes or not plan.files:
        sentence = starting_sentence(plan, written=False)
        tell(starting_view(plan, written=False), plan, json=json, verdict=sentence)
    if plan.files and (yes or (asks and typer.confirm("Write this?"))):
        write_plan(plan)
        sentence = starting_sentence(plan, written=True)
        tell(starting_view(plan, written=True), plan, json=json, verdict=sentence)
    elif plan.files:
        typer.echo("\nNothing was written; `perfkit init --yes` writes it.", err=json is not None)


def _service(name: str) -> Service:
    """Return the service of a name.

    Raises:
        UsageError: there is none of this name.
    """
    from perfkit.config import told_choices
    from perfkit.errors import UsageError

    found: Service | None = next((known for known in get_args(Service) if known == name), None)
    if found is None:
        raise UsageError(f'--ci must be {told_choices(get_args(Service))}, found "{name}"')
    return found
