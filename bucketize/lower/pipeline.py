"""The pipeline from a function as imported to one whose bindings are kernels' workloads."""

from __future__ import annotations

from bucketize.ir import Function
from bucketize.lower.fuse import fuse
from bucketize.lower.layout import layout
from bucketize.transform.dead_code import dead_code
from bucketize.transform.fold_constant import fold_constant
from bucketize.transform.simplify import Pipeline, apply, simplify

LOWER: Pipeline = {
    "layout": layout,
    "fold_constant": fold_constant,  # weights that the layout transposed
    "dead_code": dead_code,
    "fuse": fuse,
}


def lower(fn: Function) -> Function:
    """`fn` simplified, channels last, in groups that one kernel computes each."""
    return apply(simplify(fn), LOWER)
