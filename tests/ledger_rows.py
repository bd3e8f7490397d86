"""Any row a ledger may hold, for property tests."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from perfkit.records import Benchmark, Commit, Environment, Machine, Metric, Outcome, Placement, Row

text = st.text(max_size=20)
facts = st.dictionaries(text, text, max_size=3)
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (bounds)
small = st.integers(min_value=0, max_value=2**31 - 1)
rows = st.builds(
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
    ),
    placement=st.builds(
        Placement,
        side=st.sampled_from([None, "base", "head"]),
        launch=small,
        preloader=st.none() | small,
        block=st.none() | small,
        order=st.none() | small,
        seed=st.none() | small,
    ),
    policy=facts,
    partial=st.booleans(),
)
