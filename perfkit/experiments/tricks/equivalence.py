"""Whether both sides of a trick give the same: ``python -m perfkit.experiments.tricks.equivalence FILE``."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perfkit.experiments.tricks.choosing import trick_named
from perfkit.measure.environment import fixed_environment
from perfkit.records.tricks import Equivalence, TrickCase

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.tricks.trick import Trick

# State that grows apart shows after a few.
_CALLS = 3
_LIMIT_S = 300.0


def check_equivalence(
    cases: Sequence[TrickCase], folder: Path, *, environment: Mapping[str, str]
) -> dict[str, Equivalence]:
    """Return what each case's sides differ by after three calls, found in a process of its own."""
    order, answer = folder / "cases.json", folder / "equivalence.json"
    order.write_bytes(msgspec.json.encode(cases))
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "perfkit.experiments.tricks.equivalence", str(order), str(answer)],
            env=fixed_environment(environment, hash_seed=0),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        problem = f"its process ended with {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"it took longer than {_LIMIT_S:g} s"
    lines = answer.read_text().splitlines() if answer.exists() else []
    found = {name: msgspec.convert(said, Equivalence) for name, said in map(json.loads, lines)}
    missing = Equivalence(equal=False, problem=problem or "it was not reached")
    return {case.name: found.get(case.name, missing) for case in cases}


def compare_sides(trick: Trick, size: int) -> Equivalence:
    """Return what the two sides of a trick differ by, each called as often as the other."""
    pair = trick.pair(size)
    largest = 0.0
    for _ in range(_CALLS):
        without, with_ = pair.without(), pair.with_()
        if len(without) != len(with_):
            return Equivalence(equal=False, problem=f"{len(without)} results against {len(with_)}")
        for old, new in zip(without, with_, strict=True):
            if old.shape != new.shape:
                return Equivalence(equal=False, problem=f"a result of {old.shape} against {new.shape}")
            largest = max(largest, _difference(old, new, trick))
    return Equivalence(equal=largest <= 1, largest=largest)


def _difference(old: Tensor, new: Tensor, trick: Trick) -> float:
    """Return the largest difference of two tensors as a share of what the trick's tolerance allows."""
    old, new = old.detach().cpu().double(), new.detach().cpu().double()
    if not old.numel():
        return 0.0
    apart = (old - new).abs()
    allowed = trick.absolute_tolerance + trick.relative_tolerance * old.abs()
    shares = (apart / allowed).masked_fill(apart == 0, 0.0)
    return float(shares.nan_to_num(nan=math.inf, posinf=math.inf).max())


def main(order: str, answer: str) -> None:
    """Check the cases of a file, and write what each gives as soon as it is known."""
    cases = msgspec.json.decode(Path(order).read_bytes(), type=list[TrickCase])
    with Path(answer).open("w") as stream:
        for case in cases:
            try:
                found = compare_sides(trick_named(case.trick), case.size)
            except Exception as error:  # noqa: BLE001 (whatever a trick does on this machine)
                problem = f"{type(error).__name__}: {error}".partition("\n")[0]
                found = Equivalence(equal=False, problem=problem)
            stream.write(json.dumps([case.name, msgspec.to_builtins(found)]) + "\n")
            stream.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
