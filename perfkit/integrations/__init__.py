"""Callbacks for the libraries in which people train; each module alone imports its library."""

from __future__ import annotations

from pathlib import Path

from perfkit.commands.training import TrainingRecord
from perfkit.profiling.passes.training import StepPlan


class Followed:
    """What callbacks of all libraries take.

    Evaluations and checkpoints are no part of a step. The first ``warmup`` steps are left alone; ``steps``
    are timed, ``balance`` others watched by turns with these, and with ``counts`` three are counted. ``name``
    is that of the model's class unless it is given. No error in here stops the training.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        warmup: int = 10,
        steps: int = 200,
        balance: int = 40,
        counts: bool = False,
        ledger: str | Path | None = None,
    ) -> None:
        super().__init__()
        self._name, self._ledger = name, ledger
        self._plan = StepPlan(warmup=warmup, steps=steps, balance=balance, counts=counts)
        self._record: TrainingRecord | None = None
