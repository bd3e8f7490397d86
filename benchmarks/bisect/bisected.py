"""Makes repositories of many real commits of a small training module, one of which changes what it costs."""

from __future__ import annotations

from pathlib import Path

from gating import CONFIGURATION, GitProject
from repositories import Repository, create_repository

FILE = "benchmarks/bench_step.py"
NODE = f"{FILE}::test_step"
_BENCHMARK = """
import torch

from demo.losses import loss
from demo.model import forward, weights

torch.manual_seed(0)


def step(values, parameters):
    return loss(forward(values, parameters))


def test_step(benchmark):
    benchmark.pedantic(step, (torch.ones(8, 16), weights()), rounds=10, iterations=20)
"""
_MODEL = """
import torch


def weights():
    return [torch.full((16, 16), 0.01) for _ in range({layers})]


def forward(values, parameters):
    for parameter in parameters:
        values = torch.tanh(values @ parameter)
    return values
"""
_LOSSES = """
import torch


def loss(values):
    total = (values * values).mean()
{work}
    return total


def unused_{number}(values):
    return values + {number}
"""
_TEXT = "# Demo\n\nWhat was done until day {number}.\n"
_TOOL = "def describe():\n    return 'version {number}'\n"
# What the changed commit puts into the loss, by what it is to cost.
TENTH = "    total = total * 1.0"
SYNC = "    total.item()"
NOTHING = "    # Nothing more is done."


def module(number: int, *, work: str = NOTHING) -> dict[str, str]:
    """Return the files that a commit of that number changes: texts, a tool, or losses in turn."""
    kinds = (
        {"README.md": _TEXT.format(number=number)},
        {"demo/tool.py": _TOOL.format(number=number)},
        {"demo/losses.py": _LOSSES.format(number=number, work=work)},
    )
    return kinds[number % len(kinds)]


def history(
    place: Path,
    *,
    commits: int,
    changed: int,
    work: str,
    layers: int = 8,
    broken: frozenset[int] = frozenset(),
) -> tuple[GitProject, list[str]]:
    """Return a repository and its commits, place 0 first; the one at ``changed`` adds ``work`` to the loss.

    Those in ``broken`` do not import.
    """
    root = place / "project"
    root.mkdir(parents=True)
    project = GitProject(root=root, repository=Repository(root, create_repository(root)))
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\npython_files = ['bench_*.py']\n" + CONFIGURATION,
        "demo/__init__.py": "",
        "demo/model.py": _MODEL.format(layers=layers),
        **module(0),
        **module(1),
        **module(2),
        FILE: _BENCHMARK,
    }
    shas = [project.commit(files, "Begin")]
    for number in range(1, commits + 1):
        done = work if number >= changed else NOTHING
        files = module(2 if number == changed else number, work=done)
        files = {**files, "demo/__init__.py": "import nowhere\n" if number in broken else ""}
        shas.append(project.commit(files, f"Change {number}"))
    return project, shas
