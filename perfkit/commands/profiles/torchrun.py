"""A command line of ``torchrun`` as what a profile is asked: a script, its arguments, and ranks.

The options are those of https://docs.pytorch.org/docs/stable/elastic/run.html. perfkit starts the ranks
itself, so torchrun need not be installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from perfkit.errors import UsageError
from perfkit.runner.machine.facts import read_machine

TORCHRUN = "torchrun"
_HERE = ("localhost", "127.0.0.1", "::1", "")
_USUAL = "perfkit profile --out FILE torchrun --nproc-per-node 2 train.py"


@dataclass(frozen=True, kw_only=True)
class StartedRanks:
    """A target, its arguments, and as how many ranks it is started: None for a process that is no rank.

    ``port`` is None where a free one may be chosen.
    """

    target: str
    arguments: tuple[str, ...]
    ranks: int | None
    port: int | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"torchrun: {message}; perfkit starts the ranks itself, all on this machine, and takes"
            f" --nproc-per-node and --master-port: `{_USUAL}`"
        )


def started_ranks(target: str, arguments: tuple[str, ...], *, ranks: int | None) -> StartedRanks:
    """Return what is started: a target as it is, or the script of a command line that begins with torchrun.

    Raises:
        UsageError: that line names no script, several machines, a module, or an option that has no meaning
            here; or ``ranks`` gives their number a second time.
    """
    if target != TORCHRUN:
        return StartedRanks(target=target, arguments=arguments, ranks=ranks)
    if ranks is not None:
        raise UsageError(f"--ranks {ranks} and torchrun both say how many ranks there are; leave out --ranks")
    return _read(arguments)


def _read(words: Sequence[str]) -> StartedRanks:
    """Return what a command line of torchrun asks for."""
    parser = _parser()
    found = parser.parse_args(list(words))
    if found.script is None:
        parser.error("no script is named")
    if found.module:
        raise UsageError(
            f"torchrun -m {found.script}: ranks are profiled of a script; name the file of the module"
        )
    if found.nnodes.rpartition(":")[2] != "1" or found.node_rank != 0:
        raise UsageError(
            f"torchrun --nnodes {found.nnodes} --node-rank {found.node_rank}: a profile has all its ranks on"
            " this machine; leave both out"
        )
    if found.master_addr not in _HERE:
        raise UsageError(
            f"torchrun --master-addr {found.master_addr}: a profile has all its ranks on this machine; leave"
            " it out"
        )
    return StartedRanks(
        target=found.script,
        arguments=tuple(found.arguments),
        ranks=_ranks(found.nproc_per_node),
        port=found.master_port,
    )


def _parser() -> argparse.ArgumentParser:
    """Return what reads torchrun's command line as torchrun does."""
    parser = _Parser(prog=TORCHRUN, add_help=False)
    parser.add_argument("--nproc-per-node", "--nproc_per_node", default="1")
    parser.add_argument("--master-port", "--master_port", type=int)
    parser.add_argument("--master-addr", "--master_addr", default="")
    parser.add_argument("--nnodes", default="1")
    parser.add_argument("--node-rank", "--node_rank", type=int, default=0)
    parser.add_argument("-m", "--module", action="store_true")
    # On one machine, and with ranks that are started once, these change nothing.
    parser.add_argument("--standalone", action="store_true")
    for name in ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "max-restarts"):
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}")
    parser.add_argument("script", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _ranks(text: str) -> int:
    """Return a number of processes, which may be named by what there is one for: "gpu", "cpu" or "auto"."""
    gpus = len([name for name in read_machine().facts.get("gpus", "").split(", ") if name])
    cpus = os.cpu_count() or 1
    named = {"gpu": gpus, "cpu": cpus, "auto": gpus or cpus}
    try:
        return named[text] if text in named else int(text)
    except ValueError:
        raise UsageError(
            f'torchrun --nproc-per-node "{text}": expected a number, or one of {", ".join(named)}'
        ) from None
