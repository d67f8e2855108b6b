"""The options of `tune`: defaults and checks, which Python and the command line share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketize.errors import ArgumentError, TuneError
from bucketize.machine.file import path_of

if TYPE_CHECKING:  # the command line asks for defaults before it loads anything
    from bucketize.measure.cluster import Cluster
    from bucketize.measure.runner import Measurer
    from bucketize.traffic.value import Traffic
    from bucketize.tune.progress import Progress
    from bucketize.tune.sizes import SizesMet


@dataclass(frozen=True, kw_only=True)
class Options:
    """The keywords of `tune`, which says what each means.

    Raises:
        ArgumentError: a value of another kind.
        TuneError: values that allow no session.

    """

    log: str | Path
    trials: int = 64
    search: str = "skopt"
    seed: int = 0
    threads: int = 1
    sizes: str | SizesMet = "bounds"
    traffic: Traffic | None = None
    seconds: float | None = None
    until: float = 0.01
    model: str | None = None
    measurer: Measurer | Cluster | None = None
    client: Any = None
    progress: Callable[[Progress], None] | bool | None = None

    def __post_init__(self) -> None:
        path_of(self.log, "the path of a log")
        _check_sizes(self.sizes)
        if not (self.client is None or hasattr(self.client, "submit")):
            got = f"got {self.client!r}"
            raise ArgumentError(f"client: expected distributed.Client('tcp://HOST:PORT'), {got}")
        trials, seconds, until = self.trials, self.seconds, self.until
        if not isinstance(trials, int) or trials < 1:
            raise TuneError(f"trials: expected at least 1, got {trials!r}")
        if seconds is not None and not (_is_number(seconds) and 0 < seconds < math.inf):
            wanted = "seconds: expected a finite number above 0, or None"
            raise TuneError(f"{wanted}, got {seconds!r}")
        if not (_is_number(until) and 0 <= until < 1):
            raise TuneError(f"until: expected a share of the latency, from 0 to 1, got {until!r}")
        if not _is_integer(self.seed):
            raise TuneError(f"seed: expected a whole number of 64 bits, got {self.seed!r}")
        if self.traffic is not None and self.sizes != "bounds":
            raise TuneError("sizes and traffic both say where schedules are judged: give one")
        if self.client is not None and self.measurer is not None:
            raise TuneError("give a measurer or a client, not both: Cluster(client) is a measurer")


def _check_sizes(sizes: object) -> None:
    """Raise an `ArgumentError` for what is no list of sizes, nor a word for some."""
    each = sizes if isinstance(sizes, Sequence) else [None]
    for entry in [] if isinstance(sizes, str) else each:
        one = entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if not (isinstance(one, Mapping) and all(isinstance(n, Integral) for n in one.values())):
            wanted = "'middle', 'bounds' or a list as [{'N': 3}, ({'N': 8}, 0.5)]"
            raise ArgumentError(f"sizes: expected {wanted}, got {sizes!r}")


def _is_integer(value: object) -> bool:
    """Whether a column of a log holds it."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
