"""The pytest plugin: waits for the accelerator, and records what pytest-benchmark measured in the ledger.

Nothing that takes time is imported here: this module is loaded by every pytest session of the user.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from perfkit.agent import FIXTURE_NAME, MARKERS

_RECORDER_NAME, ASV_NAME = "perfkit-recorder", "perfkit-asv"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add perfkit's options."""
    group = parser.getgroup("perfkit", "performance ledger")
    group.addoption(
        "--perfkit-ledger",
        metavar="PLACE",
        default=None,
        help="Folder or URL of the ledger to add this session's benchmarks to (default: the configured one, "
        "when --benchmark-autosave or --benchmark-save is given).",
    )
    group.addoption(
        "--perfkit-counts",
        action="store_true",
        help="Count what each benchmark does, however long that takes: operators, syncs, bytes, Python calls "
        "(default: where torch is loaded and that takes a tenth of the benchmark's time at most).",
    )
    group.addoption("--perfkit-no-counts", action="store_true", help="File times only: count nothing.")
    group.addoption(
        "--perfkit-prove-root",
        metavar="DIR",
        default=None,
        help="Fail unless every loaded module that exists in DIR came from there.",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and begin recording if asked for, or report why that is not possible."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    with without_warnings():
        _collect_asv(config)
    if not _recording_wanted(config):
        return
    if hint := _how_to_switch_on(config):
        if config.getoption("perfkit_ledger"):
            raise pytest.UsageError(
                f"perfkit: --perfkit-ledger needs benchmarks that run; they are switched off: add {hint}"
            )
        config.pluginmanager.register(_SwitchedOff(hint))
        return
    from perfkit.errors import PerfkitError

    try:
        with without_warnings():
            from perfkit.plugin.recorder import Recorder

            recorder = Recorder.prepare(config)
    except PerfkitError as error:
        raise pytest.UsageError(f"perfkit: {error}") from error
    except Exception as error:  # noqa: BLE001 (a fault of perfkit is no failed test)
        from perfkit.errors import EXIT_INTERNAL
        from perfkit.internal_error import internal_error_lines

        pytest.exit("\n".join(f"perfkit: {line}" for line in internal_error_lines(error)), EXIT_INTERNAL)
    config.pluginmanager.register(recorder, _RECORDER_NAME)
    config.pluginmanager.register(recorder.keeper, f"{_RECORDER_NAME}-state")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Wait for the accelerator around each timed block, whether it is recorded or not.

    A session that does not record and has not loaded torch is left as it is.
    """
    made = yield
    if fixturedef.argname == FIXTURE_NAME and _may_need_to_wait(request.config):
        from perfkit.agent.benchmark_fixture import synchronise_timer

        synchronise_timer(made, getattr(request, "node", None))
    return made


def _may_need_to_wait(config: pytest.Config) -> bool:
    used = "torch" in sys.modules or config.pluginmanager.has_plugin(_RECORDER_NAME)
    return used and "pytest_benchmark.plugin" in sys.modules


def _collect_asv(config: pytest.Config) -> None:
    """Have a suite of asv collected where the session records, or was given a path inside the suite."""
    records, given = _recording_wanted(config), config.args_source is pytest.Config.ArgsSource.ARGS
    if not (records or given) or not _may_have_asv(config.rootpath):
        return
    from perfkit.config import load_project
    from perfkit.errors import PerfkitError

    try:
        project = load_project(config.rootpath)
        suite = project.asv_suite()
    except PerfkitError as error:
        if records:
            raise pytest.UsageError(f"perfkit: {error}") from error
        return
    if suite is None:
        return
    inside = (project.root / suite.folder).resolve()
    if not (records or any(place.resolve().is_relative_to(inside) for place in given_paths(config))):
        return
    from perfkit.agent.asv_suite import AsvFolder, AsvPlugin

    root = config.getoption("perfkit_prove_root")
    folder = AsvFolder(
        root=project.root, folder=suite.folder, limit_s=suite.limit_s, proves_code=root is not None
    )
    # A file that cannot be imported must not keep the others from being measured.
    config.option.continue_on_collection_errors = True
    config.pluginmanager.register(AsvPlugin(folder), ASV_NAME)


def given_paths(config: pytest.Config) -> list[Path]:
    """Return the files and folders that a session was asked to look for tests in."""
    return [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]


def _may_have_asv(root: Path) -> bool:
    with contextlib.suppress(OSError):
        for folder in (root, *root.parents):
            settings = folder / "pyproject.toml"
            if settings.is_file() and b"asv" in settings.read_bytes():
                return True
            if any(folder.glob("asv.conf.json*")) or any(folder.glob("*/asv.conf.json*")):
                return True
            if settings.is_file() or (folder / ".git").exists():
                break
    return False


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings of what perfkit imports and does: a suite may make errors of all that it sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _SwitchedOff:
    """Reports at the end of a session that nothing was recorded, with the options that would change that."""

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(
            "perfkit: nothing was added to the ledger, since benchmarks are switched off in this session:"
            f" add {self._hint}"
        )


def _how_to_switch_on(config: pytest.Config) -> str:
    hints = []
    if config.getoption("benchmark_disable", None) and not config.getoption("benchmark_enable", None):
        hints.append("--benchmark-enable")
    if config.getoption("benchmark_skip", None) and not config.getoption("benchmark_only", None):
        hints.append("--benchmark-only")
    return " ".join([*hints, *(["-n 0"] if hints and is_distributed(config) else [])])


def is_distributed(config: pytest.Config) -> bool:
    """Return whether tests run in processes of pytest-xdist; each of them leaves it to this one to record."""
    return bool(config.getoption("dist", "no") != "no")


def _recording_wanted(config: pytest.Config) -> bool:
    if hasattr(config, "workerinput") or config.getoption("collectonly"):
        return False
    options = ("perfkit_ledger", "benchmark_autosave", "benchmark_save")
    return any(config.getoption(option, None) for option in options)
