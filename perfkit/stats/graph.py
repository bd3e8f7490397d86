"""Groups of a directed graph whose members all reach one another."""

from __future__ import annotations

from collections.abc import Sequence


def strong_components(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each node the number of its strongly connected component; edges are (from, to)."""
    # Kosaraju: in the order of finishing, backwards edges stay inside a component.
    forward: list[list[int]] = [[] for _ in range(nodes)]
    backward: list[list[int]] = [[] for _ in range(nodes)]
    for tail, head in edges:
        forward[tail].append(head)
        backward[head].append(tail)
    found = [-1] * nodes
    for root in reversed(_finished(range(nodes), forward, [False] * nodes)):
        if found[root] < 0:
            for node in _finished([root], backward, [one >= 0 for one in found]):
                found[node] = root
    return found


def _finished(roots: Sequence[int], edges: Sequence[Sequence[int]], seen: list[bool]) -> list[int]:
    order = []
    for root in roots:
        stack = [] if seen[root] else [(root, iter(edges[root]))]
        seen[root] = True
        while stack:
            node, heads = stack[-1]
            head = next((one for one in heads if not seen[one]), None)
            if head is None:
                order.append(node)
                stack.pop()
            else:
                seen[head] = True
                stack.append((head, iter(edges[head])))
    return order
