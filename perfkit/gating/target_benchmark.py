"""A script or a function as a benchmark of its own: the file of it that is laid on both sides.

The unit is one whole run: of a script in a new ``__main__``, of a function one call. What both import is
imported in the first, untimed run, as for every benchmark. A script draws the same random numbers each time.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.model import SIDES
from perfkit.model.comparisons import TARGET_FILE
from perfkit.profiling.passes.targets import Target, resolve_target, target_on
from perfkit.repo.checkout import Roots

# A whole training may be silent for so many seconds.
_LIMIT_S = 600
_HEADING = '"""Written by perfkit for a gate of a target: nobody\'s checkout keeps it."""\n'
_SCRIPT = """
import contextlib
import io
import random
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SCRIPT = ROOT / {script!r}
CODE = compile(SCRIPT.read_bytes(), str(SCRIPT), "exec")


def run():
    random.seed(0)
    for library, seeded in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if library in sys.modules:
            function = sys.modules[library]
            for name in seeded.split("."):
                function = getattr(function, name)
            function(0)
    module = types.ModuleType("__main__")
    module.__file__ = str(SCRIPT)
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            exec(CODE, module.__dict__)
    except SystemExit as end:
        if end.code not in (None, 0):
            last = (said.getvalue().strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeError(f"{{SCRIPT.name}} ended with exit status {{end.code}}: {{last}}") from end
    finally:
        sys.modules["__main__"] = before


@pytest.mark.perfkit(limit={limit})
def test_{name}(benchmark, monkeypatch):
    # They stand here, since benchmarks of the same name whose text differs are not taken for the same.
    monkeypatch.setattr(sys, "argv", [str(ROOT / {script!r}), *{arguments!r}])
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.chdir(ROOT)
    benchmark(run)
"""
_FUNCTION = """
import pytest

from {module} import {first}


@pytest.mark.perfkit(limit={limit})
def test_{name}(benchmark):
    benchmark({function})
"""


@dataclass(frozen=True, kw_only=True)
class TargetBenchmark:
    """A target, the words that follow its script on a command line, and its benchmark's text.

    ``script`` is its path from the project's root, None for a function, and ``arguments`` are those words.
    """

    target: Target
    text: str
    script: str | None = None
    arguments: tuple[str, ...] = ()


def target_benchmark(words: str, project: Project, *, folder: Path) -> TargetBenchmark:
    """Return the benchmark of "package.module:function", a configured name, or "train.py --epochs 1".

    Raises:
        UsageError: there is no such script, it lies outside of the project, or words follow a function.
    """
    try:
        name, *arguments = shlex.split(words)
    except ValueError as error:
        raise UsageError(f'--target is not what a shell reads: "{words}": {error}') from error
    target = resolve_target(name, project, folder=folder)
    called = re.sub(r"\W+", "_", Path(name).stem if target.is_script else name).strip("_")
    if not target.is_script:
        if arguments:
            raise UsageError(
                f'--target "{words}": a function is called without arguments; name a function that needs none'
            )
        module, _, function = target.place.partition(":")
        first = function.partition(".")[0]
        text = _FUNCTION.format(module=module, first=first, function=function, name=called, limit=_LIMIT_S)
        return TargetBenchmark(target=target, text=_HEADING + text)
    target_on(target, project.root, project=project.root)
    script = Path(target.place).relative_to(project.root).as_posix()
    text = _SCRIPT.format(script=script, arguments=arguments, name=called, limit=_LIMIT_S)
    return TargetBenchmark(target=target, text=_HEADING + text, script=script, arguments=tuple(arguments))


def lay_target(benchmark: TargetBenchmark, roots: Roots) -> None:
    """Write a target's benchmark on both sides.

    Raises:
        UsageError: a side has no such script.
    """
    for side in SIDES:
        root = roots.root(side)
        if benchmark.script is not None and not (root / benchmark.script).is_file():
            raise UsageError(
                f"{side} has no {benchmark.script}, so there is nothing to compare; commit it, or name"
                f" another commit with --{side}"
            )
        (root / TARGET_FILE).write_text(benchmark.text, encoding="utf-8")
