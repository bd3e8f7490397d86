"""The contexts in which a training loop uses a trick take effect, and restore everything at their end."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer, RMSprop
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from workloads.images import digits_folder
from workloads.metric_learning.training import TrainingConfig, train

from perfkit.features.tricks.catalogue import catalogue, find
from perfkit.features.tricks.trick import is_available

NAMES = [trick.name for trick in catalogue() if trick.on_loop]
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adadelta": Adadelta,
    "rmsprop": RMSprop,
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
}
UPDATES = [name for name in NAMES if name.partition("_")[0] in OPTIMIZERS]
INDEXED = TensorDataset(torch.arange(3))


class Stream(IterableDataset[int]):
    """Three numbers, which each worker would yield anew."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> TrainingConfig:
    """Return a training of four steps on thirty images each."""
    digits = digits_folder(tmp_path_factory.mktemp("cache"))
    folder = tmp_path_factory.mktemp("few")
    for name in "012":
        (folder / name).mkdir()
        for path in sorted((digits / name).iterdir())[:50]:
            (folder / name / path.name).symlink_to(path)
    return TrainingConfig(data=Path(folder), epochs=1, p=3, k=10, logging_every=60, logging_samples=20)


@pytest.fixture(scope="module")
def expected_losses(brief: TrainingConfig) -> tuple[float, ...]:
    return train(brief).losses


def context_of(name: str) -> AbstractContextManager[Callable[[], bool]]:
    """Return the context in which a loop uses the trick."""
    on_loop = find(name).on_loop
    assert on_loop
    return on_loop()


def allowed_difference(name: str) -> float:
    """Return by what share losses may differ: by the order of sums, or by rounding to bfloat16."""
    if name == "bf16_autocast":
        return 0.2
    # Medium precision rounds the arguments of products only, and only where there are units for it.
    return 0.05 if name == "matmul_precision" and has_bfloat16_units() else 1e-3


def has_bfloat16_units() -> bool:
    """Return whether this processor rounds the arguments of float32 products when it is allowed to."""
    left = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    exact = left @ left
    with context_of("matmul_precision"):
        return not torch.equal(exact, left @ left)


def settings() -> dict[str, object]:
    return {
        **{name: vars(optimizer)["__init__"] for name, optimizer in OPTIMIZERS.items()},
        "loader": vars(DataLoader)["__init__"],
        "zero_grad": (Optimizer.zero_grad, nn.Module.zero_grad),
        "call": nn.Module.__call__,
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "benchmark": torch.backends.cudnn.benchmark,
    }


def parameter() -> nn.Parameter:
    made = nn.Parameter(torch.ones(2))
    made.grad = torch.ones(2)
    return made


# The compiler takes its time.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "compile" else []) for name in NAMES]
)
def test_a_training_loop_takes_the_same_steps(
    name: str, brief: TrainingConfig, expected_losses: tuple[float, ...]
) -> None:
    if why := is_available(find(name)):
        pytest.skip(why)
    with context_of(name):
        losses = train(brief).losses
    # Samples in memory are those of the first batch, in whichever order.
    count = 1 if name == "dataset_in_memory" else None
    assert pytest.approx(expected_losses[:count], rel=allowed_difference(name)) == losses[:count]


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_as_it_was_after_an_error(name: str) -> None:
    before = settings()
    with pytest.raises(KeyError), context_of(name):
        raise KeyError
    assert before == settings()


@pytest.mark.parametrize("name", UPDATES)
def test_optimizers_update_as_the_context_sets(name: str) -> None:
    kind, _, how = name.partition("_")
    with context_of(name):
        made = {other: make([parameter()], lr=0.1, foreach=False) for other, make in OPTIMIZERS.items()}
    made[kind].step()
    assert [kind] == [other for other, optimizer in made.items() if optimizer.param_groups[0].get(how)]
    assert not OPTIMIZERS[kind]([parameter()], lr=0.1).param_groups[0][how]


def test_gradients_are_dropped_in_a_loop_that_zeroes_them() -> None:
    weight, module = parameter(), nn.Linear(2, 1)
    module.weight.grad = torch.ones(1, 2)
    with context_of("zero_grad_set_to_none"):
        SGD([weight], lr=0.1).zero_grad(set_to_none=False)
        module.zero_grad(set_to_none=False)
    assert weight.grad is None
    assert module.weight.grad is None


def test_loaders_get_workers() -> None:
    with context_of("loader_workers"):
        assert 2 == DataLoader(INDEXED).num_workers
        assert 1 == DataLoader(INDEXED, num_workers=1).num_workers
        assert 0 == DataLoader(Stream()).num_workers
    assert 0 == DataLoader(INDEXED).num_workers


def test_each_batch_is_as_if_its_samples_had_been_read_before() -> None:
    """A stream cannot be kept, and what else a dataset has is still there."""
    with context_of("dataset_in_memory"):
        loader, stream = DataLoader(INDEXED, batch_size=2), DataLoader(Stream())
    assert [[0, 1], [0]] == [batch.tolist() for (batch,) in loader]
    assert (2, INDEXED.tensors) == (len(loader), loader.dataset.tensors)  # type: ignore[attr-defined]
    assert [[0], [1], [2]] == [batch.tolist() for batch in stream]


def test_workers_persist_where_there_are_any() -> None:
    with context_of("persistent_workers"):
        assert DataLoader(INDEXED, num_workers=1).persistent_workers
        assert not DataLoader(INDEXED).persistent_workers


def test_workers_prepare_more_batches_where_there_are_any() -> None:
    with context_of("prefetch_factor"):
        assert 8 == DataLoader(INDEXED, num_workers=1, prefetch_factor=2).prefetch_factor
        assert DataLoader(INDEXED).prefetch_factor is None


def test_settings_of_torch_are_set() -> None:
    with context_of("matmul_precision"):
        assert "medium" == torch.get_float32_matmul_precision()
    with context_of("cudnn_benchmark"):
        assert torch.backends.cudnn.benchmark is True
    threads = settings()["threads"]
    with context_of("thread_count"):
        all_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with context_of("thread_count"):
            assert all_threads == torch.get_num_threads()
        assert 1 == torch.get_num_threads()
    assert threads == torch.get_num_threads()


def trained(steps: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
    """Return the weights of a layer after two steps whose outputs are computed in some way."""
    layer = nn.Linear(3, 1, bias=False)
    nn.init.constant_(layer.weight, 0.3)
    optimizer = SGD(layer.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        outputs = steps(layer, torch.tensor([[1.0, 2.0, 3.0]]))
        outputs.float().square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return layer.weight.detach()


def autocast_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the outputs as torch's documentation has them computed in bfloat16."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs: Tensor = model(inputs)
    return outputs


def plain_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the outputs of a loop that knows no precision."""
    outputs: Tensor = model(inputs)
    return outputs


def test_forward_passes_are_cast_with_the_weights_of_the_step() -> None:
    with context_of("bf16_autocast"):
        cast = trained(plain_outputs)
    assert torch.equal(trained(autocast_outputs), cast)
    assert not torch.equal(trained(plain_outputs), cast)


class Exact(nn.Module):
    """Asks for float32 in what it runs, whichever its caller asks for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: Tensor) -> Tensor:
        """Return what the module makes of the values."""
        with torch.autocast("cpu", enabled=False):
            outputs: Tensor = self.module(values)
        return outputs


@pytest.mark.parametrize(("wrap", "within"), [(nn.Sequential, torch.bfloat16), (Exact, torch.float32)])
def test_casts_end_with_the_outermost_module(
    wrap: Callable[[nn.Module], nn.Module], within: torch.dtype
) -> None:
    layer, seen = nn.Linear(2, 2), []
    layer.register_forward_hook(lambda _layer, _inputs, outputs: seen.append(outputs.dtype))
    with context_of("bf16_autocast"):
        outputs = wrap(layer)(torch.ones(1, 2))
    assert [within] == seen
    assert torch.float32 == outputs.dtype
