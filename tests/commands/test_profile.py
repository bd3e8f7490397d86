"""``perfkit profile`` on real training loops makes passes in processes of their own, artifacts and rows."""

from __future__ import annotations

import csv
import gzip
import json
import pstats
import re
from dataclasses import dataclass
from pathlib import Path

import git
import msgspec
import pytest
from repositories import create_repository

from perfkit.commands.profile import STAGING_PREFIX, ProfileRequest, run_profile
from perfkit.config import Project, load_project
from perfkit.errors import NotMeasuredError, RepositoryError, UsageError
from perfkit.invocation import Invocation
from perfkit.ledger.store import Ledger
from perfkit.model import PassName, ProfileSummary
from perfkit.profiling.read.summary_file import load_summary
from perfkit.temporary import Owner

pytestmark = pytest.mark.usefixtures("one_launcher")

PYPROJECT = """
[tool.perfkit]
own = ["demo"]
[tool.perfkit.targets]
train = "demo.training:main"
"""

TRAINING = '''
"""Eight steps of four samples, and an evaluation that is no training."""
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from demo.loss import mean_square

def main():
    loader = DataLoader(TensorDataset(torch.ones(16, 3)), batch_size=4, num_workers=2)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for (batch,) in loader:
            optimizer.zero_grad()
            mean_square(model(batch)).backward()
            optimizer.step()
        with torch.no_grad():
            for (batch,) in loader:
                model(batch)

def raises():
    raise ValueError("a loss of nan\\nat step 3")

def breaks():
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for step in range(5):
        if step == 3:
            sys.exit("out of luck")
        parameter.grad = torch.ones(1)
        optimizer.step()
'''

LOSS = """
def mean_square(values):
    squares = values * values
    return squares.mean()

def never_called(values):
    return values
"""

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def step(model, optimizer, batch):
    model(batch).sum().backward()
    optimizer.step()

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(5 * int(sys.argv[1]), 2)), batch_size=5, num_workers=1)
print("arguments", sys.argv[1:])
for (batch,) in loader:
    step(model, optimizer, batch)
sys.exit(int(sys.argv[2]))
"""


@dataclass(frozen=True)
class Demo:
    """A committed project, and the summary of a profile with all passes."""

    root: Path
    project: Project
    summary: ProfileSummary

    def artifact(self, ending: str) -> Path:
        """Return an artifact's path by the end of its name."""
        return self.root / "profiles" / f"first_profile{ending}"


def make_project(root: Path) -> Project:
    """Return a committed project with a package to train and a script."""
    files = {
        "pyproject.toml": PYPROJECT,
        "demo/__init__.py": "",
        "demo/training.py": TRAINING,
        "demo/loss.py": LOSS,
        "train.py": SCRIPT,
        # The target's folder is searched for modules, and must not hide what torch itself imports.
        "glob.py": "raise RuntimeError",
        "profiles/README.md": "# My profiles\n\nmy note\n",
        "profiles/old.json": "{half",
        "profiles/flame.speedscope.json": '{"profiles": []}',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    repository = create_repository(root)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "Start")
    return load_project(root)


def leave_a_killed_profile(folder: Path) -> None:
    owner = Owner(invocation=Invocation.this())
    (folder / f"{STAGING_PREFIX}0123.owner").write_bytes(msgspec.json.encode(owner))
    (folder / f"{STAGING_PREFIX}0123/clean").mkdir(parents=True)


@pytest.fixture(scope="module")
def demo(one_launcher: None, tmp_path_factory: pytest.TempPathFactory) -> Demo:  # noqa: ARG001
    """Return a project profiled once with every pass."""
    root = tmp_path_factory.mktemp("demo")
    project = make_project(root)
    leave_a_killed_profile(root / "profiles")
    request = ProfileRequest(
        target="train",
        out=root / "profiles" / "first_profile.stat",
        lines=("demo.loss:mean_square", "auto"),
        ledger=project.ledger_path,
        progress=False,
    )
    return Demo(root, project, run_profile(request, project=project))


@pytest.fixture
def in_demo(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> Demo:
    """Return the project, with the current folder in it."""
    monkeypatch.chdir(demo.root)
    return demo


def test_passes_count_steps_samples_and_waits(demo: Demo) -> None:
    assert {"clean": 8, "balance": 8, "counts": 3, "cprofile": 8, "torch": 5, "lines": 8} == {
        found.name: found.steps for found in demo.summary.passes
    }

    assert 32 == demo.summary.main_pass.samples

    main = demo.summary.main_pass
    assert 2 == main.data_workers
    assert 0 < (main.data_wait_s or 0) <= main.total_s


def test_only_artifacts_lie_beside_the_output(demo: Demo) -> None:
    texts = (".txt", "_filtered.txt", "_ops.csv", "_lines.txt")
    endings = (".stat", ".worker0.stat", ".worker1.stat", ".trace.json.gz", ".json", *texts)
    assert {f"first_profile{ending}" for ending in endings} == set(demo.summary.artifacts)
    present = {path.name for path in (demo.root / "profiles").iterdir()}
    assert {*demo.summary.artifacts, "README.md", "old.json", "flame.speedscope.json"} == present

    assert [] == list((demo.root / "profiles").glob(f"{STAGING_PREFIX}*"))


def test_a_step_is_the_sum_of_its_phases_and_a_residual(demo: Demo) -> None:
    balance = demo.summary.balance
    assert balance is not None
    phases = {phase.name: phase.seconds for phase in balance.phases}
    # Its own function is the loss.
    assert {"data wait", "forward", "loss", "backward", "optimizer"} == set(phases)
    assert 8 == len(balance.step_s)
    assert all(min(phases[name]) > 0 for name in ("data wait", "forward", "backward", "optimizer"))
    (evaluation,) = demo.summary.main_pass.periods
    assert ("evaluation", 2) == (evaluation.name, evaluation.times)

    for step, (whole_s, residual_s) in enumerate(zip(balance.step_s, balance.residual_s, strict=True)):
        seen_s = sum(phase.seconds[step] for phase in balance.phases)
        assert pytest.approx(whole_s) == seen_s + residual_s
        assert 0 <= residual_s < whole_s

    assert 0 < (balance.loader_s or 0) < sum(balance.step_s)


def test_each_worker_has_a_profile_of_its_own(demo: Demo) -> None:
    assert ["worker0", "worker1"] == [role.role for role in demo.summary.roles]
    for role in demo.summary.roles:
        stats = vars(pstats.Stats(str(demo.root / "profiles" / role.file)))["stats"]
        calls = {name: timing[0] for (_, _, name), timing in stats.items()}
        # Training and evaluation of two epochs: four loaders, two of whose four batches are each worker's.
        assert (4, 8) == (calls["_worker_loop"], calls["fetch"])
        assert role.total_s > 0


def test_lines_are_timed_where_the_time_is(demo: Demo) -> None:
    lines = {(line.file, line.text): line.hits for line in demo.summary.lines}
    assert 8 == lines["demo/training.py", "optimizer.zero_grad()"]
    assert 8 == lines["demo/loss.py", "squares = values * values"]
    times = [line.seconds for line in demo.summary.lines]
    assert sorted(times, reverse=True) == times
    assert "Times are in milliseconds a step, of 8" in demo.artifact("_lines.txt").read_text()


def test_whom_the_loop_waits_for_is_known(demo: Demo) -> None:
    waits = {wait.whom: wait.seconds for wait in demo.summary.waits}
    assert waits["the loader's workers"] > 0


def test_summary_knows_commit_and_environment(demo: Demo) -> None:
    assert demo.summary.commit is not None
    assert git.Repo(demo.root).head.commit.hexsha == demo.summary.commit.sha
    assert not demo.summary.commit.dirty
    assert "threads" in demo.summary.environment.facts


def test_the_profile_begins_at_the_target_without_the_harness(demo: Demo) -> None:
    stats = vars(pstats.Stats(str(demo.artifact(".stat"))))["stats"]
    longest = max(stats, key=lambda function: stats[function][3])
    assert "demo/training.py" == longest[0]
    assert "main" == longest[2]
    callers = {
        caller[2]
        for (file, _, name), timing in stats.items()
        if (file, name) == ("torch/utils/data/dataloader.py", "__next__")
        for caller in timing[4]
    }
    assert {"main"} == callers


def test_entries_show_own_code_and_waiting_apart(demo: Demo) -> None:
    kinds = {(entry.file, entry.function): entry.kind for entry in demo.summary.entries}
    assert "own" == kinds["demo/loss.py", "mean_square"]
    assert "wait" == kinds["torch/utils/data/dataloader.py", "__next__"]
    assert "library" == kinds["~", "{method 'run_backward' of 'torch._C._EngineBase' objects}"]


def test_trace_and_operators_hold_the_window(demo: Demo) -> None:
    events = json.loads(gzip.decompress(demo.artifact(".trace.json.gz").read_bytes()))["traceEvents"]
    spans = {
        prefix: [
            (event["ts"], event["ts"] + event["dur"]) for event in events if event["name"].startswith(prefix)
        ]
        for prefix in ("ProfilerStep#", "Optimizer.step#")
    }
    assert 3 == len(spans["ProfilerStep#"])
    pairs = zip(sorted(spans["ProfilerStep#"]), sorted(spans["Optimizer.step#"]), strict=True)
    assert all(step[0] <= inner[0] and inner[1] <= step[1] for step, inner in pairs)

    with demo.artifact("_ops.csv").open() as stream:
        rows = {row["operator"]: row for row in csv.DictReader(stream)}
    assert ("3", "1", "") == tuple(
        rows["Optimizer.step#SGD.step"][column] for column in ("calls", "calls_per_step", "device_s")
    )


def test_clean_pass_becomes_ledger_rows(demo: Demo) -> None:
    rows = {row.outcome.metric.name: row for row in Ledger(demo.project.ledger_path).rows()}
    assert demo.summary.main_pass.step_s == rows["step_time"].outcome.values
    assert (demo.summary.main_pass.total_s,) == rows["total_time"].outcome.values
    assert ("profile", "profile:train") == (
        rows["step_time"].source,
        rows["step_time"].outcome.benchmark.name,
    )
    assert re.fullmatch("[0-9a-f]{16}", rows["step_time"].outcome.benchmark.version)


def test_script_with_arguments_ends_after_steps(in_demo: Demo) -> None:
    request = ProfileRequest(
        target="train.py",
        arguments=("1000", "0"),
        out=Path("script"),
        steps=3,
        passes=("clean", "torch"),
        lines=("train:step", "demo.loss:never_called"),
        progress=False,
    )
    summary = run_profile(request, project=in_demo.project)
    assert [3, 3, 3] == [found.steps for found in summary.passes]
    assert ["clean", "torch", "lines"] == [found.name for found in summary.passes]
    assert 15 == summary.main_pass.samples
    lines = (in_demo.root / "script_lines.txt").read_text()
    assert 1 == lines.count("Function: step")
    assert "Function: never_called, demo/loss.py:6, did not run" in lines


def test_exit_code_of_a_script_is_a_failure(in_demo: Demo) -> None:
    with pytest.raises(NotMeasuredError, match=r"train\.py exited with code 3.*arguments \['1', '3'\]"):
        profile(in_demo, "train.py", arguments=("1", "3"))


def test_raising_target_is_recorded_and_explained(in_demo: Demo) -> None:
    before = in_demo.artifact(".stat").read_bytes()
    with pytest.raises(NotMeasuredError) as caught:
        profile(in_demo, "demo.training:raises")
    assert "demo.training:raises raised ValueError: a loss of nan (demo/training.py:24)" in str(caught.value)
    assert "\n" not in str(caught.value)
    kept = in_demo.artifact(".error.txt").read_text()
    assert "in raises" in kept
    assert "perfkit" not in kept
    assert before == in_demo.artifact(".stat").read_bytes()
    failed = {
        row.outcome.benchmark.name: row.outcome.values
        for row in Ledger(in_demo.project.ledger_path).rows()
        if row.outcome.status == "error"
    }
    assert {"profile:train.py": (), "profile:demo.training:raises": ()} == failed


def test_what_was_captured_before_a_failure_is_kept(in_demo: Demo) -> None:
    with pytest.raises(NotMeasuredError) as caught:
        profile(in_demo, "demo.training:breaks", passes=("clean", "cprofile"))

    assert "exited with code 1: out of luck" in str(caught.value)
    assert "the 3 steps before it are in " in str(caught.value)
    partial = load_summary(in_demo.artifact(".partial.json"))
    assert "demo.training:breaks exited with code 1: out of luck" == partial.problem
    assert [("cprofile", 3)] == [(found.name, found.steps) for found in partial.passes]
    stats = vars(pstats.Stats(str(in_demo.artifact(".partial.stat"))))["stats"]
    assert 3 == next(
        timing[0] for (file, _, name), timing in stats.items() if name == "step" and "sgd" in file
    )


def test_another_profiler_is_refused(in_demo: Demo) -> None:
    module = in_demo.root / "demo" / "watched.py"
    module.write_text("import sys\nsys.setprofile(lambda *_: None)\n\ndef main():\n    pass\n")

    with pytest.raises(UsageError, match="another profiler is active"):
        profile(in_demo, "demo.watched:main", passes=("cprofile",))


def test_missing_function_is_a_mistake_in_the_request(in_demo: Demo) -> None:
    recorded = len(Ledger(in_demo.project.ledger_path).rows())
    with pytest.raises(UsageError, match='did you mean "raises"'):
        profile(in_demo, "demo.training:raise")
    assert recorded == len(Ledger(in_demo.project.ledger_path).rows())


def profile(
    demo: Demo, target: str, arguments: tuple[str, ...] = (), passes: tuple[PassName, ...] = ("clean",)
) -> ProfileSummary:
    """Make passes of a target over the first profile, by default the clean one, and record it."""
    request = ProfileRequest(
        target=target,
        arguments=arguments,
        out=demo.artifact(".stat"),
        passes=passes,
        ledger=demo.project.ledger_path,
        progress=False,
    )
    return run_profile(request, project=demo.project)


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("missing/sub/x.stat", "No such file"),
        ("train.py/x.stat", "File exists"),
        ("profiles", "it is a folder"),
    ],
)
def test_unusable_output_is_refused_first(in_demo: Demo, out: str, expected: str) -> None:
    request = ProfileRequest(target="train", out=Path(out), progress=False)
    with pytest.raises(UsageError, match=f"{expected}.*--out"):
        run_profile(request, project=in_demo.project)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "at least 1"),
        ({"passes": ("lines",)}, "--lines"),
        ({"passes": ()}, "no pass"),
        ({"target": "trian"}, 'did you mean "train"'),
    ],
)
def test_wrong_request_is_refused(in_demo: Demo, changes: dict[str, object], message: str) -> None:
    fields: dict[str, object] = {"target": "train", "out": Path("x.stat"), "progress": False}
    with pytest.raises(UsageError, match=message):
        run_profile(ProfileRequest(**(fields | changes)), project=in_demo.project)  # type: ignore[arg-type]


def test_without_commits_only_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    project = load_project(tmp_path)
    request = ProfileRequest(
        target=str(tmp_path / "train.py"), out=tmp_path / "x", ledger=project.ledger_path, progress=False
    )
    with pytest.raises(RepositoryError, match="--no-ledger"):
        run_profile(request, project=project)
    assert not project.ledger_path.exists()
