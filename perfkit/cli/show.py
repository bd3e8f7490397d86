"""``perfkit show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import (
    FirefoxOption,
    JsonOption,
    LedgerOption,
    SpeedscopeOption,
    examples,
    ledger_at,
)
from perfkit.cli.output import check_two_places, tell, write_flames, write_json
from perfkit.cli.output import show as show_view
from perfkit.errors import UsageError

_ENVIRONMENTS = Path("env")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit show profiles/first_profile.stat",
            "perfkit show old.prof new.trace.json.gz",
            "perfkit show first_profile.stat --filtered mypackage",
            "perfkit show trace.json --json - | jq .[0].phases",
            "perfkit show before.stat after.stat --speedscope both.json",
            "perfkit show before.stat after.stat --firefox both.json",
            "perfkit show env 4f0ee3ba4b6c",
            "perfkit show env HEAD~1 HEAD",
        )
    )(show)


def show(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...|env RUN [RUN]",
            help="Profiles, of whatever kind; or the word env and one run or two: an id or its beginning, a"
            " commit, or a file of a ledger.",
        ),
    ],
    *,
    txt: Annotated[bool, typer.Option("--txt", help="Print every function, in pstats' columns.")] = False,
    filtered: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE", help="Take this package for your own code, and show it (repeatable)."
        ),
    ] = None,
    speedscope: SpeedscopeOption = None,
    firefox: FirefoxOption = None,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """Show what profiles say: of cProfile (.stat, .prof), torch.profiler (.json, .json.gz) or perfkit.

    Totals, training steps and the time of each, whom the loop waits for, and where its time goes. Files are
    read in a process of their own with little memory, and nothing in them is run.

    With env, show the machine and the environment of a run, or what differs between those of two runs.
    """
    if files[0] == _ENVIRONMENTS:
        if txt or filtered or speedscope:
            raise UsageError("--txt, --filtered and --speedscope show profiles; leave them out with env")
        if firefox:
            raise UsageError("--firefox shows profiles; leave it out with env")
        _show_env([str(name) for name in files[1:]], ledger, json)
        return
    if ledger is not None:
        raise UsageError("--ledger is for `perfkit show env`; profiles lie in no ledger")
    check_two_places(speedscope, firefox)
    from perfkit.config import load_project
    from perfkit.jobs.show import read_profiles
    from perfkit.views.reading.terminal import reading_view
    from perfkit.views.reading.text import reading_text

    own = tuple(filtered or ())
    readings = read_profiles(files, project=load_project(Path.cwd()), own=own)
    write_flames(readings, speedscope=speedscope, firefox=firefox)
    for reading in readings:
        as_text = txt or own
        view = reading_text(reading, own_only=bool(own)) if as_text else reading_view(reading)
        show_view(view, to_json=json)
    write_json(readings, json)


def _show_env(names: list[str], ledger: str | None, json: str | None) -> None:
    from perfkit.config import load_project
    from perfkit.jobs.show_env import show_surroundings
    from perfkit.views.surroundings import surroundings_view

    project = load_project(Path.cwd())
    place = ledger_at(ledger or project.ledger_place, to_read=True)
    report = show_surroundings(names, ledger=place, project=project)
    tell(surroundings_view(report), report, json=json)
