"""Seconds and bytes inside, scaled for people only at the very end."""

from __future__ import annotations

from collections.abc import Sequence

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def human_seconds(seconds: float | None, *, digits: int = 3) -> str:
    """Return a duration with this many significant digits and its unit; "-" where it is not known."""
    if seconds is None:
        return "-"
    for scale, unit in _TIME_UNITS:
        if abs(seconds) >= scale:
            return f"{_significant(seconds / scale, digits)} {unit}"
    return "0 s" if seconds == 0 else f"{seconds / 1e-9:.2g} ns"


def signed_seconds(seconds: float) -> str:
    """Return a move with its sign: "+1.20 ms"."""
    return f"{'-' if seconds < 0 else '+'}{human_seconds(abs(seconds))}"


def human_calls(calls: float) -> str:
    """Return how often something is called or done: three digits, and whole numbers from a thousand on."""
    return f"{calls:.3g}" if calls < 999.5 else f"{calls:,.0f}"  # noqa: PLR2004 (rounds to a thousand)


def human_bytes(count: int) -> str:
    """Return a byte count in binary units."""
    for scale, unit in _BYTE_UNITS:
        if count >= scale:
            return f"{_significant(count / scale)} {unit}"
    return f"{count} B"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 step", "2 steps"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def listed(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names, and how many others there are: "a, b, c and 4 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def human_percent(share: float | None) -> str:
    """Return a share (1.0 is the whole) in percent with one decimal."""
    return "-" if share is None else f"{100 * share:.1f} %"


def _significant(value: float, digits: int = 3) -> str:
    # Rounded first: 99.96 has three digits before the point.
    magnitude = abs(float(f"{value:.{digits - 1}e}"))
    before = 1 if magnitude < 10 else 2 if magnitude < 100 else 3  # noqa: PLR2004 (digits before the point)
    return f"{value:.{max(digits - before, 0)}f}"


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
