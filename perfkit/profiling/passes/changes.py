"""Changes to a training loop that a pass makes in its own process, to be timed beside the loop as it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Trial:
    """A change by the name of the cause that it removes, and its ``number`` of workers or threads."""

    name: str
    number: int = 0


def make_change(trial: Trial) -> None:
    """Change torch in this process, before the loop is loaded."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    def with_workers(given: Mapping[str, Any]) -> dict[str, Any]:
        # Workers of an iterable data set would repeat each other.
        if given.get("num_workers") or isinstance(given["dataset"], IterableDataset):
            return {}
        return {"num_workers": trial.number, "persistent_workers": True}

    if trial.name == "loader":
        _construct_with(DataLoader, with_workers)
    elif trial.name == "threads":
        torch.set_num_threads(trial.number)
        _replace(torch, "set_num_threads", lambda _: None)
    elif trial.name == "float64":
        _replace(torch, "set_default_dtype", lambda _: None)
        for kind in (torch.nn.Module, torch.Tensor):
            _replace(kind, "double", kind.float)
    elif trial.name == "optimizer":
        for kind in vars(torch.optim).values():
            if isinstance(kind, type) and "fused" in inspect.signature(kind).parameters:
                _construct_with(kind, lambda _: {"fused": True, "foreach": None})


def _construct_with(kind: type, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    construct: Callable[..., None] = vars(kind)["__init__"]
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def changed(*args: object, **keywords: object) -> None:
        passed = signature.bind(*args, **keywords)
        passed.arguments.update(change(passed.arguments))
        construct(*passed.args, **passed.kwargs)

    _replace(kind, "__init__", changed)


def _replace(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)
