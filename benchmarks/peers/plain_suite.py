"""The works as anyone would time them: ``PYTHONPATH=CHECKOUT python plain_suite.py NAME…``.

It prints the seconds of a call of each, the median over at least three calls and a tenth of a second.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import work

_LEAST_CALLS = 3
_LEAST_S = 0.1


def main() -> None:
    """Time the works that are named, one after the other."""
    print(json.dumps({name: _seconds(name) for name in sys.argv[1:]}))


def _seconds(name: str) -> float:
    torch.manual_seed(0)
    call = work.dosed(name, getattr(work, f"{name}_work")())
    call()
    values: list[float] = []
    while len(values) < _LEAST_CALLS or sum(values) < _LEAST_S:
        values.append(_timed(call))
    return statistics.median(values)


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
