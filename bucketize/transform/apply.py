"""Running transforms one after the other; whoever wants to is told what each gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from bucketize.errors import BucketizeError
from bucketize.ir import Function

Transform: TypeAlias = Callable[[Function], Function]
Observer: TypeAlias = Callable[[str, Function], object]


def apply(fn: Function, passes: Iterable[Transform], observe: Observer | None = None) -> Function:
    """A function after transforms, in their order.

    Args:
        fn: what the first of them takes.
        passes: functions, or partials of functions; their names are the passes' names.
        observe: called after each with its name and what it gave.

    Returns:
        What the last of them gave.

    Raises:
        BucketizeError: what a transform or `observe` raises, with a note of the pass.

    """
    for transform in passes:
        name = (transform.func if isinstance(transform, partial) else transform).__name__
        try:
            fn = transform(fn)
            if observe is not None:
                observe(name, fn)
        except BucketizeError as e:
            e.add_note(f"while running {name}")
            raise
    return fn
