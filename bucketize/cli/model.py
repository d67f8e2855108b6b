"""MODEL on the command line: a path, or zoo:NAME."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bucketize.cli.parameter import Bound

if TYPE_CHECKING:
    from bucketize.ir import Module

ZOO = "zoo:"


def load_model(model: str, bounds: Iterable[Bound]) -> Module:
    """The module of MODEL; `--dim` goes before the bounds that the zoo gives."""
    from bucketize.onnx import from_onnx

    if not model.startswith(ZOO):
        return from_onnx(model, bounds=dict(bounds))
    from bucketize.zoo import BOUNDS, build

    name = model.removeprefix(ZOO)
    return from_onnx(build(name), bounds={**BOUNDS[name], **dict(bounds)})
