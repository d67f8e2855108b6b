"""The errors a user can cause: one tree, so that one `except BucketizeError` catches them all."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path


class BucketizeError(Exception):
    """The root of every error that bad input or a bad environment can cause.

    `str` of it is the `message`, which says what disagrees, and below it the `notes`, a line for
    each layer that knew more of where. They are kept here, not as Python's own: those are in no
    `str`, where logs and notebooks look, and if they were a traceback would show them twice.
    """

    notes: tuple[str, ...] = ()
    """What `add_note` added, inner layers first."""
    origin: tuple[str, ...] = ()
    """The nodes of the model that it is about, where they are known."""

    @property
    def message(self) -> str:
        """What is wrong, without the notes."""
        return super().__str__()

    def add_note(self, note: str, /) -> None:
        """Say more of where it happened.

        Args:
            note: a line that goes below those that inner layers added.

        """
        self.notes = (*self.notes, note)

    def __str__(self) -> str:
        return "\n  ".join([self.message, *self.notes])


def message_of(error: BaseException) -> str:
    """What an error says, without notes; one that nobody foresaw has its kind in front."""
    if isinstance(error, BucketizeError):
        return error.message
    return f"{type(error).__name__}: {error}"


class ArgumentError(BucketizeError, TypeError):
    """An argument of another kind than was asked for; the message says how to make one."""


class TypeRelError(BucketizeError):
    """Types that do not fit together: two extents, ranks or dtypes disagree."""


class UnknownRankError(TypeRelError):
    """A result of which only a run can tell how many axes it has."""


class ShapeError(BucketizeError):
    """A run-time array does not fit the type it is given for."""


class UnboundedError(ShapeError):
    """Nothing tells the sizes of some symbols, not even an upper bound."""

    def __init__(self, message: str, symbols: Sequence[str] = ()) -> None:
        """With the names of the symbols."""
        super().__init__(message)
        self.symbols = symbols


class UnknownNameError(BucketizeError):
    """A name that nothing answers to; the message lists the known ones."""


class ParseError(BucketizeError):
    """Text that is no module."""


class UnsupportedModelError(BucketizeError):
    """A model that is corrupt, or asks for something that is not supported."""


class ExportError(BucketizeError):
    """A module that no ONNX model can say."""


class VerifyError(BucketizeError):
    """A module that breaks a law of the IR; the notes name the law, the binding, the function."""


class DispatchError(BucketizeError):
    """Intervals or profiles that do not partition what they should."""


class NoBucketError(BucketizeError):
    """A size that no bucket covers, in a module without a fallback clone."""


class PaddingError(BucketizeError):
    """Padding to the bucket's top that would leak into the result."""


class RaggedError(BucketizeError):
    """Rows of unequal lengths that cannot be packed: an op mixes them, or counts what is hidden."""


class RequestsError(BucketizeError):
    """Some of many requests failed; none of the others is lost."""

    def __init__(self, message: str, results: Sequence[object]) -> None:
        """With the results of each request, in order, or the error that it failed by."""
        super().__init__(message)
        self.results = results

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.results), self.__dict__


class CompileError(BucketizeError):
    """A function that the chosen executor cannot take."""


class KernelError(BucketizeError):
    """A kernel that cannot be built or a schedule that is not legal."""


class CacheError(KernelError):
    """A kernel that cannot be kept: no fault of its own."""


class ProgramError(BucketizeError):
    """A saved program that cannot be written, read, or run on this machine."""


class LogError(BucketizeError):
    """A tuning log that cannot be read or written."""


class TuneError(BucketizeError):
    """A tuning session that cannot start or go on."""


class TrafficError(BucketizeError):
    """A traffic that cannot be read or written, or cannot be made one, or split."""


class LateError(BucketizeError):
    """The time that was given for some work is up."""


class EngineError(BucketizeError):
    """An engine to compare with that is not installed, or does not take the model."""


class EnergyError(BucketizeError):
    """A machine that does not tell the energy which it takes."""


class BucketizeWarning(UserWarning):
    """What a user ought to know though nothing fails, and what to do about it."""


class BusyWarning(BucketizeWarning):
    """Other processes had a part in what was timed."""


HERE = (str(Path(__file__).parent), contextlib.__file__)
"""Where no user's code stands: in this package, and where its contexts are left."""


def warn(message: str, category: type[Warning] = BucketizeWarning) -> None:
    """Warn at the line that called this package, however deep in it that is noticed."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def unknown_name(kind: str, name: object, names: Iterable[object]) -> UnknownNameError:
    """The error for a name that is not among `names`."""
    choices = sorted(map(str, names))
    listed = ", ".join(choices) or "none"
    guess = did_you_mean(name, choices)
    return UnknownNameError(f"no {kind} named {str(name)!r}; known: {listed}{guess}")


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """The end of a message that names the one of `names` most like `name`; empty if none is."""
    by_lower = {str(n).lower(): str(n) for n in names}
    # by name: no run needs it, and every import of the package would wait for it
    close = import_module("difflib").get_close_matches(str(name).lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""
