"""The pipeline from a function as imported to one whose bindings are kernels' workloads."""

from __future__ import annotations

from functools import partial

from bucketize.ir import Function
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.concat import split_concats
from bucketize.lower.fuse import fuse
from bucketize.lower.layout import layout
from bucketize.lower.polyphase import split_phases
from bucketize.lower.rank import fold_volumes
from bucketize.lower.reshape import sink_views
from bucketize.lower.upper_bound import bound_rows
from bucketize.transform.dead_code import dead_code
from bucketize.transform.fold_constant import fold_constant
from bucketize.transform.simplify import apply, simplify


def lower(fn: Function, arrangement: Arrangement = USUAL) -> Function:
    """`fn` simplified, channels last, in groups that one kernel computes each."""
    return fused(laid_out(simplified(fn), arrangement), arrangement)


def simplified(fn: Function) -> Function:
    """A function simplified, its views behind what joins products: what is arranged."""
    return apply(
        simplify(fn),
        {
            "flatten_windows": flatten_windows,
            "bound_rows": bound_rows,
            "sink_views": sink_views,
            "split_concats": split_concats,
            "dead_code": dead_code,
        },
    )


def flatten_windows(fn: Function) -> Function:
    """`fn` with transposed convolutions and volumes as images, and known weights as those of them.

    Those have kernels.
    """
    new = fold_volumes(split_phases(fn))
    return fn if new is fn else fold_constant(new)


def laid_out(fn: Function, arrangement: Arrangement = USUAL) -> Function:
    """A simplified function in the layouts of an arrangement; nothing is fused."""
    return apply(
        fn,
        {
            "layout": partial(layout, planar=arrangement.planar),
            "fold_constant": fold_constant,  # weights that the layout transposed
            "dead_code": dead_code,
        },
    )


def fused(laid: Function, arrangement: Arrangement = USUAL) -> Function:
    """A function that was laid out, in groups."""
    return apply(laid, {"fuse": partial(fuse, apart=arrangement.apart)})
