"""The dispatch transform: a clone per bucket behind a balanced tree of `if`s (TVM RFC #4118)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from bucketize.call import bind_shapes
from bucketize.dispatch.bucket import (
    Bucket,
    clip,
    clone_name,
    intervals_by_symbol,
    narrowed,
    show_interval,
)
from bucketize.dispatch.pad import Padding
from bucketize.errors import BucketizeError, DispatchError, unknown_name
from bucketize.ir import (
    CALL,
    IF,
    NO_BUCKET,
    Atom,
    Builder,
    Clone,
    Function,
    Module,
    Recipe,
    Var,
    refine,
    specialise,
)
from bucketize.ops.dim import dim_less, dims_within
from bucketize.transform.simplify import simplify
from bucketize.types import AnyDim, Dim, Interval, Profile, Symbol, TensorType

Answer: TypeAlias = Mapping[str, Mapping[int, Sequence[Interval]]] | Sequence[Profile]
Dispatcher: TypeAlias = Callable[[dict[str, tuple[Dim, ...]]], Answer]
Leaf: TypeAlias = Callable[[Builder], tuple[Atom, ...]]

POLICIES = ("exact", "pad")
MAX_PROFILES = 64  # each is one more `if` around the next


def dispatch(
    mod: Module,
    dispatcher: Dispatcher,
    *,
    function: str = "main",
    policy: str = "exact",
    fallback: bool = True,
) -> Module:
    """Clone `function` per bucket of `dispatcher` and choose between the clones at run time.

    The dispatcher maps input shapes, `{"data": (1, 3, H, W)}`, to half-open intervals per input
    and axis, `{"data": {2: [(1, 2), (2, 4), (4, None)]}}`, or to a list of `Profile` boxes.
    Axes that share a symbol are decided once. Sizes outside all buckets go to the dynamic
    original (`main[fallback]`), or raise `NoBucketError` with `fallback=False`. Under the policy
    "pad" a clone runs at its bucket's top and the result is cropped, where that is proved safe.
    """
    if policy not in POLICIES:
        raise unknown_name("policy", policy, POLICIES)
    fn = simplify(name_dims(mod.function(function)))
    if any(n.startswith(f"{function}[") for n in mod.functions):
        raise DispatchError(f"{function} is dispatched already; dispatch the original")
    answer = _ask(dispatcher, fn)
    if isinstance(answer, Mapping):
        intervals = intervals_by_symbol(fn, answer)
        if not intervals:
            raise DispatchError("the dispatcher named no axis: nothing to dispatch on")
        leaves = _Leaves(fn, policy, fallback, intervals)
        body: Leaf = partial(_emit_tree, leaves, {})
    else:
        boxes = _boxes(fn, answer)
        leaves = _Leaves(fn, policy, fallback, {})
        body = partial(_emit_profiles, leaves, boxes)
    out = Builder()
    results = body(out)
    main = out.function(function, fn.params, results)
    functions = mod.functions.updated({**leaves.made, function: main})
    return Module(functions, {**mod.clones, **leaves.clones})


def name_dims(fn: Function) -> Function:
    """`fn` with a symbol of its own for each `?` of its parameters: `data_2` for axis 2."""
    if not any(isinstance(d, AnyDim) for p in fn.params for d in p.type.shape):
        return fn
    taken = set(fn.symbols())
    return refine(fn, [_named(p, taken) for p in fn.params])


def _named(param: Var, taken: set[str]) -> TensorType:
    dims = enumerate(param.type.shape)
    shape = (_fresh(f"{param.name}_{i}", taken) if isinstance(d, AnyDim) else d for i, d in dims)
    return TensorType(param.type.dtype, tuple(shape))


def _fresh(name: str, taken: set[str]) -> Symbol:
    while name in taken:
        name += "_"
    taken.add(name)
    return Symbol(name)


def _ask(dispatcher: Dispatcher, fn: Function) -> Answer:
    if not callable(dispatcher):
        raise DispatchError(f"expected a dispatcher (a callable), got {dispatcher!r}")
    name = getattr(dispatcher, "__name__", repr(dispatcher))
    try:
        answer = dispatcher({p.name: p.type.shape for p in fn.params})
    except BucketizeError as e:
        e.add_note(f"from dispatcher {name}")
        raise
    if isinstance(answer, Mapping):
        return answer
    if not isinstance(answer, Sequence) or not all(isinstance(a, Profile) for a in answer):
        raise DispatchError(f"dispatcher {name}: expected intervals or profiles, got {answer!r}")
    return answer


@dataclass
class _Leaves:
    """Makes the leaves of the tree and remembers the clones that they call."""

    fn: Function
    policy: str
    fallback: bool
    intervals: dict[Symbol, list[Interval]]
    made: dict[str, Function | Recipe] = field(default_factory=dict)
    clones: dict[str, Clone] = field(default_factory=dict)

    def clone(
        self, out: Builder, bucket: Bucket, opt: Mapping[str, int] | None = None, label: str = ""
    ) -> tuple[Atom, ...]:
        """Call the clone that serves `bucket`."""
        clone = Clone(bucket, self.policy, opt, label=label, origin=self.fn)
        name = clone_name(self.fn.name, clone)
        if self.policy == "pad":
            padding = Padding(self.fn, bucket)
            self.clones[name] = replace(clone, origin=padding.symbolic)
            self.made[name] = partial(padding.clone, name)
            return padding.call(out, name)
        self.clones[name] = clone
        dims = {s.name: narrowed(s, bucket[s.name]) for s in self._symbols() if s.name in bucket}
        self.made[name] = partial(specialise, self.fn, dims, name)
        return self._call(out, name)

    def uncovered(self, out: Builder) -> tuple[Atom, ...]:
        """Call the fallback clone, or refuse."""
        if not self.fallback:
            types = tuple(r.type for r in self.fn.results)
            sizes = tuple(self._symbols())
            return out.emit_all(NO_BUCKET, sizes=sizes, buckets=self._shown(), types=types)
        name = f"{self.fn.name}[fallback]"
        self.made[name] = Function(name, self.fn.params, self.fn.body, self.fn.results)
        return self._call(out, name)

    def _call(self, out: Builder, name: str) -> tuple[Atom, ...]:
        types = tuple(r.type for r in self.fn.results)
        return out.emit_all(CALL, *self.fn.params, callee=name, types=types)

    def _symbols(self) -> list[Symbol]:
        return list(self.intervals) or list(self.fn.symbols().values())

    def _shown(self) -> str:
        if not self.intervals:
            return ", ".join(self.made)
        rows = self.intervals.items()
        return "; ".join(f"{s.name} in {' '.join(map(show_interval, i))}" for s, i in rows)


def _regions(symbol: Symbol, intervals: list[Interval]) -> list[tuple[Interval, bool]]:
    """The intervals and what they leave uncovered within the bounds, in order."""
    first, last = intervals[0][0], intervals[-1][1]
    regions = [(i, True) for i in intervals]
    if below := clip((symbol.lo, first), symbol) if first > symbol.lo else None:
        regions.insert(0, (below, False))
    if last is not None and (above := clip((last, None), symbol)):
        regions.append((above, False))
    return regions


def _emit_tree(leaves: _Leaves, chosen: Bucket, out: Builder) -> tuple[Atom, ...]:
    for symbol, intervals in leaves.intervals.items():
        if symbol.name not in chosen:
            regions = _regions(symbol, intervals)
            return _emit_choice(leaves, chosen, symbol, regions, out)
    return leaves.clone(out, chosen)


def _emit_choice(
    leaves: _Leaves,
    chosen: Bucket,
    symbol: Symbol,
    regions: list[tuple[Interval, bool]],
    out: Builder,
) -> tuple[Atom, ...]:
    if len(regions) == 1:
        interval, covered = regions[0]
        if not covered:
            return leaves.uncovered(out)
        return _emit_tree(leaves, {**chosen, symbol.name: interval}, out)
    middle = len(regions) // 2
    first = out.emit(dim_less, dim=symbol, than=regions[middle][0][0])
    halves = regions[:middle], regions[middle:]
    blocks = [_block(partial(_emit_choice, leaves, chosen, symbol, half)) for half in halves]
    return out.emit_all(IF, first, then=blocks[0], orelse=blocks[1])


def _block(leaf: Leaf) -> Function:
    inner = Builder()
    results = leaf(inner)
    return inner.function("", (), results)


def _boxes(fn: Function, profiles: Sequence[Profile]) -> list[tuple[str, Bucket, dict[str, int]]]:
    if not profiles:
        raise DispatchError("the dispatcher gave no profile: nothing to dispatch on")
    if len(profiles) > MAX_PROFILES:
        raise DispatchError(f"{len(profiles)} profiles, but a chain holds {MAX_PROFILES} at most")
    boxes = [_box(fn, p, i) for i, p in enumerate(profiles)]
    names = [label for label, _, _ in boxes]
    for name in names:
        if names.count(name) > 1:
            raise DispatchError(f"two profiles are named {name!r}")
    return boxes


def _box(fn: Function, profile: Profile, index: int) -> tuple[str, Bucket, dict[str, int]]:
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
    return label, bucket, opt


def _sizes(fn: Function, shapes: Mapping[str, tuple[int, ...]], label: str) -> dict[str, int]:
    names = [p.name for p in fn.params]
    for name in shapes:
        if name not in names:
            raise unknown_name("input", name, names)
    try:
        return bind_shapes(
            [_unbounded(p) for p in fn.params], [tuple(shapes.get(n, ())) for n in names]
        )
    except BucketizeError as e:
        e.add_note(f"in profile {label!r}")
        raise


def _unbounded(param: Var) -> Var:
    shape = (Symbol(d.name, 0) if isinstance(d, Symbol) else d for d in param.type.shape)
    return Var(param.name, TensorType(param.type.dtype, tuple(shape)))


def _emit_profiles(
    leaves: _Leaves, boxes: list[tuple[str, Bucket, dict[str, int]]], out: Builder
) -> tuple[Atom, ...]:
    """A chain, for boxes may overlap: the first that covers the sizes serves them."""
    if not boxes:
        return leaves.uncovered(out)
    (label, bucket, opt), *rest = boxes
    dims = tuple(s for s in leaves.fn.symbols().values())
    inside = out.emit(dims_within, dims=dims, box=tuple(bucket[s.name] for s in dims))
    then = _block(partial(leaves.clone, bucket=bucket, opt=opt, label=label))
    orelse = _block(partial(_emit_profiles, leaves, rest))
    return out.emit_all(IF, inside, then=then, orelse=orelse)
