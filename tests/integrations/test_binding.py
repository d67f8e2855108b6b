"""`OrtValue` and `IOBinding` beside onnxruntime's, and results in arrays of the caller."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops
from bucketize.errors import ArgumentError, ShapeError, UnknownNameError
from bucketize.integrations.binding import DTYPES
from bucketize.ir import Builder, Module, Var
from bucketize.types import OptionalType, Symbol, tensor
from dispatchers import log_dispatcher

MODEL = parse(
    "(float[N, 4] x, float[4] b) => (float[N, 4] y, float[N, 4] z) { y = Add(x, b) z = Relu(y) }"
).SerializeToString()
X = np.arange(-4, 8, dtype=np.float32).reshape(3, 4)
B = np.linspace(-1, 1, 4, dtype=np.float32)


def by_arrays(library: ModuleType, session: Any) -> list[Any]:
    """Inputs and outputs by name, in new memory."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("b", B)
    binding.bind_output("z")
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    results = binding.copy_outputs_to_cpu()
    return [*results, *(v.numpy() for v in binding.get_outputs())]


def by_values(library: ModuleType, session: Any) -> list[Any]:
    """Values that are filled again and again."""
    x = library.OrtValue.ortvalue_from_numpy(X.copy())
    z = library.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32, "cpu", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("b", library.OrtValue.ortvalue_from_numpy(B))
    binding.bind_ortvalue_output("z", z)
    session.run_with_iobinding(binding)
    first = z.numpy().copy()
    x.update_inplace(-X)
    session.run_with_iobinding(binding)
    told = [x.shape(), x.data_type(), x.device_name(), x.is_tensor(), x.has_value()]
    sizes = [x.tensor_size_in_bytes(), x.is_tensor_sequence(), z.data_ptr() != x.data_ptr()]
    return [first, z.numpy(), binding.get_outputs()[0].numpy(), *told, *sizes]


def by_addresses(library: ModuleType, session: Any) -> list[Any]:
    """Memory of the caller's."""
    z = np.zeros((3, 4), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_cpu_input("b", B)
    binding.bind_output("z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.synchronize_inputs()
    binding.synchronize_outputs()
    return [z, len(binding.get_outputs())]


def by_ort_values(library: ModuleType, session: Any) -> list[Any]:
    """Values in a call."""
    make = library.OrtValue.ortvalue_from_numpy
    results = session.run_with_ort_values(["z"], {"x": make(X), "b": make(B)})
    return [r.numpy() for r in results]


@pytest.mark.parametrize("way", [by_arrays, by_values, by_addresses, by_ort_values])
def test_bindings_are_those_of_onnxruntime(way: Callable[..., list[Any]]) -> None:
    providers = ["CPUExecutionProvider"]
    ours, theirs = (
        way(library, library.InferenceSession(MODEL, providers=providers))
        for library in (bucketize, onnxruntime)
    )
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def session() -> bucketize.InferenceSession:
    return bucketize.InferenceSession(MODEL)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda b: b.bind_cpu_input("w", X), UnknownNameError, "no input named 'w'; known: b, x"),
        (lambda b: b.bind_output("w"), UnknownNameError, "no output named 'w'; known: y, z"),
        (lambda b: b.bind_output("y", "cuda"), ArgumentError, "expected cpu 0, .* got cuda 0"),
        (
            lambda b: b.bind_output("y", "cpu", 0, buffer_ptr=64),
            ArgumentError,
            "output 'y': an address wants an element_type and a shape",
        ),
        (
            lambda b: bucketize.OrtValue.ortvalue_from_numpy(X, "cuda", 1),
            ArgumentError,
            "expected cpu 0, the only one here, got cuda 1",
        ),
        (
            lambda b: b.bind_input("x", "cpu", 0, np.float32, X.shape, 0),
            ArgumentError,
            "expected the address of 48 bytes, got 0",
        ),
        (lambda b: bucketize.OrtValue(None).shape(), ArgumentError, "the value is no tensor"),
        (
            lambda b: session().run_with_iobinding(X),
            ArgumentError,
            r"expected what session.io_binding\(\) makes, got ndarray",
        ),
    ],
)
def test_what_cannot_be_bound(
    wrong: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrong(session().io_binding())


def test_a_binding_serves_other_sizes() -> None:
    binding = session().io_binding()
    binding.bind_cpu_input("b", B)
    binding.bind_output("z")
    for x in (X, X[:1], X):
        binding.bind_cpu_input("x", x)
        binding.run()
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], np.maximum(x + B, 0))


def test_a_value_is_seen_by_dlpack() -> None:
    value = bucketize.OrtValue.ortvalue_from_numpy(X.copy())
    seen = np.from_dlpack(value)
    assert seen.ctypes.data == value.data_ptr()
    np.testing.assert_array_equal(seen, X)


# --- results in arrays of the caller -------------------------------------------------------------


def executable(threads: int = 1) -> bucketize.Executable:
    mod = bucketize.from_onnx(MODEL, bounds={"N": (1, 64)})
    return bucketize.compile(bucketize.dispatch(mod, log_dispatcher), threads=threads)


def test_results_are_written_where_they_belong() -> None:
    exe = executable()
    y, z = np.zeros_like(X), np.zeros_like(X)
    results = exe.run_into([y, z], X, B)
    assert results[0] is y
    assert results[1] is z
    for mine, want in zip((y, z), exe.run(X, B), strict=True):
        np.testing.assert_array_equal(mine, want)
    new, same = exe.run_into([None, z], x=X, b=B)
    assert same is z
    np.testing.assert_array_equal(new, y)


@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_arrays_that_no_kernel_can_write_to_are_copied_to(limit: int | None) -> None:
    """With gaps, each in those of the other, shared with an input, or not aligned."""
    exe = executable()
    exe.limit(limit)
    y, z = exe.run(X, B)
    both = np.zeros((3, 8), np.float32)
    gaps, others = both[:, ::2], both[:, 1::2]
    odd = np.zeros(3 * 4 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)
    assert exe.run_into([gaps, odd], X, B)[0] is gaps
    np.testing.assert_array_equal(gaps, y)
    np.testing.assert_array_equal(odd, z)
    mine = X.copy()
    exe.run_into([None, mine], mine, B)
    np.testing.assert_array_equal(mine, z)
    exe.run_into([gaps, others], X, B)
    np.testing.assert_array_equal(both, np.stack([y, z], -1).reshape(3, 8))


def test_what_numpy_computes_is_copied() -> None:
    x, out = Var("x", tensor("float32", Symbol("N", 1, 9))), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(ops.nonzero, x)])})
    exe, places = bucketize.compile(mod), np.zeros((1, 2), np.int64)
    given = np.array([1, 0, 2], np.float32)
    assert exe.run_into([places], given)[0] is places
    assert places.tolist() == [[0, 2]]


def read_only() -> np.ndarray:
    array = np.zeros_like(X)
    array.flags.writeable = False
    return array


def test_a_scalar_is_bound_and_written_as_one() -> None:
    model = parse("(float s) => (float y) { y = Add(s, s) }").SerializeToString()
    for library in (bucketize, onnxruntime):
        session = library.InferenceSession(model, providers=["CPUExecutionProvider"])
        value = library.OrtValue.ortvalue_from_numpy(np.array(2, np.float32))
        into = library.OrtValue.ortvalue_from_numpy(np.array(0, np.float32))
        assert value.shape() == []
        binding = session.io_binding()
        binding.bind_ortvalue_input("s", value)
        binding.bind_ortvalue_output("y", into)
        session.run_with_iobinding(binding)
        assert into.numpy() == 4
        (result,) = session.run_with_ort_values(None, {"s": value})
        assert (result.shape(), result.numpy()) == ([], 4)


def test_dtypes_go_by_the_numbers_of_onnx_too() -> None:
    assert len(DTYPES) == 13  # all that are numbers of 8 bits and more, but for float8 and complex
    for number in DTYPES:
        value = bucketize.OrtValue.ortvalue_from_shape_and_type([2], number)
        assert value.numpy().dtype == onnx.helper.tensor_dtype_to_np_dtype(number)
    session = bucketize.InferenceSession(MODEL)
    binding, z = session.io_binding(), np.zeros((3, 4), np.float32)
    binding.bind_input("x", "cpu", 0, onnx.TensorProto.FLOAT, X.shape, X.ctypes.data)
    binding.bind_cpu_input("b", B)
    binding.bind_output("z", "cpu", 0, onnx.TensorProto.FLOAT, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(z, np.maximum(X + B, 0))
    with pytest.raises(ArgumentError, match=r"^expected a dtype, got 99$"):
        bucketize.OrtValue.ortvalue_from_shape_and_type([2], 99)
    with pytest.raises(ArgumentError, match=r"^expected a shape, got \[-1\]: "):
        bucketize.OrtValue.ortvalue_from_shape_and_type([-1], np.float32)


def test_an_optional_that_is_not_bound_is_absent() -> None:
    x, o = Var("x", tensor("float32", 3)), Var("o", OptionalType(tensor("float32", 3)))
    b = Builder()
    mod = Module({"main": b.function("main", [x, o], [b.emit(ops.optional_has_element, o)])})
    session = bucketize.InferenceSession(bucketize.to_onnx(mod))
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.zeros(3, np.float32))
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    assert not binding.copy_outputs_to_cpu()[0]


def test_a_value_is_updated_by_its_like_alone() -> None:
    value = bucketize.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    with pytest.raises(ArgumentError, match=r"^expected an array of shape \[2, 3\], got \[1, 3\]$"):
        value.update_inplace(np.ones((1, 3), np.float32))
    assert not value.numpy().any()


def test_a_capsule_is_taken_as_what_gives_one_is() -> None:
    value = bucketize.OrtValue.from_dlpack(X.__dlpack__())
    np.testing.assert_array_equal(value.numpy(), X)
    assert value.data_ptr() == X.ctypes.data


def test_lists_and_names_that_are_none_say_so() -> None:
    session = bucketize.InferenceSession(MODEL)
    with pytest.raises(ArgumentError, match=r"^input 'x': the list is no array of float32: "):
        session.run(None, {"x": [[1.0, 2.0], [1.0]], "b": B})
    with pytest.raises(ArgumentError, match=r"^expected inputs by name, got 0$"):
        session.run(None, {0: X, "b": B})


ROWS = np.zeros((5, 4), np.float32)


@pytest.mark.parametrize(
    ("into", "error", "message"),
    [
        ([ROWS[:3]] * 2, ArgumentError, "outputs 'y' and 'z': their arrays share memory"),
        ([ROWS[:3], ROWS[2:]], ArgumentError, "outputs 'y' and 'z': their arrays share memory"),
        (X.copy(), ArgumentError, "expected a list of arrays for y, z, got ndarray"),
        (None, ArgumentError, "expected a list of arrays for y, z, got NoneType"),
        ([None], ArgumentError, "expected a list of arrays for y, z, got 1"),
        ([None, 3], ArgumentError, "output 'z': expected an array, got int"),
        ([None, read_only()], ArgumentError, "output 'z': the array may not be written to"),
        (
            [None, np.zeros((2, 4), np.float32)],
            ShapeError,
            r"output 'z': expected an array of float32\[3, 4\], got float32\[2, 4\]",
        ),
        (
            [np.zeros((3, 4)), None],
            ShapeError,
            r"output 'y': expected an array of float32\[3, 4\], got float64\[3, 4\]",
        ),
    ],
)
def test_arrays_that_hold_no_result(into: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        executable().run_into(into, X, B)


class Foreign:
    """An array of another library, which knows DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_inputs_come_by_dlpack() -> None:
    exe = executable()
    for mine, want in zip(exe.run(Foreign(X), B), exe.run(X, B), strict=True):  # type: ignore[arg-type]
        np.testing.assert_array_equal(mine, want)
    with pytest.raises(ShapeError, match="input 'x': expected float32, got float64"):
        exe.run(Foreign(X.astype(np.float64)), B)  # type: ignore[arg-type]
