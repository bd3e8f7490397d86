"""Feeds every reader of perfkit with what a fuzzer finds, led by the lines that an input reaches.

    python benchmarks/faults/fuzz.py [--inputs 100000] [--target imports] [--chunk 20000]

Each target gets so many inputs in all; what was done before counts, so that it goes on where it stood. A
child process takes a chunk of them, with a limit of seconds for each input and one of memory for all of them:
memory that grows ends it. The counts are in ``fuzzed.json``, and some inputs that reach most lines in
``tests/faults/corpus/``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "fuzzed.json"
ROOT = HERE.parents[1]
CORPUS = ROOT / "tests/faults/corpus"
WORK = ROOT / ".faults/fuzz"
_INPUT_S = 20
_MEMORY_MB = 1_500
_LONGEST = 2_048
_KEPT = 24
# A file system and a data base take part in each of their inputs.
_SLOW = 20
_INSTRUMENTED = ["perfkit"]


def main() -> None:
    """Fuzz all targets, or one, and end with 1 where any of them failed."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--inputs", type=int, default=110_000)
    options.add_argument("--chunk", type=int, default=20_000)
    options.add_argument("--target", default=None)
    options.add_argument("--child", nargs=argparse.REMAINDER)
    given = options.parse_args()
    if given.child:
        _fuzz(given.child[0], given.child[1:])
        return
    from fuzzing import SLOW_TARGETS, TARGETS

    waiting = list(TARGETS) if given.target is None else [given.target]
    failed: list[str] = []
    while waiting:
        # All targets get a chunk before one gets its second.
        target = waiting.pop(0)
        part = _SLOW if target in SLOW_TARGETS else 1
        left = given.inputs // part - _results().get(target, {}).get("inputs", 0)
        if left > 0:
            if _chunk(target, min(given.chunk // part, left)):
                waiting.append(target)
            else:
                failed.append(target)
    whole = sum(one["inputs"] for one in _results().values())
    _log(f"{whole:,} inputs in all; the counts are in {RESULTS}")
    sys.exit(bool(failed))


def _fuzz(target: str, arguments: list[str]) -> None:
    """Be the child process of a chunk."""
    # Only `make fuzz` installs it.
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with atheris.instrument_imports(include=_INSTRUMENTED):
        from fuzzing import try_once
    atheris.Setup([sys.argv[0], *arguments], lambda data: try_once(target, data))
    atheris.Fuzz()


def _results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _chunk(target: str, inputs: int) -> bool:
    """Feed a target in a process of its own, count what it had, and return whether it stood."""
    work, kept = WORK / target, CORPUS / target
    work.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    printed = _child(
        target,
        f"-runs={inputs}", f"-timeout={_INPUT_S}", f"-rss_limit_mb={_MEMORY_MB}", f"-max_len={_LONGEST}",
        f"-artifact_prefix={work.parent}/{target}-", "-print_final_stats=1", str(work), str(kept),
    )  # fmt: skip
    results = _results()
    known = results.get(target, {"inputs": 0, "seconds": 0, "peak_mb": 0, "lines": 0, "failures": []})
    known["inputs"] += _number(r"number_of_executed_units: +(\d+)", printed)
    known["seconds"] += round(time.monotonic() - begun)
    known["peak_mb"] = max(known["peak_mb"], _number(r"peak_rss_mb: +(\d+)", printed))
    known["lines"] = max(known["lines"], *map(int, re.findall(r"cov: (\d+)", printed)), 0)
    failure = re.search(r"Test unit written to (\S+)", printed)
    if failure:
        known["failures"].append(Path(failure[1]).name)
        _log(printed[-6_000:])
    results[target] = known
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    _log(f"{target}: {known['inputs']:,} inputs, {known['lines']} places, {known['peak_mb']} MB")
    if not failure:
        _keep_some(work, kept)
    return failure is None


def _keep_some(work: Path, kept: Path) -> None:
    """Leave some of the inputs that each reached something new, from the smallest to the largest."""
    found = sorted(work.iterdir(), key=lambda file: (file.stat().st_size, file.name))
    for file in kept.iterdir():
        file.unlink()
    for file in found[:: max(len(found) // _KEPT, 1)][:_KEPT]:
        shutil.copyfile(file, kept / file.name[:12])


def _child(target: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, __file__, "--child", target, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def _log(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    main()
