"""How soon every command of perfkit prints its first words, on a terminal and through a pipe.

``make first-output`` measures it in a repository with a ledger, and writes results.json and a table.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import json
import os
import platform
import pty
import re
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from interruptions import VERBS, make_template
from ledger_files import run_id
from signals import Copied, Verb

from perfkit.cli.app import whole_command_line

RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = Path(__file__).parents[2] / "docs/measured/speed.md"
SLOW_S = 1.0
_BEGIN, _END = "<!-- first output -->\n", "<!-- /first output -->\n"
_TIMES = 5
_LINES, _COLUMNS = 40, 120
_LIMIT_S, _ENDS_WITHIN_S = 120.0, 30.0
# What steers a terminal: sequences of control, titles, and single controls.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|[\x00-\x08\x0b-\x1f\x7f]"
)
# These stand for the ids of runs, which are known once the repository is there.
_EXPERIMENT_RUN = "EXPERIMENT_RUN"
Way = Literal["terminal", "pipe"]
WAYS: tuple[Way, ...] = ("terminal", "pipe")
_EXPERIMENT = ("experiment", "run", "experiment.toml")
# What interrupting leaves out: these end as soon as they have begun, need a browser, or measure for an hour.
_OTHERS = (
    Verb(name="experiment show", arguments=("experiment", "show", _EXPERIMENT_RUN)),
    Verb(name="help", arguments=("help", "gate")),
    Verb(name="history accept", arguments=("history", "accept", "test_a", "--reason", "wanted")),
    Verb(name="history ignore", arguments=("history", "ignore", "test_a", "--reason", "gone")),
    Verb(name="ledger judge", arguments=("ledger", "judge", run_id(3))),
    Verb(name="ledger show", arguments=("ledger", "show", run_id(3))),
    Verb(name="log note", arguments=("log", "note", "HEAD", "Made it slower")),
    Verb(name="mcp", arguments=("mcp",)),
    Verb(name="schema", arguments=("schema",)),
    Verb(name="show env", arguments=("show", "env", run_id(3))),
    Verb(name="view", arguments=("view", "first.stat", "--server")),
    Verb(name="watch", arguments=("watch", "999999999")),
    Verb(name="why", arguments=("why", "training:main")),
)
CALLS = tuple(verb for verb in (*VERBS, *_OTHERS) if not verb.arguments[0].startswith("-"))


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """The first words of a command, and after how many seconds they came."""

    seconds: float
    words: str


@functools.cache
def commands() -> list[str]:
    """Return every command that does something, as it is typed; hidden ones are for programs."""
    return sorted(_leaves(whole_command_line(), ()))


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 (the library's own type moves)
    below = getattr(command, "commands", None)
    if path and not command.hidden and (below is None or command.invoke_without_command):
        yield " ".join(path)
    for name, one in (below or {}).items():
        yield from _leaves(one, (*path, name))


def command_of(verb: Verb) -> str:
    """Return which command a call is of; a group's own default command is called by the group's name."""
    known = set(commands())
    words = [*verb.arguments]
    for end in range(len(words), 0, -1):
        if (name := " ".join(words[:end])) in known:
            return name
    return f"{words[0]} show"


def first_words(
    command: Sequence[str], way: Way, *, cwd: Path, environment: Mapping[str, str], limit_s: float = _LIMIT_S
) -> Spoken:
    """Start a command, wait until it prints something, and end it.

    Both of its outputs are a terminal, or pipes.

    Raises:
        TimeoutError: it prints nothing for so long.
    """
    reading, writing = pty.openpty() if way == "terminal" else os.pipe()
    if way == "terminal":
        fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=writing if way == "terminal" else subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )
    os.close(writing)
    try:
        printed = b""
        while not (words := spoken(printed)):
            left_s = limit_s - (time.perf_counter() - begun)
            more = _read(reading, left_s)
            if not more:
                raise TimeoutError(f"{command} printed nothing in {limit_s - left_s:.1f} s")
            printed += more
        return Spoken(seconds=time.perf_counter() - begun, words=words)
    finally:
        _end(process, reading)


def spoken(printed: bytes) -> str:
    """Return the first line that a person can read, without what steers a terminal; "" without one."""
    text = _CONTROL.sub("", printed.decode(errors="ignore"))
    return next((line.strip() for line in text.splitlines() if any(map(str.isalnum, line))), "")


def _read(descriptor: int, limit_s: float) -> bytes:
    """Return what there is to read, b"" at the end or where nothing comes in time."""
    if not select.select([descriptor], [], [], max(limit_s, 0.0))[0]:
        return b""
    # A terminal that all have left ends with an error.
    with contextlib.suppress(OSError):
        return os.read(descriptor, 1 << 16)
    return b""


def _end(process: subprocess.Popen[bytes], reading: int) -> None:
    """End a command as a person would, and read on, since one whose output is full waits."""
    process.terminate()
    deadline = time.perf_counter() + _ENDS_WITHIN_S
    while process.poll() is None and time.perf_counter() < deadline:
        if not _read(reading, 0.1):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    process.kill()
    process.wait()
    os.close(reading)


def measure(verb: Verb, way: Way, template: Path, times: int) -> list[Spoken]:
    """Return the first words of a call, so many times after once, each in a copy of the repository."""
    found = []
    for _ in range(times + 1):
        with tempfile.TemporaryDirectory(prefix="first-output-", ignore_cleanup_errors=True) as place:
            scene = Copied(Path(place).resolve() / "scene", template)
            arguments = [_known(scene, word) for word in verb.arguments]
            found.append(
                first_words(
                    scene.command(arguments),
                    way,
                    cwd=scene.folder / verb.folder,
                    environment=scene.environment(),
                )
            )
    return found[1:]


def _known(scene: Copied, word: str) -> str:
    """Return a word of a call, the id of a run where it stands for one."""
    if word != _EXPERIMENT_RUN:
        return word
    file = next(scene.ledger.glob("*-experiment-*.parquet"))
    return file.stem.partition("-experiment-")[2]


def prepare(folder: Path) -> Path:
    """Return a repository with three commits and a ledger, with what the commands begin with."""
    template = make_template(folder / "template")
    scene = Copied(folder / "prepared", template)
    done = scene.run(_EXPERIMENT)
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr)
    shutil.rmtree(template)
    return scene.folder


def seconds_of_each(results: Mapping[str, Any]) -> str:
    """Return how long each call took: through a pipe the slowest first, on a terminal where they differ."""
    calls = sorted(results["calls"].items(), key=lambda one: -one[1]["pipe_s"])
    usual = statistics.mode(f"{one['terminal_s']:.2f}" for _, one in calls)
    others = {name: f"{one['terminal_s']:.2f}" for name, one in calls}
    differing = ", ".join(f"`{name}` {seconds}" for name, seconds in others.items() if seconds != usual)
    pipes = ", ".join(f"`{name}` {one['pipe_s']:.2f}" for name, one in calls)
    return f"On a terminal {usual} s; {differing}.\n\nThrough a pipe, in seconds: {pipes}.\n"


def _without_folders(text: str) -> str:
    """Return a line without the folders of a path, which are other ones each time."""
    return re.sub(r"(?<![\w/:])/\S*/", "…/", text)


def document(results: Mapping[str, Any]) -> str:
    """Return what the document has between its two marks."""
    load = " and ".join(f"{one:.1f}" for one in results["load"])
    return (
        f"Medians of {results['times']} starts after one that warms up, {results['date']}, {results['cpus']}"
        f" cores, Python {results['python']}, load {load} at begin and end.\n\n"
        f"{seconds_of_each(results)}"
    )


def main() -> int:
    """Measure the calls that are asked for, and print what takes longer than a second without a word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--call", action="append", help="the beginning of a call; all by default")
    parser.add_argument("--times", type=int, default=_TIMES)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} and the table")
    given = parser.parse_args()
    load = [os.getloadavg()[0]]
    # What is measured again takes the place of what was.
    calls: dict[str, Any] = json.loads(RESULTS.read_text())["calls"] if given.call and given.write else {}
    with tempfile.TemporaryDirectory(prefix="first-output-") as place:
        template = prepare(Path(place).resolve())
        for verb in (one for one in CALLS if given.call is None or one.name.startswith(tuple(given.call))):
            measured = {way: measure(verb, way, template, given.times) for way in WAYS}
            medians = {f"{way}_s": statistics.median(one.seconds for one in measured[way]) for way in WAYS}
            calls[verb.name] = {
                **{name: round(seconds, 3) for name, seconds in medians.items()},
                "words": _without_folders(measured["pipe"][-1].words),
            }
            slow = "  SLOW" if max(medians.values()) > SLOW_S else ""
            print(f"{verb.name}: {calls[verb.name]} ({measured['terminal'][-1].words}){slow}", flush=True)
    load.append(os.getloadavg()[0])
    results = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": [round(one, 2) for one in load],
        "times": given.times,
        "calls": calls,
    }
    if given.write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
        DOCUMENT.write_text(before + _BEGIN + document(results) + _END + rest.partition(_END)[2])
    return int(any(max(one[f"{way}_s"] for way in WAYS) > SLOW_S for one in calls.values()))


if __name__ == "__main__":
    sys.exit(main())
