"""``perfkit comment``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import examples
from perfkit.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit comment --from gate.json --github",
            "perfkit comment --from gate.json --github-summary",
            "perfkit comment --from gate.json --gitlab",
        )
    )(comment)


def comment(
    *,
    from_: Annotated[
        Path, typer.Option("--from", metavar="FILE", help="What `perfkit gate --json FILE` wrote.")
    ],
    github: Annotated[
        bool, typer.Option("--github", help="As a comment on the pull request, updated in place.")
    ] = False,
    github_summary: Annotated[
        bool,
        typer.Option("--github-summary", help="As the summary of a job, with annotations at lines of code."),
    ] = False,
    gitlab: Annotated[
        bool, typer.Option("--gitlab", help="As a note on the merge request, updated in place.")
    ] = False,
) -> None:
    """Post a gate's result where the change is read: in a pull request, a job's summary, a merge request.

    If the service refuses it, it prints one line and ends with exit code 0: the gate's own exit code counts.
    """
    from perfkit.commands.text_files import add_text
    from perfkit.features.hosting.command import (
        comment_on_github,
        comment_on_gitlab,
        read_report,
        run_address,
    )
    from perfkit.report.gate.markdown import annotation_lines, render_comment, render_without_report

    if not (github or github_summary or gitlab):
        raise UsageError("choose where to: --github, --github-summary or --gitlab")
    read = read_report(from_)
    if read.report is None:
        text = render_without_report(read.problem, run_address(os.environ))
    else:
        text = render_comment(read.report)
    if github_summary:
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if not summary:
            raise UsageError("GITHUB_STEP_SUMMARY is not set: --github-summary is for GitHub's workflows")
        add_text(Path(summary), text, option="GITHUB_STEP_SUMMARY")
        for line in annotation_lines(read.report) if read.report else ():
            typer.echo(line)
    if github:
        typer.echo(comment_on_github(text, os.environ))
    if gitlab:
        typer.echo(comment_on_gitlab(text, os.environ))
