"""Converters of onnxruntime's own operators: what its optimiser and its quantiser write.

Each is put together from the converters of the standard, so that what is told of a model, its
kernels, and the proof that rows are apart are those of the model before it was optimised.
"""

# Importing the families fills the table.
from bucketize.onnx.contrib import attention, blocks, fused, grouped, quantized  # noqa: F401
