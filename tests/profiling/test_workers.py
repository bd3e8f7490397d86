"""What each worker of a loader did, forked or spawned, is found in its own process."""

from __future__ import annotations

import pstats
from pathlib import Path

import pytest
from pass_specs import pass_spec

from perfkit.model import PassName
from perfkit.profiling.passes.exchange import PassResult
from perfkit.profiling.passes.launch import PassLauncher, run_pass
from perfkit.profiling.passes.workers import fetch_times

TRAINING = """
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, place):
        return prepared(place)


def prepared(place):
    return torch.tensor([float(place)])


def main():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    loader = DataLoader(
        Numbers(), batch_size=2, num_workers=2, multiprocessing_context="{start}", persistent_workers={stay}
    )
    for _ in range(2):
        for batch in loader:
            (parameter * batch).sum().backward()
            optimizer.step()
"""


ACCUMULATING = """
    accumulated = 0
    with torch.no_grad():
        for batch in loader:
            (parameter * batch).sum()
    for _ in range(2):
        for batch in loader:
            (parameter * batch).sum().backward()
            accumulated += 1
            if accumulated % 3 == 0:
                optimizer.step()
"""


SIDE_BY_SIDE = """
    other = DataLoader(Numbers(), batch_size=2, num_workers=2)
    for _ in range(2):
        for batch, more in zip(loader, other):
            (parameter * (batch + more)).sum().backward()
            optimizer.step()
"""


def _run(root: Path, name: PassName, launcher: PassLauncher, *, start: str, stay: bool) -> PassResult:
    return _run_loop(root, name, launcher, TRAINING.format(start=start, stay=stay))


def _run_loop(root: Path, name: PassName, launcher: PassLauncher, loop: str) -> PassResult:
    (root / "numbers_loop.py").write_text(loop)
    (root / "folder").mkdir()
    spec = pass_spec(root, "numbers_loop:main", root / "folder", name=name, artifact="first", from_root=False)
    return run_pass(spec, lambda _: None, launcher)


@pytest.mark.parametrize(
    ("start", "stay"),
    [
        pytest.param("fork", False, id="forked for each epoch"),
        pytest.param("spawn", True, marks=pytest.mark.slow, id="spawned to stay"),
    ],
)
def test_each_worker_leaves_its_profile(
    tmp_path: Path,
    launcher: PassLauncher,
    start: str,
    stay: bool,  # noqa: FBT001 (a case)
) -> None:
    result = _run(tmp_path, "cprofile", launcher, start=start, stay=stay)

    assert None is result.problem
    assert ["worker0", "worker1"] == [role.role for role in result.roles]
    for role in result.roles:
        stats = vars(pstats.Stats(str(tmp_path / "folder" / role.file)))["stats"]
        calls = {name: timing[0] for (_, _, name), timing in stats.items()}
        assert 12 == calls["prepared"]
        # The thread that feeds the queue pickles the batches: that is none of the loop's own doing.
        assert "dumps" not in calls
        assert 12 == next(entry.calls for entry in role.entries if entry.function == "prepared")


@pytest.mark.slow
def test_workers_report_how_long_a_batch_takes(tmp_path: Path, launcher: PassLauncher) -> None:
    result = _run(tmp_path, "balance", launcher, start="spawn", stay=False)

    assert None is result.problem
    assert result.balance is not None
    assert 0 < (result.balance.loader_s or 0) < 1


@pytest.mark.parametrize(
    ("loop", "steps", "batches"),
    [
        pytest.param(ACCUMULATING, 4, 3, id="accumulated"),
        pytest.param(SIDE_BY_SIDE, 12, 1, id="side by side"),
    ],
)
def test_a_step_takes_as_many_batches_as_its_loaders_make_one_after_another(
    tmp_path: Path, launcher: PassLauncher, loop: str, steps: int, batches: int
) -> None:
    setup = TRAINING.format(start="fork", stay=False).partition("    for _ in range(2):")[0]

    result = _run_loop(tmp_path, "balance", launcher, setup + loop)

    assert None is result.problem
    assert result.balance is not None
    assert steps == len(result.balance.step_s)
    times = fetch_times(tmp_path / "folder")
    assert times is not None
    assert times.batch_s is not None
    assert pytest.approx(batches * times.batch_s) == result.balance.loader_s
