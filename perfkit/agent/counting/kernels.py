"""How many kernels a call launches on a CUDA device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from .garbage import without_garbage_collection
from .model import Count
from .tally import Tally, causes_of

_COPIES = ("Memcpy", "Memset")


def count_kernels(call: Callable[[], object], *, calls: int = 2) -> Count | None:
    """Return the kernel launches of each of some calls, by kernel; None where no CUDA device is there.

    Torch's profiler sees them. It must not be at work already.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    tallies = [_launches(call) for _ in range(calls)]
    return Count(
        metric="kernels",
        unit="1",
        values=tuple(float(sum(tally.values())) for tally in tallies),
        causes=causes_of(tallies[-1]),
    )


def _launches(call: Callable[[], object]) -> Tally:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with without_garbage_collection(), profile(activities=[ProfilerActivity.CUDA]) as trace:
        call()
        torch.cuda.synchronize()
    launches: Tally = Counter()
    for event in trace.events() or ():
        if event.device_type.name == "CUDA" and not event.name.startswith(_COPIES):
            launches[event.name, ""] += 1
    return launches
