"""onnxruntime's options, under its names: which have a meaning here, and which have none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import index
from typing import Any, NoReturn, SupportsIndex, TypeAlias

from bucketize.errors import ArgumentError, BucketizeError, unknown_name, warn

CPU = "CPUExecutionProvider"


class GraphOptimizationLevel(Enum):
    """How far onnxruntime rewrites a graph; here what can be fused is, at every level."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Enum):
    """Whether onnxruntime runs nodes side by side; here the threads share each kernel."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


MEANT = frozenset(
    {
        "intra_op_num_threads",
        "use_deterministic_compute",  # the same bits at each call, whatever it says
        *("log_severity_level", "log_verbosity_level", "logid"),  # there is nothing to keep quiet
        "sizes",
    }
)
"""Fields that are honoured, or hold as it is; the others have no meaning here."""
INSTEAD = {
    "enable_profiling": "session.executable.profile(...) times each kernel",
    "optimized_model_filepath": "session.executable.save(path) keeps what was compiled",
}
SEVERAL = 2  # nodes side by side; one after the other is what 1 asks for, too
WARNINGS = 2  # the severity
OTHER_RESULTS = {"session.set_denormal_as_zero": "1", "session.load_model_format": "ORT"}
"""Entries that would change what is read or computed, and at which value."""


@dataclass(slots=True)
class _Entries:
    """Options by a key of text."""

    entries: dict[str, str] = field(default_factory=dict, repr=False)

    def _add_entry(self, key: str, value: str) -> None:
        """Set an entry of onnxruntime's; nearly all have no meaning here.

        Args:
            key: of the entry.
            value: of the entry, as text.

        """
        self.entries[key] = value

    def _get_entry(self, key: str) -> str:
        """The value of an entry.

        Args:
            key: of an entry that was set.

        Returns:
            Its text.

        Raises:
            UnknownNameError: it was not.

        """
        if key not in self.entries:
            raise unknown_name("entry", key, self.entries)
        return self.entries[key]


@dataclass(slots=True)
class SessionOptions(_Entries):
    """onnxruntime's `SessionOptions`; `InferenceSession` warns of those that mean nothing here."""

    intra_op_num_threads: int = 0
    """Threads that share each kernel; 0 is one for each core that the process may use."""
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    sizes: dict[str, int] = field(default_factory=dict, repr=False)
    """Sizes of free dimensions that were given one, by `dim_param`."""

    add_session_config_entry = _Entries._add_entry
    get_session_config_entry = _Entries._get_entry

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Hold a dim of the model to one size.

        Args:
            name: its `dim_param`.
            size: its elements.

        """
        self.sizes[name] = size

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Refuse operators that are compiled for onnxruntime.

        Args:
            path: of their library.

        Raises:
            BucketizeError: always; it says what to do instead.

        """
        raise _unsupported(f"the operators of {path}", "write them as functions of the model")

    def add_initializer(self, name: str, value: object) -> NoReturn:
        """Refuse to replace a weight.

        Args:
            name: of the weight.
            value: of the weight.

        Raises:
            BucketizeError: always; it says what to do instead.

        """
        del value
        raise _unsupported(f"another value of {name}", "put it into the model")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[object]) -> NoReturn:
        """Refuse to replace weights.

        Args:
            names: of the weights.
            values: of the weights.

        Raises:
            BucketizeError: always; it says what to do instead.

        """
        del values
        raise _unsupported(f"other values of {', '.join(names)}", "put them into the model")


@dataclass(slots=True)
class RunOptions(_Entries):
    """onnxruntime's `RunOptions`."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    add_run_config_entry = _Entries._add_entry
    get_run_config_entry = _Entries._get_entry

    def add_active_adapter(self, adapter: object) -> NoReturn:
        """Refuse to change weights for a run.

        Args:
            adapter: of the weights.

        Raises:
            BucketizeError: always; it says what to do instead.

        """
        del adapter
        raise _unsupported("an adapter", "put its weights into the model")


Options: TypeAlias = SessionOptions | RunOptions
Provider: TypeAlias = str | tuple[str, dict[Any, Any]]


def get_available_providers() -> list[str]:
    """The one: `["CPUExecutionProvider"]`."""
    return [CPU]


def get_device() -> str:
    """`"CPU"`."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Warn who asks for more: what is logged goes by Python's `logging`, under "bucketize".

    Args:
        severity: of onnxruntime's, from 0 to 4; from 2 on nothing is logged here, either.

    """
    if severity < WARNINGS:
        warn(
            f"set_default_logger_severity({severity}): logging.getLogger('bucketize') has the level"
        )


def disable_telemetry_events() -> None:
    """Nothing: none are sent."""


def enable_telemetry_events() -> None:
    """Nothing: none are sent."""


def set_seed(seed: int) -> None:
    """Warn: an op draws by the seed that the model gives it, or by one made of its name.

    Args:
        seed: of what onnxruntime draws.

    """
    warn(f"set_seed({seed}): ops draw by the seed of their nodes, or by one made of their names")


def checked_session(options: SessionOptions | None) -> SessionOptions:
    """The options, if they can be kept.

    Raises:
        ArgumentError: it is another kind of object, or the number of threads is none.
        BucketizeError: an entry would change what is computed.

    """
    checked: SessionOptions = _checked(SessionOptions, options)
    for key, value in OTHER_RESULTS.items():
        if checked.entries.get(key) == value:
            raise _unsupported(f"{key}={value}", "leave it out")
    threads = checked.intra_op_num_threads
    if not isinstance(threads, SupportsIndex) or index(threads) < 0:
        raise ArgumentError(
            f"intra_op_num_threads: expected a whole number of 0 or more, got {threads!r}"
        )
    checked.intra_op_num_threads = index(threads)
    return checked


def checked_run(options: RunOptions | None) -> RunOptions:
    """The options, if a run can keep them."""
    checked: RunOptions = _checked(RunOptions, options)
    if checked.terminate:
        raise BucketizeError("the run was told to end before it began: RunOptions.terminate")
    return checked


def remarks(options: Options) -> Iterator[str]:
    """Name all that was set and has no meaning here, if anything."""
    if names := list(_meaningless(options)):
        yield f"options without a meaning here: {', '.join(names)}"


def provider_remarks(
    providers: Sequence[Provider] | None, options: Sequence[dict[Any, Any]] | None
) -> Iterator[str]:
    """Name what cannot be had: everything runs on the processor, without settings.

    Raises ArgumentError if the providers are no list.
    """
    if isinstance(providers, str) or not isinstance(providers, Sequence | None):
        raise ArgumentError(f'providers: expected a list, as in ["{CPU}"], got {providers!r}')
    pairs = [p if isinstance(p, tuple) else (p, {}) for p in providers or ()]
    if others := [name for name, _ in pairs if name != CPU]:
        yield f"no provider named {', '.join(others)} here: all runs in {CPU}"
    given = [settings for _, settings in pairs] + list(options or ())
    if names := [str(key) for settings in given for key in settings]:
        yield f"settings of providers without a meaning here: {', '.join(names)}"


def _checked(kind: type[Any], options: Any) -> Any:
    if options is None:
        return kind()
    if not isinstance(options, kind):
        got = f"{type(options).__module__}.{type(options).__name__}"
        raise ArgumentError(f"expected bucketize.{kind.__name__}, got {got}")
    return options


def _meaningless(options: Options) -> Iterator[str]:
    usual = type(options)()
    for f in fields(options):
        if f.name not in MEANT | {"entries"} and not _alike(f.name, options, usual):
            yield f"{f.name} ({INSTEAD[f.name]})" if f.name in INSTEAD else f.name
    yield from options.entries


def _alike(name: str, one: Options, other: Options) -> bool:
    """Whether a field asks for the same in both; onnxruntime's enumerations are known by name."""
    if name == "inter_op_num_threads":
        return bool(getattr(one, name) < SEVERAL)
    a, b = (getattr(each, name) for each in (one, other))
    return bool(getattr(a, "name", a) == getattr(b, "name", b))


def _unsupported(what: str, instead: str) -> BucketizeError:
    return BucketizeError(f"{what} would change the results, which is not supported: {instead}")
