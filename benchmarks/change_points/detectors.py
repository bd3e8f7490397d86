"""The detectors that are compared, each at its own defaults: from levels to the first run after each step."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

import numpy as np

from perfkit.stats.change_points import FloatArray, find_steps

Detector = Callable[[FloatArray], list[int]]
# What it takes to run them all; none needs what its package would bring along.
PACKAGES = {
    "otava": "apache-otava==0.8.0",
    "ruptures": "ruptures==1.1.10",
    "asv": "asv==0.6.6",
    "skchange": "skchange==0.18.0",
    "fastcpd": "fastcpd==1.3.1",
}


# The module of each detector that is not perfkit's own.
_MODULES = {"Otava": "otava", "PELT": "ruptures", "asv": "asv", "skchange": "skchange", "fastcpd": "fastcpd"}


def is_installed(name: str) -> bool:
    """Return whether a detector can run here."""
    return name not in _MODULES or importlib.util.find_spec(_MODULES[name]) is not None


def missing_packages() -> list[str]:
    """Return the packages, as pip takes them, that are not installed."""
    return [PACKAGES[module] for name, module in _MODULES.items() if not is_installed(name)]


def perfkit(levels: FloatArray) -> list[int]:
    """perfkit, at a chance of 1 % in 100 runs."""
    return [step.place for step in find_steps(levels)]


def otava(levels: FloatArray) -> list[int]:
    """Apache Otava (Hunter): windows of 50, p < 0.001, no least magnitude."""
    from otava.analysis import compute_change_points

    points, _ = compute_change_points([float(level) for level in levels])
    return [int(point.index) for point in points]


def pelt(levels: FloatArray) -> list[int]:
    """PELT of ruptures, with the kernel and the penalty of its documentation: rbf, 10."""
    from ruptures import Pelt

    return [int(end) for end in Pelt(model="rbf").fit(np.log(levels)[:, None]).predict(pen=10)[:-1]]


def asv(levels: FloatArray) -> list[int]:
    """The step detection of asv: a piecewise constant fit of least absolute residuals."""
    from asv.step_detect import detect_steps

    return [int(step[0]) for step in detect_steps([float(level) for level in levels])[1:]]


def seeded(levels: FloatArray) -> list[int]:
    """Seeded binary segmentation of skchange, which expects noise of sd 1: by medians of differences."""
    from skchange.detectors import SeededBinarySegmentation

    logs = np.log(levels)
    sd = 1.4826 * np.median(np.abs(np.diff(logs))) / np.sqrt(2)
    return [int(place) for place in SeededBinarySegmentation().fit_predict((logs / sd)[:, None])]


def fastcpd(levels: FloatArray) -> list[int]:
    """The fit of means of fastcpd."""
    from fastcpd.segmentation import mean

    return [int(place) for place in mean(np.log(levels)[:, None]).cp_set]


DETECTORS: Mapping[str, Detector] = {
    "perfkit": perfkit,
    "Otava": otava,
    "PELT": pelt,
    "asv": asv,
    "skchange": seeded,
    "fastcpd": fastcpd,
}
