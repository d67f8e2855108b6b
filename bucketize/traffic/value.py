"""A traffic as a value: distinct sizes, how many requests each has, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketize.errors import ArgumentError, TrafficError, unknown_name
from bucketize.traffic.file import LARGEST, REQUESTS, TIME, TableColumn, read_columns, write_columns
from bucketize.traffic.rows import Integers, grouped

FINEST = 1_000_000  # the largest denominator of a scale: 0.8 is 4/5
RESERVED = frozenset({TIME, REQUESTS, "count"})  # names of columns that hold no sizes
SIZE = "size:"  # before a symbol that is called as one of these
MOST_DRAWN = 1_000_000_000  # of numpy's hypergeometric distribution


@dataclass(frozen=True, eq=False)
class Traffic:
    """Requests by their sizes, in order of time and size; each size once, or once a time."""

    symbols: tuple[str, ...]
    sizes: Integers
    """A row for each distinct size, a column for each symbol."""
    requests: Integers
    """The requests of each row, at least 1."""
    times: NDArray[np.float64] | None = None
    """The time of each row in seconds, if it is known."""

    def __post_init__(self) -> None:
        """Sort the rows and add up what is alike; raise TrafficError if they are no traffic."""
        _check_symbols(self.symbols)
        sizes = _whole("sizes", self.sizes).reshape(-1, len(self.symbols))
        requests = _whole("requests", self.requests)
        times = None if self.times is None else np.asarray(self.times, np.float64)
        _check(sizes, requests, times)
        keep = requests > 0
        sizes, requests = sizes[keep], requests[keep]
        times = None if times is None else times[keep]
        order, starts = grouped([*([] if times is None else [times]), *sizes.T])
        self._set("sizes", sizes[order][starts])
        self._set("requests", np.add.reduceat(requests[order], starts))
        self._set("times", None if times is None else times[order][starts])

    def _set(self, name: str, array: NDArray[Any] | None) -> None:
        if array is not None:
            array.flags.writeable = False
        object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        distinct = len(self.without_times().sizes)
        return f"<{self.total} requests of {distinct} sizes of {', '.join(self.symbols)}>"

    def __eq__(self, other: object) -> bool:
        """Whether all rows are the same."""
        if not isinstance(other, Traffic):
            return NotImplemented
        mine, its = (
            (t.symbols, *map(_listed, (t.sizes, t.requests, t.times))) for t in (self, other)
        )
        return mine == its

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def read(cls, path: str | Path, columns: Mapping[str, str] | None = None) -> Traffic:
        """The traffic of a file, `.csv` or `.parquet`, with a row for each request or size.

        Args:
            path: of the file; parquet wants `pip install bucketize[parquet]`.
            columns: by symbol the column of its sizes, and by "time" and "requests" those of the
                time stamps (seconds, or ISO 8601) and of the requests of a row. None: each column
                but `time`, and `requests` or `count`, is a symbol's; `size:time` is one of a symbol
                called time.

        Returns:
            The traffic.

        Raises:
            TrafficError: a file that cannot be read, no rows, or a cell that is no size.
            UnknownNameError: a column that is not there.

        """
        try:
            return cls._of(read_columns(Path(path)), columns)
        except TrafficError as e:
            e.add_note(f"in {path}")
            raise

    @classmethod
    def _of(cls, table: dict[str, TableColumn], columns: Mapping[str, str] | None) -> Traffic:
        if columns is None:
            names = {REQUESTS if name == "count" else name: name for name in table}
            if len(names) < len(table):
                raise TrafficError(f"both count and {REQUESTS} are there: leave one out")
        else:
            names = dict(columns)
        for column in names.values():
            if column not in table:
                raise unknown_name("column", column, table)
        sized = [name for name in names if name not in (TIME, REQUESTS)]
        sizes = [table[names[name]].integers() for name in sized]
        rows = len(next(iter(table.values())).cells) if table else 0
        ones = np.ones(rows, np.int64)
        return cls(
            tuple(name.removeprefix(SIZE) for name in sized),
            np.array(sizes, np.int64).reshape(len(sized), rows).T,
            table[names[REQUESTS]].integers() if REQUESTS in names else ones,
            table[names[TIME]].seconds() if TIME in names else None,
        )

    def write(self, path: str | Path) -> None:
        """Write a histogram that `read` reads: "size:time" are sizes of a symbol called time.

        Args:
            path: of the file, `.csv` or `.parquet`.

        Raises:
            TrafficError: a file of another kind, one that cannot be written, or no pyarrow.

        """
        taken = {s for s in self.symbols if s in RESERVED or s.startswith(SIZE)}
        names = [SIZE + s if s in taken else s for s in self.symbols]
        columns = {name: self.sizes[:, i].tolist() for i, name in enumerate(names)}
        times = {} if self.times is None else {TIME: self.times.tolist()}
        write_columns(Path(path), {**times, **columns, REQUESTS: self.requests.tolist()})

    @property
    def total(self) -> int:
        """All requests."""
        return int(self.requests.sum())

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """By symbol the least size and the largest."""
        ends = self.sizes.min(axis=0).tolist(), self.sizes.max(axis=0).tolist()
        return dict(zip(self.symbols, zip(*ends, strict=True), strict=True))

    def histogram(self, symbol: str) -> dict[int, int]:
        """The requests of each size of a symbol.

        Args:
            symbol: one of `symbols`.

        Returns:
            Requests by size, in order of size.

        Raises:
            UnknownNameError: there is no such symbol.

        """
        if symbol not in self.symbols:
            raise unknown_name("symbol", symbol, self.symbols)
        column = self.sizes[:, self.symbols.index(symbol)]
        sizes, places = np.unique(column, return_inverse=True)
        requests = np.zeros(len(sizes), np.int64)
        np.add.at(requests, places, self.requests)
        return dict(zip(sizes.tolist(), requests.tolist(), strict=True))

    def quantiles(self, symbol: str, shares: Sequence[float]) -> list[int]:
        """The least sizes of a symbol that so many of the requests do not exceed.

        Args:
            symbol: one of `symbols`.
            shares: of the requests, each from 0 to 1.

        Returns:
            A size for each share.

        Raises:
            UnknownNameError: there is no such symbol.

        """
        histogram = self.histogram(symbol)
        served = np.cumsum(list(histogram.values()))
        places = np.searchsorted(served, np.asarray(shares) * served[-1])
        return np.array(list(histogram))[places].tolist()  # type: ignore[no-any-return]

    def without_times(self) -> Traffic:
        """Each size once, whenever it came.

        Returns:
            The traffic.

        """
        return replace(self, times=None)

    def merged(self, *others: Traffic) -> Traffic:
        """The requests of all; without times unless all have them.

        Args:
            *others: traffics of the same symbols, in any order.

        Returns:
            The traffic.

        Raises:
            TrafficError: other symbols.

        """
        every = (self, *others)
        for other in others:
            if set(other.symbols) != set(self.symbols):
                mine, its = ", ".join(self.symbols), ", ".join(other.symbols)
                raise TrafficError(f"a traffic of {mine} and one of {its} do not make one")
        times = [t.times for t in every if t.times is not None]
        return Traffic(
            self.symbols,
            np.concatenate([t.sizes[:, [*map(t.symbols.index, self.symbols)]] for t in every]),
            np.concatenate([t.requests for t in every]),
            np.concatenate(times) if len(times) == len(every) else None,
        )

    def split(
        self, *, time: float | None = None, share: float | None = None
    ) -> tuple[Traffic, Traffic]:
        """What came before and what came after; what came at one time stays together.

        Args:
            time: the first second of the second part.
            share: in place of it, the least share of the requests in the first part.

        Returns:
            The two parts.

        Raises:
            TrafficError: not one of `time` and `share`, no time stamps, or nothing in one part.

        """
        if (time is None) == (share is None):
            raise TrafficError("a traffic is split at a time or at a share, one of them")
        if self.times is None:
            raise TrafficError("there are no time stamps to split by; halves are drawn without")
        if share is None:
            row = int(np.searchsorted(self.times, time or 0))
        else:
            reached = int(np.searchsorted(np.cumsum(self.requests), share * self.total))
            last = self.times[min(reached, len(self.times) - 1)]
            row = int(np.searchsorted(self.times, last, side="right"))
        if not 0 < row < len(self.requests):
            where = f"{time} s" if share is None else f"a share of {share}"
            begin, end = self.times[0], self.times[-1]
            raise TrafficError(f"at {where} one part is empty: times are {begin} to {end} s")
        return self._rows(slice(row)), self._rows(slice(row, None))

    def _rows(self, rows: slice) -> Traffic:
        times = None if self.times is None else self.times[rows]
        return Traffic(self.symbols, self.sizes[rows], self.requests[rows], times)

    def load(self, bucket: Mapping[str, tuple[int, int | None]]) -> float:
        """What a bucket is asked for: its requests, each by the product of its sizes.

        Args:
            bucket: half-open intervals by symbol; what others there are is not looked at.

        Returns:
            The sum, in elements.

        """
        inside = np.ones(len(self.requests), bool)
        for symbol, column in zip(self.symbols, self.sizes.T, strict=True):
            low, high = bucket.get(symbol, (0, None))
            inside &= (low <= column) & (column < (np.inf if high is None else high))
        return float((self.requests * self.sizes.prod(axis=1))[inside].sum())

    def halves(self, seed: int = 0) -> tuple[Traffic, Traffic]:
        """Two halves, drawn without replacement: plan on one, judge on the other.

        Args:
            seed: of the draw.

        Returns:
            The two; of an odd number of requests the second has one more.

        Raises:
            TrafficError: fewer than two requests, or a thousand million.

        """
        random = np.random.default_rng(seed)
        half = self.total // 2
        if self.total >= MOST_DRAWN:
            raise TrafficError(
                f"halves are drawn of less than {MOST_DRAWN:,} requests, got {self.total:,}"
            )
        drawn = random.multivariate_hypergeometric(self.requests, half, method="marginals")
        return replace(self, requests=drawn), replace(self, requests=self.requests - drawn)

    def sample(self, number: int, seed: int = 0) -> Integers:
        """Sizes of requests, drawn with replacement.

        Args:
            number: of requests.
            seed: of the draw.

        Returns:
            A row for each request, a column for each symbol.

        """
        random = np.random.default_rng(seed)
        rows = random.choice(len(self.requests), number, p=self.requests / self.total)
        drawn: Integers = self.sizes[rows]
        return drawn

    def scaled(self, **by: float | Fraction) -> Traffic:
        """Sizes times a factor, rounded up: prompts over 8 are `scaled(S=1 / 8)`.

        Args:
            **by: the factor by symbol, above 0.

        Returns:
            The traffic.

        Raises:
            TrafficError: a factor that is not above 0 and finite, or sizes that become too large.
            UnknownNameError: there is no such symbol.

        """
        sizes = self.sizes.copy()
        for symbol, factor in by.items():
            if symbol not in self.symbols:
                raise unknown_name("symbol", symbol, self.symbols)
            exact = Fraction(factor if math.isfinite(factor) else 0).limit_denominator(FINEST)
            if exact <= 0:
                raise TrafficError(
                    f"sizes of {symbol} are scaled by a finite factor above 0, got {factor}"
                )
            column = self.symbols.index(symbol)
            above, below = exact.numerator, exact.denominator
            scaled = [-(-n * above // below) for n in sizes[:, column].tolist()]
            if max(scaled) >= LARGEST:
                raise TrafficError(f"sizes of {symbol} are below {LARGEST:,}, times {factor} not")
            sizes[:, column] = scaled
        return replace(self, sizes=sizes)

    def renamed(self, **names: str) -> Traffic:
        """The traffic with other names of symbols: `renamed(N="S")`.

        Args:
            **names: the new name by the old one.

        Returns:
            The traffic.

        Raises:
            TrafficError: two symbols of one name.
            UnknownNameError: there is no such symbol.

        """
        for name in names.keys() - set(self.symbols):
            raise unknown_name("symbol", name, self.symbols)
        return replace(self, symbols=tuple(names.get(s, s) for s in self.symbols))


def check_traffic(value: object) -> None:
    """Raise ArgumentError for what is no traffic."""
    if not isinstance(value, Traffic):
        raise ArgumentError(f"traffic: expected a bucketize.Traffic, got {value!r}")


def _listed(array: NDArray[Any] | None) -> Any:
    return None if array is None else array.tolist()


def _whole(name: str, values: Any) -> Integers:
    """Whole numbers; a fraction would be cut."""
    given = np.asarray(values)
    with np.errstate(invalid="ignore"):  # of NaN and infinities, which differ below
        whole = given.astype(np.int64)
    if (cut := given[whole != given]).size:
        raise TrafficError(f"{name} of a traffic are whole numbers, got {cut[0]}")
    return whole


def _check_symbols(symbols: Iterable[str]) -> None:
    names = list(symbols)
    if not names or len(set(names)) < len(names):
        raise TrafficError(f"a traffic is of symbols of different names, got {names or 'none'}")


def _check(sizes: Integers, requests: Integers, times: NDArray[np.float64] | None) -> None:
    if not {len(sizes)} == {len(requests), len(requests if times is None else times)}:
        raise TrafficError("sizes, requests and times of a traffic have as many rows")
    if sizes.size and sizes.min() < 0:
        raise TrafficError(f"a size is negative: {sizes.min()}")
    if requests.size and requests.min() < 0:
        raise TrafficError(f"requests are counted from 0, got {requests.min()}")
    if times is not None and not np.isfinite(times).all():
        raise TrafficError("a time is no number")
    if not requests.any():
        raise TrafficError("there is no request")
    if (total := sum(requests.tolist())) >= LARGEST:
        raise TrafficError(f"requests of a traffic are less than {LARGEST:,}, got {total:,}")
