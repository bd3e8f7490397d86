"""The rules that rows of experiments were measured under."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from perfkit.features.experiments.records import Experiment, Fingerprint
from perfkit.model.policies import stored_as
from perfkit.model.results import RowPolicy


@dataclass(frozen=True, kw_only=True)
class ExperimentPolicy(RowPolicy):
    """An experiment's plan and identity, what its variants showed, and why it ended."""

    study: str = stored_as("experiment", MISSING)
    plan: Experiment
    fingerprint: Fingerprint | None = None
    stopped: str = ""
