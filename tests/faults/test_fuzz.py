"""Every reader answers or refuses in a line: what a fuzzer kept of its inputs, and some thousands at random.

``make fuzz`` gives them a million, led by the lines that an input reaches.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest
from fuzzing import CORPUS, SLOW_TARGETS, TARGETS, try_once

from perfkit.errors import PerfkitError

_INPUT_S = 20
_EXAMPLES = int(os.environ.get("PERFKIT_FUZZ_EXAMPLES", "250"))


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    """End a test in which a reader hangs."""
    signal.alarm(10 * _INPUT_S)
    yield
    signal.alarm(0)


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_fuzzer_kept_is_answered_or_refused(target: str) -> None:
    for file in sorted((CORPUS / target).glob("*")):
        try_once(target, file.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_anything_is_answered_or_refused(target: str) -> None:
    chosen = random.Random(1)  # noqa: S311 (no secret)
    for _ in range(8 if target in SLOW_TARGETS else _EXAMPLES):
        try_once(target, chosen.randbytes(chosen.choice((8, 20, 60, 200))))


def test_a_failure_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "words", int)
    with pytest.raises(ValueError, match="invalid literal"):
        try_once("words", b"x")

    def refuse(_: bytes) -> None:
        raise PerfkitError

    monkeypatch.setitem(TARGETS, "words", refuse)
    with pytest.raises(AssertionError, match="without a word"):
        try_once("words", b"x")
