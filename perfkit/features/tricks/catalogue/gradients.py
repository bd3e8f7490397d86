"""Gradients that are not recorded, not kept or not zeroed, and optimizers that update all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer, RMSprop
from torch.utils.checkpoint import checkpoint

from perfkit.features.tricks.catalogue import pieces
from perfkit.features.tricks.catalogue.pieces import Used, constructing, documentation, seeded
from perfkit.features.tricks.trick import Call, Pair, Trick

How = Literal["foreach", "fused"]

_WAYS: dict[type[Optimizer], tuple[How, ...]] = {
    Adadelta: ("foreach",),
    RMSprop: ("foreach",),
    SGD: ("foreach", "fused"),
    Adam: ("foreach", "fused"),
    AdamW: ("foreach", "fused"),
}
_WHAT: dict[How, str] = {
    "foreach": (
        "Hands lists of tensors to each operator of the update instead of running all operators for one "
        "parameter after the other. A GPU then starts few large kernels instead of many small ones."
    ),
    "fused": (
        "Computes the whole update of a parameter in one kernel, which reads and writes memory once, where "
        "the plain loop starts an operator for each term of the formula."
    ),
}
_CAVEAT: dict[How, str] = {
    "foreach": "Intermediate results of all parameters exist at once, so the peak of memory is higher.",
    "fused": "Not every optimiser has it; some gradient scalers and all differentiable steps refuse it.",
}


def _trick(optimizer: type[Optimizer], how: How) -> Trick:
    kind = optimizer.__name__
    return Trick(
        name=f"{kind.lower()}_{how}",
        title=f"{kind}, {how}",
        what=_WHAT[how],
        helps="With many small parameters, whose operators take longer to start than to run.",
        caveat=_CAVEAT[how],
        source=documentation(kind, f"generated/torch.optim.{kind}.html"),
        code=f"torch.optim.{kind}(parameters, {how}=True)",
        size_means="parameters of 64 x 64",
        sizes=(8, 64, 256),
        pair=lambda count: _pair(optimizer, how, count),
        tolerance=(1e-5, 1e-6),
        excludes=tuple(f"{kind.lower()}_{other}" for other in _WAYS[optimizer] if other != how),
        on_loop=lambda: _use_way(optimizer, how),
        rewrite=(rf"^([^#]*\b{kind}\([^#]+)\)$", rf"\1, {how}=True)"),
    )


def _pair(optimizer: type[Optimizer], how: How, count: int) -> Pair:
    # With no way named, a GPU's update would be foreach; with each refused, it is the plain loop.
    plain = dict.fromkeys(_WAYS[optimizer], False)
    return Pair(without=_side(optimizer, count, **plain), with_=_side(optimizer, count, **{how: True}))


def _side(optimizer: Callable[..., Optimizer], count: int, **how: bool) -> Call:
    updated = seeded(lambda: [_with_gradient(torch.randn(64, 64)) for _ in range(count)])
    updating = optimizer(updated, lr=1e-3, **how)
    results = tuple(parameter.detach() for parameter in updated)

    def step() -> tuple[Tensor, ...]:
        updating.step()
        return results

    return step


def _with_gradient(values: Tensor) -> nn.Parameter:
    parameter = nn.Parameter(values)
    parameter.grad = torch.randn_like(values)
    return parameter


def _use_way(optimizer: type[Optimizer], how: How) -> AbstractContextManager[Used]:
    # The caller's choice of the other way is dropped: torch refuses both together.
    return constructing(optimizer, lambda _: {**dict.fromkeys(_WAYS[optimizer]), how: True})


_OF_OPTIMIZERS = tuple(_trick(optimizer, how) for optimizer, ways in _WAYS.items() for how in ways)


def evaluation(rows: int, context: Callable[[], AbstractContextManager[None]]) -> Call:
    """Return a call that evaluates a net of many small layers, whose parameters require gradients."""
    model = pieces.seeded(lambda: pieces.perceptron(layers=16, width=64)).eval()
    inputs = pieces.seeded(lambda: torch.randn(rows, 64))

    def evaluate() -> tuple[torch.Tensor, ...]:
        with context():
            outputs = model(inputs)
        return (outputs.detach(),)

    return evaluate


def _checkpointing_side(layers: int, *, checkpointing: bool) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=layers, width=256))
    inputs = pieces.seeded(lambda: torch.randn(128, 256))
    for layer in model if checkpointing else ():
        _checkpoint(layer)
    return lambda: pieces.outputs_and_gradients(model, inputs)


def _checkpoint(block: nn.Module) -> None:
    """Have a block keep no intermediate result until its backward pass."""
    block.forward = partial(checkpoint, block.forward, use_reentrant=False)


@contextmanager
def _checkpointing() -> Iterator[pieces.Used]:
    """Checkpoint the blocks of each model: modules with parts, of one class, in a list or a sequence."""
    used, seen = pieces.Used(), WeakSet[nn.Module]()

    def call_checkpointed(module: nn.Module, call: pieces.Forward, inputs: pieces.Inputs) -> object:
        if module not in seen:
            seen.add(module)
            for block in _blocks(module):
                used.note()
                _checkpoint(block)
        return call(inputs)

    with pieces.calling(call_checkpointed):
        yield used


def _blocks(model: nn.Module) -> list[nn.Module]:
    lists = (list(one) for one in model.modules() if isinstance(one, nn.ModuleList | nn.Sequential))
    return [
        block
        for blocks in lists
        if len(blocks) > 1 and len({type(block) for block in blocks}) == 1 and any(blocks[0].children())
        for block in blocks
    ]


GRADIENT_CHECKPOINTING = Trick(
    name="gradient_checkpointing",
    title="Gradient checkpointing",
    what=(
        "Keeps only what goes into each layer, and computes the rest again when the backward pass needs it. "
        "It is no speed trick by itself: memory is paid for with a second forward pass."
    ),
    helps="Where memory limits the batch, and a larger batch makes up for the time.",
    caveat="Expect a step to take longer by about a forward pass.",
    source=pieces.documentation("torch.utils.checkpoint", "checkpoint.html"),
    code="torch.utils.checkpoint.checkpoint(block, values, use_reentrant=False)",
    size_means="layers of 256 x 256",
    sizes=(2, 8, 32),
    pair=pieces.sides(_checkpointing_side, checkpointing=(False, True)),
    on_loop=_checkpointing,
)


@contextmanager
def _in_evaluations(
    evaluates: Callable[[nn.Module], bool], context: Callable[[], AbstractContextManager[None]]
) -> Iterator[pieces.Used]:
    """Call outermost modules that evaluate in a context, until the end."""
    used = pieces.Used()

    def call_within(module: nn.Module, call: pieces.Forward, inputs: pieces.Inputs) -> object:
        if not evaluates(module):
            return call(inputs)
        used.note()
        with context():
            return call(inputs)

    with pieces.calling(call_within):
        yield used


def _records_in_vain(module: nn.Module) -> bool:
    trained = any(parameter.requires_grad for parameter in module.parameters())
    return torch.is_grad_enabled() and not module.training and trained


INFERENCE_MODE = Trick(
    name="inference_mode",
    title="Inference mode in evaluation",
    what=(
        "Within torch.inference_mode() operators record nothing for a backward pass, as under no_grad(), "
        "and tensors keep no count of their changes and views no track of their base."
    ),
    helps="In evaluation and inference with many small operators, whose overhead is most of the time.",
    caveat="Outside, its tensors can neither be changed in place nor be saved for a backward pass.",
    source=pieces.documentation("inference_mode", "generated/torch.autograd.grad_mode.inference_mode.html"),
    code="with torch.inference_mode(): outputs = model(inputs)",
    rewrite=(r"torch\.no_grad\(\)", "torch.inference_mode()"),
    size_means="rows in a batch",
    sizes=(1, 16, 256),
    pair=pieces.sides(evaluation, context=(torch.enable_grad, torch.inference_mode)),
    on_loop=lambda: _in_evaluations(lambda _: not torch.is_grad_enabled(), torch.inference_mode),
    between_steps=True,
)


NO_GRAD = Trick(
    name="no_grad",
    title="No gradients in evaluation",
    what=(
        "Within torch.no_grad() operators record nothing for a backward pass: no graph is built, and "
        "intermediate results are freed as soon as the next operator has read them."
    ),
    helps="In evaluation and inference, above all with many small operators or little memory.",
    caveat="It does not switch dropout and batch normalisation to evaluation: model.eval() does.",
    source=pieces.documentation(
        "Autograd mechanics, Locally disabling gradient computation", "notes/autograd.html"
    ),
    code="with torch.no_grad(): outputs = model(inputs)",
    size_means="rows in a batch",
    sizes=(1, 16, 256),
    pair=pieces.sides(evaluation, context=(torch.enable_grad, torch.no_grad)),
    on_loop=lambda: _in_evaluations(_records_in_vain, torch.no_grad),
    between_steps=True,
)


def _zero_grad_side(layers: int, *, set_to_none: bool) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=layers, width=128))
    optimizer = SGD(model.parameters(), lr=0.1)
    inputs = pieces.seeded(lambda: torch.randn(16, 128))

    def step() -> tuple[Tensor, ...]:
        optimizer.zero_grad(set_to_none=set_to_none)
        model(inputs).square().mean().backward()
        optimizer.step()
        return pieces.parameters(model)

    return step


@contextmanager
def _in_every_loop() -> Iterator[pieces.Used]:
    used = pieces.Used()
    with (
        pieces.replaced(Optimizer, "zero_grad", _dropping(Optimizer.zero_grad, used)),
        pieces.replaced(nn.Module, "zero_grad", _dropping(nn.Module.zero_grad, used)),
    ):
        yield used


def _dropping(zero_grad: Callable[..., None], used: pieces.Used) -> Callable[..., None]:
    def drop(self: object, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 (torch's own signature)
        if not set_to_none:
            used.note()
        zero_grad(self, set_to_none=True)

    return drop


ZERO_GRAD_SET_TO_NONE = Trick(
    name="zero_grad_set_to_none",
    title="Gradients set to none",
    what=(
        "Drops the gradients before a step instead of filling them with zeros. The backward pass then puts "
        "its results in their place, where it would otherwise read the zeros and add to them."
    ),
    helps="With many or large parameters; it is what zero_grad() does by default.",
    caveat="A parameter that a step does not reach has no gradient then, and the optimiser skips it.",
    source=pieces.documentation("Optimizer.zero_grad", "generated/torch.optim.Optimizer.zero_grad.html"),
    code="optimizer.zero_grad(set_to_none=True)",
    rewrite=(r"zero_grad\(set_to_none=False\)", "zero_grad(set_to_none=True)"),
    size_means="layers of 128 x 128",
    sizes=(4, 16, 64),
    pair=pieces.sides(_zero_grad_side, set_to_none=(False, True)),
    on_loop=_in_every_loop,
)


TRICKS = (*_OF_OPTIMIZERS, GRADIENT_CHECKPOINTING, INFERENCE_MODE, NO_GRAD, ZERO_GRAD_SET_TO_NONE)
