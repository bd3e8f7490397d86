"""Reads the instructions of each function from a file that callgrind dumped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# "fn=(12) name" names a function and gives it a number, "fn=(12)" is the same one again.
_FUNCTION = re.compile(r"fn=\((\d+)\)(?: (.+))?")
# "cfn=(13) name" names a function that is called, before its own costs are given.
_NAMED = re.compile(r"cfn=\((\d+)\) (.+)")


def instructions_by_function(lines: Iterable[str]) -> Counter[str]:
    """Return how many instructions each function ran itself, without those that it called."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    function, is_call = "", False
    for line in lines:
        if line[:1] in "+-*0123456789":
            # The line after "calls=" holds the cost of the called functions, which is not the caller's own.
            if not is_call and function:
                found[function] += int(line.split()[-1])
            is_call = False
        elif line.startswith("calls="):
            is_call = True
        elif match := _FUNCTION.match(line):
            number, name = match.groups()
            function = names.setdefault(number, name)
        elif match := _NAMED.match(line):
            names.setdefault(*match.groups())
    return found
