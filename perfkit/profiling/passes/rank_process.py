"""What makes the process of a pass one rank of a distributed loop, as ``torchrun`` would start it.

The environment variables are those of https://docs.pytorch.org/docs/stable/elastic/run.html.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from perfkit.profiling.passes.exchange import STACK_FILE, PassSpec, Problem, RankPlace

# The signal that asks a rank where it stands.
ASKING = signal.SIGUSR2
_THREADS = "OMP_NUM_THREADS"
_HERE = "127.0.0.1"
# Among them is a file to whose descriptor a handler of signals writes.
_kept_alive: list[object] = []


def become_rank(spec: PassSpec, place: RankPlace) -> None:
    """Set the environment of a rank, and answer the parent's question where it stands.

    Several ranks have one thread each unless the caller's environment says otherwise.
    """
    os.environ.update(_environment(place))
    if place.ranks > 1 and _THREADS not in os.environ:
        os.environ[_THREADS] = "1"
        _limit_threads()
    stack = (Path(spec.folder) / STACK_FILE).open("w")
    faulthandler.register(ASKING, file=stack, all_threads=False)
    os.set_inheritable(stack.fileno(), False)  # noqa: FBT003 (positional only)
    _kept_alive.append(stack)


def leave_rank() -> NoReturn:
    """End the process as its interpreter would, but for the objects that are still alive.

    The group of ranks is one of them, and its end waits for threads that may need the interpreter for theirs.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 (there is no public name)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def no_group(place: RankPlace, name: str) -> Problem | None:
    """Return the mistake of ranks that train without each other, None where they form one group.

    The group is kept alive from then on: where the loop's last object that knows it goes, with torch 2.13 and
    gloo, its end can wait for a thread that itself waits for the interpreter's lock, for ever.
    """
    import torch.distributed as dist

    if not dist.is_available():
        message = "this torch was built without torch.distributed: no ranks can meet; install another build"
    elif not dist.is_initialized():
        message = (
            f"{name} made a step without torch.distributed.init_process_group: its {place.ranks} ranks would"
            " train by themselves; call that first, or profile one process without --ranks"
        )
    elif dist.get_world_size() != place.ranks:
        message = (
            f"{name} made a group of {dist.get_world_size()} ranks, and {place.ranks} were started; let"
            " init_process_group take the size from the environment (WORLD_SIZE), or change --ranks"
        )
    else:
        _kept_alive.append(dist.group.WORLD)
        return None
    return Problem(kind="usage", message=message)


def _environment(place: RankPlace) -> dict[str, str]:
    rank, ranks = str(place.rank), str(place.ranks)
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "ROLE_RANK": rank,
        "GROUP_RANK": "0",
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "ROLE_WORLD_SIZE": ranks,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(place.port),
        "TORCHELASTIC_RUN_ID": "perfkit",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # The first rank holds the store itself: there is no agent that would.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _limit_threads() -> None:
    """Give torch one thread; a forked process has it imported already, and it reads the variable then."""
    import torch

    torch.set_num_threads(1)
