"""Writes all functions of a profile as plain text in the columns of pstats, under its header and totals."""

from __future__ import annotations

from perfkit.model.readings import FunctionTime, OperatorTime, Reading
from perfkit.units import counted


def reading_text(reading: Reading, *, own_only: bool = False) -> str:
    """Return every function or operator by cumulative time, with ``own_only`` those of the user's code."""
    functions = [one for one in reading.functions if one.kind == "own" or not own_only]
    lines = [
        _totals(reading),
        f"Own code only: {len(functions)} of {counted(len(reading.functions), 'function')}."
        if own_only
        else "",
        "   Ordered by: cumulative time",
        "",
    ]
    if reading.functions:
        lines.append("   ncalls  tottime  percall  cumtime  percall filename:lineno(function)")
        lines += [_function_line(one) for one in sorted(functions, key=lambda one: -one.cumulative_s)]
    if reading.operators:
        lines.append("   ncalls  tottime  percall  cumtime  percall operator")
        lines += [_operator_line(one) for one in sorted(reading.operators, key=lambda one: -one.cumulative_s)]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _totals(reading: Reading) -> str:
    calls = f"{reading.calls} calls" if reading.calls is not None else "calls"
    steps = f", {counted(reading.steps.count, 'step')} (by {reading.steps.sign})" if reading.steps else ""
    return f"{reading.name}: {calls} in {reading.total_s:.3f} seconds{steps}"


def _function_line(one: FunctionTime) -> str:
    calls = f"{one.calls}/{one.primitive_calls}" if one.calls != one.primitive_calls else str(one.calls)
    place = one.function if one.kind == "builtin" else f"{one.file}:{one.line}({one.function})"
    return _line(calls, one.own_s, one.calls, one.cumulative_s, one.primitive_calls, place)


def _operator_line(one: OperatorTime) -> str:
    place = one.name if one.place == "cpu" else f"{one.name} (device)"
    return _line(str(one.calls), one.own_s, one.calls, one.cumulative_s, one.calls, place)


def _line(calls: str, own_s: float, each_of: int, cumulative_s: float, whole_of: int, place: str) -> str:
    own_each, cumulative_each = own_s / max(each_of, 1), cumulative_s / max(whole_of, 1)
    return f"{calls:>9} {own_s:8.3f} {own_each:8.3f} {cumulative_s:8.3f} {cumulative_each:8.3f} {place}"
