"""Times perfkit beside pytest-benchmark and asv on equal histories: `make peers-history`.

A repository of its own has a commit for each run. The runs are written as a ledger, and exported for the
other two, so that all of them read the same times. Whole commands are timed in turns, and medians compared.
What was found is written to ``beside.json``, and as a table to ``docs/measured/speed.md``.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import generate
import git
import pyarrow as pa

from perfkit.commands.text_files import replace_between_markers
from perfkit.ledger.files import write_table
from perfkit.ledger.schema import SCHEMA
from perfkit.report.markdown_table import table_head, table_row
from perfkit.runner.machine.facts import read_machine

HERE = Path(__file__).parent
OUTCOMES = HERE / "beside.json"
DOCUMENT = HERE.parents[1] / "docs/measured/speed.md"
RUNS, BENCHMARKS = 1000, 100
TURNS = 5


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A command of a tool, and the seconds of processor time that it took each time."""

    title: str
    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.seconds)


def main() -> None:
    """Make the histories, time all commands, and write the table."""
    with tempfile.TemporaryDirectory(prefix="beside-") as name:
        folder = Path(name)
        print(f"writing {RUNS} runs of {BENCHMARKS} benchmarks", flush=True)
        repository, ledger = make_history(folder)
        perfkit = [sys.executable, "-m", "perfkit"]
        export(perfkit, repository, ledger, "pytest-benchmark", folder / "saved/machine")
        export(perfkit, repository, ledger, "asv", folder / "asv-results")
        configuration = configure_asv(folder, repository)
        at = ("--ledger", str(ledger))
        lists = {
            "pytest-benchmark compare": [
                *(str(Path(sys.executable).with_name("pytest-benchmark")), "--storage"),
                *(f"file://{folder / 'saved'}", "compare"),
            ],
            "perfkit ledger list": [*perfkit, "ledger", "list", *at],
            "perfkit log": [*perfkit, "log", *at, "--out", str(folder / "log.md")],
        }
        found = in_turns(lists, repository, TURNS)
        publish = {
            "asv publish": [sys.executable, "-m", "asv", "--config", str(configuration), "publish"],
            "perfkit report": [*perfkit, "report", *at, "--out", str(folder / "site")],
        }
        newest = max(ledger.glob("*.parquet"))
        found |= in_turns(publish, repository, 1)
        aside = newest.rename(folder / newest.name)
        in_turns({"perfkit report": publish["perfkit report"]}, repository, 1)
        aside.rename(newest)
        found |= in_turns({"the same, one more run": publish["perfkit report"]}, repository, 1)
    OUTCOMES.write_text(json.dumps(outcome(found), indent=1) + "\n")
    text = replace_between_markers(
        DOCUMENT.read_text(), table(json.loads(OUTCOMES.read_text())), name="beside"
    )
    DOCUMENT.write_text(text)
    print(table(json.loads(OUTCOMES.read_text())))


def make_history(folder: Path) -> tuple[Path, Path]:
    """Return a repository with a commit for each run, and the ledger that has measurements of them all."""
    root, ledger = folder / "project", folder / "ledger"
    repository = git.Repo.init(root, initial_branch="main")
    scale = generate.Scale(runs=RUNS, benchmarks=BENCHMARKS)
    stream = []
    for number in range(RUNS):
        seconds = int(generate.commit_time(scale, number).timestamp())
        stream.append(
            f"commit refs/heads/main\nmark :{number + 1}\ncommitter A <a@example.org> {seconds} +0000\n"
            f"data <<END\nChange {number}\nEND\nM 100644 inline model.py\ndata <<END\nN = {number}\nEND\n"
        )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input="".join(stream).encode(), check=True)
    repository.git.checkout("--quiet", "main")
    shas = repository.git.rev_list("--reverse", "main").split()
    place = SCHEMA.get_field_index("commit")
    for sha, (stem, run) in zip(shas, generate.tables(scale), strict=True):
        write_table(
            run.set_column(place, "commit", pa.array([sha] * len(run), pa.string())),
            ledger / f"{stem}.parquet",
        )
    return root, ledger


def export(perfkit: Sequence[str], root: Path, ledger: Path, name: str, out: Path) -> None:
    """Write the ledger in another tool's format."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [*perfkit, "ledger", "export", "--format", name, "--ledger", str(ledger), "--out", str(out)]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)


def configure_asv(folder: Path, root: Path) -> Path:
    """Return the configuration by which asv publishes the exported results."""
    (folder / "suite").mkdir()
    settings = {
        "version": 1,
        "project": "project",
        "repo": str(root),
        "branches": ["main"],
        "environment_type": "existing",
        "benchmark_dir": str(folder / "suite"),
        "results_dir": str(folder / "asv-results"),
        "html_dir": str(folder / "asv-site"),
        "env_dir": str(folder / "asv-env"),
    }
    file = folder / "asv.conf.json"
    file.write_text(json.dumps(settings))
    return file


def in_turns(commands: Mapping[str, Sequence[str]], root: Path, turns: int) -> dict[str, Timed]:
    """Return the processor time of commands, which run one after the other, so many times each."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, command in commands.items():
            begun = _spent()
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
            seconds[name].append(_spent() - begun)
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
            print(f"{name}: {seconds[name][-1]:.2f} s", flush=True)
    return {name: Timed(title=name, seconds=taken) for name, taken in seconds.items()}


def _spent() -> float:
    """Return the processor time of all commands until now: neighbours on the machine lengthen the other."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def outcome(found: Mapping[str, Timed]) -> dict[str, object]:
    """Return what is kept of a comparison."""
    facts = read_machine().facts
    return {
        "machine": f"{facts['cpu']}, {facts['logical_cpus']} CPUs",
        "load": os.getloadavg()[1],
        "runs": RUNS,
        "benchmarks": BENCHMARKS,
        "seconds": {name: list(one.seconds) for name, one in found.items()},
    }


def table(kept: Mapping[str, object]) -> str:
    """Return the table of a comparison, as markdown."""
    seconds = kept["seconds"]
    assert isinstance(seconds, dict)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    size = f"{kept['runs']} runs of {kept['benchmarks']} benchmarks, a commit each, uncompacted"
    lines = [
        f"{size}; {kept['machine']}. Whole commands, medians of {TURNS} turns (the last three once).",
        "",
        *table_head(["command", "processor seconds", "perfkit is quicker"]),
    ]
    other = ""
    for name, median in medians.items():
        # Those of perfkit follow what they are compared with.
        if is_other := name in ("asv publish", "pytest-benchmark compare"):
            other = name
        times = "" if is_other else f"{medians[other] / median:.1f} times"
        lines.append(table_row([f"`{name}`", f"{median:.2f}", times]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
