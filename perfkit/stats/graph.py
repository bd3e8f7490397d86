"""Groups of a directed graph whose members all reach one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def strong_components(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each node the number of its strongly connected component; edges are (from, to)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not edges:
        return list(range(nodes))
    tails, heads = np.asarray(edges).T
    graph = coo_array((np.ones(len(edges), dtype=np.int8), (tails, heads)), shape=(nodes, nodes))
    _, labels = connected_components(graph, directed=True, connection="strong")
    return [int(label) for label in labels]
