"""Runs the same pairs of commits through perfkit and its peers: ``python benchmarks/peers/contest.py``.

What each tool said of each pair is a line of ``outcomes.jsonl``; a line that is there is not made again, so
a contest that was stopped goes on. A tool that breaks has a line that says so, and costs only itself.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import git
from pairs import MARGIN, Pair, plan_pairs
from study import commit_sides, create_suite
from tools import RUN, Scene, ToolError, set_up_asv

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.jsonl"
LEDGER = HERE / "ledger" / "2026-11-22"


def main() -> None:
    """Run what is left of the contest, or the first pairs of it: ``contest.py [PAIRS]``."""
    pairs = plan_pairs()[: int(sys.argv[1]) if len(sys.argv) > 1 else None]
    done = {(outcome["pair"], outcome["tool"]) for outcome in read_outcomes()}
    left = [pair for pair in pairs if any((pair.number, tool) not in done for tool in pair.tools)]
    print(f"{len(pairs) - len(left)} of {len(pairs)} pairs are done")
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        repository = create_suite(folder / "suite")
        for number, pair in enumerate(left):
            scene = lay_out(pair, repository, folder)
            if number == 0:
                print("building asv's environment", flush=True)
                set_up_asv(scene)
            for tool in pair.tools:
                if (pair.number, tool) not in done:
                    _keep(pair, tool, scene)


def read_outcomes() -> list[dict[str, object]]:
    """Return what the tools said so far, in order."""
    return [json.loads(line) for line in OUTCOMES.read_text().splitlines()] if OUTCOMES.exists() else []


def lay_out(pair: Pair, repository: git.Repo, folder: Path) -> Scene:
    """Commit the pair's head on a branch of its own, and check both sides out for the tools that need it."""
    root = Path(str(repository.working_tree_dir))
    base, head = commit_sides(pair.case, repository, f"peers pair {pair.number}: {pair.case.kind}")
    repository.git.branch("--force", f"pair-{pair.number}", head)
    place = folder / f"pair-{pair.number}"
    checkouts = {"base": place / "base", "head": place / "head"}
    for side, sha in (("base", base), ("head", head)):
        repository.git.worktree("add", "--quiet", "--detach", str(checkouts[side]), sha)
    return Scene(
        repository=root,
        base=base,
        head=head,
        checkouts=checkouts,
        folder=place,
        asv_folder=folder / "asv",
        ledger=LEDGER,
        margin=MARGIN,
        seed=pair.number,
    )


def _keep(pair: Pair, tool: str, scene: Scene) -> None:
    outcome: dict[str, object] = {
        "pair": pair.number,
        "kind": pair.case.kind,
        "benchmark": pair.case.benchmark,
        "tool": tool,
    }
    try:
        outcome |= dataclasses.asdict(RUN[tool](scene))
    except ToolError as error:
        outcome["error"] = str(error)
    with OUTCOMES.open("a") as stream:
        stream.write(json.dumps(outcome) + "\n")
    said = outcome.get("error") or f"slower {outcome['slower']}, faster {outcome['faster']}"
    print(f"pair {pair.number} ({pair.case.kind} {pair.case.benchmark or ''}), {tool}: {said}", flush=True)


if __name__ == "__main__":
    main()
