"""The bridge to ONNX: models in, as modules, and modules out."""

from bucketize.onnx import (  # noqa: F401  importing the families fills the tables of converters and rules
    attention,
    control,
    conv,
    einsum,
    elementwise,
    index,
    linalg,
    old,
    pool,
    quantized,
    random,
    recurrent,
    reduce,
    resize,
    rotary,
    rule_axes,
    rule_bits,
    rule_dim,
    rule_elementwise,
    rule_index,
    rule_postponed,
    rule_random,
    rule_reduce,
    rule_resize,
    rule_sequence,
    rule_shape,
    rule_spectrum,
    rule_window,
    sampling,
    sequence,
    shape,
    spectrum,
    transposed,
    window,
)
from bucketize.onnx.export import to_onnx
from bucketize.onnx.front import from_onnx

__all__ = ["from_onnx", "to_onnx"]
