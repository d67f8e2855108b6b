"""`InferenceSession`: the face of onnxruntime's, over an executable."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bucketize.errors import ArgumentError, ProgramError, unknown_name, warn
from bucketize.executable import Executable
from bucketize.integrations.binding import IOBinding, OrtValue, absent, values
from bucketize.integrations.node import ModelMetadata, NodeArg, node_args
from bucketize.integrations.option import (
    CPU,
    Provider,
    RunOptions,
    SessionOptions,
    checked_run,
    checked_session,
    provider_remarks,
    remarks,
)
from bucketize.loader import load
from bucketize.machine.target import cores
from bucketize.op import Array, Value
from bucketize.save.container import is_program
from bucketize.table import pairs

if TYPE_CHECKING:
    from onnx import ModelProto

    from bucketize.integrations.model import CompiledModel

Source: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto"


class InferenceSession:
    """onnxruntime's `InferenceSession`, so that an application switches by its import line.

    What onnxruntime has and this has not is no attribute of it. Source:
    https://onnxruntime.ai/docs/api/python/api_summary.html, as that of the options and `NodeArg`.
    """

    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        disabled_optimizers: Sequence[str] | None = None,
        enable_fallback: bool = True,
    ) -> None:
        """Compile a model on default schedules, or load what was compiled and tuned.

        A BucketizeWarning names the options that have no meaning here, and providers that there are
        not.

        Args:
            path_or_bytes: the path of an ONNX file, or of one that `Executable.save` wrote; the
                bytes of an ONNX file; or an `onnx.ModelProto`.
            sess_options: threads, by default one for each core, and sizes of free dimensions; a
                saved program has its own.
            providers: all but the "CPUExecutionProvider" are passed over.
            provider_options: of the providers, as a list beside theirs.
            disabled_optimizers: of onnxruntime's, of which none is here.
            enable_fallback: of providers, of which there is one.

        Raises:
            ArgumentError: an argument of another kind.
            BucketizeError: an option that would change what is computed.
            UnsupportedModelError: the model cannot be read.
            ProgramError: the saved program cannot be loaded.

        """
        del disabled_optimizers, enable_fallback
        self._options = options = checked_session(sess_options)
        is_path = isinstance(path_or_bytes, str | os.PathLike)
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        """Read by optimum, which has no other way to it."""
        _warn(*provider_remarks(providers, provider_options), *remarks(options))
        self._model = None if is_program(path_or_bytes) else _compiled(path_or_bytes, options)
        self.executable: Executable = (
            _loaded(path_or_bytes, options) if self._model is None else self._model.executable
        )
        """What runs, with `explain`, `profile` and `save`."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Value],
        run_options: RunOptions | None = None,
    ) -> list[Value]:
        """Compute the outputs. Threads may call at once.

        Args:
            output_names: those to give, in this order; None: all. All are computed.
            input_feed: the inputs by name; one that is optional may be missing.
            run_options: none has a meaning here, but `terminate`.

        Returns:
            An array for each of the outputs, owned by the caller.

        Raises:
            ArgumentError: an argument of another kind.
            ShapeError: an input of another shape or dtype, or one that is missing.
            UnknownNameError: there is no such input, or output.

        """
        if run_options is not None:
            _warn(*remarks(checked_run(run_options)))
        if not isinstance(input_feed, Mapping):
            got = type(input_feed).__name__
            raise ArgumentError(f'expected inputs by name, as in {{"data": x}}, got {got}')
        wanted = self._wanted(output_names)
        results = self.executable.run_named(**self._fed(input_feed))
        return [results[name] for name in wanted]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute the outputs as `OrtValue`, from inputs that are such.

        Args:
            output_names: as of `run`.
            input_dict_ort_values: the inputs by name.
            run_options: as of `run`.

        Returns:
            A value for each of the outputs.

        """
        results = self.run(output_names, values(input_dict_ort_values), run_options)
        return [OrtValue(result) for result in results]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that are named once, for many calls."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Compute the outputs that are bound.

        Args:
            iobinding: what `io_binding` made; it has the results.
            run_options: as of `run`.

        Raises:
            ArgumentError: no binding, or memory that an output does not fit, or as of `run`.

        """
        if run_options is not None:
            _warn(*remarks(checked_run(run_options)))
        if not isinstance(iobinding, IOBinding):
            got = type(iobinding).__name__
            raise ArgumentError(f"expected what session.io_binding() makes, got {got}")
        iobinding.run()

    def _wanted(self, names: Sequence[str] | None) -> Sequence[str]:
        outputs = self.executable.outputs
        if isinstance(names, str):
            raise ArgumentError(f"expected a list of outputs, as in [{names!r}], got {names!r}")
        for name in names or ():
            if name not in outputs:
                raise unknown_name("output", name, outputs)
        return names or outputs

    def _fed(self, feed: Mapping[str, Value]) -> dict[str, Value]:
        """The inputs: what is optional may be missing, and a list of numbers is an array."""
        types = {p.name: p.type for p in self.executable.program.routines["main"].params}
        fed = {**absent(self.executable), **feed}
        for name, value in fed.items():
            if not isinstance(name, str):
                raise ArgumentError(f"expected inputs by name, got {name!r}")
            if isinstance(value, list) and name in types and types[name].is_tensor:
                fed[name] = _array(name, value, types[name].dtype)
        return fed

    # What it is.

    def get_inputs(self) -> list[NodeArg]:
        """Name, type and shape of each input."""
        if self._model is not None:
            return self._model.inputs
        params = self.executable.program.routines["main"].params
        return node_args([p.name for p in params], [p.type for p in params])

    def get_outputs(self) -> list[NodeArg]:
        """Name, type and shape of each output."""
        if self._model is not None:
            return self._model.outputs
        results = self.executable.program.routines["main"].fn.results
        return node_args(self.executable.outputs, [r.type for r in results])

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are constants here."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself.

        Raises:
            ProgramError: a saved program was loaded, which does not keep it.

        """
        if self._model is None:
            raise ProgramError("a saved program does not keep what its model said of itself")
        return self._model.outline.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that were given."""
        return self._options

    def get_providers(self) -> list[str]:
        """The one."""
        return [CPU]

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
    ) -> None:
        """Warn of providers that there are not; there is one.

        Args:
            providers: as of the session.
            provider_options: as of the session.

        """
        _warn(*provider_remarks(providers, provider_options))

    def enable_fallback(self) -> None:
        """Nothing: there is no other provider to fall back to."""

    def disable_fallback(self) -> None:
        """Nothing, as of `enable_fallback`."""

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None, of the one."""
        return {CPU: {}}


def _array(name: str, numbers: list[Any], dtype: np.dtype[Any]) -> Array:
    """A list of numbers as an array."""
    try:
        return np.array(numbers, dtype)
    except (TypeError, ValueError, OverflowError) as e:
        raise ArgumentError(f"input {name!r}: the list is no array of {dtype}: {e}") from e


def _warn(*texts: str) -> None:
    """Warn at the line that made the session, or ran it."""
    for text in texts:
        warn(text)


def _compiled(source: Source, options: SessionOptions) -> CompiledModel:
    """The model; onnx and the compiler are loaded by who has one to compile."""
    asked, most = options.intra_op_num_threads, cores()
    if asked > most:
        text = f"intra_op_num_threads={asked}, but this process may use {most} cores, which work"
        warn(text)
    module: Any = importlib.import_module("bucketize.integrations.model")
    model: CompiledModel = module.CompiledModel(source, options.sizes, min(asked, most) or most)
    return model


def _loaded(path: Any, options: SessionOptions) -> Executable:
    """The saved program, with its own sizes and threads."""
    executable = load(path)
    asked, threads = options.intra_op_num_threads, executable.program.threads
    if options.sizes:
        sizes = pairs(options.sizes, ", ")
        raise ProgramError(f"{path} was compiled for its own sizes, not for {sizes}")
    if asked not in (0, threads):
        text = f"intra_op_num_threads={asked}, but {path} was compiled for {threads}, which work"
        warn(text)
    return executable
