"""Exact bounds for a share that was counted."""

from __future__ import annotations


def upper_bound(count: int, of: int, *, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound of a probability (Clopper and Pearson 1934); 1 where nothing ran."""
    from scipy.special import betaincinv

    return float(betaincinv(count + 1, of - count, confidence)) if count < of else 1.0


def lower_bound(count: int, of: int, *, confidence: float = 0.95) -> float:
    """Return the one-sided lower bound of a probability (Clopper and Pearson 1934); 0 where nothing ran."""
    from scipy.special import betaincinv

    return float(betaincinv(count, of - count + 1, 1 - confidence)) if count else 0.0
