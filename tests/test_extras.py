"""A gate needs no library of perfkit's extras, and what needs one reports it in a line."""

from __future__ import annotations

import cProfile
import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
import types
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from gating import CONFIGURATION
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repositories import Repository, create_repository

from perfkit.agent.training import NO_TORCH, count_steps
from perfkit.commands.calibrate import OLDEST_TORCH
from perfkit.errors import EXIT_USAGE
from perfkit.extras import EXTRAS, MissingLibraryError, is_installed, need
from perfkit.ledger.store import Ledger
from perfkit.runner.machine.facts import _gpus_named_by_driver

ROOT = Path(__file__).parents[1]
_COMMAND = "#!{python}\nfrom perfkit.cli import main\n\nmain()\n"
# Each command in one process takes the time of one start for all of them.
_COMMANDS = """
import contextlib, io, json, sys
from perfkit.cli import main

done = []
for arguments in json.loads(sys.argv[1]):
    sys.argv, output, errors = ["perfkit", *arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            done.append([end.code, output.getvalue(), errors.getvalue()])
print(json.dumps(done))
"""


@dataclass(frozen=True, kw_only=True)
class LightEnvironment:
    """An environment with what perfkit cannot do without, and its commands."""

    bin: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.bin / "python"

    def perfkit(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of perfkit in it."""
        return self.run(self.bin / "perfkit", *arguments, cwd=cwd)

    def several(self, *commands: Sequence[str], cwd: Path) -> list[tuple[int, str, str]]:
        """Run commands of perfkit one after the other in one process; return exit codes and both streams."""
        done = self.run(self.python, "-c", _COMMANDS, json.dumps(commands), cwd=cwd)
        assert 0 == done.returncode, done.stderr
        return [(code, output, shown) for code, output, shown in json.loads(done.stdout)]

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run any command; what the caller's PYTHONPATH names is not found in it."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def light_environment(place: Path) -> LightEnvironment:
    """Make an environment of the core dependencies in a folder."""
    venv.create(place, symlinks=True, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    for distribution in core_distributions():
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            source = Path(str(distribution.locate_file(name)))
            if source.exists():
                (packages / name).symlink_to(source)
    described = importlib.metadata.distribution("perfkit").locate_file("perfkit-0.1.0.dist-info")
    (packages / "perfkit-0.1.0.dist-info").symlink_to(str(described))
    (packages / "perfkit.pth").write_text(f"{ROOT}\n")
    command = place / "bin" / "perfkit"
    command.write_text(_COMMAND.format(python=place / "bin" / "python"))
    command.chmod(0o755)
    return LightEnvironment(bin=place / "bin")


def core_distributions() -> Iterator[importlib.metadata.Distribution]:
    """Yield what perfkit's dependencies without any extra bring, as far as it is installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left, seen = [Requirement(line) for line in project["dependencies"]], set[str]()
    while left:
        required = left.pop()
        name = canonicalize_name(required.name)
        if name in seen or not (required.marker is None or required.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        yield found
        left += [Requirement(line) for line in found.requires or ()]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORDS = """
def count(text):
    found = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return found


def main():
    for _ in range(10):
        count("The quick brown fox jumps over the lazy dog. " * 20)
"""
FILES = {
    "pyproject.toml": CONFIGURATION.replace("count = false", "count = true"),
    "words.py": WORDS,
    "conftest.py": "",
    "benchmarks/test_words.py": "from words import main\n\ndef test_words(benchmark):\n    benchmark(main)\n",
}


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> LightEnvironment:
    return light_environment(tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a project of plain Python whose second commit splits twice."""
    root = tmp_path_factory.mktemp("plain") / "project"
    root.mkdir()
    made = Repository(root, create_repository(root))
    made.commit(FILES, "Begin")
    made.commit({"words.py": WORDS.replace("text.split()", '" ".join(text.split()).split()')}, "Split twice")
    return made


def test_the_extras_bring_what_perfkit_promises() -> None:
    distributions = importlib.metadata.packages_distributions()
    extras = {
        extra: {canonicalize_name(Requirement(line).name) for line in lines}
        for extra, lines in PROJECT["optional-dependencies"].items()
        if extra not in ("dev", "all")
    }

    for library, extra in EXTRAS.items():
        # W&B is too large to be installed for its tests alone.
        (name,) = {canonicalize_name(name) for name in distributions.get(library, [library])}
        assert {extra} == {one for one, names in extras.items() if name in names}
    core = {canonicalize_name(one.name) for one in core_distributions()}
    brought = (name for one in EXTRAS for name in distributions.get(one, [one]))
    assert set() == core & set(map(canonicalize_name, brought))


def test_everything_that_it_once_brought_is_in_all() -> None:
    (named,) = (Requirement(line) for line in PROJECT["optional-dependencies"]["all"])
    brought = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in named.extras)]
    names = {Requirement(line).name for lines in brought for line in lines}

    wanted = {"torch", "pytest-benchmark", "snakeviz", "line_profiler", "pandas", "gitpython"}
    assert wanted | {"nvidia-ml-py", "duckdb"} <= names


def test_the_doctor_knows_the_oldest_torch_of_the_extra() -> None:
    (line,) = PROJECT["optional-dependencies"]["torch"]

    assert f">={'.'.join(map(str, OLDEST_TORCH))}" == str(Requirement(line).specifier)


def test_what_is_missing_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "snakeviz", None)

    need("line_profiler", by="this")
    with pytest.raises(MissingLibraryError) as shown:
        need("torch", "line_profiler", "snakeviz", by="this")

    output = "this needs torch and snakeviz, found none; install it: pip install 'perfkit[torch,profile]'"
    assert output == str(shown.value)
    assert EXIT_USAGE == shown.value.exit_code


def test_a_module_made_by_hand_counts_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))

    assert [True, False] == [is_installed("torch"), is_installed("no_such_library")]


def test_steps_are_not_counted_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    assert {"problem": NO_TORCH} == count_steps("no_such_module:main", root=tmp_path, steps=3)


def test_gpus_are_named_by_the_driver_without_the_library(tmp_path: Path) -> None:
    for place, model in (("0000:4e:00.0", "NVIDIA A100-SXM4-80GB"), ("0000:0f:00.0", "Tesla T4")):
        file = tmp_path / "proc/driver/nvidia/gpus" / place / "information"
        file.parent.mkdir(parents=True)
        file.write_text(f"Model: \t\t {model}\nIRQ:   \t\t 55\nGPU UUID: \t GPU-0\n")
    (tmp_path / "proc/driver/nvidia/gpus/0000:ff:00.0").mkdir()

    assert ["Tesla T4", "NVIDIA A100-SXM4-80GB"] == _gpus_named_by_driver(tmp_path)
    assert [] == _gpus_named_by_driver(tmp_path / "none")


def test_a_session_is_recorded_and_rendered(light: LightEnvironment, project: Repository) -> None:
    session = light.run(
        *(light.python, "-m", "pytest", "-q", "benchmarks", "--benchmark-autosave", "--perfkit-counts"),
        *("--benchmark-max-time=0.1",),
        cwd=project.root,
    )
    done = light.several(
        *(["log"], ["history"], ["ledger", "list"], ["ledger", "check"], ["report", "--out", "site"]),
        cwd=project.root,
    )

    assert 0 == session.returncode, session.stdout + session.stderr
    assert [0] * 5 == [code for code, _, _ in done], done
    rows = Ledger(project.root / "benchmarks/ledger").rows()
    assert {"absent"} == {row.environment.facts["torch"] for row in rows}
    assert {"time", "python_calls", "python_peak"} <= {row.outcome.metric.name for row in rows}
    assert "test_words" in (project.root / "perf_log.md").read_text()
    assert (project.root / "site/index.html").is_file()


def test_a_gate_counts_and_its_comment_is_written(
    light: LightEnvironment, project: Repository, tmp_path: Path
) -> None:
    report, ledger = tmp_path / "gate.json", tmp_path / "ledger"
    gated = light.perfkit(
        *("gate", "--exact-only", "--base", "HEAD~1", "--json", str(report), "--ledger", str(ledger)),
        cwd=project.root,
    )
    comment = light.perfkit("comment", "--from", str(report), "--gitlab", cwd=project.root)

    assert 0 == gated.returncode, gated.stderr
    counted = {one["metric"]["name"] for one in json.loads(report.read_text())["exact"]}
    assert {"python_calls", "python_peak"} <= counted
    assert {"absent"} == {row.environment.facts["torch"] for row in Ledger(ledger).rows()}
    assert "no job of GitLab's" in comment.stderr


def test_a_profile_has_the_passes_that_need_no_torch(
    light: LightEnvironment, project: Repository, tmp_path: Path
) -> None:
    done = light.perfkit(
        *("profile", "words:main", "--out", str(tmp_path / "it.stat"), "--no-ledger"), cwd=project.root
    )

    assert 0 == done.returncode, done.stderr
    shown = json.loads((tmp_path / "it.json").read_text())
    assert ["clean", "cprofile"] == [one["name"] for one in shown["passes"]]
    assert "absent" == shown["environment"]["facts"]["torch"]
    assert "warning: torch is not installed" in done.stdout
    assert "optimizer step was seen" not in done.stdout


def test_commands_that_need_an_extra_state_so(
    light: LightEnvironment, project: Repository, tmp_path: Path
) -> None:
    profile = tmp_path / "some.stat"
    profiler = cProfile.Profile()
    profiler.runcall(sorted, [2, 1])
    profiler.dump_stats(profile)
    needs = {
        ("profile", "words:main", "--passes", "clean,torch"): ("the torch pass", "torch", "torch"),
        ("profile", "words:main", "--lines", "words:main"): ("--lines", "line_profiler", "profile"),
        ("tricks",): ("perfkit tricks", "torch", "torch"),
        ("tricks", "--from-ledger"): ("perfkit tricks", "torch", "torch"),
        ("why", "words:main"): ("perfkit why", "torch", "torch"),
        ("view", str(profile)): ("perfkit view", "snakeviz", "profile"),
    }
    before = sorted(project.root.rglob("*"))

    done = light.several(*needs, cwd=project.root)

    shown = (
        f"perfkit: {what} needs {library}, found none; install it: pip install 'perfkit[{extra}]'\n"
        for what, library, extra in needs.values()
    )
    assert [(2, "", line) for line in shown] == done
    assert before == sorted(project.root.rglob("*"))


def test_a_data_frame_needs_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    ledger = Ledger(tmp_path)

    calls: tuple[Callable[[], object], ...] = (
        ledger.to_pandas,
        lambda: ledger.sql("SELECT 1"),
        lambda: ledger.series("test_a"),
    )
    for call in calls:
        with pytest.raises(MissingLibraryError, match="a data frame needs pandas, found none"):
            call()


@pytest.mark.slow
def test_a_wheel_gates_a_project_of_plain_python(tmp_path: Path) -> None:
    place = LightEnvironment(bin=tmp_path / "environment" / "bin")
    venv.create(tmp_path / "environment", with_pip=True)
    pip: list[str | Path] = [place.python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = place.run(*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT), cwd=tmp_path)
    if built.returncode:
        pytest.skip(f"no index to build and install from: {built.stderr.splitlines()[-1]}")
    (wheel,) = tmp_path.glob("perfkit-*.whl")
    installed = place.run(*pip, "install", "-c", str(ROOT / "constraints.txt"), str(wheel), cwd=tmp_path)
    assert 0 == installed.returncode, installed.stderr
    found = place.run(place.python, "-c", "import perfkit; print(perfkit.__file__)", cwd=tmp_path)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path)
    root = tmp_path / "project"
    root.mkdir()
    made = Repository(root, create_repository(root))
    made.commit({"words.py": WORDS, "pyproject.toml": '[project]\nname = "words"\nversion = "1"\n'}, "Begin")

    begun = place.perfkit("init", "--yes", cwd=root)
    made.commit({}, "Measure performance with perfkit")
    made.commit({"words.py": WORDS.replace("text.split()", "sorted(text.split() * 9)")}, "Sort")
    gated = place.perfkit("gate", "--base", "HEAD~1", "--json", "gate.json", cwd=root)
    commands = (("log",), ("history",), ("doctor", "--seconds", "1", "--margin", "10000%"))
    done = [place.perfkit(*command, cwd=root) for command in commands]
    profiled = place.perfkit("profile", "words:main", cwd=root)

    assert 0 == begun.returncode, begun.stderr
    assert 1 == gated.returncode, gated.stderr
    report = json.loads((root / "gate.json").read_text())
    assert {"REGRESSED"} == {one["verdict"] for one in report["comparisons"]}
    assert [0, 0, 0] == [one.returncode for one in done], [one.stderr for one in done]
    assert "absent: Python's calls are counted" in done[-1].stdout
    assert 0 == profiled.returncode, profiled.stderr
