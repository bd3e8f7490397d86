"""A profile is written as speedscope reads it."""

from __future__ import annotations

import cProfile
import json
import math
from pathlib import Path

import pytest
from forked_commands import run_perfkit

from perfkit.commands.show import read_profiles
from perfkit.config import load_project
from perfkit.errors import UsageError
from perfkit.model.readings import Reading
from perfkit.report.speedscope import speedscope_file


@pytest.fixture
def stat(tmp_path: Path) -> Path:
    """Return the profile of a few calls."""
    file = tmp_path / "sort.stat"
    with cProfile.Profile() as profile:
        sorted(json.loads(json.dumps(list(range(2000)))))
    profile.dump_stats(file)
    return file


def test_each_profile_is_a_flame_graph(stat: Path, tmp_path: Path) -> None:
    """Samples name known frames, and their weights add up to the profile's end."""
    readings = read_profiles([stat, stat], project=load_project(tmp_path))

    written = json.loads(speedscope_file(readings))

    frames = written["shared"]["frames"]
    assert ["sort.stat", "sort.stat"] == [profile["name"] for profile in written["profiles"]]
    for profile in written["profiles"]:
        assert ("sampled", "seconds", 0) == (profile["type"], profile["unit"], profile["startValue"])
        assert len(profile["samples"]) == len(profile["weights"])
        assert math.fsum(profile["weights"]) == pytest.approx(profile["endValue"])
        assert profile["endValue"] == pytest.approx(readings[0].total_s, rel=1e-3)
        assert all(0 <= number < len(frames) for sample in profile["samples"] for number in sample)
    assert any("dumps" in frame["name"] and frame["line"] > 0 for frame in frames)


def test_the_command_writes_the_file(stat: Path, tmp_path: Path) -> None:
    """The profile is shown all the same."""
    out = tmp_path / "flames.json"
    done = run_perfkit("show", stat, "--speedscope", out, cwd=tmp_path)

    assert 0 == done.returncode, done.stderr
    assert "sort.stat" in done.stdout
    assert "perfkit" == json.loads(out.read_text())["exporter"]


def test_a_trace_is_refused() -> None:
    """Its events are shown by speedscope as they are."""
    with pytest.raises(UsageError, match="opens in speedscope, Perfetto and the Firefox Profiler as it is"):
        speedscope_file([Reading(name="trace.json", origin="torch trace", total_s=1.0)])
