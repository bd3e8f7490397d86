"""Distances, losses and metrics agree with their definitions, on random batches of every kind."""

from collections.abc import Callable

import naive_reference as naive
import pytest
import torch
from torch import Tensor, nn
from workloads.metric_learning.distances import precompute_pairwise_distances
from workloads.metric_learning.losses import BatchAllTripletLoss, BatchHardTripletLoss, ContrastiveLoss
from workloads.metric_learning.metrics import (
    ClusterMetrics,
    compute_intercluster_metrics,
    compute_intracluster_metrics,
    recall_at_1,
)

# Float32 sums in another order differ in the last digits: distances here are below 10.
TOLERANCE = 1e-5
BATCHES = range(12)

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


@pytest.mark.parametrize("seed", BATCHES)
def test_distances_are_euclidean(seed: int) -> None:
    embeddings, _ = random_batch(seed)
    expected = naive.distance_matrix(embeddings)
    distances = precompute_pairwise_distances(embeddings)
    for i in range(len(embeddings)):
        for j in range(len(embeddings)):
            if i != j:
                assert expected[i, j].item() == pytest.approx(distances[i, j].item(), abs=TOLERANCE)
                assert distances[j, i].item() == distances[i, j].item()


def test_distances_keep_their_digits_far_from_the_origin() -> None:
    embeddings = torch.tensor([[1000.0, 1000.0], [1000.0, 1000.0625]])
    assert precompute_pairwise_distances(embeddings)[0, 1].item() == 0.0625


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


@pytest.mark.parametrize("name", LOSSES)
def test_collapsed_embeddings_give_finite_gradients(name: str) -> None:
    value, gradient = with_gradient(LOSSES[name][0], torch.zeros(6, 3), torch.tensor([0, 0, 0, 1, 1, 2]))
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("labels", [[0], [0, 1, 2]], ids=["one element", "no positives"])
def test_triplet_losses_without_a_triplet_are_zero(name: str, labels: list[int]) -> None:
    embeddings = 10 * torch.eye(3)[: len(labels)]
    value, gradient = with_gradient(LOSSES[name][0], embeddings, torch.tensor(labels))
    assert 0.0 == value.item()
    assert 0.0 == gradient.abs().max().item()


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


def test_distance_matrix_is_symmetric_with_a_zero_diagonal() -> None:
    embeddings = 1000 + torch.rand(60, 5, generator=torch.Generator().manual_seed(0))
    distances = precompute_pairwise_distances(embeddings)
    assert torch.equal(distances, distances.T)
    assert distances.diagonal().eq(0).all()
    torch.testing.assert_close(distances, naive.distance_matrix(embeddings), atol=TOLERANCE, rtol=0)


def test_passed_distances_take_the_place_of_the_embeddings() -> None:
    embeddings, labels = random_batch(8, smallest=10)
    distances = precompute_pairwise_distances(embeddings)
    elsewhere = torch.zeros_like(embeddings)
    for loss, _ in LOSSES.values():
        assert loss(embeddings, labels).item() == loss(elsewhere, labels, distances=distances).item()
    for metric in (compute_intercluster_metrics, compute_intracluster_metrics, recall_at_1):
        assert metric(embeddings, labels) == metric(elsewhere, labels, distances=distances)
