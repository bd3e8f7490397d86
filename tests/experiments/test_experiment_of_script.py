"""A script's options, or tricks, are varied from the command line alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_perfkit
from repositories import Repository, create_repository

from perfkit.errors import UsageError
from perfkit.features.experiments.child import printed_number
from perfkit.features.experiments.definition import (
    definition_text,
    listed_options,
    read_experiment,
    script_document,
)
from perfkit.features.experiments.records import Experiment, Factor

SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--batchSize", type=int, default=4)
parser.add_argument("--deep", action="store_true")
parser.add_argument("--manual-seed", type=int)
parser.add_argument("--most", type=int, default=1000)
given = parser.parse_args()
import torch
if not open(given.data).read():
    raise ValueError("the data is empty")
if given.batchSize > given.most:
    raise torch.OutOfMemoryError(f"no room for a batch of {given.batchSize}")
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3 if given.deep else 1)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    model(torch.ones(given.batchSize, 8)).sum().backward()
    optimizer.step()
    print(f"step {step}, accuracy: {10 * step}/100")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a script below a repository's root, where its data is found."""
    project = Repository(tmp_path, create_repository(tmp_path))
    project.commit({"examples/train.py": SCRIPT, "examples/data.txt": "data", "examples/empty.txt": ""})
    return tmp_path / "examples"


def _run(folder: Path, arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = run_perfkit("experiment", "run", "train.py", "--json", "made.json", *arguments.split(), cwd=folder)
    made = folder / "made.json"
    return done, json.loads(made.read_text()) if made.exists() else {}


def _document(folder: Path, factors: dict[str, str | None], *words: str) -> dict[str, object]:
    script = Path("train.py")
    document, _ = script_document(script, root=folder, command_line=words, factors=factors, fixed={})
    return document


def test_options_and_tricks_are_factors(folder: Path) -> None:
    done, found = _run(
        folder,
        "--factor batch_size=2,4 --factor amp=off,bf16 --set deep=on --measure time,accuracy --blocks 2"
        " -- data.txt",
    )

    assert done.returncode in {0, 3}, done.stderr
    experiment = found["experiment"]
    assert [("batchSize", [2, 4]), ("amp", ["off", "bf16"])] == [
        (factor["name"], factor["levels"]) for factor in experiment["factors"]
    ]
    assert {"deep": True} == experiment["fixed"]
    assert "manual_seed" == experiment["seed_argument"]
    assert 8 == len(found["trials"])
    assert {"ok"} == {trial["status"] for trial in found["trials"]}
    assert {0.7} == {trial["responses"]["accuracy"] for trial in found["trials"]}
    assert {"step_time", "host_peak"} <= found["trials"][0]["responses"].keys()
    half = {name: one["half"].keys() for name, one in found["fingerprints"].items()}
    assert {"bfloat16"} == half["batchSize=4, amp=bf16"]
    assert set() == half["batchSize=4, amp=off"]


@pytest.mark.parametrize(
    ("factors", "shown"),
    [
        ({"batch_sice": "1,2"}, 'did you mean "batchSize"?'),
        ({"chanels_last": "off,on"}, 'did you mean "channels_last"?'),
        ({"width": "1,2"}, "it has batchSize, deep, manual-seed, most"),
        ({"width": None}, "it has batchSize, deep, manual-seed, most"),
        ({"deep": "1,deeper"}, "--deep without a value"),
        ({"amp": "off,fp8"}, 'off or bf16, found "fp8"'),
        ({"manual_seed": None}, "give its levels, manual_seed=LEVEL,LEVEL"),
        ({"most": "1,,2"}, "a level without text"),
        ({"data": "1,2"}, 'no option "data"'),
        ({"most": "1,2"}, "--most stands behind -- and is set as well"),
    ],
)
def test_mistakes_in_factors_are_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, factors: dict[str, str | None], shown: str
) -> None:
    monkeypatch.chdir(folder)

    with pytest.raises(UsageError) as caught:
        _document(folder, factors, "data.txt", "--most", "3")

    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("import argparse, sys\nsys.exit('no licence')\n", "code 1 and printed: no licence"),
        ("raise RuntimeError('trained')\n", "it reads no command line"),
    ],
)
def test_a_script_without_options_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, shown: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(script)

    with pytest.raises(UsageError) as caught:
        _document(folder, {"most": "1,2"})

    assert shown in str(caught.value)


def test_workers_without_levels_are_tried_up_to_the_cores(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT.replace("--most", "--num-workers"))

    document = _document(folder, {"workers": None})

    found = document["factors"]
    assert isinstance(found, dict)
    assert [0, 1] == found["num_workers"][:2]


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        ("--factor most=", 2, "--factor must read NAME=VALUE"),
        ("--factor most=30,40", 4, "the following arguments are required: data"),
        ("--factor most=30,40 -- empty.txt", 4, "ValueError: the data is empty (examples/train.py:13)"),
        (
            "--factor most=30,40 --measure speed --blocks 2 -- data.txt",
            2,
            'step 7, accuracy: 70/100"; mend [returned]',
        ),
        ("--factor loader_workers=off,on --blocks 2 -- data.txt", 2, "loader_workers changed nothing"),
    ],
)
def test_what_goes_wrong_in_a_run_is_one_line(folder: Path, arguments: str, code: int, shown: str) -> None:
    done, found = _run(folder, arguments)

    assert code == done.returncode, done.stderr
    assert shown in done.stderr.splitlines()[-1]
    assert {} == found


def test_batch_sizes_are_doubled_until_one_does_not_fit(folder: Path) -> None:
    done, found = _run(folder, "--factor batch_size --blocks 2 -- data.txt --most 20")

    assert done.returncode in {0, 3}, done.stderr
    (factor,) = found["experiment"]["factors"]
    assert [4, 8, 16] == factor["levels"]
    assert "batchSize=16 is the largest that was seen to fit; with 32" in done.stdout


def test_a_definition_is_shown_as_a_file(tmp_path: Path) -> None:
    experiment = Experiment(
        name="shown",
        target="train.py",
        folder="examples",
        command_line=("data.txt", "--name", 'a "b"'),
        factors=(Factor(name="batch_size", levels=(1, 2)), Factor(name="amp", levels=("off", "bf16"))),
        fixed={"deep": True, "--lr_max": 0.5},
        returned={"accuracy": "accuracy"},
        tricks={"amp": "bf16_autocast"},
        seed_argument="seed",
        budget_s=90,
        alpha=0.01,
    )
    file = tmp_path / "shown.toml"
    file.write_text(definition_text(experiment))

    assert experiment == read_experiment(file)


@pytest.mark.parametrize(
    ("name", "printed", "number"),
    [
        ("accuracy", "accuracy: 0.5\naccuracy: 0.91\ndone", 0.91),
        ("accuracy", "val acc=91%", 0.91),
        ("accuracy", "Test set: Average loss: 0.03, Accuracy: 9123/10000 (91%)", 0.9123),
        ("loss", "Test set: Average loss: 0.03, Accuracy: 9123/10000 (91%)", 0.03),
        ("accuracy", " * Acc@1 10.500 Acc@5 50.000", 10.5),
        ("accuracy", "Accuracy of the network on the 10000 test images: 54 %", 0.54),
        ("accuracy", "{'eval_loss': 0.3, 'eval_accuracy': 0.91}", 0.91),
        ("valid_ppl", "| valid loss  5.44 | valid ppl   230.18", 230.18),
        ("loss", "epoch 3 loss -1.5e-2 ppl: 3.4", -0.015),
        ("accuracy", "acc: tensor(0.5, device='cuda:0')", 0.5),
        (r"reward=([\d.]+)", "reward=3.5", 3.5),
    ],
)
def test_numbers_are_found_behind_their_names(name: str, printed: str, number: float) -> None:
    assert number == pytest.approx(printed_number(name, printed))


ARGPARSE = """usage: train.py [-h] [--lr LR]

options:
  -h, --help            show this help message and exit
  -b N, --batch-size N  rows (default: 64)
  --amp, --no-amp       half precision
  --fast                fast, unlike --slow
  --model {a,b}
                        the kind of net
"""
TYPER = """
│ --batch-size  -b            INTEGER  [default: 64]     │
│ --amp             --no-amp           [default: no-amp] │
"""
TYPER_WITH_TYPES = """
│ --batch-size            <int>    [default: 64]     │
│ --amp         --no-amp  <bool>   [default: no-amp] │
"""
CLICK = """
  -b, --batch-size INTEGER  Rows.  [default: 64]
  --amp / --no-amp          Half precision.
"""
ABSL = """
  --[no]amp: half precision
    (default: 'false')
  --batch_size: rows
    (default: '64')
    (an integer)
"""


@pytest.mark.parametrize("text", [ARGPARSE, TYPER, TYPER_WITH_TYPES, CLICK, ABSL])
def test_a_help_lists_options(text: str) -> None:
    found = {one.spelling(name): one for one in listed_options(text) for name in ("amp", "batch_size")}

    assert found["--amp"].is_flag
    (size,) = (one for flag, one in found.items() if flag in {"--batch-size", "--batch_size"})
    assert (False, "64") == (size.is_flag, size.default)
