"""Figures of partitions: lines over one symbol, a frame for each bucket over two."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from bucketize.analysis import plot_partition
from bucketize.dispatch.bucket import Bucket
from bucketize.partition.value import Frontier, Partition


def partition(*buckets: Bucket, **sizes: list[int]) -> Partition:
    its = Frontier(buckets, 1e-3, 2e-3, 1.1, 3, 0)
    count = len(next(iter(sizes.values())))
    taken = {
        name: np.full(count, seconds)
        for name, seconds in (("one_clone_s", 3e-3), ("chosen_s", 2e-3), ("oracle_s", 1e-3))
    }
    by_size = {n: np.array(s) for n, s in sizes.items()}
    share = np.full(count, 1 / count)
    return Partition(its, (its,), 1e-3, count, by_size={**by_size, "share": share, **taken})


def test_over_one_symbol_there_are_lines_and_cuts() -> None:
    both: tuple[Bucket, Bucket] = {"N": (1, 4), "S": (1, 9)}, {"N": (4, 9), "S": (1, 9)}
    figure = plot_partition(partition(*both, N=[1, 3, 3, 8], S=[1, 1, 5, 1]))
    above, below = figure.axes
    lines = {str(line.get_label()): line for line in above.lines}
    assert np.allclose(np.asarray(lines["chosen"].get_xydata()), [[1, 2], [3, 2], [8, 2]])
    (cut,) = (line for name, line in lines.items() if name.startswith("_"))
    assert list(np.asarray(cut.get_xdata())) == [3.5, 3.5]
    assert below.get_xlabel() == "N"
    assert "2 clones" in figure.get_suptitle()


def test_over_two_each_bucket_has_a_frame() -> None:
    buckets: list[Bucket] = [
        {"H": (1, 4), "W": (1, 9)},
        {"H": (4, 9), "W": (1, 5)},
        {"H": (4, 9), "W": (5, None)},
    ]
    figure = plot_partition(partition(*buckets, H=[2, 5, 8], W=[8, 2, 7]))
    axes = figure.axes[0]
    frames = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(frames) == 3
    assert {tuple(f.get_edgecolor()) for f in frames} == {to_rgba("grey")}
    names = {axes.get_xlabel(), axes.get_ylabel()}
    assert names == {"H", "W"}
    (points,) = axes.collections
    assert np.allclose(np.asarray(points.get_array()), 100)
