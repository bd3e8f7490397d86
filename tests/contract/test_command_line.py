"""What scripts rely on: the exit code of each command, and the JSON document that it writes."""

from __future__ import annotations

import cProfile
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forked_commands import run_here, run_perfkit
from gating import SLOWER, GitProject, benchmark, git_project, work
from synthetic import build_row

from perfkit.ledger.store import Ledger

SCHEMAS = Path(__file__).parents[1] / "schemas"
TRAIN = """
import torch
def main(steps=6):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    main()
"""
DONE, REGRESSED, REFUSED, UNDECIDED, NOT_MEASURED = 0, 1, 2, 3, 4
_LONG = 300 * "n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project with two commits, both recorded, a gate of the two that fails, and two profiles."""
    speed = "import work\n" + benchmark("steady", "work.steady") + benchmark("slower", "work.slower")
    files = {
        "work.py": work(steady=10, slower=5),
        "tests/test_speed.py": speed,
        "train.py": TRAIN,
        ".gitignore": "*.stat\n*.json\n",
        "odd/bench_speed.py": speed,
        "left/conftest.py": "collect_ignore = ['test_speed.py']\n",
        "left/test_speed.py": speed,
    }
    made = git_project(tmp_path_factory.mktemp("contract"), files)
    later = {"work.py": work(steady=10, slower=5 * SLOWER), "later.py": "", "notebook.ipynb": "{}"}
    for minute, sha in enumerate((made.repository.git.head.commit.hexsha, made.commit(later))):
        row = build_row(0.1, 0.11, name="tests/test_speed.py::test_steady", sha=sha, run=sha, minute=minute)
        Ledger(made.ledger).append([row])
    assert REGRESSED == made.gate().exit_code
    profiler = cProfile.Profile()
    profiler.runcall(sorted, [2, 1])
    for name in ("a.stat", "b.stat"):
        profiler.dump_stats(made.root / name)
    (made.root / "benchmarks").mkdir()
    return made


def test_a_history_too_short_for_change_points_names_the_gate_that_failed(project: GitProject) -> None:
    found, _ = _run(project, "history")

    (note,) = (one for one in found["notes"] if "ledger judge" in one)
    command = shlex.split(note.split("`")[1])
    assert ["perfkit", "ledger", "judge"] == command[:3]
    gates = [run.run_id for run in Ledger(project.ledger).runs() if "gate" == run.source]
    assert [True] == [one.endswith(command[3]) for one in gates]


@pytest.mark.parametrize(
    ("arguments", "code", "document"),
    [
        ("ledger list", DONE, "runs"),
        ("history", DONE, "history"),
        ("history test_steady", DONE, "history"),
        ("log --out log.md", DONE, "log"),
        ("compare HEAD~1 HEAD", UNDECIDED, "compare"),
        ("show a.stat", DONE, "show"),
        ("explain a.stat b.stat", DONE, "explain"),
        ("report --out site", DONE, "report"),
        ("accept test_slower --reason wanted", DONE, "accept"),
    ],
)
def test_a_command_writes_its_document(project: GitProject, arguments: str, code: int, document: str) -> None:
    found, done = _run(project, *arguments.split())

    assert code == done.returncode, done.stderr
    jsonschema.validate(found, json.loads((SCHEMAS / f"{document}.json").read_text()))


MISTAKES = [
    ("gate --base nowhere", 'unknown commit "nowhere"'),
    ("gate --margin wide", '--margin must be a percentage above zero such as "2%", found "wide"'),
    ("gate --alpha 1", "--alpha must lie between 0 and 1, found 1"),
    ("gate --budget nan", "--budget must be above zero seconds, found nan"),
    ("gate --fail-on any", '--fail-on must be "margin" or "proven", found "any"'),
    ("gate --inconclusive go", '--inconclusive must be "fail", "pass" or "go on", found "go"'),
    ("gate --benchmarks nowhere", "--benchmarks nowhere: neither side has such a file or folder"),
    ("gate --benchmarks work.py", "no benchmark was found"),
    ("gate --benchmarks odd", "pytest passes over odd/bench_speed.py"),
    ("gate --benchmarks left", "leave out left/test_speed.py"),
    ("gate --select nothing_is_called_so", "no benchmark was found"),
    ("gate --select 'and and'", '--select is not what pytest\'s -k reads: "and and": '),
    ("gate --repo nowhere", "--repo nowhere is not a folder"),
    ("gate --from-ledger 0199", "--from-ledger is a command now: `perfkit ledger judge 0199 --ledger "),
    ("gate --against nowhere", '--against nowhere: unknown commit "nowhere"'),
    ("gate --plan --against nowhere", '--against nowhere: unknown commit "nowhere"'),
    ("gate --against HEAD", "--against HEAD is head itself, so there is nothing to compare; name an earlier"),
    ("gate --plan --exact-only", "--plan and --exact-only contradict each other; leave one of them out"),
    ("gate --fail-fast --exact-only", "--fail-fast and --exact-only contradict each other"),
    ("gate --target later.py", "base has no later.py"),
    ("gate --target none.py", "there is no script"),
    ("gate --target 'work:steady 3'", "a function is called without arguments"),
    ("gate --target notebook.ipynb", "is a notebook"),
    ('gate --target "\'open"', "--target is not what a shell reads"),
    ("gate --target work:steady --benchmarks tests", "--target and --benchmarks contradict"),
    ("gate --target work:steady --select a", "--target and --select contradict"),
    ("gate --nothing", "--nothing"),
    ("calibrate --gates 0", "--gates must be at least 1"),
    ("calibrate --plant 150%", "--plant must be below 100 %"),
    ("calibrate --plant some", "--plant must be a percentage"),
    ("calibrate --select nothing_like_it", "no benchmark was found"),
    ("compare HEAD HEAD", "base and head are one commit"),
    ("compare HEAD", "HEAD"),
    ("compare HEAD nowhere", 'unknown commit "nowhere"'),
    ("compare HEAD~1 HEAD --alpha 2", "--alpha must lie between 0 and 1"),
    ("compare HEAD~1 HEAD --margin much", "--margin must be a percentage"),
    ("doctor --seconds 0", "--seconds must be above zero"),
    ("doctor --margin x", "--margin must be a percentage"),
    ("backfill nowhere", 'unknown commit "nowhere"'),
    (
        "backfill HEAD --every 1 --benchmarks tests --engine slurm",
        "an engine must read local or dask://HOST:PORT",
    ),
    ("backfill HEAD --every 1 --benchmarks tests --machine abc", "need an engine of other machines"),
    ("backfill HEAD --every 1 --benchmarks .", "is the whole project"),
    ("backfill HEAD --every 1 --benchmarks nowhere", "nowhere is not there"),
    ("work nowhere.json --into .", "cannot read the task nowhere.json"),
    ("experiment run none.toml", "cannot read none.toml"),
    ("experiment show nothing", 'no run "nothing"'),
    ("profile missing.py --out x.stat", "there is no script"),
    ("show missing.stat", "there is no file missing.stat"),
    ("show .", "there is no file ."),
    ("show work.py", "is no profile that perfkit knows"),
    ("explain a.stat missing.stat", "there is no file missing.stat"),
    ("explain HEAD HEAD --target train.py", "base and head are one commit"),
    ("explain nothing HEAD", '"nothing" is neither a file nor a commit; name two profiles'),
    ("explain nothing none", '"nothing" and "none" are neither files nor commits; name two profiles'),
    ("explain nothing HEAD --target train.py", 'unknown commit "nothing"'),
    ("explain HEAD~1 HEAD --target nowhere", 'unknown target "nowhere"'),
    ("explain HEAD~1 HEAD --target work:nothing", 'there is no "nothing"'),
    ("explain HEAD~1 HEAD --steps 0", "--steps must be at least 1"),
    ("tricks --apply-to nowhere.py", "there is no script"),
    ("tricks nothing", 'unknown target "nothing"'),
    ("tricks train.py --apply-to train.py", "expected one loop"),
    ("tricks --set steps=3", "name the loop with --apply-to"),
    ("tricks --apply-to train.py --set steps", '--set must read NAME=VALUE, found "steps"'),
    ("tricks --apply-to train.py --only no_grad", "no_grad: train.py has nothing that it changes"),
    ("tricks --only chanels_last", "did you mean 'channels_last'"),
    ("tricks --budget 0", "--budget must be above zero"),
    ("tricks --margin none", "--margin must be a percentage"),
    ("tricks --from-ledger --ledger nowhere", "no run of tricks"),
    ("bisect HEAD HEAD --benchmark test_slower", "GOOD and BAD are one commit"),
    ("bisect HEAD HEAD~1 --benchmark test_slower", "name the older commit first"),
    ("bisect nowhere HEAD --benchmark test_slower", 'unknown commit "nowhere"'),
    ("bisect HEAD~1 HEAD --benchmark test_none", 'there is no benchmark "test_none"'),
    ("bisect HEAD~1 HEAD --benchmark test_slower --metric operatrs", 'did you mean "operators"?'),
    ("bisect HEAD~1 HEAD", "name GOOD, BAD and --benchmark ID"),
    ("bisect --from-history 0123abcd", "names no one change point"),
    (
        "bisect HEAD~1 HEAD --benchmark test_slower --engine local --machine 0123",
        "--machine and --clone",
    ),
    ("bisect HEAD~1 HEAD --benchmark test_slower --engine tcp://host:1", "an engine must read local or dask"),
    ("init --yes --dry-run", "--yes and --dry-run contradict each other"),
    ("init --for-change --ci github", "--ci and --for-change contradict each other"),
    ("init main", "main is a base for --for-change"),
    ("init --ci jenkins", '--ci must be "github", "gitlab" or "pre-commit", found "jenkins"'),
    ("ledger show nothing", 'no run "nothing"'),
    ("ledger judge nothing", 'no run "nothing"'),
    ("ledger verify", "is now `perfkit ledger check`"),
    ("ledger push --branch x", "is now `perfkit ledger sync"),
    ("ledger list --ledger nowhere", "there is no ledger at nowhere"),
    ("log --ledger nowhere", "there is no ledger at nowhere"),
    ("log note nowhere x", 'unknown commit "nowhere"'),
    ("log --json /nowhere/x.json", "cannot write /nowhere/x.json"),
    ("accept test_missing --reason wanted", 'no benchmark "test_missing"'),
    ("accept test_slower --reason ''", "an acceptance needs a reason"),
    ("accept test_slower --reason …", "an acceptance needs a reason"),
    ("accept test_slower", "--reason"),
    ("accept test_slower --reason x --commit=-x", '"-x" is not a commit'),
    ("accept test_slower --reason x --ledger nowhere", "there is no ledger at nowhere"),
    ("schema nothing", "nothing"),
    ("nothing", "nothing"),
    # No ledger holds such a seed.
    ("backfill HEAD --seed -1", "--seed must be from 0 to 9223372036854775807, found -1"),
    ("gate --seed 9223372036854775808", "--seed must be from 0 to 9223372036854775807, found 92233720"),
    # No file has so long a name.
    *(
        (words.format(_LONG), _LONG)
        for words in (
            *("gate --base {}", "gate --json {}", "ledger list --ledger {}", "ledger import {}"),
            *("profile {}.py", "experiment run {}.toml"),
        )
    ),
]
# Commands that take the ledger of the project.
OF_LEDGER = (
    "history",
    "ledger",
    "gate",
    "accept",
    "compare",
    "bisect",
    "backfill",
    "log",
    "calibrate",
    "experiment",
)


# In a process of its own each command makes its first mistake, and those that only a whole one answers to or
# that start others.
_FIRST = {command.split()[0]: command for command, _ in reversed(MISTAKES)}.values()


@pytest.mark.parametrize(("command", "message"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_a_mistake_is_one_line(project: GitProject, command: str, message: str) -> None:
    words = shlex.split(command)
    if words[0] in OF_LEDGER and "--ledger" not in words:
        place = 2 if words[:2] == ["log", "note"] else len(words)
        words[place:place] = ["--ledger", str(project.ledger)]
    before = sorted(project.root.iterdir())

    apart = command in _FIRST or message == _LONG or "`" in message or {"--benchmarks", "--select"} & {*words}
    done = (run_perfkit if apart else run_here)(*words, cwd=project.root)

    assert (REFUSED, "") == (done.returncode, done.stdout), done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("perfkit: "), done.stderr
    assert message in last
    assert "Traceback" not in done.stderr
    assert before == sorted(project.root.iterdir())


def test_what_was_not_measured_is_no_mistake(project: GitProject) -> None:
    done = run_perfkit("history", "test_missing", "--ledger", str(project.ledger), cwd=project.root)

    assert NOT_MEASURED == done.returncode, done.stderr


def _run(project: GitProject, *words: str) -> tuple[Any, subprocess.CompletedProcess[str]]:
    file = project.root / f"{words[0]}.json"
    ledger = () if words[0] in ("show", "explain") else ("--ledger", str(project.ledger))
    done = run_perfkit(*words, *ledger, "--json", str(file), cwd=project.root)
    return json.loads(file.read_text()), done


def test_a_quiet_gate_prints_its_verdict_alone(project: GitProject, tmp_path: Path) -> None:
    done = run_perfkit("gate", "-q", "--exact-only", "--ledger", str(tmp_path / "new"), cwd=project.root)

    assert 1 == len(done.stdout.splitlines()), done.stderr
    assert "<" not in done.stdout
