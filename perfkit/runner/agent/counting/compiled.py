"""Code that torch.compile runs: whether there was any, and how often it broke its graph.

This is the seam to dynamo: it reads dynamo's counters and replaces a private function that every call of
compiled code calls first. It imports nothing of dynamo before the benchmark has done so.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .interventions import Patches, undone_in_forks

_ENTRY = "_is_skip_guard_eval_unsafe_stance"
# This begins the name of its caller when code runs compiled; where dynamo is disabled, another one calls.
_COMPILED_CALL = "_TorchDynamoContext.__call__.<locals>."
_EAGER = "force_eager"


# The reason of a break, and the files and lines of its stack, outermost first.
Break = tuple[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """How many graphs dynamo has compiled in this process, and how often it broke them, by reason and stack.

    ``listed`` are the objects of dynamo's own list of breaks, by which two readings are told apart.
    """

    graphs: int
    breaks: Counter[Break]
    listed: tuple[object, ...] = ()

    def since(self, before: Compilation) -> Compilation:
        """Return the graphs and breaks since an earlier reading.

        ``torch._dynamo.reset()`` empties the list; what is in it then has all come since.
        """
        count = len(before.listed)
        same = not count or (len(self.listed) >= count and self.listed[count - 1] is before.listed[-1])
        return Compilation(
            graphs=self.graphs - before.graphs, breaks=self.breaks - before.breaks if same else self.breaks
        )


def read_compilation() -> Compilation:
    """Read what dynamo counts; all is zero where it is not loaded.

    Its list of reasons has the stack of each break, and breaks at a branch on a tensor, which its counters
    lack. A torch without that list has the counters alone.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters: Any = getattr(dynamo, "counters", {})
    reasons: Any = getattr(dynamo, "graph_break_reasons", None)
    graphs = counters.get("stats", {}).get("unique_graphs", 0)
    if reasons is None:
        breaks = {(reason, ()): times for reason, times in counters.get("graph_break", {}).items()}
        return Compilation(graphs=graphs, breaks=Counter(breaks))
    listed = tuple(reasons)
    stacks = (tuple((frame.filename, frame.lineno or 0) for frame in one.user_stack) for one in listed)
    found = Counter((one.reason, stack) for one, stack in zip(listed, stacks, strict=True))
    return Compilation(graphs=graphs, breaks=found, listed=listed)


class CompiledCode:
    """Notices code that is about to be compiled or traced, or to run compiled; calls ``on_entry`` first."""

    def __init__(self, on_entry: Callable[[], None] = lambda: None) -> None:
        self._on_entry = on_entry
        self.seen = False

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        """Watch for compiled code."""
        patches = Patches()
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        torch: Any = sys.modules.get("torch")
        if dynamo is not None and hasattr(dynamo, _ENTRY):
            patches.replace(dynamo, _ENTRY, self._noticing(getattr(dynamo, _ENTRY), _enters_compiled))
        elif torch is not None:
            # Code that compiles for the first time has to call this function.
            patches.replace(torch, "compile", self._noticing(torch.compile, lambda: True))
        if torch is not None:
            patches.replace(torch.jit, "trace", self._noticing(torch.jit.trace, lambda: True))
        try:
            with undone_in_forks(patches.undo):
                yield
        finally:
            patches.undo()

    def _noticing(self, call: Callable[..., Any], is_compiled: Callable[[], bool]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noticing(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the wrapped call's own signature)
            if is_compiled():
                self.seen = True
                self._on_entry()
            return call(*args, **kwargs)

        return noticing


def _enters_compiled() -> bool:
    dynamo = sys.modules["torch._dynamo.eval_frame"]
    stance = getattr(getattr(dynamo, "_stance", None), "stance", "")
    caller = sys._getframe(2).f_code.co_qualname  # noqa: SLF001 (the documented way to the caller)
    return stance != _EAGER and caller.startswith(_COMPILED_CALL)
