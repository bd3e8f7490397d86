"""``perfkit explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import check_two_places, emit, stages, text_step, write_flames
from perfkit.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit explain before.stat after.stat",
            "perfkit explain before.trace.json.gz after.trace.json.gz",
            "perfkit explain main HEAD --target train",
            "perfkit explain HEAD~1 worktree --target train.py --steps 100 -- --epochs 1",
            "perfkit explain main HEAD --html difference.html",
            "perfkit explain before.stat after.stat --html difference.html --widths base",
            "perfkit explain before.stat after.stat --firefox both.json",
            "perfkit explain before.json after.json --json - | jq .findings",
            "perfkit explain before.pickle after.pickle",
        )
    )(explain)


def explain(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A profile of any kind, or a commit.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="Another of the same kind, or worktree.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="What the target finds in sys.argv.")
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(help="What to profile at commits: a configured name, a function or a script (train)."),
    ] = None,
    steps: Annotated[int, typer.Option(help="End each pass at commits after this many steps.")] = 40,
    own: Annotated[
        list[str] | None,
        typer.Option("--own", metavar="PACKAGE", help="Take this package for your own code (repeatable)."),
    ] = None,
    html: Annotated[
        Path | None, options.output_option("Write it as a page that needs no other file.", "--html")
    ] = None,
    widths: Annotated[
        str, typer.Option(metavar="SIDE", help="Whose time the page's flame graph shows: head or base.")
    ] = "head",
    markdown: Annotated[Path | None, options.output_option("Write it as markdown.", "--markdown")] = None,
    speedscope: options.SpeedscopeOption = None,
    firefox: options.FirefoxOption = None,
    wait: options.WaitOption = None,
    json: options.JsonOption = None,
) -> None:
    """Explain what differs between two profiles, or two commits: by phase, function, operator and wait.

    Memory snapshots of torch (.pickle) are compared by who asked for how much of what is reserved.

    The parts of each table add up to the whole. Commits are profiled here and now, in turns. A name that a
    commit and a file share is the commit's, unless it ends like a profile; ./NAME is the file, and with
    --target both are commits.
    """
    from perfkit.commands.explain import ExplainRequest, run_explain, snapshots_of
    from perfkit.config import load_project
    from perfkit.model import Side
    from perfkit.report.explain import (
        difference_markdown,
        difference_page,
        difference_sentence,
        difference_view,
    )

    if target is None and (snapshots := snapshots_of(base, head)):
        if html or markdown or speedscope or firefox:
            raise UsageError("files other than --json are written of profiles; memory snapshots are printed")
        from perfkit.profiling.read.memory import explain_memory
        from perfkit.report.memory import memory_difference_view

        moved = explain_memory(*snapshots)
        emit(memory_difference_view(moved), moved, json=json)
        return
    check_two_places(speedscope, firefox)
    side = options.chosen(widths, Side, "--widths")
    request = ExplainRequest(
        base=base,
        head=head,
        target=target,
        arguments=tuple(arguments or ()),
        steps=steps,
        own=tuple(own or ()),
        wait_s=wait,
    )
    with stages(only_drawn=True) as progress:
        found = run_explain(request, project=load_project(Path.cwd()), log=_StderrLog(), progress=progress)
    difference = found.difference

    def write_both() -> None:
        write_flames((found.base, found.head), speedscope=speedscope, firefox=firefox)

    emit(
        difference_view(difference),
        difference,
        json=json,
        verdict=difference_sentence(difference),
        then=(
            text_step(
                html, lambda: difference_page(difference, flames=found.flames(), widths=side), "--html"
            ),
            text_step(markdown, lambda: difference_markdown(difference), "--markdown"),
            write_both,
        ),
    )


class _StderrLog:
    """Prints progress to standard error."""

    def info(self, text: str) -> None:
        from perfkit.report.console import visible_lines

        if not options.is_quiet():
            typer.echo(visible_lines(text), err=True)
