"""First benchmarks: those of the candidates that run, tried in a process of their own, as a file of tests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from perfkit.features.init.candidates import module_of
from perfkit.features.init.child import Order, Step
from perfkit.features.init.records import Candidate, FirstBenchmark
from perfkit.repo.environments import is_of_another_system
from perfkit.runner.commands import Ending, python_command, run_command
from perfkit.temporary import temporary_folder
from perfkit.units import human_seconds

_ENOUGH = 5
_LIMIT_S = 90.0
_MEMORY_BYTES = 8_000_000_000
# A gate decides calls of these times in seconds; what takes longer is kept where there is nothing else.
_SHORTEST_S, _LONGEST_S = 1e-5, 0.05
_LEAST_S, _MOST_S = 2e-6, 1.0
_MOST_CANDIDATES = 400


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The benchmarks that ran, how many candidates were tried, and the first reason why one did not run."""

    kept: tuple[FirstBenchmark, ...]
    tried: int
    import_problem: str | None = None


def try_candidates(
    candidates: Sequence[Candidate],
    *,
    root: Path,
    sources: Sequence[str],
    limit_s: float = _LIMIT_S,
    log: Callable[[str], None],
) -> Tried:
    """Try candidates in order until enough ran, or the time is over."""
    left = list(candidates[:_MOST_CANDIDATES])
    kept: list[FirstBenchmark] = []
    reserve: list[FirstBenchmark] = []
    problems: list[str] = []
    tried, deadline = 0, time.monotonic() + limit_s
    while left and len(kept) < _ENOUGH and time.monotonic() < deadline:
        log(f"trying which of {len(left)} functions and classes can be called")
        order = Order(
            root=str(root),
            sources=tuple(sources),
            candidates=tuple(left),
            enough=_ENOUGH - len(kept),
            times_s=(_LEAST_S, _SHORTEST_S, _LONGEST_S, _MOST_S),
            memory_bytes=_MEMORY_BYTES,
        )
        steps, ending = _run(order, deadline - time.monotonic())
        good, others = _sorted_out(steps, left)
        kept, reserve = [*kept, *good], [*reserve, *others]
        problems += [step.problem for step in steps if step.problem and step.attempt < 0]
        last = max((step.candidate for step in steps), default=len(left))
        tried += min(last + 1, len(left))
        if ending.status == 0:
            break
        modules = {one.candidate.module for one in kept}
        left = [one for one in left[last + 1 :] if one.module not in modules]
    modules = {one.candidate.module for one in kept}
    for one in reserve:
        if len(kept) < _ENOUGH and one.candidate.module not in modules:
            kept.append(one)
            modules.add(one.candidate.module)
    # A module that is meant for another system keeps nobody from measuring the others.
    problems.sort(key=lambda problem: is_of_another_system(_module_of(problem)))
    return Tried(kept=tuple(kept), tried=tried, import_problem=problems[0] if problems else None)


def _module_of(problem: str) -> str:
    """Return the module that an import did not find, as its message names it."""
    return problem.rpartition("No module named ")[2].strip("'")


def _run(order: Order, limit_s: float) -> tuple[list[Step], Ending]:
    with temporary_folder() as folder:
        ordered, answer, place = folder / "order.json", folder / "answer", folder / "place"
        place.mkdir()
        ordered.write_bytes(msgspec.json.encode(order))
        ending = run_command(
            python_command("perfkit.features.init.child", str(ordered), str(answer)),
            output=folder / "output.log",
            limit_s=limit_s,
            folder=place,
        )
        return _steps(answer), ending


def _steps(answer: Path) -> list[Step]:
    try:
        lines = answer.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    steps = []
    for line in lines:
        try:
            steps.append(msgspec.json.decode(line, type=Step))
        except msgspec.DecodeError:
            # The process was ended while it wrote its last line.
            break
    return steps


def _sorted_out(
    steps: Sequence[Step], candidates: Sequence[Candidate]
) -> tuple[list[FirstBenchmark], list[FirstBenchmark]]:
    """Return what ran and takes a good time, and what ran and takes a passable one, each once."""
    good: dict[int, FirstBenchmark] = {}
    others: dict[int, FirstBenchmark] = {}
    for step in steps:
        if step.call_s is not None and _LEAST_S <= step.call_s <= _MOST_S:
            candidate = candidates[step.candidate]
            one = FirstBenchmark(
                candidate=candidate, attempt=candidate.attempts[step.attempt], call_s=step.call_s
            )
            into = good if _SHORTEST_S <= step.call_s <= _LONGEST_S else others
            into.setdefault(step.candidate, one)
    return list(good.values()), [one for number, one in others.items() if number not in good]


def benchmark_file(kept: Sequence[FirstBenchmark], *, project: str, optional: bool) -> str:
    """Return the file of first benchmarks; an ``optional`` one is skipped without pytest-benchmark."""
    named = list(_with_names(kept))
    imports = sorted({line for one in kept for line in one.attempt.imports}, key=_import_order)
    heading: tuple[str, ...] = (
        f'"""First benchmarks of {project}, written by `perfkit init`: change them, add others, delete them.',
        "",
        "Each was run once before it was written here. Data as large as yours would tell more.",
        '"""',
        "",
    )
    if optional:
        heading += ("import pytest", "", 'pytest.importorskip("pytest_benchmark")', "")
        imports = [f"{line}  # noqa: E402" for line in imports]
    parts = ["\n".join((*heading, *imports))]
    for name, one in named:
        told = f'"""{one.candidate.name}: {human_seconds(one.call_s)} a call when this was written."""'
        lines = [
            f"def test_{name}(benchmark):",
            *(f"    {line}" if line else "" for line in (told, *one.attempt.body)),
        ]
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts) + "\n"


def _with_names(kept: Sequence[FirstBenchmark]) -> Iterator[tuple[str, FirstBenchmark]]:
    """Yield each benchmark with a name of its own."""
    seen: set[str] = set()
    for one in kept:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", one.candidate.name).lower()
        if name in seen:
            name = f"{module_of(one.candidate.file)}_{name}"
        while name in seen:
            name += "_again"
        seen.add(name)
        yield name, one


def _import_order(line: str) -> tuple[bool, str]:
    return line.startswith("from "), line


def renamed_apart(kept: Sequence[FirstBenchmark]) -> tuple[FirstBenchmark, ...]:
    """Return benchmarks whose imports do not take each other's names: a later one has it in its body."""
    taken: dict[str, str] = {}
    result = []
    for one in kept:
        inner = []
        for line in one.attempt.imports:
            names = [part.partition(" as ")[2] or part for part in line.partition("import ")[2].split(", ")]
            if any(taken.get(name, line) != line for name in names):
                inner.append(line)
            else:
                taken |= dict.fromkeys(names, line)
        attempt = replace(
            one.attempt,
            imports=tuple(line for line in one.attempt.imports if line not in inner),
            body=(*inner, *one.attempt.body),
        )
        result.append(replace(one, attempt=attempt))
    return tuple(result)
