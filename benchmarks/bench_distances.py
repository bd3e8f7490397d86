"""Distances between embeddings, and the cluster metrics made of them; without gradients."""

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor
from workloads.metric_learning.distances import precompute_pairwise_distances
from workloads.metric_learning.metrics import (
    compute_intercluster_metrics,
    compute_intracluster_metrics,
    recall_at_1,
)

DIMENSION = 5
DISTANCE_SIZES = tuple((n, dim) for dim in (5, 64) for n in (64, 200, 500, 1000, 2000))
CLUSTER_SIZES = (64, 200, 500, 1000, 2000)

MakeEmbeddings = Callable[[int, int], tuple[Tensor, Tensor]]


@pytest.mark.benchmark(group="distances", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize(("n", "dim"), DISTANCE_SIZES)
def test_precompute_pairwise_distances(
    benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int, dim: int
) -> None:
    """Distances of all pairs of N embeddings."""
    embeddings, _ = random_embeddings(n, dim)
    distances = benchmark(precompute_pairwise_distances, embeddings)
    expected = torch.linalg.vector_norm(embeddings[n - 1] - embeddings[0]).item()
    assert expected == pytest.approx(distances[n - 1, 0].item(), rel=1e-5)


@pytest.mark.benchmark(group="cluster metrics", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize("n", CLUSTER_SIZES)
def test_compute_intercluster_metrics(
    benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int
) -> None:
    """Distances of every two of ten clusters."""
    embeddings, labels = random_embeddings(n, DIMENSION)
    metrics = benchmark(compute_intercluster_metrics, embeddings, labels)
    assert 0 < metrics.minimum < metrics.mean < metrics.maximum


@pytest.mark.benchmark(group="cluster metrics", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize("n", CLUSTER_SIZES)
def test_compute_intracluster_metrics(
    benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int
) -> None:
    """Diameters of ten clusters."""
    embeddings, labels = random_embeddings(n, DIMENSION)
    metrics = benchmark(compute_intracluster_metrics, embeddings, labels)
    assert 0 < metrics.minimum < metrics.mean < metrics.maximum


@pytest.mark.benchmark(group="cluster metrics", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize("n", CLUSTER_SIZES)
def test_recall_at_1(benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int) -> None:
    """Nearest neighbours of the same class, about one in ten for random embeddings."""
    embeddings, labels = random_embeddings(n, DIMENSION)
    recall = benchmark(recall_at_1, embeddings, labels)
    assert 0 < recall < 0.3
