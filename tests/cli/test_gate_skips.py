"""What base's own suite runs and head's does not is MISSING, however head leaves it out."""

from __future__ import annotations

from pathlib import Path

from gating import CONFIGURATION, benchmark, git_project, work

# Each is left out of head's suite in its own way.
WAYS = ("skip", "skipif", "not_run", "importorskip", "fixture", "deselected")
BENCHMARKS = "import pytest\nimport work\n" + "".join(
    benchmark(name, "work.steady") for name in ("kept", *WAYS)
)
RENAMED = "import work\n" + benchmark("renamed", "work.steady")
MARKS = {
    "skip": "skip(reason='flaky')",
    "skipif": "skipif(True, reason='flaky')",
    "not_run": "xfail(run=False)",
}
SKIPPING_FIXTURE = """
import pytest

@pytest.fixture(autouse=True)
def fast_only(request):
    if request.node.name == "test_fixture":
        pytest.skip("slow")
"""


def _left_out() -> str:
    text = BENCHMARKS.replace(
        "importorskip(benchmark):", "importorskip(benchmark):\n    pytest.importorskip('absent')"
    )
    for name, mark in MARKS.items():
        text = text.replace(f"\ndef test_{name}(", f"\n@pytest.mark.{mark}\ndef test_{name}(")
    return text


def test_what_head_alone_leaves_out_is_missing(tmp_path: Path) -> None:
    files = {"tests/test_speed.py": BENCHMARKS, "tests/test_renamed.py": RENAMED, "work.py": work(steady=10)}
    project = git_project(tmp_path, files)
    (project.root / "tests/test_renamed.py").unlink()
    deselect = 'addopts = "--deselect tests/test_speed.py::test_deselected"'
    head = {
        "tests/test_speed.py": _left_out(),
        "tests/renamed_speed.py": RENAMED,
        "tests/conftest.py": SKIPPING_FIXTURE,
        "pyproject.toml": f"{CONFIGURATION}[tool.pytest.ini_options]\n{deselect}\n",
        "work.py": work(steady=30),
    }
    project.commit(head, "Leave most out")

    gated = project.gate("--budget", "0.01")

    missing = {f"test_{name}": "MISSING" for name in (*WAYS, "renamed")}
    assert {"test_kept": "NOT REACHED", **missing} == gated.verdicts, gated.stderr
    assert gated.exit_code == 4
    assert {"tests/conftest.py", "tests/test_speed.py", "tests/test_renamed.py", "pyproject.toml"} == {
        one["path"] for one in gated.report["measuring"] if one["kind"] != "work"
    }
