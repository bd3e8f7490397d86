"""Runs the same pairs of commits through perfkit and its peers: ``contest.py [PAIRS]``.

What each tool said of each pair is a line of ``outcomes.jsonl``; a line that is there is not made again, so
a contest that was stopped goes on. A tool that breaks has a line that says so, and costs only itself. What
time may not allow is measured last: stop it then. The lines of an older contest have no name of one.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import git
from pairs import NEWER, OLDER, Pair, plan_pairs, turns
from study import commit_sides, create_suite
from tools import RUN, Scene, ToolError, set_up_asv

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.jsonl"
LEDGERS = HERE / "ledger"


def main() -> None:
    """Run what is left of the contest, or of its first pairs."""
    pairs = plan_pairs()[: int(sys.argv[1]) if len(sys.argv) > 1 else None]
    done = {(outcome["pair"], outcome["tool"]) for outcome in read_outcomes(NEWER)}
    planned = turns(pairs)
    left = [(pair, tool) for pair, tool in planned if (pair.number, tool) not in done]
    print(f"{len(planned) - len(left)} of {len(planned)} measurements are done")
    (LEDGERS / NEWER).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        repository = create_suite(folder / "suite")
        scenes: dict[int, Scene] = {}
        built = False
        for pair, tool in left:
            if pair.number not in scenes:
                scenes[pair.number] = lay_out(pair, repository, folder)
            if tool == "asv" and not built:
                print("building asv's environment", flush=True)
                set_up_asv(scenes[pair.number])
                built = True
            _keep(pair, tool, scenes[pair.number])


def read_outcomes(contest: str) -> list[dict[str, object]]:
    """Return what the tools said so far in a contest, in order."""
    lines = OUTCOMES.read_text().splitlines() if OUTCOMES.exists() else []
    return [one for one in map(json.loads, lines) if one.get("contest", OLDER) == contest]


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
        case=pair.case,
        repository=root,
        base=base,
        head=head,
        checkouts=checkouts,
        folder=place,
        asv_folder=folder / "asv",
        ledger=LEDGERS / NEWER,
    )


def _keep(pair: Pair, tool: str, scene: Scene) -> None:
    outcome: dict[str, object] = {
        "contest": NEWER,
        "pair": pair.number,
        "kind": pair.case.kind,
        "benchmarks": pair.case.benchmarks,
        "benchmark": pair.case.benchmark,
        "tool": tool,
    }
    try:
        finding = RUN[tool](scene)
    except ToolError as error:
        said = [str(error)]
        outcome["error"] = str(error)
    else:
        outcome |= dataclasses.asdict(finding)
        said = [
            f"{one.rule}: slower {list(one.slower)}, faster {list(one.faster)}" for one in finding.judgements
        ]
    with OUTCOMES.open("a") as stream:
        stream.write(json.dumps(outcome) + "\n")
    print(f"pair {pair.number} ({pair.case.kind} {pair.case.benchmark or ''}), {tool}:", flush=True)
    print(*(f"  {line}" for line in said), sep="\n", flush=True)


if __name__ == "__main__":
    main()
