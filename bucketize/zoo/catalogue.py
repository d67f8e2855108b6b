"""The zoo by name: each architecture with the bounds of its symbols and its random inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from bucketize.errors import BucketizeError, unknown_name
from bucketize.zoo.bert import POSITIONS, VOCABULARY, bert_base, bert_mini
from bucketize.zoo.mlp import WIDTHS, mlp
from bucketize.zoo.vision import mobilenetv2, resnet18, resnet34, resnet50

Arrays = dict[str, NDArray[Any]]
Draw = Callable[[np.random.Generator, Mapping[str, int]], Arrays]


@dataclass(frozen=True)
class Architecture:
    """A way to write a model, the inclusive bounds of its symbols, and inputs at given sizes."""

    write: Callable[[int], ModelProto]
    bounds: Mapping[str, tuple[int, int]]
    draw: Draw


def _rows(random: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    return {"data": random.standard_normal((sizes["N"], WIDTHS[0]), np.float32)}


def _images(random: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    """Noise about a colour of each image's own, so that their outputs differ after pooling."""
    n, h, w = sizes["N"], sizes["H"], sizes["W"]
    noise = random.standard_normal((n, 3, h, w), np.float32)
    return {"data": noise + random.standard_normal((n, 3, 1, 1), np.float32)}


def _tokens(random: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    b, s = sizes["B"], sizes["S"]
    lengths = random.integers(1, s, (b, 1), endpoint=True)
    return {
        "input_ids": random.integers(0, VOCABULARY, (b, s)),
        "attention_mask": (np.arange(s) < lengths).astype(np.int64),
    }


_IMAGES = {"N": (1, 32), "H": (32, 512), "W": (32, 512)}
_TOKENS = {"B": (1, 16), "S": (1, POSITIONS)}

ARCHITECTURES = {
    "mlp": Architecture(mlp, {"N": (1, 1024)}, _rows),
    "resnet18": Architecture(resnet18, _IMAGES, _images),
    "resnet34": Architecture(resnet34, _IMAGES, _images),
    "resnet50": Architecture(resnet50, _IMAGES, _images),
    "mobilenetv2": Architecture(mobilenetv2, _IMAGES, _images),
    "bert-mini": Architecture(bert_mini, _TOKENS, _tokens),
    "bert-base": Architecture(bert_base, _TOKENS, _tokens),
}
NAMES = tuple(ARCHITECTURES)
BOUNDS = {name: architecture.bounds for name, architecture in ARCHITECTURES.items()}


def build(name: str, *, seed: int = 0) -> ModelProto:
    """The ONNX model of an architecture, with random weights that keep activations near 1.

    Args:
        name: one of `NAMES`.
        seed: of the weights.

    Returns:
        The model.

    Raises:
        UnknownNameError: there is no such architecture.

    """
    return _architecture(name).write(seed)


def inputs(name: str, sizes: Mapping[str, int], seed: int = 0) -> Arrays:
    """Random inputs of a model.

    Args:
        name: one of `NAMES`.
        sizes: of all its symbols, each at least 1.
        seed: of the elements.

    Returns:
        The arrays by the name of the input.

    Raises:
        BucketizeError: sizes of other symbols, or below 1.
        UnknownNameError: there is no such architecture.

    """
    architecture = _architecture(name)
    if sizes.keys() != architecture.bounds.keys():
        wanted, given = ", ".join(architecture.bounds), ", ".join(sizes) or "none"
        raise BucketizeError(f"{name} has the symbols {wanted}, but sizes are given for {given}")
    for symbol, size in sizes.items():
        if size < 1:
            raise BucketizeError(f"the size of {symbol} must be at least 1, but it is {size}")
    return architecture.draw(np.random.default_rng(seed), sizes)


def _architecture(name: str) -> Architecture:
    if name not in ARCHITECTURES:
        raise unknown_name("zoo model", name, NAMES)
    return ARCHITECTURES[name]
