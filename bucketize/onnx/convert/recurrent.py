"""Converters of recurrent layers: what all steps share is one product, a loop does the rest.

Steps see [batch, hidden]; the gates of a layer lie beside each other in one product's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bucketize.ir import Atom, Builder, Const, Function, Var
from bucketize.onnx.convert.control import TRUE, extent_of, from_the_back, reverse
from bucketize.onnx.convert.shape import iota
from bucketize.onnx.node import Node, Unsupported, Untold, converts, cut, fitted
from bucketize.op import Op
from bucketize.ops import concat, gather, matmul, reshape, transpose, unsqueeze
from bucketize.ops.dyn.shape import dyn_full
from bucketize.ops.elementwise import activation as a
from bucketize.ops.elementwise import arithmetic as e
from bucketize.types import Dim

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
Activation: TypeAlias = Callable[["Emitter", Atom], Atom]
Step: TypeAlias = Callable[["Emitter", Atom, Sequence[Atom]], Sequence[Atom]]
"""From a step's share of the product over all steps, and the states, to the new states."""


@dataclass(frozen=True)
class Emitter:
    """Emits arithmetic of atoms and numbers."""

    out: Builder
    dtype: np.dtype[np.generic]

    def __call__(self, op: Op, *args: Atom | float, **attrs: float) -> Atom:
        """Bind `op(*args, **attrs)`."""
        return self.out.emit(op, *map(self.atom, args), **attrs)

    def atom(self, x: Atom | float) -> Atom:
        """A number as a constant."""
        return x if isinstance(x, Var | Const) else Const(np.asarray(x, self.dtype))

    def columns(self, x: Atom, begin: int, end: int) -> Atom:
        """A part of the last axis."""
        return cut(self.out, x, len(x.type.shape) - 1, begin, end)


# --- activations ---------------------------------------------------------------------------------


def _elu(m: Emitter, x: Atom, alpha: float) -> Atom:
    return m(e.where, m(e.less, x, 0), m(e.mul, alpha, m(e.sub, m(e.exp, x), 1)), x)


ACTIVATIONS: Mapping[str, tuple[Callable[..., Atom], tuple[float, ...]]] = {
    "affine": (lambda m, x, alpha, beta: m(e.add, m(e.mul, alpha, x), beta), (1.0, 0.0)),
    "elu": (_elu, (1.0,)),
    "hardsigmoid": (
        lambda m, x, alpha, beta: m(a.hard_sigmoid, x, alpha=alpha, beta=beta),
        (0.2, 0.5),
    ),
    "leakyrelu": (lambda m, x, alpha: m(a.leaky_relu, x, alpha=alpha), (0.01,)),
    "relu": (lambda m, x: m(a.relu, x), ()),
    "scaledtanh": (lambda m, x, a, b: m(e.mul, a, m(e.tanh, m(e.mul, b, x))), (1.0, 1.0)),
    "sigmoid": (lambda m, x: m(a.sigmoid, x), ()),
    "softplus": (lambda m, x: m(a.softplus, x), ()),
    "softsign": (lambda m, x: m(e.div, x, m(e.add, 1, m(e.abs_, x))), ()),
    "tanh": (lambda m, x: m(e.tanh, x), ()),
    "thresholdedrelu": (lambda m, x, alpha: m(e.where, m(e.greater, x, alpha), x, 0), (1.0,)),
}
"""By the name in small letters: what emits it, and the defaults of its alpha and beta."""


GATING = 2  # of a layer's activations are those of gates, which a clip is for


def _activations(n: Node, usual: Sequence[str], directions: int) -> list[list[Activation]]:
    """The activations of each direction; those with parameters take theirs in order."""
    names = n.attr("activations", tuple(usual) * directions)
    if len(names) != len(usual) * directions:
        raise Unsupported(f"{len(names)} activations, expected {len(usual) * directions}")
    alphas, betas = iter(n.attr("activation_alpha", ())), iter(n.attr("activation_beta", ()))
    clip = n.attr("clip")
    clips = [clip if i % len(usual) < GATING else None for i in range(len(names))]
    functions = [_activation(*named, alphas, betas) for named in zip(names, clips, strict=True)]
    return [functions[i : i + len(usual)] for i in range(0, len(functions), len(usual))]


def _activation(
    name: str, clip: float | None, alphas: Iterator[float], betas: Iterator[float]
) -> Activation:
    if name.lower() not in ACTIVATIONS:
        raise Unsupported(f"the activation {name}; known: {', '.join(ACTIVATIONS)}")
    emit, defaults = ACTIVATIONS[name.lower()]
    given = [next(values, d) for values, d in zip((alphas, betas), defaults, strict=False)]

    def apply(m: Emitter, x: Atom) -> Atom:
        if clip is not None:
            x = m(a.clip, x, lo=-clip, hi=clip)
        return emit(m, x, *given)

    return apply


# --- layers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Weights:
    """Weights of one direction: [inputs, gates], [hidden, gates], [gates] twice."""

    w: Atom
    r: Atom
    wb: Atom | None
    rb: Atom | None
    peephole: Atom | None


@dataclass
class _Layer:
    """A recurrent node: X as [time, batch, inputs], and what steps need."""

    n: Node
    gates: int
    states: int

    def __post_init__(self) -> None:
        n = self.n
        self.batch_first = bool(n.attr("layout", 0))
        self.backward = DIRECTIONS[n.choice("direction", *DIRECTIONS)]
        for i, name in enumerate("XWR"):
            if len(n[i].type.shape) != 3:
                raise Unsupported(f"{name} is {n[i].type}, expected rank 3")
        self.x = self._swapped(n[0])
        hidden = n.attr("hidden_size", n[2].type.shape[-1])
        if not isinstance(hidden, int):
            raise Untold("hidden_size is not known")
        self.hidden = hidden
        lengths = n.optional(4)
        self.lengths = lengths and self._checked(fitted(n, lengths, 0, self.x, 1))

    def emitter(self, out: Builder) -> Emitter:
        return Emitter(out, self.x.type.dtype)

    def _checked(self, lengths: Atom) -> Atom:
        """Lengths of which none is below 0 or above all steps: a run looks each of them up."""
        n, steps = self.n, extent_of(self.n.builder, self.x, 0)
        beyond = n.emit(e.add, steps, Const(np.array(1)))
        lengths = n.emit(e.cast, lengths, dtype="int64")
        none = n.emit(e.less, lengths, Const(np.array(0)))
        return n.emit(gather, iota(n, beyond), n.emit(e.where, none, beyond, lengths), axis=0)

    def _swapped(self, x: Atom) -> Atom:
        axes = (1, 0, *range(2, len(x.type.shape)))
        return self.n.emit(transpose, x, axes=axes) if self.batch_first else x

    def of(self, x: Atom, direction: int, *shape: Dim) -> Atom:
        """The part of a direction, of this shape: what types do not tell, a run checks."""
        whole = (len(self.backward), *shape)
        fitted = x if x.type.shape == whole else self.n.emit(reshape, x, newshape=whole)
        return self.n.emit(gather, fitted, Const(np.array(direction)), axis=0)

    def weights(self, d: int, peephole: int | None = None) -> _Weights:
        """The weights of a direction."""
        n, m = self.n, self.emitter(self.n.builder)
        gates, size = self.gates * self.hidden, self.hidden
        rows = n[1].type.shape[-1], size
        w, r = (
            n.emit(transpose, self.of(n[i], d, gates, row), axes=(1, 0))
            for i, row in zip((1, 2), rows, strict=True)
        )
        given = n.optional(3)
        bias = None if given is None else self.of(given, d, 2 * gates)
        wb, rb = (bias and m.columns(bias, i, i + gates) for i in (0, gates))
        peeks = None if peephole is None else n.optional(peephole)
        return _Weights(w, r, wb, rb, None if peeks is None else self.of(peeks, d, 3 * size))

    def begin(self, d: int) -> list[Atom]:
        """The states before the first step: [batch, hidden] each."""
        given = [self.n.optional(5 + i) for i in range(self.states)]
        shape = self.x.type.shape[1], self.hidden
        return [self._zeros() if g is None else self.of(self._swapped(g), d, *shape) for g in given]

    def _zeros(self) -> Atom:
        n = self.n
        batch = n.emit(reshape, extent_of(n.builder, self.x, 1), newshape=(1,))
        shape = n.emit(concat, batch, Const(np.array([self.hidden])), axis=0)
        return n.emit_dynamic(dyn_full, shape, value=0.0, dtype=self.x.type.dtype.name)

    def shared(self, w: Atom, bias: Atom | None) -> Atom:
        """The product of the inputs of all steps: [time, batch, gates]."""
        product = self.n.emit(matmul, self.x, w)
        return product if bias is None else self.n.emit(e.add, product, bias)

    def run(
        self,
        usual: Sequence[str],
        way: Callable[[_Weights, list[Activation]], tuple[Atom | None, Step]],
        peephole: int | None = None,
    ) -> tuple[Atom, ...]:
        """The results, by the bias of the shared product and the step that each direction has.

        Loops stand side by side: what is before them is one run of kernels, and so is the rest.
        """
        ways = []
        for d, functions in enumerate(_activations(self.n, usual, len(self.backward))):
            own = self.weights(d, peephole)
            bias, step = way(own, functions)
            ways.append((self.shared(own.w, bias), step))
        begins, reached = [self.begin(d) for d in range(len(ways))], self._reached()
        pairs = enumerate(zip(ways, begins, strict=True))
        loops = [self._loop(d, *each, begin, reached) for d, (each, begin) in pairs]
        return self._results([self._behind(d, results, reached) for d, results in enumerate(loops)])

    def _reached(self) -> Atom | None:
        """Which sequences reach which steps, [time, batch, 1]; None if all reach all."""
        if self.lengths is None:
            return None
        n = self.n
        places = iota(n, extent_of(n.builder, self.x, 0))
        places = n.emit(e.cast, places, dtype=self.lengths.type.dtype.name)
        reached = n.emit(e.less, n.emit(unsqueeze, places, axes=(1,)), self.lengths)
        return n.emit(unsqueeze, reached, axes=(2,))

    def _loop(
        self, d: int, shared: Atom, step: Step, begin: Sequence[Atom], reached: Atom | None
    ) -> Sequence[Atom]:
        """What a direction carries last, and its rows; behind its end a sequence keeps its state.

        Only states are kept: what else a row is asked to be, all rows become at once.
        """
        n, back = self.n, self.backward[d]
        trips = extent_of(n.builder, self.x, 0)

        def make(params: tuple[Var, ...]) -> Function:
            m = self.emitter(Builder(origin=n.builder.origin))
            i, *old = params
            at = from_the_back(m.out, i, trips) if back else i
            new = step(m, m.out.emit(gather, shared, at, axis=0), old)
            if reached is not None:
                goes_on = m.out.emit(gather, reached, at, axis=0)
                new = [m(e.where, goes_on, x, y) for x, y in zip(new, old, strict=True)]
            return m.out.function("body", params, (TRUE, *new, new[0]))

        return n.builder.loop(trips, TRUE, begin, make)

    def _behind(self, d: int, results: Sequence[Atom], reached: Atom | None) -> list[Atom]:
        """The outputs of all steps of a direction, and its last states."""
        *last, rows = results
        rows = reverse(self.n.builder, rows) if self.backward[d] else rows
        if self.lengths is None or reached is None:
            return [rows, *last]
        m = self.emitter(self.n.builder)
        # of no step, nothing is last, not even what it began with
        some = self.n.emit(e.less, Const(np.zeros((), self.lengths.type.dtype)), self.lengths)
        some = self.n.emit(unsqueeze, some, axes=(1,))
        return [m(e.where, reached, rows, 0), *(m(e.where, some, x, 0) for x in last)]

    def _results(self, results: Sequence[Sequence[Atom]]) -> tuple[Atom, ...]:
        """Y, then the last states, of all directions."""
        rows, *states = zip(*results, strict=True)
        # Y is [time, direction, batch, hidden], or with the batch in front
        y = self._joined(rows, 1)
        if self.batch_first:
            y = self.n.emit(transpose, y, axes=(2, 0, 1, 3))
        return (y, *(self._swapped(self._joined(s, 0)) for s in states))

    def _joined(self, parts: Sequence[Atom], axis: int) -> Atom:
        apart = [self.n.emit(unsqueeze, p, axes=(axis,)) for p in parts]
        return apart[0] if len(apart) == 1 else self.n.emit(concat, *apart, axis=axis)


def _total(n: Node, *biases: Atom | None) -> Atom | None:
    given = [b for b in biases if b is not None]
    return n.emit(e.add, *given) if len(given) > 1 else next(iter(given), None)


@converts("RNN", since=7)
def _rnn(n: Node) -> tuple[Atom, ...]:
    def way(own: _Weights, functions: list[Activation]) -> tuple[Atom | None, Step]:
        return _total(n, own.wb, own.rb), _rnn_step(own.r, *functions)

    return _Layer(n, gates=1, states=1).run(["Tanh"], way)


def _rnn_step(r: Atom, f: Activation) -> Step:
    def step(m: Emitter, x: Atom, states: Sequence[Atom]) -> list[Atom]:
        return [f(m, m(e.add, m(matmul, states[0], r), x))]

    return step


@converts("GRU", since=7)
def _gru(n: Node) -> tuple[Atom, ...]:
    layer = _Layer(n, gates=3, states=1)
    behind = bool(n.attr("linear_before_reset", 0))
    size, m = layer.hidden, layer.emitter(n.builder)

    def way(own: _Weights, functions: list[Activation]) -> tuple[Atom | None, Step]:
        if behind:
            return own.wb, _gru_step_behind(size, own, *functions)
        bias = _total(n, own.wb, own.rb)
        parts = m.columns(own.r, 0, 2 * size), m.columns(own.r, 2 * size, 3 * size)
        return bias, _gru_step(size, *parts, *functions)

    return layer.run(["Sigmoid", "Tanh"], way)


def _gru_step(size: int, r_gates: Atom, r_hidden: Atom, f: Activation, g: Activation) -> Step:
    """The gates are update, reset, hidden; what is reset goes into the product of the last."""

    def step(m: Emitter, x: Atom, states: Sequence[Atom]) -> list[Atom]:
        (h,) = states
        gates = m(e.add, m(matmul, h, r_gates), m.columns(x, 0, 2 * size))
        update, reset = (f(m, m.columns(gates, k * size, (k + 1) * size)) for k in range(2))
        product = m(matmul, m(e.mul, reset, h), r_hidden)
        new = g(m, m(e.add, product, m.columns(x, 2 * size, 3 * size)))
        return [_mixed(m, update, h, new)]

    return step


def _gru_step_behind(size: int, own: _Weights, f: Activation, g: Activation) -> Step:
    """A step of a GRU where the product of the hidden gate is what is reset."""

    def step(m: Emitter, x: Atom, states: Sequence[Atom]) -> list[Atom]:
        (h,) = states
        product = m(matmul, h, own.r)
        product = product if own.rb is None else m(e.add, product, own.rb)
        parts = [[m.columns(p, k * size, (k + 1) * size) for p in (product, x)] for k in range(3)]
        update, reset = (f(m, m(e.add, *part)) for part in parts[:2])
        late, direct = parts[2]
        return [_mixed(m, update, h, g(m, m(e.add, m(e.mul, reset, late), direct)))]

    return step


def _mixed(m: Emitter, update: Atom, old: Atom, new: Atom) -> Atom:
    return m(e.add, m(e.mul, m(e.sub, 1, update), new), m(e.mul, update, old))


@converts("LSTM", since=7)
def _lstm(n: Node) -> tuple[Atom, ...]:
    layer = _Layer(n, gates=4, states=2)
    coupled = bool(n.attr("input_forget", 0))

    def way(own: _Weights, functions: list[Activation]) -> tuple[Atom | None, Step]:
        return _total(n, own.wb, own.rb), _lstm_step(layer.hidden, own, functions, coupled)

    return layer.run(["Sigmoid", "Tanh", "Tanh"], way, peephole=7)


def _lstm_step(size: int, own: _Weights, functions: Sequence[Activation], coupled: bool) -> Step:
    """The gates are input, output, forget, cell; coupled, forgetting is 1 less the input."""
    f, g, h = functions

    def peek(m: Emitter, gate: Atom, cell: Atom, place: int) -> Atom:
        if own.peephole is None:
            return gate
        seen = m.columns(own.peephole, place * size, (place + 1) * size)
        return m(e.add, gate, m(e.mul, seen, cell))

    def step(m: Emitter, x: Atom, states: Sequence[Atom]) -> list[Atom]:
        old, cell = states
        total = m(e.add, m(matmul, old, own.r), x)
        i, o, forget, c = (m.columns(total, k * size, (k + 1) * size) for k in range(4))
        i = f(m, peek(m, i, cell, 0))
        forget = m(e.sub, 1, i) if coupled else f(m, peek(m, forget, cell, 2))
        cell = m(e.add, m(e.mul, forget, cell), m(e.mul, i, g(m, c)))
        return [m(e.mul, f(m, peek(m, o, cell, 1)), h(m, cell)), cell]

    return step
