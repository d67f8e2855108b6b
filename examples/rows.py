"""Rows of unequal lengths through a model, by Dask: parts of a bag at once, rows in order.

Run it with: pip install 'bucketize[cluster]' && python examples/rows.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import dask.bag
import numpy as np

import bucketize
from bucketize import zoo
from bucketize.integrations.predictor import Predictor

BOUNDS = {"B": (1, 32), "S": (1, 64)}


def sentence(i: int) -> dict[str, object]:
    """A row as the encoder wants it, less the axis of rows."""
    random = np.random.default_rng(i)
    length = int(random.integers(2, 64))
    ids = random.integers(1, 1000, length)
    return {"id": i, "input_ids": ids, "attention_mask": np.ones_like(ids)}


def main() -> None:
    """Save an encoder that packs rows, and have two parts of a bag go through it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.bkt"
        mod = bucketize.from_onnx(zoo.build("bert-mini"), bounds=BOUNDS)
        bucketize.compile(bucketize.ragged(mod)).save(path)  # workers open the file
        bag = dask.bag.range(8, npartitions=2).map(sentence)
        for row in bag.map_partitions(Predictor(path, key="id")).compute(scheduler="threads"):
            print(row["id"], {name: np.shape(cell) for name, cell in row.items() if name != "id"})


if __name__ == "__main__":
    main()
