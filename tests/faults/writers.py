"""Processes that append, compact and read one ledger at once, in a folder or in an object store."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ledger_files import add_run, run_id, seen, whole

from perfkit.errors import LedgerError
from perfkit.ledger.maintenance import compact
from perfkit.ledger.remote import ledger_folder
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger

_OF_A_WRITER = 1000
_READERS = 2
_PATIENCE_S = 3600.0


def write_at_once(
    folder: Path, *, writers: int, runs: int, store: bool
) -> tuple[Sequence[str], Mapping[str, float]]:
    """Append so many runs in each of so many processes, with a compacting and readers beside them.

    Return what is left to be desired, and how long it took. With ``store`` two processes share a copy of it.
    """
    begun = time.monotonic()
    with _place(folder, store=store) as (place, environment):
        over = folder / "over"
        roles = [f"write {number} {runs}" for number in range(writers)]
        beside = ["compact", *(f"read {number}" for number in range(_READERS))]
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(place), str(over), *role.split()],
                env={**environment, "XDG_CACHE_HOME": str(folder / f"machine-{number // 2}")},
                stderr=subprocess.PIPE,
                text=True,
            )
            for number, role in enumerate((*roles, *beside))
        ]
        output = [process.communicate(timeout=_PATIENCE_S)[1] for process in processes[:writers]]
        over.touch()
        output += [process.communicate(timeout=_PATIENCE_S)[1] for process in processes[writers:]]
        problems = [
            f"{role} ended with {process.returncode}: {(text.strip().splitlines() or [''])[-1]}"
            for role, process, text in zip((*roles, *beside), processes, output, strict=True)
            if process.returncode
        ]
        os.environ |= {**environment, "XDG_CACHE_HOME": str(folder / "reader")}
        ledger = ledger_folder(place)
        expected = whole(
            _OF_A_WRITER * writer + number for writer in range(writers) for number in range(runs)
        )
        found = seen(ledger)
        problems += [f"lost: {run}" for run in expected if run not in found]
        problems += [f"{times} rows of {run}" for run, times in found.items() if times != expected[run]]
        problems += [f"verify: {one.kind} {one.file}" for one in verify(ledger)[0].problems]
        return problems, {
            "runs": len(found),
            "files": len(Ledger(ledger).files()),
            "seconds": round(time.monotonic() - begun, 1),
        }


@contextlib.contextmanager
def _place(folder: Path, *, store: bool) -> Iterator[tuple[str, Mapping[str, str]]]:
    tests = str(Path(__file__).parent.parent)
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    kept = dict(os.environ)
    try:
        if not store:
            yield str(folder / "ledger"), environment
            return
        from object_server import BUCKET, object_server

        with object_server() as server:
            yield f"s3://{BUCKET}/ledger", {**environment, **server.environment()}
    finally:
        os.environ.clear()
        os.environ.update(kept)


def _write(place: str, writer: int, runs: int) -> None:
    ledger = ledger_folder(place)
    for number in range(runs):
        add_run(ledger, _OF_A_WRITER * writer + number, month=number % 3)


def _compact(place: str, over: Path) -> None:
    while not over.exists():
        folder = ledger_folder(place)
        folder.mkdir(parents=True, exist_ok=True)
        if place.startswith("s3:"):
            Ledger(folder).compact()
        else:
            compact(folder, before=None)


def _read(place: str, over: Path) -> None:
    """Look again and again: no run is there in half or twice, and none goes."""
    known: set[str] = set()
    while not over.exists():
        found = seen(ledger_folder(place))
        odd = {run: times for run, times in found.items() if times != 2}
        if odd or not known <= found.keys():
            raise LedgerError(f"seen otherwise than twice: {odd}; gone: {known - found.keys()}")
        known |= found.keys()


def main() -> None:
    """Do what one process of several does."""
    place, over, role, *numbers = sys.argv[1:]
    if role == "write":
        _write(place, *map(int, numbers))
    elif role == "compact":
        _compact(place, Path(over))
    else:
        _read(place, Path(over))


if __name__ == "__main__":
    assert run_id(0)
    main()
