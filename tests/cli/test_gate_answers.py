"""`perfkit gate` fails what it was told to fail, answers what stays open as configured, and stops early."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from forked_commands import run_perfkit
from gating import SLOWER, SPIN, Gated, GitProject, benchmark, git_project

pytestmark = pytest.mark.alone

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
OPEN = ("--select", "open")


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
    told = re.search(r"^(PASS|FAIL|UNDECIDED): (.|\n)*?\n\n", text, re.MULTILINE)
    assert told is not None, gated.stderr
    return " ".join(told[0].split())


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A gate that stops at the first regression, its comment, and one after that was accepted."""

    gated: Gated
    comment: str
    accepted: Gated

    @property
    def said(self) -> str:
        """What it said, on one line."""
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


def test_what_regressed_is_counted_alone(stopped: Stopped) -> None:
    report = stopped.gated.report

    assert {"tests/test_speed.py::test_looped"} == {one["benchmark"]["name"] for one in report["exact"]}
    assert ["tests/test_speed.py::test_looped"] == [one["benchmark"] for one in report["explanations"]]


def test_a_slowdown_without_more_calls_is_told(stopped: Stopped) -> None:
    (explanation,) = stopped.gated.report["explanations"]

    said = explanation["findings"][0]
    assert re.fullmatch(
        r"the same counts, \d\.\d times as slow: the machine, a library, the cache or a longer loop"
        r" within a function, not more Python calls",
        said,
    )
    assert said.partition(":")[0] in stopped.said
    assert "not more Python calls" in stopped.comment


def test_less_work_without_a_gain_is_told_with_where_to_look(project: GitProject) -> None:
    gated = project.gate("--select", "elsewhere", "--budget", "60")

    assert (0, "UNCHANGED") == (gated.exit_code, gated.verdicts["test_elsewhere"]), gated.stderr
    (explanation,) = gated.report["explanations"]
    said = r"\d+ % fewer Python calls \(.*\), the same time: the time is spent elsewhere, look at spin \(work"
    assert re.match(said, explanation["findings"][0])
    assert "test_elsewhere: what moved, per call under cProfile" in gated.stderr
    again = project.judge(gated.run_id)
    assert "the time is spent elsewhere" in " ".join(again.stderr.split())


@dataclass(frozen=True, kw_only=True)
class Open:
    """Gates of one benchmark that no launch decides: measured on, let pass, and by proof."""

    went_on: Gated
    let_pass: Gated
    proven: Gated
    again: Gated


@pytest.fixture(scope="module")
def left_open(project: GitProject) -> Open:
    """Gate it four times; the launches of each are those of the next one, too."""
    gates = [
        project.gate(*OPEN, "--budget", "0.01", "--inconclusive", "go on"),
        project.gate(*OPEN, "--budget", "0.01", "--inconclusive", "pass"),
        project.gate(*OPEN, "--budget", "0.01", "--fail-on", "proven"),
    ]
    return Open(
        went_on=gates[0],
        let_pass=gates[1],
        proven=gates[2],
        again=project.judge(gates[2].run_id),
    )


def test_measuring_goes_on_after_the_budget(left_open: Open) -> None:
    gated = left_open.went_on

    assert (3, {"test_open": "INCONCLUSIVE"}) == (gated.exit_code, gated.verdicts), gated.stderr
    assert "s is over: going on with 1 undecided benchmark, which takes about" in gated.stderr
    assert "3.00 s at most" in gated.stderr
    assert _sentence(gated).startswith("UNDECIDED: 1 of 1 benchmark needs more time (")


@pytest.mark.parametrize(
    ("which", "setting"),
    [
        ("let_pass", 'inconclusive = "pass"'),
        ("proven", 'fail_on = "proven"'),
        ("again", 'fail_on = "proven"'),
    ],
)
def test_what_stays_open_may_pass(left_open: Open, which: str, setting: str) -> None:
    gated: Gated = getattr(left_open, which)

    assert (0, {"test_open": "INCONCLUSIVE"}) == (gated.exit_code, gated.verdicts), gated.stderr
    said = rf"PASS: 1 of 1 benchmark is undecided and let pass by {setting}: test_open \(at most \+.* %\)\."
    assert re.fullmatch(said, _sentence(gated))


def test_an_accepted_regression_stops_nothing(stopped: Stopped) -> None:
    accepted = stopped.accepted

    assert 3 == accepted.exit_code, accepted.stderr
    assert "stopped" not in accepted.notes
    both = (stopped.gated, accepted)
    first, second = (one.comparisons["test_open"]["estimate"]["launches"] for one in both)
    assert first < second
