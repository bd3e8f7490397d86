"""A target gets a variant's levels as arguments that it accepts, a program spelled as it has its options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiment_targets import TRAINING
from forked_commands import run_perfkit
from repositories import Repository, create_repository

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import load_bound, spelled
from perfkit.features.experiments.definition import read_experiment
from perfkit.features.experiments.records import Level
from perfkit.profiling.passes.targets import Target

NAME = "bound_training"


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / f"{NAME}.py"
    file.write_text(TRAINING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    yield file
    sys.modules.pop(NAME, None)


def _target(name: str) -> Target:
    return Target(name=name, place=f"{NAME}:{name}")


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("name", ["train", "by_keywords", "main"])
def test_levels_arrive(name: str) -> None:
    result = load_bound(_target(name), {"steps": 3, "batch_size": 4})()

    assert 12 == getattr(result, "samples", None)


def test_a_script_gets_options(training: Path) -> None:
    call = load_bound(
        Target(name="script", place=str(training)), {"steps": 2, "verbose": True, "batch_size": 4}
    )
    call()

    assert [str(training), "--steps", "2", "--verbose", "--batch-size", "4"] == sys.argv
    load_bound(Target(name="script", place=str(training)), {"verbose": False})()
    assert [str(training)] == sys.argv


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("train", {"precison": "bf16"}, 'takes no argument "precison"; did you mean "precision"?'),
        ("train", {"depth": 2}, 'takes no argument "depth"; it takes precision, batch_size'),
        ("train", {"precision": "fp8"}, "precision: expected one of default, bf16, fp16, found fp8"),
        ("train", {"batch_size": "many"}, "batch_size: Expected int, got str"),
        ("train", {"batch_size": 0}, "refuses batch_size=0: expected batch_size of at least 1"),
        ("nothing", {}, 'there is no "nothing"'),
    ],
)
def test_what_is_refused_is_one_line(name: str, arguments: dict[str, Level], shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_bound(_target(name), arguments)

    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


ARGPARSE = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch_size", type=int, default=4)
parser.add_argument("--log-interval", type=int)
parser.add_argument("--lr", "--learning-rate", dest="rate", type=float)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--compiled", action=argparse.BooleanOptionalAction)
parser.add_argument("--pretrained", type=int, default=1)
parser.add_argument("--shuffle", type=bool, default=True)
parser.add_argument("--fused", type=lambda text: text == "True")
parser.add_argument("-one_dash", type=int)
"""
CLICK = """
import click

@click.command()
@click.option("--batch_size", default=4)
@click.option("--amp/--no-amp", default=False)
@click.option("--quiet", is_flag=True)
def main(batch_size, amp, quiet):
    pass
"""
ABSL = """
from absl import flags
flags.DEFINE_integer("batch_size", 4, "size")
flags.DEFINE_bool("amp", False, "half")
"""
DOCOPT = '''"""Usage: train.py [--batch_size=N] [--amp]"""'''
BY_HAND = """
import sys
for word in sys.argv[1:]:
    assert word.startswith("--")
    key, value = word[2:].split("=")
"""
GLOBALS = "batch_size = 4\nexec(open('config.py').read())\n"
OMEGA = "from omegaconf import OmegaConf\nsettings = OmegaConf.from_cli()\n"
HYDRA = "import hydra\n@hydra.main(config_path=None)\ndef main(config): pass\n"
FIELDS = "from transformers import HfArgumentParser\n"
PLAIN = "import sys\nwords = sys.argv\n"


@pytest.mark.parametrize(
    ("source", "arguments", "words"),
    [
        (ARGPARSE, {"batch_size": 8, "log_interval": 2}, "--batch_size 8 --log-interval 2"),
        (ARGPARSE, {"lr": 0.1, "learning_rate": 0.1}, "--lr 0.1 --learning-rate 0.1"),
        (ARGPARSE, {"rate": 0.1, "one_dash": 3}, "--learning-rate 0.1 -one_dash 3"),
        (ARGPARSE, {"amp": True, "compiled": True}, "--amp --compiled"),
        (ARGPARSE, {"amp": False, "compiled": False}, "--no-compiled"),
        (ARGPARSE, {"pretrained": False, "fused": False}, "--pretrained 0 --fused False"),
        (ARGPARSE, {"pretrained": True, "shuffle": True}, "--pretrained 1 --shuffle True"),
        # ``bool("False")`` is true, so argparse takes only the empty text for false.
        (ARGPARSE, {"shuffle": False}, "--shuffle "),
        (ARGPARSE, {"unknown_one": 1}, "--unknown-one 1"),
        (CLICK, {"batch_size": 8, "amp": False, "quiet": True}, "--batch_size 8 --no-amp --quiet"),
        (ABSL, {"batch_size": 8, "amp": False}, "--batch_size=8 --amp=False"),
        (DOCOPT, {"batch_size": 8, "amp": True}, "--batch_size 8 --amp"),
        (BY_HAND, {"batch_size": 8, "amp": False}, "--batch_size=8 --amp=False"),
        (BY_HAND.replace("--", ""), {"batch_size": 8}, "batch_size=8"),
        (GLOBALS, {"batch_size": 8, "amp": True}, "--batch_size=8 --amp=True"),
        (OMEGA, {"batch_size": 8, "model.lr": 0.1}, "batch_size=8 model.lr=0.1"),
        (HYDRA, {"batch_size": 8, "amp": False}, "batch_size=8 amp=False"),
        (FIELDS, {"learning_rate": 0.1}, "--learning_rate 0.1"),
        (PLAIN, {"batch_size": 8, "trainer.max_epochs": 1}, "--batch-size 8 --trainer.max_epochs 1"),
    ],
)
def test_options_are_spelled_as_in_the_source(
    tmp_path: Path, source: str, arguments: dict[str, Level], words: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    (tmp_path / "config.py").write_text(BY_HAND)

    assert words.split(" ") == spelled(arguments, script)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("--{name}={value}", ["--batch_size=8", "--amp=False"]),
        ("{name}={value}", ["batch_size=8", "amp=False"]),
        ("-s {name} {value}", ["-s", "batch_size", "8", "-s", "amp", "False"]),
    ],
)
def test_a_template_spells_every_argument(template: str, words: list[str]) -> None:
    assert words == spelled({"batch_size": 8, "amp": False}, Path(__file__), template)


def test_a_template_without_a_place_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lr.toml"
    file.write_text('target = "train.py"\nargument = "--{name}"\n[factors]\nlr = [1, 2]\n')

    with pytest.raises(UsageError, match=r"lr\.toml: argument needs \{name\} and \{value\}"):
        read_experiment(file)


SCRIPT = """
import torch
from option import parser

settings = parser.parse_args()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.amp):
        loss = model(torch.ones(settings.batch_size, 4)).sum()
    loss.backward()
    optimizer.step()
"""
EXPERIMENT = """
target = "train.py"
seed_argument = "seed"
blocks = 2
budget = "120s"
[factors]
batch_size = [2, 3]
[fixed]
amp = true
"""


def _run(tmp_path: Path, experiment: str) -> subprocess.CompletedProcess[str]:
    project = Repository(tmp_path, create_repository(tmp_path))
    option = (
        f"{ARGPARSE}parser.add_argument('--seed', type=int)\nparser.add_argument('--epochs', choices=['1'])\n"
    )
    project.commit({"train.py": SCRIPT, "option.py": option, "size.toml": experiment})
    return run_perfkit("experiment", "run", "size.toml", cwd=tmp_path)


def test_an_experiment_reaches_options_with_underscores(tmp_path: Path) -> None:
    done = _run(tmp_path, EXPERIMENT)

    assert done.returncode in {0, 3}, done.stderr
    assert "failed" not in done.stderr


def test_what_a_parser_refuses_is_reported_in_its_words(tmp_path: Path) -> None:
    done = _run(tmp_path, f"{EXPERIMENT}epochs = 7\n")

    assert 4 == done.returncode
    assert "argument --epochs: invalid choice: '7'" in done.stderr
