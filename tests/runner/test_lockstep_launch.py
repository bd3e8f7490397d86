"""Launches of two real trees are measured, a failure costs only its benchmark, and nothing is left behind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes_seen import wait_until
from two_trees import FILE, SIDES, TwoTrees, nodes

from perfkit.model import Side
from perfkit.runner.lockstep.collection import list_benchmarks
from perfkit.runner.lockstep.launch import Failure, LaunchRecord
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.turns import LoopPlan, Timing
from perfkit.runner.lockstep.untimed import count_benchmarks, count_training

# Reports in its tree which benchmarks ran.
NOTE = """
import os, pytest
def note(text):
    with open("seen.txt", "a") as file:
        print(text, file=file)
@pytest.fixture(autouse=True)
def _note(request):
    note(request.node.name)
"""
GOOD = """
def test_before(benchmark): benchmark(sum, range(100))
def test_after(benchmark): benchmark(sum, range(100))
"""
LIMITED = """
import time
def test_planned(benchmark): benchmark(sum, range(100))
def test_counted(benchmark):
    benchmark.pedantic(note, args=("counted",), rounds=3, iterations=2, warmup_rounds=1)
def slow():
    note("slow")
    time.sleep(0.003)
def test_slow(benchmark): benchmark.pedantic(slow, rounds=50, iterations=20)
def test_quick(benchmark): benchmark.pedantic(note, args=("quick",), rounds=20, iterations=5)
"""
# Goes to a core first, where nothing holds it; records where it is in each call, and how many it may use.
ON_A_CORE = """
import os
def where():
    with open("/proc/self/stat") as file:
        core = file.read().rpartition(")")[2].split()[36]
    with open("seen.txt", "a") as file:
        print(core, len(os.sched_getaffinity(0)), file=file)
def test_where(benchmark):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {{{core}(cores)}})
    os.sched_setaffinity(0, cores)
    benchmark(where)
"""


# Stops itself once in the midst of a round, and another process lets it go on a second later.
STANDS_STILL = """
import os, signal, subprocess
calls = 0
def still():
    global calls
    calls += 1
    if calls == 60:
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    sum(range(1000))
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> TwoTrees:
    """Return the trees of this file's tests, which write their benchmarks into them in turn."""
    return TwoTrees(tmp_path_factory.mktemp("trees"))


@pytest.fixture(scope="module")
def launcher(trees: TwoTrees) -> Iterator[Launcher]:
    with trees.launcher() as launcher:
        yield launcher


@pytest.fixture(autouse=True)
def _clean(trees: TwoTrees) -> None:
    for root in trees.roots.values():
        (root / "seen.txt").unlink(missing_ok=True)


def failures(record: LaunchRecord) -> list[tuple[str, ...]]:
    """Return the failures of a launch as (test, side, status, message)."""
    return [
        (one.node.removeprefix(f"{FILE}::"), one.side, one.status, one.message) for one in record.failures
    ]


def test_both_sides_give_values_in_pairs_as_their_benchmarks_allow(
    trees: TwoTrees, launcher: Launcher
) -> None:
    trees.benchmarks(NOTE + GOOD + LIMITED)
    plan = LoopPlan(loops=7, rounds=2, untimed=3, turns=4, most_turns=4, first_untimed=5)
    plans = dict.fromkeys(nodes("test_planned"), plan)
    tests = ("test_before", "test_after", "test_planned", "test_counted", "test_slow", "test_quick")

    record = trees.launch(launcher, *tests, plans=plans)

    assert [] == failures(record)
    assert nodes(*tests) == list(record.timings) == list(record.seconds)
    assert set(nodes(*tests)) == set(plans)
    assert record.timings == record.proven
    assert [({}, (FILE,))] * 2 == [
        (record.reports[side].foreign, record.reports[side].loaded) for side in SIDES
    ]
    assert all(len(one.base_s) == len(one.head_s) for one in record.timings.values())
    assert all(0 < min(one.base_s + one.head_s) for one in record.timings.values())
    before, after, planned, counted, slow, quick = record.timings.values()
    for timing in (before, after):
        rounds = len(timing.base_s)
        assert timing.plan.turns <= rounds / timing.plan.rounds <= timing.plan.most_turns
    assert (plan, 8) == (planned.plan, len(planned.base_s))
    # As many calls as a benchmark sets are made in a launch too; many are a bound and no duty.
    assert (3, 2) == (len(counted.base_s), counted.plan.loops)
    assert (4, 5, 19) == (slow.plan.loops, quick.plan.loops, len(quick.base_s))
    for side in SIDES:
        called = Counter(trees.lines(side, "seen.txt"))
        assert (9, 1 + 19 * 5 + 1) == (called["counted"], called["quick"])
        assert 20 < called["slow"] < 200


def test_times_are_those_of_each_sides_own_code_and_a_stop_in_a_round_is_noticed(
    trees: TwoTrees, launcher: Launcher
) -> None:
    trees.benchmarks(
        "import code_\n"
        "def test_it(benchmark): benchmark(code_.work)\n"
        "def test_still(benchmark): benchmark.pedantic(code_.still, rounds=5, iterations=20)\n"
    )
    still = "def still(): sum(range(1_000))\n"
    trees.write({"code_.py": f"{still}def work(): return sum(range(1_000))\n"}, "base")
    trees.write({"code_.py": f"{STANDS_STILL}def work(): return sum(range(50_000))\n"}, "head")

    record = trees.launch(launcher, "test_it", "test_still")

    assert [] == failures(record)
    timing, still_timing = record.timings.values()
    assert min(timing.base_s) < min(timing.head_s) / 10
    assert {(FILE, "code_.py")} == {record.reports[side].loaded for side in SIDES}
    assert 0 == still_timing.stood_still_s["base"]
    assert 0.9 < still_timing.stood_still_s["head"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < len(SIDES), reason="there is one core only")
def test_both_sides_begin_on_one_core(trees: TwoTrees, launcher: Launcher) -> None:
    for side, core in zip(SIDES, (min, max), strict=True):
        trees.benchmarks(ON_A_CORE.format(core=core.__name__), side)
    plan = LoopPlan(loops=1, rounds=1, untimed=0, turns=40, most_turns=40, first_untimed=1)

    record = trees.launch(launcher, "test_where", plans=dict.fromkeys(nodes("test_where"), plan))

    assert [] == failures(record)
    base, head = (trees.lines(side, "seen.txt")[-40:] for side in SIDES)
    together = sum(one.split()[0] == other.split()[0] for one, other in zip(base, head, strict=True))
    # What else runs may drive one of them away now and then.
    assert 20 < together
    assert {str(len(os.sched_getaffinity(0)))} == {line.split()[1] for line in base + head}


# What can befall one side's part of a benchmark without harm to the others, and what is reported of it.
MISHAPS = {
    "raises": ("benchmark(int, 'a word')", "error", "ValueError: invalid literal for int()"),
    "raises_late": ("benchmark(list(range(9)).pop)", "error", "IndexError: pop from empty list"),
    "takes_memory": ("benchmark(bytearray, 1 << 62)", "oom", "MemoryError: "),
    "skips": ("benchmark(pytest.skip, 'not here')", "skipped", "not here"),
    "unused": ("pass", "error", "ended without running its benchmark"),
    "swallows": ("pytest.raises(ValueError, benchmark, int, '')", "error", "ended without running its bench"),
    "asserts": ("assert benchmark(sum, []) == 1", "error", "AssertionError: assert 0 == 1"),
    "needs": ("request.getfixturevalue('lacking')", "error", "FixtureLookupError: "),
    "cleans": ("request.addfinalizer(lambda: 1 / benchmark(sum, []))", "error", "ZeroDivisionError: "),
}


# Those of head are in cli/test_gate_findings.py.
@pytest.mark.parametrize("side", ["base"])
def test_a_mishap_costs_one_benchmark_and_no_other(trees: TwoTrees, launcher: Launcher, side: Side) -> None:
    trees.benchmarks(
        f"import os, pytest\nHERE = os.path.basename(os.getcwd()) == {side!r}\n"
        + "".join(
            f"def test_{name}(benchmark, request):\n"
            f"    HERE or benchmark(sum, [])\n"
            f"    if HERE: {body}\n"
            f"def test_after_{name}(benchmark): benchmark(sum, [])\n"
            for name, (body, _, _) in MISHAPS.items()
        )
    )
    tests = [test for name in MISHAPS for test in (f"test_{name}", f"test_after_{name}")]

    record = trees.launch(launcher, *tests, launch_s=0.01)

    shown = {test: output for test, *output in failures(record)}
    expected = {f"test_{name}": [side, status] for name, (_, status, _) in MISHAPS.items()}
    assert expected == {test: output[:2] for test, output in shown.items()}
    for name, (_, _, words) in MISHAPS.items():
        assert shown[f"test_{name}"][2].startswith(words)
    assert nodes(*(f"test_after_{name}" for name in MISHAPS)) == list(record.timings)
    assert set(SIDES) == set(record.reports)


# Two ways in which plugins run a test again that failed: once it is over, and before it is reported.
AGAIN = {
    "protocol": """
from _pytest.runner import runtestprotocol
def pytest_runtest_protocol(item, nextitem):
    for _ in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports):
            break
    return True
""",
    "report": """
import pytest
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.failed:
        item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
        item._initrequest()
        for again in (item.ihook.pytest_runtest_setup, item.ihook.pytest_runtest_call):
            pytest.CallInfo.from_call(lambda: again(item=item), when="call")
    return report
""",
}


@pytest.mark.parametrize("way", AGAIN)
def test_a_test_that_a_plugin_runs_again_counts_once(trees: TwoTrees, launcher: Launcher, way: str) -> None:
    trees.write({"benchmarks/conftest.py": AGAIN[way]})
    body = "def test_{name}(benchmark):\n    assert benchmark({call}) == {result}\n"
    trees.benchmarks(
        NOTE
        + body.format(name="raises", call="int, 'a word'", result=0)
        + body.format(name="asserts", call="sum, []", result=1)
        + "def test_short(benchmark): benchmark.pedantic(note, ['short'], rounds=3, iterations=2)\n"
        + "def test_long(benchmark): benchmark.pedantic(note, ['long'], rounds=7, iterations=2)\n"
        + body.format(name="last", call="sum, []", result=2)
    )
    tests = [f"test_{name}" for name in ("raises", "asserts", "short", "long", "last")]

    try:
        record = trees.launch(launcher, *tests, launch_s=0.01)
    finally:
        for root in trees.roots.values():
            (root / "benchmarks/conftest.py").unlink()

    assert ["test_raises", "test_asserts", "test_last"] == [test for test, *_ in failures(record)]
    assert ["ValueError", "AssertionErr", "AssertionErr"] == [
        one.message[: len("AssertionErr")].split(":")[0] for one in record.failures
    ]
    assert [(3, 3), (7, 7)] == [(len(one.base_s), len(one.head_s)) for one in record.timings.values()]
    assert set(SIDES) == set(record.reports)


def test_a_test_that_ends_the_session_ends_no_other_in_its_place(trees: TwoTrees, launcher: Launcher) -> None:
    trees.benchmarks(
        "import os, pytest\nHERE = os.path.basename(os.getcwd()) == 'head'\n"
        + GOOD
        + "def test_bad(benchmark):"
        "\n    benchmark(sum, [])\n    if HERE: pytest.exit('enough')\n"
    )

    record = trees.launch(launcher, "test_before", "test_bad", "test_after")

    assert [("test_bad", "head", "error", "its session ended before it was over; Exit: enough")] == failures(
        record
    )


def test_a_module_that_makes_its_attributes_up_costs_no_report(trees: TwoTrees, launcher: Launcher) -> None:
    trees.benchmarks(
        "import sys\nclass Lazy:\n    def __getattr__(self, name):\n        raise ImportError(name)\n"
        + GOOD
        + "def test_lazy(benchmark):\n    sys.modules['lazy_thing'] = Lazy()\n    benchmark(sum, [])\n"
    )

    record = trees.launch(launcher, "test_lazy", "test_after")

    assert (set(SIDES), frozenset()) == (set(record.reports), record.unproven)


# What ends head's process or keeps it, with how it is reported.
ENDS = {
    "exit": ("os._exit(3)", "error", "its process ended with exit status 3"),
    "crash": ("ctypes.string_at(0)", "error", "its process was killed by SIGSEGV"),
    "busy": ("exec('while True: pass')", "timeout", "gave no sign of life within its limit of 2 s"),
}


@pytest.mark.parametrize(("side", "end"), [("base", "exit"), ("head", "crash"), ("head", "busy")])
def test_a_lost_process_ends_the_launch_and_is_reported(
    trees: TwoTrees, launcher: Launcher, side: Side, end: str
) -> None:
    code, status, message = ENDS[end]
    trees.benchmarks(
        "import ctypes, os, signal, subprocess, sys\n"
        f"HERE = os.path.basename(os.getcwd()) == {side!r}\n"
        f"{GOOD}"
        "def test_bad(benchmark):\n"
        "    for alone in (False, True):\n"
        "        wait = [sys.executable, '-c', 'import signal; signal.pause()']\n"
        "        subprocess.Popen(wait, start_new_session=alone)\n"
        "    def work():\n"
        f"        if HERE: {code}\n"
        "    benchmark(work)\n"
    )

    record = trees.launch(launcher, "test_before", "test_bad", "test_after", limits_s={"test_bad": 2.0})

    assert [("test_bad", side, status, message)] == failures(record)
    assert nodes("test_before") == list(record.timings)
    assert {} == record.reports
    assert {} == record.proven
    assert wait_until(lambda: nothing_left(trees))


def nothing_left(trees: TwoTrees) -> bool:
    """Return whether no process of the trees is there but fork servers."""
    return all(map(is_fork_server, trees.processes()))


def is_fork_server(pid: int) -> bool:
    """Recognise a fork server, which goes on to the next launch, by its command line."""
    try:
        return b"\0preload\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


WORKER = """
import multiprocessing, pytest
def echo(end):
    while True: end.send(end.recv() + 1)
@pytest.fixture
def worker():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=echo, args=[theirs], daemon=True)
    process.start()
    yield ours
    process.kill()
    process.join()
def test_alone(benchmark): benchmark(lambda: sum(range(20_000)))
def test_served(benchmark, worker):
    def ask():
        worker.send(sum(range(20_000)))
        worker.recv()
    benchmark(ask)
"""


def test_a_benchmark_with_workers_gets_longer_rounds(trees: TwoTrees, launcher: Launcher) -> None:
    trees.benchmarks(WORKER)

    record = trees.launch(launcher, "test_served", "test_alone")

    assert [] == failures(record)
    served_s, alone_s = (_round_s(record.timings[node]) for node in nodes("test_served", "test_alone"))
    assert 3 * alone_s < served_s
    assert wait_until(lambda: nothing_left(trees))


def _round_s(timing: Timing) -> float:
    """Return how long a round was to take: the machine may double its speed between plan and round."""
    assert timing.plan.iteration_s is not None
    return timing.plan.loops * timing.plan.iteration_s


# Two ways to leave group and session: as a child of one's own, and as a daemon whose parent is gone.
STRAYS = {
    "session": "subprocess.Popen(burner, start_new_session=True)",
    "daemon": "subprocess.run([sys.executable, '-c', DAEMON, *burner], check=True)",
}
STRAY = """
import os, subprocess, sys, pytest
DAEMON = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
burner = [sys.executable, "-c", "while True: pass", os.getcwd()]
@pytest.fixture
def stray(): STRAY
def test_it(benchmark, stray): benchmark(sum, range(100))
"""


@pytest.mark.parametrize("way", STRAYS)
def test_a_busy_stray_is_found_and_stopped_with_its_side(
    trees: TwoTrees, launcher: Launcher, way: str
) -> None:
    trees.benchmarks(STRAY.replace("STRAY", STRAYS[way]))
    base, head = trees.children(launcher, "test_it")
    for child in (base, head):
        assert "ready" == child.channel.receive(20.0)["kind"]

    found = base.look()
    base.stop()

    assert 1 == len([process for process in found if process.group != base.pid])
    assert wait_until(lambda: all(process.rests for process in base.look()))
    assert not any(process.rests for process in head.look() if process.group != head.pid)
    for child in (base, head):
        child.end()
    assert wait_until(lambda: nothing_left(trees))


# Base is busy whenever it may be, and head's benchmark lets it go on each time that it is stopped.
RESTLESS = """
import os, signal, threading
PLACE = "../base.pid"
def burn():
    while True: pass
def test_it(benchmark):
    if os.path.basename(os.getcwd()) == "base":
        with open(PLACE, "w") as file: file.write(str(os.getpid()))
        threading.Thread(target=burn, daemon=True).start()
    def work():
        if os.path.basename(os.getcwd()) == "head" and os.path.exists(PLACE):
            os.killpg(int(open(PLACE).read()), signal.SIGCONT)
        sum(range(10_000))
    benchmark(work)
"""


def test_a_side_that_does_not_rest_is_reported(trees: TwoTrees, launcher: Launcher) -> None:
    trees.benchmarks(RESTLESS)

    record = trees.launch(launcher, "test_it", launch_s=0.3)

    ((test, side, status, message),) = failures(record)
    assert ("test_it", "base", "error") == (test, side, status)
    assert message.startswith("could not be stopped while the other side was timed: it used ")
    assert {} == record.timings


# A library that seems to have initialised a GPU: its forked children could not use that.
GPU_IN_USE = """
class cuda:
    is_initialized = staticmethod(lambda: True)
"""


def test_fresh_processes_give_the_same_record_of_thousands_of_benchmarks(
    trees: TwoTrees, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(GPU_IN_USE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    trees.benchmarks(
        f"import os\n{GOOD}def test_raises(benchmark): benchmark(int, 'x')\n"
        "def test_ends(benchmark): benchmark(os._exit, 3)\n"
    )
    tests = ["test_before", "test_raises", "test_after", "test_ends"]
    gone = [f"test_{'long' * 20}_{number}" for number in range(2000)]

    with trees.launcher(preload=["torch"], environment=environment) as unforked:
        listing = list_benchmarks(unforked.start("head", nodes=None))
        assert "CUDA is initialised in the fork server" == unforked.why_no_fork
        record = trees.launch(unforked, *tests)
        whole = trees.launch(unforked, "test_before", *gone)
        assert nothing_left(trees)

    assert set(nodes(*tests)) == set(listing.found)
    assert ["error", "error"] == [failure.status for failure in record.failures]
    assert nodes("test_raises", "test_ends") == [failure.node for failure in record.failures]
    assert "its process ended with exit status 3" == record.failures[-1].message
    assert nodes("test_before", "test_after") == list(record.timings)
    assert [(FILE,), (FILE,)] == [whole.reports[side].loaded for side in SIDES]
    assert nodes("test_before") == list(whole.timings) == list(whole.proven)
    assert nodes(*gone) == [failure.node for failure in whole.failures]
    assert [] == list(trees.folder.glob("*.order"))


# Ends head's process in its benchmark, or when it lists the files that it loaded.
SILENT = """
import os
HERE = os.path.basename(os.getcwd()) == "head"
class Odd:
    def pytest_runtest_logfinish(self, nodeid): os._exit(3)
def test_ends(benchmark): benchmark(os._exit if HERE else len, HERE and 3 or "")
def test_odd(benchmark, request):
    if HERE: request.config.pluginmanager.register(Odd())
    benchmark(sum, [])
"""


def test_counts_of_a_process_without_its_proof_are_counted_once_more(
    trees: TwoTrees, launcher: Launcher
) -> None:
    trees.benchmarks(SILENT + NOTE + GOOD)
    wanted = nodes("test_before", "test_ends", "test_after")

    found = count_benchmarks(launcher, wanted, limit_s=lambda _: 20.0, on_benchmark=lambda _: None)

    assert [(wanted[1], "head")] == [(one.node, one.side) for one in found.failures]
    assert {"base": set(wanted), "head": {wanted[0], wanted[2]}} == {
        side: set(counts) for side, counts in found.counts.items()
    }
    assert ["test_before", "test_ends", "test_after", "test_before"] == trees.lines("head", "seen.txt")
    assert ["test_before", "test_ends", "test_after"] == trees.lines("base", "seen.txt")
    assert set(SIDES) == set(found.reports)


def test_counts_that_no_process_proves_have_failed(trees: TwoTrees, launcher: Launcher) -> None:
    trees.benchmarks(SILENT)

    found = count_benchmarks(launcher, nodes("test_odd"), limit_s=lambda _: 20.0, on_benchmark=lambda _: None)

    assert [("head", "its process ended without proof of which code it had run")] == [
        (one.side, one.message) for one in found.failures
    ]
    assert {"base": 1, "head": 0} == {side: len(counts) for side, counts in found.counts.items()}
    assert {"base"} == set(found.reports)


def test_a_training_that_failed_with_code_from_elsewhere_is_reported(
    trees: TwoTrees, launcher: Launcher, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "helper.py").write_text("")
    detour = f"import sys\nsys.path.insert(0, {str(elsewhere)!r})\nimport helper\n"
    trees.write({"helper.py": "", "train.py": detour + "1 / 0\n"})

    found = count_training(launcher, dict.fromkeys(SIDES, "train:main"), steps=1, runs=1, limit_s=20.0)

    for side in SIDES:
        (failure,) = found.runs[side]
        assert isinstance(failure, Failure)
        assert (
            f"wrong code imported: helper came from {elsewhere}/helper.py, not from the checkout"
            == failure.message
        )
        assert not failure.raised
