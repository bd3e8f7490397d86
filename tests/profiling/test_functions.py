"""Functions are paired across moves and renames, and compared in a unit of equal work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explained import blamed, call, function, library, reading

from perfkit.errors import UsageError
from perfkit.model.readings import Reading, StepTimes
from perfkit.profiling.diff.attribution import Blame, Work, equal_work, pair_functions

STEP = Work(unit="step", base=1, head=1)


def named(base: list[Blame], head: list[Blame], work: Work = STEP) -> set[str]:
    """Return the pairs as "what it was > what it is", without what there is not."""
    return {f"{_name(pair.base)} > {_name(pair.head)}" for pair in pair_functions(base, head, work)}


def _name(one: Blame | None) -> str:
    return f"{one.function.file} {one.function.function}" if one and one.function else "-"


def blames(names: str) -> list[Blame]:
    """Return what functions that call nothing answer for, named "FILE NAME, FILE NAME"."""
    places = (name.rpartition(" ") for name in names.split(", "))
    return blamed([function(name, file=file) for file, _, name in places])


@pytest.mark.parametrize(
    ("base", "head", "pairs"),
    [
        # A name that each side has left over once is the same function.
        ("a.py f, t.py g", "b.py f, t.py g", {"a.py f > b.py f", "t.py g > t.py g"}),
        # A function that may have moved to either of two files moved to none.
        ("a.py f", "b.py f, c.py f", {"a.py f > -", "- > b.py f", "- > c.py f"}),
        # A file and a name come before a name alone.
        ("a.py f", "a.py f, b.py f", {"a.py f > a.py f", "- > b.py f"}),
        # Where many classes have a method of one name, the file distinguishes them in another folder.
        (
            "V/src/unet.py forward, V/src/loss.py forward",
            "D/V/unet.py forward, D/V/loss.py forward, D/V/new.py forward",
            {
                "V/src/unet.py forward > D/V/unet.py forward",
                "V/src/loss.py forward > D/V/loss.py forward",
                "- > D/V/new.py forward",
            },
        ),
        # As much of a path's end as both sides have in common identifies a file.
        (
            "src/a/utils.py f, src/b/utils.py f",
            "app/a/utils.py f, app/b/utils.py f",
            {"src/a/utils.py f > app/a/utils.py f", "src/b/utils.py f > app/b/utils.py f"},
        ),
        # Once a folder's files are paired, a method that came and one that is gone are two.
        (
            "old/net.py f, old/gone.py f",
            "new/net.py f, new/came.py f",
            {"old/net.py f > new/net.py f", "old/gone.py f > -", "- > new/came.py f"},
        ),
        # What runs as a module is read has everyone's name, and every package an __init__.py.
        ("src/data.py <module>", "app/data.py <module>", {"src/data.py <module> > app/data.py <module>"}),
        (
            "src/net/__init__.py <module>",
            "app/net/__init__.py <module>",
            {"src/net/__init__.py <module> > app/net/__init__.py <module>"},
        ),
        (
            "src/__init__.py <module>",
            "app/__init__.py <module>",
            {"src/__init__.py <module> > -", "- > app/__init__.py <module>"},
        ),
        # A lambda's name is everyone's.
        ("a.py <lambda>", "b.py <lambda>", {"a.py <lambda> > -", "- > b.py <lambda>"}),
    ],
)
def test_a_function_is_found_where_it_moved(base: str, head: str, pairs: set[str]) -> None:
    assert pairs == named(blames(base), blames(head))


def calling(name: str, *callees: str, calls: int = 6, file: str = "train.py") -> list[Blame]:
    return blamed(
        [function(name, calls=calls, file=file), *(library(callee, call(0), own_s=1.0) for callee in callees)]
    )


@pytest.mark.parametrize(
    ("head", "work", "same"),
    [
        (calling("new", "conv"), STEP, True),
        (calling("new", "conv", calls=2), Work(unit="step", base=3, head=1), True),
        (calling("new", "conv"), Work(unit="step", base=3, head=1), False),
        (calling("new", "conv", calls=7), STEP, False),
        (calling("new", "relu"), STEP, False),
        (calling("new", "conv", "relu", "norm"), STEP, False),
        (calling("new", "conv", file="other.py"), STEP, False),
        ([*calling("new", "conv"), *calling("two", "conv")], STEP, False),
    ],
    ids=["alike", "a step", "not a step", "calls", "callees", "more callees", "file", "two fit"],
)
def test_a_function_may_be_renamed_in_its_file(head: list[Blame], work: Work, *, same: bool) -> None:
    assert ("train.py old > train.py new" in named(calling("old", "conv"), head, work)) == same


def test_functions_of_one_name_in_a_file_are_added_up() -> None:
    base = blamed(
        [
            function("<lambda>", own_s=1.0, calls=2, line=1),
            function("<lambda>", own_s=2.0, calls=3, line=2),
            library("conv", call(0, 1.0), call(1, 2.0, calls=3), own_s=3.0),
            library("relu", call(1, 1.0), own_s=1.0),
        ]
    )
    (pair,) = pair_functions(base, blamed([function("<lambda>", line=90)]), STEP)

    assert pair.base is not None
    assert (7.0, 5) == (pair.base.seconds, pair.base.calls)
    through = {name: (one.seconds, one.calls) for name, one in pair.base.through.items()}
    assert {"conv (net.py)": (3.0, 4.0), "relu (net.py)": (1.0, 1.0)} == through
    assert pair.head is not None
    assert pair.head.function is not None
    assert 90 == pair.head.function.line


BASE = reading(function("f", own_s=6.0), steps=6, name="base.stat")
HEAD = replace(BASE, name="head.stat")
ONE = StepTimes(count=1, sign="run_backward")


@pytest.mark.parametrize(
    ("base", "head", "unit", "amounts", "warnings"),
    [
        (BASE, HEAD, "step", (6, 6), ()),
        (replace(BASE, world_size=1), HEAD, "step", (6, 6), ()),
        (
            reading(steps=1),
            reading(steps=2),
            "step",
            (1, 2),
            ("1 step against 2: compared per step, and set-up weighs more in fewer",),
        ),
        # Within a hundredth, as of a smaller last batch, a step is a step.
        (replace(BASE, samples=600), replace(HEAD, samples=597), "step", (6, 6), ()),
        (replace(BASE, samples=600), HEAD, "step", (6, 6), ()),
        (
            replace(BASE, samples=600),
            replace(HEAD, samples=1200),
            "sample",
            (600, 1200),
            ("batches of 100 against 200: compared per sample",),
        ),
        (
            replace(BASE, samples=600),
            replace(reading(steps=3), samples=600),
            "sample",
            (600, 600),
            (
                "6 steps against 3: compared per sample, and set-up weighs more in fewer",
                "batches of 100 against 200: compared per sample",
            ),
        ),
        (
            reading(steps=None),
            reading(steps=0),
            "whole run",
            (1, 1),
            ("neither profile shows its steps: totals are compared",),
        ),
    ],
)
def test_the_unit_is_one_of_equal_work(
    base: Reading, head: Reading, unit: str, amounts: tuple[float, float], warnings: tuple[str, ...]
) -> None:
    work = equal_work(base, head)
    assert (unit, *amounts) == (work.unit, work.base, work.head)
    assert warnings == work.warnings


@pytest.mark.parametrize(
    ("base", "head", "why"),
    [
        (BASE, replace(HEAD, origin="torch trace"), "base.stat is a cProfile and head.stat a torch trace"),
        (replace(BASE, world_size=8), replace(HEAD, world_size=2), "of 8 ranks and head.stat of 2"),
        (BASE, replace(HEAD, world_size=2), "of 1 ranks and head.stat of 2"),
        (BASE, replace(HEAD, steps=None), "base.stat holds 6 training steps, and head.stat shows none"),
        (BASE, reading(steps=0), "shows none"),
        (
            replace(BASE, steps=None),
            replace(HEAD, steps=ONE),
            "head.stat holds 1 training step, and base.stat",
        ),
    ],
    ids=["kinds", "worlds", "a world of one", "base alone", "no steps", "head alone"],
)
def test_what_cannot_be_compared_is_refused(base: Reading, head: Reading, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        equal_work(base, head)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
