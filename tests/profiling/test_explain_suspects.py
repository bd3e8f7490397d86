"""A regression is first looked for in the functions that a change touched."""

from __future__ import annotations

import pytest
from explained import call, function, reading

from perfkit.model.readings import Call, Reading
from perfkit.profiling.diff.functions import changed_only, equal_work, find_suspect, function_section


def _profile(**own_s: float) -> Reading:
    """Return a profile of ``top``, which calls ``push`` and ``render``, which calls ``escape``."""
    names: dict[str, tuple[Call, ...]] = {
        "top": (),
        "push": (call(0),),
        "render": (call(0),),
        "escape": (call(2, own_s["escape"]),),
    }
    return reading(
        *(function(name, *by, own_s=own_s[name], line=line) for line, (name, by) in enumerate(names.items()))
    )


BASE = {"top": 1.0, "push": 8.0, "render": 4.0, "escape": 2.0}


@pytest.mark.parametrize(
    ("head", "changed", "suspect"),
    [
        pytest.param({"push": 11.0, "render": 5.5}, {"render"}, "render", id="others moved by chance"),
        pytest.param({"render": 5.5, "escape": 1.0}, {"render", "top"}, "render", id="the one that moved"),
        pytest.param({"escape": 5.0}, {"render"}, "render", id="it has others do more"),
        pytest.param({"escape": 5.0}, {"render", "escape"}, "escape", id="its callee changed as well"),
        pytest.param({"push": 11.0}, {"escape"}, None, id="it took no more time"),
        pytest.param({"push": 11.0}, set(), None, id="nothing changed"),
    ],
)
def test_the_changed_function_that_took_more_time_is_suspected(
    head: dict[str, float], changed: set[str], suspect: str | None
) -> None:
    before, after = _profile(**BASE), _profile(**{**BASE, **head})
    lines = {"train.py": [range(line, line + 1) for line, name in enumerate(BASE) if name in changed]}
    work = equal_work(before, after)

    found = find_suspect(
        function_section(before, after, work), changed_only(before, lines), changed_only(after, lines), work
    )

    assert suspect == (found.name if found else None)
