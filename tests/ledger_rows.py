"""These strategies make any row that a ledger may hold, for property tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args

from hypothesis import strategies as st

from perfkit.agent.counters.model import Cause
from perfkit.choices import FailOn, Inconclusive
from perfkit.features.experiments.records import Experiment, ExperimentPolicy, Factor, Fingerprint
from perfkit.features.tricks.trick import CheckedClaim, Equivalence, TrickCase, TrickPolicy, TricksRun
from perfkit.model import (
    Benchmark,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
    Summary,
)
from perfkit.model.comparisons import Policy, Verdict
from perfkit.model.policies import (
    CalibrationPolicy,
    GatePolicy,
    OtherPolicy,
    ProfilePolicy,
    PytestPolicy,
    Rehearsal,
)

text = st.text(max_size=20)
facts = st.dictionaries(text, text, max_size=3)
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (bounds)
small = st.integers(min_value=0, max_value=2**31 - 1)
numbers = st.floats(allow_nan=False)
words = st.text(min_size=1, max_size=20)
judged = {
    "rules": st.builds(
        Policy,
        alpha=numbers,
        family=st.integers(),
        looks=st.lists(st.integers(), min_size=1).map(tuple),
        fail_on=st.sampled_from(get_args(FailOn)),
        noise_floor=numbers,
        inconclusive=st.sampled_from(get_args(Inconclusive)),
    ),
    "margin": numbers,
    "gating": st.booleans(),
    "verdict": st.none() | st.sampled_from(get_args(Verdict)),
    "wall_s": st.none() | numbers,
    "continues": st.lists(st.uuids().map(str), max_size=3).map(tuple),
    "faults": st.none() | numbers,
}
gate = {"base": words, "budget_s": numbers, "mode": words, "as_is": st.booleans(), **judged}
levels = st.booleans() | st.integers(-(2**53), 2**53) | numbers | text
plans = st.builds(
    Experiment,
    name=text,
    target=text,
    factors=st.lists(
        st.builds(Factor, name=text, levels=st.lists(levels, min_size=1, max_size=3).map(tuple)), max_size=2
    ).map(tuple),
    fixed=st.dictionaries(text, levels, max_size=2),
    returned=facts,
)
tricks_runs = st.builds(
    TricksRun,
    arguments=st.dictionaries(text, levels, max_size=2),
    left_out=facts,
    claims=st.lists(
        st.builds(CheckedClaim, name=text, statement=text, answer=text, evidence=text), max_size=2
    ).map(tuple),
)
# Policies by the sources of the rows that have them.
policies: Mapping[str, st.SearchStrategy[RowPolicy]] = {
    "gate": st.builds(GatePolicy, **gate),
    "calibrate": st.builds(
        CalibrationPolicy,
        **gate,
        rehearsal=st.builds(
            Rehearsal, study=words, case=small, plant=st.none() | numbers, planted=st.none() | words
        ),
    ),
    "tricks": st.builds(
        TrickPolicy,
        **judged,
        case=st.builds(TrickCase, trick=text, size=small, loop=text, title=text),
        equivalence=st.builds(Equivalence, equal=st.booleans(), largest=st.none() | numbers, problem=text),
        run=st.none() | tricks_runs,
    ),
    "experiment": st.builds(
        ExperimentPolicy,
        study=words,
        plan=plans,
        fingerprint=st.none()
        | st.builds(
            Fingerprint,
            operators=small,
            half=st.dictionaries(text, small, max_size=2),
            tensor_peak=small,
            settings=facts,
            steps=small,
        ),
        stopped=text,
    ),
    "pytest": st.builds(
        PytestPolicy,
        mode=words,
        disable_gc=st.none() | st.booleans(),
        min_rounds=st.none() | small,
        max_time_s=st.none() | numbers,
        min_time_s=st.none() | numbers,
    ),
    "profile": st.builds(ProfilePolicy, steps=st.none() | small),
    "import:another": st.builds(OtherPolicy, entries=st.dictionaries(text, text, min_size=1, max_size=3)),
}
sourced = st.one_of(
    *(st.tuples(st.just(source), st.just(RowPolicy()) | policy) for source, policy in policies.items())
)
finite = st.floats(allow_nan=False, allow_infinity=False)
summaries = st.builds(
    Summary, n=st.integers(1, 2**31), mean=finite, sd=st.none() | finite, median=st.none() | finite
)
causes = st.lists(st.builds(Cause, what=text, place=text, text=text, amount=numbers), max_size=2).map(tuple)
unsourced = st.builds(
    Row,
    run_id=text,
    recorded_at=times,
    source=text,
    commit=st.builds(
        Commit,
        sha=text,
        time=st.none() | times,
        subject=st.none() | text,
        branch=st.none() | text,
        dirty=st.booleans(),
        diff_hash=st.none() | text,
    ),
    machine=st.builds(Machine, machine_id=text, facts=facts),
    environment=st.builds(Environment, env_id=text, facts=facts),
    outcome=st.builds(
        Outcome,
        benchmark=st.builds(Benchmark, name=text, version=text, params=facts, group=st.none() | text),
        metric=st.builds(
            Metric, name=text, unit=text, better=st.sampled_from(["lower", "higher"]), exact=st.booleans()
        ),
        warmup=st.none() | small,
        loops=st.none() | small,
        values=st.lists(st.floats(0, 1e6), max_size=5).map(tuple),
        status=st.sampled_from(["ok", "error", "timeout", "oom", "skipped"]),
        message=st.none() | text,
        causes=st.none() | causes,
        training=st.booleans(),
        summary=st.none() | summaries,
    ).map(lambda outcome: outcome if outcome.summary is None else replace(outcome, values=())),
    placement=st.builds(
        Placement,
        side=st.sampled_from([None, "base", "head"]),
        launch=small,
        preloader=st.none() | small,
        block=st.none() | small,
        order=st.none() | small,
        seed=st.none() | small,
    ),
    partial=st.booleans(),
)
rows = st.tuples(unsourced, sourced).map(lambda both: replace(both[0], source=both[1][0], policy=both[1][1]))
