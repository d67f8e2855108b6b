"""Dispatchers: what they are asked, and what they may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from bucketize.errors import BucketizeError, DispatchError
from bucketize.ir import Function, Module
from bucketize.types import Dim, Interval, Profile

Answer: TypeAlias = (
    Mapping[str, Mapping[int, Sequence[Interval]]]
    | Sequence[Profile]
    | Sequence[Mapping[str, Interval]]
)
Dispatcher: TypeAlias = Callable[[dict[str, tuple[Dim, ...]]], Answer]


@runtime_checkable
class ModuleDispatcher(Protocol):
    """What looks at a whole module, not at shapes alone, before it dispatches."""

    def of_module(self, mod: Module, function: str) -> Dispatcher:
        """The dispatcher of a function of the module."""
        ...


def answer_of(dispatcher: Dispatcher, fn: Function) -> Answer:
    """What a dispatcher answers of a function's inputs; DispatchError where it is none or fails."""
    if not callable(dispatcher):
        wanted = "a dispatcher (a callable) such as dispatchers.log_dispatcher"
        raise DispatchError(f"expected {wanted}, got {dispatcher!r}")
    name = name_of(dispatcher)
    try:
        answer = dispatcher({p.name: p.type.shape for p in fn.params if p.type.is_tensor})
    except BucketizeError as e:
        e.add_note(f"from dispatcher {name}")
        raise
    except (LookupError, ArithmeticError, AttributeError, TypeError, ValueError) as e:
        asked = ", ".join(f"{p.name}: {p.type}" for p in fn.params)
        raise DispatchError(
            f"dispatcher {name} raised {type(e).__name__}: {e}, asked about {asked}"
        ) from e
    if isinstance(answer, Mapping):
        return answer
    if callable(answer):
        raise DispatchError(f"{name} makes a dispatcher: pass {name}(...), what it makes")
    if not isinstance(answer, Sequence) or not _is_of_a_kind(answer):
        wanted = "intervals, profiles or buckets"
        raise DispatchError(f"dispatcher {name}: expected {wanted}, got {answer!r}")
    return answer


def _is_of_a_kind(answer: Sequence[object]) -> bool:
    """Whether all are profiles, or all buckets."""
    return any(all(isinstance(a, kind) for a in answer) for kind in (Profile, Mapping))


def name_of(dispatcher: Dispatcher) -> str:
    """What errors call it."""
    return getattr(dispatcher, "__name__", repr(dispatcher))
