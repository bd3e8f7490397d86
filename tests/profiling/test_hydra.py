"""A function under ``@hydra.main`` is profiled as it runs by hand, but for where its outputs go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pass_specs import pass_spec

from perfkit.profiling.passes.exchange import PassResult
from perfkit.profiling.passes.launch import PassLauncher, output_tail, run_pass
from perfkit.profiling.passes.target_code import redirect_hydra

SCRIPT = """
import os
import hydra
import torch

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(config):
    outputs = hydra.core.hydra_config.HydraConfig.get().runtime.output_dir
    print("in", os.getcwd())
    print("to", outputs)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=config.lr)
    if config.lr > 1:
        raise ValueError("too fast")
    for _ in range(config.steps):
        parameter.grad = torch.ones(1)
        optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pytest.importorskip("hydra")
    (tmp_path / "code" / "conf").mkdir(parents=True)
    (tmp_path / "code" / "conf" / "config.yaml").write_text("lr: 0.1\nsteps: 2\n")
    (tmp_path / "code" / "fit.py").write_text(SCRIPT)
    (tmp_path / "code" / "it's").mkdir()
    return tmp_path / "code"


def _run(project: Path, launcher: PassLauncher, *arguments: str, place: str = "fit.py") -> PassResult:
    spec = pass_spec(
        project,
        str(project / place) if place.endswith(".py") else place,
        project / "it's",
        target="fit",
        arguments=arguments,
        artifact="x",
    )
    return run_pass(spec, lambda _: None, launcher)


def _files(project: Path) -> set[str]:
    found = (file.relative_to(project).parts[0] for file in project.rglob("*") if file.is_file())
    return set(found) - {"__pycache__"}


def test_outputs_go_to_the_pass_and_overrides_count(project: Path, launcher: PassLauncher) -> None:
    result = _run(project, launcher, "lr=0.5", "+more=1", "steps=4")

    assert result.problem is None
    assert result.summary is not None
    assert 4 == result.summary.steps
    output = output_tail(project / "it's").splitlines()
    assert [f"in {project}", f"to {project}/it's/hydra"] == output
    assert {"conf", "fit.py", "it's"} == _files(project)


def test_a_folder_that_the_arguments_name_is_left_alone(project: Path, launcher: PassLauncher) -> None:
    result = _run(project, launcher, "hydra.run.dir=mine", "hydra.job.chdir=true")

    assert result.problem is None
    assert (project / "mine" / ".hydra" / "config.yaml").is_file()
    assert [f"in {project}/mine", f"to {project}/mine"] == output_tail(project / "it's").splitlines()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("lr=2", "fit raised ValueError: too fast (fit.py:14)"),
        ("speed=2", "fit raised ConfigCompositionException: Could not override 'speed'."),
    ],
)
def test_what_went_wrong_is_reported(
    project: Path, launcher: PassLauncher, argument: str, message: str
) -> None:
    problem = _run(project, launcher, argument).problem
    assert problem is not None
    assert problem.message.startswith(message)


def test_a_function_under_hydra_is_a_target(project: Path, launcher: PassLauncher) -> None:
    (project / "conf" / "__init__.py").touch()
    result = _run(project, launcher, "steps=3", place="fit:main")
    assert result.problem is None
    assert result.summary is not None
    assert 3 == result.summary.steps


def test_nothing_waits_where_hydra_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hydra.py").write_text("heads = 9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hydra", raising=False)
    monkeypatch.setattr(sys, "argv", ["fit.py"])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    finders = len(sys.meta_path)

    redirect_hydra(tmp_path)
    import hydra  # type: ignore[import-untyped, import-not-found, unused-ignore]

    assert 9 == hydra.heads
    assert (["fit.py"], finders) == (sys.argv, len(sys.meta_path))
    sys.modules.pop("hydra")
