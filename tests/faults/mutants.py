"""Changes one place at a time in what computes and judges, and looks whether the tests see it.

    python tests/faults/mutants.py [--report] [MODULE …]

cosmic-ray makes the changes. Each is tried in a fork of one process that has imported the libraries, and what
of perfkit does not depend on the module: the fork imports the changed module and what does, and runs the
module's own tests until one fails. Nothing is changed on the disk. A session that was ended goes on where it
stood; where tests have changed, only what none of them saw is tried anew, and where the module has,
everything.

``mutants.json`` has the counts, and each change that no test saw. Why such a change may stay is told in
``equivalent.toml``, which is kept by hand. Both are summed up in a table of ``docs/reliability.md``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import re
import resource
import select
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("mutants.json")
EXPLAINED = Path(__file__).with_name("equivalent.toml")
DOCUMENT = ROOT / "docs" / "reliability.md"
WORK = ROOT / ".faults" / "mutants"
_BEGIN, _END = "<!-- mutants -->\n", "<!-- /mutants -->\n"
_AT_ONCE = 2
# A change may make a loop endless: it is over after so many times what all tests take, and some seconds more.
_TIMES, _MORE_S = 5.0, 5.0
_MOST_BYTES = 4 << 30
# Hypothesis tries so many examples: a change that only more of them would show counts as not seen.
_EXAMPLES = 30
_SURVIVED, _TIMED_OUT = "", "the time was over"
# pytest's statuses of a run that did not come to the tests for a reason that no change can be.
_NOT_RUN = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
_UNLIKELY = re.compile(
    "BinaryOperator_(Add|Sub|Mul|Div|FloorDiv|Mod|Pow)_(RShift|LShift|Bit)"
    "|ComparisonOperator_(Eq|NotEq|Lt|LtE|Gt|GtE)_Is"
)
_ORDERS = re.compile("ComparisonOperator_(Eq|NotEq)_(Lt|LtE|Gt|GtE)$")
_WITH_A_TEXT = re.compile(r"[=!]= ?[\"']")
# Which tests are those of a module.
MODULES: Mapping[str, Sequence[str]] = {
    "perfkit/gating/exit_code.py": ["tests/verdict/test_exit_code.py"],
    "perfkit/stats/interval.py": ["tests/stats/test_interval.py"],
    "perfkit/stats/planning.py": ["tests/stats/test_planning.py"],
    "perfkit/stats/binomial.py": ["tests/stats/test_binomial.py"],
    "perfkit/gating/judge.py": ["tests/verdict/test_judge.py"],
    "perfkit/gating/exact.py": [
        "tests/verdict/test_exact.py",
        "tests/verdict/test_instructions.py",
        "tests/verdict/test_numbers.py",
    ],
    "perfkit/stats/location.py": ["tests/stats/test_location.py"],
    "perfkit/stats/components.py": ["tests/stats/test_components.py"],
    "perfkit/stats/summary.py": ["tests/stats/test_summary.py"],
    "perfkit/stats/settling.py": ["tests/stats/test_settling.py"],
    "perfkit/stats/apart.py": ["tests/stats/test_apart_spread.py"],
    "perfkit/stats/assumptions.py": ["tests/verdict/test_assumptions.py"],
    "perfkit/stats/graph.py": ["tests/stats/test_graph.py"],
    "perfkit/stats/crossing.py": ["tests/stats/test_crossing.py"],
    "perfkit/stats/information.py": ["tests/stats/test_bisection.py"],
    "perfkit/stats/common_factor.py": ["tests/stats/test_common_factor.py"],
    "perfkit/stats/bisection.py": ["tests/stats/test_bisection.py"],
    "perfkit/stats/step_chain.py": ["tests/stats/test_step_chain.py"],
    "perfkit/stats/change_points.py": [
        "tests/stats/test_change_points.py",
        "tests/stats/test_change_point_parts.py",
    ],
    "perfkit/gating/acceptance.py": ["tests/verdict/test_acceptance.py", "tests/verdict/test_exact.py"],
    "perfkit/gating/apart.py": ["tests/verdict/test_apart_verdict.py"],
    "perfkit/gating/assumptions.py": ["tests/verdict/test_assumptions.py"],
    "perfkit/gating/calibration.py": ["tests/verdict/test_calibration_report.py"],
    "perfkit/gating/disagreement.py": ["tests/verdict/test_disagreement.py"],
    "perfkit/features/experiments/effects.py": ["tests/verdict/test_effects.py"],
    "perfkit/features/experiments/rows.py": ["tests/verdict/test_experiment_rows.py"],
    "perfkit/gating/fitness.py": ["tests/verdict/test_fitness.py"],
    "perfkit/gating/from_rows.py": ["tests/verdict/test_from_rows.py"],
    "perfkit/gating/surroundings.py": ["tests/verdict/test_surrounding_devices.py"],
    "perfkit/features/tricks/verdict.py": ["tests/verdict/test_trick_results.py"],
    "perfkit/gating/budget.py": ["tests/compare/test_budget.py"],
    "perfkit/gating/prior.py": ["tests/compare/test_prior.py"],
    "perfkit/gating/counts.py": ["tests/compare/test_counts.py"],
    "perfkit/gating/plan.py": ["tests/compare/test_plan.py"],
    "perfkit/gating/recompute.py": ["tests/compare/test_recompute.py"],
    "perfkit/gating/sequential.py": ["tests/compare/test_sequential.py"],
    "perfkit/runner/lockstep/pace.py": ["tests/measure/test_pace.py"],
    "perfkit/runner/lockstep/schedule.py": ["tests/measure/test_schedule.py"],
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of a module: ``was`` and ``becomes`` are a line of it, and ``code`` is all of it."""

    place: str
    operator: str
    was: str
    becomes: str
    code: str = field(repr=False)

    @property
    def key(self) -> str:
        """What names it within its module."""
        return f"{self.place} {self.operator} {self.becomes}"


def mutants_of(module: str) -> list[Mutant]:
    """Return the changes of a module that can be compiled.

    Left out are those of annotations, which are never computed, and of the star behind which a function's
    arguments are given by name: it keeps callers from a mistake and computes nothing. Arithmetic becomes no
    operation on bits, and a comparison none of identity, nor of order with a text: nobody writes these by
    mistake.
    """
    # Only `make mutants` installs it.
    from cosmic_ray.ast import get_ast  # type: ignore[import-not-found,import-untyped,unused-ignore]

    source = (ROOT / module).read_text()
    passed_over = _never_computed(source)
    found, before = [], ""
    # One function or class after the other: the whole module need not be parsed for each change.
    for part in [child.get_code() for child in get_ast(source).children]:
        behind = source[len(before) + len(part) :]
        for place, operator, changed in _changes_of(part):
            line = before.count("\n") + place[0]
            code = before + changed + behind
            if not any(begin <= (line, place[1]) < end for begin, end in passed_over) and _compiles(code):
                found.append(_mutant((line, place[1]), operator, source, code))
        before += part
    return found


def _changes_of(part: str) -> Iterator[tuple[tuple[int, int], str, str]]:
    """Yield each change of a piece of code: its line and column, its kind, and the code with it."""
    from cosmic_ray import plugins  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found,import-untyped,unused-ignore]

    nodes, lines = list(ast_nodes(get_ast(part))), part.splitlines()
    for name in plugins.operator_names():
        kind = plugins.get_operator(name)
        if kind.arguments() or _UNLIKELY.search(name):
            continue
        operator = kind()
        places = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(places):
            if _ORDERS.search(name) and _WITH_A_TEXT.match(lines[place[0] - 1], place[1]):
                continue
            changed = mutate_code(part, operator, occurrence)
            if changed is not None:
                yield place, name.removeprefix("core/"), changed


def _mutant(place: tuple[int, int], operator: str, source: str, code: str) -> Mutant:
    was, becomes = (" ".join(text.splitlines()[place[0] - 1].split()) for text in (source, code))
    return Mutant(
        place=f"{place[0]}:{place[1]}",
        operator=operator,
        was=was,
        becomes="" if operator == "RemoveDecorator" else becomes,
        code=code,
    )


def _compiles(code: str) -> bool:
    try:
        compile(code, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _never_computed(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where annotations begin and end, and the stars of signatures."""
    ranges = []
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            one = getattr(node, name, None)
            if isinstance(one, ast.expr):
                ranges.append(((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0)))
    for number, line in enumerate(source.splitlines(), 1):
        ranges += [
            ((number, column), (number, column + 1))
            for column in range(len(line))
            if line.startswith(("*, ", "*,"), column) and line[:column].rstrip()[-1:] in {"(", ",", ""}
        ]
    return ranges


class _Changed(MetaPathFinder):
    """Finds a module changed, whose code is not that of its file."""

    def __init__(self, module: str, code: str) -> None:
        self._name = module.removesuffix(".py").replace("/", ".")
        self._file, self._code = ROOT / module, code

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Find the changed module, and no other."""
        if fullname != self._name:
            return None
        loader = _ChangedLoader(fullname, str(self._file))
        loader.code = self._code
        return spec_from_file_location(fullname, self._file, loader=loader)


class _ChangedLoader(SourceFileLoader):
    code = ""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        """Compile the change, and keep nothing of it."""
        code: CodeType = compile(self.code, self.path, "exec", dont_inherit=True)
        return code


class _Watch:
    """Has the most telling tests run first, and keeps how long each took and which one failed."""

    def __init__(self, costs: Mapping[str, float]) -> None:
        self.costs, self.failed = costs, ""
        self.took: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.costs.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.took[report.nodeid] += report.duration
        if report.failed:
            self.failed = report.nodeid


def _run_tests(tests: Sequence[str], watch: _Watch) -> int:
    """Run tests in this process, without what only tests of commands need."""
    from hypothesis import Phase, settings

    # A busy machine is no failure, what is tried is the same for all changes, and an example that fails is
    # enough: the smallest one is not looked for.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, max_examples=_EXAMPLES, phases=phases
    )
    settings.load_profile("mutants")
    options = ["-x", "-q", "--noconftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(ROOT)]
    return int(pytest.main([*options, *(str(ROOT / test) for test in tests)], plugins=[watch]))


@dataclass(kw_only=True)
class _Trial:
    """A fork that runs tests: its process, its end as something to wait for, and what it says."""

    mutant: Mutant | None
    pid: int
    ended: int
    said: int
    until: float
    late: bool = False

    def finish(self) -> tuple[int, str]:
        """Return its status and what it said, and let nothing of it stay."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with os.fdopen(self.said, "rb") as pipe:
            said = pipe.read().decode()
        os.close(self.ended)
        return status, said


class _Bench:
    """Tries the changes of one module by its tests, several at once."""

    def __init__(self, module: str) -> None:
        self._module, self._tests = module, MODULES[module]
        self._took: Mapping[str, float] = {}
        self._seen = Counter[str]()

    def warm_up(self) -> None:
        """Run the tests without a change, and import whatever libraries they needed."""
        trial = self._start(None, limit_s=600.0)
        told = b""
        while part := os.read(trial.said, 1 << 16):
            told += part
        select.select([trial.ended], [], [])
        status, _ = trial.finish()
        if status:
            sys.exit(f"{self._module}: its tests fail without a change (status {status}): run them first")
        found = json.loads(told)
        self._took = found["took"]
        for name in found["modules"]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        # Whether changes arrive at all: without anything in the module, no test of it can pass.
        empty = Mutant(place="1:0", operator="Empty", was="", becomes="", code="")
        if [_SURVIVED] == [seen_by for _, seen_by in self.try_all([empty])]:
            sys.exit(f"{self._module}: its tests pass without anything in it, so that they show nothing")

    def try_all(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Yield each change with the test that saw it, empty where none did."""
        limit_s = _TIMES * sum(self._took.values()) + _MORE_S
        waiting, running = list(reversed(mutants)), dict[int, _Trial]()
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                trial = self._start(waiting.pop(), limit_s=limit_s)
                running[trial.ended] = trial
            left_s = min(trial.until for trial in running.values()) - time.monotonic()
            ready, _, _ = select.select(list(running), [], [], max(0.0, left_s))
            if not ready:
                late = min(running.values(), key=lambda trial: trial.until)
                late.late, ready = True, [late.ended]
            for descriptor in ready:
                yield self._outcome(running.pop(descriptor))

    def _outcome(self, trial: _Trial) -> tuple[Mutant, str]:
        status, said = trial.finish()
        assert trial.mutant is not None
        if trial.late:
            return trial.mutant, _TIMED_OUT
        if status in _NOT_RUN:
            sys.exit(f"{self._module}: pytest ended with status {status} and ran nothing")
        self._seen[said] += 1
        return trial.mutant, (said or f"status {status}") if status else _SURVIVED

    def _start(self, mutant: Mutant | None, *, limit_s: float) -> _Trial:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._run(mutant, writing)
        os.close(writing)
        return _Trial(
            mutant=mutant,
            pid=pid,
            ended=os.pidfd_open(pid),
            said=reading,
            until=time.monotonic() + limit_s,
        )

    def _run(self, mutant: Mutant | None, descriptor: int) -> NoReturn:
        """Run the tests in this process, which is a fork, say what came of it, and end."""
        status = 1
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(nothing, standard)
            if mutant is not None:
                sys.meta_path.insert(0, _Changed(self._module, mutant.code))
            costs = {test: took / (1 + self._seen[test]) for test, took in self._took.items()}
            watch = _Watch(costs)
            status = _run_tests(self._tests, watch)
            said = (
                watch.failed
                if mutant
                else json.dumps({"took": watch.took, "modules": _unchanged(self._module)})
            )
            with os.fdopen(descriptor, "w") as pipe:
                pipe.write(said)
        finally:
            os._exit(status)


def _unchanged(module: str) -> list[str]:
    """Return the modules that were imported and stay what they are whatever becomes of one of perfkit's.

    Those are the libraries, and of perfkit what does not import the module, directly or by way of others.
    """
    own = {name: file for name, file in _loaded_files().items() if file.startswith(f"{ROOT}{os.sep}")}
    imports = {name: _imports_of(Path(file)) for name, file in own.items()}
    follow = {module.removesuffix(".py").replace("/", ".")}
    while more := {name for name, wanted in imports.items() if wanted & follow} - follow:
        follow |= more
    return [
        name for name in _loaded_files() if name not in own or (_is_perfkits(name) and name not in follow)
    ]


def _is_perfkits(name: str) -> bool:
    return name.partition(".")[0] == "perfkit"


def _loaded_files() -> dict[str, str]:
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return {name: file for name, file in files.items() if file}


def _imports_of(file: Path) -> set[str]:
    """Return what a file imports anywhere in it, names of modules and names within them alike."""
    found = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.ImportFrom):
            # The agent alone imports in this way: whatever it may mean counts.
            package = ".".join(file.relative_to(ROOT).parts[: -node.level])
            base = f"{package}.{node.module}" if node.module else package
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


class Journal:
    """What came of the changes of one module, a line each; it begins anew once the module has changed."""

    def __init__(self, module: str) -> None:
        WORK.mkdir(parents=True, exist_ok=True)
        self._file = WORK / f"{module.removesuffix('.py').replace('/', '.')}.jsonl"
        self._about = {
            "module": _digest([module]),
            "tests": _digest([__file__, *MODULES[module]]),
        }

    def outcomes(self) -> dict[str, str]:
        """Return what is known still: which test saw each change, where one did.

        What none saw counts only for the tests of today.
        """
        lines = (
            [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []
        )
        known = [one for one in lines if one["module"] == self._about["module"]]
        return {
            one["mutant"]: one["seen_by"]
            for one in known
            if one["seen_by"] != _SURVIVED or one["tests"] == self._about["tests"]
        }

    def add(self, mutant: Mutant, seen_by: str) -> None:
        """Keep what came of a change."""
        with self._file.open("a") as file:
            file.write(json.dumps({**self._about, "mutant": mutant.key, "seen_by": seen_by}) + "\n")


def _digest(files: Sequence[str]) -> str:
    return hashlib.sha256(b"".join((ROOT / file).read_bytes() for file in files)).hexdigest()[:16]


def explanation(mutant: Mutant, module: str) -> str | None:
    """Return why a change that no test sees may stay, as ``equivalent.toml`` tells, None where it does not.

    An entry names the line as it is and as it becomes; one for all modules names a part of the line and the
    kind of change.
    """
    told = tomllib.loads(EXPLAINED.read_text())
    for entry in told["everywhere"]:
        if entry["part"] in mutant.was and mutant.operator in entry["changes"]:
            return str(entry["why"])
    for entry in told.get(module, []):
        if entry["line"] == mutant.was and mutant.becomes in entry["becomes"]:
            return str(entry["why"])
    return None


def try_module(module: str) -> None:
    """Try what is not known yet of a module's changes, and keep the counts."""
    began = time.monotonic()
    mutants, journal = mutants_of(module), Journal(module)
    known = journal.outcomes()
    new = [mutant for mutant in mutants if mutant.key not in known]
    if new:
        bench = _Bench(module)
        bench.warm_up()
        for mutant, seen_by in bench.try_all(new):
            journal.add(mutant, seen_by)
            known[mutant.key] = seen_by
    unseen = [mutant for mutant in mutants if known[mutant.key] == _SURVIVED]
    left = [mutant for mutant in unseen if explanation(mutant, module) is None]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[module] = {
        "tried": len(mutants),
        "killed": len(mutants) - len(unseen),
        "explained": len(unseen) - len(left),
        "survivors": [f"{one.place} {one.operator}: {one.was} -> {one.becomes}" for one in left],
    }
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    for mutant in left:
        sys.stdout.write(f"  {mutant.place} {mutant.operator}\n    {mutant.was}\n    {mutant.becomes}\n")
    sys.stdout.write(
        f"{module}: of {len(mutants)} changes {len(mutants) - len(unseen)} are seen and "
        f"{len(unseen) - len(left)} explained, {len(left)} are left; tried {len(new)} "
        f"in {time.monotonic() - began:.0f} s\n"
    )


def table_of(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counts as a table in Markdown."""
    lines = [
        "| module | changes | seen by a test | explained | left |",
        "| :--- | ---: | ---: | ---: | ---: |",
    ]
    for module, one in results.items():
        numbers = (one["tried"], one["killed"], one["explained"], len(one["survivors"]))
        lines.append(f"| `{module}` | {' | '.join(map(str, numbers))} |")
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Try the changes of some modules, by default of all that are known, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="by default all that are known")
    parser.add_argument("--report", action="store_true", help=f"write {DOCUMENT.name}, and do nothing else")
    said = parser.parse_args()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    for module in [] if said.report else said.modules or MODULES:
        # What one module's process has imported may depend on the next one.
        pid = os.fork()
        if pid == 0:
            try_module(module)
            sys.exit()
        if os.waitpid(pid, 0)[1]:
            sys.exit(f"{module} could not be tried")
    before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    table = table_of(json.loads(RESULTS.read_text()))
    DOCUMENT.write_text(before + _BEGIN + table + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
