"""The seam to torch: all uses of its private attributes in counting are here, and in ``compiled``.

Nothing here may be called before the benchmark itself has imported torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

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
    """Tell whether no other mode was entered after this one."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_dispatch_mode() is mode


def handle_operators(kinds: Kinds) -> bool:
    """Tell whether one of these tensor types handles operators itself."""
    import torch

    plain = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001 (the seam)
    return any(getattr(kind, "__torch_dispatch__", plain) is not plain for kind in kinds)


def are_fake(kinds: Kinds) -> bool:
    """Tell whether one of these tensor types is fake, that is, has no data."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and any(issubclass(kind, module.FakeTensor) for kind in kinds)


def schema_of(operator: Any) -> Any:  # noqa: ANN401 (torch has no type for it)
    """Return an operator's schema, None where it has none."""
    return getattr(operator, "_schema", None)


def is_composite(operator: Any) -> bool:  # noqa: ANN401 (likewise)
    """Tell whether an operator is composed of others, into which it can be decomposed."""
    import torch

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 (the seam)
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

    return torch._C.DisableTorchFunction()  # noqa: SLF001 (the seam)


def backward_entries() -> tuple[Any, tuple[str, ...]]:
    """Return a module and names of its functions, one of which each backward pass begun in Python calls."""
    import torch

    autograd: Any = torch.autograd
    # Where there is one function for all, code that imported the public functions before is noticed, too.
    engine = ("_engine_run_backward",)
    return autograd, engine if hasattr(autograd, *engine) else ("backward", "grad")


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

    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003, SLF001 (the seam)
    return hooks[0] if hooks else None
