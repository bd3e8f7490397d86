"""The root command and its verbs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
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
    command_help,
    compare,
    doctor,
    explain,
    gate,
    history,
    ledger,
    log,
    profile,
    schema,
    show,
    view,
)
from perfkit.cli.options import QuietOption, examples
from perfkit.errors import EXIT_REGRESSED, EXIT_USAGE, UsageError
from perfkit.features.cluster import cli as engine
from perfkit.features.cluster import cli_work as work
from perfkit.features.experiments import cli as experiment
from perfkit.features.hosting import cli as comment
from perfkit.features.init import cli as init
from perfkit.features.site import cli as report
from perfkit.features.tricks import cli as tricks

# The library's own options, which end with 1 where they know no shell.
_COMPLETION = {"--install-completion", "--show-completion"}
# These print what they are asked for, and nothing that could be left out.
_NEVER_QUIET = {"help", "schema", "view"}
# With fewer columns a table of options would cut their names.
_FEWEST_COLUMNS = 80


class _EscapedError(Exception):
    """Carries an exception past the command-line library, which would turn it into its own exit code."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Commands(TyperGroup):
    """The verbs; their exceptions go to the caller, except for mistakes in the command line itself.

    Every command gets the option --quiet, and in a narrow terminal a help whose names are whole.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (the library's own types)
        super().__init__(*args, **kwargs)
        quiet = _quiet_option()
        narrow = shutil.get_terminal_size().columns < _FEWEST_COLUMNS
        for command in (leaf for one in self.commands.values() for leaf in _leaves(one)):
            if narrow:
                command.rich_markup_mode = None
            if not command.hidden and command.name not in _NEVER_QUIET:
                command.params.append(quiet)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the library's own types)
        with _escaping():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (likewise)
        with _escaping():
            return super().invoke(ctx)


def _leaves(command: Any) -> Iterator[Any]:  # noqa: ANN401 (likewise)
    """Yield the commands that do something, at any depth below a group."""
    below = getattr(command, "commands", None)
    if below is None:
        yield command
    for one in (below or {}).values():
        yield from _leaves(one)
    if below is not None and command.invoke_without_command:
        yield command


def _quiet_option() -> Any:  # noqa: ANN401 (likewise)
    """Return the option as the library makes it of an annotation."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _(*, quiet: QuietOption = False) -> None:
        """Stand for every command."""

    return typer.main.get_command(app).params[0]


@contextlib.contextmanager
def _escaping() -> Iterator[None]:
    try:
        yield
    except typer.Abort as error:
        # A question was answered by Ctrl-C or Ctrl-D.
        raise _EscapedError(KeyboardInterrupt()) from error
    except (OSError, EOFError, KeyboardInterrupt) as error:
        raise _EscapedError(error) from error


app = typer.Typer(
    name="perfkit",
    cls=_Commands,
    no_args_is_help=True,
    invoke_without_command=True,
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
schema.register(app)
command_help.register(app)
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
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    env: Annotated[
        bool, typer.Option("--env", help="With --version: also what a bug report has to say.")
    ] = False,
) -> None:
    """Profile PyTorch training code, keep every measurement by git commit, and see what each change cost."""
    if version and env:
        from perfkit.commands.about import about_lines

        for line in about_lines():
            typer.echo(line)
    elif version:
        typer.echo(f"perfkit {importlib.metadata.version('perfkit')}")
    elif env or context.invoked_subcommand is None:
        raise UsageError("--env goes with --version: `perfkit --version --env` shows what a bug report needs")
    if version:
        raise typer.Exit
