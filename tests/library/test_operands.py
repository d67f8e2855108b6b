"""Numbers that operands of a run hold: a library gives what the interpreter does, or an error.

They are drawn in and out of range, the least and the greatest among them; what is read and written
lies before a page that nobody may touch.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from c_library import ADDRESS, CModel, saved_library
from composites import Composite

from bucketize.errors import BucketizeError
from bucketize.executable import Executable
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.onnx import from_onnx

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is Linux's")

SHAPE, MEMORY = 1, 2
Rng = np.random.Generator
Draw = Callable[[Rng], Sequence[np.ndarray]]
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def x(rng: Rng, *most: int) -> np.ndarray:
    """Floats that are whole, so that sums of them do not hang on the order."""
    return rng.integers(-9, 9, [rng.integers(0, m + 1) for m in most]).astype(np.float32)


def near(rng: Rng, *count: int, most: int = 4) -> np.ndarray:
    """Mostly small numbers."""
    far = rng.choice([LEAST, LEAST + 1, -(1 << 62), 1 << 40, 1 << 62, MOST], count)
    return np.asarray(np.where(rng.random(count) < 0.05, far, rng.integers(-most, most + 1, count)))


def shapes(rng: Rng) -> list[np.ndarray]:
    a = x(rng, 4, 6)
    one, other = rng.permutation(a.shape)
    fits = [[0, -1, 1], [-1, 0, 1], [one, 1, other], [other, -1, one], [2, -1, 3], [-1, 1, 0]]
    to = fits[rng.integers(6)] if rng.random() < 0.7 else near(rng, 3)
    return [a, np.array(to, np.int64)]


def parts(rng: Rng) -> list[np.ndarray]:
    a = x(rng, 3, 7)
    first = rng.integers(0, a.shape[1] + 1)
    fits = np.array([first, 0, a.shape[1] - first])
    return [a, fits if rng.random() < 0.6 else fits + near(rng, 3, most=2)]


def ends(rng: Rng, dtype: str) -> list[np.ndarray]:
    if np.dtype(dtype).kind == "f":
        numbers = rng.choice([0, 0.25, -0.5, 1, 3, 7.75, np.nan, np.inf, -np.inf, 1e30], 3)
        return [np.array(n, dtype) for n in numbers]
    return [*(rng.integers(-9, 9, 3) if dtype == "int32" else near(rng, 3, most=9)).astype(dtype)]


def alike(rng: Rng, *most: int) -> np.ndarray:
    """Numbers that come several times."""
    a = rng.choice(
        np.array([0.0, -0.0, 1, 2, np.inf], np.float32), [rng.integers(1, m + 1) for m in most]
    )
    return np.asarray(np.where(rng.random(a.shape) < 0.05, np.nan, a).astype(np.float32))


RANGE = "({0} a, {0} b, {0} c) => ({0}[P] y) {{ y = Range(a, b, c) }}"
UNIQUE = (
    "(float[N, M] x) => (float[P, Q] y, int64[R] f, int64[S] b, int64[R] c) { y, f, b, c = Unique"
)
CASES: dict[str, tuple[str, Draw]] = {
    "slice": (
        "(float[N, M] x, int64[1] a, int64[1] b) => (float[P, M] y) { y = Slice(x, a, b) }",
        lambda r: [x(r, 5, 3), near(r, 1, most=7), near(r, 1, most=7)],
    ),
    "slice_backwards": (
        "(float[N, M] x, int64[2] a, int64[2] b) => (float[P, Q] y) "
        "{ y = Slice(x, a, b, $[1, 0], $[-2, 3]) }",
        lambda r: [x(r, 5, 7), near(r, 2, most=9), near(r, 2, most=9)],
    ),
    "slice_by_int32": (
        "(float[N] x, int32[1] a, int32[1] b) => (float[P] y) { y = Slice(x, a, b) }",
        lambda r: [x(r, 5), *np.clip(near(r, 2, 1, most=9), -(1 << 31), 9).astype(np.int32)],
    ),
    "slice_by_steps": (
        "(float[N, M] x, int64[1] a, int64[1] b, int64[1] s) => (float[P, Q] y) "
        "{ y = Slice(x, a, b, $[-1], s) }",
        lambda r: [x(r, 2, 9), *near(r, 2, 1, most=12), near(r, 1, most=3)],
    ),
    "slice_along_axes": (
        "(float[N, M] x, int64[2] a, int64[2] b, int64[2] axes, int64[2] s) => (float[P, Q] y) "
        "{ y = Slice(x, a, b, axes, s) }",
        lambda r: [x(r, 5, 7), *near(r, 2, 2, most=9), r.integers(-3, 3, 2), near(r, 2, most=3)],
    ),
    "reshape": (
        "(float[N, M] x, int64[3] to) => (float[P, Q, R] y) { y = Reshape(x, to) }",
        shapes,
    ),
    "reshape_with_zeros": (
        "(float[N, M] x, int64[3] to) => (float[P, Q, R] y) { y = Reshape<allowzero = 1>(x, to) }",
        lambda r: [(drawn := shapes(r))[0], np.where(drawn[1] == -1, 1, drawn[1])],  # or 0 or -1
    ),
    "cumsum": (
        "(float[N, M, 2] x, int64 a) => (float[N, M, 2] y) { y = CumSum<reverse = 1>(x, a) }",
        lambda r: [x(r, 4, 5, 2)[..., :1].repeat(2, -1), near(r)],
    ),
    "reduce": (
        "(float[N, M, 2] x, int64[1] a) => (float[P, Q] y, float[R, S, T] z) "
        "{ y = ReduceSum<keepdims = 0>(x, a) z = ReduceMax(x, a) }",
        lambda r: [x(r, 4, 5, 2)[..., :1].repeat(2, -1) + 1, near(r, 1)],
    ),
    "squeeze": (
        "(float[N, M, K] x, int64[1] a) => (float[P, Q] y) { y = Squeeze(x, a) }",
        lambda r: [x(r, 1, 2, 1), near(r, 1)],
    ),
    "unsqueeze": (
        "(float[N, M] x, int64[1] a) => (float[P, Q, R] y) { y = Unsqueeze(x, a) }",
        lambda r: [x(r, 3, 2), near(r, 1)],
    ),
    "split": (
        "(float[N, M] x, int64[3] p) => (float[N, P] a, float[N, Q] b, float[N, R] c) "
        "{ a, b, c = Split<axis = 1>(x, p) }",
        parts,
    ),
    **{
        f"range_{t}": (RANGE.format(n), lambda r, t=t: ends(r, t))
        for t, n in {
            "int64": "int64",
            "int32": "int32",
            "float32": "float",
            "float64": "double",
        }.items()
    },
    "unique": (
        UNIQUE.replace("[N, M]", "[N]").replace("[P, Q]", "[P]") + "(x) }",
        lambda r: [alike(r, 40)],
    ),
    "unique_rows": (UNIQUE + "<axis = 0>(x) }", lambda r: [alike(r, 40, 3)]),
    "unique_columns": (UNIQUE + "<axis = 1, sorted = 0>(x) }", lambda r: [alike(r, 2, 40)]),
}


def model_of(name: str) -> Module:
    bounds = {symbol: (0, 64) for symbol in "NMK" if symbol in CASES[name][0].partition("=>")[0]}
    return from_onnx(Composite(name, [], CASES[name][0]).model, bounds=bounds)


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte lies before a page that is not there."""
    page = mmap.PAGESIZE
    size = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, size + page)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ADDRESS(place + size), page, 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes)
    copy[:] = array.reshape(-1)
    return copy.reshape(array.shape)


@pytest.fixture
def library(name: str, tmp_path: Path) -> Iterator[tuple[Module, Executable, CModel]]:
    mod = model_of(name)
    exe = saved_library(mod, tmp_path / "m.so")
    with CModel(tmp_path / "m.so") as model:
        yield mod, exe, model


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_operands(name: str, library: tuple[Module, Executable, CModel]) -> None:
    mod, exe, model = library
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(400):
        inputs = [guarded(np.asarray(a, order="C")) for a in CASES[name][1](rng)]
        try:
            want = evaluate_module(mod, *inputs)
        except BucketizeError:
            wrong += 1
            with pytest.raises(BucketizeError):
                exe.run(*inputs)
            empty = [np.zeros(1)] * len(exe.outputs)
            none = (ADDRESS * len(empty))()
            assert model.run(inputs, empty, outputs=none) in (SHAPE, MEMORY), inputs
            assert model.error
            continue
        same(want, exe.run(*inputs))
        outputs = [guarded(np.zeros_like(w)) for w in want]
        assert model.run(inputs, outputs) == 0, (model.error, inputs)
        assert model.ended(want) == [w.shape for w in want]
        same(want, outputs)
    assert wrong < 350


def same(want: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> None:
    for w, g in zip(want, got, strict=True):
        assert (w.dtype, w.shape, w.tobytes()) == (g.dtype, g.shape, g.tobytes())
