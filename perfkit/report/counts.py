"""Writes amounts and their moves as people read them."""

from __future__ import annotations

from perfkit.units import human_bytes, human_calls, human_seconds


def amount_text(amount: float | None, unit: str) -> str:
    """Return an amount in its unit: "1,234", "2.50 MiB", "3.1 ms"; "-" where there is none."""
    if amount is None:
        return "-"
    if unit == "s":
        return human_seconds(amount)
    if unit == "B":
        return human_bytes(round(amount))
    return f"{amount:,.0f}" if float(amount).is_integer() else human_calls(amount)


def signed_amount(moved: float, unit: str) -> str:
    """Return a move with its sign: "+200", "-64 B"."""
    return f"{'-' if moved < 0 else '+'}{amount_text(abs(moved), unit)}"
