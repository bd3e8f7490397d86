"""Takes the four commands of docs/start.md to others' libraries: ``newcomers.py ARCHIVES WORK [NAME ...]``.

ARCHIVES and WORK are as for strangers.py. Of each library in newcomers.toml the older version is one commit
and the newer one the next. In a repository of theirs ``perfkit init --yes`` writes what it finds, that is
committed, and ``perfkit gate --base HEAD~2`` compares the versions; nothing else is set and no file of theirs
is edited. Run it by the Python of an environment that has a wheel of perfkit and what the libraries need.
What came out is kept in newcomers.json beside this file, and the gates' launches in the ledger there.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import strangers
from git import Repo

from perfkit.ledger.store import Ledger

OUTCOMES = strangers.HERE / "newcomers.json"
CASES = strangers.HERE / "newcomers.toml"
# What "five minutes to a gate" leaves for both commands together.
LIMIT_S = 300.0


def main() -> None:
    """Study the libraries that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    outcomes: dict[str, Any] = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    for case in tomllib.loads(CASES.read_text())["case"]:
        if asked.names and case["name"] not in asked.names:
            continue
        root = strangers.repository(case, asked.archives, asked.work)
        outcomes[case["name"]] = begun(case, root)
        OUTCOMES.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n")
        print(case["name"], json.dumps(outcomes[case["name"]]), flush=True)
    Ledger(strangers.LEDGER).compact()
    strangers.fill(table(outcomes), of="newcomers.py")


def begun(case: dict[str, Any], root: Path) -> dict[str, Any]:
    """Begin with perfkit in a repository, and report how long it took and what came out."""
    repo = Repo(root)
    theirs = {str(entry[0]) for entry in repo.index.entries}
    done, init_s = strangers.run([str(strangers.BIN / "perfkit"), "init", "--yes"], case, root)
    printed = (done.stdout + done.stderr).strip()
    (root.parent / f"{case['name']}.init.txt").write_text(printed + "\n")
    changed = {line[3:] for line in repo.git.status("--porcelain", "--untracked-files=all").splitlines()}
    repo.git.add("--all")
    repo.index.commit("Measure performance with perfkit", author=strangers.AUTHOR, committer=strangers.AUTHOR)
    return {
        "init": {
            "exit_code": done.returncode,
            "seconds": round(init_s, 1),
            "written": sorted(changed - theirs),
            "appended": sorted(changed & theirs),
        },
        "gate": strangers.gated(case, root, "--base", "HEAD~2"),
    }


def table(outcomes: dict[str, Any]) -> list[str]:
    """Return the lines of the table: a library a line, in the order of the cases."""
    lines = [
        "| library | versions | special | init | the gate | gate, in all | exit | would find |",
        "| :--- | :--- | :--- | ---: | :--- | ---: | ---: | ---: |",
    ]
    for case in tomllib.loads(CASES.read_text())["case"]:
        if case["name"] in outcomes:
            init, gate = (outcomes[case["name"]][part] for part in ("init", "gate"))
            versions, whole_s = ", ".join(case["versions"]), init["seconds"] + gate["seconds"]
            came_out = strangers.listed(gate["verdicts"]) or _reason(gate["said"])
            lines.append(
                f"| {case['name']} | {versions} | {case['special']} | {init['seconds']:.0f} s"
                f" | {came_out} | {gate['seconds']:.0f} s, {whole_s:.0f} s"
                f" | {gate['exit_code']} | {strangers.detectable(gate)} |"
            )
    return lines


def _reason(printed: str) -> str:
    """Return why a gate was refused, without what it advises: ``perfkit: REASON: ADVICE``."""
    return printed.removeprefix("perfkit: ").partition(": ")[0]


if __name__ == "__main__":
    main()
