"""Writes counts and their moves as people read them."""

from __future__ import annotations

from perfkit.units import human_bytes, human_calls

_BYTES = "B"


def amount_text(amount: float | None, unit: str) -> str:
    """Return a count with its unit: "1,234", "2.50 MiB"; "-" where there is none."""
    if amount is None:
        return "-"
    return human_bytes(round(amount)) if unit == _BYTES else _plain(amount)


def signed_amount(moved: float, unit: str) -> str:
    """Return a move with its sign: "+200", "-64 B"."""
    return f"{'-' if moved < 0 else '+'}{amount_text(abs(moved), unit)}"


def _plain(amount: float) -> str:
    return f"{amount:,.0f}" if float(amount).is_integer() else human_calls(amount)
