"""Random ONNX graphs, imported and compiled in every way, against the reference evaluator.

The evaluator of the onnx package says what a model means, node by node; where its code departs
from the text of the standard, the generator keeps away and says why. Where a result hangs on how
something was rounded (the logarithm of a difference that is 0 or a millionth, an infinity that is
as 0 has a sign) it is not compared: the evaluator tells by what it makes of everything moved by a
few units of its last place.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from agreement import agree
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import bucketize
from bucketize.call import bind_shapes
from bucketize.errors import DispatchError, PaddingError, ShapeError, TypeRelError
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import specialise
from bucketize.onnx import from_onnx
from bucketize.transform.simplify import simplify
from dispatchers import exact_dispatcher, log_dispatcher, uniform_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

Sizes = dict[str, int]
Arrays = dict[str, np.ndarray]
Results = list[np.ndarray] | None  # None, refused
Case = tuple[Arrays, Results, list[Any]]  # inputs, results, and those of what is rounded otherwise

FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTEGERS = ("int64", "int64", "int32", "int16", "int8")
DISPATCHERS = (log_dispatcher, uniform_dispatcher, exact_dispatcher)
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-4}
BOUNDS = {"N": (0, 6), "M": (0, 4)}
REFUSALS = (TypeRelError, ShapeError, ValueError, IndexError)  # the latter of the interpreter
STRICTER = (
    "a window of",
    "expected 0 <= k <= 0 along axis",
    "in topk: index 0 is out of range for extent 0",
)
"""Refusals of what the evaluator makes nothing of: less than a window, or than k of TopK."""
SHARE = 30  # of the graphs, in every run of the tests
MOST = 4096  # elements: beyond, a graph only grows


class Graph:
    """A model that grows node by node at sizes of its own; what the evaluator refuses is left out.

    A value is exact if no rounding was on the way to it: only then may a node decide by it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.choice((13, 17, 18, 21, 23))
        self.sizes: Sizes = {"N": self.rng.randint(1, 5), "M": self.rng.randint(1, 4)}
        self.wild = self.rng.random() < 0.4  # NaN, infinities, and numbers of many sizes
        self.steps = self.rng.choice((STEPS, CHAINS))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.dims: dict[str, list[int | str]] = {}
        self.values: Arrays = {}
        self.exact: set[str] = set()
        for i in range(self.rng.randint(1, 3)):
            dtype = self.rng.choice((*FLOATS, *INTEGERS, "bool")) if i else self.rng.choice(FLOATS)
            self.add_input(f"x{i}", dtype, self.rng.choice((1, 2, 2, 3, 3, 4)) if i == 0 else None)

    # Values.

    def add_input(self, name: str, dtype: str, rank: int | None) -> None:
        rank = self.rng.randrange(4) if rank is None else rank
        self.dims[name] = [self.rng.choice(("N", "N", "M", 1, 2, 3, 5)) for _ in range(rank)]
        shape = [self.sizes.get(d, d) if isinstance(d, str) else d for d in self.dims[name]]
        self.values[name] = self.draw(dtype, shape)
        self.exact.add(name)

    def draw(self, dtype: str, shape: Any, *, wild: bool = True) -> np.ndarray:
        """Quarters, exact in every dtype, some of them odd."""
        rng, kind, rate = self.numbers, np.dtype(dtype).kind, 0.1 * (wild and self.wild)
        drawn = np.asarray(rng.integers(-8, 9, shape))
        if kind == "b":
            return drawn > 0
        if kind == "i":
            odd = rng.random(shape) < rate
            return np.where(odd, drawn * 37, drawn).astype(dtype)
        large = 16 if dtype == "float16" else 1e4  # of halves even a square overflows
        odd = np.asarray(rng.choice([np.nan, np.inf, -np.inf, -0.0, large, 1e-4], shape))
        return np.where(rng.random(shape) < rate, odd, drawn / 4).astype(dtype)

    def constant(self, value: Any, dtype: str = "int64") -> str:
        array = np.asarray(value, dtype)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        self.values[name] = array
        self.exact.add(name)
        return name

    def pick(self, kinds: str = "f", rank: int = 0, *, exact: bool = False, most: int = 9) -> str:
        """A value of such dtypes and ranks; IndexError if there is none."""
        able = [
            n
            for n, a in self.values.items()
            if n[0] != "c" and a.dtype.kind in kinds and rank <= a.ndim <= most
        ]
        return self.rng.choice([n for n in able if n in self.exact or not exact])

    def like(self, name: str, *, exact: bool = False) -> str:
        """A value of the same dtype that may broadcast with it, or a constant."""
        array = self.values[name]
        able = [
            n
            for n, a in self.values.items()
            if a.dtype == array.dtype and (n in self.exact or not exact) and fits(a, array)
        ]
        if self.rng.random() < 0.3:
            shape = [self.rng.choice((1, d)) for d in array.shape[self.rng.randrange(4) :]]
            return self.constant(self.draw(array.dtype.name, shape), array.dtype.name)
        return self.rng.choice(able)

    def axis(self, name: str) -> int:
        rank = self.values[name].ndim
        return self.rng.randrange(-rank, rank)

    def axes(self, name: str, *, some: bool = True) -> list[int]:
        rank = self.values[name].ndim
        return sorted(self.rng.sample(range(rank), self.rng.randint(int(some), rank)))

    def static(self, name: str, axis: int) -> int | None:
        """An extent that does not change with the sizes; None if it does, or may."""
        dims = self.dims.get(name)
        if dims is None or not isinstance(extent := dims[axis], int):
            return None
        return extent

    # Nodes.

    def emit(
        self, op_type: str, *names: str, outputs: int = 1, exact: bool = True, **attrs: Any
    ) -> str:
        """Append a node, once the evaluator computes it; ValueError if it does not."""
        if not self.allows(op_type, names):
            raise ValueError(f"opset {self.opset} has no {op_type} of these dtypes")
        outs = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op_type, list(names), outs, **attrs)
        made = evaluated(self.model([node], names, outs), {n: self.values[n] for n in names if n})
        if made is None or not 0 < sum(a.size for a in made) <= MOST:
            raise ValueError(f"{op_type} cannot be computed")
        self.nodes.append(node)
        self.values.update(zip(outs, made, strict=True))
        if exact and self.exact.issuperset(n for n in names if n):
            self.exact.update(outs)
        return outs[0]

    def allows(self, op_type: str, names: Sequence[str]) -> bool:
        """Whether the standard has the operator for operands of these dtypes."""
        if not onnx.defs.has(op_type, self.opset):
            return False
        formal = onnx.defs.get_schema(op_type, self.opset).inputs
        for i, name in enumerate(names):
            kinds = formal[min(i, len(formal) - 1)].types
            if name and type_name(self.values[name].dtype) not in kinds:
                return False
        return True

    def model(self, nodes: Any, inputs: Any, outputs: Any) -> onnx.ModelProto:
        """The model of some nodes; their inputs from other nodes are of the sizes they have now."""
        given = [self.info(n, self.dims.get(n)) for n in dict.fromkeys(inputs) if n]
        made = [helper.make_empty_tensor_value_info(n) for n in outputs]
        graph = helper.make_graph(nodes, "g", given, made)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10
        )

    def info(self, name: str, dims: Any) -> onnx.ValueInfoProto:
        array = self.values[name]
        data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, data_type, array.shape if dims is None else dims)

    def step(self) -> None:
        with suppress(IndexError, ValueError):
            self.rng.choice(self.steps)(self)

    def whole(self) -> onnx.ModelProto:
        for _ in range(self.rng.randint(2, 8)):
            self.step()
        outs = (o for node in self.nodes for o in node.output)
        made = [o for o in outs if o in self.values] or [self.emit("Identity", "x0")]
        results = self.rng.sample(made, min(len(made), self.rng.randint(1, 3)))
        if made[-1] not in results:
            results.append(made[-1])
        needed, nodes = set(results), list[onnx.NodeProto]()
        for node in reversed(self.nodes):  # what is dead may be illegal
            if not needed.isdisjoint(node.output):
                needed.update(node.input)
                nodes.insert(0, node)
        model = self.model(nodes, self.dims, results)
        model.graph.initializer.extend(c for c in self.constants if c.name in needed)
        return model

    def cases(self, model: onnx.ModelProto) -> Iterator[Case]:
        """Sizes of its own and others, an extent of 0 and of 1 among them."""
        evaluator = evaluator_of(model)
        others = [rounded_otherwise(evaluator_of(model), self.exact, way) for way in (-1, 1)]
        pooled = any(n.op_type == "MaxPool" for n in model.graph.node)  # of pads alone it makes 0
        some = [
            {n: self.rng.randint(lo + pooled, hi) for n, (lo, hi) in BOUNDS.items()}
            for _ in range(3)
        ]
        again = [self.sizes] * (3 if any(n.op_type == "Loop" for n in model.graph.node) else 1)
        for sizes in (self.sizes, *some, {"N": 1, "M": 1}, *again):
            shapes = {n: [sizes.get(d, d) for d in dims] for n, dims in self.dims.items()}  # type: ignore[call-overload]
            inputs = {n: self.draw(self.values[n].dtype.name, s) for n, s in shapes.items()}
            want = evaluated(evaluator, inputs)
            yield inputs, want, [] if want is None else [evaluated(o, inputs) for o in others]


def type_name(dtype: np.dtype[Any]) -> str:
    """A tensor's type as the standard writes it."""
    return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype.name, dtype.name) })"


def fits(a: np.ndarray, b: np.ndarray) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a.shape[::-1], b.shape[::-1], strict=False))


class MatMul(OpRun):
    """The evaluator's `dot` takes one element for a scale, and leaves out 0 of infinities."""

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        return (np.matmul(a, b),)


def evaluator_of(model: onnx.ModelProto) -> ReferenceEvaluator:
    return ReferenceEvaluator(model, new_ops=[MatMul])


def rounded_otherwise(evaluator: ReferenceEvaluator, exact: set[str], way: int) -> Any:
    """The evaluator, whose results that are not exact are moved a little."""
    for node in evaluator.rt_nodes_:
        if not exact.issuperset(node.output):
            node.run = partial(moved, node.run, way)
    return evaluator


def moved(run: Callable[..., Any], way: int, *args: Any, **more: Any) -> Any:
    return tuple(nudged(a, way) if a.dtype.kind == "f" else a for a in run(*args, **more))


def nudged(array: np.ndarray, way: int) -> np.ndarray:
    """By four units in the last place of the largest: so much may have cancelled."""
    largest = np.abs(array[np.isfinite(array)]).max(initial=0)
    signs = np.random.default_rng(array.size).choice((-way, way), array.shape)
    return (array + signs * 4 * np.finfo(array.dtype).eps * largest).astype(array.dtype)


def evaluated(model: onnx.ModelProto | ReferenceEvaluator, inputs: Arrays) -> Results:
    """What the evaluator makes of a model, or None where it refuses."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            if isinstance(model, onnx.ModelProto):
                model = evaluator_of(model)
            return [np.asarray(a) for a in model.run(None, inputs)]
    except Exception:  # it checks little: whatever numpy raises is a refusal
        return None


# --- steps ---------------------------------------------------------------------------------------

Step = Callable[[Graph], Any]

EXACT = ("Abs", "Neg", "Relu", "Identity", "LeakyRelu", "ThresholdedRelu")
STEPPED = ("Ceil", "Floor", "Round", "IsNaN", "IsInf")
SMOOTH = (
    *("Celu", "Cos", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "Log", "Reciprocal", "Selu"),
    *("Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh", "Gelu", "Mish", "Swish"),
)


def unary(g: Graph) -> None:
    kinds = "f" if g.rng.random() < 0.7 else "fi"
    x = g.pick(kinds)
    g.emit(g.rng.choice(EXACT[:2] if g.values[x].dtype.kind == "i" else EXACT), x)


def stepped(g: Graph) -> None:
    x = g.pick("f", exact=True)
    g.emit(g.rng.choice(STEPPED), x)
    without_sign_of_zero(g, g.emit("Sign", x))


def without_sign_of_zero(g: Graph, name: str) -> str:
    """0 in place of -0, of what ONNX leaves open; the reciprocals would differ."""
    made = g.emit("Add", name, g.constant(0, g.values[name].dtype.name))
    del g.values[name]
    return made


def smooth(g: Graph) -> None:
    g.emit(g.rng.choice(SMOOTH), g.pick("f"), exact=False)


def arithmetic(g: Graph) -> None:
    x = g.pick("fi")
    whole = g.values[x].dtype.kind == "i"
    op_type = g.rng.choice(("Add", "Sub", "Mul", "Min", "Max", "Add", "Mul"))
    many = op_type in ("Min", "Max") and g.rng.random() < 0.3
    others = [g.like(x) for _ in range(1 + many)]
    g.emit(op_type, x, *others, exact=whole or op_type in ("Min", "Max"))


def division(g: Graph) -> None:
    """By numbers other than 0: of integers the quotient is not defined."""
    x = g.pick("fi", exact=True)
    dtype = g.values[x].dtype
    by = g.constant(g.rng.choice((-3, -2, 1, 2, 4)), dtype.name)
    if dtype.kind == "f":
        g.emit("Div", x, g.rng.choice((by, g.like(x))), exact=False)
        without_sign_of_zero(g, g.emit("Mod", x, by, fmod=1))
    else:
        g.emit("Div", x, by)
        g.emit("Mod", x, by, fmod=g.rng.choice((0, 1)))


def power(g: Graph) -> None:
    x = g.pick("f")
    g.emit("Pow", x, g.constant(g.rng.choice((0.5, 2, 3, -1)), "float32"), exact=False)


def compare(g: Graph) -> None:
    x = g.pick("fi", exact=True)
    op_type = g.rng.choice(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
    g.emit(op_type, x, g.like(x, exact=True))


def logic(g: Graph) -> None:
    x = g.pick("b")
    g.emit(g.rng.choice(("And", "Or", "Xor")), x, g.like(x))
    g.emit("Not", x)


def where(g: Graph) -> None:
    c, x = g.pick("b"), g.pick("fib")
    g.emit("Where", c, x, g.like(x))


def clip(g: Graph) -> None:
    x = g.pick("fi")
    dtype = g.values[x].dtype.name
    lo, hi = (g.rng.choice(("", g.constant(v, dtype))) for v in (-1, 1))
    g.emit("Clip", x, lo, hi)


def cast(g: Graph) -> None:
    """To integers only of what they hold: the rest is not defined."""
    x = g.pick("fib", exact=True)
    array = g.values[x]
    to = g.rng.choice((*FLOATS, *INTEGERS, "bool"))
    if array.dtype.kind == "f" and np.dtype(to).kind == "i":
        x = g.emit("Where", g.emit("IsNaN", x), g.constant(0, array.dtype.name), x)
        limits = (g.constant(v, array.dtype.name) for v in (-100, 100))
        x = g.emit("Clip", x, *limits)
    g.emit("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def matmul(g: Graph) -> None:
    x = g.pick("f", rank=1)
    shape, dtype = g.values[x].shape, g.values[x].dtype.name
    wide = g.rng.choice(([], [1], [5], [17]))
    if isinstance(g.static(x, -1), int):
        w = g.constant(g.draw(dtype, [shape[-1], *wide]), dtype)
        g.emit("MatMul", x, w, exact=False)
    if len(shape) == 2:
        turned = {"transA": g.rng.choice((0, 1)), "transB": g.rng.choice((0, 1))}
        more = [] if g.rng.random() < 0.5 else [g.constant(0.5, dtype)]
        g.emit("Gemm", x, x, *more, alpha=0.5, beta=2.0, **turned, exact=False)
    if len(shape) >= 2:
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        g.emit("MatMul", x, g.emit("Transpose", x, perm=perm), exact=False)


def window(g: Graph) -> None:
    """Pools of inputs without NaN alone: the evaluator drops it, it takes it for padding."""
    x = g.pick("f", rank=3, most=4)
    rank, dtype = g.values[x].ndim - 2, g.values[x].dtype.name
    pads = [g.rng.choice((0, 1)) for _ in range(2 * rank)]
    shape = {"kernel_shape": [g.rng.choice((1, 2)) for _ in range(rank)]}
    attrs = {"strides": [g.rng.choice((1, 2)) for _ in range(rank)], "pads": pads}
    if g.rng.random() < 0.5 and isinstance(channels := g.static(x, 1), int):
        w = g.draw(dtype, [3, channels, *shape["kernel_shape"]])
        g.emit("Conv", x, g.constant(w, dtype), exact=False, **attrs)
    elif max(pads) < min(shape["kernel_shape"]) and not g.wild and x in g.exact:
        if rank == 2:  # the evaluator loses windows of other ranks
            g.emit("MaxPool", x, **shape, **attrs)
        counted = g.rng.choice((0, 1))
        g.emit("AveragePool", x, **shape, **attrs, count_include_pad=counted, exact=False)


def transposed(g: Graph) -> None:
    """In one group: of several the evaluator refuses most."""
    x = g.pick("f", rank=3, most=5)
    rank, dtype, channels = g.values[x].ndim - 2, g.values[x].dtype.name, g.static(x, 1)
    if not isinstance(channels, int):
        return
    shape = [channels, g.rng.choice((1, 3)), *(g.rng.choice((1, 2, 3, 3)) for _ in range(rank))]
    w = g.constant(g.draw(dtype, shape, wild=g.rng.random() < 0.2), dtype)
    if g.rng.random() < 0.2:  # known to a run alone
        w = f"w{len(g.dims)}"
        g.dims[w], g.values[w] = list(shape), g.draw(dtype, shape)
    bias = [g.constant(g.draw(dtype, [shape[1]]), dtype)] if g.rng.random() < 0.5 else []
    strides = [g.rng.choice((1, 2, 2, 3)) for _ in range(rank)]
    attrs = {
        "strides": strides,
        "pads": [g.rng.choice((0, 0, 1)) for _ in range(2 * rank)],
        "dilations": [g.rng.choice((1, 1, 1, 2)) for _ in range(rank)],
        "output_padding": [g.rng.choice((0, s - 1)) for s in strides],
    }
    g.emit("ConvTranspose", x, w, *bias, exact=False, **attrs)


def global_pool(g: Graph) -> None:
    """Of images alone: the evaluator's axes are wrong for other ranks."""
    x = g.pick("f", rank=4, most=4)
    g.emit("GlobalMaxPool", x)
    g.emit("GlobalAveragePool", x, exact=False)


def reduce(g: Graph) -> None:
    x = g.pick("fi", rank=1)
    whole = g.values[x].dtype.kind == "i"
    narrow = whole and g.values[x].dtype != "int64"  # of these the evaluator makes sums of int64
    inexact = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceProd")
    sums = () if narrow else ("ReduceSum", "ReduceSumSquare", *inexact)
    op_type = g.rng.choice(("ReduceMax", "ReduceMin", *sums))
    if whole and op_type in inexact[1:4]:
        return
    keep, axes = g.rng.choice((0, 1)), g.axes(x)
    exact = whole or op_type in ("ReduceMax", "ReduceMin")
    if op_type == "ReduceSum" or g.opset >= 18:
        g.emit(op_type, x, g.constant(axes), keepdims=keep, exact=exact)
    else:
        g.emit(op_type, x, axes=axes, keepdims=keep, exact=exact)


def along(g: Graph) -> None:
    """LogSoftmax of small numbers: the evaluator takes the logarithm of what became 0."""
    x = g.pick("f", rank=1)
    g.emit("Softmax", x, axis=g.axis(x), exact=False)
    if not g.wild:
        g.emit("LogSoftmax", x, axis=g.axis(x), exact=False)


def extreme(g: Graph) -> None:
    x = g.pick("fi", rank=1, exact=True)
    keep = g.rng.choice((0, 1))
    g.emit(g.rng.choice(("ArgMax", "ArgMin")), x, axis=g.axis(x), keepdims=keep)


def running(g: Graph) -> None:
    x = g.pick("fi", rank=1)
    flags = {k: g.rng.choice((0, 1)) for k in ("exclusive", "reverse")}
    whole = g.values[x].dtype.kind == "i"
    g.emit("CumSum", x, g.constant(g.axis(x)), exact=whole, **flags)


def norm(g: Graph) -> None:
    """By finite numbers, which may be computed with beforehand.

    Batches from opset 14 on: before it, the evaluator trains.
    """
    x = g.pick("f", rank=2)
    dtype = g.values[x].dtype.name
    if g.opset >= 17 and isinstance(last := g.static(x, -1), int):
        scale, bias = (g.constant(g.draw(dtype, [last], wild=False), dtype) for _ in range(2))
        g.emit("LayerNormalization", x, scale, *g.rng.choice(((), (bias,))), exact=False)
    if g.opset >= 14 and isinstance(channels := g.static(x, 1), int):
        drawn = [g.draw(dtype, [channels], wild=False) for _ in range(4)]
        vectors = [g.constant(v, dtype) for v in (*drawn[:3], np.abs(drawn[3]))]
        g.emit("BatchNormalization", x, *vectors, exact=False)
        if g.values[x].ndim > 2:
            g.emit("InstanceNormalization", x, *vectors[:2], exact=False)


def move(g: Graph) -> None:
    x = g.pick("fib", rank=1)
    perm = list(range(g.values[x].ndim))
    g.rng.shuffle(perm)
    g.emit("Transpose", x, perm=perm)
    g.emit("Concat", x, g.rng.choice((x, g.like(x))), axis=g.axis(x))


def view(g: Graph) -> None:
    x = g.pick("fib", rank=1)
    shape = g.values[x].shape
    g.emit("Flatten", x, axis=g.rng.randint(0, len(shape)))
    g.emit("Unsqueeze", x, g.constant([g.rng.choice((0, -1))]))
    kept = [0] * len(shape)
    if len(shape) > 1:
        kept[g.rng.randrange(len(shape))] = -1
    g.emit("Reshape", x, g.constant(g.rng.choice(([-1], kept))))
    ones = [i for i, d in enumerate(shape) if d == 1 and g.static(x, i) == 1]
    g.emit("Squeeze", x, g.constant(ones))


def shapes(g: Graph) -> None:
    """Shape arithmetic, as exporters write it."""
    x = g.pick("fib", rank=1)
    told = g.emit("Shape", x)
    g.emit("Size", x)
    first = g.emit("Gather", told, g.constant([0]))
    g.emit("Reshape", x, g.emit("Concat", first, g.constant([-1]), axis=0))
    value = numpy_helper.from_array(np.array([2], g.rng.choice(("float32", "int64"))))
    g.emit("ConstantOfShape", told, value=value)
    count = g.emit("Squeeze", first, g.constant([0]))
    g.emit("Range", g.constant(0), count, g.constant(1))


def cut(g: Graph) -> None:
    x = g.pick("fib", rank=1)
    step = g.rng.choice((1, 1, 2, -1))
    ends = (g.rng.choice((0, 1, -2)), g.rng.choice((2**63 - 1, -1, 2)))
    begin, end = ends if step > 0 else (g.rng.choice((-1, 2)), g.rng.choice((-(2**63 - 1), 0)))
    g.emit("Slice", x, *(g.constant([v]) for v in (begin, end, g.axis(x), step)))


def split(g: Graph) -> None:
    x = g.pick("fib", rank=1)
    axis = g.axis(x)
    if isinstance(extent := g.static(x, axis), int) and extent > 1:
        g.emit("Split", x, g.constant([1, extent - 1]), axis=axis, outputs=2)


def pad(g: Graph) -> None:
    x = g.pick("f", rank=1)
    rank = g.values[x].ndim
    mode = g.rng.choice(("constant", "constant", "edge", "reflect"))
    pads = g.constant([g.rng.choice((0, 0, 1)) for _ in range(2 * rank)])
    g.emit("Pad", x, pads, mode=mode)


def spread(g: Graph) -> None:
    x = g.pick("fib", rank=1)
    g.emit("Tile", x, g.constant([g.rng.choice((1, 2)) for _ in g.values[x].shape]))
    g.emit("Expand", x, g.constant([2, *(1 for _ in g.values[x].shape)]))


def gather(g: Graph) -> None:
    x = g.pick("fib", rank=1)
    g.emit("Gather", x, g.constant(g.rng.choice((0, [0, -1], [[0]]))), axis=g.axis(x))


def triangle(g: Graph) -> None:
    g.emit("Trilu", g.pick("f", rank=2), upper=g.rng.choice((0, 1)))


def top(g: Graph) -> None:
    """Of a vector of different numbers: which of two equals comes first is not said."""
    x = g.pick("f", rank=1, exact=True)
    g.emit("TopK", x, g.constant([1]), axis=g.axis(x), outputs=2)


def select(g: Graph) -> None:
    g.emit("NonZero", g.pick("fib", rank=1, exact=True))


# --- several nodes -------------------------------------------------------------------------------


def elementwise(g: Graph, x: str) -> str:
    """A node more; of what was rounded only one that does not decide by it."""
    exact, dtype = x in g.exact, g.values[x].dtype.name
    kind = g.rng.choice(("unary", "unary", "binary", "clip", "where", *["step"] * exact))
    if kind == "unary":
        op_type = g.rng.choice((*EXACT, *SMOOTH))
        return g.emit(op_type, x, exact=op_type in EXACT)
    if kind == "step":
        op_type = g.rng.choice(("Ceil", "Floor", "Round", "Sign"))
        made = g.emit(op_type, x)
        return without_sign_of_zero(g, made) if op_type == "Sign" else made
    if kind == "binary":
        op_type = g.rng.choice(("Add", "Sub", "Mul", "Div", "Max", "Min"))
        sides = [x, g.like(x)]
        g.rng.shuffle(sides)
        return g.emit(op_type, *sides, exact=op_type in ("Max", "Min"))
    if kind == "clip":
        return g.emit("Clip", x, g.constant(-1, dtype), g.constant(2.5, dtype))
    return g.emit("Where", g.pick("b"), x, g.like(x))


def behind(g: Graph) -> None:
    """Elementwise nodes one behind the other, on what a product, a window or a row makes."""
    first = len(g.nodes)
    with suppress(IndexError, ValueError):
        g.rng.choice((matmul, matmul, window, transposed, along, norm, reduce))(g)
    outs = (o for n in g.nodes[first:] for o in n.output)
    made = [o for o in outs if o in g.values and g.values[o].dtype.kind == "f"]
    x = g.rng.choice(made)
    for _ in range(g.rng.randint(1, 4)):
        with suppress(IndexError, ValueError):
            x = elementwise(g, x)


def loop(g: Graph) -> None:
    """Rounds that carry scalars, and vectors of what they make: the evaluator has columns."""
    dtype = g.rng.choice(("float32", "float64", "float16", "int64", "int32"))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    able = [n for n, a in g.values.items() if not a.ndim and a.dtype == dtype]
    first = [g.rng.choice([*able, g.constant(g.draw(dtype, ()), dtype)]) for _ in "ab"]
    trips = g.constant(g.rng.randint(1, 4))
    if g.rng.random() < 0.5:  # as many as there are rows
        rows = g.emit("Shape", g.pick("fib", rank=1))
        trips = g.emit("Gather", rows, g.constant(0))
    ops = [g.rng.choice(("Add", "Sub", "Max", "Min")) for _ in "pq"]
    proceed = g.rng.choice((("Identity", "c"), ("Less", "i", "last")))
    nodes = [
        helper.make_node("Constant", [], ["last"], value_int=2),
        helper.make_node("Cast", ["i"], ["j"], to=code),
        helper.make_node(proceed[0], proceed[1:], ["c2"]),
        helper.make_node(ops[0], [*g.rng.sample(("a", "b", "j"), 2)], ["p"]),
        helper.make_node(ops[1], ["p", g.rng.choice(("a", "b", "j"))], ["q"]),
        helper.make_node("Neg", ["q"], ["r"]),
    ]
    outs = ["c2", *g.rng.sample(("p", "q", "r"), 2)]
    outs += [g.rng.choice(("p", "q", "r")) for _ in range(g.rng.randint(0, 2))]
    types = {"i": onnx.TensorProto.INT64, "c": onnx.TensorProto.BOOL, "c2": onnx.TensorProto.BOOL}
    scalars = [
        [helper.make_tensor_value_info(n, types.get(n, code), []) for n in names]
        for names in (("i", "c", "a", "b"), outs)
    ]
    body = helper.make_graph(nodes, "body", *scalars)
    made = g.emit("Loop", trips, g.constant(True, "bool"), *first, outputs=len(outs) - 1, body=body)
    for i in range(2, len(outs) - 1):
        row = made.replace("_0", f"_{i}")
        g.emit("Reshape", row, g.constant([-1]))
        del g.values[row]


STEPS: tuple[Step, ...] = (
    *(unary, stepped, smooth, smooth, arithmetic, arithmetic, division, power, compare, logic),
    *(where, where, clip, cast, cast, matmul, matmul, window, window, global_pool, reduce, reduce),
    *(along, extreme, running, norm, move, view, shapes, cut, split, pad, spread, gather),
    *(triangle, top, select),
)


CHAINS: tuple[Step, ...] = (
    *(behind, behind, behind, behind, transposed, transposed, loop, loop),
    *(view, move, cut, select, matmul),
)


# --- comparing -----------------------------------------------------------------------------------


def check(
    run: Callable[..., list[np.ndarray]],
    case: Case,
    tolerance: float,
    module: bucketize.Module | None = None,
) -> None:
    """What is dead in the simplified `module`, at these sizes, may be illegal and be served."""
    inputs, want, moved = case
    try:
        got = run(**inputs)
    except REFUSALS as e:
        if want is None or any(text in str(e) for text in STRICTER):
            return
        if "is legal: " not in str(e) or module is None:
            raise
        with pytest.raises(REFUSALS):  # a bucket of sizes that nobody serves
            evaluate_module(module, **inputs)
        return
    if want is None and module is not None:
        want = without_the_dead(module, inputs)
    if want is None:  # numpy refuses to index, or to take the greatest of, what has no elements
        assert any(0 in a.shape for a in (*inputs.values(), *got)), "served"
        return
    agree(got, want, tolerance, moved=moved)


def without_the_dead(module: bucketize.Module, inputs: Arrays) -> Results:
    """What the results need, where only extents of something are asked for as little as that."""
    main = simplify(module.main)
    try:
        sizes = bind_shapes(main.params, [a.shape for a in inputs.values()])
        args = [np.asarray(a) for a in inputs.values()]  # of rank 0 they are scalars
        return run_function(simplify(specialise(main, sizes)), args)
    except REFUSALS:
        return None


def runs(graph: Graph, module: bucketize.Module) -> Iterator[Callable[..., list[np.ndarray]]]:
    """The interpreter, an executable for all sizes, and dispatched ones."""
    yield lambda **inputs: evaluate_module(module, **inputs)
    yield bucketize.compile(module).run
    cut_up = graph.rng.choice(DISPATCHERS)
    for policy in ("exact", "pad"):
        with suppress(PaddingError, DispatchError):
            cloned = bucketize.dispatch(module, cut_up, policy=policy)
            yield bucketize.compile(cloned, lazy=True, threads=graph.rng.choice((1, 2))).run


def fuzz(seed: int) -> None:
    graph = Graph(seed)
    model = graph.whole()
    used = {d for dims in graph.dims.values() for d in dims}
    module = from_onnx(model, bounds={n: b for n, b in BOUNDS.items() if n in used})
    tolerance = max(TOLERANCE.get(a.dtype.name, 0) for a in graph.values.values())
    cases = list(graph.cases(model))
    for i, run in enumerate(runs(graph, module)):
        for case in cases:
            check(run, case, tolerance, module if i else None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.getoption("--graphs") or SHARE))


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_random_onnx_graphs(seed: int) -> None:
    fuzz(seed)
