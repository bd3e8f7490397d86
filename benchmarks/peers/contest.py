"""Runs the same pairs of commits through perfkit and its peers: ``contest.py [--again] [PAIRS]``.

What each tool found of each pair is a line of ``outcomes.jsonl``; a line that is there is not made again, so
a contest that was stopped goes on. A tool that breaks has a line about that, and costs only itself. What
time may not allow is measured last: stop it then. ``--again`` is perfkit and asv alone. The lines of an
older contest have no name of one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

import git
from pairs import AGAIN, NEWER, OLDER, Pair, plan_again, plan_pairs, turns
from study import commit_sides, create_suite
from tools import RUN, Scene, ToolError, set_up_asv

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.jsonl"
LEDGERS = HERE / "ledger"


def main() -> None:
    """Run what is left of the contest, or of its first pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="?", type=int, help="so many of them, the first; all by default")
    parser.add_argument("--again", action="store_true", help="perfkit and asv once more")
    given = parser.parse_args()
    contest, plan = (AGAIN[-1], plan_again()) if given.again else (NEWER, plan_pairs())
    pairs = plan[: given.pairs]
    done = {(outcome["pair"], outcome["tool"]) for outcome in read_outcomes(contest)}
    planned = turns(pairs)
    left = [(pair, tool) for pair, tool in planned if (pair.number, tool) not in done]
    print(f"{len(planned) - len(left)} of {len(planned)} measurements are done")
    (LEDGERS / contest).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        repository = create_suite(folder / "suite")
        scenes: dict[int, Scene] = {}
        built = False
        for pair, tool in left:
            if pair.number not in scenes:
                scenes[pair.number] = lay_out(pair, repository, folder, LEDGERS / contest)
            if tool == "asv" and not built:
                print("building asv's environment", flush=True)
                set_up_asv(scenes[pair.number])
                built = True
            _keep(contest, pair, tool, scenes[pair.number])


def read_outcomes(contest: str) -> list[dict[str, object]]:
    """Return what the tools found so far in a contest, in order."""
    lines = OUTCOMES.read_text().splitlines() if OUTCOMES.exists() else []
    return [one for one in map(json.loads, lines) if one.get("contest", OLDER) == contest]


def lay_out(pair: Pair, repository: git.Repo, folder: Path, ledger: Path) -> Scene:
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
        ledger=ledger,
    )


def _keep(contest: str, pair: Pair, tool: str, scene: Scene) -> None:
    outcome: dict[str, object] = {
        "contest": contest,
        "pair": pair.number,
        "kind": pair.case.kind,
        "benchmarks": pair.case.benchmarks,
        "benchmark": pair.case.benchmark,
        "tool": tool,
    }
    try:
        finding = RUN[tool](scene)
    except ToolError as error:
        printed = [str(error)]
        outcome["error"] = str(error)
    else:
        outcome |= dataclasses.asdict(finding)
        printed = [
            f"{one.rule}: slower {list(one.slower)}, faster {list(one.faster)}" for one in finding.judgements
        ]
    with OUTCOMES.open("a") as stream:
        stream.write(json.dumps(outcome) + "\n")
    print(f"pair {pair.number} ({pair.case.kind} {pair.case.benchmark or ''}), {tool}:", flush=True)
    print(*(f"  {line}" for line in printed), sep="\n", flush=True)


if __name__ == "__main__":
    main()
