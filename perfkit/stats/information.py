"""How much a noisy reading tells of which of two levels is the true one."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from perfkit.stats.step_chain import FloatArray

# How many probabilities and distances the table has, and its largest distance.
_CHANCES, _DISTANCES, _LARGEST_DISTANCE = 65, 81, 8.0
# Readings are looked at in such steps, to so many deviations on either side.
_STEP, _REACH = 0.1, 5


def bits_told(chances: FloatArray, distances: FloatArray) -> FloatArray:
    """Return how many bits a reading tells of which of two levels is the true one.

    ``chances`` are the probabilities of one of them beforehand, ``distances`` how many deviations of the
    reading both are apart: the mutual information of Shannon's binary channel with normal noise.
    """
    table = _table()
    last = np.array(table.shape) - 1
    row = np.arccos(1 - 2 * np.clip(chances, 0, 1)) / math.pi * last[0]
    column = np.minimum(distances / _LARGEST_DISTANCE, 1.0) * last[1]
    i = np.minimum(row.astype(np.intp), last[0] - 1)
    j = np.minimum(column.astype(np.intp), last[1] - 1)
    u, v = row - i, column - j
    return np.asarray(
        (1 - u) * ((1 - v) * table[i, j] + v * table[i, j + 1])
        + u * ((1 - v) * table[i + 1, j] + v * table[i + 1, j + 1])
    )


@lru_cache(maxsize=1)
def _table() -> FloatArray:
    """Return bits by probability, in equal steps of the arc cosine, and by distance."""
    chance = ((1 - np.cos(np.linspace(0, math.pi, _CHANCES))) / 2)[:, None, None]
    distance = np.linspace(0, _LARGEST_DISTANCE, _DISTANCES)[:, None]
    reading = np.arange(-_REACH, _LARGEST_DISTANCE + _REACH, _STEP)
    near, far = np.exp(-0.5 * reading**2), np.exp(-0.5 * (reading - distance) ** 2)
    mixed = (1 - chance) * near + chance * far
    told = (1 - chance) * near * np.log2(near / mixed) + chance * far * np.log2(far / mixed)
    return np.asarray(told.sum(axis=2) * _STEP / math.sqrt(2 * math.pi))
