"""Libraries of C: what they compute, bit for bit, and what they say of what is wrong."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import test_capture
import test_rounds
from c_library import ADDRESS, CModel, addresses, same_as, saved_library
from composites import Composite
from conftest import Golden
from onnx import numpy_helper
from onnx_model import parse
from test_composites import ALL

import bucketize
from bucketize import ops, zoo
from bucketize.errors import ArgumentError, BucketizeError, ProgramError, UnsupportedModelError
from bucketize.executable import Executable
from bucketize.ir import Builder, Const, Module, Var
from bucketize.library.flow import Flow
from bucketize.library.header import C_TYPES
from bucketize.library.shared_object import text_of
from bucketize.link.plan import PASSES
from bucketize.onnx import from_onnx
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

pytestmark = [
    pytest.mark.usefixtures("few_registers"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is Linux's"),
]

SHAPE, MEMORY, ARRAY = 1, 2, 3
N, M = Symbol("N", 1, 64), Symbol("M", 1, 9)


def mlp() -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 784)).astype(np.float32)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Path]:
    """A library of ten clones, and what it is of."""
    place = tmp_path_factory.mktemp("library") / "model.so"
    return saved_library(bucketize.dispatch(mlp(), log_dispatcher), place), place


@pytest.fixture
def path(written: tuple[Executable, Path]) -> Path:
    return written[1]


@pytest.fixture
def model(path: Path) -> Iterator[CModel]:
    with CModel(path) as its:
        yield its


# --- results -------------------------------------------------------------------------------------


def test_every_clone_computes_what_python_does(written: tuple[Executable, Path]) -> None:
    same_as(*written, [[rows(n)] for n in (1, 2, 3, 8, 33, 64, 5, 1, 64, 64)])


@pytest.mark.parametrize("name", ["bert-mini", pytest.param("mobilenetv2", marks=pytest.mark.slow)])
def test_models_of_the_zoo(name: str, tmp_path: Path) -> None:
    mod = bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name])
    exe = saved_library(mod, tmp_path / "model.so")
    sizes = [{s: min(hi, max(lo, n)) for s, (lo, hi) in zoo.BOUNDS[name].items()} for n in (1, 3)]
    same_as(exe, tmp_path / "model.so", [list(zoo.inputs(name, s).values()) for s in sizes])


def tried(composite: Composite, path: Path) -> bool:
    """Whether a composite can be a library; if so, it gives what Python does."""
    mod = from_onnx(composite.model, bounds=composite.bounds(16))
    exe = bucketize.compile(bucketize.dispatch(mod, log_dispatcher))
    try:
        exe.save_library(path)
    except ProgramError as e:
        message = str(e)
    else:
        message = ""
    if message:
        assert "no library has it" in message or "a library " in message
        return False
    legal = []
    for inputs in map(composite.inputs, composite.sizes):
        arrays = [np.asarray(inputs[name]) for name in exe.inputs]
        try:
            exe.run(*arrays)
        except BucketizeError:
            continue
        legal.append(arrays)
    same_as(exe, path, legal)
    return bool(legal)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_composites_that_are_native_code(name: str, tmp_path: Path) -> None:
    tried(ALL[name], tmp_path / "model.so")


def test_results_that_no_kernel_writes(tmp_path: Path) -> None:
    """Inputs in another shape, one result twice, dims."""
    x, out = Var("x", tensor("float32", N, 3)), Builder()
    y = out.emit(ops.relu, x)
    flat = out.emit(ops.reshape, x, newshape=(3 * N,))
    shape = out.emit(ops.shape_of, x)
    mod = Module({"main": out.function("main", [x], [y, flat, y, shape])})
    exe = saved_library(mod, tmp_path / "model.so")
    calls = [[np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)] for n in (1, 5, 64, 2)]
    same_as(exe, tmp_path / "model.so", calls)


def test_results_that_are_inputs_or_constants(tmp_path: Path) -> None:
    x, out = Var("x", tensor("float32", N)), Builder()
    y = out.emit(ops.relu, x)
    mod = Module({"main": out.function("main", [x], [y, x, Const(np.arange(3)), x])})
    same_as(
        saved_library(mod, tmp_path / "model.so"),
        tmp_path / "model.so",
        [[-np.ones(3, np.float32)]],
    )


def test_dims_that_follow_from_others(tmp_path: Path) -> None:
    x, out = Var("x", tensor("float32", N, 2 * N)), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(ops.relu, x)])})
    exe = saved_library(mod, tmp_path / "model.so")
    same_as(exe, tmp_path / "model.so", [[np.ones((n, 2 * n), np.float32)] for n in (1, 3)])
    with CModel(tmp_path / "model.so") as model:
        array = np.ones((3, 5), np.float32)
        assert model.run([array], [array.copy()]) == SHAPE
        assert model.error == "input x: dim 1 must be 2*N=6, got 5"


def test_two_libraries_in_one_process(tmp_path: Path, written: tuple[Executable, Path]) -> None:
    exe = saved_library(mlp(), tmp_path / "other.so")
    same_as(exe, tmp_path / "other.so", [[rows(7)]])
    same_as(*written, [[rows(64)]])


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 784), "input data: dim 0 must be N in [1, 64], got 0"),
        ((65, 784), "input data: dim 0 must be N in [1, 64], got 65"),
        ((-3, 784), "input data: dim 0 must be N in [1, 64], got -3"),
        ((3, 783), "input data: dim 1 must be 784, got 783"),
        ((1 << 62, 784), f"input data: dim 0 must be N in [1, 64], got {1 << 62}"),
    ],
)
def test_sizes_that_are_not_legal(model: CModel, shape: tuple[int, ...], message: str) -> None:
    sizes, output = np.array(shape, np.int64), np.zeros((3, 10), np.float32)
    assert model.run([rows(3)], [output], shapes=addresses([sizes])) == SHAPE
    assert model.error == message
    assert not output.any()
    same_output(model)


def test_sizes_of_no_bucket(tmp_path: Path) -> None:
    x, out = Var("x", tensor("float32", N, 4)), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(ops.relu, x)])})
    cut = bucketize.dispatch(mod, lambda _: {"x": {0: [(1, 9)]}}, fallback=False)
    saved_library(cut, tmp_path / "model.so")
    with CModel(tmp_path / "model.so") as model:
        array = np.ones((9, 4), np.float32)
        assert model.run([array], [array.copy()]) == SHAPE
        assert model.error == "no bucket holds these sizes"


def same_output(model: CModel) -> None:
    """The next call is as if nothing was wrong."""
    output = np.zeros((3, 10), np.float32)
    assert model.run([rows(3)], [output]) == 0
    assert output.any()


NOTHING = ADDRESS()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"inputs": NOTHING}, "there is no array at place 0"),
        ({"inputs": (ADDRESS * 1)(None)}, "there is no array at place 0"),
        ({"shapes": NOTHING}, "there is no shape at place 0"),
        ({"shapes": (ADDRESS * 1)(None)}, "there is no shape at place 0"),
        ({"outputs": NOTHING}, "there is no array at place 0"),
        ({"lengths": NOTHING}, "there is no array at place 0"),
        ({"lengths": (ctypes.c_int64 * 1)(119)}, "an output needs 120 bytes, got 119"),
        ({"lengths": (ctypes.c_int64 * 1)(-1)}, "an output needs 120 bytes, got -1"),
    ],
)
def test_arrays_that_are_not_there(model: CModel, other: dict[str, object], message: str) -> None:
    output = np.zeros((3, 10), np.float32)
    assert model.run([rows(3)], [output], **other) == ARRAY
    assert model.error == message
    assert not output.any()
    same_output(model)


def test_no_context_at_all(path: Path) -> None:
    with CModel(path) as model:
        library = model.library
        assert library["open"](None) == ARRAY
        library["close"](None)
        assert library["error"](None) is None
        assert library["run"](None, None, None, None, None) == ARRAY
        assert library["shape"](None, None, None) == ARRAY
        assert library["shape"](model.context, None, None) == ARRAY


def test_what_inputs_and_outputs_are(model: CModel) -> None:
    library = model.library
    assert (library["inputs"](), library["outputs"]()) == (1, 1)
    assert library["input"](ctypes.c_int64(0)) == b"data: float32[N, 784]"
    assert library["output"](ctypes.c_int64(0)) == b"output: float32[N, 10]"
    for number in (-1, 1, 1 << 60):
        assert library["input"](ctypes.c_int64(number)) is None
        assert library["output"](ctypes.c_int64(number)) is None


def test_indices_out_of_range_are_told(tmp_path: Path) -> None:
    x, i, out = Var("x", tensor("float32", N)), Var("i", tensor("int64", M)), Builder()
    mod = Module({"main": out.function("main", [x, i], [out.emit(ops.gather, x, i, axis=0)])})
    saved_library(mod, tmp_path / "model.so")
    with CModel(tmp_path / "model.so") as model:
        output = np.zeros(2, np.float32)
        numbers = [np.arange(5, dtype=np.float32), np.array([3, 5])]
        assert model.run(numbers, [output]) == SHAPE
        assert model.error == "in gather: index 5 is out of range for extent 5"
        assert model.run([numbers[0], np.array([3, -1])], [output]) == 0
        assert output.tolist() == [3, 4]


def test_symbols_that_must_be_equal(tmp_path: Path) -> None:
    x, y, out = Var("x", tensor("float32", N)), Var("y", tensor("float32", N)), Builder()
    mod = Module({"main": out.function("main", [x, y], [out.emit(ops.add, x, y)])})
    saved_library(mod, tmp_path / "model.so")
    with CModel(tmp_path / "model.so") as model:
        ones = np.ones(4, np.float32)
        assert model.run([ones, ones[:3]], [np.zeros(4, np.float32)]) == SHAPE
        assert model.error == "input y: dim 0 must be N=4, got 3"


def test_sizes_at_which_types_do_not_fit(tmp_path: Path) -> None:
    x, y, out = Var("x", tensor("float32", N)), Var("y", tensor("float32", M)), Builder()
    mod = Module({"main": out.function("main", [x, y], [out.emit(ops.add, x, y)])})
    exe = saved_library(mod, tmp_path / "model.so")
    four, one = np.ones(4, np.float32), np.ones(1, np.float32)
    same_as(exe, tmp_path / "model.so", [[four, four], [four, one]])
    with CModel(tmp_path / "model.so") as model:
        assert model.run([four, four[:3]], [np.zeros(4, np.float32)]) == SHAPE
        assert model.error == "these sizes: a relation does not hold"


HOSTILE = """
import random, sys
import numpy as np
from c_library import ADDRESS, CModel, Path, addresses

SIZES = (-1, 0, 1, 3, 64, 65, 784, 1 << 40, -(1 << 63), (1 << 63) - 1)
data, output = np.ones((64, 784), np.float32), np.zeros((64, 10), np.float32)
rounds, is_loop = np.zeros((), np.int64), sys.argv[2] == "loop"
inputs = [rounds, data] if is_loop else [data]

def answers(model, rng):
    for _ in range(3000):
        first, second = rng.choice((1, 5, 64, *SIZES)), rng.choice((784, 784, 784, *SIZES))
        shape = np.array([first, second], np.int64)
        length = np.array([min(rng.choice((2560, *SIZES)), 2560)] * 2, np.int64)
        scalar = np.zeros(0, np.int64)
        shapes = [scalar, shape] if is_loop else [shape]
        rounds[...] = rng.choice((-(1 << 63), -1, 0, 1, 2, 7))
        other = {"shapes": addresses(shapes), "lengths": ADDRESS(length.ctypes.data)}
        if rng.random() < 0.2:
            name = rng.choice(("inputs", "shapes", "outputs", "lengths"))
            is_inside = rng.random() < 0.5 and name != "lengths"
            other[name] = (ADDRESS * 2)(None) if is_inside else ADDRESS()
        yield model.run(inputs, [output, output], **other)

for seed in range(3):
    with CModel(Path(sys.argv[1])) as model:
        told = set(answers(model, random.Random(seed)))
    assert told == {0, 1, 3}, (seed, told)
"""
GROWS = """(int64 n, float[N, 784] x) => (float[P, 3] y, float[R, 1, 3] rows) {
  w = Slice(x, zero, one)
  z = Slice(w, zero, three, one)
  y, rows = Loop(n, , z) <body = b (int64 i, bool c, float[A, 3] h)
    => (bool d, float[B, 3] g, float[1, 3] row) {
    d = Identity(c)
    e = Tanh(z)
    g = Concat<axis = 0>(h, e)
    row = ReduceSum<keepdims = 1>(g, zero)
  }>
}"""


def grows() -> Module:
    """A loop: a carried tensor grows by a row in each round, and its sums are stacked."""
    numbers = {"zero": 0, "one": 1, "three": 3}
    model = parse(GROWS)
    for name, value in numbers.items():
        array = np.array([value], np.int64)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return from_onnx(model, bounds={"N": (1, 64)})


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Path]:
    place = tmp_path_factory.mktemp("library") / "model.so"
    return saved_library(grows(), place), place


@pytest.mark.parametrize("name", ["clones", "loop"])
def test_hostile_calls_are_refused_and_the_process_lives(
    path: Path, loop: tuple[Executable, Path], name: str
) -> None:
    place = os.pathsep.join(p for p in sys.path if p)
    library = loop[1] if name == "loop" else path
    command = [sys.executable, "-P", "-c", HOSTILE, str(library), name]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": place})


# --- values --------------------------------------------------------------------------------------


def test_rounds_of_any_number(loop: tuple[Executable, Path]) -> None:
    """None, fewer than none, more than before."""
    counts = (3, 0, 1, -5, 7, 200, 2)
    calls = [[np.array(n), np.full((k + 1, 784), 0.1, np.float32)] for k, n in enumerate(counts)]
    same_as(*loop, calls)


def test_what_only_a_run_tells_is_told_after_it(loop: tuple[Executable, Path]) -> None:
    x = np.ones((2, 784), np.float32)
    with CModel(loop[1]) as model:
        library, zeros = model.library, [np.zeros((4, 3), np.float32), np.zeros(9, np.float32)]
        assert library["shape"](model.context, None, addresses(zeros)) == ARRAY
        assert model.error == "there is no shape at place 0"
        assert library["result"](model.context, ctypes.c_int64(0)) is None
        assert model.shapes([np.array(3), x], [2, 3]) == [(-1, 3), (-1, 1, 3)]
        assert model.run([np.array(3), x], zeros) == 0
        assert model.ended([np.zeros((4, 3)), np.zeros((3, 1, 3))]) == [(4, 3), (3, 1, 3)]
        assert library["result"](model.context, ctypes.c_int64(0)) == zeros[0].ctypes.data
        for number in (-1, 2, 1 << 60):
            assert library["result"](model.context, ctypes.c_int64(number)) is None
        assert model.run([np.array(4), x], zeros) == ARRAY
        assert model.error == "an output needs 60 bytes, got 48"
        assert library["result"](model.context, ctypes.c_int64(0)) is None
        assert library["result"](None, ctypes.c_int64(0)) is None


@pytest.mark.parametrize(
    ("extents", "answer", "message"),
    [
        ((3, -1), SHAPE, "in dyn.full: no extent can be -1"),
        ((1 << 62, 1), SHAPE, f"in dyn.full: no extent can be {1 << 62}"),
        ((1 << 40, 1 << 40), SHAPE, f"these sizes: {PASSES}"),
        ((1 << 50, 1), MEMORY, f"no memory for {4 << 50} bytes"),
    ],
)
def test_extents_that_values_bring(
    extents: tuple[int, int], answer: int, message: str, tmp_path: Path
) -> None:
    mod = from_onnx(parse("(int64[2] s) => (float[A, B] y) { y = ConstantOfShape(s) }"))
    exe = saved_library(mod, tmp_path / "model.so")
    same_as(exe, tmp_path / "model.so", [[np.array(s)] for s in ((2, 3), (0, 4), (5, 1))])
    with CModel(tmp_path / "model.so") as model:
        none = (ADDRESS * 1)()
        assert model.run([np.array(extents)], [np.zeros(1)], outputs=none) == answer
        assert model.error == message


def test_rows_of_rounds_that_differ(tmp_path: Path) -> None:
    rows = GROWS.replace("float[R, 1, 3]", "float[R, Q, 3]").replace(
        "float[1, 3] row", "float[Z, 3] row"
    )
    model = parse(rows.replace("row = ReduceSum<keepdims = 1>(g, zero)", "row = Identity(g)"))
    for name, value in {"zero": 0, "one": 1, "three": 3}.items():
        array = np.array([value], np.int64)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    exe = saved_library(from_onnx(model), tmp_path / "model.so")
    same_as(
        exe, tmp_path / "model.so", [[np.array(n), np.ones((1, 784), np.float32)] for n in (0, 1)]
    )
    with CModel(tmp_path / "model.so") as model_:
        arrays = [np.array(2), np.ones((1, 784), np.float32)]
        assert model_.run(arrays, [np.zeros(9), np.zeros(9)]) == SHAPE
        assert re.fullmatch(r"in loop: rows of .* differ: 2 and 3", model_.error)


ROUNDS = {**test_rounds.CASES, "exchanged": ("p = Identity(b) q = Identity(a)", test_rounds.TWO, 0)}


@pytest.mark.parametrize("name", ROUNDS)
def test_loops(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_rounds.CASES", ROUNDS)
    exe = saved_library(test_rounds.module_of(name), tmp_path / "model.so")
    sizes = ((0, 3), (1, 5), (2, 33), (7, 4), (3, 2))
    calls = [[np.array(k), test_rounds.random(n), test_rounds.random(n, 1)] for k, n in sizes]
    same_as(exe, tmp_path / "model.so", calls)


@pytest.mark.parametrize("name", test_capture.CASES)
def test_loops_over_rows(name: str, tmp_path: Path) -> None:
    exe = saved_library(test_capture.module_of(**test_capture.CASES[name]), tmp_path / "model.so")
    calls = [
        list(test_capture.inputs_of(*s, 0).values()) for s in dict.fromkeys(test_capture.SHAPES)
    ]
    same_as(exe, tmp_path / "model.so", calls)


def test_a_bad_index_ends_rounds(tmp_path: Path) -> None:
    saved_library(test_rounds.module_of("taken"), tmp_path / "model.so")
    with CModel(tmp_path / "model.so") as model:
        one = np.ones(1, np.float32)
        assert model.run([np.array(5), one, one], [one.copy(), one.copy()]) == SHAPE
        assert model.error == "in gather: index 1 is out of range for extent 1"


def test_a_loaded_program_with_loops_and_values(tmp_path: Path) -> None:
    bucketize.compile(grows()).save(tmp_path / "m.bkt")
    exe = bucketize.load(tmp_path / "m.bkt")
    exe.save_library(tmp_path / "model.so")
    same_as(exe, tmp_path / "model.so", [[np.array(3), np.ones((2, 784), np.float32)]])


# --- what cannot be a library --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (
            "(float[N, M, 2] x, int64[2] a) => (float[P] y) { y = ReduceSum<keepdims = 0>(x, a) }",
            "dyn.reduce_sum",
        ),
        ("(float16[N] x) => (float16[P] y) { y = Unique(x) }", "row_order"),
    ],
)
def test_what_numpy_computes_is_named(text: str, op: str, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=rf"main is no native code alone \(numpy computes {op}"):
        saved_library(from_onnx(parse(text)), tmp_path / "model.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "numbers", "message"),
    [
        (
            "(int64[1] s, int64[1] z) => (int64[P] y) "
            "{ n = Constant<value = int64[3] {1, 2, 3}>() y = Slice(n, z, z, z, s) }",
            [[0], [0]],
            "in dyn.strided_slice: a step of 0, or an axis that is named twice",
        ),
        (
            "(int64[2] to, int64[3] x) => (int64[P, Q] y) { y = Reshape(x, to) }",
            [[-1, -1], [1, 2, 3]],
            "in dyn.reshape: more than one -1, or a 0 that copies no axis of int64[3]",
        ),
        (
            "(int64[2] p, int64[3] x) => (int64[P] y, int64[Q] z) { y, z = Split(x, p) }",
            [[1, 1], [1, 2, 3]],
            "in dyn.split: parts that do not add up to axis 0 of int64[3]",
        ),
        (
            "(int64 a, int64 b) => (int64[P] y) { y = Range(a, b, a) }",
            [0, 3],
            "in dyn.arange: no number of steps leads from start to stop, or too many",
        ),
        (
            "(int64 a, int64[3, 1] x) => (int64[3, 1] y) { y = CumSum(x, a) }",
            [2, [[1], [2], [3]]],
            "in gather: index 2 is out of range for extent 2",
        ),
    ],
)
def test_numbers_of_a_run_that_are_wrong(
    text: str, numbers: list[object], message: str, tmp_path: Path
) -> None:
    """C says what Python does."""
    exe, arrays = (
        saved_library(from_onnx(parse(text)), tmp_path / "model.so"),
        list(map(np.array, numbers)),
    )
    with pytest.raises(BucketizeError, match=re.escape(message)):
        exe.run(*arrays)
    with CModel(tmp_path / "model.so") as model:
        outputs = [np.zeros(9)] * len(exe.outputs)
        assert model.run(arrays, outputs, outputs=(ADDRESS * len(outputs))()) == SHAPE
        assert model.error == message


def test_other_inputs_than_tensors_are_refused(tmp_path: Path) -> None:
    model = parse("(seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence<axis = 0>(x) }")
    with pytest.raises(
        ProgramError, match="a library takes tensors of known rank, no sequences and nothing"
    ):
        saved_library(from_onnx(model), tmp_path / "model.so")


def test_dims_of_another_dtype_are_written_by_a_kernel(tmp_path: Path) -> None:
    model = parse("(float[N, 3] x) => (z, y) { s = Shape(x) z = Relu(x) y = Cast<to = 6>(s) }")
    exe = saved_library(from_onnx(model), tmp_path / "model.so")
    same_as(exe, tmp_path / "model.so", [[np.ones((n, 3), np.float32)] for n in (2, 5)])


def test_code_of_another_kind_is_told() -> None:
    with pytest.raises(ProgramError, match="of this machine code: it is no object file"):
        text_of([b"no code at all, and long enough to be one for a header of 64 bytes"], "data")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ALL)
def test_what_can_be_a_library(name: str, golden: Golden) -> None:
    """A composite, or why not."""
    program = bucketize.compile(from_onnx(ALL[name].model), lazy=True).program
    try:
        Flow(program)
        told = "yes"
    except ProgramError as e:
        told = str(e)
    golden.check(f"{told}\n")


def test_a_library_is_no_model_to_be_read(path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"\.so is no ONNX model but a library, for"):
        from_onnx(path)


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="format: expected so or c, got 'dll'"):
        bucketize.compile(mlp()).save_library(tmp_path / "m.dll", "dll")


@pytest.mark.parametrize("name", ["m.h", ".", "/", "", "a\0b"])
def test_a_library_has_a_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"expected (a name for the|the path of a) library"):
        bucketize.compile(mlp()).save_library(name)


def test_the_folder_where_it_is_written_may_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters that are none of C's, too."""
    place = tmp_path / "né²t"
    place.mkdir()
    monkeypatch.chdir(place)
    bucketize.compile(mlp()).save_library(".", "c")
    assert (place / "n__t.h").exists()
    done = subprocess.run(["make"], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (place / "n__t.so").exists()


def test_a_saved_program_is_no_model_to_be_read(tmp_path: Path) -> None:
    bucketize.compile(mlp()).save(tmp_path / "m.bkt")
    with pytest.raises(UnsupportedModelError, match=r"but a program .*: bucketize\.load runs it"):
        from_onnx(tmp_path / "m.bkt")


@pytest.mark.parametrize("format", ["so", "c"])
def test_a_place_that_cannot_hold_it(tmp_path: Path, format: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgramError, match="cannot write"):
        bucketize.compile(mlp()).save_library(tmp_path / "file" / "model.so", format)


# --- the file ------------------------------------------------------------------------------------


def test_of_other_files_it_needs_the_c_library_alone(path: Path) -> None:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("no readelf, of Debian's binutils")
    command = [tool, "--wide", "--dynamic", "--program-headers", "--dyn-syms", str(path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line}
    assert needed == {"libc.so.6", "libm.so.6"}
    (stack,) = (line for line in told.splitlines() if "GNU_STACK" in line)
    assert " RW " in stack
    assert not any(" RWE " in line for line in told.splitlines())
    symbols = [line.split() for line in told.splitlines() if " FUNC " in line]
    own = {row[-1] for row in symbols if row[6] != "UND"}
    assert all(name.startswith("bucketize_model_") for name in own)
    assert len(own) == 10


def test_every_dtype_has_a_word_of_c() -> None:
    assert {np.dtype(d).name for d in "?bBhHiIqQefd"} == C_TYPES.keys()


def test_the_header_tells_names_dtypes_symbols_and_bounds(path: Path) -> None:
    text = path.with_suffix(".h").read_text()
    assert "     0  data: float32[N, 784], float\n" in text
    assert "     N: at least 1, at most 64\n" in text
    assert "int64_t bucketize_model_run(bucketize_model *context," in text
