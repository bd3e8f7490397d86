"""Runs the study of the gate's error rates: ``python benchmarks/calibration/study.py [LEDGER]``.

Each case is a gate between two real commits of a repository made for it, run as anyone would run it, with
the default budget. What is measured goes to a ledger of its own; a case that is there already is not run
again, so a study that was stopped goes on where it stood. ``outcomes.jsonl`` beside the ledger has a line
for each gate that ran, those that failed included.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import git
from plan import BENCHMARKS, Case, plan_study

HERE = Path(__file__).parent
DEFAULT_LEDGER = HERE / "ledger"
_CASE_MINUTES = 1.3
_PYPROJECT = '[tool.pytest.ini_options]\npython_files = ["bench_*.py"]\n'


def main() -> None:
    """Run what is left of the study."""
    ledger = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_LEDGER
    ledger.mkdir(parents=True, exist_ok=True)
    cases = plan_study()
    done = {outcome["subject"] for outcome in read_outcomes(ledger)}
    left = [case for case in cases if case.subject not in done]
    minutes = round(_CASE_MINUTES * len(left))
    print(f"{len(cases) - len(left)} of {len(cases)} cases are done; about {minutes} minutes are left")
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        repository = create_suite(Path(folder) / "suite")
        for case in left:
            outcome = run_case(case, repository, ledger)
            with (ledger / "outcomes.jsonl").open("a") as stream:
                stream.write(json.dumps(outcome) + "\n")
            print(f"{case.subject}: exit {outcome['exit_code']}, {outcome['wall_s']:.1f} s", flush=True)


def read_outcomes(ledger: Path) -> list[dict[str, object]]:
    """Return what is known of the gates that ran, in order."""
    file = ledger / "outcomes.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def create_suite(root: Path) -> git.Repo:
    """Return a repository whose one commit is the undosed suite."""
    shutil.copytree(HERE / "suite", root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").write_text(_PYPROJECT)
    (root / ".gitignore").write_text("__pycache__/\n")
    repository = git.Repo.init(root, initial_branch="main")
    with repository.config_writer() as config:
        config.set_value("user", "name", "perfkit calibration")
        config.set_value("user", "email", "calibration@example.org")
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "The suite, undosed")
    return repository


def run_case(case: Case, repository: git.Repo, ledger: Path) -> dict[str, object]:
    """Commit the case's doses on top of the undosed suite, gate the two, and return what came out."""
    root = Path(str(repository.working_tree_dir))
    base = repository.git.rev_list("--max-parents=0", "HEAD").strip()
    repository.git.checkout("--quiet", base)
    (root / "doses.py").write_text(doses(case))
    repository.git.commit("--quiet", "--allow-empty", "--all", "-m", case.subject)
    command = [sys.executable, "-m", "perfkit", "gate", "--repo", str(root), "--base", base]
    options = ["--head", "HEAD", "--margin", case.margin, "--ledger", str(ledger), "--seed", str(case.number)]
    begun = time.monotonic()
    done = subprocess.run([*command, *options, "--json", "-"], capture_output=True, text=True, check=False)
    return {
        "subject": case.subject,
        "exit_code": done.returncode,
        "wall_s": time.monotonic() - begun,
        "run_id": json.loads(done.stdout)["run_id"] if done.stdout.startswith("{") else None,
        "benchmarks": len(BENCHMARKS),
        "message": "" if done.stdout.startswith("{") else done.stderr.strip().splitlines()[-1:],
    }


def doses(case: Case) -> str:
    """Return the text of ``doses.py`` with the case's plant in it."""
    text = (HERE / "suite" / "doses.py").read_text()
    if case.benchmark is None:
        return text
    if case.rare is not None:
        return text.replace("int] = {}", f'int] = {{"{case.benchmark}": {case.rare}}}')
    return text.replace(f'"{case.benchmark}": 100', f'"{case.benchmark}": {case.units}')


if __name__ == "__main__":
    main()
