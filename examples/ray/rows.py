"""Rows of unequal lengths through a model, by Ray Data: two workers, rows in order.

Run it with: pip install 'bucketize[ray]' && python examples/ray/rows.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import ray.data

import bucketize
from bucketize import zoo
from bucketize.integrations.ray import Predictor

BOUNDS = {"B": (1, 32), "S": (1, 64)}


def sentence(i: int) -> dict[str, object]:
    """A row as the encoder wants it, less the axis of rows."""
    random = np.random.default_rng(i)
    length = int(random.integers(2, 64))
    ids = random.integers(1, 1000, length)
    return {"id": i, "input_ids": ids, "attention_mask": np.ones_like(ids)}


def main() -> None:
    """Save an encoder that packs rows, and have a data set go through it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.bkt"
        mod = bucketize.from_onnx(zoo.build("bert-mini"), bounds=BOUNDS)
        bucketize.compile(bucketize.ragged(mod)).save(path)  # workers open the file
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        rows = ray.data.from_items([sentence(i) for i in range(64)], override_num_blocks=4)
        done = rows.map_batches(
            Predictor,
            fn_constructor_args=(path,),
            fn_constructor_kwargs={"key": "id"},
            batch_size=16,
            num_cpus=0.5,
            compute=ray.data.ActorPoolStrategy(size=2),
        )
        for row in done.take(4):
            print(row["id"], {name: np.shape(cell) for name, cell in row.items() if name != "id"})


if __name__ == "__main__":
    main()
