"""What becomes of ops that have no kernels, as text: before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Golden
from test_transforms import check

from bucketize.lower import concat
from bucketize.lower.polyphase import split_phases
from bucketize.lower.rank import fold_volumes
from bucketize.lower.reshape import sink_views
from bucketize.lower.upper_bound import bound_rows
from bucketize.text import parse_function
from bucketize.transform.apply import Transform
from bucketize.transform.dead_code import dead_code

FLAT = """
def @main(%x: float32[N, 4, 8]) -> float32[N, 4, 6] {
  %flat = reshape(%x, newshape=(4*N, 8))
  %y = matmul(%flat, const[0]: float32[8, 6])
  %again = reshape(%y, newshape=(N, 4, 6))
  %biased = add(%again, float32[6](1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
  %z = relu(%biased)
  return %z
}"""
VOLUME = """
def @main(%x: float32[N, 4, 5, H, 6]) -> float32[N, 2, 2, (H - 2) // 2, 2] where H >= 4 {
  %y = conv3d(%x, const[0]: float32[2, 4, 3, 3, 3])
  %z = relu(%y)
  %p = max_pool3d(%z, kernel=(2, 2, 2), strides=(1, 2, 2))
  return %p
}"""
UPSAMPLED = """
def @main(%x: float32[N, 3, H, W]) -> float32[N, 2, 2*H, 2*W] {
  %y = conv_transpose(%x, const[0]: float32[3, 2, 4, 4], strides=(2, 2),
    pads=(1, 1, 1, 1), dilations=(1, 1), output_padding=(0, 0))
  %z = tanh(%y)
  return %z
}"""
WIDE = """
def @main(%x: float32[N, 3]) -> float32[N, 18] {
  %y = concat(%x, %x, %x, %x, %x, %x, axis=1)
  return %y
}"""
BOXES = """
def @main(%boxes: float32[1, N, 4], %scores: float32[1, 2, N]) -> int64[?, 3] {
  %rows = non_max_suppression(%boxes, %scores, int64(2), float32(0.5), float32(0.0))
  return %rows
}"""
PASSES: dict[str, tuple[Transform, str, tuple[tuple[int, ...], ...]]] = {
    "sink_views": (sink_views, FLAT, ((2, 4, 8),)),
    "fold_volumes": (fold_volumes, VOLUME, ((2, 4, 5, 6, 6),)),
    "split_phases": (split_phases, UPSAMPLED, ((2, 3, 3, 2),)),
    "split_concats": (concat.split_concats, WIDE, ((2, 3),)),
    "bound_rows": (bound_rows, BOXES, ((1, 5, 4), (1, 2, 5))),
}
WEIGHTS = {"sink_views": (8, 6), "fold_volumes": (2, 4, 3, 3, 3), "split_phases": (3, 2, 4, 4)}


@pytest.mark.parametrize("name", PASSES)
def test_pass(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concat, "MOST", 4)
    transform, text, shapes = PASSES[name]
    weights = np.random.default_rng(0).standard_normal(WEIGHTS.get(name, ()))
    before = parse_function(text, [weights.astype(np.float32)])
    check(golden, before, dead_code(transform(before)), *shapes)
