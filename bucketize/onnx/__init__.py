"""The bridge to ONNX: models in, as modules, and modules out."""

# Importing them fills the tables that `export` reads, too.
from bucketize.onnx import contrib, convert  # noqa: F401
from bucketize.onnx.export.module import to_onnx
from bucketize.onnx.front import from_onnx

__all__ = ["from_onnx", "to_onnx"]
