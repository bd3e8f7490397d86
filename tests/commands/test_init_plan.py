"""`perfkit init` reads repositories of many kinds, and keeps only benchmarks that ran."""

from __future__ import annotations

import tempfile
from pathlib import Path

import git
import pytest
from forked_commands import run_pytest
from repositories import Repository, create_repository

from perfkit.choices import Service
from perfkit.config import load_project
from perfkit.errors import ConfigError, RepositoryError, UsageError
from perfkit.features.init.command import plan_start, write_plan
from perfkit.features.init.files import StartingPlan, configuration
from perfkit.features.init.layout import read_layout

PROJECT = '[build-system]\nrequires = ["setuptools"]\n\n[project]\nname = "widgets"\nversion = "1"\n'
LISTS = '''
def wiped(numbers: list[int]) -> list[int]:
    """A first benchmark must not be able to do this."""
    open(WRITTEN, "w").close()
    return numbers

def never(numbers: list[int]) -> list[int]:
    raise ValueError("not with these")

def doubled(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]

def saved_to(path):
    """
    >>> saved_to("x")
    """
    open(path, "w").close()
'''
DOUBLED = "def doubled(numbers: list[int]) -> list[int]:\n    return [2 * number for number in numbers]\n"
LOSSES = """
import torch

class PairLoss(torch.nn.Module):
    def __init__(self, num_classes: int, margin=0.1):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.rand(64, num_classes))

    def forward(self, embeddings, labels):
        return -(embeddings @ self.weights).gather(1, labels[:, None]).mean()
"""
METRICS = """
class Mean:
    def __init__(self):
        self.seen = []

    def update(self, values: list[float]):
        self.seen += values

    def compute(self):
        return sum(self.seen) / len(self.seen)
"""
EXAMPLE = '''
def joined(*, parts, sign):
    """Join parts.

    >>> parts = [str(number) for number in range(9000)]
    >>> joined(parts=parts, sign="-")
    """
    return sign.join(parts)
'''


def plan(root: Path, *services: Service) -> StartingPlan:
    return plan_start(load_project(root), services=services, log=lambda _: None)


def text_of(planned: StartingPlan, path: str) -> str:
    return next(file.after for file in planned.files if file.path == path)


def test_functions_that_run_become_benchmarks(repository: Repository, tmp_path: Path) -> None:
    written = tmp_path / "written"
    code = LISTS.replace("WRITTEN", repr(str(written)))
    dies = "import os\ndef ends(numbers: list[int]):\n    os._exit(3)\n"
    files = {"widgets/__init__.py": "", "widgets/dies.py": dies, "widgets/lists.py": code}
    repository.commit({"pyproject.toml": PROJECT, **files})

    planned = plan(repository.root)

    text = text_of(planned, "benchmarks/test_first_benchmarks.py")
    assert "def test_doubled(benchmark):" in text
    assert [] == [name for name in ("ends", "wiped", "never", "saved_to") if f"test_{name}" in text]
    assert not written.exists()
    assert text_of(planned, "pyproject.toml") == (
        f'{PROJECT}\n[tool.perfkit]\nown = ["widgets"]  # whose code is called own in profiles\n'
        'benchmarks = "benchmarks"\n'
    )


WIDGETS = """
import functools, gc, sys, types
from pathlib import Path

@functools.cache
def translations():
    return Path(__file__).with_name("fr.mo").read_text().split()

def translated(words):
    return [translations()[word] for word in words]

def annotated_as(values):
    code = sys._getframe(1).f_code
    found = next(one for one in gc.get_referrers(code) if isinstance(one, types.FunctionType))
    return [found.__annotations__["return"] for _ in values]

def paired(numbers, size):
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]

class Pile:
    def __init__(self, items):
        self.items = list(items)

    def largest(self):
        return max(self.items)

def summed(items):
    return sum(items)

def halved(path, numbers):
    return [len(path) / number for number in numbers * 100]
"""
TESTED = """
import tempfile
from widgets import Pile, annotated_as, halved, paired, summed, translated

def test_what_reads_a_file_that_was_built():
    assert translated(range(3000)) == ["oui"] * 3000
    assert translated([1, 2]) == ["oui"] * 2

def test_what_reads_its_callers_annotations() -> None:
    assert annotated_as(range(3000))[0] is None

def test_pairs(tmp_path):
    (tmp_path / "x").write_text("a test may")
    assert paired(range(3000), 2)[0] == range(2)

def test_largest():
    assert Pile(range(2000)).largest() == 1999

def test_what_no_benchmark_can_hold():
    assert summed(list(range(1000))) and paired([1, 2], 2)
    with tempfile.TemporaryDirectory() as folder:
        assert halved(folder, [1, 2, 3])
"""
NOTEBOOK = (
    '{"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null,'
    ' "source": ["%matplotlib inline\\n", "total = sum(range(1000))"]}],'
    ' "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
)


@pytest.mark.parametrize(
    ("files", "names", "how"),
    [
        ({"tests/test_all.py": TESTED}, ["paired", "pile_init", "pile_largest"], "the tests call longest"),
        (
            {"README.md": "# w\n\n```python\nfrom widgets import paired\npaired(list(range(300)), 3)\n```\n"},
            ["paired"],
            "the README's examples call longest",
        ),
    ],
)
def test_calls_that_are_there_become_benchmarks(
    repository: Repository, files: dict[str, str], names: list[str], how: str
) -> None:
    repository.commit(
        {"pyproject.toml": PROJECT, "src/widgets/__init__.py": WIDGETS, ".gitignore": "*.mo\n", **files}
    )
    (repository.root / "src/widgets/fr.mo").write_text("oui " * 3000)

    planned = plan(repository.root)
    write_plan(planned)

    text = text_of(planned, "benchmarks/test_first_benchmarks.py")
    tests = [line for line in text.splitlines() if line.startswith("def ")]
    assert [f"def test_{name}(benchmark):" for name in names] == sorted(tests)
    assert any(line.startswith(how) for line in planned.found)
    assert tempfile.gettempdir() not in text
    remarks = [one for one in planned.remarks if "1,500 characters" in one]
    assert [("1 function ", True)] * ("tests" in how) == [(one[:11], "summed" in one) for one in remarks]
    ran = run_pytest("benchmarks", "-q", "-o", "pythonpath=src", cwd=repository.root)
    assert 0 == ran.returncode, ran.stdout


DOCUMENTED = """
def counted_words(text):
    \"\"\"
    >>> counted_words("one two " * 60)
    120
    \"\"\"
    return len(text.split())
"""


def test_what_the_last_commit_changed_comes_first(repository: Repository) -> None:
    code = WIDGETS + DOCUMENTED
    place = "src/widgets/__init__.py"
    repository.commit({"pyproject.toml": PROJECT, place: code, "tests/test_all.py": TESTED})
    repository.commit({place: code.replace("text.split()", "list(text.split())")})

    planned = plan(repository.root)

    text = text_of(planned, "benchmarks/test_first_benchmarks.py")
    tests = [line for line in text.splitlines() if line.startswith("def ")]
    assert "def test_counted_words(benchmark):" == tests[0]
    sources = "the tests and the docstrings' examples"
    assert any(line.startswith(f"{sources} call longest") for line in planned.found)


MANY_VALUES = """
import time
import pytest
from widgets import paired

@pytest.mark.parametrize("number", range(300))
def test_busy(number):
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass

def test_pairs():
    assert paired(range(3000), 2)
"""


def test_a_test_of_many_values_leaves_time_for_the_others(repository: Repository) -> None:
    files = {"src/widgets/__init__.py": WIDGETS, "tests/test_many.py": MANY_VALUES}
    repository.commit({"pyproject.toml": PROJECT, **files})

    assert "the tests call longest: paired" in plan(repository.root).found


def test_a_notebook_without_a_package_becomes_a_benchmark(repository: Repository) -> None:
    repository.commit({"notes/total.ipynb": NOTEBOOK, ".gitignore": ".gitignore\n"})

    planned = plan(repository.root)

    assert ["benchmarks/test_first_benchmarks.py"] == [file.path for file in planned.files]
    assert "def test_total(benchmark):" in planned.files[0].after


PROPERTIES = """
from hypothesis import given, strategies

def lists_of(numbers: list[int]) -> list[int]:
    return sorted(numbers)

@given(strategies.lists(strategies.integers()))
def test_sorting_twice_is_sorting_once(numbers):
    assert sorted(sorted(numbers)) == sorted(numbers)
"""
ONLY_TESTS = "class TestLists:\n    def test_none(self):\n        assert not []\n"


def test_tests_are_no_code_to_measure_in_any_folder(repository: Repository) -> None:
    folder = "src/properties"
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "src/widgets/__init__.py": "",
            "src/widgets/lists.py": DOUBLED,
            f"{folder}/__init__.py": "",
            f"{folder}/lists_properties.py": PROPERTIES,
            f"{folder}/more.py": ONLY_TESTS,
            f"{folder}/made.py": DOUBLED,
            "properties_of_lists.py": PROPERTIES,
        }
    )

    planned = plan(repository.root)

    text = text_of(planned, "benchmarks/test_first_benchmarks.py")
    assert ["def test_doubled(benchmark):"] == [line for line in text.splitlines() if line.startswith("def ")]
    assert 'own = ["widgets"]' in text_of(planned, "pyproject.toml")


def test_a_package_with_tests_of_its_own_is_measured(repository: Repository) -> None:
    tests = {f"widgets/tests/test_{number}.py": PROPERTIES for number in range(5)}
    plugin = "import pytest\n\ndef pytest_configure(config):\n    pass\n"
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "widgets/__init__.py": "",
            "widgets/lists.py": DOUBLED,
            "widgets/plugin.py": plugin,
            "only_plugin/__init__.py": plugin,
            "only_plugin/hooks.py": plugin,
            "beside/__init__.py": DOUBLED,
            "beside/lists.py": DOUBLED,
            **{f"beside/test_{number}.py": PROPERTIES for number in range(2)},
            **tests,
        }
    )

    settings = configuration(read_layout(repository.root), benchmarks=None)

    assert 'own = ["beside", "only_plugin", "widgets"]' in settings


def test_losses_metrics_and_examples_are_called_as_they_are_meant(repository: Repository) -> None:
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "src/widgets/__init__.py": "",
            "src/widgets/losses.py": LOSSES,
            "src/widgets/metrics.py": METRICS,
            "src/widgets/texts.py": EXAMPLE,
        }
    )

    write_plan(plan(repository.root))

    text = (repository.root / "benchmarks/test_first_benchmarks.py").read_text()
    assert "loss = PairLoss(num_classes=64)" in text
    assert "labels = torch.randint(10, (256,))" in text
    assert "value.backward()" in text
    assert "    metric = Mean()\n        metric.update(values)" in text
    assert "benchmark(joined, parts=parts, sign='-')" in text
    options = ("-q", "benchmarks", "--benchmark-disable", "-o", "pythonpath=src")
    done = run_pytest(*options, cwd=repository.root)
    assert "3 passed" in done.stdout, done.stdout


def test_a_second_time_there_is_nothing_to_write(repository: Repository) -> None:
    repository.commit({"pyproject.toml": PROJECT, "widgets/__init__.py": "", "widgets/lists.py": DOUBLED})
    write_plan(plan(repository.root, "github", "gitlab", "pre-commit"))

    again = plan(repository.root, "github", "gitlab", "pre-commit")

    assert () == again.files
    assert "[tool.perfkit] is in pyproject.toml already and stays as it is" in again.remarks


def test_existing_benchmarks_are_configured_and_none_is_written(repository: Repository) -> None:
    measured = "def test_speed(benchmark):\n    benchmark(sum, [1])\n"
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "widgets/__init__.py": "def f(numbers: list[int]): return numbers\n",
            "tests/perf/test_a.py": measured,
            "tests/perf/deep/test_b.py": measured,
        }
    )

    planned = plan(repository.root)

    assert {"pyproject.toml", ".gitignore"} == {file.path for file in planned.files}
    assert 'benchmarks = "tests/perf"\n' in text_of(planned, "pyproject.toml")


def test_an_asv_suite_is_configured(repository: Repository) -> None:
    settings = '{\n    // where they are\n    "benchmark_dir": "suite",\n    "repo": ".",\n}\n'
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "widgets/__init__.py": "",
            "perf/asv.conf.json": settings,
            "perf/suite/bench.py": "",
        }
    )

    assert 'benchmarks = "perf/suite"\n' in text_of(plan(repository.root), "pyproject.toml")


def test_generated_files_and_builds_are_named(repository: Repository) -> None:
    scm = '[tool.setuptools_scm]\nversion_file = "src/widgets/_version.py"\n'
    repository.commit(
        {
            "pyproject.toml": PROJECT + scm,
            "setup.py": "from setuptools import setup\nsetup(ext_modules=[])\n",
            "src/widgets/__init__.py": "",
            "src/widgets/_fast.pyx": "",
            ".gitignore": "_version.py\n_tables.py\n*.so\n",
        }
    )
    (repository.root / "src/widgets/_version.py").write_text("")
    (repository.root / "src/widgets/_tables.py").write_text("")
    (repository.root / "src/widgets/_fast.so").write_text("")

    planned = plan(repository.root)

    text = text_of(planned, "pyproject.toml")
    assert 'copy = ["src/widgets/_tables.py"]\n' in text
    assert 'prepare = "python setup.py build_ext --inplace"\n' in text
    assert any(
        remark.startswith("src/widgets/_version.py, which a build writes") for remark in planned.remarks
    )


def test_a_training_script_is_left_to_a_target(repository: Repository) -> None:
    script = (
        "import argparse\nraise SystemExit('imported')\nif __name__ == '__main__':\n    loss.backward()\n"
    )
    repository.commit({"train.py": script})

    planned = plan(repository.root)

    assert "training scripts: train.py (training loop)" in planned.found
    assert (
        "perfkit gate --target train.py --margin 10%  # after your next change" == planned.next_commands[-1]
    )
    assert any("`perfkit gate --target train.py`" in remark for remark in planned.remarks)
    assert {".gitignore"} == {file.path for file in planned.files}


def test_a_library_that_is_missing_is_named(repository: Repository) -> None:
    code = f"import no_such_library\n{DOUBLED}"
    repository.commit({"pyproject.toml": PROJECT, "widgets/__init__.py": "", "widgets/lists.py": code})

    remarks = " ".join(plan(repository.root).remarks)

    assert "No module named 'no_such_library'; install it (`pip install no_such_library`)" in remarks


def test_windows_line_ends_are_kept(repository: Repository) -> None:
    repository.commit({"widgets/__init__.py": ""})
    before = PROJECT.replace("\n", "\r\n").encode()
    (repository.root / "pyproject.toml").write_bytes(before)

    write_plan(plan(repository.root))

    after = (repository.root / "pyproject.toml").read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\n")


def test_a_file_of_the_same_name_stays(repository: Repository) -> None:
    mine = "# mine\n"
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "widgets/__init__.py": "",
            "widgets/lists.py": DOUBLED,
            "benchmarks/test_first_benchmarks.py": mine,
            ".github/workflows/perfkit.yml": mine,
        }
    )

    planned = plan(repository.root, "github")
    write_plan(planned)

    assert mine == (repository.root / "benchmarks/test_first_benchmarks.py").read_text()
    assert mine == (repository.root / ".github/workflows/perfkit.yml").read_text()
    assert "benchmarks/test_first_benchmarks.py is there already and stays as it is" in planned.remarks
    assert ".github/workflows/perfkit.yml is there already and stays as it is" in planned.remarks


def test_the_job_names_a_file_of_dependencies_that_is_there(repository: Repository) -> None:
    repository.commit({"widgets/__init__.py": ""})
    for files, named in (
        ({}, "**/*.py"),
        ({"requirements.txt": "msgspec\n"}, "requirements.txt"),
        ({"setup.py": "from setuptools import setup\nsetup()\n"}, "setup.py"),
        ({"pyproject.toml": PROJECT}, "pyproject.toml"),
    ):
        repository.commit(files)

        text = text_of(plan(repository.root, "github"), ".github/workflows/perfkit.yml")

        assert f'cache-dependency-path: "{named}"' in text


def test_names_that_pytest_collects_are_kept_to(repository: Repository) -> None:
    settings = PROJECT + '\n[tool.pytest.ini_options]\npython_files = ["check_*.py"]\ntestpaths = ["tests"]\n'
    repository.commit({"pyproject.toml": settings, "widgets/__init__.py": "", "widgets/lists.py": DOUBLED})

    text = text_of(plan(repository.root), "benchmarks/check_first_benchmarks.py")

    assert "importorskip" not in text


def test_options_that_pytest_refuses_are_named(repository: Repository) -> None:
    settings = PROJECT + '\n[tool.pytest.ini_options]\naddopts = "--no-such-option"\n'
    repository.commit({"pyproject.toml": settings, "widgets/__init__.py": ""})

    assert any("--no-such-option" in remark for remark in plan(repository.root).remarks)

    filters = 'filterwarnings = ["error", "ignore::no_such_library.Warned"]'
    repository.commit({"pyproject.toml": settings.replace('addopts = "--no-such-option"', filters)})
    assert any("no_such_library" in remark for remark in plan(repository.root).remarks)


def test_a_broken_configuration_is_never_rewritten(repository: Repository) -> None:
    repository.commit({"pyproject.toml": "[project\n", "widgets/__init__.py": ""})

    with pytest.raises(ConfigError, match=r"pyproject\.toml is not valid TOML"):
        plan(repository.root)

    assert "[project\n" == (repository.root / "pyproject.toml").read_text()


def test_several_projects_are_named(repository: Repository) -> None:
    repository.commit({"libs/a/pyproject.toml": PROJECT, "libs/b/pyproject.toml": PROJECT})

    with pytest.raises(UsageError, match=r"holds libs/a, libs/b; run `cd libs/a && perfkit init`"):
        plan(repository.root)


def test_without_a_repository_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="run `git init`, commit, then `perfkit init`"):
        plan(tmp_path)


def test_a_submodule_is_not_the_projects_own(repository: Repository, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Repository(other, create_repository(other)).commit({"__init__.py": "", "lists.py": LISTS})
    repository.commit({"pyproject.toml": PROJECT, "widgets/__init__.py": ""})
    repository.git.git.execute(
        ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "vendored"]
    )

    assert "code: widgets" in plan(repository.root).found


def test_a_shallow_clone_has_to_fetch(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"pyproject.toml": PROJECT, "widgets/__init__.py": ""})
    repository.commit({"widgets/__init__.py": "x = 1\n"})
    shallow = tmp_path / "shallow"
    git.Repo.clone_from(f"file://{repository.root}", shallow, depth=1)

    assert any("git fetch --unshallow" in remark for remark in plan(shallow).remarks)


def test_a_place_that_cannot_be_written_is_named(repository: Repository) -> None:
    repository.commit({"pyproject.toml": PROJECT, "widgets/__init__.py": "", "benchmarks": "a file\n"})
    (repository.root / "widgets/lists.py").write_text(DOUBLED)
    planned = plan(repository.root)

    with pytest.raises(UsageError, match=r"cannot write benchmarks/test_first_benchmarks\.py"):
        write_plan(planned)

    assert PROJECT == (repository.root / "pyproject.toml").read_text()


def test_a_hook_is_added_to_those_that_are_there(repository: Repository) -> None:
    before = "repos:\n- repo: local\n  hooks: []\n"
    repository.commit(
        {"pyproject.toml": PROJECT, "widgets/__init__.py": "", ".pre-commit-config.yaml": before}
    )

    after = text_of(plan(repository.root, "pre-commit"), ".pre-commit-config.yaml")

    assert after.startswith(f"{before}- repo: local\n  hooks:\n    - id: perfkit-counts\n")


def test_nothing_is_built_where_there_is_nothing_to_build(repository: Repository) -> None:
    repository.commit(
        {
            "pyproject.toml": '[tool.ruff]\nline-length = 100\n[project]\nname = "one"\n',
            "one.py": "def total(numbers: list[int]) -> int:\n    return sum(numbers)\n",
            ".gitignore": "data/\n*.so\n",
        }
    )
    for ignored in ("data/x.bin", "libfast.so"):
        place = repository.root / ignored
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"\0")

    assert "prepare" not in text_of(plan(repository.root), "pyproject.toml")


def test_a_module_for_another_system_is_passed_over(repository: Repository) -> None:
    windows = "import winreg\n" + "".join(
        f"def {name}(numbers: list[int]) -> int:\n    return sum(numbers)\n" for name in ("one", "two")
    )
    failing = "def never(numbers: list[int]) -> int:\n    raise ValueError(numbers)\n"
    repository.commit(
        {
            "pyproject.toml": PROJECT,
            "widgets/__init__.py": "",
            "widgets/registry.py": windows,
            "widgets/keys.py": f"from widgets import registry\n{failing.replace('never', 'key')}",
            "widgets/others.py": failing,
        }
    )

    remarks = " ".join(plan(repository.root).remarks)

    assert "pip install" not in remarks
    assert "0 functions" not in remarks

    repository.commit({"widgets/good.py": "def total(numbers: list[int]) -> int:\n    return sum(numbers)\n"})
    assert any("total" in line for line in plan(repository.root).found)


BACKENDS = {
    "maturin": ('build-backend = "maturin"\n[tool.maturin]\npython-source = "python"\n', "--target python ."),
    "meson": ('build-backend = "mesonpy"\n', "--target . ."),
    "scikit-build": ('build-backend = "scikit_build_core.build"\n', "--target . ."),
    "skbuild": ('build-backend = "setuptools.build_meta"\n', "--target . ."),
    "hatch": ('build-backend = "hatchling.build"\n', "--target . ."),
    "setuptools": ('build-backend = "setuptools.build_meta"\n', "build_ext --inplace"),
}


def test_an_extension_is_built_by_the_projects_own_backend(repository: Repository) -> None:
    for backend, (table, command) in BACKENDS.items():
        folder = "python/widgets" if backend == "maturin" else "widgets"
        files = {
            "pyproject.toml": f'[build-system]\nrequires = ["maturin", "setuptools"]\n{table}',
            f"{folder}/__init__.py": "",
            ".gitignore": "*.so\n",
        }
        if backend == "skbuild":
            files["setup.py"] = "from skbuild import setup\nsetup()\n"
        repository.commit(files)
        (repository.root / folder / "_core.abi3.so").write_bytes(b"\0")

        text = text_of(plan(repository.root), "pyproject.toml")

        prepare = next(line for line in text.splitlines() if line.startswith("prepare"))
        assert prepare.endswith(f'{command}"'), backend
        assert ("pip install" in prepare) == (backend != "setuptools")
        for file in ("setup.py", f"{folder}/_core.abi3.so", f"{folder}/__init__.py"):
            (repository.root / file).unlink(missing_ok=True)
