"""``perfkit history``, ``compare`` and ``log``: what recorded runs show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perfkit.cli import options
from perfkit.cli.output import emit, stages
from perfkit.errors import UsageError


class _ShowsByDefault(TyperGroup):
    """A group whose command ``show`` may be left out: `perfkit history test_loss` shows that history."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (the library's own type moves)
        """Put the command in where the first word is none."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


_history = typer.Typer(
    cls=_ShowsByDefault,
    help="Show trends over many commits with their change points and alarms; review these.",
    epilog=options.examples(
        "perfkit history",
        "perfkit history test_loss --since 90d",
        "perfkit history --branch main --metric operators",
        "perfkit history --check",
        'perfkit history accept 4f0ee3ba --reason "Exact distances, wanted"',
    ),
)
_REASON = typer.Option("--reason", metavar="TEXT", help="The reason, which is shown with the change point.")
_SUBJECT = typer.Argument(
    metavar="POINT",
    help="The id of a change point, drift or stopped machine, or a benchmark that is no longer measured.",
)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(_history, name="history")
    app.command(
        epilog=options.examples(
            "perfkit compare v1.2 HEAD",
            "perfkit compare HEAD~5 HEAD --margin 5%",
            "perfkit compare main feature --json - | jq .exit_code",
        )
    )(compare)
    app.add_typer(_log, name="log")


@_history.command(
    epilog=options.examples(
        "perfkit history show",
        "perfkit history show bench_losses.py::test_loss --since 2026-09-01",
        "perfkit history show --json - | jq '.points[].benchmark'",
    )
)
def show(
    benchmarks: Annotated[
        list[str] | None, typer.Argument(metavar="[BENCHMARK]...", help="Node ids, or ends of some.")
    ] = None,
    *,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs since then: 30d, 8w, 1y or 2026-09-01.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="REF", help="Only commits that this branch or tag has.")
    ] = None,
    metric: Annotated[str, typer.Option(help="What to show: time, operators, peak, ...")] = "time",
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit 1 if a loss is open or a benchmark drifts, 4 if one went silent."),
    ] = False,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Show trends over many commits: alarms first, then a line for each benchmark."""
    from perfkit.commands.history import HistoryRequest, days_ago, history_exit_code, read_history
    from perfkit.config import load_project
    from perfkit.report.history import history_view

    project = load_project(Path.cwd())
    request = HistoryRequest(
        benchmarks=tuple(benchmarks or ()),
        since=None if since is None else days_ago(since),
        branch=branch,
        metric=metric,
    )
    place = options.ledger_at(ledger or project.ledger_place, to_read=True)
    with stages(only_drawn=True) as progress:
        progress.info("reading the history")
        report = read_history(project, place, request)
    emit(history_view(report), report, json=json)
    if check:
        sys.exit(history_exit_code(report))


@_history.command(
    epilog=options.examples('perfkit history accept 4f0ee3ba --reason "Exact distances, wanted"')
)
def accept(
    subject: Annotated[str, _SUBJECT],
    *,
    reason: Annotated[str, _REASON],
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Accept a change point as real: it is no longer open."""
    _state(subject, "accepted", reason, ledger, json)


@_history.command(
    epilog=options.examples(
        'perfkit history ignore 4f0ee3ba --reason "The runner was moved"',
        'perfkit history ignore test_old_loss --reason "Removed with its feature"',
    )
)
def ignore(
    subject: Annotated[str, _SUBJECT],
    *,
    reason: Annotated[str, _REASON],
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Ignore a change point that is none, or a benchmark that is no longer measured."""
    _state(subject, "ignored", reason, ledger, json)


def _state(subject: str, state: Any, reason: str, ledger: str | None, json: str | None) -> None:  # noqa: ANN401
    from perfkit.commands.history import state_point
    from perfkit.config import load_project
    from perfkit.ledger.remote import mirrored_url, shown_place

    project = load_project(Path.cwd())
    place = options.ledger_at(ledger or project.ledger_place, to_read=True)
    stated = state_point(project=project, ledger=place, subject=subject, state=state, reason=reason)
    shared = mirrored_url(stated.file.parent.parent)
    kept = shown_place(stated.file) if shared else f"{stated.file}: commit this file with your code"
    text = f"{stated.state.subject}: {state}\n{kept}"
    emit(text, stated.state, json=json)


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A commit that the ledger has times of.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="Another one; ratios are head / base.")],
    *,
    margin: options.MarginOption = None,
    alpha: options.AlphaOption = None,
    repo: options.RepoOption = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Compare two commits by the runs that the ledger already has; nothing is measured.

    Each commit needs three sessions, an hour or more apart; intervals are widened by how much these differ.
    Exit code: 0 pass, 1 regressed, 3 inconclusive, 4 something has no times.
    """
    from perfkit.commands.compare import run_compare
    from perfkit.report.gate.terminal import compare_decision, compare_view

    options.check_rates(alpha=alpha)
    project = options.project_in(repo)
    share, place = options.margin_share(margin), options.ledger_at(ledger or project.ledger_place)
    with stages(only_drawn=True) as progress:
        progress.info("reading the ledger")
        report = run_compare(base, head, margin=share, alpha=alpha, ledger=place, project=project)
    emit(compare_view(report), report, json=json, verdict=compare_decision(report))
    sys.exit(report.exit_code)


_log = typer.Typer(
    invoke_without_command=True,
    epilog=options.examples(
        "perfkit log", "perfkit log --check", 'perfkit log note HEAD "Vectorised the triplet loss"'
    ),
)


@_log.callback()
def log(
    context: typer.Context,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the file differs from the ledger.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: perf_log.md.")] = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Render the perf-change log: a row per commit with (mean, sd) of each configured benchmark."""
    command = context.invoked_subcommand
    if command is not None:
        given = {"--check": check, "--out": out, "--ledger": ledger, "--json": json}
        for option in (option for option, value in given.items() if value):
            raise UsageError(
                f"{option} belongs behind the command, or to `perfkit log` alone;"
                f" see `perfkit log {command} --help`"
            )
        return
    from perfkit.commands.log import render_log
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    file = out or project.path(project.config.log.file)
    rows = options.ledger_at(ledger or project.ledger_place, to_read=True)
    with stages(only_drawn=True) as progress:
        progress.info("reading the ledger")
        result = render_log(project=project, ledger=rows, file=file, check=check)
    entries = sum(len(table.entries) for table in result.log.tables)
    text = f"{file}: {entries} rows, {'written' if result.changed else 'up to date'}"
    emit(text, result.log, json=json)


@_log.command(epilog=options.examples('perfkit log note 1a2b3c4 "Reused the distance matrix in the metrics"'))
def note(
    commit: str, text: str, *, ledger: options.LedgerOption = None, json: options.JsonOption = None
) -> None:
    """Describe a commit in your own words; the log shows it in place of the commit's subject."""
    from perfkit.commands.log import note_commit
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    place = options.ledger_at(ledger or project.ledger_place)
    kept = note_commit(project=project, ledger=place, ref=commit, text=text)
    emit(f"{kept.commit[:10]}: {kept.text}", kept, json=json)
