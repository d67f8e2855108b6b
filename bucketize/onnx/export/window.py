"""Export rules of matrices, and of what slides a window over an image."""

from __future__ import annotations

from typing import Any

from bucketize.ir import Const
from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.onnx.node import Unsupported
from bucketize.ops.linalg import matmul, matmul_integer
from bucketize.ops.rounding import PLAIN, rounded
from bucketize.ops.window.column import col2im, dyn_col2im
from bucketize.ops.window.deformed import deform_conv2d
from bucketize.ops.window.image import avg_pool2d, conv2d, conv2d_integer, max_pool2d
from bucketize.ops.window.transposed import conv_transpose
from bucketize.ops.window.volume import avg_pool3d, conv3d, max_pool3d

WINDOW = ("pads", "strides", "dilations")


@exports(matmul)
def _matmul(s: ExportSite) -> str:
    """Weights in another format leave as the numbers that it holds."""
    y, weights = s.args[1], s.attr("weights")
    if weights == PLAIN:
        return s.node("MatMul", *s.operands)
    if not isinstance(y, Const):
        raise Unsupported(f"weights of {weights} are known only at run time")
    constants = s.scope.frame.derived  # one for all clones
    if (y, weights) not in constants:
        constants[y, weights] = Const(rounded(y.value, weights))
    return s.node("MatMul", s[0], s.scope.constant(constants[y, weights]))


exports_directly(matmul_integer, "MatMulInteger")


@exports(conv2d, conv3d)
def _conv(s: ExportSite) -> str:
    x, pads = _padded(s)
    return _slide(s, "Conv", x, s[1], pads=pads, group=s.attr("groups"))


@exports(conv2d_integer)
def _conv_integer(s: ExportSite) -> str:
    zero = s.constant(s.attr("zero"))
    x, pads = _padded(s, zero)
    return _slide(s, "ConvInteger", x, s[1], zero, pads=pads)


def _padded(s: ExportSite, *fill: str) -> tuple[str, tuple[int, ...]]:
    """An image and its pads, for which there is a node of its own where they depend on sizes."""
    x, pads = planar(s), s.attr("pads")
    if all(isinstance(p, int) for p in pads):
        return x, pads
    half = len(pads) // 2
    ends = s.extents((0, 0, *pads[:half], 0, 0, *pads[half:]))
    return s.node("Pad", x, ends, *fill), (0,) * len(pads)


@exports(conv_transpose)
def _conv_transpose(s: ExportSite) -> str:
    """Pads that depend on sizes are cut off by a node of its own, and what is behind is added."""
    attrs = {"group": s.attr("groups"), **s.attrs("strides", "dilations")}
    pads, more = s.attr("pads"), s.attr("output_padding")
    if all(isinstance(d, int) for d in (*pads, *more)):
        return s.node("ConvTranspose", s[0], s[1], pads=pads, output_padding=more, **attrs)
    axes = range(2, 2 + len(more))
    y = s.node("ConvTranspose", s[0], s[1], **attrs)
    y = s.node("Pad", y, s.extents((0,) * (len(axes) + 4) + more))
    before, extents = pads[: len(more)], s.binding.out.type.shape[2:]
    ends = tuple(lo + extent for lo, extent in zip(before, extents, strict=True))
    return s.node("Slice", y, s.extents(before), s.extents(ends), s.integers(*axes))


@exports(deform_conv2d)
def _deform_conv(s: ExportSite) -> str:
    groups = {"group": s.attr("groups"), "offset_group": s.attr("offset_groups")}
    x, w, offset, mask = s.operands
    return s.node("DeformConv", x, w, offset, "", mask, **groups, **s.attrs(*WINDOW))


@exports(col2im, dyn_col2im)
def _col2im(s: ExportSite) -> str:
    image, kernel = s.vector("image", 1), s.vector("kernel", 2)
    return s.node("Col2Im", s[0], image, kernel, **s.attrs(*WINDOW))


@exports(max_pool2d, max_pool3d, avg_pool2d, avg_pool3d)
def _pool(s: ExportSite) -> str:
    pads, mean = s.attr("pads"), "count_include_pad" in s.binding.attrs
    if not all(isinstance(p, int) for p in pads):
        raise Unsupported(f"the pads ({', '.join(map(str, pads))}) depend on sizes")
    flags = s.attrs("ceil_mode", *(("count_include_pad",) if mean else ()))
    op_type = "AveragePool" if mean else "MaxPool"
    return _slide(s, op_type, planar(s), pads=pads, kernel_shape=s.attr("kernel"), **flags)


def planar(s: ExportSite) -> str:
    """The images that an operator takes, in ONNX's layout."""
    rank = len(s.args[0].type.shape)
    perm = (0, rank - 1, *range(1, rank - 1))
    return s.node("Transpose", s[0], perm=perm) if _is_nhwc(s) else s[0]


def _slide(s: ExportSite, op_type: str, *operands: str, **attrs: Any) -> str:
    return laid_out(s, s.node(op_type, *operands, **s.attrs("strides", "dilations"), **attrs))


def laid_out(s: ExportSite, y: str) -> str:
    """Images in ONNX's layout, in that of the operator's result."""
    perm = (0, *range(2, len(s.args[0].type.shape)), 1)
    return s.node("Transpose", y, perm=perm) if _is_nhwc(s) else y


def _is_nhwc(s: ExportSite) -> bool:
    return s.binding.attrs.get("layout") == "NHWC"
