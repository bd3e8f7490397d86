"""``perfkit explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import JsonOption, WaitOption, examples, is_quiet, output_option
from perfkit.cli.output import stages, tell


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit explain before.stat after.stat",
            "perfkit explain before.trace.json.gz after.trace.json.gz",
            "perfkit explain main HEAD --target train",
            "perfkit explain HEAD~1 worktree --target train.py --steps 100 -- --epochs 1",
            "perfkit explain main HEAD --html difference.html",
            "perfkit explain before.json after.json --json - | jq .findings",
        )
    )(explain)


def explain(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A profile of whatever kind, or a commit.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="Another of the same kind, or worktree.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="What the target finds in sys.argv.")
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(help="What to profile at commits: a configured name, a function or a script (train)."),
    ] = None,
    steps: Annotated[int, typer.Option(help="End each pass at commits after so many steps.")] = 40,
    own: Annotated[
        list[str] | None,
        typer.Option("--own", metavar="PACKAGE", help="Take this package for your own code (repeatable)."),
    ] = None,
    html: Annotated[
        Path | None, output_option("Write it as a page that needs no other file.", "--html")
    ] = None,
    markdown: Annotated[Path | None, output_option("Write it as markdown.", "--markdown")] = None,
    wait: WaitOption = None,
    json: JsonOption = None,
) -> None:
    """Explain what differs between two profiles, or two commits: by phase, function, operator and wait.

    The parts of each table add up to the whole. Profiles that did other work are brought to the same amount,
    or refused with the reason. Commits are profiled here and now, by turns. A name that a commit and a file
    have is the commit's, unless it ends as profiles do; ./NAME is the file, with --target both are commits.
    """
    from perfkit.config import load_project
    from perfkit.jobs.explain import ExplainRequest, run_explain
    from perfkit.jobs.text_files import replace_text
    from perfkit.views.explain.markdown import difference_markdown
    from perfkit.views.explain.page import difference_page
    from perfkit.views.explain.terminal import difference_sentence, difference_view

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
        difference = run_explain(request, project=load_project(Path.cwd()), voice=_Voice(), progress=progress)

    def write_page() -> None:
        if html is not None:
            replace_text(html, difference_page(difference), option="--html")

    def write_markdown() -> None:
        if markdown is not None:
            replace_text(markdown, difference_markdown(difference), option="--markdown")

    tell(
        difference_view(difference),
        difference,
        json=json,
        verdict=difference_sentence(difference),
        then=(write_page, write_markdown),
    )


class _Voice:
    """Prints progress to standard error."""

    def say(self, text: str) -> None:
        """Print a message."""
        from perfkit.views.console import visible_lines

        if not is_quiet():
            typer.echo(visible_lines(text), err=True)
