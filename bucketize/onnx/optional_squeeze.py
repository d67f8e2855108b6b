"""An axis that is squeezed if its extent is 1, which is how torch exports `x.squeeze(axis)`.

Where the extent is not known the result has one of two ranks. Often the rest of a model takes but
one of them: an LSTM wants three axes, whatever lies between. Source: `squeeze` in
https://github.com/pytorch/pytorch/blob/main/torch/onnx/_internal/torchscript_exporter/symbolic_opset11.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketize.ir import Atom, Binding, Builder, Function, Var
from bucketize.onnx.node import Graph
from bucketize.ops import cast, equal, reshape, squeeze
from bucketize.types import AnyDim, Dim


def is_optional_squeeze(
    out: Builder, inputs: Sequence[Atom | None], blocks: Mapping[str, Function | Graph]
) -> bool:
    """Whether a node takes an axis away if its extent is 1, and else does nothing.

    Args:
        out: where the node is to be emitted.
        inputs: of the node: of an `If` its condition.
        blocks: its graphs: of an `If` its branches.

    Returns:
        False, too, of what cannot be seen to ask for the extent that it squeezes.

    """
    match [*inputs], blocks.get("then_branch"), blocks.get("else_branch"):
        case [Var() as condition], Function(body=(b,)) as then, Function(body=()) as orelse:
            if b.op is squeeze and then.results == b.outs and orelse.results == b.args:
                extents = {b.args[0].type.shape[a] for a in b.attrs["axes"]}
                return extents == {_compared(out, condition)}
    return False


def _compared(out: Builder, condition: Var) -> Dim | None:
    """The extent that a condition compares with 1; None of one that nothing is known of."""
    makers: dict[Atom, Binding] = {v: b for b in out.body for v in b.outs}
    b = makers.get(condition)
    while b is not None and b.op in (reshape, squeeze, cast):
        b = makers.get(b.args[0])
    match [a.type.value for a in b.args] if b is not None and b.op is equal else []:
        case [(1,), (extent,)] | [(extent,), (1,)] if not isinstance(extent, AnyDim):
            return extent
    return None
