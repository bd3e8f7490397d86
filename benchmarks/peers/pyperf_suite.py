"""The six works as pyperf times them: ``PYTHONPATH=CHECKOUT python pyperf_suite.py -o FILE``."""

from __future__ import annotations

import pyperf
import torch
import work

NAMES = ("tensor", "loss", "training", "loading", "python", "allocation")


def main() -> None:
    """Let pyperf run each in processes of its own, by its defaults."""
    runner = pyperf.Runner()
    for name in NAMES:
        torch.manual_seed(0)
        runner.bench_func(name, _Lazy(name))


class _Lazy:
    """A work that is made when it is first called: a process times one and must not pay for the others."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> object:
        if not hasattr(self, "_call"):
            self._call = work.dosed(self._name, getattr(work, f"{self._name}_work")())
        return self._call()


if __name__ == "__main__":
    main()
