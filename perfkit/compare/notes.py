"""What is to be known of a gate besides its verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from perfkit.compare.prior import Prior
from perfkit.config import Project
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.repo.project_roots import subfolder
from perfkit.repo.sides import SidePair, changed_files

_MOST_LISTED = 5


def notes_on(launcher: Launcher, prior: Prior, *, as_is: bool) -> Iterator[str]:
    """Yield how the launches were made, where that is not as it should be, and which gates are continued."""
    if launcher.why_no_fork:
        yield f"fresh processes instead of forked ones, which is slower: {launcher.why_no_fork}"
    if launcher.allocator_kept is False and not as_is:
        yield "the allocator does not obey MALLOC_TRIM_THRESHOLD_: page faults add to the noise"
    if prior.runs:
        runs = ", ".join(run[-12:] for run in prior.runs)
        yield f"continues the test of earlier gates on this pair: {runs}"


def unseen_changes(pair: SidePair, project: Project, loaded: AbstractSet[str]) -> Iterator[str]:
    """Yield a note on the changed Python files that no measured process imported."""
    folder = subfolder(project, pair, "head")
    seen = {(folder / file).as_posix() for file in loaded}
    unseen = [file for file in changed_files(pair) or () if file.endswith(".py") and file not in seen]
    if unseen:
        more = f" and {len(unseen) - _MOST_LISTED} more" if len(unseen) > _MOST_LISTED else ""
        yield (
            f"changed, but loaded by no benchmark: {', '.join(unseen[:_MOST_LISTED])}{more};"
            " UNCHANGED says nothing of them"
        )
