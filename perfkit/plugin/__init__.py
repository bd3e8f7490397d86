"""The pytest plugin: waits for the accelerator, and records what pytest-benchmark measured in the ledger.

Nothing that takes time is imported here: this module is loaded by every pytest session of the user.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator, Iterator

import pytest

from perfkit.agent import FIXTURE_NAME, MARKERS

_RECORDER_NAME = "perfkit-recorder"


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
    group.addoption(
        "--perfkit-no-counts",
        action="store_true",
        help="File times only: count nothing.",
    )
    group.addoption(
        "--perfkit-prove-root",
        metavar="DIR",
        default=None,
        help="Fail unless every loaded module that exists in DIR came from there.",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and begin recording if asked for, or say why it is not possible."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not _recording_wanted(config):
        return
    if _switched_off(config):
        if config.getoption("perfkit_ledger"):
            raise pytest.UsageError(
                "perfkit: --perfkit-ledger needs benchmarks that run; they are switched off"
            )
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
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """Synchronise the accelerator around what is timed, whether it is recorded or not."""
    made = yield
    if fixturedef.argname == FIXTURE_NAME:
        from perfkit.agent.benchmark_fixture import synchronise_timer

        synchronise_timer(made)
    return made


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Ignore warnings of what perfkit imports and does: a suite may make errors of all that it sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _switched_off(config: pytest.Config) -> bool:
    """Tell whether pytest-benchmark was told to skip benchmarks, or to run them without measuring."""
    disabled = config.getoption("benchmark_disable", None) and not config.getoption("benchmark_enable", None)
    skipped = config.getoption("benchmark_skip", None) and not config.getoption("benchmark_only", None)
    return bool(disabled or skipped)


def _recording_wanted(config: pytest.Config) -> bool:
    """Tell whether this session is to add to a ledger; an xdist worker never does."""
    if hasattr(config, "workerinput") or config.getoption("collectonly"):
        return False
    options = ("perfkit_ledger", "benchmark_autosave", "benchmark_save")
    return any(config.getoption(option, None) for option in options)
