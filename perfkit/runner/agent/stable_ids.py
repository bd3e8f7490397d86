"""Ids of tests that hold addresses, which differ in every process: numbered in their order instead."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from typing import Any

import pytest

# An address that Python prints, or a number as long as one.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{9,16}")


class StableIds:
    """Gives each test whose id holds an address an id that is the same in every process."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Rename them before a selection leaves some of them out."""
        for item, node in zip(items, numbered([item.nodeid for item in items]), strict=True):
            if node != item.nodeid:
                _rename(item, node)


def _rename(item: Any, node: str) -> None:  # noqa: ANN401 (the fields are pytest's own)
    parse = getattr(type(getattr(item, "_id", None)), "parse", None)
    if parse is None:
        # Older versions of pytest keep an id as a text.
        item._nodeid = node  # noqa: SLF001
    else:
        item._id = parse(node)  # noqa: SLF001


def without_addresses(text: str) -> str:
    """Return a text without the addresses in it."""
    return _ADDRESS.sub("", text)


def numbered(nodes: Iterable[str]) -> list[str]:
    """Return ids with numbers in the place of addresses.

    The number of tests that differ in nothing else is part of each: where there are more of them in another
    version of the code, nothing says which is which.
    """
    nodes = list(nodes)
    plain = [without_addresses(node) for node in nodes]
    alike = collections.Counter(text for node, text in zip(nodes, plain, strict=True) if node != text)
    seen: collections.Counter[str] = collections.Counter()
    found = []
    for node, text in zip(nodes, plain, strict=True):
        if node != text:
            seen[text] += 1
            text = f"{text.removesuffix(']')}#{seen[text]}-of-{alike[text]}]"  # noqa: PLW2901
        found.append(text)
    return found
