"""The pipeline from a function as imported to one whose bindings are kernels' workloads."""

from __future__ import annotations

from functools import partial

from bucketize.ir import Function
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.concat import split_concats
from bucketize.lower.fuse import fuse
from bucketize.lower.layout import layout
from bucketize.lower.narrow import narrow
from bucketize.lower.polyphase import split_phases
from bucketize.lower.rank import fold_volumes
from bucketize.lower.reshape import sink_views
from bucketize.lower.upper_bound import bound_rows
from bucketize.machine.target import Target
from bucketize.transform.apply import Observer, apply
from bucketize.transform.dead_code import dead_code
from bucketize.transform.fold_constant import fold_constant
from bucketize.transform.simplify import simplify


def lower(
    fn: Function,
    arrangement: Arrangement = USUAL,
    observe: Observer | None = None,
    target: Target | None = None,
) -> Function:
    """`fn` simplified, channels last, in groups that one kernel computes each, on any target."""
    laid = laid_out(simplified(fn, observe, target), arrangement, observe)
    return fused(laid, arrangement, observe)


def simplified(
    fn: Function, observe: Observer | None = None, target: Target | None = None
) -> Function:
    """A function simplified, its views behind what joins products: what is arranged."""
    short = partial(narrow, target=target)
    passes = (flatten_windows, short, bound_rows, sink_views, split_concats, dead_code)
    return apply(simplify(fn, observe), passes, observe)


def flatten_windows(fn: Function) -> Function:
    """`fn` with transposed convolutions and volumes as images, and known weights as those of them.

    Those have kernels.
    """
    new = fold_volumes(split_phases(fn))
    return fn if new is fn else fold_constant(new)


def laid_out(
    fn: Function, arrangement: Arrangement = USUAL, observe: Observer | None = None
) -> Function:
    """A simplified function in the layouts of an arrangement; nothing is fused."""
    passes = (
        partial(layout, planar=arrangement.planar),
        fold_constant,  # weights that the layout transposed
        dead_code,
    )
    return apply(fn, passes, observe)


def fused(
    laid: Function, arrangement: Arrangement = USUAL, observe: Observer | None = None
) -> Function:
    """A function that was laid out, in groups."""
    return apply(laid, [partial(fuse, apart=arrangement.apart)], observe)
