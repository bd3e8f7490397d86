"""What a command prints: a view for people, or JSON for machines."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from perfkit.cli.options import STANDARD_OUTPUT, is_quiet
from perfkit.errors import EXIT_NOT_MEASURED, PerfkitError, RecordingError, UsageError
from perfkit.invocation import with_follow_ups

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perfkit.model.readings import Reading
    from perfkit.report.progress import StageProgress


def emit(
    view: RenderableType,
    result: object,
    *,
    json: str | None,
    verdict: str | None = None,
    then: tuple[Callable[[], None], ...] = (),
    unrecorded: str | None = None,
    code: int = EXIT_NOT_MEASURED,
    failure: PerfkitError | None = None,
    indent: int = 2,
) -> None:
    """Print a view, then do what else is to be done with a result, and write it as JSON.

    What was measured is seen before anything is written that a full disk could keep from being written, and
    no failure keeps the rest from being done. ``unrecorded`` is what kept the result from the ledger: the
    command then ends with ``code``. ``failure`` is what kept the result from being whole. With --quiet only
    the ``verdict`` is printed, by default the sentence that the view begins with.
    """
    failures: list[PerfkitError] = [] if failure is None else [failure]
    if unrecorded is not None:
        failures.append(RecordingError(unrecorded))
        failures[-1].exit_code = code
    closed: BrokenPipeError | None = None
    steps: list[Callable[[], None]] = [
        functools.partial(show, view, to_json=json, verdict=verdict),
        *then,
        functools.partial(write_json, result, json, indent),
    ]
    for step in steps:
        try:
            step()
        except PerfkitError as error:
            failures.append(error)
        except BrokenPipeError as error:
            closed = error
    if failures:
        for other in failures[1:]:
            failures[0].add_note(str(other))
        raise failures[0]
    if closed is not None:
        raise closed


def show(view: RenderableType, *, to_json: str | None = None, verdict: str | None = None) -> None:
    """Print a view, or with --quiet its verdict; to standard error when standard output carries JSON."""
    from perfkit.report.console import console_on, folded

    stream = sys.stderr if to_json == STANDARD_OUTPUT else sys.stdout
    if is_quiet():
        view = verdict or _first_sentence(view)
    try:
        console = console_on(stream)
        view = with_follow_ups(view) if isinstance(view, str) else view
        # A text is laid out already, so only a line that a terminal would break inside a word is folded.
        if isinstance(view, str) and stream.isatty():
            view = folded(view, console.width)
        # A "[" must not be read as markup.
        # Views fit the terminal by themselves, but for what is to be pasted as it is.
        console.print(view, markup=False, soft_wrap=isinstance(view, str), crop=False)
        stream.flush()
    except SystemExit as end:
        # The library that prints ends the command with 1 if the output is closed.
        raise end.__context__ or end from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(stream, error) from error


def log(text: str, *, to_json: str | None = None) -> None:
    """Print a line about what is being done, unless the person asked for the verdict alone."""
    if not is_quiet():
        show(text, to_json=to_json)


def stages(*, only_drawn: bool = False) -> StageProgress:
    """Return the progress of a command's stages, nothing with --quiet; ``only_drawn`` for quick ones."""
    from perfkit.report.progress import StageProgress

    return StageProgress(enabled=not is_quiet(), only_drawn=only_drawn)


def _first_sentence(view: Any) -> str:  # noqa: ANN401 (anything that the library can render)
    """Return the first line of a view, which is its verdict."""
    while not isinstance(view, str):
        parts = getattr(view, "renderables", None)
        inner = parts[0] if parts else getattr(view, "renderable", None)
        if inner is None:
            break
        view = inner
    return str(view).partition("\n")[0]


def write_json(result: object, destination: str | None, indent: int = 2) -> None:
    """Write a result as JSON to a file or to standard output, where it was asked for; 0 is for one line."""
    if destination is None:
        return
    import msgspec

    from perfkit.commands.schemas import encoded
    from perfkit.commands.text_files import replace_text
    from perfkit.report.console import visible_json

    text = visible_json(msgspec.json.format(encoded(result), indent=indent).decode()) + "\n"
    if destination == STANDARD_OUTPUT:
        write_text(text)
    else:
        replace_text(Path(destination), text, option="--json")


def text_step(file: Path | None, render: Callable[[], str], option: str) -> Callable[[], None]:
    """Return a step of ``emit`` that writes a text, where the option named a file."""

    def write() -> None:
        from perfkit.commands.text_files import replace_text

        if file is not None:
            replace_text(file, render(), option=option)

    return write


def check_two_places(speedscope: Path | None, firefox: Path | None) -> None:
    """Refuse one file for two formats of flame graphs."""
    if speedscope is not None and firefox is not None and speedscope.resolve() == firefox.resolve():
        raise UsageError(f"--speedscope and --firefox both name {firefox}; give each a file of its own")


def write_flames(readings: Sequence[Reading], *, speedscope: Path | None, firefox: Path | None) -> None:
    """Write flame graphs of profiles to the files that were asked for, all of them or none."""
    from perfkit.commands.text_files import replace_text
    from perfkit.report.flame_files import firefox_file, speedscope_file

    texts = [
        (file, render(readings), option)
        for file, render, option in (
            (speedscope, speedscope_file, "--speedscope"),
            (firefox, firefox_file, "--firefox"),
        )
        if file is not None
    ]
    for file, text, option in texts:
        replace_text(file, text, option=option)


def write_text(text: str) -> None:
    """Write a text that a machine reads to standard output: always as UTF-8."""
    try:
        # Takes the "starting perfkit" line away.
        sys.stdout.write("")
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(sys.stdout, error) from error


def _unwritable(stream: TextIO, error: OSError) -> UsageError:
    """Return the error for a stream that took not all; Python must not flush it once more."""
    name = "standard error" if stream is sys.stderr else "standard output"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    return UsageError(f"cannot write to {name} ({error.strerror or error}); lead it to a place that has room")
