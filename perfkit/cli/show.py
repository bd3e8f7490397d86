"""``perfkit show`` and ``perfkit view``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import check_two_places, emit, stages, write_flames, write_json
from perfkit.cli.output import show as show_view
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

_ENVIRONMENTS = Path("env")


def register(app: typer.Typer) -> None:
    """Add both verbs."""
    app.command(
        epilog=options.examples(
            "perfkit show profiles/first_profile.stat",
            "perfkit show old.prof new.trace.json.gz",
            "perfkit show first_profile.stat --filtered mypackage",
            "perfkit show trace.json --json - | jq .[0].phases",
            "perfkit show rank0.json.gz rank1.json.gz",
            "perfkit show before.stat after.stat --speedscope both.json",
            "perfkit show snapshot.pickle --fits 16",
            "perfkit show before.stat after.stat --firefox both.json",
            "perfkit show env 4f0ee3ba4b6c",
            "perfkit show env HEAD~1 HEAD",
        )
    )(show)
    app.command(
        epilog=options.examples(
            "perfkit view profiles/first_profile.stat", "perfkit view first_profile.stat --server"
        )
    )(view)


def show(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...|env RUN [RUN]",
            help="Profiles of any kind; or the word env and one run or two: an id or its beginning, a"
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
    fits: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="Whether what a memory snapshot saw would fit this much memory."),
    ] = None,
    speedscope: options.SpeedscopeOption = None,
    firefox: options.FirefoxOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Show profiles of cProfile (.stat, .prof), torch.profiler (.json, .json.gz) or perfkit.

    Shows totals, training steps, what the loop waits for, and where its time goes; for memory snapshots of
    torch (.pickle), who asked for how much. Nothing in the files is run.

    With env, show the machine and the environment of a run, or what differs between those of two runs.
    """
    if files[0] == _ENVIRONMENTS:
        if txt or filtered or speedscope or firefox or fits is not None:
            raise UsageError(
                "--txt, --filtered, --speedscope, --firefox and --fits show files; leave them out with env"
            )
        _show_env([str(name) for name in files[1:]], ledger, json)
        return
    if ledger is not None:
        raise UsageError("--ledger is for `perfkit show env`; profiles lie in no ledger")
    for_profiles = bool(txt or filtered or speedscope or firefox)
    if _show_snapshots(files, fits=fits, for_profiles=for_profiles, json=json):
        return
    if fits is not None:
        raise UsageError(
            "--fits is asked of memory snapshots, as torch.cuda.memory._dump_snapshot writes them"
        )
    check_two_places(speedscope, firefox)
    _show_profiles(files, own=tuple(filtered or ()), txt=txt, flames=(speedscope, firefox), json=json)


def _show_snapshots(files: list[Path], *, fits: float | None, for_profiles: bool, json: str | None) -> bool:
    from perfkit.commands.show import read_snapshots
    from perfkit.report.memory import snapshot_view

    snapshots = read_snapshots(files)
    if snapshots and for_profiles:
        raise UsageError("--txt, --filtered and flame graphs show profiles, not memory snapshots")
    for snapshot in snapshots:
        show_view(snapshot_view(snapshot, gib=fits), to_json=json)
    if snapshots:
        write_json(snapshots, json)
    return bool(snapshots)


def _show_profiles(
    files: list[Path],
    *,
    own: tuple[str, ...],
    txt: bool,
    flames: tuple[Path | None, Path | None],
    json: str | None,
) -> None:
    """Show profiles, and write their ``flames`` for speedscope and for the Firefox Profiler."""
    from perfkit.commands.show import read_profiles
    from perfkit.config import load_project
    from perfkit.profiling.read.summary_file import load_summary
    from perfkit.report.profiles import ranks_view, reading_sentence, reading_text, reading_view, summary_view

    with stages(only_drawn=True) as progress:
        readings = read_profiles(files, project=load_project(Path.cwd()), own=own, progress=progress)
    write_flames(readings, speedscope=flames[0], firefox=flames[1])
    for file, reading in zip(files, readings, strict=True):
        if txt or own:
            view: RenderableType = reading_text(reading, own_only=bool(own))
        elif reading.origin == "perfkit summary":
            view = summary_view(load_summary(file), folder=file.parent)
        else:
            view = reading_view(reading)
        show_view(view, to_json=json, verdict=reading_sentence(reading))
    if not txt and not options.is_quiet() and (ranks := ranks_view(readings)) is not None:
        show_view(ranks, to_json=json)
    write_json(readings, json)


def _show_env(names: list[str], ledger: str | None, json: str | None) -> None:
    from perfkit.commands.ledger import show_surroundings
    from perfkit.config import load_project
    from perfkit.report.surroundings import surroundings_sentence, surroundings_view

    project = load_project(Path.cwd())
    place = options.ledger_at(ledger or project.ledger_place, to_read=True)
    report = show_surroundings(names, ledger=place, project=project)
    emit(surroundings_view(report), report, json=json, verdict=surroundings_sentence(report))


def view(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A cProfile, such as first_profile.stat.")],
    *,
    server: Annotated[
        bool, typer.Option("--server", help="Only print the address; so it is where there is no browser.")
    ] = False,
) -> None:
    """Open a profile in the browser with snakeviz, until Ctrl-C."""
    from perfkit.commands.show import view as run

    sys.exit(run(file, server=server))
