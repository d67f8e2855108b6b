"""`dyn` ops whose operands are known as dims become their static twins."""

from __future__ import annotations

from typing import TypeGuard

from bucketize.ir import STRUCTURAL, Atom, Atoms, Binding, Builder, Const, Function, rewrite
from bucketize.ops.dim import from_dims
from bucketize.types import AnyDim, Shape


def dynamic_to_static(fn: Function) -> Function:
    """`fn` with shape arithmetic replaced by dims and `dyn` ops by static ones.

    Nothing is folded here (cf. TVM #7368, where doing both made compilation four times slower):
    the dims are known from the types, and what stays unknown stays `dyn`.
    """
    return rewrite(fn, static_form)


def static_form(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atoms | None:
    """What `b` makes of `args` by known dims: a rule of `rewrite`."""
    if b.op in STRUCTURAL or b.op is from_dims:
        return None
    if b.op.static is not None:
        return _static_twin(out, b, args)
    return _known_dims(out, b) if len(b.outs) == 1 else None


def _static_twin(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atoms | None:
    assert b.op.static is not None
    types = [a.type for a in args]
    if not all(t.is_tensor for t in types):
        return None
    if not all(is_known(types[i].value) for i in b.op.reads if i < len(args)):
        return None
    twin = b.op.static(*types, **b.attrs)
    if twin is None:
        return None
    op, attrs = twin
    kept = [a for i, a in enumerate(args) if i not in b.op.reads]
    return out.emit_all(op, *kept, **attrs)


def _known_dims(out: Builder, b: Binding) -> Atom | None:
    """An integer scalar or vector that is known as dims, whatever computed it."""
    value, type_ = b.out.type.value, b.out.type
    if value is None or not is_known(value):
        return None
    if len(type_.shape) > 1 or type_.dtype != "int64":
        return None
    if all(isinstance(d, int) for d in value):
        return Const(from_dims.compute(dims=value, scalar=not type_.shape))
    return out.emit(from_dims, dims=value, scalar=not type_.shape)


def is_known(value: Shape | None) -> TypeGuard[Shape]:
    """Whether all elements of a tensor are known as dims."""
    return value is not None and not any(isinstance(d, AnyDim) for d in value)
