"""``perfkit init``."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from typing import Annotated, get_args

import typer

from perfkit.choices import Service
from perfkit.cli import options
from perfkit.cli.output import emit, stages
from perfkit.features.init.files import PlannedFile, StartingPlan
from perfkit.units import counted


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit init",
            "perfkit init --yes",
            "perfkit init --ci github --yes",
            "perfkit init --for-change main",
        )
    )(init)


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
    for_change: Annotated[
        bool,
        typer.Option(
            "--for-change",
            help="Write a benchmark of each changed function that no timed call runs, as tests call it.",
        ),
    ] = False,
    base: Annotated[
        str | None, typer.Argument(help="What --for-change compares with (default: as the gate).")
    ] = None,
    repo: options.RepoOption = None,
    json: options.JsonOption = None,
) -> None:
    """Look at this repository, and write a configuration and first benchmarks that run.

    It shows each file first, asks on a terminal, and overwrites nothing. A benchmark is written only if it
    ran, in a limited process of its own. With --for-change it does not ask, and ends with exit code 4 where a
    changed function is left without a benchmark.
    """
    from perfkit.errors import EXIT_NOT_MEASURED, UsageError
    from perfkit.features.init.command import plan_for_change, plan_start, write_plan

    if yes and dry_run:
        raise UsageError("--yes and --dry-run contradict each other; leave one of them out")
    services = [_service(name) for name in dict.fromkeys(ci or ())]
    if ci and for_change:
        raise UsageError("--ci and --for-change contradict each other; leave one of them out")
    if base and not for_change:
        raise UsageError(f"{base} is a base for --for-change: run `perfkit init --for-change {base}`")
    project = options.project_in(repo)
    if for_change:
        with stages() as progress:
            plan = plan_for_change(project, base, log=progress.info)
        if not dry_run:
            write_plan(plan)
        emit(for_change_view(plan, written=not dry_run), plan, json=json)
        sys.exit(EXIT_NOT_MEASURED if plan.remarks else 0)
    with stages() as progress:
        plan = plan_start(project, services=services, log=progress.info)
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not yes and not dry_run and json is None
    if not yes or not plan.files:
        sentence = starting_sentence(plan, written=False)
        emit(starting_view(plan, written=False), plan, json=json, verdict=sentence)
    if plan.files and (yes or (asks and typer.confirm("Write this?"))):
        write_plan(plan)
        sentence = starting_sentence(plan, written=True)
        emit(starting_view(plan, written=True), plan, json=json, verdict=sentence)
    elif plan.files:
        typer.echo("\nNothing was written; `perfkit init --yes` writes it.", err=json is not None)


def _service(name: str) -> Service:
    """Return the service of a name."""
    from perfkit.config import choices_text
    from perfkit.errors import UsageError

    found: Service | None = next((known for known in get_args(Service) if known == name), None)
    if found is None:
        raise UsageError(f'--ci must be {choices_text(get_args(Service))}, found "{name}"')
    return found


def for_change_view(plan: StartingPlan, *, written: bool) -> str:
    """Return what is measured from now on, what is not and why, and the next command."""
    verb = "wrote" if written else "would write"
    lines = [f"{verb} {file.path}, which {file.why} that no benchmark measured" for file in plan.files]
    lines += ["not measured: " + plan.remarks[0]] if len(plan.remarks) == 1 else []
    lines += ["not measured, each for its reason:"] if len(plan.remarks) > 1 else []
    more = [f"  {remark}" for remark in plan.remarks] if len(plan.remarks) > 1 else []
    texts = [file.after for file in plan.files if not written]
    commands = [f"next: {command}" for command in plan.next_commands if plan.files]
    return "\n".join(("; ".join(lines or plan.found), *more, *texts, *commands))


def starting_view(plan: StartingPlan, *, written: bool) -> str:
    """Return what was found, each file as a difference to what is there, remarks, and the next commands."""
    return "\n".join(_lines(plan, written=written))


def starting_sentence(plan: StartingPlan, *, written: bool) -> str:
    """Return how many files were written, or would be."""
    if not plan.files:
        return f"{plan.root}: nothing is to be written, all of it is there"
    return f"{plan.root}: {counted(len(plan.files), 'file')} {'written' if written else 'to be written'}"


def _lines(plan: StartingPlan, *, written: bool) -> Iterator[str]:
    yield f"In {plan.root}"
    yield from (f"  {line}" for line in plan.found)
    yield ""
    for file in plan.files:
        yield f"{_verb(file, written=written)} {file.path}: {file.why}"
        if not written:
            yield from (f"    {line}" for line in _difference(file))
            yield ""
    if not plan.files:
        yield "Nothing is to be written: all of it is there."
    if plan.remarks:
        yield from ("", *(f"- {remark}" for remark in plan.remarks))
    if written or not plan.files:
        yield from ("", "Next:", *(f"  {command}" for command in plan.next_commands))


def _verb(file: PlannedFile, *, written: bool) -> str:
    if file.before is None:
        return "wrote" if written else "would write"
    return "added to" if written else "would add to"


def _difference(file: PlannedFile) -> Iterator[str]:
    """Yield the lines that a file gains, with a few of those around them."""
    before, after = (file.before or "").splitlines(), file.after.splitlines()
    for line in difflib.unified_diff(before, after, lineterm="", n=2):
        if not line.startswith(("---", "+++", "@@")):
            yield line.rstrip()
