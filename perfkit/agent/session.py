"""One pytest session: it collects, then lists or runs benchmarks, or forks processes that run them."""

from __future__ import annotations

import collections
import copy
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
from _pytest.mark.expression import Expression

from . import COLLECTING, FIXTURE_NAME, MARKERS
from .asv_suite import NUMBERS, AsvPlugin, asv_case
from .channel import Channel, Message
from .functions import source_of
from .provenance import own_part
from .state import BEGUN, StateKeeper, seed_generators

MESSAGE_LIMIT = 300
# Errors of other processes hold their tracebacks.
_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:: |$)")
# A syntax error has no frame: the lines above its message name the place.
_SYNTAX_ERRORS = ("SyntaxError:", "IndentationError:", "TabError:")
_PLACE = re.compile(r'File "(.+)", line (\d+)$')


def judge(
    call: pytest.CallInfo[None], report: pytest.TestReport
) -> tuple[Literal["ok", "error", "skipped"], str | None]:
    """Return how a phase of a test ended, and in one line why it did not pass."""
    if report.passed:
        return "ok", None
    if call.excinfo is None:
        return "error", "unknown failure"
    text = str(call.excinfo.value)
    if report.skipped:
        return "skipped", " ".join(text.split())[:MESSAGE_LIMIT]
    return "error", f"{call.excinfo.typename}: {_shortened(text)}"


def _shortened(text: str) -> str:
    _, traceback, below = text.rpartition(_TRACEBACK)
    # Torch adds the frames of its own code to what happened.
    lines = [line for line in below.splitlines() if _ERROR.match(line)] if traceback else []
    return " ".join((lines[-1] if lines else text).split())[:MESSAGE_LIMIT]


def last_line(report: pytest.CollectReport) -> str:
    """Return the line of a failed collection's traceback with what happened."""
    lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    line = (errors or lines or ["unknown failure"])[-1]
    places = [found for text in errors if (found := _PLACE.match(text))]
    if line.startswith(_SYNTAX_ERRORS) and places:
        line = f"{line} ({places[-1][1]}:{places[-1][2]})"
    return line.replace("_pytest.outcomes.Exit: ", "pytest.exit(): ")[:MESSAGE_LIMIT]


_FIXTURES = (FIXTURE_NAME, "benchmark_weave")
# These options of other plugins, by module, would break lockstep; those beside them, given last, undo them.
_OPPONENTS = {
    "xdist.plugin": (("-n", "--numprocesses", "--dist"), ("-n", "0")),
    "pytest_cov.plugin": (("--cov",), ("--no-cov",)),
    "pytest_timeout": (("--timeout",), ("--timeout=0",)),
    "pytest_randomly": (
        ("-p randomly", "--randomly"),
        ("--randomly-dont-reorganize", "--randomly-dont-reset-seed"),
    ),
    "pytest_rerunfailures": (("--reruns", "--force-reruns"), ("--reruns=0",)),
    "pytest_retry.retry_plugin": (("--retries",), ("--retries=0",)),
    "flaky.flaky_pytest_plugin": (("--force-flaky",), ()),
    "pytest_codspeed.plugin": (("--codspeed",), ()),
}
# What switches CodSpeed's fixture on, which replaces pytest-benchmark's: no other option undoes it.
_CODSPEED_OPTION, _CODSPEED_VARIABLE = "--codspeed", "CODSPEED_ENV"
# Several plugins run a test again, once it has failed, that has this marker.
_RUNS_AGAIN = "flaky"
_OVERRULED = {
    "collectonly": False,
    "benchmark_skip": False,
    "benchmark_only": False,
    "benchmark_disable": False,
    "benchmark_autosave": False,
    "benchmark_save": None,
    "benchmark_save_data": False,
    "benchmark_compare": None,
    "benchmark_compare_fail": None,
    "benchmark_json": None,
    "benchmark_histogram": None,
    "benchmark_cprofile": None,
    "maxfail": 0,
    "usepdb": False,
    "stepwise": False,
    "lf": False,
    "failedfirst": False,
}
# What torch and the libraries below it call a device without memory left.
_DEVICE_FULL = re.compile(r"\b(CUDA|HIP|XPU|MPS)\b.*out of memory|_ALLOC_FAILED\b", re.DOTALL)
_SILENTLY_OVERRULED = {"benchmark_enable": True, "continue_on_collection_errors": True, "verbose": -1}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The benchmarks that a process runs, and the channel from which it gets orders.

    Generators are seeded from ``seed`` before each test. In a forked process ``finish`` ends it afterwards.
    """

    nodes: Sequence[str]
    channel: Channel
    seed: int = 0
    finish: Callable[[], NoReturn] | None = None


class ChildPlugin:
    """The hooks of a child's session; a session that ``lists`` sends which benchmarks there are.

    ``next_launch`` is called once all is collected; in a server it returns in each process that was forked
    for a launch. Generators are seeded from ``seed`` before each file is imported.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        lists: bool,
        next_launch: Callable[[], Launch | None],
        asv: AsvPlugin | None = None,
        seed: int = 0,
    ) -> None:
        self.asv = asv
        self._import_seed = seed
        self._channel = channel
        self._lists, self._next_launch = lists, next_launch
        self._root = Path()
        self._listed = False
        self._seed = 0
        self._why_ended: str | None = None
        self._errors: list[dict[str, object]] = []
        self._files: set[str] = set()
        # How long each file took to import, and when the present one began.
        self._seconds: dict[str, float] = {}
        self._began = 0.0
        self._overruled: list[str] = []
        self._outcomes: dict[str, tuple[str, str | None]] = {}
        self._device_full: set[str] = set()
        self._begun: set[str] = set()
        self._over: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(
        self, early_config: pytest.Config, parser: pytest.Parser, args: list[str]
    ) -> Generator[None, object, object]:
        """Undo the options of the plugins that are loaded, before one of them reads what was given."""
        os.environ.pop(_CODSPEED_VARIABLE, None)
        loaded = {getattr(plugin, "__name__", "") for plugin in early_config.pluginmanager.get_plugins()}
        args[:] = [word for word in args if word != _CODSPEED_OPTION]
        args += [word for module, (_, undo) in _OPPONENTS.items() if module in loaded for word in undo]
        options = copy.copy(early_config.option)
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=options)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Overrule the options that would break lockstep, and remember those that were set."""
        self._root = config.rootpath
        for marker in MARKERS:
            config.addinivalue_line("markers", marker)
        self._overruled = _named_opponents(config)
        for name, value in _OVERRULED.items():
            if getattr(config.option, name, value) not in (value, None, [], ""):
                self._overruled.append("--" + name.replace("_", "-"))
        for name, value in {**_OVERRULED, **_SILENTLY_OVERRULED}.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Write down what is collected now, since the import of a file may take long."""
        if isinstance(collector, pytest.File):
            self._began = time.monotonic()
            seed_generators(self._import_seed, collector.nodeid)
        if self._lists and isinstance(collector, pytest.File):
            Path(os.environ["TMPDIR"], COLLECTING).write_text(collector.nodeid, encoding="utf-8")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """List the benchmarks where that is asked for, and run those of a launch in its order.

        They are listed only here, since some mistakes in pytest's configuration end a session after it has
        collected, and before this.
        """
        found = {item.nodeid: item for item in session.items if _measures(item)}
        if [item for item in found.values() if _runs_once(item)]:
            self._overruled.append(f"@pytest.mark.{_RUNS_AGAIN}")
        if self._lists:
            self.send_listing([_describe(item) for item in found.values()])
        launch = self._next_launch()
        wanted = launch.nodes if launch is not None else ()
        if launch is not None:
            self._channel, self._seed = launch.channel, launch.seed
            if missing := {node: self._why_not_collected(node) for node in wanted if node not in found}:
                self._channel.send({"kind": "missing", "nodes": missing})
        session.items[:] = [found[node] for node in wanted if node in found]
        ran = yield
        if launch is not None and launch.finish is not None:
            launch.finish()
        return ran

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that has run once, since some plugins run it again where it failed; seed generators."""
        if item.nodeid in self._begun:
            pytest.skip("a benchmark runs once in a launch")
        self._begun.add(item.nodeid)
        seed_generators(self._seed, item.nodeid)
        item.stash[BEGUN] = time.perf_counter(), time.process_time()

    def _why_not_collected(self, node: str) -> str:
        known = (
            str(error["message"])
            for error in self._errors
            if node.startswith((f"{error['node']}::", f"{error['node']}/"))
        )
        return next(known, "")

    def send_listing(self, items: Sequence[dict[str, object]]) -> None:
        """Send which benchmarks there are, and what could not be collected."""
        self._listed = True
        self._channel.send(
            {
                "kind": "collected",
                "items": items,
                "files": sorted(self._files),
                "seconds": self._seconds,
                "errors": self._errors,
                "overruled": sorted(set(self._overruled)),
                "asv": None if self.asv is None else {"left_out": self.asv.left_out},
            }
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the message of a file that could not be imported, or that skips itself as a whole."""
        tests = [one.nodeid for one in report.result if isinstance(one, pytest.Item)]
        self._files |= {node.partition("::")[0] for node in (tests if report.passed else [report.nodeid])}
        if report.nodeid.endswith(".py"):
            self._seconds[report.nodeid] = time.monotonic() - self._began
        if report.passed:
            return
        file = self._root / report.nodeid.partition("::")[0]
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else last_line(report)
        self._errors.append(
            {
                "node": report.nodeid,
                "message": self._without_root(reason).removeprefix("Skipped: "),
                "skipped": report.skipped,
                "mentions": mentions_fixture(file) or (self.asv is not None and self.asv.suite.holds(file)),
            }
        )

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep why the session was ended by ``pytest.exit``."""
        self._why_ended = f"pytest.exit(): {_one_line(excinfo)}"

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep what ended the session, and where it was raised."""
        last = excinfo.traceback[-1]
        where = self._without_root(f"{last.path}:{last.lineno + 1}")
        self._why_ended = f"{excinfo.typename}: {_one_line(excinfo)} ({where})"

    def _raised_at(self, call: pytest.CallInfo[None]) -> str | None:
        entries = call.excinfo.traceback if call.excinfo is not None else ()
        own = (entry for entry in reversed([*entries]) if own_part(Path(entry.path), self._root) is not None)
        last = next(own, None)
        return None if last is None else self._without_root(f"{last.path}:{last.lineno + 1}")

    def _without_root(self, text: str) -> str:
        return text.replace(f"{self._root}/", "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep the first thing that went wrong with a test, and send it when the test is over."""
        report = yield
        status, message = judge(call, report)
        if status != "ok":
            full = _device_is_full(call)
            kind: str = "oom" if status == "error" and (full or _ran_out_of_memory(call)) else status
            if full and item.nodeid not in self._outcomes:
                self._device_full.add(item.nodeid)
            where = self._raised_at(call) if status == "error" else None
            text = f"{str(message).rstrip()} ({where})" if where else message
            self._outcomes.setdefault(item.nodeid, (kind, text))
        if report.when == "teardown" and item.nodeid not in self._over:
            self._over.add(item.nodeid)
            kind, message = self._outcomes.get(item.nodeid, ("ok", None))
            over: Message = {"kind": "finished", "node": item.nodeid, "status": kind, "message": message}
            if item.nodeid in self._device_full:
                over["device_full"] = True
            self._channel.send(over)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Print no progress, so that the last line of output is the reason if the process dies."""
        return "", "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Exit before the summary: nobody reads it, and plugins import large libraries to write theirs."""
        if self._lists and not self._listed and self._why_ended is not None:
            self._channel.send({"kind": "not_collected", "message": self._without_root(self._why_ended)})
        pytest.exit("the session is over")


def run_session(
    plugin: ChildPlugin,
    *,
    root: Path,
    paths: Sequence[str],
    select: str | None,
    others: Sequence[object] = (),
) -> None:
    """Run pytest in ``root`` over ``paths`` (relative to it), with other plugins."""
    places = [f"--rootdir={root}", f"--confcutdir={root}", f"--basetemp={os.environ['TMPDIR']}/basetemp"]
    # The plugin "perfkit" would import perfkit, which may itself be under test.
    quiet = ["-p", "no:cacheprovider", "-p", "no:perfkit"]
    selection = ["-k", select] if select else []
    if plugin.asv is not None and plugin.asv.suite.holds_all(root / path for path in paths):
        quiet += without_configuration(Path(os.environ["TMPDIR"]))
    arguments = [*(str(root / path) for path in paths), *places, *quiet, *selection]
    others = [*others, *([] if plugin.asv is None else [plugin.asv])]
    pytest.main(arguments, plugins=[plugin, StateKeeper(), StableIds(), CacheOptions(), *others])


def without_configuration(folder: Path) -> list[str]:
    """Return options by which a session ignores the project's configuration of pytest.

    A file is written to a folder for that. asv does not know the configuration either: it is for tests, and
    may need plugins that benchmarks do not.
    """
    empty = folder / "empty.ini"
    empty.write_text("[pytest]\n", encoding="utf-8")
    return [f"--config-file={empty}", "--noconftest"]


def selection_problem(select: str) -> str | None:
    """Return why pytest's ``-k`` does not accept an expression, None where it does."""
    try:
        Expression.compile(select)
    except Exception as error:  # noqa: BLE001 (see above)
        return str(error)
    return None


def _named_opponents(config: pytest.Config) -> list[str]:
    given = [*config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split()]
    names = [name for flags, _ in _OPPONENTS.values() for name in flags]
    return [name for name in names if any(word == name or word.startswith(f"{name}=") for word in given)]


def _measures(item: pytest.Item) -> bool:
    return any(name in getattr(item, "fixturenames", ()) for name in _FIXTURES)


def _runs_once(item: pytest.Item) -> bool:
    had = item.get_closest_marker(_RUNS_AGAIN) is not None
    for node in item.listchain() if had else ():
        node.own_markers = [marker for marker in node.own_markers if marker.name != _RUNS_AGAIN]
    return had


def source_and_params(item: pytest.Item) -> tuple[str, dict[str, str]]:
    """Return the text that makes a benchmark's version, and its parameters by name."""
    case = asv_case(item)
    if case is not None:
        return case.source, dict(case.params)
    callspec = getattr(item, "callspec", None)
    params = {
        name: without_addresses(str(value)) for name, value in (callspec.params if callspec else {}).items()
    }
    return source_of(getattr(item, "function", type(item))), params


def _describe(item: pytest.Item) -> dict[str, object]:
    source, params = source_and_params(item)
    case = asv_case(item)
    mark = item.get_closest_marker("benchmark")
    own = item.get_closest_marker("perfkit")
    return {
        "node": item.nodeid,
        "file": Path(item.path).relative_to(item.config.rootpath).as_posix(),
        "source": source,
        "params": params,
        "group": mark.kwargs.get("group") if mark else None,
        "settings": {name: str(value) for name, value in own.kwargs.items()} if own else {},
        "limit_s": None if case is None else case.limit_s,
        "asv": case is not None,
        "number": case is not None and case.kind in NUMBERS,
    }


def _ran_out_of_memory(call: pytest.CallInfo[None]) -> bool:
    return call.excinfo is not None and call.excinfo.errisinstance(MemoryError)


def _device_is_full(call: pytest.CallInfo[None]) -> bool:
    if call.excinfo is None or not call.excinfo.errisinstance(RuntimeError):
        return False
    error = call.excinfo.value
    return type(error).__name__ == "OutOfMemoryError" or bool(_DEVICE_FULL.search(str(error)))


def mentions_fixture(place: Path) -> bool:
    """Return whether a file, or one in a folder, may use the fixture or one that is named after it."""
    try:
        files = place.rglob("*.py") if place.is_dir() else [place]
        return any(FIXTURE_NAME.encode() in file.read_bytes() for file in files)
    except OSError:
        return True


def _one_line(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    return " ".join(str(excinfo.value).split())[:MESSAGE_LIMIT]


# An address that Python prints, or a number as long as one.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{9,16}")


class StableIds:
    """Gives each test whose id holds an address an id that is the same in every process."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Rename them before a selection leaves some of them out."""
        for item, node in zip(items, numbered([item.nodeid for item in items]), strict=True):
            if node != item.nodeid:
                _rename_item(item, node)


def _rename_item(item: Any, node: str) -> None:  # noqa: ANN401 (the fields are pytest's own)
    parse = getattr(type(getattr(item, "_id", None)), "parse", None)
    if parse is None:
        # Older versions of pytest keep an id as a text.
        item._nodeid = node  # noqa: SLF001
    else:
        item._id = parse(node)  # noqa: SLF001


def without_addresses(text: str) -> str:
    """Return a text without the addresses in it."""
    return _ADDRESS.sub("", text)


def numbered(nodes: Iterable[str]) -> list[str]:
    """Return ids with numbers in the place of addresses.

    The number of tests that differ in nothing else is part of each: where there are more of them in another
    version of the code, they cannot be matched.
    """
    nodes = list(nodes)
    plain = [without_addresses(node) for node in nodes]
    alike = collections.Counter(text for node, text in zip(nodes, plain, strict=True) if node != text)
    seen: collections.Counter[str] = collections.Counter()
    found = []
    for node, text in zip(nodes, plain, strict=True):
        if node != text:
            seen[text] += 1
            text = f"{text.removesuffix(']')}#{seen[text]}-of-{alike[text]}]"  # noqa: PLW2901
        found.append(text)
    return found


_CACHE_FLAGS = {
    "lf": ("--lf", "--last-failed"),
    "failedfirst": ("--ff", "--failed-first"),
    "newfirst": ("--nf", "--new-first"),
    "cacheclear": ("--cache-clear",),
    "stepwise": ("--sw", "--stepwise"),
    "stepwise_skip": ("--sw-skip", "--stepwise-skip"),
    "stepwise_reset": ("--sw-reset", "--stepwise-reset"),
}


class CacheOptions:
    """Knows the options of pytest's cache, which "-p no:cacheprovider" would make errors of."""

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        """Add the options as pytest has them, and the setting of the cache's folder."""
        group = parser.getgroup("general")
        for place, names in _CACHE_FLAGS.items():
            group.addoption(*names, dest=place, action="store_true", default=False)
        group.addoption("--lfnf", "--last-failed-no-failures", dest="last_failed_no_failures", default="all")
        parser.addini("cache_dir", "The folder of the cache that this session has not.", default="")
