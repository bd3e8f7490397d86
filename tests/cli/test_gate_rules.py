"""The rules by which a gate decides are those of base: no change judges itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, GitProject, benchmark, git_project, work

# Calls repeat to the digit, so that counting alone decides and nothing has to be timed.
EXACT = """
[tool.perfkit.gate]
preload = []
[tool.perfkit.exact]
gate = ["python_calls"]
"""
WORK = "def spin():\n    return sum(map(one, range({number})))\n\ndef one(number):\n    return number\n"
BENCHMARKS = "import pytest\nimport work\n" + benchmark("spin", "work.spin") + benchmark("two", "work.spin")
FILES = {"pyproject.toml": EXACT, "tests/test_speed.py": BENCHMARKS, "work.py": WORK.format(number=50)}
# The work of one benchmark is chosen by a fixture.
USES_SIZE = "import pytest\nimport work\n@pytest.fixture\ndef sized():\n    return work.{name}\n"
SIZED = "\ndef test_sized(benchmark, sized):\n    benchmark.pedantic(sized, rounds=5, iterations=20)\n"
SLOWER = {"work.py": WORK.format(number=150)}


def _project(place: Path, base: dict[str, str] | None = None) -> GitProject:
    return git_project(place, {**FILES, **(base or {})})


def test_what_head_changes_in_the_rules_does_not_decide(tmp_path: Path) -> None:
    project = _project(tmp_path)
    configuration = EXACT.replace("preload", 'select = "not (spin or two)"\npreload') + (
        'tolerance = "1000%"\n[[tool.perfkit.rules]]\nmatch = "*"\ngate = false\n'
        '[tool.perfkit]\nprepare = "sed -i s/150/50/ work.py"\n'
    )
    marked = BENCHMARKS.replace("\ndef", "\n@pytest.mark.perfkit(gate=False)\ndef")
    head = {**SLOWER, "pyproject.toml": configuration, "tests/test_speed.py": marked}
    project.commit(head, "Do more, and ask for less in every way")

    gated = project.gate("--exact-only")

    assert gated.exit_code == 1, gated.stderr
    changed = gated.report["changed_rules"]
    for named in (
        "rules",
        'exact.tolerance ("5%" to "1000%")',
        'gate.select (not set to "not (spin or two)")',
        'prepare (not set to "sed -i s/150/50/ work.py")',
        "the marker of tests/test_speed.py::test_spin",
    ):
        assert named in changed


@pytest.mark.parametrize("checked_out", ["head", "base"])
def test_rules_and_settings_of_head_decide_where_a_person_asks_for_them(
    checked_out: str, tmp_path: Path
) -> None:
    begun = EXACT + '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    files = {
        "tests/test_work.py": "import work\n",
        "speed/test_speed.py": BENCHMARKS,
        "work.py": FILES["work.py"],
    }
    project = git_project(tmp_path, {"pyproject.toml": begun, **files})
    lenient = begun.replace("[tool.pytest", 'tolerance = "1000%"\n[tool.pytest')
    named = f'{lenient}[tool.perfkit]\nbenchmarks = "speed"\n'
    head = project.commit({**SLOWER, "pyproject.toml": named}, "Name benchmarks, do more, and let it pass")
    of_head = ("--base", f"{head}~1", "--head", head)
    if checked_out == "base":
        project.repository.git.git.checkout("--quiet", f"{head}~1")

    refused = project.gate("--exact-only", *of_head)
    gated = project.gate("--exact-only", "--rules", "head", *of_head)

    assert 2 == refused.exit_code
    assert "--rules head" in refused.stderr
    assert (0, []) == (gated.exit_code, gated.report["changed_rules"]), gated.stderr
    assert gated.report["exact"]


EVERYTHING = (
    EXACT.replace("preload", 'strict = true\nselect = "not slow"\npreload')
    + """
[tool.perfkit]
prepare = "sh tools/build.sh"
[tool.pytest.ini_options]
addopts = "-ra"
[project]
name = "demo"
version = "1"
dependencies = ["numpy>=2"]
"""
)
MEASURED = (
    "import pytest\nimport work\nfrom helpers import UNITS  # as in tests/test_other.py\n"
    "def test_spin(benchmark, calls):\n    benchmark.pedantic(work.spin, rounds=UNITS, iterations=calls)\n"
)
MEASURING = {
    "pyproject.toml": EVERYTHING,
    "work.py": WORK.format(number=50),
    "tests/test_speed.py": MEASURED,
    "tests/conftest.py": "import pytest\n@pytest.fixture\ndef calls():\n    return 2\n",
    "tests/helpers.py": "UNITS = 3\nROWS = 'rows.json'\n",
    "tests/rows.json": "[1, 2]\n",
    "tests/results.json": "[1, 2]\n",
    "tests/test_other.py": "def test_other():\n    assert True\n",
    "tests/test_spin.py": "def test_of_the_name_of_a_benchmark():\n    assert True\n",
    "tests/benchmark.py": "def of_the_name_of_a_fixture():\n    assert True\n",
    "tools/build.sh": "true\n",
    "tools/other.sh": "true\n",
    "setup.cfg": "[tool:pytest]\nxfail_strict = true\n[flake8]\nmax-line-length = 80\n",
    "requirements.txt": "torch==2.12\n",
    "docs/requirements.txt": "sphinx==8.1\n",
    ".github/workflows/perf.yml": "run: perfkit gate\n",
    ".github/workflows/other.yml": "run: pytest\n",
}


def test_a_strict_gate_waits_for_a_person_where_the_change_edits_its_measuring(tmp_path: Path) -> None:
    project = git_project(tmp_path, MEASURING)
    edits = {"= 3": "= 4", "return 2": "return 1", "true\n": "true # else\n", "2.12": "2.13", "8.1": "8.2"}
    edits |= {'"not slow"': '"not (slow or long)"', "-ra": "-x", "numpy>=2": "numpy>=2.1", "= 80": "= 99"}
    edits |= {
        ": perfkit gate": ": perfkit gate || true",
        ": pytest": ": pytest -q",
        "assert True": "assert 1",
        "strict = true\nselect": "select",
    }
    edits |= {"[1, 2]": "[1]", "def test_spin": "@pytest.mark.perfkit(gate=False)\ndef test_spin"}
    edits |= {'name = "demo"': 'name = "example"'}
    head = dict(MEASURING)
    for before, after in edits.items():
        head = {file: text.replace(before, after) for file, text in head.items()}
    trailer = "\n\nPerf-Accept: test_spin: It may be slower"
    news = {"uv.lock": "version = 1\n", "tests/test_new.py": f"import work\n{benchmark('new', 'work.spin')}"}
    first = project.commit({**head, **news}, f"Ask for less in every way{trailer}")
    strict = ("--exact-only", "--base", f"{first}~1")

    gated = project.gate(*strict)

    assert (4, "CHANGED") == (gated.exit_code, gated.verdicts["measuring"]), gated.stderr
    assert {
        ("benchmark", "tests/test_speed.py", "head's on both sides"),
        ("benchmark", "tests/test_new.py", "head's on both sides"),
        ("conftest", "tests/conftest.py", "head's on both sides"),
        ("helper", "tests/helpers.py", "each side's own"),
        ("helper", "tests/rows.json", "each side's own"),
        ("marker", "tests/test_speed.py::test_spin", "base's decide"),
        ("perfkit", "pyproject.toml", "base's decide"),
        ("prepare", "tools/build.sh", "each side's own"),
        ("pytest", "pyproject.toml", "each side's own"),
        ("pytest", "setup.cfg", "each side's own"),
        ("acceptance", "Perf-Accept", "accepts it"),
        ("pin", "pyproject.toml", "not installed"),
        ("pin", "requirements.txt", "not installed"),
        ("pin", "uv.lock", "not installed"),
        ("CI", ".github/workflows/perf.yml", "none in this gate"),
    } == {(one["kind"], one["path"], one["effect"]) for one in gated.report["measuring"]}
    assert all(
        "tests/test_speed.py::test_spin" in one["benchmarks"]
        for one in gated.report["measuring"]
        if one["kind"] in ("conftest", "helper", "marker") or one["path"] == "tests/test_speed.py"
    )
    assert 4 == project.judge(gated.run_id).exit_code

    words = ("accept", "measuring", "--reason", "Reviewed", "--ledger", str(project.ledger))
    accepted = run_perfkit(*words, cwd=project.root)
    assert 0 == accepted.returncode, accepted.stderr
    assert 0 == project.gate(*strict).exit_code
    project.commit({"requirements.txt": "torch==2.14\n"}, "Edit it once more")
    assert 4 == project.gate(*strict, "--strict").exit_code
    project.commit({}, "Let it\n\nPerf-Accept: measuring: Reviewed again")
    assert 0 == project.gate(*strict).exit_code


def test_a_benchmark_that_does_less_of_its_work_is_named(tmp_path: Path) -> None:
    files = {"work.py": work(large=30, small=5), "tests/conftest.py": USES_SIZE.format(name="large")}
    both = f"import work\n{benchmark('edited', 'work.large')}{SIZED}{benchmark('same', 'work.small')}"
    project = git_project(tmp_path, {"pyproject.toml": CONFIGURATION, "tests/test_speed.py": both, **files})
    less = both.replace("work.large", "work.small")
    head = {"tests/test_speed.py": less, "tests/conftest.py": USES_SIZE.format(name="small")}
    project.commit({**head, "work.py": work(large=30, small=6)}, "Measure less")

    gated = project.gate("--budget", "100")

    kinds = {name: {one["kind"] for one in found["doubts"]} for name, found in gated.comparisons.items()}
    edited = {"edited benchmark"}
    assert {"test_edited": edited, "test_sized": edited, "test_same": set()} == kinds, gated.stderr
    shares = [one["what"] for one in gated.report["measuring"] if one["effect"] == "in doubt"]
    assert 2 == len(shares)
    assert all(float(share.partition(" %")[0]) < 50 for share in shares)
    assert kinds == {
        name: {one["kind"] for one in found["doubts"]}
        for name, found in project.judge(gated.run_id).comparisons.items()
    }


def test_a_configuration_of_base_that_is_not_valid_is_an_error(tmp_path: Path) -> None:
    project = _project(tmp_path, {"pyproject.toml": EXACT + 'tolerance = "many"\n'})
    project.commit({"pyproject.toml": EXACT}, "Mend the rules")

    done = project.gate("--exact-only")

    assert done.exit_code == 2
    assert "--rules head" in done.stderr


def test_a_gate_in_which_nothing_decides_measured_nothing(tmp_path: Path) -> None:
    rules = CONFIGURATION + '[[tool.perfkit.rules]]\nmatch = "*"\ngate = false\n'
    project = _project(tmp_path, {"pyproject.toml": rules})
    project.commit(SLOWER, "Do more")

    gated = project.gate("--budget", "0.01")

    assert gated.exit_code == 4, gated.stderr
    assert "nothing was compared" in gated.stderr


def test_a_plan_goes_by_the_rules_of_base(tmp_path: Path) -> None:
    project = _project(tmp_path)
    project.commit({"pyproject.toml": '[tool.perfkit]\nmargin = "900%"\n' + EXACT}, "Ask for less")

    done = run_perfkit("gate", "--plan", "--json", "-", "--ledger", str(project.ledger), cwd=project.root)

    plan = json.loads(done.stdout)
    assert {0.02} == {one["margin"] for one in plan["benchmarks"]}
    assert [("perfkit", "base's decide")] == [(one["kind"], one["effect"]) for one in plan["measuring"]]


def test_a_training_target_that_head_drops_is_missing(tmp_path: Path) -> None:
    targets = '[tool.perfkit.targets]\ntrain = "train.py"\n'
    project = _project(tmp_path, {"pyproject.toml": EXACT + targets, "train.py": "print('no steps')\n"})
    project.repository.git.git.rm("--quiet", "train.py")
    project.commit({"pyproject.toml": EXACT}, "Drop the training")

    gated = project.gate("--exact-only")

    assert (4, "MISSING") == (gated.exit_code, gated.verdicts["train"]), gated.stderr
