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
    sequence,
    shape,
    spectrum,
    window,
)
