"""The root command and its verbs."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from perfkit.cli.options import QuietOption
from perfkit.errors import EXIT_REGRESSED, EXIT_USAGE, UsageError
from perfkit.extensions import Command, commands_of

_CORE = tuple(
    Command(name=name, module=f"perfkit.cli.{module or name}", summary=summary)
    for name, module, summary in (
        ("gate", "", "Compare two commits: may the change be merged?"),
        ("check", "gate", "Answer in eight lines: is the change faster, and still right?"),
        ("profile", "", "Profile a training loop and its phases."),
        ("explain", "", "Explain what differs between two profiles or commits."),
        ("show", "", "Show a profile."),
        ("view", "show", "Open a profile in the browser with snakeviz."),
        ("history", "", "Show trends over commits and what changed them."),
        ("bisect", "", "Find the commit that made a benchmark slower."),
        ("compare", "history", "Compare two commits by what the ledger has."),
        ("backfill", "", "Measure older commits into the ledger."),
        ("log", "history", "Render the perf-change log, a row per commit."),
        ("ledger", "", "List, check and share recorded measurements."),
        ("accept", "gate", "Accept one finding of a gate."),
        ("doctor", "calibrate", "Check how steady this machine is."),
        ("calibrate", "", "Measure how often the gate errs on your benchmarks."),
        ("schema", "command_help", "Print the JSON Schema of a --json document."),
        ("help", "command_help", "Show the help of a command."),
    )
)

# What `perfkit --help` lists together, each with an example; features that others add come last.
_GROUPS = {
    "Start: perfkit init": ("init", "doctor", "help"),
    "Compare: perfkit gate --base main": (
        *("gate", "check", "explain", "bisect", "accept", "compare", "calibrate", "experiment", "tricks"),
    ),
    "Profile: perfkit profile train.py": ("why", "watch", "profile", "show", "view"),
    "Over commits: perfkit history": ("history", "report", "log", "backfill"),
    "Keep and share: perfkit ledger list": ("ledger", "comment", "engine", "mcp", "schema"),
}
_OTHERS = "Others"
_ALONE = """\
perfkit finds what made Python and PyTorch code slower, and in which line.

  perfkit init                write first benchmarks of this repository
  perfkit gate                compare two commits: may the change be merged?
  perfkit why train.py        name what slows a training loop, and what to change
  perfkit profile train.py    see where a training step spends its time
  perfkit history             see what each commit cost

All commands: perfkit --help. One of them: perfkit gate --help."""

# The library's base class of mistakes in a command line; it has no public name.
_LibraryUsageError: Any = typer.BadParameter.__bases__[0]
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
    """The commands, each imported when it is run or its help is shown, with --quiet added."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (the library's own types)
        super().__init__(*args, **kwargs)
        self._listed = {command.name: command for command in (*_CORE, *commands_of(None))}
        # Rich would take longer to import than all that is printed here.
        self.rich_markup_mode = None
        for command in self._listed.values():
            self.commands[command.name] = TyperCommand(
                command.name, help=command.summary, hidden=command.hidden
            )

    def format_commands(self, _: Any, formatter: Any) -> None:  # noqa: ANN401 (likewise)
        """Write the commands in groups."""
        listed = {name: one.help for name, one in self.commands.items() if not one.hidden}
        width = max(map(len, listed))
        grouped = {name for names in _GROUPS.values() for name in names}
        others = tuple(name for name in listed if name not in grouped)
        for title, names in {**_GROUPS, _OTHERS: others}.items():
            if found := [(name.ljust(width), listed[name]) for name in names if name in listed]:
                with formatter.section(title):
                    formatter.write_dl(found)

    def load(self, name: str) -> Any:  # noqa: ANN401 (likewise)
        """Import a command and return it."""
        if (command := self._listed.pop(name, None)) is not None:
            part = typer.Typer()
            # A group of its own, since the library merges a single command into its parent.
            part.callback()(lambda: None)
            importlib.import_module(command.module).register(part)
            loaded = typer.main.get_group(part).commands[name]
            quiet = _quiet_option()
            narrow = shutil.get_terminal_size().columns < _FEWEST_COLUMNS
            for leaf in _leaves(loaded):
                if narrow:
                    leaf.rich_markup_mode = None
                if not leaf.hidden and leaf.name not in _NEVER_QUIET:
                    leaf.params.append(quiet)
            self.commands[name] = loaded
        return self.commands.get(name)

    def resolve_command(self, ctx: Any, args: Any) -> Any:  # noqa: ANN401 (likewise)
        if args and args[0] in self.commands:
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
        with _escaping():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (likewise)
        with _escaping():
            return super().invoke(ctx)


def whole_command_line() -> Any:  # noqa: ANN401 (likewise)
    """Return the root command with every command imported."""
    root: Any = typer.main.get_command(app)
    for name in list(root.commands):
        root.load(name)
    return root


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
    except _LibraryUsageError as error:
        # A group that is called without a command shows its help this way.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        message = " ".join(error.format_message().split()).removesuffix(".")
        command = error.ctx.command_path if error.ctx else "perfkit"
        raise _EscapedError(UsageError(f"{message}; `{command} --help` lists what there is")) from error


app = typer.Typer(
    name="perfkit",
    cls=_Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def run_app() -> int:
    """Run a command and return its exit code; what it raises comes through unchanged."""
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
    env: Annotated[bool, typer.Option("--env", help="With --version: also what a bug report needs.")] = False,
) -> None:
    """Find what made Python and PyTorch code slower, and in which line."""
    if version and env:
        from perfkit.runner.machine.facts import about_lines

        for line in about_lines():
            typer.echo(line)
    elif version:
        typer.echo(f"perfkit {importlib.metadata.version('perfkit')}")
    elif env:
        raise UsageError("--env goes with --version: `perfkit --version --env` shows what a bug report needs")
    elif context.invoked_subcommand is None:
        typer.echo(_ALONE)
        raise typer.Exit(EXIT_USAGE)
    if version:
        raise typer.Exit
