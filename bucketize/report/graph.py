"""The kernels of a call as a graph that can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from grandalf.graphs import Edge, Graph, Vertex, graph_core
from grandalf.layouts import SugiyamaLayout, VertexViewer

from bucketize.table import shortened

MOST = 400
"""Kernels that are drawn; of more nobody sees anything."""
NAME = 17  # columns
WIDTH, HEIGHT = 120, 12
"""The size of a kernel's box, in the units of the layout."""


def drawing(kernels: pd.DataFrame, edges: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Where kernels lie, and the lines between them.

    K. Sugiyama, S. Tagawa, M. Toda, "Methods for visual understanding of hierarchical system
    structures", IEEE Transactions on Systems, Man, and Cybernetics 11 (2), 1981.

    Args:
        kernels: those of one listing, of a report.
        edges: between them.

    Returns:
        The kernels with place, x and y, layers downwards, and what to write to the left and to the
        right of each: there is room at the ends of a layer; and the lines: x, y, x2, y2. Both are
        empty where there are too many.

    """
    if not 1 < len(kernels) <= MOST:
        return kernels.iloc[:0].assign(place=[], x=[], y=[], left=[], right=[]), pd.DataFrame(
            columns=LINE
        )
    pairs = list(zip(edges["source"].tolist(), edges["target"].tolist(), strict=True))
    places = laid_out(len(kernels), pairs)
    nodes = kernels.assign(
        place=range(1, len(kernels) + 1), x=[x for x, _ in places], y=[y for _, y in places]
    )
    nodes = nodes.assign(**_names(nodes))
    lines = pd.DataFrame([(*places[a], *places[b]) for a, b in pairs], columns=LINE)
    return nodes, lines


def _names(nodes: pd.DataFrame) -> dict[str, Any]:
    """The names of the last kernel of each layer, and of the first of several."""
    texts = [shortened(n or op, NAME) for n, op in zip(nodes["name"], nodes["op"], strict=True)]
    last, first = (nodes.groupby("y")["x"].transform(end) == nodes["x"] for end in ("max", "min"))
    return {"left": np.where(first & ~last, texts, ""), "right": np.where(last, texts, "")}


LINE = ["x", "y", "x2", "y2"]


def laid_out(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Where nodes lie: those of a layer side by side, all edges downwards.

    What nothing leads to or from is a graph of its own, beside the others.
    """
    vertices = [Vertex(k) for k in range(count)]
    for vertex in vertices:
        vertex.view = VertexViewer(WIDTH, HEIGHT)
    whole = Graph(vertices, [Edge(vertices[a], vertices[b]) for a, b in edges])
    left = 0.0
    for core in whole.C:
        left = _beside(core, left)
    ranks = sorted({v.view.xy[1] for v in vertices})
    return [(v.view.xy[0], float(ranks.index(v.view.xy[1]))) for v in vertices]


def _beside(core: graph_core, left: float) -> float:
    """Lay a connected graph out from a place on, and tell where it ends."""
    layout = SugiyamaLayout(core)
    layout.init_all()
    layout.draw(3)
    every = [v.view for v in core.sV]
    least = min(view.xy[0] for view in every)
    for view in every:
        view.xy = (view.xy[0] - least + left, view.xy[1])
    return float(max(view.xy[0] for view in every)) + WIDTH
