"""The front end: an ONNX model as a module whose symbols are the model's `dim_param` names."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from onnx import GraphProto, ModelProto, TensorShapeProto, ValueInfoProto

from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    TypeRelError,
    UnsupportedModelError,
    unknown_name,
)
from bucketize.ir import Function, Module, Var, specialise
from bucketize.onnx.function import check_different, function_key, functions
from bucketize.onnx.kind import type_of
from bucketize.onnx.load import Source, load, opsets
from bucketize.onnx.node import Unsupported
from bucketize.onnx.postponed import postpone
from bucketize.onnx.translate import Translation
from bucketize.ops.rounding import FORMATS
from bucketize.ops.window.rules import PRECISIONS
from bucketize.text.reader import RESERVED
from bucketize.types import (
    MOST_EXTENT,
    Assumption,
    Dim,
    Range,
    Sizes,
    Symbol,
    TensorType,
    assumptions,
    evaluate,
    symbols,
)

Key: TypeAlias = str | tuple[str, int]  # a `dim_param`, or the place of a dim that has none
Bounds: TypeAlias = Mapping[str, Range]

OPEN: tuple[int, int | None] = (0, None)
"""The bounds of a symbol that nobody gave any: a batch or a past may be empty."""
TRIED = 1 << 12
"""Sizes of a symbol, until one is found that the model takes: images of the largest windows.

Beyond, the symbol begins at its first size, or 1, and calls are told which op refuses theirs."""
MOST_TRIED = 16
"""Squeezes under a condition, of which is asked what else a model takes: two imports for each."""
BOUNDS = "bucketize.bounds"  # in a model's metadata: {"N": [1, 32]}, inclusive, as JSON


def from_onnx(
    model: Source,
    *,
    bounds: Bounds | None = None,
    precision: str = "default",
    weights: str = "float32",
) -> Module:
    """The module of an ONNX model (https://onnx.ai/onnx/repo-docs/IR.html) of any opset.

    Each `dim_param` becomes a symbol, with `_` for what no name can hold; a dim without one becomes
    a symbol of its own, `{input}_{axis}`.

    Args:
        model: a path, bytes, or a ModelProto.
        bounds: inclusive, by symbol: `{"N": (1, 32)}`; None as the upper one is no bound, and
            `(8, 512, 8)` are multiples of 8. They go before those that `to_onnx` left in the model;
            a symbol without any begins at 0, or at the first of 4,096 sizes that the model's
            windows take; if none is, calls are refused by the op that does not take theirs. One
            that weights hold to a single number is that number.
        precision: of convolutions: "exact" keeps to kernels that add up the products of the
            definition.
        weights: of products where a factor is a known matrix: "bfloat16" and "int8" round it, and
            kernels of few rows read less memory.

    Returns:
        The module of one function, `main`.

    Raises:
        ArgumentError: bounds of another kind.
        BucketizeError: bounds that hold no size.
        TypeRelError: operands that do not fit together at any sizes.
        UnknownNameError: a symbol, a precision or a format of weights that there is not.
        UnsupportedModelError: all nodes that cannot be converted, or what is wrong with the file.

    """
    if bounds is not None and not isinstance(bounds, Mapping):
        raise ArgumentError(f'expected bounds by symbol, as in {{"N": (1, 32)}}, got {bounds!r}')
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if weights not in FORMATS:
        raise unknown_name("format of weights", weights, FORMATS)
    proto = load(model)
    params = parameters(proto.graph, bounds or {}, stored_bounds(proto))
    names = [output.name for output in proto.graph.output]
    check_different("output", names)
    check_different("function", [str(function_key(f)) for f in proto.functions])
    versions, own = opsets(proto), functions(proto)

    def translated(squeezes: Mapping[str, bool]) -> _Attempt:
        translation = Translation(
            versions, precision, weights, own, postpone=postpone, squeezes=squeezes
        )
        with assumptions() as relied:
            main = translation.function("main", proto.graph, params, {})
        return _Attempt(translation, main, relied)

    attempt = _settled(translated)
    attempt.translation.check()
    return Module({"main": _begun(attempt.main, attempt.relied, bounds or {})}, names=names)


@dataclass(frozen=True)
class _Attempt:
    """A model, translated with some of its squeezes decided."""

    translation: Translation
    main: Function
    relied: list[Assumption]

    @property
    def left(self) -> Iterable[str]:
        """The nodes that squeeze an axis or not, in order."""
        return self.translation.undecided


def _settled(translate: Callable[[Mapping[str, bool]], _Attempt]) -> _Attempt:
    """The translation with each squeeze in place without which the model is legal at no sizes.

    That the extent is 1 is then for a run to check, as of any extents that have to be equal.
    """
    decided: dict[str, bool] = {}
    attempt, tried = translate(decided), set[str]()
    while left := [node for node in attempt.left if node not in tried][: MOST_TRIED - len(tried)]:
        tried.add(left[0])
        whole, squeezed = ({**decided, left[0]: is_one} for is_one in (False, True))
        if _legal(translate, whole) is None and (better := _legal(translate, squeezed)):
            decided, attempt = squeezed, better
    return attempt


def _legal(
    translate: Callable[[Mapping[str, bool]], _Attempt], squeezes: Mapping[str, bool]
) -> _Attempt | None:
    try:
        attempt = translate(squeezes)
    except BucketizeError:
        return None
    return None if attempt.translation.faults else attempt


def _begun(main: Function, relied: Iterable[Assumption], bounds: Bounds) -> Function:
    """The function, whose open symbols begin where the types rely on more than 0: windows do.

    Types know more of what is never empty, and the sizes below would be refused all the same. So
    would those of a symbol that has to be one number, as weights have it. Those that were given
    `bounds` keep them.
    """
    least: dict[str, int] = {}
    only: dict[str, Dim] = {}
    for relation, a, b in relied:
        match relation, list(symbols(excess := a - b)):
            case ">=", [Symbol(name, 0, None)] if name not in bounds:
                least[name] = _first(excess, name, least.get(name, 0))
            case "==", [Symbol(name, 0, None) as symbol] if name not in bounds:
                only.update((name, d) for d in _beside(symbol, a, b))
    own = main.symbols()
    begun = {name: own[name].within(size, None) for name, size in least.items() if size} | only
    return specialise(main, begun) if begun else main


def _beside(symbol: Symbol, a: Dim, b: Dim) -> list[int]:
    """The number that a symbol has to be, if one of two equal dims is that symbol."""
    pairs = (a, b), (b, a)
    return [d for s, d in pairs if s == symbol and isinstance(d, int)]


def _first(excess: Dim, name: str, size: int) -> int:
    """The first size of a symbol, from `size` on, at which a dim is not negative.

    If none is found that is `size`, or 1 rather than 0.
    """
    fit = (n for n in range(size, size + TRIED) if not _is_negative(excess, {name: n}))
    return next(fit, max(size, 1))


def _is_negative(dim: Dim, sizes: Sizes) -> bool:
    try:
        return evaluate(dim, sizes) < 0
    except TypeRelError:
        return True


def stored_bounds(model: ModelProto) -> Bounds:
    """The bounds that `to_onnx` wrote beside the graph, by `dim_param`, or place."""
    texts = [p.value for p in model.metadata_props if p.key == BOUNDS] or ["{}"]
    try:
        (text,) = texts
        return {name: tuple(ends) for name, ends in json.loads(text).items()}
    except (AttributeError, RecursionError, TypeError, ValueError) as e:
        shown = " and ".join(map(reprlib.repr, texts))
        raise UnsupportedModelError(f"the metadata {BOUNDS} are none: {shown}") from e


def parameters(graph: GraphProto, bounds: Bounds, stored: Bounds) -> list[Var]:
    """The inputs of a graph as variables; those with an initializer are constants, not inputs.

    `bounds` are by symbol, and go before those that are `stored` in the model.
    """
    constant = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constant]
    check_different("input", [i.name for i in inputs])
    dims_of = {i.name: i.type.tensor_type.shape.dim for i in inputs}
    shapes = [[_extent(i, axis, d) for axis, d in enumerate(dims_of[i.name])] for i in inputs]
    names = _symbol_names(d for shape in shapes for d in shape if not isinstance(d, int))
    for name in bounds:
        if name not in names.values():
            raise unknown_name("symbol", name, names.values())
    ranges = {n: bounds.get(n, stored.get(raw_name(k), OPEN)) for k, n in names.items()}
    dims = {key: bounded(name, ranges[name]) for key, name in names.items()}
    return [_parameter(i, shape, dims) for i, shape in zip(inputs, shapes, strict=True)]


def _parameter(value: ValueInfoProto, shape: Iterable[int | Key], dims: Mapping[Key, Dim]) -> Var:
    """An input; the extents of tensors in a sequence have no names, for each has its own."""
    try:
        type_ = type_of(value.type)
    except Unsupported as e:
        raise UnsupportedModelError(f"input {value.name!r}: {e}") from e
    if type_.is_tensor:
        extents = tuple(d if isinstance(d, int) else dims[d] for d in shape)
        type_ = TensorType(type_.dtype, extents)
    return Var(value.name, type_)


def _extent(value: ValueInfoProto, axis: int, dim: TensorShapeProto.Dimension) -> int | Key:
    """An extent, or what it is known by.

    -1, and a name without a letter, as "?", is how some exporters write that they know neither.
    """
    if re.search(r"\w", dim.dim_param):
        return dim.dim_param
    if not dim.HasField("dim_value") or dim.dim_value == -1:
        return value.name, axis
    if dim.dim_value < 0:
        raise UnsupportedModelError(f"input {value.name!r}, axis {axis}: {dim.dim_value} elements")
    return dim.dim_value


def raw_name(key: Key) -> str:
    """The name of an extent before it is made one that can be written."""
    return key if isinstance(key, str) else f"{key[0]}_{key[1]}"


def _symbol_names(keys: Iterable[Key]) -> dict[Key, str]:
    """Names that can be written, each different, and the `dim_param` itself wherever it can be."""
    raw = {k: raw_name(k) for k in keys}
    names: dict[Key, str] = {}
    for key in sorted(raw, key=lambda k: (isinstance(k, tuple), not _is_name(raw[k]))):
        name = re.sub(r"\W+|^(?=\d)", "_", raw[key])
        while not _is_name(name) or name in names.values():
            name += "_"
        names[key] = name
    return names


def _is_name(text: str) -> bool:
    return text.isidentifier() and text not in RESERVED


def bounded(name: str, bounds: Any) -> int | Symbol:
    """A symbol with inclusive bounds; the only extent within them, if there is but one."""
    match bounds:
        case (int(lo), None | int() as hi):
            step = 1
        case (int(lo), None | int() as hi, int(step)) if step > 0:
            pass
        case _:
            lo, hi, step = -1, None, 1
    symbol = Symbol(name, step=step)
    if lo >= 0 and (hi is None or symbol.least(lo) <= hi) and max(lo, hi or 0) < MOST_EXTENT:
        return symbol.within(lo, hi)
    wanted = (
        "a pair (lo, hi) with 0 <= lo <= hi < 2**62, or (lo, hi, step) with a multiple between them"
    )
    raise BucketizeError(f"the bounds of {name} must be {wanted}, got {bounds!r}")
