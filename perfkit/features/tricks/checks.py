"""What is checked before tricks are timed: ``python -m perfkit.features.tricks.checks ORDER ANSWER``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.features.tricks.choosing import trick_named
from perfkit.features.tricks.equivalence import compare_sides
from perfkit.features.tricks.loop_equivalence import LoopComparison
from perfkit.features.tricks.loops import open_loop
from perfkit.features.tricks.records import CheckedClaim, Equivalence, Loop, TrickCase
from perfkit.runner.commands import python_command, run_command
from perfkit.runner.environment import fixed_environment

_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What is to be checked: cases, the loop that some of them are on, and whether claims are tried too."""

    cases: tuple[TrickCase, ...]
    loop: Loop | None = None
    claims: bool = False


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What came out: how alike the two sides of each case are, by its name, and what each claim is worth."""

    equivalences: Mapping[str, Equivalence]
    claims: tuple[CheckedClaim, ...]


def check(checks: Checks, folder: Path, *, environment: Mapping[str, str]) -> Checked:
    """Return what a process of its own finds; checks that it did not reach are reported as problems.

    Raises:
        UsageError: there is no such loop, or it refuses an argument.
    """
    order, answer = folder / "checks.json", folder / "checked.jsonl"
    order.write_bytes(msgspec.json.encode(checks))
    answer.unlink(missing_ok=True)
    problem = _run([str(order), str(answer)], environment, output=folder / "checks.log")
    lines = answer.read_bytes().splitlines() if answer.exists() else []
    found = [msgspec.json.decode(line, type=_Line) for line in lines]
    mistakes = [one.mistake for one in found if one.mistake]
    if mistakes:
        raise UsageError(mistakes[0])
    equivalences = {one.case: one.equivalence for one in found if one.equivalence is not None}
    missing = Equivalence(equal=False, problem=problem or "it was not reached")
    return Checked(
        equivalences={case.name: equivalences.get(case.name, missing) for case in checks.cases},
        claims=tuple(one.claim for one in found if one.claim is not None),
    )


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One line of the answer."""

    case: str = ""
    equivalence: Equivalence | None = None
    claim: CheckedClaim | None = None
    mistake: str = ""


def _run(arguments: Sequence[str], environment: Mapping[str, str], *, output: Path) -> str:
    """Run the process, which prints to a file, and return what went wrong with it."""
    ending = run_command(
        python_command("perfkit.features.tricks.checks", *arguments),
        output=output,
        limit_s=_LIMIT_S,
        environment=fixed_environment(environment, hash_seed=0),
    )
    if ending.status is None:
        return f"it took longer than {_LIMIT_S:g} s"
    return f"its process {ending.words}" if ending.status else ""


def main(order: str, answer: str) -> None:
    """Check what a file says, and write what each check gives as soon as it is known."""
    checks = msgspec.json.decode(Path(order).read_bytes(), type=Checks)
    with Path(answer).open("wb") as stream:
        for line in _lines(checks):
            stream.write(msgspec.json.encode(line) + b"\n")
            stream.flush()


def _lines(checks: Checks) -> Iterator[_Line]:
    try:
        loop = LoopComparison(open_loop(checks.loop)) if checks.loop is not None else None
    except UsageError as error:
        yield _Line(mistake=str(error))
        return
    for case in checks.cases:
        yield _Line(case=case.name, equivalence=_equivalence(case, loop))
    if checks.claims:
        from perfkit.features.tricks.claims import claims

        for claim in claims():
            said = {"name": claim.name, "statement": claim.statement}
            yield _Line(claim=CheckedClaim(**said, **asdict(claim.check())))


def _equivalence(case: TrickCase, loop: LoopComparison | None) -> Equivalence:
    try:
        if loop is not None and case.loop:
            return loop.with_tricks(case.tricks)
        return compare_sides(trick_named(case.trick), case.size)
    except Exception as error:  # noqa: BLE001 (whatever a trick does on this machine)
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Equivalence(equal=False, problem=problem)


if __name__ == "__main__":
    main(*sys.argv[1:])
