"""Files of other tools, most of them written by the tools themselves, are read as records."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.errors import UsageError
from perfkit.features.exchange import asv
from perfkit.features.exchange.formats import format_of, read
from perfkit.features.exchange.records import ToolRun, decode, metric_of, rows_of
from perfkit.ledger.schema import from_table, to_table
from perfkit.model import WALL_TIME, Commit, Outcome, Summary

FILES = Path(__file__).parent / "files"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def runs_of(data: bytes) -> list[ToolRun]:
    """Return the runs of a file's bytes, in any format."""
    value = decode(data)
    return list(read(value, format_of(value)))


def outcomes_of(value: object) -> dict[str, Outcome]:
    """Return the outcomes of a file with one run, by benchmark."""
    [run] = runs_of(json.dumps(value).encode())
    return {result.outcome.benchmark.name: result.outcome for result in run.results}


def pytest_benchmark_file(**stats: object) -> dict[str, Any]:
    """Return what pytest-benchmark 2.5 wrote, the first version with JSON, of one benchmark."""
    return {
        "benchmarks": [
            {
                "fullname": "tests/test_a.py::test_a[0]",
                "name": "test_a[0]",
                "options": {"max_time": 1.0, "timer": "time", "disable_gc": False},
                "group": None,
                "stats": {
                    "mean": 2e-6,
                    "stddev": 1e-7,
                    "rounds": 9,
                    "median": 1.9e-6,
                    "min": 1.8e-6,
                    **stats,
                },
            }
        ],
        "datetime": "2015-08-15T00:01:46.250433+00:00",
        "commit_info": {"dirty": True, "id": "5b78858eb718649a31fb93d8dc96ca2cee41a4cd"},
        "machine_info": {"node": "box", "system": "Linux", "release": "3.13", "machine": "x86_64"},
        "version": "2.5.0",
    }


def asv_file(results: dict[str, Any], **members: object) -> dict[str, Any]:
    return {
        "commit_hash": "a" * 40,
        "env_name": "py3.7",
        "date": 1586678387000,
        "params": {"machine": "atom", "cpu": "Atom", "ram": "4041288"},
        "python": "3.7",
        "requirements": {"numpy": "1.14.5"},
        "results": results,
        **members,
    }


OLD_ASV = asv_file(
    {
        "suite.time_plain": 0.5,
        "suite.time_sizes": {
            "result": [1.0, 2.0],
            "params": [["1", "2"]],
            "samples": [[1.0, 1.5], [2.0, 2.5]],
            "stats": [{"number": 3, "repeat": 2}, {"number": 4, "repeat": 2}],
        },
    },
    version=1,
    started_at={"suite.time_plain": 1586678387000},
    benchmark_version={"suite.time_plain": "b" * 64},
)


def test_pytest_benchmark_gives_its_raw_values() -> None:
    text = (FILES / "pytest_benchmark_5.json").read_bytes()
    [run] = runs_of(text)
    first = run.results[0]

    data = json.loads(text)["benchmarks"][0]["stats"]["data"]
    assert tuple(data) == first.outcome.values
    assert first.outcome.summary is None
    assert "bench_small.py::test_sort[10]" == first.outcome.benchmark.name
    assert {"size": "10"} == first.outcome.benchmark.params
    assert ("5.3.1", "CPython 3.11.7") == (
        run.environment.facts["pytest-benchmark"],
        run.environment.facts["python"],
    )
    assert "2" == run.machine.facts["logical_cpus"]
    assert "text" == run.results[2].outcome.benchmark.group
    assert 50 == run.results[2].outcome.loops
    assert "perf_counter" == first.entries["timer"]


def test_pytest_benchmark_without_data_gives_a_summary() -> None:
    [run] = runs_of(json.dumps(pytest_benchmark_file()).encode())
    [result] = run.results

    assert Summary(n=9, mean=2e-6, sd=1e-7, median=1.9e-6) == result.outcome.summary
    assert () == result.outcome.values
    assert run.commit is not None
    assert run.commit.dirty
    assert datetime(2015, 8, 15, 0, 1, 46, 250433, tzinfo=UTC) == run.recorded_at
    assert "box" == run.machine.facts["node"]


def test_a_single_round_has_no_deviation() -> None:
    outcome = outcomes_of(pytest_benchmark_file(rounds=1, stddev=0))["tests/test_a.py::test_a[0]"]

    assert outcome.summary is not None
    assert outcome.summary.sd is None


@pytest.mark.parametrize("unknown", ["unversioned", "unknown", None, 7])
def test_a_commit_that_is_none_is_not_known(unknown: object) -> None:
    value = pytest_benchmark_file()
    value["commit_info"]["id"] = unknown

    [run] = runs_of(json.dumps(value).encode())

    assert run.commit is None


def test_asv_gives_samples_where_it_kept_them() -> None:
    value = decode((FILES / "asv/sample/74d09164-existing-py_usr_bin_python3.json").read_bytes())
    context = asv.context_of(
        decode((FILES / "asv/sample/machine.json").read_bytes()),
        decode((FILES / "asv/benchmarks.json").read_bytes()),
    )
    [run] = asv.read(value, context)
    found = {result.outcome.benchmark.name: result.outcome for result in run.results}

    sorted_list = found["sorting.Sorting.time_sort[10, 'list']"]
    assert (5.419999524747254e-07, 5.250001322565367e-07) == sorted_list.values[:2]
    assert {"size": "10", "kind": "'list'"} == sorted_list.benchmark.params
    assert sorted_list.benchmark.version.startswith("247bd8fc20b7bb2b39b85a698fa0b356")
    assert 1991 == found["sorting.time_join"].loops
    assert ("memory", "B") == (found["sorting.mem_list"].metric.name, found["sorting.mem_list"].metric.unit)
    assert ("peak memory", (28049408.0,)) == (
        found["sorting.peakmem_list"].metric.name,
        found["sorting.peakmem_list"].values,
    )
    assert ("share", (0.25,)) == (
        found["sorting.track_ratio"].metric.unit,
        found["sorting.track_ratio"].values,
    )
    assert ("Intel(R) Xeon(R) Processor", "8") == (run.machine.facts["cpu"], run.machine.facts["ram_gib"])


def test_asv_gives_its_result_where_samples_were_not_kept() -> None:
    value = decode((FILES / "asv/sample/9d685f8f-existing-py_usr_bin_python3.json").read_bytes())
    [run] = asv.read(value, asv.AsvContext())
    found = {result.outcome.benchmark.name: result for result in run.results}
    join = found["sorting.time_join"]

    assert (1.0908566725429235e-06,) == join.outcome.values
    assert "8" == join.entries["repeat"]
    assert "the median of the samples, which were not kept" == join.entries["value"]
    # Without benchmarks.json the metric is reported by the name, and parameters by number.
    assert WALL_TIME == join.outcome.metric
    assert "memory" == found["sorting.mem_list"].outcome.metric.name
    assert {"param1": "10", "param2": "'bad'"} == found[
        "sorting.Sorting.time_sort[10, 'bad']"
    ].outcome.benchmark.params


def test_asv_failures_and_skips_are_rows() -> None:
    value = decode((FILES / "asv/sample/74d09164-existing-py_usr_bin_python3.json").read_bytes())
    [run] = asv.read(value, asv.AsvContext())
    found = {result.outcome.benchmark.name: result.outcome for result in run.results}

    assert ("error", "skipped") == (
        found["sorting.Sorting.time_sort[10, 'bad']"].status,
        found["sorting.Sorting.time_sort[10, 'missing']"].status,
    )


def test_asv_version_1_is_read() -> None:
    found = outcomes_of(
        asv_file(
            {
                "suite.time_plain": 0.5,
                "suite.time_failed": None,
                "suite.time_sizes": {
                    "result": [1.0, 2.0],
                    "params": [["1", "2"]],
                    "samples": [[1.0, 1.5], [2.0, 2.5]],
                    "stats": [{"number": 3, "repeat": 2}, {"number": 4, "repeat": 2}],
                },
                "suite.time_all_failed": {"result": None, "params": [["1", "2"]]},
            },
            version=1,
            benchmark_version={"suite.time_plain": "b" * 64},
        )
    )

    assert (0.5,) == found["suite.time_plain"].values
    assert "b" * 64 == found["suite.time_plain"].benchmark.version
    assert "error" == found["suite.time_failed"].status
    assert ((2.0, 2.5), 4) == (found["suite.time_sizes[2]"].values, found["suite.time_sizes[2]"].loops)
    assert "error" == found["suite.time_all_failed[2]"].status


def test_pyperf_processes_are_launches() -> None:
    [run] = runs_of((FILES / "pyperf.json").read_bytes())

    assert [0, 1, 2] == [result.launch for result in run.results]
    assert [4, 4, 4] == [len(result.outcome.values) for result in run.results]
    assert 1.0888820800780338e-06 == run.results[0].outcome.values[0]
    assert 131072 == run.results[0].outcome.loops
    assert 131072 == run.results[0].outcome.warmup
    assert "join" == run.results[0].outcome.benchmark.name
    assert run.commit is None


def test_compressed_pyperf_is_read() -> None:
    text = (FILES / "pyperf.json").read_bytes()

    assert runs_of(text)[0].results == runs_of(gzip.compress(text))[0].results


def test_older_pyperf_called_values_samples() -> None:
    found = outcomes_of(
        {
            "version": 5,
            "benchmarks": [
                {
                    "common_metadata": {"name": "telco", "unit": "byte", "loops": 4, "inner_loops": 10},
                    "runs": [{"samples": [4096, 8192], "warmups": [[1, 9.0]]}],
                }
            ],
        }
    )

    assert (4096.0, 8192.0) == found["telco"].values
    assert ("B", 40, 10) == (found["telco"].metric.unit, found["telco"].loops, found["telco"].warmup)


def test_google_benchmark_gives_repetitions() -> None:
    text = (FILES / "google_benchmark.json").read_bytes()
    [run] = runs_of(text)
    summing, skipping = (result.outcome for result in run.results)

    times = [one["real_time"] / 1e9 for one in json.loads(text)["benchmarks"][:3]]
    assert tuple(times) == summing.values
    assert ("skipping", "error", "no such thing") == (
        skipping.benchmark.name,
        skipping.status,
        skipping.message,
    )
    assert run.commit is not None
    assert "0123456789abcdef0123456789abcdef01234567" == run.commit.sha


def test_google_benchmark_gives_aggregates_without_repetitions() -> None:
    text = (FILES / "google_benchmark_aggregates.json").read_bytes()
    known = {one["aggregate_name"]: one["real_time"] for one in json.loads(text)["benchmarks"]}
    [run] = runs_of(text)

    assert (
        Summary(n=3, mean=known["mean"] / 1e9, sd=known["stddev"] / 1e9, median=known["median"] / 1e9)
        == run.results[0].outcome.summary
    )


def test_a_fit_of_google_benchmark_is_no_benchmark() -> None:
    size = {"name": "BM_Sort/8", "run_name": "BM_Sort/8", "iterations": 10, "real_time": 3, "time_unit": "ns"}
    fit = {"run_name": "BM_Sort", "run_type": "aggregate", "time_unit": "ns"}
    curve = {
        **fit,
        "name": "BM_Sort_BigO",
        "aggregate_name": "BigO",
        "big_o": "NlgN",
        "real_coefficient": 1.5,
    }
    deviation = {**fit, "name": "BM_Sort_RMS", "aggregate_name": "RMS", "rms": 0.02}
    context = {"date": "2026-01-02T03:04:05+00:00"}

    [run] = runs_of(json.dumps({"context": context, "benchmarks": [size, curve, deviation]}).encode())

    assert ["BM_Sort/8"] == [result.outcome.benchmark.name for result in run.results]
    assert [] == runs_of(json.dumps({"context": context, "benchmarks": [curve, deviation]}).encode())


@pytest.mark.parametrize(
    ("tool", "unit", "better"),
    [
        ("jmh", "ops/s", "higher"),
        ("jmh", "us/op", "lower"),
        ("go", "MB/s", "higher"),
        ("go", "B/op", "lower"),
        ("customSmallerIsBetter", "retries/s", "lower"),
        ("customBiggerIsBetter", "points", "higher"),
    ],
)
def test_a_unit_reports_which_way_is_better_where_the_tool_does_not(
    tool: str, unit: str, better: str
) -> None:
    entry = {"commit": {"id": "1" * 40}, "tool": tool, "benches": [{"name": "a", "value": 2, "unit": unit}]}
    value = {"lastUpdate": 1, "repoUrl": "https://host/a", "entries": {"suite": [entry]}}

    [run] = runs_of(json.dumps(value).encode())

    assert better == run.results[0].outcome.metric.better


def test_old_google_benchmark_names_its_aggregates() -> None:
    entry = {"iterations": 10, "real_time": 3, "cpu_time": 3, "time_unit": "ms"}
    value = {
        "context": {"date": "2016/08/02-16:45:14", "num_cpus": 4},
        "benchmarks": [
            {"name": "BM_A/8", **entry},
            {"name": "BM_A/8", **entry, "real_time": 5},
            {"name": "BM_A/8_mean", **entry, "real_time": 4},
        ],
    }
    [run] = runs_of(json.dumps(value).encode())

    assert datetime(2016, 8, 2, 16, 45, 14, tzinfo=UTC) == run.recorded_at
    assert [("BM_A/8", (0.003, 0.005))] == [
        (result.outcome.benchmark.name, result.outcome.values) for result in run.results
    ]


def test_a_data_js_is_read_as_text() -> None:
    first, second, python, throughput = runs_of((FILES / "data.js").read_bytes())

    assert first.commit is not None
    assert ("1" * 40, "Sort by keys") == (first.commit.sha, first.commit.subject)
    assert datetime(2023, 11, 14, 21, tzinfo=UTC) == first.commit.time
    assert (1.234e-06,) == first.results[0].outcome.values
    assert "± 123" == first.results[0].entries["range"]
    assert first.machine.machine_id == second.machine.machine_id != python.machine.machine_id
    assert Summary(n=20, mean=1 / 4000, sd=1e-05, median=None) == python.results[0].outcome.summary
    assert ("images", "higher", (12345.5,)) == (
        throughput.results[0].outcome.metric.unit,
        throughput.results[0].outcome.metric.better,
        throughput.results[0].outcome.values,
    )


def test_a_series_may_have_values_of_launches() -> None:
    [run] = runs_of(b'{"name": "sort", "unit": "ms", "values": [[1, 2], 3], "commit": "%s"}' % (b"a" * 40))

    assert [(0, (0.001, 0.002)), (1, (0.003,))] == [
        (result.launch, result.outcome.values) for result in run.results
    ]
    assert () == run.doubts


@pytest.mark.parametrize(
    ("unit", "name", "stored", "better", "divisor"),
    [
        ("ns/iter", "time", "s", "lower", 1e9),
        ("usec", "time", "s", "lower", 1e6),
        ("µs", "time", "s", "lower", 1e6),
        ("Milliseconds", "time", "s", "lower", 1e3),
        ("iter/sec", "iter/sec", "iter/sec", "higher", 1),
        ("operations per second (higher is better)", *["operations per second"] * 2, "higher", 1),
        ("frames/s (lower is better)", "frames/s", "frames/s", "lower", 1),
        ("bytes", "memory", "B", "lower", 1),
        ("allocs/op", "allocs/op", "allocs/op", "lower", 1),
        ("", "value", "1", "lower", 1),
    ],
)
def test_a_unit_states_what_is_measured(
    unit: str, name: str, stored: str, better: str, divisor: float
) -> None:
    metric, by = metric_of(unit)

    assert (name, stored, better, divisor) == (metric.name, metric.unit, metric.better, by)


@pytest.mark.parametrize(
    ("stats", "doubt"),
    [
        ({"min": 2.5e-5, "median": 0.0199, "mean": 0.0153}, "its fastest call took 25.0 us"),
        ({"stddev": 1e-4}, "its deviation (100 us) is far above its mean (2.00 us)"),
        ({"mean": math.nan, "median": math.nan}, "cannot be a measurement (nan)"),
        ({"mean": 0, "median": 0, "min": 0}, "its typical time is 0 s"),
        ({"data": [1e-6, 0.0, 2e-6, 1e-6]}, "1 time of 4 are not above zero"),
        ({"data": [-1e-6, -2e-6]}, "its typical time is -1.5e-06 s"),
    ],
)
def test_numbers_that_make_no_sense_are_stated(stats: dict[str, Any], doubt: str) -> None:
    [run] = runs_of(json.dumps(pytest_benchmark_file(**stats)).encode())

    assert doubt in " ".join(run.doubts)


def test_what_is_no_measurement_is_an_error_row() -> None:
    outcome = outcomes_of(pytest_benchmark_file(data=[1.0, math.inf]))["tests/test_a.py::test_a[0]"]

    assert ("error", (), "1 value of 2 cannot be a measurement (inf)") == (
        outcome.status,
        outcome.values,
        outcome.message,
    )


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (b"", "is not whole JSON"),
        (b'{"machine_info": {}, "benchm', "is not whole JSON"),
        (b"\xff\xfe\x00binary", "is neither JSON nor any other text"),
        (b"\x80\x04\x95rest", "loading a pickle can run any code"),
        (b"PK\x03\x04archive/data.pkl", "loading a pickle can run any code"),
        (b"\xfd7zXZ\x00rest", "is compressed by xz"),
        (gzip.compress(b"{}" * 999, mtime=0)[:20], "gzip file that was cut short"),
        (b"\x1f\x8bnot gzip", "is a damaged gzip file"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000 + b"NaN", "is nested too deeply"),
        (b"[]", "holds no results of a known format"),
        (b'{"name": "package", "version": "1.0"}', "holds no results of a known format"),
        (b"window.BENCHMARK_DATA = alert(1)", "is not whole JSON"),
        (b'{"machine_info": {}, "benchmarks": 3}', "is not as pytest-benchmark writes it: Expected `array`"),
        (
            b'{"machine_info": {}, "benchmarks": [{"name": "a", "stats": {"mean": "1", "rounds": 1}}]}',
            "Expected `float`, got `str` - at `$.benchmarks[0].stats.mean`",
        ),
        (b'{"name": "a", "values": [1' + b"0" * 400 + b"]}", "is not as a series writes it"),
        (b'{"name": "a", "values": [1' + b"0" * 5000 + b"]}", "is not whole JSON"),
        (b'{"version": 3, "benchmarks": [{"runs": []}]}', "versions 5, 6 and 1.0 can be read"),
        (b'{"commit_hash": "a", "results": {}, "version": 9}', "versions 1 and 2 can be read"),
        (b'{"commit_hash": "a", "results": {"t": 3}, "version": 2}', "its result is no list"),
        (b'{"commit_hash": "a", "results": {"t": true}}', "'true' stands where a number should"),
        (
            json.dumps(asv_file({"t": {"result": None, "params": [["1"] * 100] * 10}})).encode(),
            "of 't', there are more than 1,000,000 combinations of parameters",
        ),
        (
            b'{"commit_hash": "a", "results": {"t": {"result": [1], "params": [["1", "2"]]}}}',
            "it has 2 combinations of parameters and 1 results",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line(data: bytes, output: str) -> None:
    with pytest.raises(UsageError) as refused:
        runs_of(data)

    assert output in str(refused.value)
    assert "\n" not in str(refused.value)


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 1e308, 10**400, "", "x" * 50, [], [[]], {}, {"a": [None]}, math.nan]
)


def places_in(value: object) -> list[tuple[Any, Any]]:
    """Return each place of a value, as what holds it and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [((value, key), one) for key, one in items]
    return [place for place, _ in found] + [place for _, one in found for place in places_in(one)]


@pytest.mark.parametrize(
    "name",
    [
        *("pytest_benchmark_5.json", "pyperf.json", "google_benchmark.json", "data.js"),
        *("asv/sample/74d09164-existing-py_usr_bin_python3.json", "asv-1"),
    ],
)
@settings(max_examples=40)
@given(data=st.data())
def test_anything_may_stand_anywhere(name: str, data: st.DataObject) -> None:
    value = OLD_ASV if name == "asv-1" else decode((FILES / name).read_bytes())
    value = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places_in(value)))
        holder[key] = copy.deepcopy(data.draw(JUNK))

    with contextlib.suppress(UsageError):
        for run in read(value, format_of(value)):
            rows = rows_of(run, Commit(sha="a" * 40), run_id="r", recorded_at=run.recorded_at or NOW)
            assert rows == from_table(to_table(rows))
