"""What an op is: one value that holds a computation's meaning and every rule about it."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bucketize.errors import TypeRelError, UnknownRankError, unknown_name
from bucketize.types import (
    ANY,
    Dim,
    Ratio,
    Shape,
    Symbolic,
    TensorType,
    Type,
    UnrankedType,
    bounds,
    followed,
    maximum,
    minimum,
    product,
    rely_on_least,
)
from bucketize.types.number import WIDER

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = Any
"""What a run computes with: an Array, a list of them, or None for what is optional and absent."""
Attrs: TypeAlias = Mapping[str, Any]

MAX_VALUE = 64  # elements of an integer tensor that are followed as dims
MAX_RANK = 64  # of numpy's arrays
MAX_BYTES = 1 << 28  # a folded constant must not outgrow what a model may hold


@dataclass(frozen=True)
class Fill:
    """Padding is safe if the padded part of the argument holds this value.

    For integers an infinity stands for the least or the greatest one, NaN for the greatest.
    """

    value: float
    finite: int | None = None
    """The argument that meets it, and must be known to be finite: 0 times infinity is not 0."""


class Rule(Enum):
    """The padding rules that need no value."""

    FREE = "free"  # the valid part of the result never sees the padding
    UNSAFE = "unsafe"  # the result would change, whatever the padding holds


FREE, UNSAFE = Rule.FREE, Rule.UNSAFE
Padding: TypeAlias = Fill | Rule


class Movement(Enum):
    """How the elements of the only result are elements of the first argument."""

    VIEW = "view"  # all of them in the same order: its memory in another shape
    WHOLE = "whole"  # all of them, elsewhere or several times
    PART = "part"  # as many are read as are written


@dataclass(frozen=True, kw_only=True, eq=False)
class Op:
    """An operator. Positional parameters of its rules are tensors, keyword-only ones attributes.

    `compute` is the meaning, on numpy arrays. An op of several `results` says them as tuples: of
    arrays in `compute`, of shapes in `shape` and `shape_from_values`, of dtypes in `dtype`; 0 are
    as many as its attributes say.
    `shape` maps shapes to the shape of the result. It is read over dims as the type relation and
    over integers as the shape function. For the positions in `reads` it gets the elements of the
    argument (a tuple, or one dim for rank 0) in place of its shape; `?` where it is not known how
    many there are.
    `shape_from_values` maps arrays to a shape, for ops whose shape no dims can tell (nonzero).
    `value` maps types to the elements of the only result as dims, or None where they are not known.
    `ratio` maps types to the only element of the only result, a float, as a fraction of dims.
    `padding` maps (argument, axis, *shapes) to what must hold of a padded axis.
    `scalar` is the meaning of an elementwise op as an expression over x0, x1, ...
    `static` (of `dyn` ops) maps types whose `reads` are known to the static twin and its
    attributes, for the arguments that are not read; None if an extent in them is still unknown.
    `relation` (of ops on sequences and what is optional) maps types to the types of the results,
    in place of `shape` and `dtype`.
    `unranked` maps types to the shape of the only result where nobody knows how many axes an
    argument has; without it, that of the results is not known then, either.
    `bits` says that `compute` reads the bits of its arguments: short numbers come as they are.
    `movement` says that the result holds nothing but elements of the first argument, and how.
    `total` says that no values of its arguments make an error, as of any elementwise op.
    `work` maps shapes, that of the only result first, to how many products are summed in it.
    `sizing` are attributes that decide nothing but extents of the result.
    `extents` (of `dyn` ops) is the argument, read alone, whose elements are extents: none negative.
    `room` (of ops whose values say how many rows) maps types to the twin of the same arguments that
    makes as many rows as there may be, and tells how many there are; and to its attributes.
    `example` is what the laws are tested on: samples like "float32[N, C+2], int64[M] in [0, C)
    {axis=1}", separated by ";". Names are extents (drawn anew), arguments may be drawn from a range
    or be given, "int64[2] = (N, -1)", and attributes are Python over the names.
    """

    name: str
    compute: Callable[..., Any]
    shape: Callable[..., Any]
    dtype: Callable[..., Any]
    padding: Callable[..., Padding]
    example: str
    results: int = 1
    scalar: str | None = None
    reads: frozenset[int] = frozenset()
    shape_from_values: Callable[..., Any] | None = None
    value: Callable[..., Shape | None] | None = None
    ratio: Callable[..., Ratio | None] | None = None
    static: Callable[..., tuple[Op, Attrs] | None] | None = None
    relation: Callable[..., tuple[Type, ...]] | None = None
    unranked: Callable[..., Shape] | None = None
    bits: bool = False
    movement: Movement | None = None
    total: bool = False
    work: Callable[..., Dim] | None = None
    sizing: frozenset[str] = frozenset()
    extents: int | None = None
    room: Callable[..., tuple[Op, Attrs]] | None = None
    defaults: Attrs = field(init=False)
    """Attribute names, each with its default or `inspect.Parameter.empty`."""

    def __post_init__(self) -> None:
        """Read the attributes off the signature of `compute`."""
        assert self.results == 1 or not (self.value or self.scalar), f"{self.name} has one result"
        params = inspect.signature(self.compute).parameters.values()
        defaults = {p.name: p.default for p in params if p.kind is p.KEYWORD_ONLY}
        object.__setattr__(self, "defaults", defaults)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _registered, (self.compute.__module__, self.name)

    def complete(self, attrs: Attrs) -> dict[str, Any]:
        """`attrs` with the defaults filled in; unknown and missing ones are errors."""
        if attrs.keys() == self.defaults.keys():
            return {name: attrs[name] for name in self.defaults}
        for name in attrs:
            if name not in self.defaults:
                raise unknown_name(f"attribute of {self.name}", name, self.defaults)
        full = {**self.defaults, **attrs}
        missing = [k for k, v in full.items() if v is inspect.Parameter.empty]
        if missing:
            raise TypeRelError(f"{self.name} needs the attribute {', '.join(missing)}")
        return full

    def each(self, said: Any) -> tuple[Any, ...]:
        """What a rule or `compute` says, one entry for each result."""
        return (said,) if self.results == 1 else tuple(said)

    def run(self, *args: Value, **attrs: Any) -> tuple[Value, ...]:
        """What `compute` makes of the arguments, a value for each result.

        Short numbers are widened, and the results rounded: numpy does not compute with most, and
        what lies between, a square or a sum, may be beyond them.
        """
        if self.relation is not None or self.bits:
            return self.each(self.compute(*args, **attrs))
        wide = [a.astype(WIDER.get(a.dtype, a.dtype), copy=False) for a in args]
        results = tuple(map(np.asarray, self.each(self.compute(*wide, **attrs))))
        if all(a.dtype == w.dtype for a, w in zip(args, wide, strict=True)):
            return results
        dtypes = self.each(self.dtype(*(a.dtype for a in args), **attrs))
        with np.errstate(all="ignore"):  # what is beyond them is infinite
            return tuple(r.astype(d, copy=False) for r, d in zip(results, dtypes, strict=True))

    def infer(self, *types: Type, **attrs: Any) -> tuple[Type, ...]:
        """The type relation: the shape rule read over dims, some of them unknown.

        Where only a run can tell how many axes there are, the results are tensors of no known rank.
        """
        if self.relation is not None:
            return self.relation(*types, **attrs)
        dtypes = tuple(map(np.dtype, self.each(self.dtype(*(t.dtype for t in types), **attrs))))
        shapes = self._known_shapes(types, attrs)
        if shapes is None:
            return tuple(map(UnrankedType, dtypes))
        return tuple(
            TensorType(
                dtype,
                shape,
                self._known_value(types, dtype, shape, attrs),
                self._known_ratio(types, dtype, shape),
            )
            for dtype, shape in zip(dtypes, shapes, strict=True)
        )

    def _known_shapes(self, types: tuple[Type, ...], attrs: Attrs) -> list[Shape] | None:
        """The shapes of the results; None if nobody knows how many axes there are."""
        try:
            seen = [_seen(t) if i in self.reads else t.shape for i, t in enumerate(types)]
            return [tuple(map(followed, s)) for s in self.each(self.shape(*seen, **attrs))]
        except UnknownRankError:
            if self.unranked is None:
                return None
        try:
            return [self.unranked(*types, **attrs)]
        except UnknownRankError:
            return None

    def _known_value(
        self, types: tuple[Type, ...], dtype: np.dtype[Any], shape: Shape, attrs: Attrs
    ) -> Shape | None:
        if self.value is None or dtype.kind not in "ib" or not all(t.is_tensor for t in types):
            return None
        size = product(shape)
        if not isinstance(size, int) or size > MAX_VALUE:
            return None
        value = self.value(*types, **attrs)
        return value and tuple(followed(d) if _fits(d, dtype) else ANY for d in value)

    def _known_ratio(
        self, types: tuple[Type, ...], dtype: np.dtype[Any], shape: Shape
    ) -> Ratio | None:
        if self.ratio is None or dtype.kind != "f" or not all(t.is_tensor for t in types):
            return None
        ratio = self.ratio(*types) if product(shape) == 1 else None
        return ratio and ratio.rounded(dtype)

    def run_time_shapes(self, *args: Array, **attrs: Any) -> tuple[tuple[int, ...], ...]:
        """The shape function: the same rule read over integers, or over values if it must be."""
        if self.shape_from_values is not None:
            shapes = self.each(self.shape_from_values(*args, **attrs))
        else:
            seen = [numbers_in(a) if i in self.reads else a.shape for i, a in enumerate(args)]
            shapes = self.each(self.shape(*seen, **attrs))
        return tuple(tuple(map(int, shape)) for shape in shapes)


def _fits(dim: Dim, dtype: np.dtype[Any]) -> bool:
    """Whether a dim cannot have wrapped around in this dtype; int64 holds every extent.

    Where nothing bounds it, int32 is relied on to hold it: keras computes shapes there.
    """
    if dtype.itemsize == np.dtype(np.int64).itemsize:
        return not isinstance(dim, int) or -(2**63) <= dim < 2**63
    lo, hi = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if maximum(dim, int(lo)) != dim:
        return False
    least, most = bounds(dim)
    if dtype.itemsize == np.dtype(np.int32).itemsize and most is None and least <= hi:
        rely_on_least(int(hi), dim)
        return True
    return minimum(dim, int(hi)) == dim


def _seen(type_: Type) -> Dim | Shape:
    if type_.value is not None:
        return type_.value if type_.shape else type_.value[0]
    if not type_.shape:
        return ANY
    size = type_.shape[0]
    if len(type_.shape) > 1:
        raise TypeRelError(f"expected a vector, got {type_}")
    if not isinstance(size, int):
        return ANY  # not even how many there are
    if size > MAX_RANK:
        raise TypeRelError(f"{type_} tells of {size} axes; the most is {MAX_RANK}")
    return (ANY,) * size


def numbers_in(array: Array) -> int | tuple[int, ...]:
    """The elements of an array of integers, or the only one of a scalar."""
    return tuple(map(int, array.reshape(-1))) if array.ndim else int(array)


def by_dims(compute: Callable[..., Array]) -> Callable[..., Shape | None]:
    """The value rule of an op whose `compute` also works on arrays of dims."""

    def value(*types: Type, **attrs: Any) -> Shape | None:
        if all(t.value is None for t in types) or any(map(is_symbolic, attrs.values())):
            return None
        arrays = [_dims_array(t) for t in types]
        if any(a is None for a in arrays):
            return None
        with np.errstate(all="ignore"):  # a rule in Python may leave a flag behind
            out = np.asarray(compute(*arrays, **attrs), dtype=object)
        return tuple(int(d) if isinstance(d, np.integer) else d for d in out.reshape(-1))

    return value


def is_symbolic(attr: Any) -> bool:
    """Whether an attribute holds a dim that is no integer."""
    return any(map(is_symbolic, attr)) if isinstance(attr, tuple) else isinstance(attr, Symbolic)


def _dims_array(type_: Type) -> Array | None:
    """The elements of a small integer tensor, those that are unknown as `?`."""
    shape = tuple(d for d in type_.shape if isinstance(d, int))
    size = math.prod(shape)
    if len(shape) < len(type_.shape) or size > MAX_VALUE or type_.dtype.kind not in "ib":
        return None
    out: Array = np.empty(size, dtype=object)
    out[:] = (ANY,) * size if type_.value is None else type_.value
    return out.reshape(shape)


OPS: dict[str, Op] = {}  # those that were declared so far
ELSEWHERE = {"onnx_node": "bucketize.onnx.postponed"}
"""Where operators are declared that not everybody imports: they are when somebody asks for them."""


def register(op: Op) -> Op:
    """Put `op` in the table; its name must be new."""
    assert op.name not in OPS, f"operator {op.name} is declared twice"
    return OPS.setdefault(op.name, op)


def first_dtype(x: np.dtype[Any], *_: np.dtype[Any], **__: Any) -> np.dtype[Any]:
    """The dtype rule of an op whose result has the dtype of its first argument."""
    return x


def same_dtype(*dtypes: np.dtype[Any], **_: Any) -> np.dtype[Any]:
    """The dtype rule of an op whose arguments must agree."""
    if len(set(dtypes)) > 1:
        raise TypeRelError(f"dtypes differ: {' and '.join(map(str, dtypes))}")
    return dtypes[0]


def op(
    *,
    name: str | None = None,
    dtype: Callable[..., Any] = same_dtype,
    scalar: str | None = None,
    reads: tuple[int, ...] = (),
    value: Callable[..., Shape | None] | bool = False,
    sizing: tuple[str, ...] = (),
    total: bool = False,
    **facts: Any,
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an operator: the decorated function is its meaning, the arguments are those of `Op`.

    `value=True` says that `compute` also works on arrays of dims. The name is the function's,
    less a trailing underscore, unless `name` is given.
    """

    def declare(compute: Callable[..., Any]) -> Op:
        compute = np.errstate(all="ignore")(compute)  # infinities and NaN are results like others
        return register(
            Op(
                name=name or compute.__name__.rstrip("_"),
                compute=compute,
                dtype=dtype,
                scalar=scalar,
                reads=frozenset(reads),
                value=by_dims(compute) if value is True else (value or None),
                sizing=frozenset(sizing),
                total=total or scalar is not None,
                **facts,
            )
        )

    return declare


def without_rules(compute: Callable[..., Any], **facts: Any) -> Op:
    """Declare an operator that something else types; it is never padded."""
    name = compute.__name__.strip("_")
    rules: dict[str, Any] = {"shape": no_rule, "dtype": no_rule, "padding": no_rule, "example": ""}
    return register(Op(name=name, compute=compute, **rules, **facts))


def related(
    relation: Callable[..., tuple[Type, ...]], results: int = 1
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an operator that is typed by a relation, and runs on the host."""
    return partial(without_rules, relation=relation, results=results)


def no_rule(*_args: Any, **_attrs: Any) -> NoReturn:
    """Stand where an operator has no rule."""
    raise AssertionError("typed by the builder, or by its relation; never padded")


def _registered(module: str, name: str) -> Op:
    """The operator that a module declares: what a pickle holds in its place."""
    importlib.import_module(module)
    return get(name)


def get(name: str) -> Op:
    """The operator of this name."""
    if name in ELSEWHERE:
        importlib.import_module(ELSEWHERE[name])
    try:
        return OPS[name] if name in OPS else all_ops()[name]
    except KeyError:
        raise unknown_name("operator", name, OPS) from None


def all_ops() -> dict[str, Op]:
    """All operators by their names, those included whose families nobody used yet."""
    importlib.import_module("bucketize.ops.every")
    return OPS
