"""Records a failing gate and `perfkit why` in a terminal: a moving picture, and text in the README.

`make recording` runs both in a small project. Keys are made up; all else is what the commands print, of long
ones faster than it was.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyte

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from repositories import Repository, create_repository

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs/_static/first-gate.svg"
README = ROOT / "README.md"
_LINES, _COLUMNS = 28, 80
# A command is shown for at most so long; then its output stays. Keys come this many seconds apart.
_LONGEST_S, _READING_S, _KEY_S = 6.0, 5.0, 0.06
_TRAIN = '''"""Train a small classifier."""

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(model, images, labels):
    guesses = model(images).argmax(1)
    return int((guesses == labels).sum()) / len(labels)


def main():
    images, labels = torch.rand(1800, 64), torch.randint(10, (1800,))
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(100):
        for batch in torch.randperm(len(images)).split(100):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    print("accuracy", accuracy(model, images, labels))


if __name__ == "__main__":
    main()
'''
_TEST = """import torch
from train import accuracy, network


def test_accuracy(benchmark):
    images, labels = torch.rand(100, 64), torch.randint(10, (100,))
    benchmark(accuracy, network(), images, labels)
"""
_FILES = {"train.py": _TRAIN, "tests/test_train.py": _TEST, "pytest.ini": "[pytest]\npythonpath = .\n"}
# Compares one label after the other, and waits for each.
_FAST = "int((guesses == labels).sum())"
_SLOWER = "sum(int(a == b) for a, b in zip(guesses, labels))"
_SHOWN = ("git diff --unified=0", "perfkit gate", "git restore train.py", "perfkit why train.py")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command, and what it printed after so many seconds."""

    command: str
    printed: tuple[tuple[float, str], ...]

    @property
    def text(self) -> str:
        """What stays on a terminal when the command has ended, without bars of progress."""
        screen = pyte.Screen(_COLUMNS, 200)
        pyte.Stream(screen).feed("".join(text for _, text in self.printed))
        return "\n".join(line.rstrip() for line in screen.display if "━" not in line).strip("\n")


def played(command: str, folder: Path) -> Scene:
    """Run a command in a terminal."""
    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (_LINES, _COLUMNS))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS), "GIT_PAGER": "cat"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    begun = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=writing,
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )
    os.close(writing)
    decoder = codecs.getincrementaldecoder("utf-8")()
    printed = []
    # A terminal that all have left ends with an error.
    with contextlib.suppress(OSError):
        while data := os.read(reading, 1 << 16):
            printed.append((time.monotonic() - begun, decoder.decode(data)))
    os.close(reading)
    process.wait()
    return Scene(command=command, printed=tuple(printed))


def cast(scenes: list[Scene]) -> Iterator[str]:
    """Yield the lines of a recording in the format of asciinema, version 2."""
    yield json.dumps({"version": 2, "width": _COLUMNS, "height": _LINES})
    at = 0.0
    for scene in scenes:
        # Each long command begins at the top.
        clear = "\x1b[2J\x1b[H" if scene.command.startswith("perfkit") else ""
        for text in (f"{clear}$ ", *scene.command, "\r\n"):
            yield json.dumps([round(at, 3), "o", text])
            at += _KEY_S
        length = max((seconds for seconds, _ in scene.printed), default=0.0)
        faster = max(1.0, length / _LONGEST_S)
        for seconds, text in scene.printed:
            yield json.dumps([round(at + seconds / faster, 3), "o", text])
        at += length / faster + (_READING_S if scene.text else 0.5)
    yield json.dumps([round(at, 3), "o", "$ "])


def filled(document: str, scene: Scene) -> str:
    """Return a document with what a command printed, where a block begins with the command."""
    return re.sub(
        rf"^```text\n\$ {re.escape(scene.command)}\n.*?^```$",
        lambda _: f"```text\n$ {scene.command}\n{scene.text}\n```",
        document,
        flags=re.MULTILINE | re.DOTALL,
    )


def main() -> None:
    """Record the commands, draw the picture, and fill the README."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "classifier"
        Repository(folder, create_repository(folder)).commit(_FILES, "Train a small classifier")
        (folder / "train.py").write_text(_TRAIN.replace(_FAST, _SLOWER))
        scenes = []
        for command in _SHOWN:
            scenes.append(played(command, folder))
            print(f"$ {command}\n{scenes[-1].text}", flush=True)
        recording = Path(place) / "recording.cast"
        recording.write_text("\n".join(cast(scenes)) + "\n")
        subprocess.run(
            [
                *(sys.executable, "-m", "termtosvg", "render", recording, PICTURE),
                *("--template", "window_frame", "--min-frame-duration", "150", "--loop-delay", "5000"),
            ],
            check=True,
        )
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB")
    text = README.read_text()
    for scene in scenes:
        text = filled(text, scene)
    README.write_text(text)


if __name__ == "__main__":
    main()
