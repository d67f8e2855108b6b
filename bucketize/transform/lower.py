"""The pipeline from a function as imported to one whose bindings are kernels' workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from bucketize.errors import BucketizeError
from bucketize.ir import Function
from bucketize.transform.cse import cse
from bucketize.transform.dead_code import dead_code
from bucketize.transform.dynamic_to_static import dynamic_to_static
from bucketize.transform.fold_constant import fold_constant
from bucketize.transform.fuse import fuse
from bucketize.transform.layout import layout

Transform: TypeAlias = Callable[[Function], Function]

TRANSFORMS: dict[str, Transform] = {
    "dynamic_to_static": dynamic_to_static,
    "fold_constant": fold_constant,
    "cse": cse,
    "dead_code": dead_code,
    "layout": layout,
    "fuse": fuse,
}
SIMPLIFY = ("dynamic_to_static", "fold_constant", "cse", "dead_code")
PIPELINE = (
    *SIMPLIFY,
    "layout",
    "fold_constant",
    "dead_code",
    "fuse",
)


Observer: TypeAlias = Callable[[str, Function], None]


def simplify(fn: Function) -> Function:
    """`fn` with known shapes static, constants folded, repeats and dead code gone."""
    return apply(fn, SIMPLIFY)


def lower(fn: Function, observe: Observer | None = None) -> Function:
    """`fn` after the whole pipeline; `observe` sees the function after each transform."""
    return apply(fn, PIPELINE, observe)


def apply(fn: Function, names: Iterable[str], observe: Observer | None = None) -> Function:
    """`fn` after the named transforms, in this order."""
    for name in names:
        try:
            fn = TRANSFORMS[name](fn)
        except BucketizeError as e:
            e.add_note(f"while running {name}")
            raise
        if observe is not None:
            observe(name, fn)
    return fn
