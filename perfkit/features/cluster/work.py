"""``perfkit work``: do one task of an engine, in the clone that holds its code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfkit.commands.measuring import measuring
from perfkit.commands.tasks import Doing, Kind, decode, file_name, own_class, perform_here
from perfkit.errors import NotMeasuredError, UsageError


def run_work(file: Path, *, folder: Path, into: Path, log: Callable[[str], None]) -> Path:
    """Do the task that a file holds, with the code in ``folder``, and return its ledger file in ``into``.

    Raises:
        UsageError: the file cannot be read.
        NotMeasuredError: the task cannot be done here, or ended without a row.
    """
    try:
        task = decode(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the task {file}: {error.strerror or error}") from error
    here = own_class()
    if task.machine != here:
        raise NotMeasuredError(f"the task is for the machines {task.machine.told}, and this is {here.told}")
    target = into / file_name(task)
    target.write_bytes(perform_here(task, folder / task.code.folder, log, others=KINDS))
    return target


def _pair(doing: Doing) -> None:
    # What pairs import takes as long as all else.
    from perfkit.features.cluster.remote_pairs import measure_pair

    with measuring(doing.log, wait_s=None):
        measure_pair(doing)


KINDS: dict[str, Kind] = {"pair": _pair}
