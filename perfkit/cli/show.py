"""``perfkit show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import JsonOption, LedgerOption, examples, ledger_at, output_option
from perfkit.cli.output import show as show_view
from perfkit.cli.output import stages, tell, write_json
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
    speedscope: Annotated[
        Path | None,
        output_option("Write flame graphs of .stat or .prof files, for speedscope.", "--speedscope"),
    ] = None,
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
        _show_env([str(name) for name in files[1:]], ledger, json)
        return
    if ledger is not None:
        raise UsageError("--ledger is for `perfkit show env`; profiles lie in no ledger")
    from perfkit.config import load_project
    from perfkit.jobs.show import read_profiles
    from perfkit.jobs.text_files import replace_text
    from perfkit.views.reading.terminal import reading_sentence, reading_view
    from perfkit.views.reading.text import reading_text
    from perfkit.views.speedscope import speedscope_file

    own = tuple(filtered or ())
    with stages(only_drawn=True) as progress:
        readings = read_profiles(files, project=load_project(Path.cwd()), own=own, progress=progress)
    flames = None if speedscope is None else speedscope_file(readings)
    for reading in readings:
        as_text = txt or own
        view = reading_text(reading, own_only=bool(own)) if as_text else reading_view(reading)
        show_view(view, to_json=json, verdict=reading_sentence(reading))
    if speedscope is not None and flames is not None:
        replace_text(speedscope, flames, option="--speedscope")
    write_json(readings, json)


def _show_env(names: list[str], ledger: str | None, json: str | None) -> None:
    from perfkit.config import load_project
    from perfkit.jobs.show_env import show_surroundings
    from perfkit.views.surroundings import surroundings_sentence, surroundings_view

    project = load_project(Path.cwd())
    place = ledger_at(ledger or project.ledger_place, to_read=True)
    report = show_surroundings(names, ledger=place, project=project)
    tell(surroundings_view(report), report, json=json, verdict=surroundings_sentence(report))
