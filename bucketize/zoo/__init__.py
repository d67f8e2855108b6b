"""Architectures with random weights, as ONNX models, and traffics; for demo, tests, benchmarks."""

from bucketize.zoo.catalogue import BOUNDS, NAMES, build, inputs
from bucketize.zoo.traffics import TRAFFICS, traffic

__all__ = ["BOUNDS", "NAMES", "TRAFFICS", "build", "inputs", "traffic"]
