"""Verdicts are reached from runs that were measured apart."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import build_row

from perfkit.records import Row
from perfkit.records.comparisons import Comparison, Policy
from perfkit.verdict.apart import compare_apart, run_levels

POLICY = Policy(alpha=0.01, family=1, looks=(1,))
BASE, HEAD, OTHER = "a" * 40, "b" * 40, "c" * 40


def _runs(sha: str, seconds: float, runs: int, *, noise: float = 0.01, seed: int = 0) -> list[Row]:
    """Return rows of a commit's runs, three rounds each, at levels that scatter by ``noise``."""
    levels = seconds * np.exp(np.random.default_rng([seed, int(sha[0], 16)]).normal(0, noise, runs))
    return [
        build_row(level * 0.9, level, level * 1.5, sha=sha, run=f"{sha[0]}-{number}")
        for number, level in enumerate(levels)
    ]


def _compare(base: list[Row], head: list[Row], *others: Row, margin: float = 0.05) -> Comparison:
    return compare_apart(
        base[0].outcome.benchmark,
        base=base,
        head=head,
        history=[*base, *head, *others],
        policy=POLICY,
        margin=margin,
        gating=True,
    )


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.3, "REGRESSED"), (0.7, "IMPROVED"), (1.0, "UNCHANGED"), (1.06, "INCONCLUSIVE")]
)
def test_the_interval_alone_decides(factor: float, verdict: str) -> None:
    """Six runs of each commit at 1 % between runs tell 30 % from nothing, and leave 6 % open."""
    found = _compare(_runs(BASE, 0.01, 6), _runs(HEAD, 0.01 * factor, 6))

    assert verdict == found.verdict
    assert found.estimate is not None
    assert ("runs", 12) == (found.estimate.unit, found.estimate.launches)
    assert pytest.approx(factor, rel=0.03) == found.estimate.ratio


def test_swapping_the_commits_mirrors_the_verdict() -> None:
    """Ratio and interval turn into their inverses."""
    fast, slow = _runs(BASE, 0.01, 5), _runs(HEAD, 0.012, 5)
    there, back = _compare(fast, slow).estimate, _compare(slow, fast).estimate

    assert there is not None
    assert back is not None
    assert pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low)) == (
        back.ratio,
        back.low,
        back.high,
    )


def test_noise_of_other_commits_widens_the_interval() -> None:
    """Two alike runs of each commit look exact; what a third commit's runs show says they are not."""
    base, head = (_runs(sha, 0.01, 2, noise=0.0001) for sha in (BASE, HEAD))
    alone = _compare(base, head).estimate
    informed = _compare(base, head, *_runs(OTHER, 0.02, 10, noise=0.05)).estimate

    assert alone is not None
    assert informed is not None
    assert informed.high - informed.low > 10 * (alone.high - alone.low)


def test_single_runs_rest_on_the_noise_of_others() -> None:
    """One run of each commit can be judged where another commit was measured often."""
    found = _compare(_runs(BASE, 0.01, 1), _runs(HEAD, 0.02, 1), *_runs(OTHER, 0.01, 12))

    assert "REGRESSED" == found.verdict


@pytest.mark.parametrize("runs", [1, 2])
def test_too_few_runs_say_nothing(runs: int) -> None:
    """One repetition or none gives no estimate, and the message says what there was."""
    found = _compare(_runs(BASE, 0.01, runs), _runs(HEAD, 0.05, 1))

    assert ("INCONCLUSIVE", None) == (found.verdict, found.estimate)
    assert found.message is not None
    assert f"too few runs to say anything: {runs} run" in found.message
    assert found.base_s == pytest.approx(0.01, rel=0.1)


def test_what_is_left_open_says_how_many_runs_would_close_it() -> None:
    """The number is of each commit; where none in reason would do, the gate is named."""
    near = _compare(_runs(BASE, 0.01, 2), _runs(HEAD, 0.01, 2), margin=0.03)
    hopeless = _compare(_runs(BASE, 0.01, 3, noise=0.5), _runs(HEAD, 0.01, 3, noise=0.5))

    assert "more run" in str(near.message)
    assert "of each commit would decide" in str(near.message)
    assert "no number of runs in reason would decide" in str(hopeless.message)


def test_a_run_counts_once_however_many_launches_it_has() -> None:
    """Launches of one run shared its hour: they are averaged, not counted."""
    launches = [build_row(0.01, 0.02, 0.03, run="one", launch=number) for number in range(5)]
    single = build_row(0.04, run="two")

    assert {"one": pytest.approx(np.log(0.02)), "two": pytest.approx(np.log(0.04))} == run_levels(
        [*launches, single]
    )
