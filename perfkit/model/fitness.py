"""How steady a machine is, and whether a gate on it could decide at a margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfkit.model import Machine
from perfkit.model.comparisons import Policy

State = Literal["good", "notable", "bad", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One thing that decides how steady a machine is: what was found, and what to do where it is not good."""

    name: str
    found: str
    state: State
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much identical code scattered, and which changes a gate could see in spite of it.

    ``launch_sd`` is the deviation over ``measured`` launches of the log ratio, ``launch_s`` what a launch
    took in seconds. A gate would give the benchmark ``launches``; its interval would be ``half_width`` wide
    to each side, and a slowdown of ``effect`` would be found 19 times of 20 (both relative changes, None
    where not even the first look would be reached).
    """

    benchmark: str
    measured: int
    launch_sd: float
    launch_s: float
    launches: int
    half_width: float | None
    effect: float | None


@dataclass(frozen=True, kw_only=True)
class Fitness:
    """What a machine is fit for: its conditions, its noise, and whether a gate could decide at ``margin``."""

    machine: Machine
    margin: float
    policy: Policy
    seconds_per_benchmark: float
    conditions: tuple[Condition, ...]
    noises: tuple[Noise, ...]
    fit: bool
    exit_code: int
