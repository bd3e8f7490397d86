"""Changes one place at a time in what computes and judges, and looks whether the tests see it.

    python tests/faults/mutants.py [MODULE …]

Each module is changed in a copy of the tree, and its tests run against each change (cosmic-ray does both). A
session that was ended goes on where it stood. ``mutants.json`` has the counts, and each change that no test
saw: `docs/reliability.md` says why it may stay.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("mutants.json")
WORK = ROOT / ".faults" / "mutants"
_LIMIT_S = 120
# They change annotations, which are never computed.
_ANNOTATIONS = "core/ReplaceBinaryOperator_BitOr_.*"
# Which tests are those of a module.
MODULES: Mapping[str, Sequence[str]] = {
    "perfkit/verdict/exit_code.py": ["tests/verdict/test_exit_code.py"],
    "perfkit/stats/interval.py": ["tests/stats/test_interval.py"],
    "perfkit/verdict/judge.py": ["tests/verdict/test_judge.py"],
    "perfkit/stats/location.py": ["tests/stats/test_location.py"],
    "perfkit/stats/components.py": ["tests/stats/test_components.py"],
    "perfkit/stats/summary.py": ["tests/stats/test_summary.py"],
    "perfkit/verdict/acceptance.py": ["tests/verdict/test_acceptance.py"],
    "perfkit/verdict/exact.py": ["tests/verdict/test_exact.py"],
    "perfkit/compare/budget.py": ["tests/compare/test_budget.py"],
}


def main(modules: Sequence[str]) -> None:
    """Try the mutants of some modules, by default of all that are known."""
    for module in modules or MODULES:
        tree = _copy(module)
        _try_all(module, tree)
        found = _outcomes(module)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[module] = found
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        sys.stdout.write(f"{module}: {found['killed']} of {found['tried']} seen\n")


def _place(module: str, ending: str) -> Path:
    return WORK / f"{module.removesuffix('.py').replace('/', '.')}{ending}"


def _copy(module: str) -> Path:
    """Return a copy of what the tests need, in which files may be changed."""
    tree = _place(module, "")
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("perfkit", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "ledger"))
    shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
    return tree


def _try_all(module: str, tree: Path) -> None:
    tests = " ".join(MODULES[module])
    command = f"{sys.executable} -B -m pytest -x -q --noconftest -p no:cacheprovider {tests}"
    config, session = _place(module, ".toml"), _place(module, ".sqlite")
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {_LIMIT_S}\nexcluded-modules = []\n'
        f'test-command = "{command}"\n[cosmic-ray.distributor]\nname = "local"\n'
        f'[cosmic-ray.filters.operators-filter]\nexclude-operators = ["{_ANNOTATIONS}"]\n'
    )
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tests'}", "OMP_NUM_THREADS": "1"}
    steps = [["cosmic_ray.cli", "exec", str(config), str(session)]]
    if not session.exists():
        steps.insert(0, ["cosmic_ray.cli", "init", str(config), str(session)])
        steps.insert(1, ["cosmic_ray.tools.filters.operators_filter", str(session), str(config)])
    for step in steps:
        subprocess.run([sys.executable, "-m", *step], cwd=tree, env=environment, check=True)


def _outcomes(module: str) -> dict[str, Any]:
    """Return how many mutants tests saw, and where those are that none saw."""
    # Only `make mutants` installs it.
    from cosmic_ray.work_db import WorkDB, use_db  # type: ignore[import-not-found,unused-ignore]

    survivors: list[str] = []
    tried = killed = 0
    with use_db(str(_place(module, ".sqlite")), WorkDB.Mode.open) as database:
        for item, result in database.completed_work_items:
            if result.test_outcome is None:
                continue
            tried += 1
            if result.test_outcome.value == "survived":
                (mutation,) = item.mutations
                operator = mutation.operator_name.removeprefix("core/")
                survivors.append(f"{mutation.start_pos[0]}:{mutation.start_pos[1]} {operator}")
            else:
                killed += 1
    return {"tried": tried, "killed": killed, "survivors": sorted(survivors)}


if __name__ == "__main__":
    main(sys.argv[1:])
