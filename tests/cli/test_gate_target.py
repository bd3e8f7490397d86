"""`perfkit gate --target` measures a script or a function without any benchmark file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gating import SLOWER, GitProject, git_project, work

SCRIPT = """
import argparse
import random
import sys

import work

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    print(random.random(), file=sys.stderr)
    for _ in range(given.times):
        work.steady()
"""
FILES = {"work.py": work(steady=10), "scripts/train.py": SCRIPT}
SHORT = ("--budget", "60")
ONE_LAUNCH = ("--budget", "0.01")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project without benchmarks whose second commit is slower."""
    project = git_project(tmp_path_factory.mktemp("target"), FILES)
    changed = {"scripts/train.py": f"{SCRIPT}# A comment.\n", "scripts/later.py": SCRIPT}
    project.commit({"work.py": work(steady=10 * SLOWER), **changed})
    return project


def test_a_script_is_a_benchmark(project: GitProject) -> None:
    gated = project.gate("--target", "scripts/train.py --times 3", *SHORT)

    assert {"test_train": "REGRESSED"} == gated.verdicts, gated.stderr
    assert 1 == gated.exit_code
    assert "" == project.repository.git.git.status("--porcelain")
    # The script itself was run, though nothing imported it.
    assert ["scripts/later.py"] == re.findall(r"loaded by no benchmark: (.*?);", gated.notes)


def test_a_function_is_a_benchmark(project: GitProject) -> None:
    gated = project.gate("--target", "work:steady", *ONE_LAUNCH)

    found = gated.comparisons["test_work_steady"]
    assert found["head_s"] > 2 * found["base_s"], gated.stderr


def test_a_script_that_ends_in_an_error_is_reported_with_its_words(project: GitProject) -> None:
    gated = project.gate("--target", "scripts/train.py --times many", *ONE_LAUNCH)

    assert 4 == gated.exit_code
    message = gated.comparisons["test_train"]["message"]
    assert "train.py ended with exit status 2: " in message
    assert "invalid int value: 'many'" in message


def test_a_script_outside_of_the_project_is_refused(project: GitProject, tmp_path: Path) -> None:
    script = tmp_path / "outside.py"
    script.write_text(SCRIPT)

    gated = project.gate("--target", str(script))

    assert 2 == gated.exit_code
    assert "no commit has it" in gated.stderr


READING = """
import sys
from pathlib import Path

if __name__ == "__main__":
    text = {text}
    total = sum(map(int, text.split() * 200))
"""
PLACES = """(
        Path("ignored/train/numbers.txt").read_text()
        + Path("../beside/train/numbers.txt").read_text()
        + (Path(__file__).parent / "by_file/train/numbers.txt").read_text()
    )"""
ARGUMENT = "[file.read_text() for file in Path(sys.argv[1]).glob('*/*.txt')][0]"


@pytest.mark.parametrize(
    ("text", "words", "places"),
    [
        (PLACES, "train.py", ("ignored", "../beside", "by_file")),
        (ARGUMENT, "train.py data", ("data",)),
    ],
    ids=["where it is read", "an argument"],
)
def test_data_that_no_checkout_has_is_linked(
    tmp_path: Path, text: str, words: str, places: tuple[str, ...]
) -> None:
    script = READING.format(text=text)
    project = git_project(tmp_path, {"train.py": script, ".gitignore": "/ignored\n/by_file\n/data\n"})
    project.commit({"train.py": script.replace("200", "900")})
    folders = [project.root / place / "train" for place in places]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "numbers.txt").write_text("1 2 3\n" * 50)

    gated = project.gate("--target", words, *ONE_LAUNCH)

    assert "FAILED" not in gated.verdicts.values(), gated.stderr
    assert all(["numbers.txt"] == [path.name for path in folder.iterdir()] for folder in folders)
    assert f"{', '.join(sorted(places))}: no checkout has it" in gated.notes
