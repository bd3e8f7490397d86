"""Claims on waiting for the device, and on clearing its cache of memory."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor

from perfkit.features.tricks.claims.claim import Claim, Finding, holds, outcome

_NO_DEVICE = Finding(answer="needs CUDA", evidence="There is no CUDA device that torch can use.")


def _sum() -> Finding:
    found = _unwaited(lambda tensor: tensor.sum())
    return Finding(
        answer="true" if found == "worked" else "false", evidence=f"On {_tried_on()}, sum() {found}."
    )


def _reading() -> Finding:
    found = {
        "item()": _unwaited(lambda tensor: tensor.sum().item()),
        "cpu()": _unwaited(lambda tensor: tensor.cpu()),
        "cpu().numpy()": _unwaited(lambda tensor: tensor.cpu().numpy()),
    }
    refused = [result != "worked" for result in found.values()]
    told = ", ".join(f"{name} {result}" for name, result in found.items())
    return Finding(
        answer=holds(here=any(refused), elsewhere=all(refused)), evidence=f"On {_tried_on()}, {told}."
    )


def _tried_on() -> str:
    if torch.cuda.is_available():
        return "a CUDA device whose every wait raises"
    return "a tensor without values, of which reading any raises"


def _unwaited(work: Callable[[Tensor], object]) -> str:
    """Return the outcome of work on a tensor where waiting for its values raises."""
    if not torch.cuda.is_available():
        return outcome(lambda: work(torch.ones(3, device="meta")))
    tensor = torch.ones(3, device="cuda")
    former = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        return outcome(lambda: work(tensor))
    finally:
        torch.cuda.set_sync_debug_mode(former)


def _clearing_first() -> Finding:
    if not torch.cuda.is_available():
        return _NO_DEVICE
    # This process may have used the device before; a new one has not.
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        before, after = fresh.submit(_reserved_around_clearing).result()
    return Finding(
        answer="true" if after < before else "false",
        evidence=f"In a new process {before} bytes were reserved before empty_cache(), and {after} after it.",
    )


def _clearing_frees() -> Finding:
    if not torch.cuda.is_available():
        return _NO_DEVICE
    held, dropped = (torch.ones(2**24, device="cuda") for _ in range(2))
    size = held.nbytes
    del dropped
    before, after = _reserved_around_clearing()
    return Finding(
        answer=holds(here=before - after >= size, elsewhere=after < size),
        evidence=(
            f"Of two tensors of {size} bytes one was dropped: {before} bytes were reserved before "
            f"empty_cache(), and {after} after it."
        ),
    )


def _reserved_around_clearing() -> tuple[int, int]:
    before = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    return before, torch.cuda.memory_reserved()


CLAIMS = (
    Claim(name="sum_does_not_wait", statement="sum() does not wait for the device.", check=_sum),
    Claim(
        name="reading_waits",
        statement="item(), cpu() and numpy() wait for the device.",
        check=_reading,
    ),
    Claim(
        name="clear_before_first_transfer",
        statement="Clearing the cache before the first tensor is sent to the device frees memory.",
        check=_clearing_first,
    ),
    Claim(
        name="clearing_frees_tensors",
        statement="Clearing the cache frees the memory of tensors at once, which does not happen by itself.",
        check=_clearing_frees,
    ),
)
