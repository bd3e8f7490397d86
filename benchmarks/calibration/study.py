"""Runs the study of the gate's error rates: ``python benchmarks/calibration/study.py [LEDGER]``.

Each case is a gate between two real commits of a repository made for it, run as anyone would run it, with
the default budget. What is measured goes to a ledger of its own; a case that is there already is not run
again, so a study that was stopped goes on where it stood. ``outcomes.jsonl`` beside the ledger has a line
for each gate that ran, those that failed included. A gate is begun while ``perfkit doctor`` expects the
smallest slowdown to be found; how often it was put off until then is kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import git
from neutral import change
from plan import FILES, NEWER, UNDOSED, Case, plan_study

HERE = Path(__file__).parent
LEDGERS = HERE / "ledger"
_CASE_MINUTES = 0.6
# Counts are off: they are no part of what is studied, and every slowdown would be given away by them.
_PYPROJECT = """[tool.pytest.ini_options]
python_files = ["bench_*.py"]

[tool.perfkit.exact]
count = false
"""
_SMALLEST_SLOWDOWN, _ITS_MARGIN = 0.03, "1%"


def main() -> None:
    """Run what is left of the study."""
    ledger = Path(sys.argv[1]) if len(sys.argv) > 1 else LEDGERS / NEWER
    ledger.mkdir(parents=True, exist_ok=True)
    cases = plan_study()
    done = {outcome["subject"] for outcome in read_outcomes(ledger)}
    left = [case for case in cases if case.subject not in done]
    minutes = round(_CASE_MINUTES * len(left))
    print(f"{len(cases) - len(left)} of {len(cases)} cases are done; about {minutes} minutes are left")
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        repository = create_suite(Path(folder) / "suite")
        fitness = Fitness()
        for case in left:
            put_off = fitness.await_fit()
            outcome = run_case(case, repository, ledger) | {"put_off": put_off}
            with (ledger / "outcomes.jsonl").open("a") as stream:
                stream.write(json.dumps(outcome) + "\n")
            print(f"{case.subject}: exit {outcome['exit_code']}, {outcome['wall_s']:.1f} s", flush=True)


class Fitness:
    """What ``perfkit doctor`` last found of the machine, believed for ``believed_s`` seconds.

    A machine is fit where the smallest slowdown, at its margin, would be found 19 times of 20 by what doctor
    measures of identical code; an unfit one is asked again ``put_off_s`` seconds later.
    """

    def __init__(self, *, believed_s: float = 600.0, put_off_s: float = 60.0) -> None:
        self._believed_s = believed_s
        self._put_off_s = put_off_s
        self._fit_at: float | None = None

    def await_fit(self) -> int:
        """Return how often the next gate was put off until the machine was fit."""
        put_off = 0
        while not self._is_fit():
            put_off += 1
            print(f"put off for {self._put_off_s:.0f} s: the machine is unfit", flush=True)
            time.sleep(self._put_off_s)
        return put_off

    def _is_fit(self) -> bool:
        if self._fit_at is not None and time.monotonic() - self._fit_at < self._believed_s:
            return True
        command = [sys.executable, "-m", "perfkit", "doctor", "--margin", _ITS_MARGIN, "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout.startswith("{"):
            raise SystemExit(done.stderr.strip() or f"perfkit doctor ended with {done.returncode}")
        effects = [noise["effect"] for noise in json.loads(done.stdout)["noises"]]
        fit = all(effect is not None and effect <= _SMALLEST_SLOWDOWN for effect in effects)
        self._fit_at = time.monotonic() if fit else None
        return self._fit_at is not None


def read_outcomes(ledger: Path) -> list[dict[str, object]]:
    """Return what is known of the gates that ran, in order."""
    file = ledger / "outcomes.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def create_suite(root: Path) -> git.Repo:
    """Return a repository whose one commit is the undosed suite."""
    root.mkdir(parents=True)
    write_files(root, suite_files())
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
    """Commit both sides of the case, gate the two, and return what came out."""
    base, head = commit_sides(case, repository, case.subject)
    root = Path(str(repository.working_tree_dir))
    command = gate_command(case, root=root, base=base, head=head, ledger=ledger)
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "subject": case.subject,
        "exit_code": done.returncode,
        "wall_s": time.monotonic() - begun,
        "run_id": json.loads(done.stdout)["run_id"] if done.stdout.startswith("{") else None,
        "benchmarks": len(case.benchmarks),
        "message": "" if done.stdout.startswith("{") else done.stderr.strip().splitlines()[-1:],
    }


def gate_command(case: Case, *, root: Path, base: str, head: str, ledger: Path) -> list[str]:
    """Return the command that gates a case's sides, with the default budget and settings but for its own."""
    command = [sys.executable, "-m", "perfkit", "gate", "--repo", str(root), "--base", base, "--head", head]
    command += ["--benchmarks", FILES[case.benchmarks], "--margin", case.margin]
    command += ["--ledger", str(ledger), "--seed", str(case.number), "--json", "-"]
    return command if case.fail_on is None else [*command, "--fail-on", case.fail_on]


def commit_sides(case: Case, repository: git.Repo, subject: str) -> tuple[str, str]:
    """Commit the case's base and then its head on top of the undosed suite; return both commits."""
    root = Path(str(repository.working_tree_dir))
    repository.git.checkout("--quiet", "--detach", "main")
    for side, title in (("base", f"{subject}, base"), ("head", subject)):
        write_files(root, side_files(case, side))
        repository.git.add("--all")
        repository.git.commit("--quiet", "--allow-empty", "-m", title)
    return repository.git.rev_parse("HEAD~1"), repository.git.rev_parse("HEAD")


def write_files(root: Path, files: Mapping[str, str]) -> None:
    """Write the Python files of a suite; those that stood there and are none of them go."""
    for file in root.rglob("*.py"):
        file.unlink()
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)


def suite_files() -> dict[str, str]:
    """Return the text of each file of the undosed suite."""
    return {file.name: file.read_text() for file in sorted((HERE / "suite").glob("*.py"))}


def side_files(case: Case, side: str) -> Mapping[str, str]:
    """Return the text of each file of the suite on a side of the case."""
    files = suite_files()
    files["doses.py"] = _dosed(files["doses.py"], case, side)
    if case.neutral is None or side == "base":
        return files
    return change(case.neutral, files, number=case.number)


def _dosed(text: str, case: Case, side: str) -> str:
    """Return ``doses.py`` with the doses of a side."""
    units = case.base if side == "base" else case.head
    text = text.replace(f'"{case.benchmark}": {UNDOSED}', f'"{case.benchmark}": {units}')
    if case.rare is None or side == "base":
        return text
    return text.replace("int] = {}", f'int] = {{"{case.benchmark}": {case.rare}}}')


if __name__ == "__main__":
    main()
