"""Groups of nodes that all reach one another are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.profiling.diff.attribution import strong_components


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Return a number of nodes, and edges between them, some more than once."""
    nodes = draw(st.integers(1, 12))
    node = st.integers(0, nodes - 1)
    return nodes, draw(st.lists(st.tuples(node, node), max_size=30))


def reachable(nodes: int, edges: list[tuple[int, int]], start: int) -> set[int]:
    """Return the nodes that a walk along the edges comes to, one round for each node."""
    found = {start}
    for _ in range(nodes):
        found |= {head for tail, head in edges if tail in found}
    return found


@given(graphs())
def test_members_reach_one_another_and_nobody_else_both_ways(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    nodes, edges = graph
    labels = strong_components(nodes, edges)
    reach = [reachable(nodes, edges, start) for start in range(nodes)]
    assert nodes == len(labels)
    for one in range(nodes):
        for other in range(nodes):
            assert (other in reach[one] and one in reach[other]) == (labels[one] == labels[other])


def test_without_edges_each_node_is_alone() -> None:
    assert [0, 1, 2] == strong_components(3, [])
    assert [] == strong_components(0, [])


@pytest.mark.parametrize("times", [127, 128, 256])
def test_an_edge_that_is_given_often_stays_one(times: int) -> None:
    first, second = strong_components(2, [(0, 1), (1, 0)] * times)
    assert first == second


def test_a_long_circle_is_one_and_a_long_chain_is_none() -> None:
    nodes = 100_000
    chain = [(node, node + 1) for node in range(nodes - 1)]
    assert nodes == len(set(strong_components(nodes, chain)))
    assert 1 == len(set(strong_components(nodes, [*chain, (nodes - 1, 0)])))
