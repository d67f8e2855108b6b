"""Architectures with random weights, as ONNX models, for demo, tests and benchmarks."""

from bucketize.zoo.catalogue import BOUNDS, NAMES, build, inputs

__all__ = ["BOUNDS", "NAMES", "build", "inputs"]
