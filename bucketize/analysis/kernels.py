"""The kernels of a call beside what their ops mean, or beside those of another program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pandas as pd

from bucketize.analysis.nodes import COLUMNS, Tolerance, cells, difference
from bucketize.inspect.observe import ObservedKernel


def beside_meaning(kernels: Sequence[ObservedKernel], tolerance: Tolerance) -> pd.DataFrame:
    """A row for each result of each kernel, beside what its ops make of the same operands.

    The columns are those of `NodeComparison.frame`; inputs agree, as they are the same.
    """
    rows = [
        {**_named(i, kernel), **cells(difference(got, expected, tolerance)), "inputs_agree": True}
        for i, kernel in enumerate(kernels)
        for got, expected in zip(kernel.got, kernel.meaning(), strict=True)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def beside_another(
    kernels: Sequence[ObservedKernel], others: Sequence[ObservedKernel], tolerance: Tolerance
) -> pd.DataFrame:
    """A row for each result of each kernel that another call has, too: of the same ops and shapes.

    Kernels are paired in their order; those that one of the calls alone has are left out. Whether
    inputs agree is not known of them.
    """
    rows = [
        {**_named(i, mine), **cells(difference(got, its, tolerance)), "inputs_agree": None}
        for i, mine, other in _paired(kernels, others)
        for got, its in zip(mine.got, other.got, strict=True)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _paired(
    kernels: Sequence[ObservedKernel], others: Sequence[ObservedKernel]
) -> Iterator[tuple[int, ObservedKernel, ObservedKernel]]:
    mine, theirs = ([_key(kernel) for kernel in of] for of in (kernels, others))
    for block in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
        for k in range(block.size):
            yield block.a + k, kernels[block.a + k], others[block.b + k]


def _key(kernel: ObservedKernel) -> tuple[Any, ...]:
    return kernel.op, tuple(np.shape(result) for result in kernel.got)


def _named(number: int, kernel: ObservedKernel) -> dict[str, Any]:
    return {"node": kernel.name, "op": kernel.op, "output": f"{kernel.kernel} {number}"}
