"""Export rules of what draws numbers: another engine draws others, of the same law."""

from __future__ import annotations

import numpy as np
from onnx import helper

from bucketize.onnx.export.rule import Site, exports
from bucketize.ops.random import normal_like, uniform_like
from bucketize.types.number import kind_of


@exports(normal_like)
def _normal(s: Site) -> str:
    return _drawn(s, "RandomNormalLike", "mean", "scale")


@exports(uniform_like)
def _uniform(s: Site) -> str:
    return _drawn(s, "RandomUniformLike", "low", "high")


def _drawn(s: Site, op_type: str, *names: str) -> str:
    law = {name: float(s.attr(name)) for name in names}
    to = helper.np_dtype_to_tensor_dtype(np.dtype(s.attr("dtype")))
    like = s[0] if kind_of(s.dtype) == "f" else s.node("Cast", s[0], to=to)
    return s.node(op_type, like, **law, seed=float(s.attr("seed")), dtype=to)
