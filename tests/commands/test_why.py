"""``perfkit why`` names the cause, its line and its gain, of a real loop and of samples made by hand."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_here

from perfkit.agent.counters.model import Counts, count_of
from perfkit.features.why.causes import WhyReport, report_of
from perfkit.model import PassSummary
from perfkit.model.counters import SYNCS
from perfkit.model.profiles import (
    BACKWARD,
    DATA,
    LIBRARY,
    MODEL,
    UPDATE,
    WAIT,
    LineSample,
    LoopSamples,
    OwnLine,
)
from perfkit.profiling.passes.exchange import PassResult, Trial

pytestmark = pytest.mark.usefixtures("one_launcher")

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(10, (512,))), batch_size=32)
right = 0
for epoch in range(1000000):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        right += sum(int((out[i].argmax() == y[i]).item()) for i in range(32))
"""
BLOCKS = 20


def _line(number: int, text: str = "", function: str = "train") -> OwnLine:
    return OwnLine(file="train.py", line=number, function=function, text=text)


def _sample(
    line: OwnLine,
    seconds: float | Sequence[float],
    *,
    phase: str = "",
    inner: str = "",
    no_grad: bool = False,
) -> LineSample:
    each = (seconds,) * BLOCKS if isinstance(seconds, float) else tuple(seconds)
    return LineSample(lines=(line,), phase=phase, inner=inner, no_grad=no_grad, seconds=each)


LOOP = (
    _sample(_line(10), 0.3, phase=MODEL),
    _sample(_line(11), 0.4, phase=BACKWARD),
    _sample(_line(12), 0.1, phase=UPDATE),
)


def _asked(*more: LineSample, counts: PassResult | None = None, **fields: Any) -> WhyReport:  # noqa: ANN401 (fields of all kinds)
    samples = (*LOOP, *more)
    block_s = tuple(map(sum, zip(*(one.seconds for one in samples), strict=True)))
    found = LoopSamples(block_s=block_s, block_steps=10, samples=samples, **fields)
    summary = PassSummary(name="clean", total_s=sum(block_s), step_s=(0.1,) * 200, samples=6400)
    return report_of("train.py", summary, found, counts=counts or PassResult(), memory=PassResult())


@pytest.fixture
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the passes that follow a loop to its end, or for a while, end sooner."""
    monkeypatch.setattr("perfkit.features.why.causes._LIMIT_S", 3.0)


@pytest.mark.usefixtures("_brief")
def test_a_real_loop_is_asked_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    done = run_here("why", "train.py", "--steps", "300", "--json", "why.json", cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    report = json.loads((tmp_path / "why.json").read_text())
    first = report["causes"][0]
    assert {"name": "why", "version": 2} == report["schema"]
    assert ("sync", "train.py:17") == (first["name"], first["place"])
    low, likely, high = first["gain"]
    assert 0 < low < likely < high < 1
    assert done.stdout.startswith(report["verdict"])
    assert "\nnext: perfkit why train.py" in done.stdout


IN_THE_LOOP = """
        if (steps := steps + 1) == 200:
            os.kill(PARENT, signal.SIGINT)
"""
# The loop is over: changes are tried then.
BEHIND_IT = """
        if (steps := steps + 1) == 200:
            threading.Timer(1, os.kill, (PARENT, signal.SIGINT)).start()
            raise SystemExit
"""


@pytest.mark.parametrize("press", [IN_THE_LOOP, BEHIND_IT], ids=["in the loop", "behind it"])
def test_ctrl_c_ends_it_with_what_is_known_by_then(press: str, tmp_path: Path) -> None:
    first = f"import os, signal, threading\nPARENT, steps = {os.getpid()}, 0\n"
    (tmp_path / "train.py").write_text(f"{first}{SCRIPT}{press}")
    of_a_person = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run_here("why", "train.py", "--json", "why.json", cwd=tmp_path)
    finally:
        signal.signal(signal.SIGINT, of_a_person)

    assert 130 == done.returncode
    assert "counts pass" not in done.stderr
    report = json.loads((tmp_path / "why.json").read_text())
    assert "sync" == report["causes"][0]["name"]
    assert report["not_seen"].startswith("interrupted")
    assert f"warning: {report['not_seen']}" in done.stdout


@pytest.mark.usefixtures("_brief")
def test_what_a_closure_runs_is_no_part_of_the_optimizer(tmp_path: Path) -> None:
    text = """
import time
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=4)
x = torch.randn(256, 256)

def closure():
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    time.sleep(0.005)
    return loss

for step in range(40):
    optimizer.step(closure)
"""
    (tmp_path / "train.py").write_text(text)

    done = run_here("why", "train.py", "--json", "why.json", cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    report = json.loads((tmp_path / "why.json").read_text())
    assert {UPDATE, MODEL, BACKWARD, "own code"} <= report["shares"].keys()
    assert ("line", "train.py:14") == (report["causes"][0]["name"], report["causes"][0]["place"])


def test_too_few_steps_are_no_answer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("range(1000000)", "range(0)"))

    done = run_here("why", "train.py", cwd=tmp_path)

    assert 4 == done.returncode
    assert "--step-at FILE:LINE" in done.stderr


def test_so_many_steps_are_sampled_however_long_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit.features.why.causes._LIMIT_S", 0.01)
    (tmp_path / "train.py").write_text(SCRIPT)

    few, many = (run_here("why", "train.py", *more, cwd=tmp_path) for more in ((), ("--steps", "100")))

    assert (4, 0) == (few.returncode, many.returncode)
    assert "--steps" in few.stderr


def test_a_loop_that_fails_is_asked_for_the_steps_before_that(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("range(1000000)", "range(10)") + "raise ValueError\n")

    done = run_here("why", "train.py", cwd=tmp_path)

    assert 4 == done.returncode
    assert "--steps 144" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("sync", "total += loss.item()", {}),
        ("logging", "print(step, loss)", {}),
        ("copy", "best = copy.deepcopy(model)", {}),
        ("evaluation", "evaluate(model)", {"phase": MODEL, "no_grad": True}),
        ("recompiles", "out = compiled(x)", {"phase": "compiling"}),
        ("line", "table[step] = step ** 2", {}),
    ],
)
def test_a_line_is_named_by_its_share_of_a_step(name: str, text: str, fields: dict[str, Any]) -> None:
    first = _asked(_sample(_line(13, text), 0.2, **fields)).causes[0]

    assert (name, "train.py:13") == (first.name, first.place)
    assert first.gain[0] < 0.2 < first.gain[2]


def test_an_evaluation_is_named_where_it_is_called() -> None:
    models, asks = _line(5, "return self.layers(x)", "forward"), _line(20, "accuracy(model)", "main")
    trains = replace(
        _sample(_line(10), 0.3, phase=MODEL), lines=(models, _line(10), _line(19, "train()", "main"))
    )
    evaluates = replace(
        _sample(models, 0.2, phase=MODEL, no_grad=True),
        lines=(models, _line(15, "model(x)", "accuracy"), asks),
    )

    first = _asked(trains, evaluates).causes[0]

    assert ("evaluation", "train.py:20") == (first.name, first.place)


@pytest.mark.parametrize(
    "other",
    [
        _sample(_line(13, "loss.backward()"), 0.4, phase=BACKWARD, no_grad=True),
        _sample(_line(13, "evaluate(model)"), 0.01, phase=MODEL, no_grad=True),
    ],
)
def test_a_backward_pass_and_a_short_evaluation_are_no_evaluation_to_name(other: LineSample) -> None:
    report = _asked(other)

    assert () == report.causes
    assert report.verdict.startswith("compute-bound: ")


def test_an_evaluation_is_all_that_it_takes_and_nothing_else_without_gradients() -> None:
    call = _line(30, "test(epoch)", "main")
    trains = [replace(one, lines=(*one.lines, _line(29, "train(epoch)", "main"))) for one in LOOP]
    inner = (_line(3, "loss = f(out)", "f"), _line(21, "total += f(model(x))", "test"), call)
    runs, measures, waits = (
        replace(_sample(_line(21), 0.1, phase=phase, no_grad=True), lines=lines)
        for phase, lines in ((MODEL, inner[1:]), ("", inner), (DATA, (_line(20, function="test"), call)))
    )
    average = _sample(_line(14, "average(model)"), 0.05, no_grad=True)

    report = _asked(*trains, runs, measures, waits, average)

    (first,) = [one for one in report.causes if one.name == "evaluation"]
    assert "train.py:30" == first.place
    assert 0.3 / 1.95 == pytest.approx(first.part_s / report.step_s, abs=0.001)
    assert "data" not in report.shares


@pytest.mark.parametrize(("inner", "names"), [("", ["sync"]), (LIBRARY, [])])
def test_a_read_value_names_a_line_of_ones_own_and_not_all_that_a_library_does_there(
    inner: str, names: list[str]
) -> None:
    reads = count_of(SYNCS, [Counter({("bool(Tensor)", "train.py:13"): 1})])
    counts = PassResult(counts=Counts(counts=(reads,), not_counted={}))

    report = _asked(_sample(_line(13, "trainer.train()"), 0.2, inner=inner), counts=counts)

    assert names == [cause.name for cause in report.causes]


def test_a_line_that_takes_ever_longer_is_a_growing_one() -> None:
    grows = [0.01 * block for block in range(BLOCKS)]

    first = _asked(_sample(_line(13, "mean = sum(losses) / len(losses)"), grows)).causes[0]

    assert ("growth", "train.py:13") == (first.name, first.place)


def test_a_loader_is_named_with_what_its_processes_do() -> None:
    slow, worker = _line(5, "x = crop(x)", "__getitem__"), replace(_line(6), function="__getitem__")
    wait = _sample(_line(9), 0.8, phase=DATA, inner=WAIT)
    works = (_sample(slow, [20.0], phase=DATA), _sample(worker, [4.0], phase=DATA))

    report = _asked(wait, worker_samples=works, worker_batches=200, facts={"workers": "1"})

    assert ("transform", "train.py:5") == (report.causes[0].name, report.causes[0].place)
    # Without the wait a step is half as long, and no loader makes it shorter than the model's work.
    assert 0.5 == pytest.approx(report.causes[0].gain[1], abs=0.1)
    assert "input-bound: the loader delivers 200 samples/s, the model could take 400" == report.verdict


def test_a_wait_for_no_line_in_particular_is_a_bound_too() -> None:
    report = _asked(_sample(_line(9), 2.0, phase=DATA, inner=WAIT), facts={"workers": "1"})

    assert ("transform", "train.py:9") == (report.causes[0].name, report.causes[0].place)
    assert report.verdict.startswith("input-bound: ")


def test_a_trial_gives_the_gain_and_no_trial_more_than_the_wait() -> None:
    wait = _sample(_line(9), 0.8, phase=DATA)
    facts = {"workers": "0", "new_workers": "1", "optimizer": "Adam"}
    trials = {"workers": (0.3, 0.31, 0.3, 0.29, 0.3), "fused": (0.5, 0.5, 0.5, 0.5, 0.5)}

    first, second = _asked(wait, facts=facts, trials=trials).causes

    assert ("loader", Trial("loader", 1)) == (first.name, first.trial)
    # The trial promised 70 %.
    assert 0.55 == pytest.approx(first.gain[1], abs=0.01)
    assert ("optimizer", "train.py:12") == (second.name, second.place)
    assert 0.031 == pytest.approx(second.gain[1], abs=0.005)


def test_a_short_wait_that_workers_would_not_save_is_no_bound() -> None:
    slow = _sample(_line(13, "total += loss.item()"), 0.2)
    trials = {"workers": (0.9, 1.1, 1.05, 1.0, 1.2)}

    report = _asked(slow, _sample(_line(9), 0.1, phase=DATA), facts={"new_workers": "1"}, trials=trials)

    assert "sync" == report.causes[0].name
    assert "input-bound" not in report.verdict


@pytest.mark.usefixtures("_brief")
def test_a_change_is_tried_beside_the_loop(tmp_path: Path) -> None:
    text = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 10)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000000):
    optimizer.zero_grad()
    model(torch.randn(64, 256).double()).square().mean().backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(text)

    done = run_here("why", "train.py", "--steps", "100", "--try", "--json", "why.json", cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    report = json.loads((tmp_path / "why.json").read_text())
    assert "float64" == report["causes"][0]["name"]
    assert 0 < report["tried"]["low"] < report["tried"]["ratio"] < report["tried"]["high"]
    assert report["tried"]["ratio"] < 1
    assert text == (tmp_path / "train.py").read_text()


def test_a_loop_without_a_cause_is_computing() -> None:
    report = _asked()

    assert () == report.causes
    assert report.verdict.startswith("compute-bound: ")
