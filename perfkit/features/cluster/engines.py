"""The engine of a Dask cluster: what it sends to workers, and the check of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from perfkit.commands.engines import EngineChoice
from perfkit.commands.tasks import Engine, own_class
from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS
from perfkit.features.cluster.dask import DaskEngine, scheduler_address
from perfkit.features.cluster.remote_pairs import open_remote_pairs
from perfkit.features.cluster.worker import CheckedWorker, bundle_name, make_bundle
from perfkit.model.tasks import Code, Task

__all__ = ["check_engine", "check_exit_code", "check_url", "open_remote", "open_remote_pairs", "sent_code"]


def check_url(url: str) -> None:
    """Refuse what is no ``dask://HOST:PORT``."""
    scheduler_address(url)


def sent_code(choice: EngineChoice, code: Code, commits: Sequence[str]) -> Code:
    """Return where workers find the code of these commits."""
    sent = _sent(choice, code, commits)
    address = choice.address or ""
    return dataclasses.replace(code, bundle=bundle_name(sent, address), address=address)


@contextmanager
def open_remote(
    choice: EngineChoice, top: Path, code: Code, commits: Sequence[str], log: Callable[[str], None]
) -> Iterator[Engine]:
    """Open a cluster whose workers get the code of a repository."""
    bundle = partial(make_bundle, top, _sent(choice, code, commits))
    with DaskEngine(choice.url, bundle=bundle, log=log, wanted=choice.machines) as engine:
        yield engine


def check_engine(url: str, *, log: Callable[[str], None]) -> tuple[CheckedWorker, ...]:
    """Look at every worker of a cluster, and send a tiny task there and back."""
    here = own_class()
    task = Task(
        kind="check",
        commits=("0" * 40,),
        machine=here,
        code=Code(head="0" * 40),
        stamp=datetime.fromtimestamp(0, UTC),
    )
    # Nobody answers for as long as a connection may take.
    log(f"asking {url} for its workers")
    with DaskEngine(url, log=log) as engine:
        log("looking at the workers")
        return tuple(engine.check(task))


def check_exit_code(workers: Sequence[CheckedWorker]) -> int:
    """Return 0 where there are workers and all are fit, else 4."""
    return EXIT_PASS if workers and all(one.fit for one in workers) else EXIT_NOT_MEASURED


def _sent(choice: EngineChoice, code: Code, commits: Sequence[str]) -> list[str]:
    """Return the commits that are sent to workers: what they cannot clone."""
    benchmarks = [code.overlay] if code.overlay else []
    return benchmarks if choice.address else [*dict.fromkeys((*commits, code.head)), *benchmarks]
