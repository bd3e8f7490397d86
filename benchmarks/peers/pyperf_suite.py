"""The works as pyperf times them: ``PYTHONPATH=CHECKOUT python pyperf_suite.py -o FILE NAME…``."""

from __future__ import annotations

import argparse

import pyperf
import torch
import work


def main() -> None:
    """Let pyperf run each in processes of its own, by its defaults."""
    runner = pyperf.Runner(add_cmdline_args=_name_works)
    runner.argparser.add_argument("names", nargs="+", metavar="NAME")
    for name in runner.parse_args().names:
        torch.manual_seed(0)
        runner.bench_func(name, _Lazy(name))


def _name_works(command: list[str], arguments: argparse.Namespace) -> None:
    """Name to the processes that pyperf starts which works there are."""
    command += arguments.names


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
