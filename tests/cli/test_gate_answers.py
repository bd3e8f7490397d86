"""`perfkit gate` fails what it has to fail, answers what stays open as configured, and stops early."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import gating
import pytest
from forked_commands import run_perfkit
from gating import SLOWER, SPIN, Gated, GitProject, benchmark, git_project

# With this alpha nothing of identical code is accused, however narrow a margin is.
CONFIGURATION = """
[tool.perfkit]
margin = "50%"
[tool.perfkit.gate]
same_code = false
preload = []
alpha = 0.001
go_on_seconds = 3
"""
WORK = """
def nothing():
    pass


def elsewhere():
    for _ in range({calls}):
        nothing()
    return spin(60)


def looped():
    return spin({units})


def steady():
    return spin(10)
"""
TESTS = "import pytest\nimport work\n" + "".join(
    [
        benchmark("elsewhere", "work.elsewhere", 'perfkit(margin="40%")'),
        benchmark("looped", "work.looped"),
        # So narrow a margin that it stays open.
        benchmark("open", "work.steady", 'perfkit(margin="0.001%")'),
    ]
)

LOADER = """from torch.utils.data import DataLoader


def transform(number):
    return float(number + sum(range({numbers})))


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, number):
        return transform(number)


def epoch():
    for _ in DataLoader(Numbers(), batch_size=8, num_workers=1):
        pass
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project whose head makes few of the calls in one function, and loops longer in another."""
    base, head = (
        SPIN + WORK.format(calls=calls, units=units) for calls, units in ((200, 5), (10, 5 * SLOWER))
    )
    files = {"pyproject.toml": CONFIGURATION, "tests/test_speed.py": TESTS, "work.py": base}
    made = git_project(tmp_path_factory.mktemp("answers"), files)
    made.commit({"work.py": head}, "Call less, loop more")
    return made


def _sentence(gated: Gated) -> str:
    text = re.sub(r" +$", "", gated.stderr, flags=re.MULTILINE)
    shown = re.search(r"^(PASS|FAIL|UNDECIDED): (.|\n)*?\n\n", text, re.MULTILINE)
    assert shown is not None, gated.stderr
    return " ".join(shown[0].split())


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A gate that stops at the first regression, its comment, and one after that was accepted."""

    gated: Gated
    comment: str
    accepted: Gated

    @property
    def output(self) -> str:
        """Its output, on one line."""
        return " ".join(self.gated.stderr.split())


@pytest.fixture(scope="module")
def stopped(project: GitProject) -> Stopped:
    """Gate the three benchmarks, of which one can never be decided, and accept the one that regressed."""
    comment = project.root.with_name("comment.md")
    gated = project.gate("--fail-fast", "--budget", "60", "--markdown", str(comment))
    accept = ["accept", "test_looped", "--reason", "Wanted", "--ledger", str(project.ledger)]
    run_perfkit(*accept, cwd=project.root, check=True)
    return Stopped(
        gated=gated, comment=comment.read_text(), accepted=project.gate("--fail-fast", "--budget", "4")
    )


@pytest.mark.alone
def test_measuring_stops_at_the_first_regression(stopped: Stopped) -> None:
    gated = stopped.gated

    assert 1 == gated.exit_code, gated.stderr
    assert "REGRESSED" == gated.verdicts["test_looped"]
    assert "INCONCLUSIVE" == gated.verdicts["test_open"]
    launches = {
        name: one["estimate"]["launches"] for name, one in gated.comparisons.items() if one["estimate"]
    }
    assert launches["test_open"] <= launches["test_looped"]
    assert 1 == gated.notes.count("stopped at the first regression (--fail-fast)")
    assert "the budget of" not in gated.notes


@pytest.mark.alone
def test_what_regressed_is_counted_alone(stopped: Stopped) -> None:
    report = stopped.gated.report

    counted = [one for one in report["exact"] if one["metric"]["name"] != "peak_resident"]
    assert {"tests/test_speed.py::test_looped"} == {one["benchmark"]["name"] for one in counted}
    assert ["tests/test_speed.py::test_looped"] == [one["benchmark"] for one in report["explanations"]]


@pytest.mark.alone
def test_a_slowdown_whose_function_is_named_blames_nothing_else(stopped: Stopped) -> None:
    (explanation,) = stopped.gated.report["explanations"]

    assert "looped" == explanation["suspect"]["name"]
    for output in (stopped.output, stopped.comment, *explanation["findings"]):
        assert "the machine, a library" not in output


def test_less_work_without_a_gain_is_reported_with_where_to_look(project: GitProject) -> None:
    gated = project.gate("--select", "elsewhere", "--budget", "60", "--verbose")

    assert (0, "UNCHANGED") == (gated.exit_code, gated.verdicts["test_elsewhere"]), gated.stderr
    (explanation,) = gated.report["explanations"]
    output = (
        r"\d+ % fewer Python calls \(.*\), the same time: the time is spent elsewhere, look at spin \(work"
    )
    assert re.match(output, explanation["findings"][0])
    assert "test_elsewhere: what moved, per call under cProfile" in gated.stderr
    again = project.judge(gated.run_id)
    assert "the time is spent elsewhere" in " ".join(again.stderr.split())


def test_what_stays_open_is_measured_on_or_may_pass(project: GitProject) -> None:
    went_on, let_pass, proven = (
        project.gate("--select", "open", "--budget", "0.01", *option)
        for option in (("--inconclusive", "go on"), ("--inconclusive", "pass"), ("--fail-on", "proven"))
    )

    assert (3, {"test_open": "INCONCLUSIVE"}) == (went_on.exit_code, went_on.verdicts), went_on.stderr
    assert "s is over: going on with 1 undecided benchmark, which takes about" in went_on.stderr
    assert _sentence(went_on).startswith("UNDECIDED: 1 of 1 benchmark needs more time (")
    passed = r"PASS: 1 of 1 benchmark is undecided and let pass by {}: test_open \([-+][\d.]+ to \+[\d.]+ %\)"
    for gated, setting in (
        (let_pass, 'inconclusive = "pass"'),
        (proven, 'fail_on = "proven"'),
        (project.judge(proven.run_id), 'fail_on = "proven"'),
    ):
        assert (0, {"test_open": "INCONCLUSIVE"}) == (gated.exit_code, gated.verdicts), gated.stderr
        assert re.match(passed.format(setting), _sentence(gated))


@pytest.mark.alone
def test_an_accepted_regression_stops_nothing(stopped: Stopped) -> None:
    accepted = stopped.accepted

    assert 3 == accepted.exit_code, accepted.stderr
    assert "stopped" not in accepted.notes
    both = (stopped.gated, accepted)
    first, second = (one.comparisons["test_open"]["estimate"]["launches"] for one in both)
    assert first < second


def test_a_function_that_only_workers_of_a_loader_run_is_named() -> None:
    base, head = (LOADER.format(numbers=numbers) for numbers in (5_000, 75_000))
    tests = "import loading\n\ndef test_epoch(benchmark):\n    benchmark.pedantic(loading.epoch, rounds=3)\n"
    settings = gating.CONFIGURATION.replace("preload = []", 'preload = ["torch"]')
    files = {"pyproject.toml": settings, "tests/test_speed.py": tests, "loading.py": base}
    # A worker's socket lies in its temporary folder, and its path may have 107 characters.
    with TemporaryDirectory() as folder:
        made = git_project(Path(folder), files)
        made.commit({"loading.py": head}, "Transform more")
        gated = made.gate("--budget", "60")

    assert {"test_epoch": "REGRESSED"} == gated.verdicts
    (explanation,) = gated.report["explanations"]
    assert ("transform", "loading.py:5") == (explanation["suspect"]["name"], explanation["suspect"]["place"])
