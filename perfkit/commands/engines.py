"""Where commands measure: on this machine, or on those of an engine that a feature brings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from perfkit.commands.measuring import measuring
from perfkit.commands.tasks import Engine, LocalEngine, own_class, perform_here
from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.extensions import features
from perfkit.gating.pairs import PairMeter, Wanted
from perfkit.ledger.store import Ledger
from perfkit.model.tasks import Code, MachineClass
from perfkit.repo.commits import open_repository

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Where to measure: a URL, ids of its machines (empty for all), and what workers clone."""

    url: str = LOCAL
    machines: tuple[str, ...] = ()
    address: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether everything is measured in this process."""
        return self.url == LOCAL

    def check(self) -> None:
        """Refuse a choice that means nothing."""
        if not self.is_local:
            _remote(self.url).check_url(self.url)
        elif self.machines or self.address:
            raise UsageError(
                f"--machine and --clone need an engine of other machines: --engine {_url_forms()}"
            )


HERE = EngineChoice()


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """What a bisection measures along its range: a benchmark's metric; ``all_parents`` made that range."""

    wanted: Wanted
    metric: str
    all_parents: bool = False


def needed_code(
    choice: EngineChoice, *, project: Project, head: str, overlay: str | None, commits: Sequence[str]
) -> Code:
    """Return where tasks of these commits find their code."""
    choice.check()
    top = open_repository(project.root)
    folder = "" if project.root == top else project.root.relative_to(top).as_posix()
    code = Code(head=head, folder=folder, overlay=overlay)
    if choice.is_local:
        return code
    if project.config.copy or project.config.link:
        raise UsageError(
            "[tool.perfkit] copy and link name generated files that a clone on a worker lacks; make them by a"
            " `prepare` command, or measure with --engine local"
        )
    sent: Code = _remote(choice.url).sent_code(choice, code, commits)
    return sent


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
    """Open the engine that was chosen; the local one holds this machine meanwhile."""
    if choice.is_local:
        with measuring(log, wait_s=wait_s):
            perform = partial(perform_here, project=project.root, log=log)
            yield LocalEngine(machine=own_class(), perform_task=perform)
        return
    top = open_repository(project.root)
    with _remote(choice.url).open_remote(choice, top, code, commits, log) as engine:
        yield engine


@contextmanager
def open_pairs(
    choice: EngineChoice, plan: PairPlan, ledger: Ledger, *, log: Callable[[str], None]
) -> Iterator[PairMeter]:
    """Open what measures pairs: this machine, or those of one class of an engine."""
    if choice.is_local:
        with PairMeter(plan.wanted, ledger, log=log) as meter:
            yield meter
        return
    with _remote(choice.url).open_remote_pairs(choice, plan, ledger, log=log) as remote:
        yield remote


def class_names(machines: Sequence[MachineClass]) -> str:
    """Return classes of machines as the end of a message."""
    return ", ".join(one.text for one in machines)


def _remote(url: str) -> Any:  # noqa: ANN401 (a module of a feature)
    """Return the module that measures on the machines of a URL."""
    scheme = url.partition("://")[0]
    for feature in features():
        if scheme in feature.engines and "://" in url:
            return importlib.import_module(feature.engines[scheme])
    raise UsageError(f"an engine must read local or {_url_forms()}, found {url}")


def _url_forms() -> str:
    return " or ".join(f"{scheme}://HOST:PORT" for feature in features() for scheme in feature.engines)
