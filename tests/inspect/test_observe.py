"""What kernels make in a call: all of them, as they run, wrong ones too."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from test_aliasing import Net, dense, fire, segment_of, slices, stacked

import bucketize
from bucketize import zoo
from bucketize.analysis.kernels import beside_another, beside_meaning
from bucketize.analysis.nodes import COLUMNS, Tolerance
from bucketize.executable import Executable
from bucketize.inspect.observe import ObservedKernel, observe
from bucketize.ir import Function, Module
from bucketize.kernel.object import Kernel
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)


def parsed(text: str, **constants: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


def chain() -> Executable:
    """Kernels for each of `e`, `c`, `n`, `p` with `r`, `q`, which holds `n`, and `s` with `y`."""
    weights = np.random.default_rng(0).standard_normal((16, 16), np.float32)
    model = parsed(
        """chain (float[N, 16] x) => (float[M, 16] y) {
            e = Exp(x)  c = CumSum(e, one)  n = Neg(c)  p = MatMul(n, w)
            r = Relu(p)  q = Concat<axis=0>(n, r, r)  s = Softmax(q)  y = Exp(s)
        }""",
        one=np.array(1),
        w=weights,
    )
    return bucketize.compile(bucketize.from_onnx(model))


def confused(monkeypatch: pytest.MonkeyPatch, wrong: str, other: str) -> Executable:
    """The same where what computes one binding is the kernel of another."""
    exe = chain()
    calls = [call for routine in exe.routines.values() for call in routine.calls()]
    names = {"+".join(call.binding.origin): call.kernel for call in calls}
    right = type(exe.image.supply).kernel

    def kernel(self: Any, name: str) -> Kernel:
        return right(self, names[other] if name == names[wrong] else name)

    monkeypatch.setattr(type(exe.image.supply), "kernel", kernel)
    return chain()


def test_each_kernel_is_seen_with_what_it_ought_to_make() -> None:
    seen = observe(chain().image, [X])
    assert [k.name for k in seen] == ["e", "c", "n", "p+r", "q", "s+y"]
    assert seen[3].op == "matmul+relu"
    assert seen[3].kernel == "matmul"
    np.testing.assert_allclose(seen[0].got[0], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(seen[2].got[0], seen[4].got[0][:3])
    assert beside_meaning(seen, Tolerance())["agrees"].all()


@pytest.mark.parametrize("shape", [(48,), (6, 8), (2, 3, 8), (2, 3, 2, 4)])
def test_tensors_of_any_rank_are_read_whole(shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    x = X[:3].reshape(-1)[: math.prod(shape)].reshape(shape)
    model = parsed(f"one (float[{dims}] x) => (float[{dims}] y) {{ y = Exp(x) }}")
    (seen,) = observe(bucketize.compile(bucketize.from_onnx(model)).image, [x])
    np.testing.assert_allclose(seen.got[0], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(seen.meaning()[0], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(("wrong", "other"), [("e", "n"), ("n", "e")])
def test_a_wrong_kernel_is_told_from_those_that_read_what_it_makes(
    monkeypatch: pytest.MonkeyPatch, wrong: str, other: str
) -> None:
    exe = confused(monkeypatch, wrong, other)
    frame = beside_meaning(observe(exe.image, [X]), Tolerance())
    assert list(frame[~frame["agrees"].astype(bool)]["node"]) == [wrong]
    assert frame["inputs_agree"].all()


@pytest.mark.parametrize("build", [fire, dense, slices, stacked], ids=lambda f: f.__name__)
def test_what_lies_in_other_tensors_is_seen(build: Callable[[Net], Function]) -> None:
    fn = build(Net())
    exe = bucketize.compile(Module({"main": fn}))
    x = np.random.default_rng(1).standard_normal((2, 20, 9, 7)).astype(np.float32)
    seen = observe(exe.image, [x])
    segment = segment_of(fn)
    assert len(seen) == len(segment.calls)
    assert beside_meaning(seen, Tolerance())["agrees"].all()
    if build is fire:  # channels of one image: their rows lie apart
        places = [segment.place(call.binding.outs[0]).pitch for call in segment.calls]
        assert places.count(50) == 2


@pytest.mark.parametrize(
    ("name", "sizes", "count"), [("mlp", {"N": 3}, 3), ("bert-mini", {"B": 2, "S": 16}, 44)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_dispatched_and_saved_programs_are_seen(
    tmp_path: Path, name: str, sizes: dict[str, int], count: int, threads: int
) -> None:
    bounds = {symbol: (1, 2 * size) for symbol, size in sizes.items()}
    mod = bucketize.dispatch(bucketize.from_onnx(zoo.build(name), bounds=bounds), log_dispatcher)
    exe = bucketize.compile(mod, lazy=True, threads=threads)
    inputs = zoo.inputs(name, sizes)
    arrays = [inputs[input] for input in exe.inputs]
    live = observe(exe.image, arrays)
    assert len(live) == count
    assert beside_meaning(live, Tolerance())["agrees"].all()
    exe.save(tmp_path / "p.bkt")
    saved = observe(bucketize.load(tmp_path / "p.bkt").image, arrays)
    frame = beside_another(live, saved, Tolerance(0, 0))
    assert len(frame) == count
    assert frame["agrees"].all()


def test_rounds_of_a_loop_are_seen_each() -> None:
    model = parsed(
        """loop (float[N, 16] x) => (float[N, 16] y) {
            y = Loop(three, yes, x) <body = round (int64 i, bool go, float[N, 16] a)
                => (bool on, float[N, 16] b) { on = Identity(go)  b = Exp(a) }>
        }""",
        three=np.array(3),
        yes=np.array(True),
    )
    exe = bucketize.compile(bucketize.from_onnx(model, bounds={"N": (1, 8)}))
    seen = observe(exe.image, [-np.abs(X)])
    assert [k.op for k in seen].count("exp") == 3
    assert beside_meaning(seen, Tolerance())["agrees"].all()


# --- two programs ---


def kernel(op: str, values: list[float]) -> ObservedKernel:
    return ObservedKernel(
        f"node {op}", op, "template", [np.array(values)], lambda: [np.array(values)]
    )


def test_kernels_of_two_programs_are_paired_in_order() -> None:
    one = [kernel("a", [1.0]), kernel("only", [0.0]), kernel("b", [2.0]), kernel("c", [3.0, 4.0])]
    other = [kernel("a", [1.0]), kernel("b", [2.5]), kernel("more", [0.0]), kernel("c", [3.0])]
    frame = beside_another(one, other, Tolerance())
    assert list(frame["op"]) == ["a", "b"]  # `c` is of another shape
    assert list(frame["agrees"]) == [True, False]
    assert list(frame["output"]) == ["template 0", "template 2"]
    assert frame["absolute"][1] == pytest.approx(0.5)
    assert frame["inputs_agree"].isna().all()
    assert list(frame) == list(beside_meaning(one, Tolerance())) == COLUMNS
