"""Profiles: boxes of sizes that may overlap, each with the sizes that it is tuned for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketize.call import bind_shapes
from bucketize.dispatch.bucket import Bucket, clip
from bucketize.dispatch.split import Decision, Within
from bucketize.errors import BucketizeError, DispatchError, unknown_name
from bucketize.ir import Clone, Function, Var
from bucketize.types import Profile, Symbol, TensorType

MAX_PROFILES = 64  # each is one more `if` around the next


def chain_of(fn: Function, profiles: Sequence[Profile]) -> Decision:
    """The profiles, checked, as a chain: of those that overlap the first serves."""
    if not profiles:
        raise DispatchError("the dispatcher gave no profile: nothing to dispatch on")
    if len(profiles) > MAX_PROFILES:
        raise DispatchError(f"{len(profiles)} profiles, but a chain holds {MAX_PROFILES} at most")
    clones = [_clone(fn, p, i) for i, p in enumerate(profiles)]
    names = [clone.label for clone in clones]
    for name in names:
        if names.count(name) > 1:
            raise DispatchError(f"two profiles are named {name!r}")
    chain: Decision = None
    for clone in reversed(clones):
        chain = Within(clone, chain)
    return chain


def _clone(fn: Function, profile: Profile, index: int) -> Clone:
    label = profile.name or f"profile{index}"
    low, opt, high = (_sizes(fn, p, label) for p in (profile.min, profile.opt, profile.max))
    for name, lo in low.items():
        if not lo <= opt[name] <= high[name]:
            raise DispatchError(
                f"profile {label!r}: expected min <= opt <= max of {name}, "
                f"got {lo}, {opt[name]}, {high[name]}"
            )
    bucket: Bucket = {}
    for symbol in fn.symbols().values():
        interval = clip((low[symbol.name], high[symbol.name] + 1), symbol)
        if interval is None:
            shown = f"{symbol.name} in [{low[symbol.name]}, {high[symbol.name]}]"
            raise DispatchError(f"profile {label!r}: {shown} is out of the symbol's bounds")
        bucket[symbol.name] = interval
    return Clone(bucket, opt=opt, label=label)


def _sizes(fn: Function, shapes: Mapping[str, tuple[int, ...]], label: str) -> dict[str, int]:
    params = [_unbounded(p) for p in fn.params if p.type.is_tensor]
    names = [p.name for p in params]
    for name in shapes:
        if name not in names:
            raise unknown_name("input", name, names)
    try:
        return bind_shapes(params, [tuple(shapes.get(n, ())) for n in names])
    except BucketizeError as e:
        e.add_note(f"in profile {label!r}")
        raise


def _unbounded(param: Var) -> Var:
    shape = (Symbol(d.name) if isinstance(d, Symbol) else d for d in param.type.shape)
    return Var(param.name, TensorType(param.type.dtype, tuple(shape)))
