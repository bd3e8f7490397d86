"""An experiment's picture has everything in its place, and no input breaks it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from experiment_records import (
    PRECISIONS,
    PRECISIONS_AND_SIZES,
    bf16_is_faster,
    bf16_pays_from_four,
    normal,
    synthetic_record,
)

from perfkit.features.experiments.records import ExperimentRecord
from perfkit.features.experiments.report.picture import effects_picture
from perfkit.report.chart import Axis

SVG = "{http://www.w3.org/2000/svg}"


def _texts(record: ExperimentRecord) -> list[str]:
    """Return what the picture says, in its order."""
    return [text.text or "" for text in ET.fromstring(effects_picture(record)).iter(f"{SVG}text")]  # noqa: S314 (perfkit's own)


def test_the_whole_picture_is_as_it_was() -> None:
    """Main and simple effects of two factors, to the digit."""
    record = synthetic_record(PRECISIONS_AND_SIZES, sample_s=bf16_pays_from_four)
    golden = Path(__file__).parent / "golden_experiment_picture.svg"

    assert golden.read_text() == effects_picture(record)


def test_each_main_effect_has_its_simple_ones_below() -> None:
    """A row for each, with its verdict at the right."""
    texts = _texts(synthetic_record(PRECISIONS_AND_SIZES, sample_s=bf16_is_faster))
    labels = [text for text in texts if "→" in text or "=" in text][1:]

    assert [
        "precision: default → bf16", "batch_size=2", "batch_size=8",
        "batch_size: 2 → 8", "precision=default", "precision=bf16",
    ] == labels  # fmt: skip
    assert 3 == sum(text.endswith(" % IMPROVED") for text in texts)


def test_each_block_is_a_dot() -> None:
    """Nine of them, and one for the estimate."""
    picture = ET.fromstring(effects_picture(synthetic_record(PRECISIONS)))  # noqa: S314 (perfkit's own)

    assert 10 == len(list(picture.iter(f"{SVG}circle")))


def test_a_loss_of_speed_keeps_its_sign() -> None:
    """Fewer samples per second are a change below zero."""
    texts = _texts(
        synthetic_record(PRECISIONS, sample_s=lambda levels: 1.25 if levels["precision"] == "bf16" else 1.0)
    )

    assert any(text.startswith("-") and text.endswith(" % REGRESSED") for text in texts)


def test_names_cannot_break_the_picture() -> None:
    """A name of an experiment or of a level may hold what has a meaning in XML."""
    record = synthetic_record({"a<b": ("x&y", '"z"')})
    record = replace(record, experiment=replace(record.experiment, name="</svg>"))

    assert "</svg>: samples per second" == _texts(record)[0]
    assert 'a<b: x&y → "z"' in _texts(record)


def test_without_a_time_the_picture_says_so() -> None:
    """There is nothing to draw before the first trial."""
    assert ["train-images: no time was measured"] == _texts(synthetic_record(PRECISIONS, done=0))


def test_an_interval_of_two_blocks_leaves_the_dots_their_room() -> None:
    """It goes on beyond the axis, without a cap at its ends."""
    picture = ET.fromstring(effects_picture(synthetic_record(PRECISIONS, done=2)))  # noqa: S314 (perfkit's own)
    caps = [line for line in picture.iter(f"{SVG}line") if line.get("stroke-width") == "1.5"]
    dots = [float(dot.get("cx", "nan")) for dot in picture.iter(f"{SVG}circle")]

    assert [] == caps
    assert max(dots) - min(dots) > 20


def test_a_single_block_is_shown_as_too_few() -> None:
    """No bar is drawn for what has no interval."""
    assert "too few blocks" in _texts(synthetic_record(PRECISIONS, done=1))


@pytest.mark.parametrize(
    "record", [synthetic_record(PRECISIONS), synthetic_record(PRECISIONS, noise=normal(0.3))]
)
def test_a_picture_loads_nothing_from_elsewhere(record: ExperimentRecord) -> None:
    """A white ground of its own, so that it reads on a dark page as well; no script, no link."""
    picture = effects_picture(record)

    assert 'fill="#ffffff"' in picture
    assert 1 == picture.count("http")
    assert "<script" not in picture


@pytest.mark.parametrize(
    ("texts", "low", "high"),
    [
        (["-0.1 %", "0 %", "+0.1 %"], 0.9985, 1.0015),
        (["-3 %", "-2 %", "-1 %", "0 %", "+1 %", "+2 %"], 0.965, 1.029),
        (["-20 %", "-10 %", "0 %", "+10 %", "+20 %"], 0.78, 1.25),
        (["0 %", "+50 %", "+100 %", "+150 %"], 0.75, 2.55),
        (["×0.2", "×0.5", "×1", "×2", "×5"], 0.15, 6.0),
        (["×0.001", "×0.01", "×0.1", "×1", "×10", "×100"], 0.0006, 300.0),
    ],
)
def test_ticks_are_round_and_have_room(texts: list[str], low: float, high: float) -> None:
    """Percent where the range is small, then factors, then powers of ten."""
    axis = Axis(low=low, high=high)
    shares = [axis.share(tick.ratio) for tick in axis.ticks()]

    assert texts == [tick.text for tick in axis.ticks()]
    assert all(after - before > 0.05 for before, after in pairwise(shares))


def test_what_lies_beyond_an_axis_is_put_at_its_end() -> None:
    """Even zero and infinity have a place."""
    axis = Axis(low=0.5, high=2.0)

    assert [0.0, 0.0, 0.5, 1.0] == [axis.share(ratio) for ratio in (0.0, 0.4, 1.0, float("inf"))]
