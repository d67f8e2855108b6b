"""`ragged`: a module that runs the tokens that are there, in place of padded rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bucketize.dispatch.bucket import fallback_name
from bucketize.dispatch.tree import is_dispatched, name_dims, original_of
from bucketize.errors import ArgumentError, DispatchError, RaggedError, unknown_name
from bucketize.ir import (
    CALL,
    IF,
    Atom,
    Builder,
    Const,
    Function,
    Module,
    Var,
    check_module,
    specialise,
)
from bucketize.ops import (
    arange,
    cast,
    concat,
    cumsum,
    equal,
    from_dims,
    full,
    gather,
    greater,
    less,
    logical_and,
    mul,
    nonzero,
    not_equal,
    reduce_min,
    reduce_sum,
    reshape,
    squeeze,
    strided_slice,
    sub,
    trunc_div,
    unsqueeze,
    where,
)
from bucketize.ops.dim import dims_within
from bucketize.ragged.fact import Axes, Form
from bucketize.ragged.name import ROWS, TOKENS, ragged_name
from bucketize.ragged.packer import Packer
from bucketize.ragged.rule import rule_of
from bucketize.transform.dead_code import dead_code
from bucketize.transform.simplify import simplify
from bucketize.types import Symbol, TensorType, Type, lone_term


def ragged(mod: Module, *, axis: str | None = None, mask: str | None = None) -> Module:
    """Have `main` run the tokens that its mask shows, packed behind each other, and no padding.

    Nothing of a row meets anything of another: attention, pooling and positions go by rows. That is
    proved op by op, or refused. Results are 0 at tokens that the mask hides. A row has no more
    tokens than a table of positions has entries. A call whose hidden tokens are not the last ones
    of their rows, or all of a row, or without any tokens, goes to the original, `main[fallback]`.

    Args:
        mod: not dispatched.
        axis: the symbol that counts tokens, of a module without a mask: all tokens of a call are
            seen, and `Executable.run_many` alone has rows of unequal lengths.
        mask: the input, batch by tokens, that is 1 up to where a row's tokens are hidden, and 0
            from there on; None, without an axis: the one that has "mask" in its name.

    Returns:
        A new module of `main`, its original, and `main[ragged]`.

    Raises:
        ArgumentError: no module, or no one input that is called a mask, and none is named.
        DispatchError: `main` is dispatched.
        RaggedError: an op, or an input or result, that does not keep rows apart, or that hidden
            tokens reach; the notes name the nodes that it comes from.
        UnknownNameError: there is no such symbol or input.

    """
    check_module(mod)
    main = name_dims(mod.main)
    if is_dispatched(main, mod):
        raise DispatchError("main is dispatched; make the original ragged: it takes any lengths")
    mask = mask_of(main) if axis is None and mask is None else mask
    fn = _bounded(main, _axes(main, axis, _mask(main, mask)))
    hiding = _mask(fn, mask)
    axes = _axes(fn, axis, hiding)
    some = _some(fn, axes)
    shown = _mask(some, mask)
    packer = Packer(_axes(some, axis, shown), Symbol(TOKENS, 1), Symbol(ROWS, 1), shown, rule_of)
    packed = simplify(packer.packed(some, ragged_name("main")))
    if _forms(fn, axes) != _forms(some, packer.axes):  # without tokens results are of others
        fn, hiding, axes = some, shown, packer.axes
    original = replace(fn, name=fallback_name("main"))
    whole = dead_code(_Padded(axes, fn, packed, original).function(hiding))
    functions = {"main": whole, packed.name: packed, original.name: original}
    return Module(functions, names=mod.names)


def packed_of(mod: Module) -> Function:
    """`main[ragged]` of a module that is not ragged, of what `main` was before it was dispatched.

    Its tokens are those of the input that is called a mask, or else of an axis behind the batch.
    Raises RaggedError, or what else `ragged` does.
    """
    original = original_of(mod)
    if is_dispatched(original, mod):
        raise RaggedError("it is dispatched to clones that are padded, and has no original")
    main = name_dims(replace(original, name="main"))
    module = mod.replace(main)
    if any("mask" in p.name.lower() for p in main.params):
        return ragged(module).functions[ragged_name("main")]
    shapes = [p.type.shape for p in main.params if p.type.is_tensor]
    starts = [s[:2] for s in shapes if len(s) > 1 and all(isinstance(d, Symbol) for d in s[:2])]
    why, notes = "no input is called a mask, or has tokens behind its batch", tuple[str, ...]()
    for axis in dict.fromkeys(str(tokens) for _, tokens in starts):
        try:
            return ragged(module, axis=axis).functions[ragged_name("main")]
        except RaggedError as e:  # not kept: its frames would keep what they hold
            why, notes = e.message, e.notes
    raise _refused(why, notes)


def _refused(why: str, notes: Sequence[str]) -> RaggedError:
    error = RaggedError(why)
    for note in notes:
        error.add_note(note)
    return error


def mask_of(fn: Function) -> str:
    """The input that is called a mask; raises ArgumentError where none is, or several are."""
    called = [p.name for p in fn.params if "mask" in p.name.lower()]
    if len(called) != 1:
        shown = ", ".join(called) or "none"
        how = "say which input hides tokens (mask), or which symbol counts them (axis)"
        raise ArgumentError(f"one input should be called a mask, got {shown}: {how}")
    return called[0]


def _mask(fn: Function, name: str | None) -> Var | None:
    if name is None:
        return None
    params = {p.name: p for p in fn.params}
    if name not in params:
        raise unknown_name("input", name, params)
    mask = params[name]
    if not mask.type.is_tensor or len(mask.type.shape) != 2 or mask.type.dtype.kind not in "biuf":
        raise RaggedError(f"mask {name!r} is {mask.type}, not batch by tokens")
    return mask


def _axes(fn: Function, name: str | None, mask: Var | None) -> Axes:
    """The axes of the batch and of tokens: those of the mask, or of the inputs that have both."""
    own = fn.symbols()
    if name is not None and name not in own:
        raise unknown_name("symbol", name, own)
    if mask is not None:
        ends = mask.type.shape
        if not all(isinstance(d, Symbol) for d in ends) or ends[0] == ends[1]:
            raise RaggedError(f"mask {mask.name!r} is {mask.type}: two symbols are asked for")
        if name not in (None, str(ends[1])):
            raise RaggedError(f"axis {name}, but the tokens of {mask.name!r} are {ends[1]}")
        return Axes(*ends)  # type: ignore[arg-type]
    if name is None:
        raise ArgumentError(
            "say which axis counts tokens, as in axis='S', or which input is a mask"
        )
    others = {d for p in fn.params for d in p.type.axes if own[name] in p.type.axes} - {own[name]}
    batches = [d for d in others if isinstance(d, Symbol)]
    if len(batches) != 1:
        shown = ", ".join(sorted(map(str, batches))) or "none"
        raise RaggedError(f"inputs with {name} have one other symbol, the batch; got {shown}")
    return Axes(batches[0], own[name])


def _bounded(fn: Function, axes: Axes) -> Function:
    """The function, simplified, of no more tokens in a row than tables have."""
    fn = simplify(fn)
    tables = (
        x.type.shape[k]
        for b in fn.body
        if b.op is strided_slice
        for x in b.args
        for k, dim in enumerate(b.out.type.shape)
        if (cut := lone_term(dim, "min")) and axes.sequence in cut.args
    )
    ends = [end for end in (*tables, axes.sequence.hi) if isinstance(end, int)]
    bounded = replace(axes.sequence, hi=min(ends, default=None))
    return simplify(specialise(fn, {axes.sequence.name: bounded}))


def _forms(fn: Function, axes: Axes) -> list[Form]:
    """What each result has an entry of."""
    return [axes.form(r.type) for r in fn.results]


def _some(fn: Function, axes: Axes) -> Function:
    """The function of one row and token at least."""
    dims = {s.name: replace(s, lo=max(s.lo, s.step)) for s in (axes.batch, axes.sequence)}
    return simplify(specialise(fn, dims))


class _Padded:
    """`main`: padded rows, packed and unpacked around the call of the packed function."""

    def __init__(self, axes: Axes, fn: Function, packed: Function, original: Function) -> None:
        self.axes, self.fn, self.packed, self.original = axes, fn, packed, original
        self.types = tuple(r.type for r in fn.results)
        for value in (*fn.params, *fn.results):
            if axes.form(value.type) is Form.TOKEN:
                self.first(value)

    def function(self, mask: Var | None) -> Function:
        """The function, with a look at the mask in front."""
        out = Builder()
        then, orelse = Builder(), Builder()
        packs: Atom
        others: Sequence[Atom]
        if mask is None:
            dims = (self.axes.batch, self.axes.sequence)
            packs = out.emit(dims_within, dims=dims, box=((1, None),) * 2)
            packed = self.all_seen(then)
            others = self.call(orelse, self.original, self.fn.params, self.types)
        else:
            packs, seen = self.is_tail(out, mask), out.emit(cast, mask, dtype="int64")
            packed, others = self.some_seen(then, seen), self.cleared(orelse, mask)
        blocks = {
            "then": then.function("then", (), packed),
            "orelse": orelse.function("orelse", (), others),
        }
        return out.function("main", self.fn.params, out.emit_all(IF, packs, **blocks))

    def first(self, value: Atom) -> int:
        """Where the batch is: the axis of tokens follows it."""
        shape = value.type.shape
        (token,), rows = self.axes.tokens(shape), self.axes.rows(shape)
        if rows != [token - 1] or shape[token] != self.axes.sequence:
            shown = f"{getattr(value, 'name', 'a result')!r} is {value.type}"
            raise RaggedError(f"{shown}: tokens are asked for behind the batch")
        return token - 1 + len(shape)

    def call(
        self, out: Builder, fn: Function, args: Sequence[Atom], types: Sequence[Type]
    ) -> tuple[Var, ...]:
        """Call a function."""
        return out.emit_all(CALL, *args, callee=fn.name, types=tuple(types))

    # --- where all tokens are seen --------------------------------------------------------------

    def all_seen(self, out: Builder) -> list[Atom]:
        """The results where nothing is hidden: rows lie behind each other already."""
        batch, sequence = self.axes.batch, self.axes.sequence
        count = batch * sequence
        each = out.emit(from_dims, dims=(sequence,), scalar=True)
        index = out.emit(arange, stop=count)
        ends = out.emit(mul, out.emit(arange, start=1, stop=batch + 1), each)
        args = [self._flat(out, p, unsqueezed=True) for p in self.fn.params]
        results = self._packed(out, args, ends, index, each)
        pairs = zip(results, self.fn.results, strict=True)
        return [
            out.emit(reshape, r, newshape=want.type.shape)
            if self.axes.form(want.type) is Form.TOKEN
            else r
            for r, want in pairs
        ]

    def _flat(self, out: Builder, param: Var, *, unsqueezed: bool) -> Atom:
        """The tokens of an input, those of all rows behind each other."""
        if self.axes.form(param.type) is not Form.TOKEN:
            return param
        at, shape = self.first(param), param.type.shape
        one = (1,) if unsqueezed else ()
        flat = (*shape[:at], *one, shape[at] * shape[at + 1], *shape[at + 2 :])
        return out.emit(reshape, param, newshape=flat)

    def _packed(
        self, out: Builder, args: Sequence[Atom], ends: Atom, index: Atom, each: Atom
    ) -> tuple[Var, ...]:
        """Call the packed function on tokens by their places in padded rows."""
        owner = out.emit(trunc_div, index, each)
        position = out.emit(sub, index, out.emit(mul, owner, each))
        given = dict(zip((p.name for p in self.fn.params), args, strict=True))
        given |= dict(
            zip((p.name for p in self.packed.params[-3:]), (ends, owner, position), strict=True)
        )
        types = [self._result_type(r.type, index) for r in self.fn.results]
        return self.call(out, self.packed, [given[p.name] for p in self.packed.params], types)

    def _result_type(self, type_: Type, index: Atom) -> Type:
        if self.axes.form(type_) is not Form.TOKEN:
            return type_
        (token,) = self.axes.tokens(type_.shape)
        shape = list(type_.shape)
        shape[token - 1], shape[token] = 1, index.type.shape[0]
        return TensorType(type_.dtype, tuple(shape))

    def cleared(self, out: Builder, mask: Var) -> list[Atom]:
        """The results of the original, with zeros at hidden tokens."""
        results = self.call(out, self.original, self.fn.params, self.types)
        seen = out.emit(not_equal, mask, Const(np.zeros((), mask.type.dtype)))
        return [self._cleared(out, r, seen) for r in results]

    def _cleared(self, out: Builder, result: Var, seen: Atom) -> Atom:
        if self.axes.form(result.type) is not Form.TOKEN:
            return result
        (token,) = self.axes.tokens(result.type.shape)
        aligned = (*seen.type.shape, *(1,) * (-1 - token))
        shown = out.emit(reshape, seen, newshape=aligned)
        return out.emit(where, shown, result, Const(np.zeros((), result.type.dtype)))

    # --- where some are hidden ------------------------------------------------------------------

    def is_tail(self, out: Builder, mask: Var) -> Atom:
        """Whether each row has a 1 at first, and from its first 0 on nothing else."""
        seen = out.emit(not_equal, mask, Const(np.zeros((), mask.type.dtype)))
        lengths = out.emit(
            reduce_sum, out.emit(cast, seen, dtype="int64"), axes=(1,), keepdims=True
        )
        places = out.emit(unsqueeze, out.emit(arange, stop=self.axes.sequence), axes=(0,))
        wanted = out.emit(cast, out.emit(less, places, lengths), dtype=mask.type.dtype.name)
        some = out.emit(greater, lengths, Const(np.asarray(0)))
        fits = out.emit(logical_and, out.emit(equal, wanted, mask), some)
        least = out.emit(reduce_min, out.emit(cast, fits, dtype="int64"), axes=(0, 1))
        rows = out.emit(from_dims, dims=(self.axes.batch,), scalar=True)
        return out.emit(greater, out.emit(mul, least, rows), Const(np.asarray(0)))

    def some_seen(self, out: Builder, seen: Atom) -> list[Atom]:
        """The results: seen tokens picked out, and put back among zeros."""
        count = self.axes.batch * self.axes.sequence
        flat = out.emit(reshape, seen, newshape=(count,))
        index = out.emit(squeeze, out.emit(nonzero, flat), axes=(0,))
        ends = out.emit(cumsum, out.emit(reduce_sum, seen, axes=(1,)), axis=0)
        args = [self._picked(out, p, index) for p in self.fn.params]
        each = out.emit(from_dims, dims=(self.axes.sequence,), scalar=True)
        results = self._packed(out, args, ends, index, each)
        place = out.emit(mul, out.emit(cumsum, flat, axis=0), flat)  # 0: that of a hidden token
        pairs = zip(results, self.fn.results, strict=True)
        return [self._put_back(out, r, want.type, place) for r, want in pairs]

    def _picked(self, out: Builder, param: Var, index: Atom) -> Atom:
        if self.axes.form(param.type) is not Form.TOKEN:
            return param
        flat, at = self._flat(out, param, unsqueezed=False), self.first(param)
        return out.emit(unsqueeze, out.emit(gather, flat, index, axis=at), axes=(at,))

    def _put_back(self, out: Builder, result: Atom, want: Type, place: Atom) -> Atom:
        if self.axes.form(want) is not Form.TOKEN:
            return result
        (token,) = self.axes.tokens(want.shape)
        axis = token + len(want.shape)
        shape = list(result.type.shape)
        shape[axis] = 1
        nothing = out.emit(full, shape=tuple(shape), value=0, dtype=want.dtype.name)
        both = out.emit(concat, nothing, result, axis=axis)
        return out.emit(reshape, out.emit(gather, both, place, axis=axis), newshape=want.shape)
