"""The way out: export rules by family, and the writer of models."""

from bucketize.onnx.export import (  # noqa: F401  importing the families fills the table
    axes,
    bits,
    dim,
    elementwise,
    index,
    postponed,
    random,
    reduce,
    resize,
    segment,
    sequence,
    shape,
    spectrum,
    window,
)
from bucketize.onnx.export.rule import RULES, exports_directly
from bucketize.onnx.node import DIRECT

for _op, (_op_type, _names, _int64) in DIRECT.items():
    if _op not in RULES:  # a rule of its own, where not every engine has it for all dtypes
        exports_directly(_op, _op_type, *_names, int64=_int64)
