"""Interrupting a command, or closing its terminal or its output, finds nothing left and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from signals import COMPACT, GATE, KINDS, PYTEST, Kind, Usual, Verb, interrupt_once, make_template

# A pipe closes after so many bytes, whenever that is. What a signal meets after a second depends on the
# machine, and on a quick one the command has ended: the study draws moments, and counts those too late.
_USUAL = (("gate", "closed stderr"), ("ledger compact", "closed stdout"))
_BYTES = 10
# On a quick machine a command may be over by the first of these moments.
_SECONDS = (1.0, 0.5, 0.25, 0.12)
_CASES = [
    pytest.param(verb, kind, marks=[] if (verb.name, kind) in _USUAL else [pytest.mark.slow])
    for verb in (PYTEST, GATE, COMPACT)
    for kind in KINDS
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of what each command begins with."""
    return make_template(tmp_path_factory.mktemp("signals") / "template").folder


@pytest.mark.parametrize(("verb", "kind"), _CASES)
def test_nothing_is_left_and_nothing_is_lost(template: Path, tmp_path: Path, verb: Verb, kind: Kind) -> None:
    usual = Usual(seconds=_SECONDS[0], code=1 if verb.name == "gate" else 0, stdout=0, stderr=0)
    # The reader of a pipe may be late on a busy machine, and the command over by then.
    moments = [_BYTES] * len(_SECONDS) if kind.startswith("closed std") else _SECONDS
    for number, at in enumerate(moments):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = interrupt_once(verb, kind, template, folder, at=at, usual=usual, again=False)

        assert () == case.problems
        if case.reached:
            break
    assert case.reached
