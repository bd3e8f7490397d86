"""A function is found on both sides, even where it was moved or renamed."""

from __future__ import annotations

import pytest
from explained import blamed, call, function, library

from perfkit.model.readings import FunctionTime
from perfkit.profiling.diff.attribution import Blame
from perfkit.profiling.diff.functions import Work, pair_functions

STEP = Work(unit="step", base=1, head=1)


def blames(*functions: FunctionTime) -> list[Blame]:
    """Return what functions that call nothing answer for."""
    return blamed(functions)


def named(base: list[Blame], head: list[Blame], work: Work = STEP) -> set[tuple[str, str]]:
    """Return the pairs as (what it was, what it is), empty where there is none."""
    return {(_name(pair.base), _name(pair.head)) for pair in pair_functions(base, head, work)}


def _name(one: Blame | None) -> str:
    return f"{one.function.file} {one.function.function}" if one and one.function else ""


def test_a_line_may_move() -> None:
    """A file and a name are enough: every change above a function moves its line."""
    (pair,) = pair_functions(blames(function("f", line=1)), blames(function("f", line=90)), STEP)
    assert pair.base is not None
    assert pair.head is not None
    assert (1, 90) == (
        pair.base.function.line if pair.base.function else None,
        pair.head.function.line if pair.head.function else None,
    )


def test_a_function_may_move_to_another_file() -> None:
    """A name that each side has left over once is the same function."""
    found = named(
        blames(function("f", file="a.py"), function("g")), blames(function("f", file="b.py"), function("g"))
    )
    assert {("a.py f", "b.py f"), ("train.py g", "train.py g")} == found


def test_a_name_in_two_places_says_nothing_of_a_move() -> None:
    """A function that may have moved to either of two files moved to none."""
    found = named(
        blames(function("f", file="a.py")), blames(function("f", file="b.py"), function("f", file="c.py"))
    )
    assert {("a.py f", ""), ("", "b.py f"), ("", "c.py f")} == found


def test_who_stayed_is_not_taken_for_who_moved() -> None:
    """A file and a name come before a name alone."""
    found = named(
        blames(function("f", file="a.py")), blames(function("f", file="a.py"), function("f", file="b.py"))
    )
    assert {("a.py f", "a.py f"), ("", "b.py f")} == found


def test_a_folder_may_move() -> None:
    """Where many classes have a method of one name, the file tells which is which in another folder."""
    files = ("unet.py", "losses.py")
    found = named(
        blames(*(function("forward", file=f"VBTC/src/{file}") for file in files)),
        blames(*(function("forward", file=f"Dev/VBTC/{file}") for file in (*files, "newmodel.py"))),
    )
    assert {
        ("VBTC/src/unet.py forward", "Dev/VBTC/unet.py forward"),
        ("VBTC/src/losses.py forward", "Dev/VBTC/losses.py forward"),
        ("", "Dev/VBTC/newmodel.py forward"),
    } == found


def test_files_of_one_name_are_told_by_their_folders() -> None:
    """As much of a path's end as both sides have in common says which file is which."""
    folders = ("a/utils.py", "b/utils.py")
    found = named(
        blames(*(function("f", file=f"src/{file}") for file in folders)),
        blames(*(function("f", file=f"app/{file}") for file in folders)),
    )
    assert {(f"src/{file} f", f"app/{file} f") for file in folders} == found


def test_what_is_left_of_one_name_is_not_the_same() -> None:
    """Once a folder's files are paired, a method that came and one that is gone stay apart."""
    found = named(
        blames(*(function("forward", file=f"old/{file}") for file in ("net.py", "gone.py"))),
        blames(*(function("forward", file=f"new/{file}") for file in ("net.py", "came.py"))),
    )
    assert {
        ("old/net.py forward", "new/net.py forward"),
        ("old/gone.py forward", ""),
        ("", "new/came.py forward"),
    } == found


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("src/data.py", "app/data.py", True),
        ("src/net/__init__.py", "app/net/__init__.py", True),
        ("src/__init__.py", "app/__init__.py", False),
    ],
)
def test_a_module_moves_with_its_file(old: str, new: str, same: bool) -> None:  # noqa: FBT001 (a case)
    """What runs as a module is read has everyone's name, and every package an __init__.py."""
    found = named(blames(function("<module>", file=old)), blames(function("<module>", file=new)))
    whole = {(f"{old} <module>", f"{new} <module>")}
    assert (whole if same else {(f"{old} <module>", ""), ("", f"{new} <module>")}) == found


def calling(name: str, *callees: str, calls: int = 6, file: str = "train.py") -> list[Blame]:
    """Return what a function with these callees answers for."""
    return blamed(
        [
            function(name, calls=calls, file=file),
            *(library(callee, call(0), own_s=1.0) for callee in callees),
        ]
    )


def test_a_function_may_be_renamed_in_its_file() -> None:
    """As many calls, and the same callees, under another name."""
    assert {("train.py old", "train.py new")} == named(calling("old", "conv"), calling("new", "conv"))


def test_calls_are_compared_per_step() -> None:
    """Six calls in three steps are as many as two in one."""
    work = Work(unit="step", base=3, head=1)
    assert {("train.py old", "train.py new")} == named(
        calling("old", "conv"), calling("new", "conv", calls=2), work
    )
    assert {("train.py old", ""), ("", "train.py new")} == named(
        calling("old", "conv"), calling("new", "conv"), work
    )


@pytest.mark.parametrize(
    "head",
    [
        calling("new", "conv", calls=7),
        calling("new", "relu"),
        calling("new", "conv", "relu", "norm"),
        calling("new", "conv", file="other.py"),
    ],
    ids=["other calls", "other callees", "more callees", "other file"],
)
def test_what_is_not_alike_is_not_renamed(head: list[Blame]) -> None:
    """Other calls, other callees or another file: one is gone, and another one new."""
    assert 2 == len(named(calling("old", "conv"), head))


def test_two_that_fit_one_are_left_unpaired() -> None:
    """No guess which of two functions with equal calls and callees was renamed."""
    found = named(calling("old", "conv"), [*calling("one", "conv"), *calling("two", "conv")])
    assert {("train.py old", ""), ("", "train.py one"), ("", "train.py two")} == found


@pytest.mark.parametrize("name", ["<lambda>", "forward"])
def test_functions_of_one_name_in_a_file_are_added_up(name: str) -> None:
    """Nothing but a line parts them, and a line is no name."""
    (pair,) = pair_functions(
        blames(function(name, own_s=1.0, calls=2, line=3), function(name, own_s=2.0, calls=3, line=8)),
        blames(function(name, own_s=4.0, line=4)),
        STEP,
    )
    assert pair.base is not None
    assert (3.0, 5) == (pair.base.seconds, pair.base.calls)


def test_what_they_called_is_added_up_too() -> None:
    """Callees that both have, and those that one of them has."""
    (pair,) = pair_functions(
        blamed(
            [
                function("<lambda>", line=1),
                function("<lambda>", line=2),
                library("conv", call(0, 1.0), call(1, 2.0, calls=3), own_s=3.0),
                library("relu", call(1, 1.0), own_s=1.0),
            ]
        ),
        blames(function("<lambda>")),
        STEP,
    )
    assert pair.base is not None
    told = {name: (one.seconds, one.calls) for name, one in pair.base.through.items()}
    assert {"conv (net.py)": (3.0, 4.0), "relu (net.py)": (1.0, 1.0)} == told


def test_a_lambda_does_not_move_to_another_file() -> None:
    """Its name is everyone's."""
    found = named(blames(function("<lambda>", file="a.py")), blames(function("<lambda>", file="b.py")))
    assert {("a.py <lambda>", ""), ("", "b.py <lambda>")} == found


def test_new_and_gone_functions_have_one_side() -> None:
    """What only one side has is there, once; nobody's time is no function."""
    base = blamed([function("gone", calls=1), function("kept"), library("top", own_s=1.0)])
    head = blamed([function("kept"), function("new", calls=5)])
    assert {("train.py gone", ""), ("train.py kept", "train.py kept"), ("", "train.py new")} == named(
        base, head
    )
