"""Numbers are written as people read them."""

from __future__ import annotations

import pytest

from perfkit.units import counted, human_bytes, human_calls, human_percent, human_seconds, listed


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (328.638, "329 s"),
        (2.5, "2.50 s"),
        (0.0123, "12.3 ms"),
        (4.5e-6, "4.50 us"),
        (175e-9, "175 ns"),
        (5e-10, "0.5 ns"),
        (0.09999, "100 ms"),
        (9.996, "10.0 s"),
    ],
)
def test_seconds_are_scaled(seconds: float | None, text: str) -> None:
    assert text == human_seconds(seconds)


@pytest.mark.parametrize(
    ("calls", "text"), [(0.0, "0"), (2.5, "2.5"), (999.4, "999"), (999.6, "1,000"), (1849.2, "1,849")]
)
def test_calls_are_whole_from_a_thousand_on(calls: float, text: str) -> None:
    assert text == human_calls(calls)


def test_more_digits_can_be_asked_for() -> None:
    assert "328.638 s" == human_seconds(328.637751, digits=6)
    assert "164.3 s" == human_seconds(164.3188755, digits=4)


@pytest.mark.parametrize(
    ("count", "text"), [(10, "10 B"), (2048, "2.00 KiB"), (369_454_080, "352 MiB"), (3 << 30, "3.00 GiB")]
)
def test_bytes_are_binary(count: int, text: str) -> None:
    assert text == human_bytes(count)


def test_an_unknown_share_is_a_dash() -> None:
    assert "-" == human_percent(None)
    assert "3.1 %" == human_percent(0.031)


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_a_count_agrees_with_its_noun(number: int, text: str) -> None:
    assert text == counted(number, "step")


def test_a_few_names_are_listed_and_the_others_counted() -> None:
    assert "a, b" == listed(["a", "b"], 2)
    assert "a, b and 2 more" == listed(["a", "b", "c", "d"], 2)
