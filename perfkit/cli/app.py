"""The root command and its verbs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perfkit.cli import (
    accept,
    backfill,
    bisect,
    calibrate,
    comment,
    compare,
    doctor,
    engine,
    experiment,
    explain,
    gate,
    history,
    init,
    ledger,
    log,
    profile,
    report,
    show,
    tricks,
    view,
    work,
)
from perfkit.cli.options import examples
from perfkit.errors import EXIT_REGRESSED, EXIT_USAGE

# The library's own options, which end with 1 where they know no shell.
_COMPLETION = {"--install-completion", "--show-completion"}


class _EscapedError(Exception):
    """Carries an exception past the command-line library, which would turn it into its own exit code."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Commands(TyperGroup):
    """The verbs; their exceptions go to the caller, except for mistakes in the command line itself."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the library's own types)
        with _escaping():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (likewise)
        with _escaping():
            return super().invoke(ctx)


@contextlib.contextmanager
def _escaping() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, KeyboardInterrupt) as error:
        raise _EscapedError(error) from error


app = typer.Typer(
    name="perfkit",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=examples(
        "perfkit gate",
        "perfkit profile train --out profiles/first_profile.stat",
        "pytest benchmarks/ --benchmark-autosave",
        "perfkit log",
    ),
)
init.register(app)
gate.register(app)
profile.register(app)
show.register(app)
explain.register(app)
view.register(app)
log.register(app)
report.register(app)
ledger.register(app)
history.register(app)
backfill.register(app)
bisect.register(app)
compare.register(app)
comment.register(app)
doctor.register(app)
calibrate.register(app)
experiment.register(app)
tricks.register(app)
accept.register(app)
engine.register(app)
work.register(app)


def run_app() -> int:
    """Run a command and return its exit code; whatever it raises comes through as it was."""
    try:
        app()
    except SystemExit as end:
        # Both libraries that print for a command end it with 1 if the output is closed.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return EXIT_USAGE if code == EXIT_REGRESSED and _COMPLETION & set(sys.argv[1:2]) else code
    except _EscapedError as escaped:
        raise escaped.error from None
    return 0


@app.callback()
def perfkit(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: _say_version(value=value), is_eager=True)
    ] = False,
) -> None:
    """Profile PyTorch training code, keep every measurement by git commit, and see what each change cost."""


def _say_version(*, value: bool) -> None:
    if value:
        typer.echo(f"perfkit {importlib.metadata.version('perfkit')}")
        raise typer.Exit
