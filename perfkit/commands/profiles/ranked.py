"""The passes of a profile over all ranks of a distributed loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.commands.profiles.settle import SettledProfile, rank_artifact
from perfkit.model import RankProfile
from perfkit.profiling.passes.exchange import PassResult, PassSpec, RankPlace
from perfkit.profiling.passes.launch import PassLauncher
from perfkit.profiling.passes.ranks import free_port, run_ranks
from perfkit.profiling.passes.stragglers import slowest_rank


@dataclass(frozen=True, kw_only=True)
class MadePass:
    """A pass that was made: its result, and where the target's output is, the most telling folder first.

    Of a distributed loop, ``result`` is that of rank 0, or the problem of the rank that failed first;
    ``ranks`` has the results of all, and ``recorded`` is that of the slowest.
    """

    result: PassResult
    recorded: PassResult
    folders: tuple[Path, ...]
    ranks: tuple[PassResult, ...] = ()


def make_ranked_pass(
    run: SettledProfile, spec: PassSpec, on_steps: Callable[[int], None], launcher: PassLauncher
) -> MadePass:
    """Make a pass on all ranks; they meet at a port that is free now, unless one was asked for."""
    request = run.request
    ranks, port = request.ranks or 1, request.port or free_port()
    specs = [_of_rank(spec, RankPlace(rank=rank, ranks=ranks, port=port)) for rank in range(ranks)]
    for one in specs:
        Path(one.folder).mkdir()
    found = run_ranks(specs, on_steps, launcher, stall_limit_s=request.stall_limit_s)
    folders = tuple(Path(one.folder) for one in specs)
    if found.problem is not None:
        failed = PassResult(problem=found.problem, version=_version(found.results))
        first = folders[found.failed or 0]
        others = tuple(folder for folder in folders if folder != first)
        return MadePass(result=failed, recorded=failed, folders=(first, *others))
    summaries = [result.summary for result in found.results if result.summary is not None]
    slowest = found.results[slowest_rank(summaries)] if spec.name == "clean" else found.results[0]
    return MadePass(result=found.results[0], recorded=slowest, folders=folders, ranks=found.results)


def rank_profiles(passes: Sequence[MadePass], artifact: str) -> tuple[RankProfile, ...]:
    """Return what all passes found of each rank; nothing for a loop of one process."""
    ranks = min((len(made.ranks) for made in passes), default=0)
    return tuple(_profile(rank, [made.ranks[rank] for made in passes], artifact) for rank in range(ranks))


def _profile(rank: int, results: Sequence[PassResult], artifact: str) -> RankProfile:
    stat = f"{rank_artifact(artifact, rank)}.stat"
    return RankProfile(
        rank=rank,
        passes=tuple(result.summary for result in results if result.summary is not None),
        balance=next((result.balance for result in results if result.balance is not None), None),
        file=stat if any(stat in result.files for result in results) else None,
    )


def _of_rank(spec: PassSpec, place: RankPlace) -> PassSpec:
    folder = spec.folder if place.rank == 0 else f"{spec.folder}.rank{place.rank}"
    artifact = rank_artifact(spec.artifact, place.rank)
    return replace(spec, folder=folder, artifact=artifact, rank_place=place)


def _version(results: Sequence[PassResult]) -> str:
    return next((result.version for result in results if result.version), "")
