"""`perfkit check` answers in a few lines, and in a few hundred bytes, what a gate found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, SLOWER, benchmark, git_project, work
from synthetic import build_comparison, build_count, build_report

from perfkit.commands.check import Check, check_lines, summarise
from perfkit.commands.schemas import document_named, schema_of
from perfkit.model.comparisons import ChangeCoverage, ChangedFunction, Comparison, Doubt, GateReport, Need
from perfkit.model.comparisons import exit_code as gate_code

OTHER = Doubt(kind="other result", text="returns another result: [0] 0.6931 on base, 0.6902 on head")
CACHE = Doubt(kind="cache", text="a cache hit after the first call")
AGAIN = "perfkit check --select 'a or b'"
FILES = {
    "pyproject.toml": CONFIGURATION.replace("same_code = false\n", ""),
    "demo.py": work(steady=10, slowed=20, mended=10 * SLOWER, unseen=10),
    "tests/test_speed.py": "from demo import mended, slowed, steady\n"
    + "".join(benchmark(name, name) for name in ("steady", "slowed", "mended")),
}


def test_it_is_a_gate_that_answers_in_eight_lines_and_a_few_hundred_bytes(tmp_path: Path) -> None:
    project = git_project(tmp_path, FILES)
    (project.root / "demo.py").write_text(work(steady=10, slowed=20 * SLOWER, mended=10, unseen=11))
    (project.root / "tests/conftest.py").write_text("")
    place = ("--ledger", project.ledger)

    done = run_perfkit(
        "check", *place, "--json", tmp_path / "x.json", cwd=project.root, env=project.environment()
    )

    written = (tmp_path / "x.json").read_text()
    found = json.loads(written)
    jsonschema.validate(found, schema_of(document_named("check")))
    assert (1, 1, "slower") == (done.returncode, found["exit_code"], found["verdict"]), done.stderr
    assert ["slower", "faster"] == [one["verdict"] for one in found["benchmarks"]]
    slower, faster = found["benchmarks"]
    assert slower["change_percent"][0] > 50 > -20 > faster["change_percent"][2]
    assert "demo.py:12" == slower["where"]
    assert {"slower": 1, "faster": 1, "unchanged": 1} == found["counts"]
    assert {"same": 3} == found["results"]
    assert (2, 3) == (found["coverage"]["measured"], found["coverage"]["changed"])
    assert [text.startswith("unseen (demo.py:") for text in found["coverage"]["not_measured"]] == [True]
    assert "tests/conftest.py: new, 0 lines" in found["measuring"]
    assert len(written) < 900
    _check_size(done.stdout)
    # It is in the ledger as each gate is.
    kept = run_perfkit("ledger", "judge", found["run_id"], *place, "--json", "-", cwd=project.root)
    assert (1, found["run_id"]) == (kept.returncode, json.loads(kept.stdout)["run_id"])
    assert set() == project.left_behind()
    # The working tree is HEAD now, so that there is nothing to compare.
    project.repository.git.git.checkout("demo.py")
    (project.root / "tests/conftest.py").unlink()
    assert 2 == run_perfkit("check", *place, cwd=project.root, env=project.environment()).returncode


@pytest.mark.parametrize(
    ("verdict", "exit_code", "comparisons", "next_"),
    [
        ("faster", 0, [("IMPROVED", 0.5, 0.4, 0.6)], ""),
        ("unchanged", 0, [("UNCHANGED", 1.0, 0.99, 1.01)], ""),
        ("undecided", 3, [("INCONCLUSIVE", 1.0, 0.9, 1.1)], f"{AGAIN} --budget 140"),
        ("slower", 1, [("IMPROVED", 0.5, 0.4, 0.6), ("REGRESSED", 1.5, 1.4, 1.6)], "--select test_1"),
        ("not measured", 4, [("IMPROVED", 0.5, 0.4, 0.6), ("MISSING",)], "perfkit accept"),
        ("doubtful", 0, [("IMPROVED", 0.5, 0.4, 0.6, CACHE)], "perfkit ledger judge"),
        ("other result", 1, [("IMPROVED", 0.5, 0.4, 0.6, OTHER)], "perfkit ledger judge"),
        # The gate passes, as nothing became slower, and yet the change is not right.
        ("other result", 0, [("UNCHANGED", 1.0, 0.99, 1.01, OTHER)], "perfkit ledger judge"),
    ],
)
def test_the_verdict_is_the_worst_that_matters(
    verdict: str, exit_code: int, comparisons: list[tuple[Any, ...]], next_: str
) -> None:
    found = _summary(*(_comparison(place, *one) for place, one in enumerate(comparisons)))

    assert (verdict, exit_code) == (found.verdict, found.exit_code)
    assert verdict == found.benchmarks[0].verdict
    assert next_ in found.next if next_ else found.next == ""


def test_a_count_that_grew_costs_more_even_where_time_did_not() -> None:
    faster = build_comparison("test_0", "IMPROVED", 0.5, 0.4, 0.6)
    count = build_count("test_0", "operators", 12, 15)
    report = replace(build_report(faster), exact=(count,), exit_code=gate_code((faster, count)))

    found = summarise(report, code=report.exit_code, again=AGAIN)

    assert ("costs more", ("costs more",)) == (found.verdict, tuple(one.verdict for one in found.benchmarks))
    assert found.benchmarks[0].doubts == ("operators dispatched 12 to 15",)
    accepted = replace(count, accepted="wanted")
    assert summarise(replace(report, exact=(accepted,)), code=0, again=AGAIN).verdict == "faster"


def test_many_benchmarks_and_long_names_take_no_more_room() -> None:
    many = [_comparison(number, "UNCHANGED", 1.0, 0.99, 1.01) for number in range(30)]
    doubted = replace(_comparison(31, "IMPROVED", 0.5, 0.4, 0.6, OTHER, CACHE), accepted=None)
    slow = build_comparison(f"test_{'long' * 30}", "REGRESSED", 1.5, 1.4, 1.6)
    functions = tuple(
        ChangedFunction(name="f" * 40, file="a.py", line=line, runs="never") for line in range(20)
    )
    report = build_report(*many, doubted, slow)

    found = summarise(
        replace(report, coverage=ChangeCoverage(functions=functions)), code=report.exit_code, again=AGAIN
    )

    assert 10 == len(found.benchmarks) == len(found.coverage.not_measured if found.coverage else ())
    assert ["other result", "slower", "unchanged"] == [one.verdict for one in found.benchmarks[:3]]
    assert {"other": 1, "not compared": 31} == dict(found.results)
    _check_size("\n".join(check_lines(found)))


def _check_size(text: str) -> None:
    lines = text.splitlines()
    assert len(lines) <= 8
    assert [] == [line for line in lines if len(line) > 80 and not line.startswith("next: ")]


def _comparison(place: int, verdict: Any, *rest: Any) -> Comparison:  # noqa: ANN401
    interval = [one for one in rest if not isinstance(one, Doubt)]
    need = Need(launches=3, seconds=11.0) if verdict == "INCONCLUSIVE" else None
    found = build_comparison(f"test_{place}", verdict, *interval, need=need)
    return found.doubted(*(one for one in rest if isinstance(one, Doubt)))


def _summary(*comparisons: Comparison) -> Check:
    # What an agent checks is not committed, so that a gate of it begins anew.
    built = build_report(*comparisons)
    report: GateReport = replace(built, head=replace(built.head, dirty=True))
    return summarise(report, code=report.exit_code, again=AGAIN)
