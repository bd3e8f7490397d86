"""Fewer, fused or less precise operators, and tensors in another layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from torch.utils._pytree import tree_map_only

from perfkit.features.tricks.catalogue import pieces
from perfkit.features.tricks.trick import Call, Pair, Trick

# Dimensions of a batch of images.
_IMAGES = 4


def _side(images: int, memory_format: torch.memory_format) -> Call:
    model = pieces.seeded(pieces.convolution_net).to(memory_format=memory_format)  # type: ignore[call-overload]
    inputs = pieces.seeded(lambda: torch.randn(images, 3, 32, 32)).to(memory_format=memory_format)
    return lambda: pieces.outputs_and_gradients(model, inputs)


@contextmanager
def _in_this_layout() -> Iterator[pieces.Used]:
    used, convolves = pieces.Used(), WeakKeyDictionary[nn.Module, bool]()

    def call_turned(module: nn.Module, call: pieces.Forward, inputs: pieces.Inputs) -> object:
        if module not in convolves:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            convolves[module] = any(isinstance(part, nn.Conv2d) for part in module.modules())
        if convolves[module]:
            used.note()
            inputs = tree_map_only(Tensor, _turned, inputs)
        return call(inputs)

    with pieces.calling(call_turned):
        yield used


def _turned(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == _IMAGES else values


CHANNELS_LAST = Trick(
    name="channels_last",
    title="Channels last",
    what=(
        "Keeps the channels of each pixel side by side in memory, in the images and in the weights. Fast "
        "convolution kernels read them in this order, and need not rearrange their arguments first."
    ),
    helps="In convolution nets where such kernels exist: on tensor cores, and with oneDNN on processors.",
    caveat="An operator that does not know the layout turns it back, which may cost all that was gained.",
    source=pieces.tutorial(
        "Channels Last Memory Format in PyTorch", "intermediate/memory_format_tutorial.html"
    ),
    code="model.to(memory_format=torch.channels_last); images.to(memory_format=torch.channels_last)",
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=pieces.sides(_side, memory_format=(torch.contiguous_format, torch.channels_last)),
    tolerance=(1e-3, 1e-5),
    on_loop=_in_this_layout,
)


def _collate_pair(images: int) -> Pair:
    decoded = pieces.seeded(
        lambda: [torch.randint(256, (64, 64, 3), dtype=torch.uint8) for _ in range(images)]
    )
    return Pair(without=lambda: (_as_copies(decoded),), with_=lambda: (_as_view(decoded),))


def _as_copies(decoded: list[Tensor]) -> Tensor:
    planes = [image.permute(2, 0, 1).contiguous() for image in decoded]
    return torch.stack(planes).float() / 255


def _as_view(decoded: list[Tensor]) -> Tensor:
    return torch.stack(decoded).permute(0, 3, 1, 2).float() / 255


CHANNELS_LAST_COLLATE = Trick(
    name="channels_last_collate",
    title="Batches as decoded",
    what=(
        "Joins images to a batch with the channels last, as decoders and image libraries give them, and "
        "only then names the channels as the second dimension. No image is rearranged level by level."
    ),
    helps="In loading batches of images that come as (height, width, channels).",
    caveat="The batch is in the channels-last layout: a net in the other layout rearranges it after all.",
    source=pieces.tutorial(
        "Channels Last Memory Format in PyTorch", "intermediate/memory_format_tutorial.html"
    ),
    code="torch.stack(decoded).permute(0, 3, 1, 2).float() / 255",
    size_means="images in a batch",
    sizes=(16, 64, 256),
    pair=_collate_pair,
)


_USES = 8


def _contiguous_pair(images: int) -> Pair:
    features = pieces.seeded(lambda: torch.randn(images, 64, 16, 16))
    weights = pieces.seeded(lambda: torch.randn(_USES, images, 16, 16, 64))
    return Pair(
        without=lambda: (_weighted(features.permute(0, 2, 3, 1), weights),),
        with_=lambda: (_weighted(features.permute(0, 2, 3, 1).contiguous(), weights),),
    )


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros_like(weights[0])
    for weight in weights:
        total += values * weight
    return total


CONTIGUOUS_AFTER_PERMUTE = Trick(
    name="contiguous_after_permute",
    title="Contiguous after permute",
    what=(
        "A permuted tensor is a view whose neighbours lie far apart in memory. A copy in the new order is "
        "paid once, and each later operator reads it in one go instead of in strides."
    ),
    helps="Where the permuted tensor meets contiguous ones in several operators.",
    caveat="The copy takes memory, and is for nothing where an operator copies anyway or there is but one.",
    source=pieces.documentation("Tensor Views", "tensor_view.html"),
    code="images = images.permute(0, 2, 3, 1).contiguous()",
    rewrite=(r"^(\w+ = .*\.permute\([^()]*\))$", r"\1.contiguous()"),
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=_contiguous_pair,
)


_OF_LAYOUT = (CHANNELS_LAST, CHANNELS_LAST_COLLATE, CONTIGUOUS_AFTER_PERMUTE)


def _batching_pair(products: int) -> Pair:
    left, right = pieces.seeded(lambda: (torch.randn(products, 16, 16), torch.randn(products, 16, 16)))
    return Pair(
        without=lambda: (torch.stack([one @ other for one, other in zip(left, right, strict=True)]),),
        with_=lambda: (torch.bmm(left, right),),
    )


BATCHING_SMALL_OPERATORS = Trick(
    name="batching_small_operators",
    title="Small operators batched",
    what=(
        "Multiplies all pairs of small matrices in one operator. Starting an operator takes microseconds, "
        "in which many small products could be computed."
    ),
    helps="Wherever a Python loop runs the same operator on parts of equal shape.",
    caveat="All parts have to be there at once, and to be of one shape or padded to it.",
    source=pieces.documentation("torch.bmm", "generated/torch.bmm.html"),
    code="torch.bmm(left, right)",
    size_means="products of 16 x 16 matrices",
    sizes=(8, 64, 512),
    pair=_batching_pair,
    tolerance=(1e-4, 1e-5),
)


def _bf16_side(rows: int, *, casting: bool) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=4, width=256))
    inputs = pieces.seeded(lambda: torch.randn(rows, 256))

    def train() -> tuple[Tensor, ...]:
        model.zero_grad()
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=casting):
            outputs = model(inputs)
        # Of an unscaled mean the gradients would be smaller than any tolerance.
        outputs.float().square().sum().backward()
        return outputs.detach().float(), *(gradient / rows for gradient in pieces.gradients(model))

    return train


@contextmanager
def _in_every_loop() -> Iterator[pieces.Used]:
    used = pieces.Used()

    def call_casting(_: nn.Module, call: pieces.Forward, inputs: pieces.Inputs) -> object:
        used.note()
        with ExitStack() as casting:
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                casting.enter_context(torch.autocast(device, dtype=torch.bfloat16))
            outputs = call(inputs)
        # Not every operator that the loop goes on with exists in bfloat16.
        return tree_map_only(Tensor, _as_single, outputs)

    # Not around the whole loop: the weights' casts are kept until the context ends, and after an update
    # they would be those of the former weights.
    with pieces.calling(call_casting):
        yield used


def _as_single(output: Tensor) -> Tensor:
    return output.float() if output.dtype == torch.bfloat16 else output


BF16_AUTOCAST = Trick(
    name="bf16_autocast",
    title="Autocast to bfloat16",
    what=(
        "Runs matrix products and convolutions of the forward pass in bfloat16, and with it their backward "
        "pass; parameters stay float32. Half the bytes are moved, and units for it compute faster."
    ),
    helps="In large nets on tensor cores, or on processors with bfloat16 units.",
    caveat="Without such units casts are added and nothing is gained; eight bits are few for a loss.",
    source=pieces.documentation("Automatic Mixed Precision package", "amp.html"),
    code='with torch.autocast("cpu", dtype=torch.bfloat16): loss = criterion(model(images), labels)',
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=pieces.sides(_bf16_side, casting=(False, True)),
    # Each layer rounds to eight bits, 0.4%, and four layers there and back add up.
    tolerance=(2e-2, 1e-2),
    # Normalisation over few rows makes much of little: a small batch's gradients move by tens of percent.
    loop_tolerance=0.5,
    on_loop=_in_every_loop,
)


def _compile_pair(rows: int) -> Pair:
    values = pieces.seeded(lambda: torch.randn(rows, 1024))
    compiled = torch.compile(_pointwise, dynamic=False)
    # Compiled here, so that no call of the work compiles.
    compiled(values)
    return Pair(without=lambda: (_pointwise(values),), with_=lambda: (compiled(values),))


def _pointwise(values: Tensor) -> Tensor:
    """Return a bounded function of each value: ten operators that read and write all of them."""
    gate = torch.sigmoid(values * 1.5 + 0.5)
    wave = torch.tanh(values) * torch.cos(values)
    return gate * wave + (1 - gate) * values.clamp(-1, 1)


@contextmanager
def _compiling() -> Iterator[pieces.Used]:
    """Compile each outermost module when it is first called."""
    used, seen = pieces.Used(), WeakSet[nn.Module]()

    def call_compiled(module: nn.Module, call: pieces.Forward, inputs: pieces.Inputs) -> object:
        if module not in seen and any(True for _ in module.parameters()):
            seen.add(module)
            used.note()
            module.compile()
        return call(inputs)

    with pieces.calling(call_compiled):
        yield used


COMPILE = Trick(
    name="compile",
    title="torch.compile",
    what=(
        "Traces the operators and generates one kernel for a chain of them, which reads and writes memory "
        "once, where each operator by itself writes all its results and reads them again."
    ),
    helps="In chains of elementwise operators on large tensors, and where many small operators are started.",
    caveat="Compiling takes seconds, and is done again for shapes and branches not met before.",
    source=pieces.tutorial("Introduction to torch.compile", "intermediate/torch_compile_tutorial.html"),
    code="model = torch.compile(model)",
    size_means="rows of 1024 values",
    sizes=(16, 256, 1024),
    pair=_compile_pair,
    tolerance=(1e-4, 1e-5),
    needs="compiler",
    on_loop=_compiling,
)


def _cudnn_side(images: int, *, trying: bool) -> Call:
    model = pieces.seeded(pieces.convolution_net).to("cuda")
    inputs = pieces.seeded(lambda: torch.randn(images, 3, 64, 64)).to("cuda")

    def convolve() -> tuple[Tensor, ...]:
        with _benchmark(trying=trying):
            results = pieces.outputs_and_gradients(model, inputs)
            torch.cuda.synchronize()
        return results

    return convolve


def _benchmark(*, trying: bool) -> AbstractContextManager[Callable[[], bool]]:
    return pieces.replaced(torch.backends.cudnn, "benchmark", trying)


CUDNN_BENCHMARK = Trick(
    name="cudnn_benchmark",
    title="cuDNN tries its algorithms",
    what=(
        "Times the algorithms that cuDNN has for a convolution when a shape is first met, and uses the "
        "fastest from then on, instead of one chosen by rules."
    ),
    helps="In convolution nets on a GPU whose images keep their shape.",
    caveat="Each new shape is tried anew, and the choice, with the last digits, may differ between runs.",
    source=pieces.tutorial(
        "Performance Tuning Guide, Enable cuDNN auto-tuner", "recipes/recipes/tuning_guide.html"
    ),
    code="torch.backends.cudnn.benchmark = True",
    size_means="images in a batch",
    sizes=(4, 32, 256),
    pair=pieces.sides(_cudnn_side, trying=(False, True)),
    tolerance=(1e-2, 1e-3),
    needs="cuda",
    on_loop=lambda: _benchmark(trying=True),
)


def _gelu_side(rows: int, activation: Callable[[Tensor], Tensor]) -> Call:
    values = pieces.seeded(lambda: torch.randn(rows, 1024, requires_grad=True))

    def activate() -> tuple[Tensor, ...]:
        activated = activation(values)
        return activated.detach(), *torch.autograd.grad(activated.sum(), values)

    return activate


def _written_out(values: Tensor) -> Tensor:
    return 0.5 * values * (1 + torch.erf(values / math.sqrt(2)))


FUSED_ACTIVATION = Trick(
    name="fused_activation",
    title="GELU as one operator",
    what=(
        "Calls the activation that torch has instead of writing its formula. One operator reads the values "
        "once, and keeps them alone for the backward pass; the formula's five each write and keep their own."
    ),
    helps="For every activation, norm or loss that torch has by name, the more so the larger the tensors.",
    caveat="Names may hide variants: GELU also has a form with tanh, whose values differ.",
    source=pieces.documentation("torch.nn.functional.gelu", "generated/torch.nn.functional.gelu.html"),
    code="torch.nn.functional.gelu(values)",
    rewrite=(r"0\.5 \* (\w+) \* \(1(?:\.0)? \+ torch\.erf\(\1 / .+?\)\)", r"torch.nn.functional.gelu(\1)"),
    size_means="rows of 1024 values",
    sizes=(16, 256, 1024),
    pair=pieces.sides(_gelu_side, activation=(_written_out, gelu)),
    tolerance=(1e-4, 1e-5),
)


def _inplace_side(images: int, *, inplace: bool) -> Call:
    model = pieces.seeded(lambda: pieces.convolution_net(inplace=inplace))
    inputs = pieces.seeded(lambda: torch.randn(images, 3, 32, 32))
    return lambda: pieces.outputs_and_gradients(model, inputs)


INPLACE_ACTIVATION = Trick(
    name="inplace_activation",
    title="In-place activation",
    what=(
        "ReLU writes its results over its argument instead of into new memory. Less memory is taken, and "
        "what was just read is still in the cache when it is written."
    ),
    helps="In convolution nets, whose activations are large and used once.",
    caveat="Who else holds the argument finds it changed; where the backward pass needs it, torch raises.",
    source=pieces.documentation("ReLU", "generated/torch.nn.ReLU.html"),
    code="torch.nn.ReLU(inplace=True)",
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=pieces.sides(_inplace_side, inplace=(False, True)),
    on_loop=lambda: pieces.constructing(nn.ReLU, lambda _: {"inplace": True}),
)


def _matmul_side(side: int, precision: str) -> Call:
    left, right = pieces.seeded(lambda: (torch.randn(side, side), torch.randn(side, side) / side**0.5))

    def multiply() -> tuple[Tensor, ...]:
        with _matmul_precision(precision):
            return (left @ right,)

    return multiply


def _matmul_precision(precision: str) -> AbstractContextManager[Callable[[], bool]]:
    return pieces.switched(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, precision)


MATMUL_PRECISION = Trick(
    name="matmul_precision",
    title="Medium matmul precision",
    what=(
        "Lets products of float32 matrices round their arguments to bfloat16, where there are units for it; "
        "sums and results stay float32. The units take a fraction of the time."
    ),
    helps="In nets of large matrix products, on tensor cores or on processors with bfloat16 units.",
    caveat="Without such units it changes nothing; with them, seven of the 23 bits of each number are left.",
    source=pieces.documentation(
        "set_float32_matmul_precision", "generated/torch.set_float32_matmul_precision.html"
    ),
    code='torch.set_float32_matmul_precision("medium")',
    size_means="rows and columns of a matrix",
    sizes=(128, 512, 1024),
    pair=pieces.sides(_matmul_side, precision=("highest", "medium")),
    # Rounding to seven bits moves each argument by 0.4%, and small results are differences of large terms.
    tolerance=(2e-2, 3e-2),
    loop_tolerance=0.5,
    on_loop=lambda: _matmul_precision("medium"),
)


def _identical_side(rows: int) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=4, width=128))
    inputs = pieces.seeded(lambda: torch.randn(rows, 128))
    return lambda: pieces.outputs_and_gradients(model, inputs)


IDENTICAL = Trick(
    name="identical",
    title="The same code twice",
    what="Both sides are one function's, on equal tensors: there is nothing to gain.",
    helps="Never as a trick; it shows whether a comparison finds a difference where there is none.",
    caveat="Tensors of the two sides lie at different addresses, which is no difference of the code.",
    source="None: it is what a comparison is checked with",
    code="",
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=lambda rows: Pair(without=_identical_side(rows), with_=_identical_side(rows)),
)

TRICKS = (
    *_OF_LAYOUT,
    BATCHING_SMALL_OPERATORS,
    BF16_AUTOCAST,
    COMPILE,
    CUDNN_BENCHMARK,
    FUSED_ACTIVATION,
    INPLACE_ACTIVATION,
    MATMUL_PRECISION,
)
