"""A forest on what the model of products leaves unexplained.

It learns, from records of any processor, by how much a schedule is faster or slower than the model
says, relative to the other schedules of the same product.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bucketize.kernel.build import environment
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.cost import FITTED, Knobs, arrays, seconds
from bucketize.kernel.product import Product
from bucketize.kernel.schedule import Schedule
from bucketize.machine.directory import kept
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.tune.samples import Record, logs, reference

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

TREES = 100
LEAF = 3  # records at least: what one noisy trial says is no rule


class Forest:
    """What records say beside the model."""

    def __init__(self, records: Sequence[Record], target: Target) -> None:
        """Learn; the target's own constants are what the model has."""
        self.target = target
        pairs = [self._pair(r) for r in records if len(r.schedules) > 1]
        self._trees = _learnt(pairs) if pairs else None
        self._known: dict[tuple[Product, bytes], Floats] = {}  # clones share many of theirs

    def _pair(self, record: Record) -> tuple[Floats, Floats]:
        knobs = arrays(record.schedules, record.lanes)
        residual = np.array(record.logs) - self._modelled(record.product, knobs)
        return self._features(record.product, knobs), residual - residual.mean()

    def _modelled(self, product: Product, knobs: Knobs) -> Floats:
        expected = seconds(product, knobs, FITTED[self.target.family], self.target)
        return np.asarray(np.log(expected[0]), float)

    def _features(self, product: Product, knobs: Knobs) -> Floats:
        (rows,), (batch,) = product.rows, product.batch
        ones = np.ones_like(knobs.mr)
        kc = np.minimum(knobs.depth(product.depth), product.depth)
        tiles = np.ceil(rows / knobs.mr)
        extents = (rows, product.columns, product.depth, batch)
        modelled = self._modelled(product, knobs)
        return np.column_stack(
            [
                *(np.log(max(extent, 1)) * ones for extent in extents),
                *(flag * ones for flag in (product.packed, product.image)),
                *(knobs.mr, knobs.nv, knobs.copy),
                *(tiles, rows / tiles, np.log(kc), np.log(kc * knobs.nv * FLOAT_BYTES)),
                modelled - modelled.mean(),
            ]
        )

    def expected(self, products: Sequence[Product], schedules: Sequence[Schedule]) -> Floats:
        """Logarithms of seconds, up to one number for all: the model's and what it leaves.

        A row for each product, a column for each schedule.
        """
        knobs = arrays(schedules, self.target.lanes)
        columns = b"".join(knob.tobytes() for knob in knobs)
        new = [p for p in dict.fromkeys(products) if (p, columns) not in self._known]
        if new:
            for product, logs in zip(new, self._computed(new, knobs), strict=True):
                self._known[product, columns] = logs
        return np.array([self._known[product, columns] for product in products])

    def _computed(self, products: Sequence[Product], knobs: Knobs) -> Floats:
        modelled = np.array([self._modelled(product, knobs) for product in products])
        if self._trees is None:
            return modelled
        asked = np.concatenate([self._features(product, knobs) for product in products])
        return modelled + _told(self._trees, asked).reshape(modelled.shape)


def _learnt(pairs: Sequence[tuple[Floats, Floats]]) -> ExtraTreesRegressor:
    from sklearn.ensemble import ExtraTreesRegressor

    trees = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=0, n_jobs=1)
    return trees.fit(np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs]))


def _told(trees: ExtraTreesRegressor, features: Floats) -> Floats:
    """What `predict` says, without its checks of each tree, which take five times as long."""
    rows = np.ascontiguousarray(features, np.float32)
    total = np.zeros(len(rows))
    for tree in trees.estimators_:
        total += tree.tree_.predict(rows)[:, 0]
    return total / len(trees.estimators_)


@cache
def forest(target: Target) -> Forest:
    """What the logs that come with the project say.

    To read and to learn them takes seconds: it is kept beside the kernels, for the next process.
    """
    grown = kept(f"forest_{_digest(target)}", lambda: _packed(Forest(reference(), target)))
    its: Forest = pickle.loads(zlib.decompress(grown))
    return its


def _packed(grown: Forest) -> bytes:
    return zlib.compress(pickle.dumps(grown), 1)


def _digest(target: Target) -> str:
    """A name for all that the forest hangs on: models, speeds, and what was recorded."""
    asked = sha256(f"{environment()} {version('scikit-learn')} {target}".encode())
    here = Path(__file__)
    for path in (here, here.with_name("samples.py"), *logs()):
        asked.update(path.read_bytes())
    return asked.hexdigest()[:16]
