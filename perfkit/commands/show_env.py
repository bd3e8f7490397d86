"""``perfkit show env``: the machine and the environment of a run, or what differs between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import LedgerError, RepositoryError, UsageError
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.surroundings import Surroundings, SurroundingsReport, surrounding_changes
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.git import reading_only

_FILE = ".parquet"
_LEAST_DIGITS = 4


@reading_only()
def show_surroundings(names: Sequence[str], *, ledger: Path, project: Project) -> SurroundingsReport:
    """Return where one or two runs measured, each named by its id, a commit, or its file in a ledger."""
    if not 1 <= len(names) <= 2:  # noqa: PLR2004 (one run is shown, two are compared)
        raise UsageError(f"show env takes one run or two, found {len(names)}: see `perfkit ledger list`")
    found = [tuple(_surroundings(_rows(name, ledger, project))) for name in names]
    shown = found[0] if len(found) == 1 else (found[0][-1], found[1][-1])
    changes = surrounding_changes(*shown) if len(shown) == 2 else ()  # noqa: PLR2004 (a pair)
    return SurroundingsReport(found=shown, changes=changes)


def _rows(name: str, ledger: Path, project: Project) -> Sequence[Row]:
    """Return the rows of the run that is meant."""
    file = Path(name)
    if file.suffix == _FILE:
        if not file.is_file():
            raise LedgerError(f"there is no file {file}; name one of a ledger, a run or a commit")
        runs = Ledger(file.parent).runs_in(file)
        if len(runs) != 1:
            raise LedgerError(f"{file} holds {len(runs)} runs; name one of them by its id")
        return Ledger(file.parent).rows_of(runs[0])
    kept = Ledger(ledger)
    known = kept.runs()
    if any(run.run_id.startswith(name) or run.run_id.endswith(name) for run in known):
        return kept.rows_of(name)
    sha = _sha(name, project)
    is_sha = len(sha) >= _LEAST_DIGITS
    of_commit = [run for run in known if is_sha and any(one.startswith(sha) for one in run.commits)]
    if not of_commit:
        raise LedgerError(
            f'no run "{name}" in {ledger}, and none of a commit of that name; see "perfkit ledger list"'
        )
    return kept.rows_of(of_commit[-1].run_id)


def _sha(name: str, project: Project) -> str:
    """Return the commit that git knows by a name, or the name itself, which may begin a commit's digits."""
    try:
        return resolve(open_repository(project.root), name).sha
    except RepositoryError:
        return name


def _surroundings(rows: Sequence[Row]) -> Iterator[Surroundings]:
    """Yield each machine and environment of a run once, base's first."""
    seen: dict[tuple[str, ...], Surroundings] = {}
    for row in sorted(rows, key=lambda row: row.placement.side or ""):
        side = row.placement.side if row.source == "environments" else None
        key = (side or "", row.machine.machine_id, row.environment.env_id)
        before = seen.get(key)
        commits = before.commits if before is not None else ()
        if before is not None and row.commit.sha in commits:
            continue
        seen[key] = replace(
            before
            or Surroundings(
                run_id=row.run_id,
                recorded_at=row.recorded_at,
                source=row.source,
                commits=(),
                side=side,
                machine=row.machine,
                environment=row.environment,
            ),
            commits=(*commits, row.commit.sha),
        )
    yield from seen.values()
