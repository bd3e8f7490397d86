"""Options that several commands share."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from perfkit.choices import MOST_SEED, check_seed
from perfkit.errors import PerfkitError, UsageError
from perfkit.invocation import keep_ledger, with_follow_ups

if TYPE_CHECKING:
    from perfkit.config import Project

# Given as the place of a file, it means standard output.
STANDARD_OUTPUT = "-"
_MANY_FILES = 50
# Whether the command line has --quiet, which every command takes.
_IS_QUIET = ContextVar("_IS_QUIET", default=False)


def checked_place(param: typer.CallbackParam, value: str | Path | None) -> str | Path | None:
    """Return an output file's place, once it is certain that it can be written."""
    if value is not None and value != STANDARD_OUTPUT:
        _check_writable(Path(value), param)
    return value


def checked_document(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Return the place of a document, once it and the picture beside it can be written."""
    if value is not None:
        picture = value.with_suffix(".svg")
        if picture == value:
            raise UsageError(f"cannot write {value}: its picture has that name; end {param.opts[0]} in .md")
        for place in (value, picture):
            _check_writable(place, param, makes_folder=True)
    return value


def _check_writable(place: Path, param: typer.CallbackParam, *, makes_folder: bool = False) -> None:
    # Imported here, since it takes as long as all that help needs.
    from perfkit.commands.text_files import check_writable_place

    check_writable_place(place, option=param.opts[0], makes_folder=makes_folder)


def seed_option(text: str, *, most: int = MOST_SEED) -> Any:  # noqa: ANN401 (typer's own type has no name)
    """Return an option for a seed, and refuse one that the rows of a run could not hold."""

    def checked(param: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None:
            check_seed(param.opts[0], value, most=most)
        return value

    return typer.Option(help=text, callback=checked)


def seconds_option(text: str, *names: str) -> Any:  # noqa: ANN401 (typer's own type has no name)
    """Return an option for a time: 90, 90s, 5min or 1h."""
    return typer.Option(*names, metavar="SECONDS", help=text, parser=_seconds)


def _seconds(text: object) -> float:
    from perfkit.config import parse_duration

    with contextlib.suppress(ValueError):
        return float(str(text))
    try:
        return parse_duration(str(text), key="")
    except PerfkitError as error:
        raise typer.BadParameter("expected a time such as 20, 90s or 5min") from error


def output_option(text: str, name: str) -> Any:  # noqa: ANN401 (typer's own type has no name)
    """Return an option that names a file to write, and refuses a place that cannot be written."""
    return typer.Option(name, metavar="FILE", help=text, callback=checked_place)


def _keep_ledger(value: str | None) -> str | None:
    keep_ledger(value)
    return value


LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="PLACE",
        callback=_keep_ledger,
        help="Folder of the ledger, or a URL such as s3://bucket/path (default: the configured one).",
    ),
]
JsonOption = Annotated[
    str | None, output_option("Write the result as JSON to a file, or to standard output (-).", "--json")
]
SpeedscopeOption = Annotated[
    Path | None, output_option("Write flame graphs of .stat or .prof files, for speedscope.", "--speedscope")
]
FirefoxOption = Annotated[
    Path | None, output_option("Write flame graphs for the Firefox Profiler.", "--firefox")
]
DocumentOption = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write the whole report there, and its picture beside it.",
        callback=checked_document,
    ),
]
BenchmarksOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Default: the configured benchmarks, or all that pytest collects."),
]
SelectOption = Annotated[
    str | None,
    typer.Option(metavar="EXPR", help="Only benchmarks that match, as pytest's -k (default: as configured)."),
]
MarginOption = Annotated[
    str | None,
    typer.Option(metavar="PERCENT", help="The largest change that you ignore (default: 2%)."),
]
AlphaOption = Annotated[
    float | None,
    typer.Option(help="Probability of any wrong verdict, all benchmarks together (default: 0.01)."),
]
RepoOption = Annotated[
    Path | None, typer.Option(metavar="PATH", help="The project to measure (default: this folder).")
]
BaseWithOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REQUIREMENT|FILE|DIR",
        help="Measure base with this package (torch==2.12.1), file of requirements or lock, existing"
        " environment, or variable (OMP_NUM_THREADS=1); can be repeated. Both sides are then the same commit,"
        " unless they are named.",
    ),
]
HeadWithOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REQUIREMENT|FILE|DIR", help="The same for head (default: this environment)."),
]
WaitOption = Annotated[
    float | None,
    seconds_option(
        "How long to wait for another perfkit on this machine (default: until it is done).", "--wait"
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        help="Where to measure: local, or on a Dask cluster at dask://HOST:PORT.",
    ),
]
MachineOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID", help="Only on these machines of the cluster; `perfkit engine check` names them."
    ),
]
CloneOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="What workers clone (default: the code is sent to them)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Fix an argument of the target; may be given often."),
]


def _set_quiet(value: bool) -> bool:  # noqa: FBT001 (the library passes it so)
    _IS_QUIET.set(value)
    return value


# Added to every command by the root command; what prints asks ``is_quiet``.
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print the verdict in one sentence, and errors; no progress.",
        callback=_set_quiet,
        expose_value=False,
    ),
]


def is_quiet() -> bool:
    """Return whether the person asked for the verdict alone."""
    return _IS_QUIET.get()


def check_rates(*, alpha: float | None, budget: float | None = None) -> None:
    """Refuse numbers that mean nothing."""
    if alpha is not None and not 0 < alpha < 1:
        raise UsageError(f"--alpha must lie between 0 and 1, found {alpha:g}")
    if budget is not None and not budget > 0:
        raise UsageError(f"--budget must be above zero seconds, found {budget:g}")


def margin_share(text: str | None) -> float | None:
    """Return ``--margin`` as a share, None where it was not given."""
    from perfkit.config import parse_percent

    return parse_percent(text, key="--margin") if text else None


def chosen(text: str | None, words: object, option: str) -> Any:  # noqa: ANN401 (one of the words)
    """Return an option as one of its words, None where it was not given."""
    from perfkit.config import choices_text

    word = text and text.replace("-", " ")
    if word is not None and word not in get_args(words):
        raise UsageError(f'{option} must be {choices_text(get_args(words))}, found "{text}"')
    return word


def assignment(text: str, option: str) -> tuple[str, str]:
    """Return the name and the value of "batch-size=4": ("batch_size", "4")."""
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise UsageError(f'{option} must read NAME=VALUE, found "{text}"')
    return name.strip().replace("-", "_"), value.strip()


def ledger_at(place: str | Path, *, to_read: bool = False) -> Path:
    """Return a ledger's folder, after recovering and reporting the rows of runs that were cut off.

    Every command with a ledger calls this before it does anything else. A ledger in a store is copied first,
    and what earlier commands could not put there is put. One ``to_read`` is not begun: it must be there.
    """
    from perfkit.ledger.recording import recover_leftovers
    from perfkit.report.console import visible

    folder = _copied(place, to_read=to_read)
    for leftover in recover_leftovers(folder):
        if leftover.problem or not is_quiet():
            typer.echo(f"perfkit: {with_follow_ups(visible(leftover.text))}", err=True)
    return folder


def _copied(place: str | Path, *, to_read: bool) -> Path:
    """Return the folder of a ledger, with a bar where many files of a store are to be copied."""
    from perfkit.ledger.remote import existing_folder, ledger_folder
    from perfkit.report.progress import StageProgress

    with contextlib.ExitStack() as shown:
        bar: StageProgress | None = None

        def advance(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and total >= _MANY_FILES and not is_quiet():
                bar = shown.enter_context(StageProgress())
                bar.info(f"copying {total} files of {place}")
            if bar is not None:
                bar.advance(done / total)

        return (existing_folder if to_read else ledger_folder)(place, on_copied=advance)


def project_in(repo: Path | None) -> Project:
    """Return the project in a folder, the present one where none was named."""
    from perfkit.config import load_project

    start = repo or Path.cwd()
    if not start.is_dir():
        raise UsageError(f"--repo {start} is not a folder")
    return load_project(start)


def examples(*lines: str) -> str:
    """Return an epilog for a command's ``--help`` that shows how it is used, a line per example."""
    return "\n\n".join(("Examples:", *(f"$ {line}" for line in lines)))
