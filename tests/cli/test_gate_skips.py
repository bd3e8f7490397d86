"""What base's own suite runs and head's does not is MISSING, however head leaves it out."""

from __future__ import annotations

from pathlib import Path

import pytest
from gating import CONFIGURATION, benchmark, git_project, work

pytestmark = pytest.mark.alone

BENCHMARKS = "import pytest\nimport work\n" + benchmark("kept", "work.kept") + benchmark("left", "work.left")
FILES = {
    "pyproject.toml": CONFIGURATION,
    "tests/test_speed.py": BENCHMARKS,
    "work.py": work(kept=10, left=10),
}
SKIPPING_FIXTURE = """
import pytest

@pytest.fixture(autouse=True)
def fast_only(request):
    if request.node.name == "test_left":
        pytest.skip("slow")
"""


def _marked(mark: str) -> dict[str, str]:
    return {
        "tests/test_speed.py": BENCHMARKS.replace("\ndef test_left", f"\n@pytest.mark.{mark}\ndef test_left")
    }


@pytest.mark.parametrize(
    "head",
    [
        _marked("skip(reason='flaky')"),
        _marked("skipif(True, reason='flaky')"),
        _marked("xfail(run=False)"),
        {
            "tests/test_speed.py": BENCHMARKS.replace(
                "left(benchmark):", "left(benchmark):\n    pytest.importorskip('absent')"
            )
        },
        {"tests/conftest.py": SKIPPING_FIXTURE},
        {
            "pyproject.toml": CONFIGURATION
            + '[tool.pytest.ini_options]\naddopts = "--deselect tests/test_speed.py::test_left"\n'
        },
        {
            "tests/test_speed.py": BENCHMARKS.partition("\ndef test_left")[0],
            "tests/left_speed.py": "import work\n" + benchmark("left", "work.left"),
        },
    ],
    ids=["skip", "skipif", "not run", "importorskip", "fixture", "deselected", "renamed"],
)
def test_what_head_alone_leaves_out_is_missing(tmp_path: Path, head: dict[str, str]) -> None:
    project = git_project(tmp_path, FILES)
    project.commit({**head, "work.py": work(kept=10, left=30)}, "Leave one out")

    gated = project.gate("--budget", "20", "--select", "test_left")

    assert "MISSING" == gated.verdicts["test_left"], gated.stderr
    assert gated.exit_code == 4


def test_what_both_suites_skip_is_skipped(tmp_path: Path) -> None:
    skipping = _marked("skip(reason='flaky')")
    project = git_project(tmp_path, {**FILES, **skipping})
    project.commit({"tests/test_speed.py": skipping["tests/test_speed.py"] + "\n# more\n"}, "Say more")

    gated = project.gate("--budget", "30")

    assert "SKIPPED" == gated.verdicts["test_left"], gated.stderr
    assert gated.exit_code == 0


def test_files_that_head_changes_for_both_sides_are_named(tmp_path: Path) -> None:
    project = git_project(tmp_path, FILES)
    patched = "import work\n\nwork.kept = lambda: None\n"
    project.commit({"tests/conftest.py": patched, "work.py": work(kept=30, left=10)}, "Measure nothing")

    gated = project.gate("--budget", "20", "--select", "test_kept")

    assert "head's tests/conftest.py" in gated.notes, gated.stderr
