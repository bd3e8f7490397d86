"""Where the processor and the device wait for each other, or threads for one another."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu
from torch.optim import SGD
from torch.utils.data import DataLoader

from perfkit.features.tricks.catalogue import pieces
from perfkit.features.tricks.trick import Call, Pair, Trick

_ROWS = 128
_CLASSES = 64


def _predictions_pair(batches: int) -> Pair:
    model = pieces.seeded(lambda: pieces.perceptron(layers=2, width=_CLASSES))
    inputs = pieces.seeded(lambda: torch.randn(batches, _ROWS, _CLASSES))
    labels = pieces.seeded(lambda: torch.randint(_CLASSES, (batches, _ROWS)))
    return Pair(without=_moved_each(model, inputs, labels), with_=_moved_once(model, inputs, labels))


def _moved_each(model: torch.nn.Module, inputs: Tensor, labels: Tensor) -> Call:
    def count() -> tuple[Tensor, ...]:
        correct = 0
        with torch.no_grad():
            for rows, expected in zip(inputs, labels, strict=True):
                predicted = model(rows).argmax(dim=1).cpu().numpy()
                correct += int((predicted == expected.cpu().numpy()).sum())
        return (torch.tensor(correct),)

    return count


def _moved_once(model: torch.nn.Module, inputs: Tensor, labels: Tensor) -> Call:
    def count() -> tuple[Tensor, ...]:
        correct = torch.zeros((), dtype=torch.int64, device=labels.device)
        with torch.no_grad():
            for rows, expected in zip(inputs, labels, strict=True):
                correct += (model(rows).argmax(dim=1) == expected).sum()
        return (correct.cpu(),)

    return count


CPU_INSIDE_LOOP = Trick(
    name="cpu_inside_loop",
    title="Moved to the processor last",
    what=(
        "Compares and counts predictions on their device and moves the one count at the end. Each cpu() "
        "within the loop would wait for the device and move a whole batch."
    ),
    helps="In evaluation on a GPU; where tensors are the processor's anyway, cpu() does nothing.",
    caveat="On a processor NumPy may compare small arrays faster than torch does.",
    source=pieces.tutorial(
        "Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization",
        "recipes/recipes/tuning_guide.html",
    ),
    code="correct += (outputs.argmax(dim=1) == labels).sum()  # after the loop: correct.cpu()",
    size_means="batches of 128 rows",
    rewrite=(r"^(\w+ \+= .*)\.cpu\(\)(?:\.numpy\(\))?(.*)$", r"\1\2  # move the sum after the loop"),
    sizes=(5, 20, 80),
    pair=_predictions_pair,
)


def _clearing_side(steps: int, *, clearing: bool) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=4, width=512)).to("cuda")
    optimizer = SGD(model.parameters(), lr=0.1)
    inputs = pieces.seeded(lambda: torch.randn(256, 512)).to("cuda")

    def train() -> tuple[Tensor, ...]:
        for _ in range(steps):
            if clearing:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
            pieces.train_step(model, optimizer, inputs)
        torch.cuda.synchronize()
        return pieces.parameters(model)

    return train


EMPTY_CACHE_PER_STEP = Trick(
    name="empty_cache_per_step",
    title="Cache cleared every step",
    what=(
        "Gives unused device memory back, starts the count of its peak anew and waits for the device, before "
        "each step. It is meant to keep memory free; the next step has to ask the driver for it again."
    ),
    helps="Where another process needs the memory, or a measurement a clean start.",
    caveat="It frees no memory that a tensor holds, and torch itself has no more memory to use than before.",
    source=pieces.documentation("empty_cache", "generated/torch.cuda.memory.empty_cache.html"),
    code="torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); torch.cuda.synchronize()",
    size_means="training steps",
    sizes=(5, 20, 80),
    pair=pieces.sides(_clearing_side, clearing=(False, True)),
    tolerance=(1e-5, 1e-6),
    needs="cuda",
)


def _item_side(steps: int, total: Callable[[Callable[[], Tensor], int], float]) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=2, width=64))
    optimizer = SGD(model.parameters(), lr=0.1)
    inputs = pieces.seeded(lambda: torch.randn(16, 64))

    def train() -> tuple[Tensor, ...]:
        losses = total(lambda: pieces.train_step(model, optimizer, inputs), steps)
        return (torch.tensor(losses, dtype=torch.float64),)

    return train


def _read_each(step: Callable[[], Tensor], steps: int) -> float:
    total = 0.0
    for _ in range(steps):
        total += step().item()
    return total


def _read_once(step: Callable[[], Tensor], steps: int) -> float:
    total = step().double()
    for _ in range(steps - 1):
        total += step()
    return total.item()


ITEM_PER_STEP = Trick(
    name="item_per_step",
    title="Losses read once",
    what=(
        "Adds up the losses as tensors and reads the sum at the end. Reading a number with item() makes the "
        "processor wait until the device has computed it, and the device then waits for new work."
    ),
    helps="On a GPU that is given small work step by step.",
    caveat="On a processor nothing is waited for: the sum as a tensor is one more operator a step.",
    source=pieces.tutorial(
        "Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization",
        "recipes/recipes/tuning_guide.html",
    ),
    code="total += loss.detach()  # after the loop: total.item()",
    rewrite=(r"^(\w+) \+= ([^#]+)\.item\(\)([^#]*)$", r"\1 += \2.detach()\3  # after the loop: \1.item()"),
    size_means="training steps",
    sizes=(5, 20, 80),
    pair=pieces.sides(_item_side, total=(_read_each, _read_once)),
)


def _one_side(rows: int, *, threads: int) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=4, width=128))
    inputs = pieces.seeded(lambda: torch.randn(rows, 128))

    def compute() -> tuple[Tensor, ...]:
        with pieces.threads_set_to(threads):
            return pieces.outputs_and_gradients(model, inputs)

    return compute


ONE_THREAD = Trick(
    name="one_thread",
    title="One thread",
    what=(
        "Leaves each operator to the thread that asks for it, instead of dividing it among all. Nobody waits "
        "for anybody, and other processes, such as those that load the data, keep their processors."
    ),
    helps="With small tensors, and where several processes share the machine.",
    caveat="Large operators take as much longer as there are threads left out.",
    source=pieces.documentation(
        "CPU threading and TorchScript inference", "notes/cpu_threading_torchscript_inference.html"
    ),
    code="torch.set_num_threads(1)",
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=pieces.sides(_one_side, threads=(pieces.allowed_threads(), 1)),
    tolerance=(1e-4, 1e-5),
    excludes=("thread_count",),
    on_loop=lambda: pieces.threads_set_to(1),
)


_BATCHES = 8
_WIDTH = 1024


def _pinned_side(rows: int, *, pinned: bool) -> Call:
    model = pieces.seeded(lambda: pieces.perceptron(layers=4, width=_WIDTH)).to("cuda")
    batches = pieces.seeded(lambda: [torch.randn(rows, _WIDTH) for _ in range(_BATCHES)])
    if pinned:
        batches = [batch.pin_memory() for batch in batches]

    def evaluate() -> tuple[Tensor, ...]:
        with torch.no_grad():
            outputs = tuple(model(batch.to("cuda", non_blocking=pinned)).mean() for batch in batches)
        torch.cuda.synchronize()
        return outputs

    return evaluate


@contextmanager
def _pinning() -> Iterator[pieces.Used]:
    """Let loaders pin their batches, and no copy to a device wait."""
    move = Tensor.to

    def to(self: Tensor, *args: Any, **keywords: Any) -> Tensor:  # noqa: ANN401 (torch's own signature)
        if self.device.type == "cpu" and len(args) == 1:
            keywords.setdefault("non_blocking", True)
        return move(self, *args, **keywords)

    with (
        pieces.constructing(DataLoader, lambda _: {"pin_memory": True}) as used,
        pieces.replaced(Tensor, "to", to),
    ):
        yield used


PINNED_MEMORY = Trick(
    name="pinned_memory",
    title="Pinned memory, non-blocking",
    what=(
        "Keeps batches in memory that the operating system may not move, so that the device fetches them by "
        "itself and the processor goes on preparing work instead of waiting for each copy."
    ),
    helps="Where batches are large and a loader pins them in a thread of its own.",
    caveat="Pinning takes longer than a plain copy: in the training thread it costs more than it gives.",
    source=pieces.tutorial(
        "A guide on good usage of non_blocking and pin_memory()", "intermediate/pinmem_nonblock.html"
    ),
    code="DataLoader(dataset, pin_memory=True); images.to(device, non_blocking=True)",
    size_means="rows in a batch",
    sizes=(64, 1024, 8192),
    pair=pieces.sides(_pinned_side, pinned=(False, True)),
    on_loop=_pinning,
    between_steps=True,
    rewrite=(r"^([^#]*DataLoader\([^#]+)\)$", r"\1, pin_memory=True)"),
    tolerance=(1e-5, 1e-6),
    needs="cuda",
)


def _all_side(side: int, *, threads: int) -> Call:
    left, right = pieces.seeded(lambda: (torch.randn(side, side), torch.randn(side, side) / side**0.5))

    def compute() -> tuple[Tensor, ...]:
        with pieces.threads_set_to(threads):
            return (gelu(left @ right),)

    return compute


THREAD_COUNT = Trick(
    name="thread_count",
    title="All threads",
    what=(
        "Divides the work of one operator among as many threads as the process may use processors, instead "
        "of leaving it to one."
    ),
    helps="With large tensors on a processor that has nothing else to do.",
    caveat="Small operators wait longer for the threads than they save, the more so beside other processes.",
    source=pieces.documentation("set_num_threads", "generated/torch.set_num_threads.html"),
    code="torch.set_num_threads(len(os.sched_getaffinity(0)))",
    size_means="rows and columns of a matrix",
    sizes=(64, 512, 1024),
    pair=pieces.sides(_all_side, threads=(1, pieces.allowed_threads())),
    tolerance=(1e-4, 1e-5),
    excludes=("one_thread",),
    on_loop=lambda: pieces.threads_set_to(pieces.allowed_threads()),
)


TRICKS = (CPU_INSIDE_LOOP, EMPTY_CACHE_PER_STEP, ITEM_PER_STEP, ONE_THREAD, PINNED_MEMORY, THREAD_COUNT)
