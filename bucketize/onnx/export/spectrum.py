"""Export rules of Fourier transforms and mel filters."""

from __future__ import annotations

import numpy as np

from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.onnx.kind import data_type
from bucketize.ops import spectrum as sp


@exports(sp.dft)
def _dft(s: ExportSite) -> str:
    return _transformed(s, s.extent(s.attr("length")), s.constant(s.attr("axis"), np.int64))


@exports(sp.dyn_dft)
def _dyn_dft(s: ExportSite) -> str:
    length = "" if s.type(1).shape == (0,) else _scalar(s, 1)
    return _transformed(s, length, _scalar(s, 2))


def _scalar(s: ExportSite, index: int) -> str:
    name = s.int64(index)
    return s.node("Reshape", name, s.integers()) if s.type(index).shape else name


def _transformed(s: ExportSite, length: str, axis: str) -> str:
    return s.node("DFT", s[0], length, axis, **s.attrs("onesided", "inverse"))


@exports(sp.mel_weight_matrix)
def _mel_weight_matrix(s: ExportSite) -> str:
    return s.node("MelWeightMatrix", *s.operands, output_datatype=data_type(s.attr("dtype")))
