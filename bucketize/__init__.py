"""Graph dispatching for dynamic shapes: a clone per shape bucket, a tuned kernel per clone."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bucketize import errors
from bucketize.errors import BucketizeError, did_you_mean
from bucketize.release import release, rest

if TYPE_CHECKING:
    from bucketize import analysis, zoo
    from bucketize.compiler import compile
    from bucketize.dispatch.specialise import specialise
    from bucketize.dispatch.tree import dispatch
    from bucketize.executable import Executable
    from bucketize.integrations.binding import IOBinding, OrtValue
    from bucketize.integrations.node import NodeArg
    from bucketize.integrations.option import (
        ExecutionMode,
        GraphOptimizationLevel,
        RunOptions,
        SessionOptions,
        disable_telemetry_events,
        enable_telemetry_events,
        get_available_providers,
        get_device,
        set_default_logger_severity,
        set_seed,
    )
    from bucketize.integrations.session import InferenceSession
    from bucketize.ir import Function, Module
    from bucketize.loader import load
    from bucketize.onnx import from_onnx, to_onnx
    from bucketize.optimize.optimize import optimize
    from bucketize.partition.drift import drift
    from bucketize.partition.merge import merge
    from bucketize.partition.partition import partition
    from bucketize.poison import check_padding
    from bucketize.ragged.ragged import ragged
    from bucketize.report.report import report
    from bucketize.text import show
    from bucketize.traffic.drift import DriftWatch
    from bucketize.traffic.value import Traffic
    from bucketize.tune.api import tune
    from bucketize.types import ANY, Profile
    from bucketize.verify import verify

# Names are loaded at first use: `run` pays neither for scikit-optimize nor for pandas.
_HOMES = {
    "ANY": "bucketize.types",
    "BucketizeError": "bucketize.errors",
    "DriftWatch": "bucketize.traffic.drift",
    "Executable": "bucketize.executable",
    "Function": "bucketize.ir",
    "Module": "bucketize.ir",
    "Profile": "bucketize.types",
    "Traffic": "bucketize.traffic.value",
    "analysis": "",
    "check_padding": "bucketize.poison",
    "compile": "bucketize.compiler",
    "dispatch": "bucketize.dispatch.tree",
    "from_onnx": "bucketize.onnx",
    "load": "bucketize.loader",
    "drift": "bucketize.partition.drift",
    "merge": "bucketize.partition.merge",
    "optimize": "bucketize.optimize.optimize",
    "partition": "bucketize.partition.partition",
    "ragged": "bucketize.ragged.ragged",
    "report": "bucketize.report.report",
    "show": "bucketize.text",
    "specialise": "bucketize.dispatch.specialise",
    "to_onnx": "bucketize.onnx",
    "tune": "bucketize.tune.api",
    "verify": "bucketize.verify",
    "zoo": "",
    # onnxruntime's names
    "InferenceSession": "bucketize.integrations.session",
    "IOBinding": "bucketize.integrations.binding",
    "NodeArg": "bucketize.integrations.node",
    "OrtValue": "bucketize.integrations.binding",
    **dict.fromkeys(
        (
            *("ExecutionMode", "GraphOptimizationLevel", "RunOptions", "SessionOptions"),
            *("get_available_providers", "get_device"),
            *("disable_telemetry_events", "enable_telemetry_events"),
            *("set_default_logger_severity", "set_seed"),
        ),
        "bucketize.integrations.option",
    ),
}

__all__ = [
    "ANY",
    "BucketizeError",
    "DriftWatch",
    "Executable",
    "ExecutionMode",
    "Function",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "Module",
    "NodeArg",
    "OrtValue",
    "Profile",
    "RunOptions",
    "SessionOptions",
    "Traffic",
    "analysis",
    "check_padding",
    "compile",
    "disable_telemetry_events",
    "dispatch",
    "drift",
    "enable_telemetry_events",
    "from_onnx",
    "get_available_providers",
    "get_device",
    "load",
    "merge",
    "optimize",
    "partition",
    "ragged",
    "report",
    "set_default_logger_severity",
    "set_seed",
    "show",
    "specialise",
    "to_onnx",
    "tune",
    "verify",
    "zoo",
]


class _Public(ModuleType):
    """Public names, loaded at first use; they hide the packages that have the same name."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return release()
        if name not in _HOMES:
            if hasattr(errors, name):
                raise AttributeError(f"{name} is bucketize.errors.{name}")
            guess = did_you_mean(name, _HOMES)
            raise AttributeError(f"module 'bucketize' has no attribute {name!r}{guess}")
        home = _HOMES[name]
        try:
            module = rest(home or f"bucketize.{name}")
        except BucketizeError as e:
            raise AttributeError(e) from e
        value = getattr(module, name) if home else module
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # importing bucketize.tune.api binds `tune` here to the package: the function stays
        if not (isinstance(value, ModuleType) and _HOMES.get(name)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return __all__

    def __reduce__(self) -> tuple[object, ...]:
        # functions that name the package go over to processes elsewhere
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Public
