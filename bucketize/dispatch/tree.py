"""The dispatch transform: a clone per bucket behind a balanced tree of `if`s (TVM RFC #4118)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias, cast

from bucketize.dispatch.bucket import (
    Bucket,
    clip,
    clone_name,
    fallback_name,
    intervals_by_symbol,
    narrowed,
    show_bucket,
)
from bucketize.dispatch.dispatcher import Answer, Dispatcher, ModuleDispatcher, answer_of, name_of
from bucketize.dispatch.legality import Legality, legal
from bucketize.dispatch.limit import check_count, within_limit
from bucketize.dispatch.pad import Padding, padded, tops_of
from bucketize.dispatch.profile import chain_of
from bucketize.dispatch.split import Below, Decision, Within, buckets_of, decided
from bucketize.errors import DispatchError, unknown_name
from bucketize.ir import (
    CALL,
    IF,
    ILLEGAL,
    NO_BUCKET,
    Atom,
    Binding,
    Builder,
    Clone,
    Function,
    Leaf,
    Module,
    Recipe,
    Var,
    check_module,
    decisions,
    refine,
)
from bucketize.ops.dim import dim_less, dims_within
from bucketize.transform.simplify import simplify
from bucketize.types import AnyDim, Interval, Profile, Symbol, TensorType, Type, show_interval

Emit: TypeAlias = Callable[[Builder], tuple[Atom, ...]]


POLICIES = ("exact", "pad")
LIMIT = 10_000  # buckets: a second, 20 MB


def dispatch(
    mod: Module,
    dispatcher: Dispatcher | ModuleDispatcher,
    *,
    function: str = "main",
    policy: str = "exact",
    fallback: bool = True,
    limit: int = LIMIT,
) -> Module:
    """Clone a function per bucket of a dispatcher and choose between the clones at run time.

    Axes that share a symbol are decided once. Source: TVM's RFC "Dynamic Shape Support - Graph
    Dispatching", https://github.com/apache/tvm/issues/4118.

    Args:
        mod: the module.
        dispatcher: maps input shapes, `{"data": (1, 3, H, W)}`, to half-open intervals per input
            and axis, `{"data": {2: [(1, 2), (2, 4), (4, None)]}}`, or to a list of `Profile` boxes,
            or to a list of buckets by symbol, `[{"H": (1, 64)}, {"H": (64, None), "W": (1, 8)}]`,
            which share no size; or a `ModuleDispatcher`, such as `dispatchers.auto`, which makes
            one for the module. What lies out of the bounds of a symbol is cut off.
        function: the name of what is cloned.
        policy: "exact" runs a clone at the true sizes; "pad" at its bucket's top, the result
            cropped, where that is proved safe. That is for shapes that have to be static: a plan
            takes any size, so that it was never faster (docs/figures.md).
        fallback: whether sizes outside all buckets go to the dynamic original, `main[fallback]`;
            else they raise `NoBucketError`.
        limit: the most buckets. Where there would be more, the symbols that fewest operators see
            are left whole, and a BucketizeWarning names them; under "pad" that is an error. Those
            in which no size is legal, by the types, do not count: they are no clones.

    Returns:
        The module with the function as a tree of decisions, and its clones; these are made when
        they are asked for.

    Raises:
        ArgumentError: no module.
        DispatchError: no dispatcher, or one that fails; intervals that overlap, leave a gap or all
            lie out of bounds, or in which no size is legal; a function that is dispatched already.
        PaddingError: under "pad", an operator that would leak the padding.
        UnknownNameError: there is no such policy, function, input or symbol.

    """
    check_module(mod)
    if policy not in POLICIES:
        raise unknown_name("policy", policy, POLICIES)
    named = name_dims(mod.function(function))
    if is_dispatched(named, mod):
        raise DispatchError(f"{function} is dispatched already; dispatch the original")
    if isinstance(dispatcher, ModuleDispatcher):
        dispatcher = dispatcher.of_module(mod, function)
    answer = answer_of(dispatcher, named)
    try:
        leaves, body = _decided(named, answer, policy, fallback, limit)
    except DispatchError as e:
        e.add_note(f"from dispatcher {name_of(dispatcher)}")
        raise
    out = Builder()
    with _no_collecting():
        results = body(out)
    if not leaves.clones.entries:
        raise DispatchError(f"the model is legal in none of the buckets of {function}")
    main = out.function(function, leaves.fn.params, results)
    if taken := [name for name in mod.functions if name in leaves.functions]:
        raise DispatchError(f"the module has a function {taken[0]} already; dispatch the original")
    leaves.clones.entries = {**mod.clones, **leaves.clones.entries}
    functions = mod.functions.updated({**leaves.functions, function: main})
    return Module(functions, leaves.clones, mod.names)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Without cyclic garbage collection, which walks a growing tree over and over: 5 of 7 s."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decided(
    fn: Function, answer: Answer, policy: str, fallback: bool, limit: int
) -> tuple[_Leaves, Emit]:
    """What makes the leaves, and what emits the tree above them."""
    if isinstance(answer, Mapping):
        intervals = intervals_by_symbol(fn, answer)
        if not intervals:
            raise DispatchError("the dispatcher named no axis: nothing to dispatch on")
        simple = simplify(fn)
        legality = Legality(None if policy == "pad" else simple)  # a top may be where none is
        intervals = within_limit(simple, intervals, limit, policy, legality)
        leaves = _Leaves(simple, policy, fallback, intervals, legality)
        trees = tuple(_halved(s, _regions(s, i)) for s, i in intervals.items())
        return leaves, partial(_emit_tree, leaves, trees, ())
    leaves = _Leaves(simplify(fn), policy, fallback, {}, Legality(None))
    if all(isinstance(a, Profile) for a in answer):
        leaves.decision = chain_of(fn, cast("list[Profile]", answer))
    else:
        buckets = buckets_of(fn, cast("list[Bucket]", answer))
        check_count(len(buckets), limit)
        symbols = [leaves.symbols[name] for name in buckets[0]]
        region = {s: (s.lo, None if s.hi is None else s.hi + 1) for s in symbols}
        leaves.decision = decided(region, buckets)
    return leaves, partial(_emit_decision, leaves, leaves.decision)


def is_dispatched(fn: Function, mod: Module) -> bool:
    """Whether the decisions of a function lead to clones."""
    leaves = (step for step in decisions(fn) if isinstance(step, Leaf))
    return any(name in mod.clones for leaf in leaves for name in leaf.callees)


def original_of(mod: Module) -> Function:
    """`main`, as it was before it was dispatched."""
    fallback = mod.functions.get(fallback_name("main"))
    exact = (clone.origin for clone in mod.clones.values() if clone.policy == "exact")
    mine = (fn for fn in exact if fn is not None and fn.name == "main")
    return fallback or next(mine, mod.main)


def name_dims(fn: Function) -> Function:
    """`fn` with a symbol of its own for each `?` of its parameters: `data_2` for axis 2."""
    if not any(isinstance(d, AnyDim) for p in fn.params for d in p.type.axes):
        return fn
    taken = set(fn.symbols())
    return refine(fn, [_named(p, taken) for p in fn.params])


def _named(param: Var, taken: set[str]) -> Type:
    if not param.type.is_tensor:
        return param.type
    dims = enumerate(param.type.shape)
    shape = (_fresh(f"{param.name}_{i}", taken) if isinstance(d, AnyDim) else d for i, d in dims)
    return TensorType(param.type.dtype, tuple(shape))


def _fresh(name: str, taken: set[str]) -> Symbol:
    while name in taken:
        name += "_"
    taken.add(name)
    return Symbol(name)


class _Clones(Mapping[str, Clone]):
    """Clones by name; one that differs from others by its bucket alone is made when asked for."""

    def __init__(self, common: Clone, symbols: Sequence[str]) -> None:
        self.common = common
        self.symbols = symbols
        self.entries: dict[str, Clone | tuple[Interval, ...]] = {}

    def of(self, intervals: tuple[Interval, ...]) -> Clone:
        """The clone of these intervals, one for each symbol."""
        return replace(self.common, bucket=dict(zip(self.symbols, intervals, strict=True)))

    def __getitem__(self, name: str) -> Clone:
        entry = self.entries[name]
        return entry if isinstance(entry, Clone) else self.of(entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass
class _Leaves:
    """Makes the leaves of the tree and remembers the clones that they call."""

    fn: Function
    policy: str
    fallback: bool
    intervals: dict[Symbol, list[Interval]]
    legality: Legality
    decision: Decision = None
    """What leads to the clones, where no intervals of each symbol do."""
    functions: dict[str, Function | Recipe] = field(default_factory=dict)
    paddings: dict[frozenset[str], Padding] = field(default_factory=dict)
    """By the symbols that are padded."""

    @cached_property
    def clones(self) -> _Clones:
        """The clones so far."""
        common = Clone({}, self.policy, origin=self.fn)
        return _Clones(common, [s.name for s in self.intervals])

    def clone(
        self, out: Builder, clone: Clone, short: tuple[Interval, ...] | None = None
    ) -> tuple[Atom, ...]:
        """Call a clone; `short` is what it can be made of again, if it has a bucket alone."""
        name = clone_name(self.fn.name, clone)
        if self.policy == "pad":
            padding = self._padding(clone.bucket)
            self.clones.entries[name] = replace(clone, origin=padding.symbolic)
            self.functions[name] = self.padded
            return padding.call(out, clone, name)
        self.clones.entries[name] = short or clone
        self.functions[name] = self.specialised
        return self._call(out, name)

    def _padding(self, bucket: Mapping[str, Interval]) -> Padding:
        names = padded(bucket)
        if names not in self.paddings:
            self.paddings[names] = Padding(self.fn, bucket)
        return self.paddings[names]

    def specialised(self, name: str) -> Function:
        """The recipe of all clones that run at the true sizes."""
        bucket = self.clones[name].bucket
        dims = {s: narrowed(self.symbols[s], i) for s, i in bucket.items()}
        return legal(self.fn, dims, name)

    def padded(self, name: str) -> Function:
        """The recipe of static clones: inputs at the bucket's top, then extents for the masks."""
        bucket = self.clones[name].bucket
        return legal(self._padding(bucket).symbolic, tops_of(bucket, self.symbols), name)

    def uncovered(self, out: Builder) -> tuple[Atom, ...]:
        """Call the fallback clone, or refuse."""
        if not self.fallback:
            sizes = tuple(self.intervals) or tuple(self.symbols.values())
            return out.emit_all(NO_BUCKET, sizes=sizes, buckets=self.shown, types=self.types)
        name = fallback_name(self.fn.name)
        self.functions[name] = replace(self.fn, name=name)
        return self._call(out, name)

    def fault(self, chosen: tuple[Interval, ...]) -> str:
        """Why the intervals of the first symbols hold no legal size; empty if they may."""
        bucket = dict(zip(self.clones.symbols, chosen, strict=False))
        fault = self.legality.fault(bucket, self.clones.symbols[len(chosen) - 1])
        return fault and f"no size of {show_bucket(bucket)} is legal: {fault}"

    def illegal(self, out: Builder, fault: str) -> tuple[Atom, ...]:
        """Refuse, where a clone could do nothing else."""
        return out.emit_all(ILLEGAL, reason=fault, types=self.types)

    def _call(self, out: Builder, name: str) -> tuple[Atom, ...]:
        return out.emit_all(CALL, *self.fn.params, callee=name, types=self.types)

    @cached_property
    def types(self) -> tuple[Type, ...]:
        """What the tree knows of its results: one tuple, for every leaf has it."""
        return tuple(r.type for r in self.fn.results)

    @cached_property
    def symbols(self) -> dict[str, Symbol]:
        """Symbols of the function, by name."""
        return self.fn.symbols()

    @cached_property
    def shown(self) -> str:
        """The buckets, for whom none serves."""
        if not self.intervals:
            names = (clone_name(self.fn.name, clone) for clone in _decided_on(self.decision))
            return ", ".join(dict.fromkeys(names))
        rows = self.intervals.items()
        return "; ".join(f"{s.name}={', '.join(map(show_interval, i))}" for s, i in rows)


Region: TypeAlias = tuple[Interval, bool]  # and whether a bucket covers it


def _regions(symbol: Symbol, intervals: list[Interval]) -> list[Region]:
    """The intervals and what they leave uncovered within the bounds, in order."""
    first, last = intervals[0][0], intervals[-1][1]
    regions = [(i, True) for i in intervals]
    if below := clip((symbol.lo, first), symbol):
        regions.insert(0, (below, False))
    if last is not None and (above := clip((last, None), symbol)):
        regions.append((above, False))
    return regions


@dataclass(frozen=True, slots=True)
class _Fork:
    """A test of one symbol, and its regions on either side."""

    test: Binding
    then: _Half
    orelse: _Half


_Half: TypeAlias = _Fork | Region


def _halved(symbol: Symbol, regions: Sequence[Region]) -> _Half:
    """The balanced tree over one symbol's regions; it is repeated below each of another's."""
    if len(regions) == 1:
        return regions[0]
    middle = len(regions) // 2
    test = Builder()
    test.emit(dim_less, dim=symbol, than=regions[middle][0][0])
    first, second = (_halved(symbol, part) for part in (regions[:middle], regions[middle:]))
    return _Fork(test.body[0], first, second)


def _emit_tree(
    leaves: _Leaves, trees: tuple[_Half, ...], chosen: tuple[Interval, ...], out: Builder
) -> tuple[Atom, ...]:
    """Decide by the first of the trees and the others below it; some intervals are chosen."""
    if not trees:
        return leaves.clone(out, leaves.clones.of(chosen), chosen)
    tree, *rest = trees
    if isinstance(tree, _Fork):
        (first,) = out.repeat(tree.test, ())
        blocks = [
            _block(partial(_emit_tree, leaves, (half, *rest), chosen))
            for half in (tree.then, tree.orelse)
        ]
        return out.emit_all(IF, first, then=blocks[0], orelse=blocks[1])
    interval, covered = tree
    if not covered:
        return leaves.uncovered(out)
    chosen = (*chosen, interval)
    if fault := leaves.fault(chosen):
        return leaves.illegal(out, fault)
    return _emit_tree(leaves, tuple(rest), chosen, out)


def _block(emit: Emit) -> Function:
    inner = Builder()
    results = emit(inner)
    return inner.function("", (), results)


def _decided_on(decision: Decision) -> Iterator[Clone]:
    """The clones that a decision leads to."""
    if isinstance(decision, Below):
        for side in (decision.then, decision.orelse):
            yield from _decided_on(side)
    elif isinstance(decision, Within):
        yield decision.clone
        yield from _decided_on(decision.orelse)
    elif decision is not None:
        yield decision


def _emit_decision(leaves: _Leaves, decision: Decision, out: Builder) -> tuple[Atom, ...]:
    """Decide as buckets are split, or as profiles come one after the other."""
    if decision is None:
        return leaves.uncovered(out)
    if isinstance(decision, Below):
        test = out.emit(dim_less, dim=decision.symbol, than=decision.size)
        sides = [partial(_emit_decision, leaves, d) for d in (decision.then, decision.orelse)]
    elif isinstance(decision, Within):
        bucket = decision.clone.bucket
        dims = tuple(leaves.symbols[name] for name in bucket)
        test = out.emit(dims_within, dims=dims, box=tuple(bucket.values()))
        sides = [partial(_emit_decision, leaves, d) for d in (decision.clone, decision.orelse)]
    else:
        return leaves.clone(out, replace(decision, policy=leaves.policy, origin=leaves.fn))
    then, orelse = map(_block, sides)
    return out.emit_all(IF, test, then=then, orelse=orelse)
