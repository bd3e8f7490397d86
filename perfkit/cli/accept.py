"""``perfkit accept``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit

if TYPE_CHECKING:
    from perfkit.commands.accept import Accepted


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            'perfkit accept bench_loss.py::test_loss --reason "Exact distances cost 4 %, wanted"',
            'perfkit accept test_sort --reason "Gone with its feature" --commit HEAD~1',
            'git commit -m "Compute exact distances" '
            '--trailer "Perf-Accept: bench_loss.py::test_loss: Exact distances cost 4 %, wanted"',
        )
    )(accept)


def accept(
    benchmark: Annotated[str, typer.Argument(help="Its node id, or as much of the end as names one.")],
    *,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="Why it may pass; shown by every gate it lets pass."),
    ],
    commit: Annotated[str, typer.Option("--commit", metavar="REF", help="The gate's head.")] = "HEAD",
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Let one finding that a gate listed pass, in later gates of its commit or of the same edits.

    The newest gate of the commit counts. Another kind of finding, or a clearly worse regression, still fails.
    The trailer "Perf-Accept: BENCHMARK: reason" in a commit's message accepts all findings of that benchmark;
    " -- " may stand for the second ": ".
    """
    from perfkit.commands.accept import accept_finding
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    kept = accept_finding(
        project=project,
        ledger=options.ledger_at(ledger or project.ledger_place, to_read=True),
        benchmark=benchmark,
        reason=reason,
        ref=commit,
    )
    emit(_sentence(kept), kept.acceptance, json=json)


def _sentence(kept: Accepted) -> str:
    from perfkit.ledger.remote import mirrored_url, shown_place

    acceptance = kept.acceptance
    ratio = f" ×{acceptance.ratio:.3f}" if acceptance.ratio else ""
    bound = ", for the uncommitted changes that the gate measured" if acceptance.diff_hash else ""
    if acceptance.code:
        bound += " and for a commit of the same code"
    shared = mirrored_url(kept.file.parent.parent)
    place = (
        f"{shown_place(kept.file)}: later gates on that ledger read it"
        if shared
        else f"{kept.file}: commit this file with your code, so that later gates read it"
    )
    alone = (
        "\nIt holds for those changes alone, which are not here as they were measured: once you have"
        " committed, run `perfkit gate` and accept what that finds."
        if acceptance.diff_hash and not acceptance.code
        else ""
    )
    what = "counters of " if acceptance.of_counts_alone else ""
    text = f"accepted {what}{acceptance.benchmark}: {acceptance.verdict}{ratio}{bound}: {acceptance.text}"
    if acceptance.of_counts_alone:
        text += "; its time is not covered"
    return f"{text}\n{place}{alone}"
