"""Losses and metrics agree with their definitions; the training learns, repeats by seed and names errors."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import naive_reference as naive
import pytest
import torch
from torch import Tensor, nn
from workloads.image_loading import Augmenting
from workloads.images import digits_folder
from workloads.metric_learning.distances import precompute_pairwise_distances
from workloads.metric_learning.losses import BatchAllTripletLoss, BatchHardTripletLoss, ContrastiveLoss
from workloads.metric_learning.metrics import (
    ClusterMetrics,
    compute_intercluster_metrics,
    compute_intracluster_metrics,
    recall_at_1,
)
from workloads.metric_learning.sampler import PKSampler
from workloads.metric_learning.training import (
    TrainingConfig,
    TrainingResult,
    main,
    summary,
    train,
)

# Float32 sums in another order differ in the last digits: distances here are below 10.
TOLERANCE = 1e-5
BATCHES = range(6)

LOSSES: dict[str, tuple[nn.Module, Callable[[Tensor, list[int]], Tensor]]] = {
    "batch-hard": (BatchHardTripletLoss(0.5), lambda e, c: naive.batch_hard(e, c, margin=0.5)),
    "batch-all": (
        BatchAllTripletLoss(0.5),
        lambda e, c: naive.batch_all(e, c, margin=0.5, only_positive=False),
    ),
    "batch-all-positive": (
        BatchAllTripletLoss(0.5, only_positive=True),
        lambda e, c: naive.batch_all(e, c, margin=0.5, only_positive=True),
    ),
    "contrastive": (ContrastiveLoss(2.0), lambda e, c: naive.contrastive(e, c, margin=2.0)),
}


def random_batch(seed: int, *, smallest: int = 2) -> tuple[Tensor, Tensor]:
    """Return up to 15 points of up to 6 dimensions in unbalanced classes; every third holds duplicates."""
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.randint(smallest, 16, (), generator=generator))
    dimension = int(torch.randint(1, 7, (), generator=generator))
    embeddings = torch.randn(count, dimension, generator=generator)
    # The square of a uniform number favours the first classes.
    labels = (torch.rand(count, generator=generator) ** 2 * 4).long()
    if seed % 3 == 0:
        embeddings[count // 2 :] = embeddings[: count - count // 2].clone()
    return embeddings, labels


def with_gradient(
    loss: Callable[[Tensor, Tensor], Tensor], embeddings: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def as_tuple(metrics: ClusterMetrics) -> tuple[float, float, float, float]:
    return metrics.minimum, metrics.maximum, metrics.mean, metrics.sd


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", BATCHES)
def test_losses_and_gradients_agree_with_the_definition(name: str, seed: int) -> None:
    embeddings, labels = random_batch(seed)
    loss, reference = LOSSES[name]
    expected, expected_gradient = with_gradient(lambda e, c: reference(e, c.tolist()), embeddings, labels)
    value, gradient = with_gradient(loss, embeddings, labels)
    assert () == value.shape
    assert expected.item() == pytest.approx(value.item(), abs=TOLERANCE)
    torch.testing.assert_close(gradient, expected_gradient, atol=TOLERANCE, rtol=1e-4)


@pytest.mark.parametrize("seed", BATCHES)
def test_cluster_metrics_agree_with_the_definition(seed: int) -> None:
    embeddings, labels = random_batch(seed, smallest=6)
    labels[:2] = torch.tensor([0, 1])
    classes = labels.tolist()
    expected = naive.intercluster(embeddings, classes)
    assert expected == pytest.approx(
        as_tuple(compute_intercluster_metrics(embeddings, labels)), abs=TOLERANCE
    )
    expected = naive.intracluster(embeddings, classes)
    assert expected == pytest.approx(
        as_tuple(compute_intracluster_metrics(embeddings, labels)), abs=TOLERANCE
    )


@pytest.mark.parametrize("seed", BATCHES)
def test_recall_agrees_with_the_definition(seed: int) -> None:
    embeddings, labels = random_batch(seed)
    assert naive.recall_at_1(embeddings, labels.tolist()) == pytest.approx(recall_at_1(embeddings, labels))


def test_passed_distances_take_the_place_of_the_embeddings() -> None:
    embeddings, labels = random_batch(8, smallest=10)
    distances = precompute_pairwise_distances(embeddings)
    elsewhere = torch.zeros_like(embeddings)
    for loss, _ in LOSSES.values():
        assert loss(embeddings, labels).item() == loss(elsewhere, labels, distances=distances).item()
    for metric in (compute_intercluster_metrics, compute_intracluster_metrics, recall_at_1):
        assert metric(embeddings, labels) == metric(elsewhere, labels, distances=distances)


RECALL_LEARNT = 0.85


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_folder(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def quick(digits: Path) -> TrainingConfig:
    """Return a short training with small batches that still learns."""
    return TrainingConfig(data=digits, epochs=3, k=5, logging_every=100_000)


@pytest.fixture(scope="module")
def few_digits(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of fifty zeros, ones and twos each."""
    folder = tmp_path_factory.mktemp("few")
    for name in "012":
        (folder / name).mkdir()
        for path in sorted((digits / name).iterdir())[:50]:
            (folder / name / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def brief(few_digits: Path) -> TrainingConfig:
    """Return a training of four steps with thirty images each, measured on few images."""
    return TrainingConfig(data=few_digits, epochs=1, p=3, k=10, logging_every=60, logging_samples=20)


def test_training_learns(quick: TrainingConfig) -> None:
    assert train(quick).validation_recall_at_1 >= RECALL_LEARNT


@pytest.mark.parametrize("augmentation", ["lazy", "cached"])
def test_losses_repeat_by_seed_with_and_without_workers(
    augmentation: Augmenting, brief: TrainingConfig
) -> None:
    config = replace(brief, augmentation=augmentation)
    losses = train(config).losses
    assert len(losses) == 4
    assert losses == train(config).losses
    assert losses == train(replace(config, workers=2)).losses
    assert losses != train(replace(config, seed=1)).losses


def test_main_trains_as_the_command_line_states(few_digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--data", str(few_digits), "--epochs", "2", "--p", "2", "--k", "20"]
    monkeypatch.setattr("sys.argv", ["program", *arguments])
    result = main()
    assert isinstance(result, TrainingResult)
    assert (4, 160) == (result.steps, result.samples)
    assert summary(result).startswith("4 steps, 160 images; ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "many"], "invalid int value: 'many'"),
        (["--epochs", "0"], "epochs of at least 1, found 0"),
        (["--workers", "-1"], "workers of at least 0, found -1"),
        (["--loss", "hardest"], "invalid choice: 'hardest'"),
        (["--data", "/nowhere"], "/nowhere: expected a folder"),
        (["--p", "11"], "p=11"),
    ],
)
def test_mistakes_of_the_user_give_one_line(
    arguments: list[str], message: str, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--data", str(digits), *arguments])
    assert 2 == caught.value.code
    lines = capsys.readouterr().err.splitlines()
    assert 1 == len(lines)
    assert message in lines[0]


UNBALANCED = [0] * 9 + [1] * 4 + [2] * 7 + [3] * 2 + [4] * 5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("p", "k"), [(1, 1), (2, 2), (3, 4), (4, 3)])
def test_batches_hold_k_images_of_p_classes_without_repeats(p: int, k: int, seed: int) -> None:
    batches = list(PKSampler(UNBALANCED, p, k, seed=seed))
    for batch in batches:
        assert [k] * p == list(Counter(UNBALANCED[index] for index in batch).values())
    seen = [index for batch in batches for index in batch]
    assert len(seen) == len(set(seen))
