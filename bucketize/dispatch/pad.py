"""The policy "pad": run a clone at its bucket's top and crop, where the padding rules prove it.

Every argument axis that grows with a padded symbol is asked of its op's padding rule. `FREE`
passes; `Fill(v)` gets a mask that writes v behind the true extent; `UNSAFE` is an error that
names the op. The true extents that masks need are extra scalar parameters of the clone.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from bucketize.dispatch.bucket import narrowed
from bucketize.dispatch.count import counted
from bucketize.errors import PaddingError
from bucketize.ir import (
    CALL,
    STRUCTURAL,
    Atom,
    Binding,
    Builder,
    Clone,
    Const,
    Env,
    Function,
    Var,
    copy_binding,
    infer,
    mentioned,
    show_attr,
)
from bucketize.op import FREE, UNSAFE, Fill
from bucketize.ops.dim import from_dims, mask_tail
from bucketize.ops.shape import concat, pad, reshape, strided_slice
from bucketize.transform.dead_code import used_atoms
from bucketize.types import (
    FUNCTIONS,
    AnyDim,
    Dim,
    Expr,
    Interval,
    Symbol,
    Symbolic,
    TensorType,
    Term,
    Type,
    assumptions,
    extremes,
    lone_term,
    show_interval,
    substitute,
    symbols,
)


def tops_of(bucket: Mapping[str, Interval], own: Mapping[str, Symbol]) -> dict[str, int]:
    """The sizes that a bucket of symbols is padded to; `PaddingError` if one of them has no top."""
    tops = {}
    for name, (lo, hi) in bucket.items():
        if hi is None:
            shown = f"{name}={show_interval((lo, hi))}"
            raise PaddingError(f"{shown} has no top to pad to: bound {name}, or use 'exact'")
        tops[name] = (hi - 1) // own[name].step * own[name].step
    return tops


def padded(bucket: Mapping[str, Interval]) -> frozenset[str]:
    """The symbols that are padded: those of more than one size."""
    return frozenset(name for name, (lo, hi) in bucket.items() if hi != lo + 1)


class Padding:
    """The padded form of a function, proved on construction: one for all tops of some symbols."""

    def __init__(self, fn: Function, bucket: Mapping[str, Interval]) -> None:
        """Prove that `fn`, simplified, may be padded to the bucket's top; else `PaddingError`."""
        names = padded(bucket)
        self.fn = fn = counted(fn, names)
        tops = tops_of(bucket, fn.symbols())
        self.tops = {n: top for n, top in tops.items() if n in names}  # for errors
        self.extents: dict[Dim, Var] = {}
        self._masked: Env = {}
        self._rooms: dict[Dim, Binding] = {}  # what must not be negative, and who says so
        self._masks: dict[tuple[Atom, int, float], Atom] = {}
        self.symbolic = self._masked_function()

    def call(self, out: Builder, clone: Clone, name: str) -> tuple[Atom, ...]:
        """Pad the inputs, call the clone, crop its results."""
        self._check_rooms(clone.bucket)
        every = tops_of(clone.bucket, self.fn.symbols())
        tops = {n: top for n, top in every.items() if n in self.tops}
        args = [_pad_input(out, p, tops) for p in self.fn.params]
        extents = [out.emit(from_dims, dims=(d,), scalar=True) for d in self.extents]
        types = tuple(r.type.substitute(tops) for r in self.fn.results)
        results = out.emit_all(CALL, *args, *extents, callee=name, types=types)
        pairs = zip(results, self.fn.results, strict=True)
        return tuple(self._crop(out, r, want.type) for r, want in pairs)

    def _crop(self, out: Builder, result: Var, want: Type) -> Atom:
        axes = tuple(i for i, d in enumerate(want.axes) if self._grows(d))
        if not axes:
            return result
        end = tuple(want.shape[i] for i in axes)
        ones = (1,) * len(axes)
        zeros = (0,) * len(axes)
        cut = out.emit(strided_slice, result, begin=zeros, end=end, strides=ones, axes=axes)
        if any(isinstance(d, AnyDim) for d in want.shape):
            return cut
        return out.emit(reshape, cut, newshape=want.shape)  # min(S, top) is S in this branch

    def _grows(self, dim: Any) -> bool:
        return isinstance(dim, Symbolic) and any(s.name in self.tops for s in symbols(dim))  # type: ignore[arg-type]

    def _masked_function(self) -> Function:
        out = Builder()
        for b in self.fn.body:
            if not b.is_ranked:
                raise PaddingError(f"{self._where(b)} has no padding rule")
            self._check_blocks(b)
            if b.op is from_dims and any(map(self._grows, b.attrs["dims"])):
                self._masked[b.out] = self._told(out, b)
                continue
            self._check_attrs(b)
            self._check_growth(b)
            args = [self._safe(out, b, i) for i in range(len(b.args))]
            self._check_relations(b)
            safe = Binding(b.outs, b.op, tuple(args), b.attrs, b.origin)
            copy_binding(out, safe, self._masked)
        results = [self._masked.get(r, r) for r in self.fn.results]
        return out.function(self.fn.name, (*self.fn.params, *self.extents.values()), results)

    def _told(self, out: Builder, b: Binding) -> Atom:
        """The true extents, which the caller tells, as the tensor that `from_dims` makes."""
        if b.attrs["scalar"]:
            return self._extent(b.attrs["dims"][0])
        parts = [
            out.emit(reshape, self._extent(d), newshape=(1,))
            if self._grows(d)
            else out.emit(from_dims, dims=(d,))
            for d in b.attrs["dims"]
        ]
        return out.emit(concat, *parts, axis=0)

    def _extent(self, dim: Dim) -> Var:
        name, type_ = f"extent{len(self.extents)}", TensorType(np.dtype(np.int64), ())
        return self.extents.setdefault(dim, Var(name, type_))

    def _check_blocks(self, b: Binding) -> None:
        """What repeats or decides may do so beside what is padded, but not see it."""
        if b.op not in STRUCTURAL:
            return
        seen = (d for atom in used_atoms(b) for d in atom.type.shape)
        attrs = Function("", (), (b,), ()).mentioned()
        if not attrs.isdisjoint(self.tops) or any(map(self._grows, seen)):
            raise PaddingError(f"{self._where(b)} has no padding rule")

    def _check_attrs(self, b: Binding) -> None:
        for name, value in b.attrs.items():
            if name not in b.op.sizing and any(s.name in self.tops for s in mentioned(value)):
                shown = f"{name}={show_attr(value)}"
                raise PaddingError(f"{self._where(b)} computes with a padded extent ({shown})")

    def _check_growth(self, b: Binding) -> None:
        """The padded result must hold the true one: no extent shrinks as a symbol grows."""
        for axis, dim in ((i, d) for out in b.outs for i, d in enumerate(out.type.shape)):
            if not _is_monotone(dim, self.tops):
                raise PaddingError(f"{self._where(b)}: axis {axis}, {dim}, need not grow with it")

    def _check_relations(self, b: Binding) -> None:
        """What types leave to run time is asked of the top, but must hold at the true sizes."""
        with assumptions() as relied:
            infer(b.op, [a.type for a in b.args], b.attrs)
        dims = [d for out in b.outs for d in out.type.axes]
        same = [pair for relation, *pair in relied if relation != ">="]
        same += [list(t.args) for d in dims if (t := lone_term(d, "broadcast"))]
        for one, other in same:
            if self._grows(one) or self._grows(other):
                raise PaddingError(f"{self._where(b)}: {one} and {other} need not agree")
        for room in (*(one - other for how, one, other in relied if how == ">="), *dims):
            if self._grows(room) and extremes(room)[0] < 0:
                self._rooms.setdefault(room, b)

    def _check_rooms(self, bucket: Mapping[str, Interval]) -> None:
        """Raise PaddingError if at some size of the bucket an extent may be too small."""
        own = self.fn.symbols()
        sizes = {n: narrowed(own[n], i) for n, i in bucket.items()}
        for room, b in self._rooms.items():
            if extremes(substitute(room, sizes))[0] < 0:
                raise PaddingError(f"{self._where(b)}: {room} may be negative at a true size")

    def _safe(self, out: Builder, b: Binding, index: int) -> Atom:
        atom = b.args[index]
        shapes = [a.type.shape for a in b.args]
        for axis, dim in enumerate(shapes[index]):
            if not self._grows(dim):
                continue
            rule = b.op.padding(index, axis, *shapes, **b.attrs)
            if rule is UNSAFE:
                leak = f"axis {axis} of argument {index}, {b.args[index].type}"
                raise PaddingError(f"{self._where(b)} leaks padding: {leak} (extent {dim})")
            if rule is not FREE:
                assert isinstance(rule, Fill)
                self._check_finite(b, rule)
                atom = self._mask(out, atom, axis, rule.value, dim)
        return atom

    def _check_finite(self, b: Binding, rule: Fill) -> None:
        if rule.finite is None:
            return
        other = b.args[rule.finite]
        if not (isinstance(other, Const) and np.isfinite(other.value).all()):
            leak = f"argument {rule.finite}, {other.type}, is not known to be finite"
            raise PaddingError(f"{self._where(b)} leaks padding: {leak}")

    def _mask(self, out: Builder, atom: Atom, axis: int, value: float, dim: Dim) -> Atom:
        if value == 0 and atom in self.fn.params:  # `_pad_input` fills with zeros
            return atom
        key = (atom, axis, value)
        if key not in self._masks:
            new = self._masked.get(atom, atom)
            self._masks[key] = out.emit(mask_tail, new, self._extent(dim), axis=axis, value=value)
        return self._masks[key]

    def _where(self, b: Binding) -> str:
        padded = ", ".join(f"{n} to {t}" for n, t in self.tops.items())
        return f"padding {padded}: {b.op.name}"


def _pad_input(out: Builder, param: Var, tops: Mapping[str, Dim]) -> Atom:
    pads = tuple((0, substitute(d, tops) - d) for d in param.type.axes)
    if all(hi == 0 for _, hi in pads):
        return param
    return out.emit(pad, param, pads=pads, value=0)


def _is_monotone(dim: Dim, names: Container[str]) -> bool:
    """Whether an extent certainly does not shrink as the named symbols grow."""
    if not isinstance(dim, Expr):
        return True
    moving = [(m, c) for m, c in dim.terms if any(_moves(a, names) for a in m)]
    return all(c > 0 and all(_is_monotone_atom(a, names) for a in m) for m, c in moving)


def _moves(atom: Symbol | Term, names: Container[str]) -> bool:
    inside = {atom} if isinstance(atom, Symbol) else {s for d in atom.args for s in symbols(d)}
    return any(s.name in names for s in inside)


def _is_monotone_atom(atom: Symbol | Term, names: Container[str]) -> bool:
    if isinstance(atom, Symbol) or not _moves(atom, names):
        return True
    grows = FUNCTIONS[atom.fn].grows
    return all(
        isinstance(d, int) or (i in grows and _is_monotone(d, names))
        for i, d in enumerate(atom.args)
    )
