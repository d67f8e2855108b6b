"""Random graphs over symbolic extents, compiled in every way, against the reference interpreter.

One executable serves many sizes in turn, legal and not, from several threads. What the reference
refuses must be refused, what it computes computed, and inputs left as they were.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from agreement import agree

import bucketize
from bucketize import ops
from bucketize.call import bind_shapes
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, DispatchError, PaddingError, ShapeError, TypeRelError
from bucketize.interpret import compute, evaluate_module
from bucketize.ir import IF, Atom, Binding, Builder, Const, Module, Var, infer
from bucketize.op import Op, all_ops
from bucketize.ops.sample import Sample, samples
from bucketize.transform.simplify import simplify
from bucketize.types import ANY, Dim, Symbol, evaluate, maximum, minimum, product, tensor
from bucketize.verify import verify
from dispatchers import exact_dispatcher, log_dispatcher, uniform_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

Sizes = dict[str, int]
Results = list[np.ndarray] | None  # None, illegal
Case = tuple[list[np.ndarray], Results, Results]  # inputs, results, and what of them is needed

DISPATCHERS = (log_dispatcher, uniform_dispatcher, exact_dispatcher)
SMOOTH = {"float16": 6e-2, "float32": 2e-3, "float64": 2e-3}
END = 2**63 - 1
SHARE = 120  # of the graphs, in every run of all tests


class Graph:
    """A module that grows step by step; steps whose types do not fit are left out.

    An atom is exact if no rounding was on the way to it: only then may a step decide by it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.n = Symbol("N", self.rng.choice((0, 1, 2)), self.rng.choice((None, 9)))
        self.m = Symbol("M", self.rng.choice((0, 1)), self.rng.choice((None, 6)))
        self.out = Builder()
        last = self.rng.choice((2, 3, 16))
        self.params = [Var("p0", tensor("float32", self.n, self.m, last))]
        for i in range(self.rng.randrange(4)):
            dtype = self.rng.choice(("float32", "float32", "float64", "float16", "int64", "bool"))
            dims = [self.dim() for _ in range(self.rng.choice((0, 1, 2, 2, 3)))]
            if dims and self.rng.random() < 0.1:
                dims[-1] = ANY
            self.params.append(Var(f"p{i + 1}", tensor(dtype, *dims)))
        self.pool: list[Atom] = list(self.params)
        self.exact: set[Atom] = set(self.pool)

    def dim(self) -> Dim:
        n, m = self.n, self.m
        few = [1, 1, 2, 4, n + 1, 2 * n, n // 2, n + m, maximum(n, 3), minimum(m, 4)]
        return self.rng.choice([n, n, m, *few])

    def pick(self, kinds: str = "f", rank: int = 0, *, exact: bool = False) -> Any:
        """An atom of such dtypes and at least this rank; IndexError if there is none."""
        able = [a for a in self.pool if a.type.dtype.kind in kinds and len(a.type.shape) >= rank]
        return self.rng.choice([a for a in able if a in self.exact or not exact])

    def mostly_exact(self, rank: int) -> Any:
        """Floats that any op may follow, if there are some."""
        with suppress(IndexError):
            return self.pick(rank=rank, exact=self.rng.random() < 0.7)
        return self.pick(rank=rank)

    def like(self, atom: Atom, *, exact: bool = False) -> Any:
        """An atom of the same dtype."""
        able = [a for a in self.pool if a.type.dtype == atom.type.dtype]
        return self.rng.choice([a for a in able if a in self.exact or not exact])

    def beside(self, atom: Atom) -> Any:
        """What an elementwise op may take beside it: the same, a number, or one of each column."""
        last = atom.type.shape[-1] if atom.type.shape else 1
        shape = self.rng.choice(((), (last,))) if isinstance(last, int) else ()
        drawn = np.random.default_rng(self.rng.randrange(99)).integers(-6, 7, shape) / 4
        return self.rng.choice((Const(drawn.astype(atom.type.dtype)), self.like(atom)))

    def emit(self, op: Op, *args: Atom, exact: bool = True, **attrs: Any) -> Any:
        made = self.out.emit_all(op, *args, **attrs)
        self.pool.extend(made)
        if exact and self.exact.issuperset(a for a in args if isinstance(a, Var)):
            self.exact.update(made)
        return made[0]

    def axis(self, atom: Atom) -> int:
        return self.rng.randrange(len(atom.type.shape))

    def dims(self, *dims: Dim) -> Var:
        """A tensor of dims."""
        made = self.out.emit(ops.from_dims, dims=dims)
        self.exact.add(made)
        return made

    def step(self) -> None:
        with suppress(BucketizeError, IndexError):
            self.rng.choice(STEPS)(self)

    def module(self) -> Module:
        for _ in range(self.rng.randint(2, 10)):
            self.step()
        results = [self.rng.choice(self.pool[-5:]) for _ in range(self.rng.randint(1, 4))]
        fn = self.out.function("main", self.params, results)
        return Module({"main": fn})

    def sizes(self) -> Iterator[Sizes]:
        """Some of everything, small and large in turn; the first come back."""
        some = [{s.name: self.size(s) for s in (self.n, self.m)} for _ in range(9)]
        yield from [*some, *some[:3]]

    def size(self, symbol: Symbol) -> int:
        top = 20 if symbol.hi is None else symbol.hi
        among = self.rng.randint(symbol.lo, top)
        return self.rng.choice((symbol.lo, min(symbol.lo + 1, top), top, among))

    def draw(self, sizes: Sizes) -> list[np.ndarray]:
        """Inputs, some of them not contiguous and some passed twice."""
        rng = np.random.default_rng(self.rng.randrange(2**32))
        drawn: list[np.ndarray] = []
        for p in self.params:
            options = (1, 3, sizes["N"])
            shape = [
                self.rng.choice(options) if d is ANY else evaluate(d, sizes) for d in p.type.shape
            ]
            array = np.asarray(rng.integers(-6, 7, shape) / 4).astype(p.type.dtype)
            if self.rng.random() < 0.2:
                array = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
            same = [a for a in drawn if (a.dtype, a.shape) == (array.dtype, array.shape)]
            drawn.append(self.rng.choice([array, *same]))
        return drawn


# --- steps ---------------------------------------------------------------------------------------

Step = Callable[[Graph], Any]


def unary(g: Graph) -> None:
    g.emit(g.rng.choice((ops.relu, ops.neg, ops.abs_)), g.pick())
    g.emit(g.rng.choice((ops.tanh, ops.sigmoid)), g.pick(), exact=False)


def binary(g: Graph) -> None:
    a = g.pick("fi")
    g.emit(g.rng.choice((ops.add, ops.sub, ops.mul)), a, g.like(a), exact=a.type.dtype.kind == "i")
    g.emit(g.rng.choice((ops.maximum_, ops.minimum_)), a, g.like(a))


def decide(g: Graph) -> None:
    a = g.pick("fi", exact=True)
    g.emit(g.rng.choice((ops.less, ops.equal)), a, g.like(a, exact=True))
    b = g.pick("fib")
    g.emit(ops.where, g.pick("b"), b, g.like(b))


def cast(g: Graph) -> None:
    g.emit(ops.cast, g.pick("fib", exact=True), dtype=g.rng.choice(("float32", "float16", "int64")))


def matmul(g: Graph) -> None:
    a = g.pick(rank=2)
    depth = a.type.shape[-1]
    if isinstance(depth, int):
        drawn = np.random.default_rng(0).standard_normal((depth, g.rng.choice((1, 5, 17))))
        g.emit(ops.matmul, a, Const(drawn.astype(a.type.dtype)), exact=False)
    axes = tuple(range(len(a.type.shape)))
    g.emit(ops.matmul, a, g.emit(ops.transpose, a, axes=(*axes[:-2], axes[-1], axes[-2])))
    g.emit(ops.matmul, a, g.like(a), exact=False)


def window(g: Graph) -> None:
    a = g.pick(rank=2)
    rank = len(a.type.shape)
    if rank > 4:
        return
    image = g.emit(ops.unsqueeze, a, axes=tuple(sorted(g.rng.sample(range(4), 4 - rank))))
    layout = g.rng.choice(("NCHW", "NHWC"))
    attrs = {"strides": (g.rng.choice((1, 2)), 1), "layout": layout}
    pads = g.rng.choice(((0, 0, 0, 0), (1, 0, 1, 1)))
    pool = g.rng.choice((ops.max_pool2d, ops.avg_pool2d))
    g.emit(pool, image, kernel=(3, 2), pads=pads, ceil_mode=g.rng.random() < 0.3, **attrs)
    g.exact.discard(g.pool[-1])
    channels = image.type.shape[1 if layout == "NCHW" else 3]
    if not isinstance(channels, int):
        return
    drawn = np.random.default_rng(1).standard_normal((6, channels, 2, 3)).astype(a.type.dtype)
    total = g.emit(ops.conv2d, image, Const(drawn), pads=pads, **attrs, exact=False)
    g.emit(ops.relu, total)


def reduce(g: Graph) -> None:
    a = g.pick("fi", rank=1)
    rank = len(a.type.shape)
    axes = tuple(sorted(g.rng.sample(range(rank), g.rng.randint(1, rank))))
    keep = g.rng.random() < 0.5
    g.emit(g.rng.choice((ops.reduce_max, ops.reduce_min)), a, axes=axes, keepdims=keep)
    g.emit(ops.reduce_sum, a, axes=axes, keepdims=keep, exact=a.type.dtype.kind == "i")


def along(g: Graph) -> None:
    a = g.pick(rank=1)
    g.emit(g.rng.choice((ops.softmax, ops.cumsum)), a, axis=g.axis(a), exact=False)
    a = g.pick("fi", rank=1, exact=True)
    g.emit(g.rng.choice((ops.argmax, ops.argmin)), a, axis=g.axis(a))
    k = g.rng.choice((1, 2, g.n, g.n // 2, g.n - 1))
    g.emit(ops.topk, a, k=k, axis=g.axis(a), largest=g.rng.random() < 0.5)


def norm(g: Graph) -> None:
    a = g.pick(rank=1)
    if a.type.dtype != np.float16:
        last = a.type.shape[-1]
        scale = Const(np.linspace(1, 2, last if isinstance(last, int) else 1).astype(a.type.dtype))
        g.emit(ops.layer_norm, a, scale, scale, axis=g.axis(a), epsilon=0.5, exact=False)


def view(g: Graph) -> None:
    a = g.pick("fib", rank=1)
    shape = a.type.shape
    if ANY not in shape:
        merged = (shape[0] * shape[1], *shape[2:]) if len(shape) > 1 else (1, *shape)
        new = g.rng.choice((merged, (product(shape),), (*shape, 1), (g.n, product(shape) // 2)))
        g.emit(ops.reshape, a, newshape=new)
        g.emit(ops.dyn_reshape, a, g.dims(-1, *shape[1:]))


def move(g: Graph) -> None:
    a = g.pick("fib", rank=1)
    axes = list(range(len(a.type.shape)))
    g.rng.shuffle(axes)
    g.emit(ops.transpose, a, axes=tuple(axes))
    g.emit(ops.concat, a, g.rng.choice((a, g.like(a))), axis=g.axis(a))


def cut(g: Graph) -> None:
    a = g.pick("fib", rank=1)
    begin, end = g.rng.choice((0, 1, -2, g.n // 2)), g.rng.choice((END, -1, 2, g.n, g.n + 1))
    if g.rng.random() < 0.3:
        operands = [g.dims(d) for d in (begin, end, g.rng.choice((1, 2)), g.axis(a))]
        g.emit(ops.dyn_strided_slice, a, *operands)
    elif g.rng.random() < 0.3:
        backwards = {"begin": (-1,), "end": (-END,), "strides": (-1,)}
        g.emit(ops.strided_slice, a, axes=(g.axis(a),), **backwards)
    else:
        step = g.rng.choice((1, 1, 2))
        forwards = {"begin": (begin,), "end": (end,), "strides": (step,)}
        g.emit(ops.strided_slice, a, axes=(g.axis(a),), **forwards)


def pad(g: Graph) -> None:
    a = g.pick("fi", rank=1)
    mode = g.rng.choice(("constant", "constant", "edge", "reflect"))
    some = (0, 0, 1, g.n, -1) if mode == "constant" else (0, 1, 2)
    pads = tuple((g.rng.choice(some), g.rng.choice(some)) for _ in a.type.shape)
    g.emit(ops.pad, a, pads=pads, mode=mode)


def gather(g: Graph) -> None:
    a = g.pick("fib", rank=1)
    numbers = g.out.emit(ops.arange, stop=g.rng.choice((g.n, g.m, 2)))
    last = Const(np.array([0, -1]))
    g.exact.update((numbers, last))
    g.emit(ops.gather, a, g.rng.choice((numbers, last)), axis=g.axis(a))


def spread(g: Graph) -> None:
    a = g.pick("fib", rank=1)
    shape = tuple(g.rng.choice((1, 5, g.dim(), 1 if d is ANY else d)) for d in a.type.shape)
    if g.rng.random() < 0.3:
        g.emit(ops.dyn_broadcast_to, a, g.dims(*shape))
        return
    g.emit(ops.broadcast_to, a, shape=shape)
    g.emit(ops.tile, a, repeats=tuple(g.rng.choice((1, 2, g.m)) for _ in a.type.shape))


def make(g: Graph) -> None:
    g.emit(ops.full, shape=(g.dim(), g.dim()), value=2, dtype=g.rng.choice(("float32", "int64")))
    g.emit(ops.arange, start=g.rng.choice((0, g.n)), stop=2 * g.n + 1, step=2, dtype="float32")
    g.emit(ops.shape_of, g.pick("fib"))


def by_values(g: Graph) -> None:
    g.emit(ops.nonzero, g.pick("fib", rank=1, exact=True))


def branch(g: Graph) -> None:
    """An `if` on a size, or on values."""
    a = g.pick(rank=1, exact=True)
    if g.rng.random() < 0.6:
        condition = g.out.emit(ops.dim_less, dim=g.rng.choice((g.n, g.m, g.n + 1)), than=3)
    else:
        top = g.out.emit(ops.reduce_max, a, axes=tuple(range(len(a.type.shape))))
        condition = g.out.emit(ops.greater, top, Const(np.asarray(1, a.type.dtype)))
    out, pool = g.out, g.pool
    ends, blocks = [], []
    for _ in range(2):
        g.out, g.pool = Builder(), list(pool)
        g.step()
        ends.append([*g.pool[-3:], a])
        blocks.append(g.out)
    g.out, g.pool = out, pool
    then = g.rng.choice(ends[0])
    fits = [e for e in (*ends[1], then) if e in (*pool, *ends[1])]
    orelse = g.rng.choice([e for e in fits if e.type.dtype == then.type.dtype])
    halves = [b.function("", (), [r]) for b, r in zip(blocks, (then, orelse), strict=True)]
    exact = g.exact.issuperset((then, orelse))
    g.emit(IF, condition, then=halves[0], orelse=halves[1], exact=exact)


# --- elementwise ops behind others ---------------------------------------------------------------


def floats_or_bits(sample: Sample) -> bool:
    """Whether a sample is of floats, beside bits maybe."""
    kinds = {a.dtype.kind for a in sample.args}
    return "f" in kinds and kinds <= {"f", "b"}


GENTLE = (
    *(ops.relu, ops.neg, ops.abs_, ops.tanh, ops.sigmoid, ops.erf, ops.silu, ops.gelu, ops.sin),
    *(ops.gelu_tanh, ops.softplus, ops.hard_sigmoid, ops.hard_swish, ops.leaky_relu, ops.clip),
    *(ops.cos, ops.atan, ops.asinh, ops.add, ops.sub, ops.mul, ops.minimum_, ops.maximum_),
)
"""What makes of numbers that differ by little others that do: more may follow what was rounded."""
KEEPING = (
    *(ops.relu, ops.neg, ops.abs_, ops.sign, ops.floor, ops.ceil, ops.round_, ops.clip, ops.where),
    *(ops.minimum_, ops.maximum_, ops.equal, ops.less, ops.isnan),
)
"""What rounds nothing."""
SAMPLES = {
    op: [s for s in samples(op) if floats_or_bits(s)] for op in all_ops().values() if op.scalar
}
EVERY = tuple(op for op, some in SAMPLES.items() if some)


def elementwise(g: Graph, x: Atom) -> Any:
    """Any op of this kind, wherever the value may be among its arguments."""
    op = g.rng.choice(EVERY if x in g.exact else GENTLE)
    sample = g.rng.choice(SAMPLES[op])
    args: list[Atom] = [g.pick("b") if a.dtype.kind == "b" else g.beside(x) for a in sample.args]
    able = [i for i, a in enumerate(sample.args) if a.dtype.kind == x.type.dtype.kind]
    args[g.rng.choice(able)] = x
    return g.emit(op, *args, exact=op in KEEPING, **sample.attrs({}))


def behind(g: Graph) -> None:
    """Elementwise ops one behind the other, on what a product, a window or a row makes."""
    x = g.rng.choice((multiplied, convolved, convolved, spread_out, of_rows))(g)
    for _ in range(g.rng.randint(1, 3)):
        with suppress(BucketizeError, IndexError):
            x = elementwise(g, x)


def weights(g: Graph, a: Atom, *shape: int) -> Const:
    """Halves: few products of quarters by these are exact, and so is their sum."""
    drawn = np.random.default_rng(g.rng.randrange(99)).integers(-2, 3, shape) / 2
    return Const(drawn.astype(a.type.dtype))


def multiplied(g: Graph) -> Any:
    a = g.mostly_exact(1)
    depth = a.type.shape[-1]
    if not isinstance(depth, int):
        return g.emit(ops.matmul, a, g.like(a), exact=False)
    return g.emit(ops.matmul, a, weights(g, a, depth, g.rng.choice((1, 5, 17, 33))))


def image_of(g: Graph) -> Any:
    """[N, C, H, W] of few channels."""
    a = g.mostly_exact(2)
    rank = len(a.type.shape)
    last = a.type.shape[-1]
    if rank > 4 or not isinstance(last, int):
        raise IndexError("no image")
    a = g.emit(ops.unsqueeze, a, axes=tuple(range(4 - rank)))
    return g.emit(ops.transpose, a, axes=(0, 3, 1, 2))


def convolved(g: Graph) -> Any:
    """By several channels, or by each its own."""
    image = image_of(g)
    channels = image.type.shape[1]
    groups = g.rng.choice((1, channels))
    each = channels // groups
    outputs = groups if groups > 1 else g.rng.choice((3, 17))
    w = weights(g, image, outputs, each, g.rng.choice((1, 2, 3)), g.rng.choice((1, 3)))
    attrs = {"strides": (g.rng.choice((1, 2)), 1), "pads": g.rng.choice(((0,) * 4, (1, 1, 1, 1)))}
    return g.emit(ops.conv2d, image, w, groups=groups, precision="exact", **attrs)


def spread_out(g: Graph) -> Any:
    """By a transposed convolution."""
    image = image_of(g)
    channels = image.type.shape[1]
    groups = g.rng.choice((1, 1, channels))
    window = [g.rng.choice((1, 2, 3, 5)) for _ in "hw"]
    attrs = {
        "strides": (g.rng.choice((1, 2, 3)), g.rng.choice((1, 2, 3))),
        "pads": tuple(g.rng.choice((0, 0, 1)) for _ in range(4)),
        "dilations": (1, g.rng.choice((1, 1, 2))),
        "output_padding": (0, g.rng.choice((0, 1))),
    }
    w = weights(g, image, channels, g.rng.choice((1, 4)), *window)
    return g.emit(ops.conv_transpose, image, w, groups=groups, precision="exact", **attrs)


def of_rows(g: Graph) -> Any:
    a = g.mostly_exact(1)
    last = len(a.type.shape) - 1
    if g.rng.random() < 0.4:
        return g.emit(g.rng.choice((ops.softmax, ops.log_softmax)), a, axis=last, exact=False)
    op = g.rng.choice((ops.reduce_max, ops.reduce_min, ops.reduce_sum, ops.reduce_mean))
    number = g.emit(op, a, axes=(last,), keepdims=True, exact=op is not ops.reduce_mean)
    return g.emit(ops.sub, a, number) if g.rng.random() < 0.7 else number


STEPS: tuple[Step, ...] = (
    *(behind, behind, behind, behind),
    *(unary, binary, binary, decide, cast, matmul, window, reduce, along, norm, view, view),
    *(move, cut, pad, gather, spread, make, by_values, branch),
)


# --- comparing -----------------------------------------------------------------------------------


def reference(module: Module, inputs: list[np.ndarray]) -> Results:
    """The results, or None where numpy or a rule refuses."""
    try:
        return evaluate_module(module, *inputs)
    except (BucketizeError, ValueError, IndexError, ZeroDivisionError):
        return None


class Needed:
    """The reference, but of what the results need at these sizes alone, be it only a shape."""

    def __init__(self, module: Module, inputs: list[np.ndarray]) -> None:
        main = module.main
        self.sizes = bind_shapes(main.params, [a.shape for a in inputs])
        self.known: dict[Atom, np.ndarray] = dict(zip(main.params, inputs, strict=True))
        self.makers: dict[Atom, Binding] = {out: b for b in main.body for out in b.outs}

    def value(self, atom: Atom) -> np.ndarray:
        if isinstance(atom, Const):
            return atom.value
        if atom not in self.known:
            b = self.makers[atom]
            self.known.update(zip(b.outs, self.made(b), strict=True))
        return self.known[atom]

    def shaped(self, atom: Atom) -> np.ndarray:
        """Its value, or another one of its shape."""
        if isinstance(atom, Const) or atom in self.known or self.makers[atom].op is IF:
            return self.value(atom)
        b = self.makers[atom]
        types = [tensor(a.type.dtype.name, *self.shaped(a).shape) for a in b.args]
        type_ = infer(b.op, types, b.attrs)[b.outs.index(atom)]
        return np.empty(type_.shape) if type_.is_static else self.value(atom)

    def made(self, b: Binding) -> list[np.ndarray]:
        if b.op is ops.shape_of:
            return compute(b, list(map(self.shaped, b.args)), self.sizes)
        operands = [self.value(a) for a in b.args]
        if b.op is not IF:
            return compute(b, operands, self.sizes)
        block = b.attrs["then" if operands[0] else "orelse"]
        self.makers.update({out: inner for inner in block.body for out in inner.outs})
        return [self.value(r) for r in block.results]


def needed(module: Module, inputs: list[np.ndarray]) -> Results:
    """What must come of inputs that the reference refuses; None if they may be refused alone."""
    try:
        reading = Needed(module, inputs)
        return [reading.value(r) for r in module.main.results]
    except (BucketizeError, ValueError, IndexError, ZeroDivisionError):
        return None


def cases_of(graph: Graph, module: Module) -> list[Case]:
    cases = []
    for sizes in graph.sizes():
        with suppress(ValueError):  # an extent of an input below 0
            inputs = graph.draw(sizes)
            want = reference(module, inputs)
            cases.append((inputs, want, needed(module, inputs) if want is None else want))
    return cases


def check(run: Callable[..., list[np.ndarray]], case: Case, tolerance: float) -> None:
    """What is illegal may be found dead, and served: `needed` says what must come of it then."""
    inputs, want, wanted = case
    before = [a.copy() for a in inputs]
    try:
        got = run(*inputs)
    except (TypeRelError, ShapeError):
        assert want is None or any(0 in a.shape for a in inputs), "refused"  # `?` is 1 at least
        return
    if wanted is None:  # numpy refuses an index where there is nothing to take, too
        assert any(0 in a.shape for a in (*inputs, *got)), "served"
    else:
        overflow = 1e3 if tolerance >= 1e-2 else math.inf  # halves do, here or there
        agree(got, wanted, tolerance, overflow)
    for i, result in enumerate(got):
        assert not any(np.shares_memory(result, o) for o in (*inputs, *got[:i]))
    for a, b in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(a, b)


def others(graph: Graph, module: Module) -> Iterator[bucketize.Executable]:
    """On two threads, and dispatched."""
    yield bucketize.compile(module, threads=2)
    cut_up = graph.rng.choice(DISPATCHERS)
    for policy in ("exact", "pad"):
        with suppress(PaddingError, DispatchError):  # some need bounds
            cloned = dispatch(module, lambda s: cut_up({"p0": s["p0"]}), policy=policy)
            yield bucketize.compile(cloned, lazy=True, threads=graph.rng.choice((1, 2)))


def fuzz(seed: int) -> None:
    graph = Graph(seed)
    grown = graph.module()
    try:
        module = verify(grown.mapped(simplify))  # what is dead may be illegal
        first = bucketize.compile(module)
    except TypeRelError:  # early, for what no input could run
        for inputs, want, _ in cases_of(graph, grown):
            assert want is None or any(0 in a.shape for a in inputs), "refused"
        return
    dtypes = {o.type.dtype.name for b in module.main.body for o in b.outs}
    dtypes |= {p.type.dtype.name for p in graph.params}
    tolerance = max(SMOOTH.get(d, 0) for d in dtypes)
    cases = cases_of(graph, module)
    for i, exe in enumerate(itertools.chain([first], others(graph, module))):
        for case in cases:
            check(exe.run, case, tolerance)
        if i == 1:
            in_threads(exe, cases, tolerance)


def in_threads(exe: bucketize.Executable, cases: list[Case], tolerance: float) -> None:
    failed: list[BaseException] = []

    def work(mine: list[Case]) -> None:
        try:
            for case in mine:
                check(exe.run, case, tolerance)
        except BaseException as e:  # raised again by the thread that waits
            failed.append(e)

    threads = [threading.Thread(target=work, args=(cases[i::2] + cases[::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("seed", range(metafunc.config.getoption("--graphs") or SHARE))


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_random_graphs(seed: int) -> None:
    fuzz(seed)
