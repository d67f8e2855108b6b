"""Laws that every operator keeps; a new one is tested here without a new test.

Each law runs over every sample in the table of operators: see samples.py for how they are drawn.
Seeds draw extents and content, not hypothesis, which takes longer than these laws do.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from bucketize import ops
from bucketize.errors import BucketizeError
from bucketize.ir import STRUCTURAL
from bucketize.ir.relation import broken
from bucketize.kernel.emit.expression import TRIGONOMETRY
from bucketize.op import UNSAFE, Array, Attrs, Fill, Movement, Op, all_ops
from bucketize.ops.sample import Sample, parse, samples
from bucketize.types import (
    ANY,
    AnyDim,
    Dim,
    Symbol,
    Symbolic,
    TensorType,
    Type,
    UnrankedType,
    assumptions,
    evaluate,
    symbols,
)

TABLE = [op for op in all_ops().values() if op not in STRUCTURAL and op.relation is None]
ELEMENTWISE = [op for op in TABLE if op.scalar is not None]
VALUED = [op for op in TABLE if op.value is not None]
DYNAMIC = [op for op in TABLE if op.reads]

Case = tuple[Sample, dict[str, int], np.random.Generator]

EXAMPLES = max(5, settings.default.max_examples // 5)  # there are many operators
FIRST = 0 if settings.default.derandomize else secrets.randbits(32)


def law(
    table: list[Op], examples: int = EXAMPLES, **others: Sequence[Any]
) -> Callable[[Callable[..., None]], Callable[[Op], None]]:
    """A test of each op: a check of its cases, in as many examples; `others` take turns in them."""

    def of(check: Callable[..., None]) -> Callable[[Op], None]:
        @pytest.mark.parametrize("op", table, ids=[op.name for op in table])
        def test(op: Op) -> None:
            for i in range(examples):
                turns = {name: values[i % len(values)] for name, values in others.items()}
                check(op, drawn(op, i), **turns)

        return test

    return of


def drawn(op: Op, example: int) -> Iterator[Case]:
    """Every sample of an op, with extents for its names, first of 1, and a source of content."""
    rng = np.random.default_rng(FIRST + example)
    letters = sorted({n for s in samples(op) for n in s.names})
    names = {n: int(rng.integers(1, 6)) if example else 1 for n in letters}
    for sample in samples(op):
        case = sample, {n: names[n] for n in sample.names}, rng
        print(f"sample {sample.number} at {case[1]}, seed {FIRST + example}")
        yield case


def known(array: Array) -> TensorType:
    value = tuple(map(int, array.reshape(-1))) if array.dtype.kind in "ib" else None
    return TensorType(array.dtype, array.shape, value)


# --- types ---------------------------------------------------------------------------------------


def test_every_op_has_a_sample() -> None:
    assert [op.name for op in TABLE if not op.example] == []


@law(TABLE)
def test_shape_and_dtype_are_those_of_compute(op: Op, cases: Iterator[Case]) -> None:
    for sample, names, rng in cases:
        args, attrs = sample.draw(rng, names), sample.attrs(names)
        outs = op.run(*args, **attrs)
        assert tuple(out.shape for out in outs) == op.run_time_shapes(*args, **attrs)
        types = op.infer(*map(known, args), **attrs)
        assert [out.dtype for out in outs] == [t.dtype for t in types]


@law(TABLE)
@np.errstate(all="ignore")
def test_extents_that_types_let_pass_are_taken(op: Op, cases: Iterator[Case]) -> None:
    """What relates two extents is in the shape rule, or kernels would go beyond their arguments."""
    for sample, names, rng in cases:
        drawn, attrs = sample.draw(rng, names), sample.attrs(names)
        args = [a if i in op.reads else indexing_nothing(a) for i, a in enumerate(drawn)]
        axes = [(i, at) for i, a in enumerate(args) for at in range(a.ndim) if a.shape[at]]
        if not axes:
            continue
        i, at = axes[rng.integers(len(axes))]
        args[i] = np.take(args[i], np.arange(rng.integers(1, 7)), at, mode="wrap")
        types = inferred(op, [*map(known, args)], attrs)
        for claimed, out in zip(types, op.run(*args, **attrs), strict=True) if types else ():
            assert not claimed.is_tensor or Hiding(rng, {}).agree(claimed.shape, out.shape)


def indexing_nothing(x: Array) -> Array:
    """Zeros for what may be indices or truth values: they are in range of every axis."""
    return np.zeros_like(x) if x.dtype.kind in "iub" else x


@law(
    [op for op in TABLE if op not in (ops.dft, ops.dyn_dft)]
)  # the host checks the parts of a number
def test_sizes_that_a_rule_refuses_break_what_types_rely_on(op: Op, cases: Iterator[Case]) -> None:
    """Of symbols the rule notes what has to hold, or claims an extent that is negative or none."""
    for sample, names, rng in cases:
        args, attrs, sizes = sample.draw(rng, names), sample.attrs(names), dict[str, int]()
        types = [known(a) if i in op.reads else hidden(a, sizes, rng) for i, a in enumerate(args)]
        with assumptions() as relied:
            outs = inferred(op, types, attrs)
        if not sizes or outs is None or not all(out.is_tensor for out in outs):
            continue
        sizes[rng.choice(sorted(sizes))] = int(rng.integers(0, 7))
        shapes = [tuple(evaluate(d, sizes) for d in t.shape) for t in types]
        at = [TensorType(t.dtype, s, t.value) for t, s in zip(types, shapes, strict=True)]
        if inferred(op, at, attrs) is None:
            extents = [d for out in outs for d in out.shape if not isinstance(d, AnyDim)]
            assert broken([*relied, *((">=", d, 0) for d in extents)], sizes), f"{at} of {types}"


def inferred(op: Op, types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...] | None:
    """The types of the results; None if the rule refuses those of the arguments."""
    try:
        return op.infer(*types, **attrs)
    except BucketizeError:
        return None


def hidden(array: Array, sizes: dict[str, int], rng: np.random.Generator) -> TensorType:
    """The type of an array with symbols for most of its extents, each of its own."""
    dims: list[Dim] = []
    for extent in array.shape:
        name = f"s{len(sizes)}"
        dims.append(Symbol(name) if rng.random() < 0.8 else extent)
        if isinstance(dims[-1], Symbol):
            sizes[name] = extent
    return TensorType(array.dtype, tuple(dims))


def test_an_op_without_a_shape_function_breaks_that_law() -> None:
    with pytest.raises(TypeError, match="AnyDim"):
        dataclasses.replace(ops.nonzero, shape_from_values=None).run_time_shapes(np.eye(2))


EDGES = (1e-3, 1.0, 60.0, 2000.0, 30000.0)
"""Magnitudes at which squares, powers and sums of float16 are beyond it, and results are not."""


@law([op for op in TABLE if not op.bits and op is not ops.mel_weight_matrix], magnitude=EDGES)
@np.errstate(all="ignore")
def test_short_floats_mean_what_wide_ones_mean(
    op: Op, cases: Iterator[Case], magnitude: float
) -> None:
    """What lies between operands and result may not be rounded to the dtype, nor overflow."""
    for sample, names, rng in cases:
        args, attrs = sample.draw(rng, names), sample.attrs(names)
        short = [(a * magnitude).astype("f2") if a.dtype == np.float32 else a for a in args]
        wide = [a.astype("f8") if a.dtype == np.float16 else a for a in short]
        if any(short[i].dtype == np.float16 for i in op.reads):
            continue  # another extent
        for got, exact in zip(op.run(*short, **attrs), op.run(*wide, **attrs), strict=True):
            if exact.dtype == np.float64:
                near(got.astype("f8"), exact.astype(got.dtype).astype("f8"))


def near(got: Array, want: Array) -> None:
    """Equal up to some units of float16 of the greatest."""
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    atol = 8 * 2.0**-10 * np.abs(want[finite]).max(initial=2.0**-14)
    np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=atol)


def bounded(rng: np.random.Generator, name: str, value: int) -> Symbol:
    """A symbol whose bounds admit `value`."""
    hi = None if rng.random() < 0.3 else value + int(rng.integers(0, 4))
    return Symbol(name, value - int(rng.integers(0, min(value, 3) + 1)), hi)


class Hiding:
    """Says less of what is known: symbols in place of integers, nothing in place of symbols."""

    def __init__(self, rng: np.random.Generator, names: dict[str, int]) -> None:
        self.rng = rng
        self.names = {n: bounded(rng, n, v) if rng.random() < 0.6 else v for n, v in names.items()}
        self.actual = dict(names)

    def dim(self, dim: Dim, share: float = 0.25) -> Dim:
        return ANY if self.rng.random() < share else dim

    def element(self, value: int) -> Dim:
        """An element of a drawn tensor: itself, a symbol, or nothing."""
        if value >= 0 and self.rng.random() < 0.4:
            name = f"v{len(self.actual)}"
            self.actual[name] = value
            return bounded(self.rng, name, value)
        return self.dim(value)

    def type(self, sample: Sample, at: int, array: Array) -> Type:
        if self.rng.random() < 0.05:
            return UnrankedType(array.dtype)
        arg = sample.args[at]
        shape = arg.shape(self.names)
        if at not in sample.op.reads:
            shape = tuple(map(self.dim, shape))
        if array.dtype.kind not in "ib" or self.rng.random() < 0.2:
            return TensorType(array.dtype, shape)
        if arg.given:
            return TensorType(array.dtype, shape, tuple(map(self.dim, arg.elements(self.names))))
        value = tuple(map(self.element, map(int, array.reshape(-1))))
        return TensorType(array.dtype, array.shape, value)

    def agree(self, claimed: tuple[Dim, ...], actual: tuple[int, ...]) -> bool:
        """Whether what is claimed is so; nothing claimed is never wrong."""
        pairs = zip(claimed, actual, strict=True)
        return all(isinstance(c, AnyDim) or evaluate(c, self.actual) == a for c, a in pairs)

    def breaks(self, relation: str, a: Dim, b: Dim) -> bool:
        """Whether an extent is less than it is relied on to be; others fit, as all was drawn so."""
        known = not isinstance(a, AnyDim) and not isinstance(b, AnyDim)
        return relation == ">=" and known and evaluate(a, self.actual) < evaluate(b, self.actual)


@law(TABLE, 2 * EXAMPLES)
def test_the_type_relation_is_sound(op: Op, cases: Iterator[Case]) -> None:
    for sample, names, rng in cases:
        args = sample.draw(rng, names)
        outs = op.run(*args, **sample.attrs(names))
        hiding = Hiding(rng, names)
        types = [hiding.type(sample, i, a) for i, a in enumerate(args)]
        with assumptions() as relied:
            claims = op.infer(*types, **sample.attrs(hiding.names))
        if any(hiding.breaks(*relation) for relation in relied):  # a run is refused
            continue
        for claimed, out in zip(claims, outs, strict=True):
            assert claimed.dtype == out.dtype
            if not claimed.is_tensor:
                continue
            assert hiding.agree(claimed.shape, out.shape), f"{claimed} of {types}"
            if claimed.value is not None:
                elements = tuple(map(int, out.reshape(-1)))
                assert hiding.agree(claimed.value, elements), f"{claimed.value} of {types}"


# --- padding -------------------------------------------------------------------------------------


def poison(dtype: np.dtype[Any]) -> Any:
    """What shows, if it leaks."""
    return {"f": np.nan, "b": True}.get(dtype.kind) or np.iinfo(dtype).max // 3


Rules = dict[tuple[int, int], object]


@functools.cache
def padding_rules(sample: Sample, name: str) -> Rules:
    """What is asked of each argument axis that grows with `name`, by (argument, axis)."""
    dims = sample.symbols()
    shapes = [a.shape(dims) for a in sample.args]
    axes = [
        (i, at) for i, s in enumerate(shapes) for at, d in enumerate(s) if dims[name] in symbols(d)
    ]
    attrs = sample.attrs(dims)
    return {(i, at): sample.op.padding(i, at, *shapes, **attrs) for i, at in axes}


def grow(args: list[Array], shapes: list[Any], rules: Rules) -> list[Array]:
    """The arguments padded to `shapes`, and masked as `rules` ask."""
    out = list(args)
    for (i, at), rule in rules.items():
        a = out[i]
        width = [(0, (shapes[i][at] - n) * (k == at)) for k, n in enumerate(a.shape)]
        out[i] = np.pad(a, width, constant_values=poison(a.dtype))
        if isinstance(rule, Fill):
            true = np.asarray(a.shape[at])
            out[i] = ops.mask_tail.compute(out[i], true, axis=at, value=rule.value)
    return out


@law(TABLE)
def test_the_padding_rule_is_true(op: Op, cases: Iterator[Case]) -> None:
    for sample, names, rng in cases:
        for name in sample.names:
            rules = padding_rules(sample, name)
            if rules and UNSAFE not in rules.values():  # else nothing is promised
                more = {**names, name: names[name] + int(rng.integers(1, 4))}
                check_padding(sample, rng, (names, more), rules)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
@pytest.mark.parametrize(
    "text",
    [
        *("reduce_min axes=(0,)", "reduce_max axes=(0,)", "argmin axis=0"),
        *("topk axis=0,k=1", "topk axis=0,k=1,largest=False"),
    ],
)
def test_infinite_fills_of_integers(text: str, dtype: str) -> None:
    name, attributes = text.split()
    limits = np.iinfo(dtype)
    for values in ((limits.min, 7, limits.max), (limits.max, limits.max), (limits.min,)):
        given = f"{dtype}[N] = ({', '.join(map(str, values))},)"
        sample = parse(all_ops()[name], f"{given} {{{attributes}}}", 0)
        sizes = ({"N": len(values)}, {"N": len(values) + 3})
        check_padding(sample, np.random.default_rng(0), sizes, padding_rules(sample, "N"))


def test_padding_ranks_behind_infinity_and_nan() -> None:
    numbers = "float32[N] = (1.0, 1e999-1e999, 1e999, -1e999)"
    for largest in (True, False):
        sample = parse(ops.topk, f"{numbers} {{k=4, axis=0, largest={largest}}}", 0)
        sizes = ({"N": 4}, {"N": 7})
        check_padding(sample, np.random.default_rng(0), sizes, padding_rules(sample, "N"))


def check_padding(
    sample: Sample, rng: np.random.Generator, sizes: tuple[dict[str, int], ...], rules: Rules
) -> None:
    names, more = sizes
    args, attrs = sample.draw(rng, names), sample.attrs(names)
    wanted = sample.op.run(*args, **attrs)
    padded = grow(args, [a.shape(more) for a in sample.args], rules)
    made = sample.op.run(*padded, **sample.attrs(more))
    claims = sample.op.infer(*map(known, args), **attrs)
    for claimed, got, want in zip(claims, made, wanted, strict=True):
        extents = zip(claimed.shape, got.shape, want.shape, strict=True)
        assert all(g == w for d, g, w in extents if d is ANY), "an unknown extent has grown"
        cropped = got[tuple(map(slice, want.shape))]
        np.testing.assert_allclose(cropped, want, rtol=1e-4, atol=1e-5, err_msg=f"{more}: {rules}")


# --- scalars -------------------------------------------------------------------------------------


def guarded(fn: Callable[..., float]) -> Callable[..., float]:
    """`fn`, but NaN where Python raises."""

    def call(*args: float) -> float:
        try:
            return fn(*args)
        except (ValueError, ZeroDivisionError):
            return math.nan

    return call


def first(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Of two numbers the one for which `compare` holds, or the one that is none."""
    return lambda a, b: a if math.isnan(a) or compare(a, b) else b


MEANING = {
    "where": lambda c, a, b: a if c else b,
    "min": first(lambda a, b: a < b),
    "max": first(lambda a, b: a > b),
    "pow": guarded(lambda a, b: a**b if isinstance(a, int) else math.pow(a, b)),
    "cast": lambda a, dtype: {"f": float, "i": int, "b": bool}[np.dtype(dtype).kind](a),
    **{f.__name__: guarded(f) for f in (abs, round, math.floor, math.ceil, math.exp, math.log)},
    **{f.__name__: guarded(f) for f in (math.sqrt, math.erf, math.tanh)},
    "gelu": guarded(lambda x: 0.5 * x * (1 + math.erf(x * math.sqrt(0.5)))),
    **{name: guarded(getattr(math, name)) for name in TRIGONOMETRY},
}


def plain(array: Array) -> list[Any]:
    """The elements as Python numbers; truth values stay numpy's, which know `~`."""
    return list(array.reshape(-1)) if array.dtype.kind == "b" else array.reshape(-1).tolist()


@law(ELEMENTWISE)
def test_the_scalar_says_what_compute_does(op: Op, cases: Iterator[Case]) -> None:
    assert op.scalar is not None
    code = compile(op.scalar, op.name, "eval")
    for sample, names, rng in cases:
        args, attrs = sample.draw(rng, names), sample.attrs(names)
        for a in args:
            if a.dtype.kind == "f" and op.name != "cast":
                a[...] = np.where(rng.random(a.shape) < 0.05, np.nan, a)
        (want,) = op.run(*args, **attrs)
        columns = [plain(a) for a in np.broadcast_arrays(*args)]
        rows = [{f"x{i}": v for i, v in enumerate(row)} for row in zip(*columns, strict=True)]
        elements = [eval(code, dict(MEANING), {**attrs, **row}) for row in rows]
        got = np.array(elements).astype(want.dtype).reshape(want.shape)  # integers wrap around
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


# --- values --------------------------------------------------------------------------------------


@law(VALUED)
def test_the_value_rule_is_compute_over_dims(op: Op, cases: Iterator[Case]) -> None:
    followed = 0
    for sample, names, rng in cases:
        args, attrs = sample.draw(rng, names), sample.attrs(names)
        (type_,) = op.infer(*map(known, args), **attrs)
        if (value := type_.value) is not None:
            followed += 1
            (out,) = op.run(*args, **attrs)
            pairs = list(zip(value, out.reshape(-1).tolist(), strict=True))
            assert all(v is ANY or v == e for v, e in pairs)
            assert out.dtype != np.int64 or ANY not in value, "only narrow integers wrap around"
    assert followed, "no sample has a value"


# --- what a compiler may rely on -----------------------------------------------------------------


@law([op for op in TABLE if op.movement])
def test_what_moves_elements_makes_none(op: Op, cases: Iterator[Case]) -> None:
    for sample, names, rng in cases:
        x, *others = sample.draw(rng, names)
        x = np.arange(1, 1 + x.size).reshape(x.shape).astype(x.dtype)  # each is another one
        (out,) = op.run(x, *others, **sample.attrs(names))
        if op.movement is Movement.VIEW:
            assert out.tobytes() == x.tobytes()
        elif op.movement is Movement.WHOLE:
            assert set(out.flat) == set(x.flat)
        else:
            assert set(out.flat) <= set(x.flat)


def anything(array: Array, rng: np.random.Generator) -> Array:
    """Numbers of the same dtype and shape: extreme ones, those that are none, any others."""
    kind, shape = array.dtype.kind, array.shape
    if kind == "b":
        return rng.random(shape) < 0.5
    if kind == "f":
        edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            np.nan,
            np.inf,
            -np.inf,
            *np.finfo(array.dtype).max * EXTREMES,
        ]
    else:
        limits = np.iinfo(array.dtype)
        edges = [0, 1, limits.min, limits.max, *rng.integers(limits.min, limits.max, 3)]
    return rng.choice(np.array(edges, array.dtype), shape)


EXTREMES = np.array([1.0, -1.0, 1e-30])


@law([op for op in TABLE if op.total])
def test_what_is_total_takes_any_values(op: Op, cases: Iterator[Case]) -> None:
    assert not op.reads
    assert op.shape_from_values is None
    for sample, names, rng in cases:
        args = [anything(a, rng) for a in sample.draw(rng, names)]
        outs = op.run(*args, **sample.attrs(names))
        assert tuple(out.shape for out in outs) == op.run_time_shapes(*args, **sample.attrs(names))


def test_elementwise_ops_are_total() -> None:
    assert all(op.total for op in ELEMENTWISE)


@law([op for op in TABLE if op.work])
def test_the_work_is_how_many_products_are_summed(op: Op, cases: Iterator[Case]) -> None:
    """Of ones each product is 1: but for those with pads, which are zeros, the sum counts them."""
    assert op.work is not None
    for sample, names, rng in cases:
        args, attrs = [np.ones_like(a) for a in sample.draw(rng, names)], sample.attrs(names)
        attrs |= {"zero": 0} if "zero" in attrs else {}
        (out,) = op.run(*args, **attrs)
        work = op.work(out.shape, *(a.shape for a in args), **attrs)
        assert out.sum() == work if not any(attrs.get("pads", ())) else out.sum() <= work


@law([op for op in TABLE if "layout" in op.defaults])
def test_a_layout_says_where_the_channels_lie_and_nothing_else(
    op: Op, cases: Iterator[Case]
) -> None:
    asked = 0
    for sample, names, rng in cases:
        (x, *others), attrs = sample.draw(rng, names), sample.attrs(names)
        if attrs["layout"] == "NCHW" and x.ndim == 4:
            asked += 1
            (want,) = op.run(x, *others, **attrs)
            last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
            (got,) = op.run(last, *others, **{**attrs, "layout": "NHWC"})
            np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-4, atol=1e-5)
    assert asked


@law([op for op in TABLE if op.sizing])
def test_what_sizes_the_result_decides_nothing_else(op: Op, cases: Iterator[Case]) -> None:
    """Where such an attribute grows with a padded extent, what was there stays as it was."""
    asked: set[str] = set()
    for sample, names, rng in cases:
        dims = sample.symbols()
        growing = {k: mentioned(v) for k, v in sample.attrs(dims).items()}
        for name in sample.names:
            by = {k for k, inside in growing.items() if dims[name] in inside}
            rules = padding_rules(sample, name)
            if by and by <= op.sizing and UNSAFE not in rules.values():
                asked |= by
                check_padding(sample, rng, (names, {**names, name: names[name] + 2}), rules)
    assert asked == op.sizing


def mentioned(value: Any) -> frozenset[Symbol]:
    """The symbols in an attribute."""
    if isinstance(value, tuple):
        return frozenset().union(*map(mentioned, value))
    return symbols(value) if isinstance(value, int | Symbolic) else frozenset()


@law([op for op in TABLE if op.extents is not None])
def test_read_extents_tell_all_that_a_twin_is_asked(op: Op, cases: Iterator[Case]) -> None:
    assert op.static is not None
    assert op.extents is not None
    assert op.reads == {op.extents}
    for sample, names, rng in cases:
        args, attrs = sample.draw(rng, names), sample.attrs(names)
        types = list(map(known, args))
        told = types[op.extents]
        free = tuple(Symbol(f"v{i}") for i in range(args[op.extents].size))
        types[op.extents] = TensorType(told.dtype, told.shape, free)
        twin = op.static(*types, **attrs)
        assert twin is not None
        kept = [t for i, t in enumerate(types) if i != op.extents]
        assert all(ANY not in out.shape for out in twin[0].infer(*kept, **twin[1]))
        args[op.extents] = np.full_like(args[op.extents], -1)
        if free:
            with pytest.raises((BucketizeError, ValueError)):
                op.run_time_shapes(*args, **attrs)


@law([op for op in TABLE if op.room])
def test_the_twin_with_room_makes_the_same_rows_first(op: Op, cases: Iterator[Case]) -> None:
    assert op.room is not None
    for sample, names, rng in cases:
        args, attrs = sample.draw(rng, names), sample.attrs(names)
        (want,) = op.run(*args, **attrs)
        for types in (list(map(known, args)), [TensorType(a.dtype, a.shape) for a in args]):
            twin, more = op.room(*types, **attrs)
            rows, count = twin.run(*args, **twin.complete(more))
            np.testing.assert_array_equal(rows[: int(count)], want)
            (told, _) = twin.infer(*types, **twin.complete(more))
            assert told.shape == rows.shape


def test_only_what_is_told_a_seed_draws_numbers() -> None:
    drawn = [op for op in TABLE if "seed" in op.defaults]
    assert drawn == [ops.normal_like, ops.uniform_like]
    for op in drawn:
        x = np.zeros(9, np.float32)
        one, other = (op.run(x, **op.complete({"seed": s, "dtype": "float32"})) for s in (1, 2))
        assert not np.array_equal(one, other)


# --- dynamic and static --------------------------------------------------------------------------


def test_every_dynamic_op_has_a_static_twin() -> None:
    dynamic = {op for name, op in all_ops().items() if name.startswith("dyn.")}
    assert dynamic == {op for op in all_ops().values() if op.static}
    assert {op for op in all_ops().values() if op.reads} == dynamic - {ops.dyn_with_rank}


def settle(value: Any, names: dict[str, int]) -> Any:
    """An attribute with its dims evaluated."""
    if isinstance(value, tuple):
        return tuple(settle(v, names) for v in value)
    return evaluate(value, names) if isinstance(value, Symbolic) else value


@law(DYNAMIC)
def test_the_static_twin_does_the_same(op: Op, cases: Iterator[Case]) -> None:
    assert op.static is not None
    for sample, names, rng in cases:
        if not all(sample.args[i].given for i in op.reads):
            continue  # floats are not followed
        args = sample.draw(rng, names)
        wanted = op.run(*args, **sample.attrs(names))
        dims = Hiding(rng, names).names
        types = [
            TensorType(a.dtype, a.shape(dims), a.elements(dims) if a.given else None)
            for a in sample.args
        ]
        twin = op.static(*types, **sample.attrs(dims))
        assert twin is not None
        kept = [a for i, a in enumerate(args) if i not in op.reads]
        static = {k: settle(v, names) for k, v in twin[0].complete(twin[1]).items()}
        for got, want in zip(twin[0].run(*kept, **static), wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
