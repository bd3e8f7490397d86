"""Engines as commands name them: opened with the code that their tasks need, and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from perfkit.commands.measuring import measuring
from perfkit.config import Project
from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS, UsageError
from perfkit.features.cluster.code import bundle_name, make_bundle
from perfkit.features.cluster.dask import SCHEME, DaskEngine, scheduler_address
from perfkit.features.cluster.local import LocalEngine
from perfkit.features.cluster.records import CheckedWorker, Code, MachineClass, Task
from perfkit.features.cluster.tasks import Engine
from perfkit.features.cluster.worker import own_class
from perfkit.repo.commits import open_repository

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Where to measure: ``local`` or ``dask://HOST:PORT``; on which machines, by id, empty for all of them.

    ``address`` is what workers clone, None where the code is sent to them.
    """

    url: str = LOCAL
    machines: tuple[str, ...] = ()
    address: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether everything is measured in this process."""
        return self.url == LOCAL

    def check(self) -> None:
        """Refuse a choice that means nothing.

        Raises:
            UsageError: it is no engine, or is told what only one of other machines needs.
        """
        if not self.is_local:
            scheduler_address(self.url)
        elif self.machines or self.address:
            raise UsageError(
                f"--machine and --clone need an engine of other machines: --engine {SCHEME}HOST:PORT"
            )


HERE = EngineChoice()


def needed_code(
    choice: EngineChoice, *, project: Project, head: str, overlay: str | None, commits: Sequence[str]
) -> Code:
    """Return where tasks of these commits find their code.

    Raises:
        UsageError: the engine has no such form, or the project needs files that a clone lacks.
    """
    top = Path(str(open_repository(project.root).working_tree_dir)).resolve()
    folder = "" if project.root == top else project.root.relative_to(top).as_posix()
    choice.check()
    if choice.is_local:
        return Code(head=head, folder=folder, overlay=overlay)
    if project.config.copy or project.config.link:
        raise UsageError(
            "[tool.perfkit] copy and link name generated files that a clone on a worker lacks; make them by a"
            " `prepare` command, or measure with --engine local"
        )
    sent = _sent(choice, head, overlay, commits)
    return Code(
        head=head,
        folder=folder,
        overlay=overlay,
        bundle=bundle_name(sent, choice.address or ""),
        address=choice.address or "",
    )


@contextmanager
def open_engine(
    choice: EngineChoice,
    *,
    project: Project,
    code: Code,
    commits: Sequence[str],
    wait_s: float | None,
    log: Callable[[str], None],
) -> Iterator[Engine]:
    """Open the engine that was chosen; the local one holds this machine meanwhile.

    Raises:
        UsageError: there is no such cluster.
        NotMeasuredError: another perfkit did not let this machine go in time.
    """
    if choice.is_local:
        from perfkit.features.cluster.work import perform_here

        with measuring(log, wait_s=wait_s):
            perform = partial(perform_here, project=project.root, log=log)
            yield LocalEngine(machine=own_class(), perform_task=perform)
        return
    top = Path(str(open_repository(project.root).working_tree_dir)).resolve()
    sent = _sent(choice, code.head, code.overlay, commits)
    with DaskEngine(
        choice.url, bundle=partial(make_bundle, top, sent), log=log, wanted=choice.machines
    ) as engine:
        yield engine


def check_engine(url: str, *, log: Callable[[str], None]) -> tuple[CheckedWorker, ...]:
    """Look at every worker of a cluster, and send a tiny task there and back.

    Raises:
        UsageError: there is no such cluster.
    """
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


def told_classes(machines: Sequence[MachineClass]) -> str:
    """Return classes of machines as the end of a message."""
    return ", ".join(one.told for one in machines)


def _sent(choice: EngineChoice, head: str, overlay: str | None, commits: Sequence[str]) -> list[str]:
    """Return the commits that are sent to workers: what they cannot clone."""
    benchmarks = [overlay] if overlay else []
    return benchmarks if choice.address else [*dict.fromkeys((*commits, head)), *benchmarks]
