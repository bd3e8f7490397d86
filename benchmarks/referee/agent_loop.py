"""A scripted agent that sees a project through `perfkit check --json` alone: ``agent_loop.py [NAME...]``.

Ten regressions are put into projects of Python, numpy and torch. For each the agent has to find it, tries a
fix that is faster and wrong, and then the true one. It asks about the benchmark that became slower first and
about all of them before it keeps a fix: one that the check calls faster, with no other result.
Outcomes are kept in ``agent_loop.json`` beside this file, and what is there is not run again.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent_edits import BENCHMARKS, EDITS, HEADS

KEPT = Path(__file__).with_name("agent_loop.json")


def main() -> None:
    """Run the cases that are missing, and print how many came out as they should."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"cases": {}}
    for name in sys.argv[1:] or [one for one in EDITS if one not in kept["cases"]]:
        kept["cases"][name] = case = _run(name)
        print(f"{name}: {json.dumps(case)}", flush=True)
        kept["cases"] = {one: kept["cases"][one] for one in EDITS if one in kept["cases"]}
        kept["of"] = {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            **{library: version(library) for library in ("numpy", "torch")},
        }
        kept["figures"] = {
            step: sum(one[step]["right"] for one in kept["cases"].values())
            for step in ("found", "refused", "confirmed")
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    print(", ".join(f"{step} {count} of {len(kept['cases'])}" for step, count in kept["figures"].items()))
    if any(count < len(EDITS) for count in kept["figures"].values()):
        sys.exit(1)


def _run(name: str) -> dict[str, Any]:
    """Return the answers to a regression, to a wrong fix of it and to the true one."""
    with tempfile.TemporaryDirectory(prefix="agent-loop-") as place:
        root = Path(place, "project")
        root.mkdir()
        _git(root, "init", "--quiet", "--initial-branch", "main")
        _write(root, name, "good")
        (root / "test_speed.py").write_text(BENCHMARKS[EDITS[name].file])
        (root / "pyproject.toml").write_text("[tool.perfkit]\n")
        (root / ".gitignore").write_text("benchmarks/\n__pycache__/\n")
        _commit(root, "Begin")
        _write(root, name, "slow")
        found = _check(root)
        _commit(root, "Rewrite")
        answers = {"found": _summary(found, right=_is_loss(found, f"test_{name}"))}
        # The agent knows the benchmark from the answer alone.
        select = found["benchmarks"][0]["name"]
        _write(root, name, "wrong")
        answer = _check(root, select)
        answers["refused"] = _summary(answer, right=answer["verdict"] in ("other result", "doubtful"))
        _write(root, name, "good")
        quick, whole = _check(root, select), _check(root)
        kept = _is_fix(quick, select) and _is_fix(whole, select)
        return {"trick": EDITS[name].trick, **answers, "confirmed": _summary(whole, right=kept)}


def _is_loss(answer: Mapping[str, Any], benchmark: str) -> bool:
    named = [one["name"] for one in answer["benchmarks"] if one["verdict"] == answer["verdict"]]
    return answer["exit_code"] == 1 and answer["verdict"] in ("slower", "costs more") and named == [benchmark]


def _is_fix(answer: Mapping[str, Any], benchmark: str) -> bool:
    """Return whether the agent keeps a fix of a benchmark."""
    faster = [one["name"] for one in answer["benchmarks"] if one["verdict"] == "faster"]
    other = answer["results"].get("other", 0)
    return (answer["exit_code"], answer["verdict"], other, faster) == (0, "faster", 0, [benchmark])


def _summary(answer: Mapping[str, Any], *, right: bool) -> dict[str, Any]:
    first: Mapping[str, Any] = next(iter(answer["benchmarks"]), {"change_percent": None, "doubts": []})
    change = first["change_percent"]
    return {
        "right": right,
        "exit_code": answer["exit_code"],
        "verdict": answer["verdict"],
        "change_percent": change and change[1],
        "doubts": first["doubts"],
        "results": answer["results"],
        **{key: answer[key] for key in ("seconds", "bytes")},
    }


def _check(root: Path, select: str = "", budget: str = "") -> dict[str, Any]:
    """Return what the command answers, with its seconds and the bytes of its document.

    What is undecided is asked once more, with the budget that the answer names.
    """
    options = [*(("--select", select) if select else ()), *(("--budget", budget) if budget else ())]
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", "check", *options, "--quiet", "--json", "-"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    answer = json.loads(done.stdout)
    _, _, longer = answer["next"].partition(" --budget ")
    if answer["verdict"] == "undecided" and longer and not budget:
        return _check(root, select, longer)
    seconds = round(time.perf_counter() - begun, 1)
    return {**answer, "seconds": seconds, "bytes": len(done.stdout)}


def _write(root: Path, name: str, version_: str) -> None:
    """Write the module of a function, which has a version of its own."""
    file = EDITS[name].file
    functions = [
        getattr(edit, version_ if one == name else "good") for one, edit in EDITS.items() if edit.file == file
    ]
    (root / file).write_text("\n".join([HEADS[file], *functions]))


def _commit(root: Path, subject: str) -> None:
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", subject)


def _git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True)


if __name__ == "__main__":
    main()
