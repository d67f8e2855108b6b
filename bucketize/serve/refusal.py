"""Why a request is not answered, and what its client is told, whatever protocol it speaks."""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.errors import BucketizeError, message_of
from bucketize.many.plan import own_notes


class BusyError(BucketizeError):
    """There is more to do than can be done in time."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s
        """When to ask again."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.retry_s), self.__dict__


class TooLargeError(BucketizeError):
    """A body that is longer than any may be."""


class SlowClientError(BucketizeError):
    """A client that does not send what it began."""


class UnknownModelError(BucketizeError):
    """A model that is not served."""


class HungUpError(BucketizeError):
    """A client that does not wait any more."""


STATUSES: Mapping[type[Exception], int] = {
    BusyError: 429,
    TooLargeError: 413,
    SlowClientError: 408,
    UnknownModelError: 404,
    HungUpError: 499,  # as nginx counts them; nobody reads it
    BucketizeError: 400,
}
"""Statuses of HTTP, the first that fits; what is no error of a request is a fault of ours."""
BROKEN = 500


def status_of(error: BaseException) -> int:
    """The status that an error is told by."""
    return next((s for kind, s in STATUSES.items() if isinstance(error, kind)), BROKEN)


def text_of(error: Exception) -> str:
    """What an error says, without which of the requests that shared a call it was."""
    text = "; ".join([message_of(error), *own_notes(error)])
    return text.encode(errors="backslashreplace").decode()  # half a pair may stand in a name
