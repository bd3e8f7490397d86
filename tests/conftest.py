"""These fixtures give all tests a clean environment, a real git repository, and one import of torch."""

from __future__ import annotations

import compileall
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from repositories import Repository, create_repository
from two_trees import TwoTrees

from perfkit.invocation import keep_ledger
from perfkit.profiling.passes.launch import PassLauncher
from perfkit.runner.lockstep import launcher as launcher_module
from perfkit.runner.lockstep.launcher import Launcher

ROOT = Path(__file__).parent.parent
pytest_plugins = ["pytester"]

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# In place of the caller's options: no session that a test starts uses this plugin, and each would spend a
# second on importing it.
os.environ["PYTEST_ADDOPTS"] = "-p no:hypothesispytest -p no:anyio"

# In the background of a script, Ctrl-C is ignored; what tests start and interrupt must end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# These tests may be divided among processes; the sessions they start are whole ones, which measure.
os.environ.pop("PYTEST_XDIST_WORKER", None)

# A machine of its own for each process that runs tests: they wait for nobody else's perfkit.
_MACHINE = tempfile.TemporaryDirectory(prefix="machine-")
os.environ["PERFKIT_LOCK_FOLDER"] = _MACHINE.name
os.environ["XDG_CACHE_HOME"] = f"{_MACHINE.name}/cache"


# These take longest. Begun last, one of them would keep one process waiting for the other.
_LONGEST = (
    "test_bisect.py",
    "test_gate_exact.py",
    "test_gate_environments.py",
    "test_documents.py",
    "test_gate_own_code.py",
    "test_history.py",
    "test_tricks.py",
    "test_command_line.py",
    "test_steps.py",
    "test_gate_suites.py",
    "test_asv_suites.py",
    "test_hostile.py",
    "test_profile_loops.py",
    "test_resident_sides.py",
    "test_lockstep_launch.py",
    "test_pass_processes.py",
    "test_gate_measuring.py",
    "test_init.py",
    "test_zygotes.py",
    "test_launcher.py",
    "test_recording.py",
    "test_gate_bad_input.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the bytecode of what nearly every test starts a process for, where Python is set to write none.

    Compiling it anew would take each of these processes longer than all that it does besides.
    """
    if not sys.dont_write_bytecode:
        return
    # Of the tests, and of what they import here, pytest has bytecode of its own as well.
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "perfkit", quiet=2)
        _keep_what_pytest_compiles()


def _keep_what_pytest_compiles() -> None:
    """Run a session with a benchmark: pytest has bytecode of its own of all modules of its plugins."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_one.py").write_text("def test_one(benchmark):\n    benchmark(sum, [])\n")
        subprocess.run(
            [sys.executable, "-m", "pytest", "--quiet", "--perfkit-ledger=rows", "--benchmark-max-time=0.01"],
            cwd=folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PERFKIT_COMMIT": "c" * 40},
            capture_output=True,
            check=False,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, and leave all others in their order."""
    ranks = {name: rank for rank, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.fixture(autouse=True, scope="session")
def _one_fork_server_at_once() -> Iterator[None]:
    """Leave the core on which a second one would be raised ahead of time to other tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launcher_module, "_STARTED_TOGETHER", 1)
        yield


@pytest.fixture(autouse=True)
def _no_claimed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's PERFKIT_COMMIT out of the tests."""
    monkeypatch.delenv("PERFKIT_COMMIT", raising=False)


@pytest.fixture(autouse=True)
def _no_ledger_of_other_commands() -> None:
    """Keep the --ledger of commands that ran in this process out of what is printed next."""
    keep_ledger(None)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return an empty repository with an author."""
    root = tmp_path / "project"
    root.mkdir()
    return Repository(root, create_repository(root))


@pytest.fixture(scope="session")
def launcher() -> Iterator[PassLauncher]:
    """Return what starts passes, as a command has one."""
    with PassLauncher() as launcher:
        yield launcher


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Return a launcher whose fork server has imported pytest, for trees to borrow."""
    with TwoTrees(tmp_path_factory.mktemp("shared")).launcher() as launcher:
        launcher.renew()
        yield launcher


@pytest.fixture(scope="module")
def one_launcher(launcher: PassLauncher) -> Iterator[None]:
    """Let commands that run in this process fork their passes from one process, which has imported torch."""
    with pytest.MonkeyPatch.context() as patched:
        for module in ("commands.profile", "commands.explain", "features.why.causes"):
            name = f"perfkit.{module}.PassLauncher"
            patched.setattr(name, lambda: contextlib.nullcontext(launcher))
        yield
