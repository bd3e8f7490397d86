"""The adapter to torch and dynamo: all uses of their private attributes in counting are here.

Nothing here may be called before the benchmark itself has imported torch, and nothing of dynamo is imported.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from .interventions import Patches, undone_in_forks

# Kinds are the tensor types of an operator's arguments that handle operators themselves.
Kinds = Sequence[type]
# A handler gets the operator, its kinds, and its positional and keyword arguments.
Handler = Callable[[Any, Kinds, tuple[Any, ...], dict[str, Any]], Any]
# Names of attention's operators on the CPU end in this; torch has formulas only for names without it.
_CPU_SUFFIX = "_for_cpu"


def operator_mode(handle: Handler) -> AbstractContextManager[object]:
    """Return a context in which ``handle`` is called for every operator that this thread dispatches."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Otherwise torch would import the compiler, which takes seconds; compiled code never runs here.
            return False

        def __torch_dispatch__(
            self,
            func: Any,  # noqa: ANN401 (an operator)
            types: Kinds,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:  # noqa: ANN401 (its result)
            return handle(func, types, args, kwargs or {})

    return OperatorMode()  # type: ignore[no-untyped-call]


def is_innermost(mode: AbstractContextManager[object]) -> bool:
    """Return whether no other mode was entered after this one."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_dispatch_mode() is mode


def handle_operators(kinds: Kinds) -> bool:
    """Return whether one of these tensor types handles operators itself."""
    import torch

    plain = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001 (the adapter)
    return any(getattr(kind, "__torch_dispatch__", plain) is not plain for kind in kinds)


def are_fake(kinds: Kinds) -> bool:
    """Return whether one of these tensor types is fake, that is, has no data."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and any(issubclass(kind, module.FakeTensor) for kind in kinds)


def schema_of(operator: Any) -> Any:  # noqa: ANN401 (torch has no type for it)
    """Return an operator's schema, None where it has none."""
    return getattr(operator, "_schema", None)


def is_composite(operator: Any) -> bool:  # noqa: ANN401 (likewise)
    """Return whether an operator is composed of others, into which it can be decomposed."""
    import torch

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 (the adapter)
    # Only under inference mode are these dispatched as a whole.
    return has_kernel(operator.name(), torch._C.DispatchKey.CompositeImplicitAutograd)  # noqa: SLF001


def flop_formula(operator: Any) -> Callable[..., Any] | None:  # noqa: ANN401 (likewise)
    """Return torch's formula for the floating-point operations of an operator, None where it has none."""
    import torch
    from torch.utils.flop_counter import flop_registry

    packet = getattr(operator, "_overloadpacket", operator)
    formula: Callable[..., Any] | None = flop_registry.get(packet)
    name = getattr(packet, "__name__", "")
    if formula is None and _CPU_SUFFIX in name:
        formula = flop_registry.get(getattr(torch.ops.aten, name.replace(_CPU_SUFFIX, ""), None))
    return formula


def no_overrides() -> AbstractContextManager[object]:
    """Return a context in which reading a tensor calls no code that overrides torch's functions."""
    import torch

    return torch._C.DisableTorchFunction()  # noqa: SLF001 (the adapter)


def backward_entries() -> tuple[Any, tuple[str, ...]]:
    """Return a module and names of its functions, one of which each backward pass begun in Python calls."""
    import torch

    autograd: Any = torch.autograd
    # Where there is one function for all, code that imported the public functions before is noticed, too.
    engine = ("_engine_run_backward",)
    return autograd, engine if hasattr(autograd, *engine) else ("backward", "grad")


def call_before_backward(patches: Patches, call: Callable[[], object]) -> None:
    """Call ``call`` ahead of each backward pass begun in Python, until the patches are undone."""

    def calling(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
            call()
            return backward(*args, **kwargs)

        return called

    owner, names = backward_entries()
    for name in names:
        patches.replace(owner, name, calling(getattr(owner, name)))


def storage_of(tensor: Any) -> Any:  # noqa: ANN401 (a tensor and its storage)
    """Return the storage of a tensor's numbers; None where it has none, or one without memory."""
    try:
        storage = tensor.untyped_storage()
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
    return storage if not tensor.is_meta and storage.nbytes() else None


def detached(tensor: Any) -> Any:  # noqa: ANN401 (a tensor)
    """Return a tensor's data outside the graph, by an operator that no mode sees."""
    import torch

    with no_overrides():
        if handle_operators((type(tensor),)):
            return tensor.detach()
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 (likewise)
            return tensor.detach()


def innermost_saving_hook() -> object:
    """Return the innermost hook that packs saved tensors, None where there is none."""
    import torch

    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003, SLF001 (the adapter)
    return hooks[0] if hooks else None


_ENTRY = "_is_skip_guard_eval_unsafe_stance"
# This begins the name of its caller when code runs compiled; where dynamo is disabled, another one calls.
_COMPILED_CALL = "_TorchDynamoContext.__call__.<locals>."
_EAGER = "force_eager"


# The reason of a break, and the files and lines of its stack, outermost first.
Break = tuple[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """How many graphs dynamo has compiled in this process, and how often it broke them, by reason and stack.

    ``recompiles`` is how often it compiled a function again, by reason and line. ``listed`` are the objects
    of dynamo's own list of breaks, by which two readings are distinguished.
    """

    graphs: int
    breaks: Counter[Break]
    recompiles: Counter[Break] = field(default_factory=Counter)
    listed: tuple[object, ...] = ()

    def since(self, before: Compilation) -> Compilation:
        """Return the graphs and breaks since an earlier reading.

        ``torch._dynamo.reset()`` empties the list; what is in it then has all come since.
        """
        count = len(before.listed)
        same = not count or (len(self.listed) >= count and self.listed[count - 1] is before.listed[-1])
        return Compilation(
            graphs=self.graphs - before.graphs,
            breaks=self.breaks - before.breaks if same else self.breaks,
            recompiles=self.recompiles - before.recompiles,
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
        return Compilation(graphs=graphs, breaks=Counter(breaks), recompiles=_recompiles(dynamo))
    listed = tuple(reasons)
    stacks = (tuple((frame.filename, frame.lineno or 0) for frame in one.user_stack) for one in listed)
    found = Counter((one.reason, stack) for one, stack in zip(listed, stacks, strict=True))
    return Compilation(graphs=graphs, breaks=found, recompiles=_recompiles(dynamo), listed=listed)


def _recompiles(dynamo: Any) -> Counter[Break]:  # noqa: ANN401 (a module that may not be there)
    """Read why dynamo compiled functions again, as far as it keeps that: "size mismatch at index 0 …"."""
    found: Counter[Break] = Counter()
    for one in getattr(dynamo, "get_compilation_metrics", list)():
        reason = getattr(one, "recompile_reason", None)
        if reason:
            # It begins with the number of what was compiled before.
            words = reason.partition("\n")[0].partition(": ")[2] or reason
            found[words, ((one.co_filename or "", one.co_firstlineno or 0),)] += 1
    return found


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
