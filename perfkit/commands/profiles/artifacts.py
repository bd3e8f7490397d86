"""The files of a profile: written aside, put in their places when complete, and listed in the index."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfkit.commands.profiles.settle import ENDINGS, SettledProfile
from perfkit.commands.text_files import read_text, replace_text
from perfkit.errors import UsageError
from perfkit.model import ProfileSummary
from perfkit.profiling.passes.save import load_summary, may_be_summary
from perfkit.profiling.passes.workers import WORKER_FILE
from perfkit.report.markers import replace_between_markers
from perfkit.report.profiles_index import render_index
from perfkit.temporary import temporary_folder

# The prefix of temporary folders beside a profile: it hides them, since they come and go.
STAGING_PREFIX = ".perfkit-"
_RANKS = rf"\.rank\d+({'|'.join(map(re.escape, ENDINGS))}|{WORKER_FILE})"
_INDEX_HEAD = """# Profiles

Look at one with `snakeviz NAME.stat` or `python -m pstats NAME.stat`; a trace opens at <https://ui.perfetto.dev>.
Write notes anywhere outside the two markers below: they are kept.
"""


@contextlib.contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Yield a temporary folder on the same file system as the output, so that a rename completes it.

    The output's own folder is made where it is missing and the one above it exists.
    """
    try:
        out.parent.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder(place=out.parent, prefix=STAGING_PREFIX))
            kept = stack.pop_all()
    except OSError as error:
        raise UsageError(
            f"cannot write {out} ({error.strerror or error}); give another place with --out"
        ) from error
    with kept:
        yield folder


def publish(run: SettledProfile, staging: Path, artifacts: Sequence[str], *, artifact: str) -> None:
    """Put the complete artifacts in their places.

    Those of workers and of ranks that an earlier run had, and this one has not, are removed.
    """
    for name in artifacts:
        (staging / name).replace(run.out.with_name(name))
    run.beside(".error.txt").unlink(missing_ok=True)
    one_of_many = re.compile(f"{re.escape(artifact)}({WORKER_FILE}|{_RANKS})")
    for file in run.out.parent.glob(f"{glob.escape(artifact)}.*"):
        if one_of_many.fullmatch(file.name) and file.name not in artifacts:
            file.unlink()


def list_in_index(run: SettledProfile) -> None:
    """Render the index of the configured profiles folder, if this profile was written to it."""
    folder = run.project.path(run.project.config.profiles)
    if folder.resolve() != run.out.parent.resolve():
        return
    index = folder / "README.md"
    before = read_text(index, default=_INDEX_HEAD)
    summaries, damaged = saved_profiles(folder)
    text = replace_between_markers(before, render_index(summaries, damaged=damaged), name="profiles")
    replace_text(index, text, option="--out")


def saved_profiles(folder: Path) -> tuple[list[ProfileSummary], dict[str, str]]:
    """Return the profiles saved in a folder, by name, and for each unreadable one the reason."""
    summaries: list[ProfileSummary] = []
    damaged: dict[str, str] = {}
    for file in filter(may_be_summary, sorted(folder.glob("*.json"))):
        try:
            summaries.append(load_summary(file))
        except UsageError as error:
            damaged[file.name] = str(error).removeprefix(f"{file} ")
    return summaries, damaged
