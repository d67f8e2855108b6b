"""onnxruntime's `OrtValue` and `IOBinding`: arrays that are named once, for many calls."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bucketize.errors import ArgumentError, unknown_name
from bucketize.executable import Executable
from bucketize.integrations.node import type_text
from bucketize.op import Array, Value
from bucketize.types import OptionalType, tensor
from bucketize.types.number import BFLOAT16

DEVICE = "cpu"
DTYPES: Mapping[int, Any] = {
    **dict(enumerate(["float32", "uint8", "int8", "uint16", "int16", "int32", "int64"], 1)),
    **dict(enumerate(["bool", "float16", "float64", "uint32", "uint64"], 9)),
    16: BFLOAT16,
}
"""By the numbers that ONNX has for them (`TensorProto.DataType`)."""


class Bindable(Protocol):
    """An `InferenceSession`: what it runs has inputs and outputs that can be bound."""

    executable: Executable


class OrtValue:
    """An array, under onnxruntime's name: nothing is copied to make one of an array."""

    def __init__(self, value: Value) -> None:
        """Hold a value; arrays come by the functions of the class.

        Args:
            value: an array, or a list of them, or None.

        """
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: str = DEVICE, device_id: int = 0
    ) -> OrtValue:
        """The value of an array, whose memory it shares.

        Args:
            numpy_obj: the array.
            device_type: "cpu", as there is no other.
            device_id: of the device.

        Returns:
            The value.

        Raises:
            ArgumentError: another device.

        """
        _check_device(device_type, device_id)
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = DEVICE, device_id: int = 0
    ) -> OrtValue:
        """A value of a shape, which holds anything.

        Args:
            shape: of the array.
            element_type: its dtype, of numpy or by ONNX's number.
            device_type: "cpu", as there is no other.
            device_id: of the device.

        Returns:
            The value.

        Raises:
            ArgumentError: another device; no shape, or no dtype.

        """
        _check_device(device_type, device_id)
        dtype = _dtype(element_type)
        try:
            return cls(np.empty(shape, dtype))
        except (TypeError, ValueError) as e:
            raise ArgumentError(f"expected a shape, got {shape!r}: {e}") from e

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """The value of an array of another library, whose memory it shares.

        Args:
            data: what knows DLPack, or a capsule of its, which is taken once.
            is_bool_tensor: whether its bytes are truths.

        Returns:
            The value.

        """
        array = np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return cls(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> Value:
        """The array itself."""
        return self._value

    def shape(self) -> list[int]:
        """The shape of the array."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type, as onnxruntime writes it: `tensor(float)`."""
        return type_text(tensor(self._array.dtype))

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the array."""
        return int(self._array.nbytes)

    def device_name(self) -> str:
        """The one that there is."""
        return DEVICE

    def has_value(self) -> bool:
        """Whether it is more than an optional that is absent."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is one array."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of arrays."""
        return isinstance(self._value, list)

    def update_inplace(self, np_arr: Array) -> None:
        """Copy another array into this one.

        Args:
            np_arr: of the same shape.

        Raises:
            ArgumentError: of another.

        """
        if np.shape(np_arr) != self._array.shape:
            wanted, got = list(self._array.shape), list(np.shape(np_arr))
            raise ArgumentError(f"expected an array of shape {wanted}, got {got}")
        self._array[...] = np_arr

    def __dlpack__(self, **how: Any) -> Any:
        """For other libraries: their view of the array."""
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the array is, as DLPack says it."""
        kind, number = self._array.__dlpack_device__()
        return int(kind), number

    @property
    def _array(self) -> Array:
        if not isinstance(self._value, np.ndarray):
            raise ArgumentError("the value is no tensor")
        return self._value


class IOBinding:
    """Inputs and outputs of a session that are named once, as `session.io_binding()` makes it.

    Results are written into the arrays that are bound, without a copy where kernels can.
    """

    def __init__(self, session: Bindable) -> None:
        """Nothing is bound yet.

        Args:
            session: whose inputs and outputs they are.

        """
        self._executable = session.executable
        self._inputs: dict[str, Value] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Value] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Value) -> None:
        """Have an array be an input.

        Args:
            name: of the input.
            arr_on_cpu: what it holds when a call comes is read.

        Raises:
            UnknownNameError: there is no such input.

        """
        self._inputs[_known(name, self._executable.inputs, "input")] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Have a value be an input.

        Args:
            name: of the input.
            ortvalue: the value.

        Raises:
            UnknownNameError: there is no such input.

        """
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Have memory at an address be an input.

        Args:
            name: of the input.
            device_type: "cpu", as there is no other.
            device_id: of the device.
            element_type: the dtype, of numpy or by ONNX's number.
            shape: of the input.
            buffer_ptr: the address; who gives it keeps what is there.

        Raises:
            ArgumentError: another device, or no dtype.
            UnknownNameError: there is no such input.

        """
        _check_device(device_type, device_id)
        self.bind_cpu_input(name, _at(buffer_ptr, shape, element_type))

    def bind_output(
        self,
        name: str,
        device_type: str = DEVICE,
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in new memory, or in that at an address.

        Args:
            name: of the output.
            device_type: "cpu", as there is no other.
            device_id: of the device.
            element_type: the dtype, of numpy or by ONNX's number, of memory at an address.
            shape: of the output there.
            buffer_ptr: the address; None: new memory.

        Raises:
            ArgumentError: another device; an address without dtype and shape, or no dtype.
            UnknownNameError: there is no such output.

        """
        _check_device(device_type, device_id)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise ArgumentError(f"output {name!r}: an address wants an element_type and a shape")
        array = None if buffer_ptr is None else _at(buffer_ptr, shape or (), element_type)
        self._outputs[_known(name, self._executable.outputs, "output")] = array

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into a value.

        Args:
            name: of the output.
            ortvalue: of its shape and dtype.

        Raises:
            UnknownNameError: there is no such output.

        """
        array = ortvalue.numpy()
        self._outputs[_known(name, self._executable.outputs, "output")] = array

    def run(self) -> None:
        """Compute the outputs that are bound: what `session.run_with_iobinding` does."""
        names = self._executable.outputs
        into = [self._outputs.get(name) for name in names]
        results = self._executable.run_into(into, **{**absent(self._executable), **self._inputs})
        self._results = {n: r for n, r in zip(names, results, strict=True) if n in self._outputs}

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last call, in the order in which they were bound."""
        return [OrtValue(self._results[name]) for name in self._outputs if name in self._results]

    def copy_outputs_to_cpu(self) -> list[Value]:
        """The results of the last call as numpy arrays; they are there already."""
        return [value.numpy() for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Let go what inputs are bound to."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Let go what outputs are bound to, and results."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for."""


def absent(executable: Executable) -> dict[str, None]:
    """The inputs that may be missing, which are then absent."""
    params = executable.program.routines["main"].params
    return {p.name: None for p in params if isinstance(p.type, OptionalType)}


def values(arrays: Mapping[str, OrtValue]) -> dict[str, Value]:
    """The arrays of values."""
    return {name: value.numpy() for name, value in arrays.items()}


def _known(name: str, names: Sequence[str], what: str) -> str:
    if name not in names:
        raise unknown_name(what, name, names)
    return name


def _check_device(device: str, number: int) -> None:
    if (device, number) != (DEVICE, 0):
        raise ArgumentError(
            f"device: expected {DEVICE} 0, the only one here, got {device} {number}"
        )


def _at(address: int, shape: Sequence[int], element_type: Any) -> Array:
    """The array that lies at an address."""
    dtype = _dtype(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not address and size:
        raise ArgumentError(f"expected the address of {size:,} bytes, got {address!r}")
    memory: Any = (ctypes.c_char * size).from_address(address)
    array: Array = np.frombuffer(memory, dtype).reshape(tuple(shape))
    return array


def _dtype(element_type: Any) -> np.dtype[Any]:
    """A dtype, by numpy's name or ONNX's number."""
    try:
        dtype: np.dtype[Any] = np.dtype(
            DTYPES[element_type] if isinstance(element_type, int) else element_type
        )
    except (TypeError, KeyError):
        raise ArgumentError(f"expected a dtype, got {element_type!r}") from None
    return dtype


class _Capsule:
    """What knows DLPack, of a capsule of memory of the processor."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0
