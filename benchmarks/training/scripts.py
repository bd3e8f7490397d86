"""Run public training scripts with timers put in by hand and under `perfkit profile`, by turns, and compare.

python benchmarks/training/scripts.py --sources CLONES [--only mnist] [--turns 3] [--together]
python benchmarks/training/scripts.py --sources CLONES --whole
python benchmarks/training/scripts.py --page

The first one times, with the two passes that give times; with --whole all passes are made once, to see
whether one crashes. Both write docs/measured/scripts.md at their end, and --page does so from what was
kept. CLONES has each repository as "owner+name"; what is missing is cloned from GitHub. The scripts need
`pip install accelerate gymnasium lightning matplotlib skorch tensorboard torch_geometric tyro`; torchvision
is replaced by random pictures. With --together the timers run inside of what perfkit profiles, so that both
see the very same steps: for a difference between the turns, that distinguishes noise from a mistake.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_OUT = _HERE / "scripts.json"
_PAGE = _HERE.parents[1] / "docs" / "measured" / "scripts.md"
_STAND_INS = _HERE / "stand_ins"
_PHASES = ("data wait", "forward", "loss", "backward", "optimizer")
_WITHIN, _SMALL, _OF_STEP = 0.05, 0.03, 0.01
_LIMIT_S = 300
_HEAD = "| script | steps | by hand, ms | perfkit, ms | samples/s | off: share of a step (difference) |"
_Script = Mapping[str, Any]


def main() -> None:
    """Try all scripts, print a line for each, and write what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=Path, default=Path.cwd())
    parser.add_argument("--only", action="append")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--out", type=Path, default=_OUT)
    given = parser.parse_args()
    found = {one["script"]: one for one in json.loads(given.out.read_text())} if given.out.exists() else {}
    scripts = tomllib.loads((_HERE / "scripts.toml").read_text())["script"]
    for script in () if given.page else scripts:
        if given.only and script["name"] not in given.only:
            continue
        turns = 0 if given.whole else given.turns
        one = _tried(script, given.sources, turns, together=given.together)
        before = found.get(script["name"], {})
        found[script["name"]] = one = (before if given.whole else {"ran": before.get("ran")}) | one
        sys.stdout.write(json.dumps(one) + "\n")
        sys.stdout.flush()
        found = {other["name"]: found[other["name"]] for other in scripts if other["name"] in found}
        given.out.write_text("[\n" + ",\n".join(map(json.dumps, found.values())) + "\n]\n")
    if given.out == _OUT:
        text = _PAGE.read_text()
        _PAGE.write_text(text[: text.index(_HEAD)] + table(list(found.values())))


def _tried(script: _Script, sources: Path, turns: int, *, together: bool) -> dict[str, Any]:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        plain, hand = Path(name) / "plain", Path(name) / "hand"
        commit = _copied(script, sources, plain)
        shutil.copytree(plain, hand)
        place = hand / script.get("folder", "") / script.get("timed", _file(script))
        place.write_text(with_timers(place.read_text(), script))
        pairs: list[tuple[list[dict[str, float]], dict[str, Any]]] = []
        found: dict[str, Any]
        try:
            if turns:
                for _ in range(turns):
                    by_hand = [] if together else _by_hand(script, hand)
                    profile = _profiled(
                        script, *((hand, "balance") if together else (plain, "clean,balance"))
                    )
                    pairs.append((by_hand or json.loads((hand / "hand.json").read_text()), profile))
                found = compared(pairs) | {"turns": turns, "load": round(os.getloadavg()[1], 1)}
            else:
                _profiled(script, plain)
                found = {"ran": True}
        except subprocess.SubprocessError as failed:
            found = {} if turns else {"ran": False}
            found["error"] = f"{failed} {getattr(failed, 'stderr', '')}"[-1000:]
        return {
            "script": script["name"],
            "repository": script["repository"],
            "commit": commit,
            "path": str(Path(script.get("folder", "")) / _file(script)),
            **found,
            "took_s": round(time.perf_counter() - begun),
        }


def _file(script: _Script) -> str:
    return str(Path(script.get("run_in", "")) / script["path"])


def _copied(script: _Script, sources: Path, to: Path) -> str:
    """Copy the script's folder as it was committed, with synthetic data; return the commit."""
    repository = script["repository"]
    source = sources / repository.replace("/", "+")
    if not source.exists():
        _run(["git", "clone", "-q", f"https://github.com/{repository}", str(source)], Path.cwd())
    folder = script.get("folder", "")
    shutil.copytree(source / folder, to / folder, ignore=shutil.ignore_patterns(".git"))
    place = to / script.get("folder", "") / _file(script)
    text = place.read_text()
    for old, new in script.get("change", ()):
        if old not in text:
            raise SystemExit(f'{script["name"]}: {place.name} has no "{old}"')
        text = text.replace(old, new)
    place.write_text(text)
    if "prepare" in script:
        _run([sys.executable, "-c", script["prepare"]], _started_in(script, to))
    return _run(["git", "rev-parse", "--short", "HEAD"], source).strip()


def with_timers(text: str, script: _Script) -> str:
    """Return a script's text with the timers of its entry."""
    for phase, expressions in script.get("inside", {}).items():
        for one in expressions:
            text = text.replace(one, f'hand.timed("{phase}", lambda: {one})')
    tree = ast.parse(text)
    lines = text.splitlines()
    before: defaultdict[int, list[str]] = defaultdict(list)
    after: defaultdict[int, list[str]] = defaultdict(list)
    first = next(one for one in tree.body if not _comes_first(one))
    before[first.lineno].append("import hand")
    for phase in (*_PHASES, "off", "rest"):
        for begin, end in _statements(tree, lines, script.get(phase, ())):
            if isinstance(begin, ast.For) and phase == "data wait":
                line, (start, stop) = (
                    lines[begin.lineno - 1],
                    (begin.iter.col_offset, begin.iter.end_col_offset),
                )
                waiting = f"hand.waiting(lambda: {line[start:stop]})"
                lines[begin.lineno - 1] = f"{line[:start]}{waiting}{line[stop:]}"
                continue
            indent = " " * begin.col_offset
            before[begin.lineno].append(f'{indent}hand.enter("{phase}")')
            after[end.end_lineno or 0].insert(0, f"{indent}hand.leave()")
    for begin, end in _statements(tree, lines, script.get("step", ())):
        called = f"hand.step({script.get('samples', '')})"
        after[end.end_lineno or 0].append(" " * begin.col_offset + called)
    if "insert" in script:
        start, code = script["insert"]
        at = next(number for number, line in enumerate(lines, 1) if line.strip().startswith(start))
        indent = lines[at - 1][: -len(lines[at - 1].lstrip())]
        before[at] += textwrap.indent(code, indent).splitlines()
    timed = []
    for number, line in enumerate(lines, 1):
        timed += [*before[number], line, *after[number]]
    return "\n".join(timed) + "\n"


def _comes_first(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def _statements(
    tree: ast.Module, lines: Sequence[str], entries: Sequence[str | Sequence[str]]
) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Yield each statement that begins as an entry does, or the first and last one of a row in a block."""
    blocks = [block for node in ast.walk(tree) for block in vars(node).values() if isinstance(block, list)]
    blocks = [block for block in blocks if block and isinstance(block[0], ast.stmt)]
    for entry in entries:
        first, last = (entry, entry) if isinstance(entry, str) else entry
        found = False
        for block in blocks:
            texts = [lines[one.lineno - 1][one.col_offset :] for one in block]
            for at, text in enumerate(texts):
                if text.startswith(first):
                    to = next(to for to in range(at, len(block)) if texts[to].startswith(last))
                    yield block[at], block[to]
                    found = True
        if not found:
            raise SystemExit(f"no statement begins with {entry}")


def _started_in(script: _Script, root: Path) -> Path:
    return root / str(script.get("folder", "")) / str(script.get("run_in", ""))


def _by_hand(script: _Script, root: Path) -> list[dict[str, float]]:
    place = root / "hand.json"
    ranks = ["-m", "torch.distributed.run", "--nproc-per-node", str(script.get("ranks", 1)), "--standalone"]
    command = [sys.executable, *(ranks if "ranks" in script else []), script["path"], *_arguments(script)]
    _run(command, _started_in(script, root), environment=_environment(script, root, HAND_OUT=str(place)))
    steps: list[dict[str, float]] = json.loads(place.read_text())
    return steps


def _profiled(script: _Script, root: Path, passes: str = "") -> dict[str, Any]:
    """Profile the script, with all passes unless some are named."""
    place = root / "profile.json"
    options = ["--out", str(root / "out.stat"), "--json", str(place), "--no-ledger"]
    # A number of steps that none of them reaches: then no pass ends after a minute.
    options += ["--steps", "100000"] if passes else []
    options += ["--passes", passes] if passes else []
    options += ["--ranks", str(script["ranks"])] if "ranks" in script else []
    command = [
        sys.executable,
        "-m",
        "perfkit",
        "profile",
        script["path"],
        *options,
        "--",
        *_arguments(script),
    ]
    hand = str(root / "hand.json")
    _run(command, _started_in(script, root), environment=_environment(script, root, HAND_OUT=hand))
    profile: dict[str, Any] = json.loads(place.read_text())
    return profile


def _arguments(script: _Script) -> list[str]:
    return list(script.get("arguments", ()))


def _environment(script: _Script, root: Path, **others: str) -> dict[str, str]:
    pictures = script.get("pictures")
    folders = [str(_STAND_INS), *([str(_STAND_INS / "pictures")] if pictures else [])]
    folders += [str(root / script.get("folder", "")), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PICTURES": str(pictures), **others}


def _run(command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=True
    )
    return done.stdout


def compared(pairs: Sequence[tuple[list[dict[str, float]], dict[str, Any]]]) -> dict[str, Any]:
    """Return what was timed by hand beside what the profiles have, and what is not within the bounds."""
    steps, rates, by_hand_ms, by_perfkit_ms = [], [], [], []
    phases: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for by_hand, profile in pairs:
        timed = profile["passes"][0]
        hand_s = [sum(step[name] for name in step if name not in ("off", "samples")) for step in by_hand]
        by_hand_ms.append(1e3 * statistics.fmean(hand_s[1:]))
        by_perfkit_ms.append(1e3 * statistics.fmean(timed["step_s"][1:]))
        steps.append(by_perfkit_ms[-1] / by_hand_ms[-1] - 1)
        if trained := sum(step["samples"] for step in by_hand):
            same = (timed["samples"] or 0) / trained * len(by_hand) / len(timed["step_s"])
            rates.append(same * by_hand_ms[-1] / by_perfkit_ms[-1] - 1)
        for name, both in _phases(by_hand, hand_s, profile).items():
            phases[name].append(both)
    counts = [len(pairs[-1][0]), len(pairs[-1][1]["passes"][0]["step_s"])]
    found = {
        name: [round(statistics.median(side), 4) for side in zip(*both, strict=True)]
        for name, both in phases.items()
    }
    step, rate = statistics.median(steps), statistics.median(rates) if rates else None
    wrong = [name for name, (share, off) in found.items() if abs(off) > max(_WITHIN, _small(share))]
    wrong += ["steps"] if abs(counts[1] / counts[0] - 1) > _WITHIN else []
    wrong += ["step time"] if abs(step) > _WITHIN else []
    wrong += ["samples/s"] if rate is not None and abs(rate) > _WITHIN else []
    return {
        "unit": timed["unit"],
        "steps": counts,
        "step_ms": [round(statistics.median(side), 3) for side in (by_hand_ms, by_perfkit_ms)],
        "step": round(step, 4),
        "samples": None if rate is None else round(rate, 4),
        "by_hand_scatter": round(max(by_hand_ms) / min(by_hand_ms) - 1, 4),
        "phases": found,
        "wrong": wrong,
    }


def _small(share: float) -> float:
    """Return by how much a phase may be off that is a small part of a step."""
    return _OF_STEP / share if 0 < share < _SMALL else 0.0


def _phases(
    by_hand: Sequence[Mapping[str, float]], hand_s: Sequence[float], profile: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    """Return each phase's share of a step by hand, and by how much perfkit's time or share of it differs.

    Of the very same steps times are compared, step by step, and else shares.
    """
    balance, timed = profile["balance"], profile["passes"][0]
    # The balance pass may end earlier than the program.
    kept = slice(1, len(balance["step_s"]))
    seen = {one["name"]: one["seconds"][kept] for one in balance["phases"]}
    # By hand, what ranks do together cannot be separated from the backward pass in which they do it.
    if "other ranks" in seen and "backward" in seen:
        both = zip(seen["backward"], seen["other ranks"], strict=True)
        seen["backward"] = [sum(one) for one in both]
    is_same = timed["name"] == "balance"
    hooks_s = sum(step.get("perfkit", 0.0) for step in by_hand[kept])
    whole_s, balance_s = sum(hand_s[kept]) - hooks_s, sum(balance["step_s"][kept])
    found = {}
    for name in _PHASES:
        hand = [step.get(name, 0.0) for step in by_hand[kept]]
        if not any(hand):
            continue
        share, other = sum(hand) / whole_s, sum(seen.get(name, ())) / balance_s
        ratios = [p / h for p, h in zip(seen.get(name, [0.0] * len(hand)), hand, strict=False) if h > 0]
        found[name] = share, (statistics.median(ratios) if is_same else other / share) - 1
    return found


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of all scripts, and how many are within the bounds."""
    rows, within = [_HEAD, "| :--- | ---: | ---: | ---: | ---: | :--- |"], []
    for one in found:
        name = f"{one['repository']}: {one['script']}"
        if "steps" not in one:
            rows.append(f"| {name} | | | | | failed |")
            continue
        if not one["wrong"]:
            within.append(one["script"])
            continue
        steps = " / ".join(map(str, dict.fromkeys(one["steps"])))
        rate = "" if one["samples"] is None else f"{100 * one['samples']:+.1f} %"
        wrong = [
            f"{name} {100 * one['phases'][name][0]:.1f} % ({100 * one['phases'][name][1]:+.1f} %)"
            if name in one["phases"]
            else name
            for name in one["wrong"]
        ]
        times = (f"{ms:.3g}" for ms in one["step_ms"])
        rows.append("| " + " | ".join([name, steps, *times, rate, ", ".join(wrong)]) + " |")
    fine = sum("steps" in one and not one["wrong"] for one in found)
    timed = sum("steps" in one for one in found)
    tried = [one for one in found if one.get("ran") is not None]
    ran = sum(bool(one["ran"]) for one in tried)
    rows += ["", f"{timed} of {len(found)} were timed, {fine} are within the bounds: {', '.join(within)}."]
    rows += [f"All passes were made of {len(tried)}, and ran in {ran}."]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
