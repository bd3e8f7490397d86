"""What is watched in a target's first steps: half precision, autocast, and mistakes that raise no error."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from perfkit.agent.counters.model import Places
from perfkit.agent.counters.torch_adapter import operator_mode, storage_of

_SIGMOID = "aten::sigmoid"
_WITH_LOGITS = "aten::binary_cross_entropy_with_logits"
_CAST = "aten::_to_copy"
# A graph that grows over this many steps in a row is kept from step to step by mistake.
_GROWING_STEPS = 3
_HALF_MOST = 65504
# Only this many calls of modules are looked at, about one forward pass of a deep model.
_MODULES = 200
_DEVICES = ("cpu", "cuda")


class OperatorLook:
    """Looks at every operator of this thread: counts those in half precision, and notes mistakes.

    Enter it around the target's call, and call ``end_step`` after each optimizer step.
    """

    def __init__(self, root: Path) -> None:
        self.half: dict[str, int] = {}
        self._places = Places(root)
        self._squashed: dict[int, weakref.ref[Any]] = {}
        self._scalars: list[tuple[weakref.ref[Any], str]] = []
        self._graph_sizes: list[int] = []
        self._noticed: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._mode = operator_mode(self._handle)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)  # type: ignore[arg-type]

    @property
    def steps(self) -> int:
        """How many steps are over."""
        return len(self._graph_sizes)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The mistakes that were noticed, each once, in the order of noticing."""
        return tuple(self._noticed.values())

    def end_step(self) -> None:
        """Look at the graphs that are still alive after a step."""
        alive = [(scalar, place) for ref, place in self._scalars if (scalar := ref()) is not None]
        self._scalars = [(weakref.ref(scalar), place) for scalar, place in alive]
        held = [(scalar, place) for scalar, place in alive if scalar.grad_fn is not None]
        self._graph_sizes.append(_graph_size([scalar for scalar, _ in held]))
        recent = self._graph_sizes[-_GROWING_STEPS - 1 :]
        grows = all(low < high for low, high in itertools.pairwise(recent))
        if grows and len(recent) > _GROWING_STEPS:
            where = f" at {held[0][1]}" if held[0][1] else ""
            self._log(
                "graph",
                f"a loss is accumulated with its graph{where}: after steps in a row"
                f" {', '.join(map(str, recent))} nodes of it are alive; accumulate loss.detach(), or"
                " loss.item() after the loop",
            )

    def _log(self, kind: str, text: str) -> None:
        self._noticed.setdefault(kind, text)

    def _handle(
        self,
        operator: Any,  # noqa: ANN401 (an operator)
        _kinds: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 (its result)
        result = operator(*args, **kwargs)
        name = operator.name().partition(".")[0]
        frame = sys._getframe(1)  # noqa: SLF001 (the caller)
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            self._see(name, tensor, args, frame)
        if name == _WITH_LOGITS and self._is_squashed(args[0]):
            self._log(
                "sigmoid",
                f"a sigmoid stands before a loss that takes logits{self._at(frame)}: it would be applied"
                " twice; pass the logits, or use binary_cross_entropy",
            )
        return result

    def _see(self, name: str, tensor: Any, args: tuple[Any, ...], frame: FrameType | None) -> None:  # noqa: ANN401 (what an operator returns)
        import torch

        if not isinstance(tensor, torch.Tensor):
            return
        if tensor.dtype in {torch.float16, torch.bfloat16}:
            if name == _CAST:
                self._look_at_cast(tensor, args[0], frame)
            else:
                kind = str(tensor.dtype).removeprefix("torch.")
                self.half[kind] = self.half.get(kind, 0) + 1
        if tensor.numel() == 1 and tensor.is_floating_point():
            self._scalars.append((weakref.ref(tensor), self._places.line_of(frame) or ""))
        if name == _SIGMOID or (name == _CAST and self._is_squashed(args[0])):
            storage = storage_of(tensor)
            if storage is not None:
                self._squashed[id(storage)] = weakref.ref(storage)

    def _is_squashed(self, tensor: Any) -> bool:  # noqa: ANN401 (a tensor)
        storage = storage_of(tensor)
        known = self._squashed.get(id(storage))
        return known is not None and known() is storage

    def _look_at_cast(self, cast: Any, origin: Any, frame: FrameType | None) -> None:  # noqa: ANN401 (tensors)
        """Notice values that the half type cannot hold; in backward passes the scaler handles them."""
        import torch

        if cast.dtype != torch.float16 or _in_backward():
            return
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 (a look, not an operator of the target's)
            lost = cast.isinf() & ~origin.isinf()
            if not bool(lost.any()):
                return
            largest = float(origin[lost].abs().max())
        self._log(
            "overflow",
            f"float16 holds numbers up to {_HALF_MOST}{self._at(frame)}: {largest:g} became infinite when"
            " it was cast; scale it down, or use bfloat16",
        )

    def _at(self, frame: FrameType | None) -> str:
        place = self._places.line_of(frame)
        return f" at {place}" if place else ""


def _in_backward() -> bool:
    import torch

    current: Callable[[], int] = torch._C._current_graph_task_id  # noqa: SLF001 (no public name)
    return current() != -1


def _graph_size(tensors: list[Any]) -> int:
    """Return how many nodes of the graph these tensors keep alive."""
    seen: set[Any] = set()
    left = [tensor.grad_fn for tensor in tensors]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [following for following, _ in node.next_functions]
    return len(seen)


def misfit(error: BaseException) -> str | None:
    """Return which layer was given another number of features than it takes, None for any other error."""
    from torch import Tensor
    from torch.nn import Linear

    frames = error.__traceback__
    while frames is not None:
        layer, given = (frames.tb_frame.f_locals.get(name) for name in ("self", "input"))
        if isinstance(layer, Linear) and isinstance(given, Tensor):
            features, outputs = given.shape[-1], layer.out_features
            if features != layer.in_features:
                return (
                    f"Linear({layer.in_features}, {outputs}) was given {features} features: make it"
                    f" Linear({features}, {outputs})"
                )
        frames = frames.tb_next
    return None


class AutocastWatch:
    """Notes under which types of automatic casting the first modules ran, while it is entered."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._left = _MODULES

    def __enter__(self) -> Self:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(self._on_module)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    @property
    def seen(self) -> tuple[str, ...]:
        """The types, such as "bfloat16", in the order in which they were met."""
        return tuple(self._seen)

    def _on_module(self, *_: object) -> None:
        import torch

        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                self._seen[str(torch.get_autocast_dtype(device)).removeprefix("torch.")] = None
        self._left -= 1
        if self._left <= 0:
            self._hook.remove()
