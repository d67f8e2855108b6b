"""Dispatchers kept in a YAML or JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

import yaml

from bucketize.errors import DispatchError
from bucketize.traffic.value import Traffic
from bucketize.types import Interval, Profile, Shape
from dispatchers.axis import Answer, Dispatcher, Intervals
from dispatchers.profile import profiles
from dispatchers.symbol import free_axes, per_symbol
from dispatchers.traffic import from_traffic


def from_file(path: str | Path) -> Dispatcher:
    """The dispatcher that a file holds, in YAML or JSON under exactly one of these keys.

    `intervals: {N: [[1, 8], [8, null]]}` by symbol, `data_2` where the model names none;
    `buckets: [{H: [64, 128]}, {H: [128, null], W: [64, 512]}]`, which share no size;
    `profiles: [{name: small, min: {data: [1, 3]}, opt: {data: [4, 3]}, max: {data: [8, 3]}}]`;
    `traffic: {N: {1: 900, 8: 80}}`, requests by size, with `count: 4` beside it if need be. Of a
    CSV or parquet file, which `bucketize.Traffic.read` reads, buckets serve about as many requests
    each.

    Args:
        path: of the file.

    Returns:
        The dispatcher.

    Raises:
        DispatchError: the file cannot be read, or holds no dispatcher; of intervals that overlap
            or leave a gap `dispatch` tells, naming the file.
        TrafficError: a CSV or parquet file that holds no traffic.

    """
    if Path(path).suffix in (".csv", ".parquet"):
        return from_traffic(Traffic.read(path))
    content = _content(path)
    try:
        dispatcher = _read(content)
    except DispatchError as e:
        e.add_note(f"in {path}")
        raise

    def file_dispatcher(shapes: Mapping[str, Shape]) -> Answer:
        """What the file holds."""
        return dispatcher(shapes)

    file_dispatcher.__name__ = str(path)  # by which errors call it
    return file_dispatcher


def _content(path: str | Path) -> object:
    try:
        return yaml.safe_load(Path(path).read_bytes())
    except OSError as e:
        raise DispatchError(f"cannot read {path}: {e.strerror}") from e
    except RecursionError as e:
        raise DispatchError(f"{path} nests too deep") from e
    except (yaml.YAMLError, ValueError) as e:  # the latter of a date, say, of a 13th month
        raise DispatchError(f"{path} is neither YAML nor JSON: {e}") from e


def _read(content: object) -> Dispatcher:
    if content is None:
        raise DispatchError(
            f"the file is empty; it may hold, for instance, {EXAMPLES['intervals']}"
        )
    kinds = {key for key in READERS if isinstance(content, dict) and key in content}
    if len(kinds) != 1 or not isinstance(content, dict):
        shown = short(list(content)) if isinstance(content, dict) else type(content).__name__
        raise DispatchError(f"expected exactly one of {', '.join(READERS)}, got {shown}")
    (kind,) = kinds
    options = {key: value for key, value in content.items() if key != kind}
    if unknown := sorted(options.keys() - OPTIONS.get(kind, ())):
        raise DispatchError(f"{kind} has no option {unknown[0]!r}, as in {EXAMPLES[kind]}")
    try:
        return READERS[kind](content[kind], **options)
    except (TypeError, ValueError, KeyError, AttributeError) as e:
        message = f"{kind} do not follow the schema, as in {EXAMPLES[kind]}"
        raise DispatchError(f"{message}: {type(e).__name__}: {e}") from e


def _read_intervals(table: Mapping[str, list[Interval]]) -> Dispatcher:
    return per_symbol(
        {symbol: _fixed([_interval(ends) for ends in cuts]) for symbol, cuts in table.items()}
    )


def _interval(ends: object) -> Interval:
    if not isinstance(ends, list) or len(ends) != 2:
        raise DispatchError(f"expected an interval [lo, hi], got {short(ends)}")
    lo, hi = ends
    return _whole(lo), None if hi is None else _whole(hi, " or null, for no end,")


def _whole(value: object, more: str = "") -> int:
    """A whole number; JSON has those that are keys as text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DispatchError(f"expected a whole number{more or ','} got {short(value)}")
    return value


def _fixed(intervals: list[Interval]) -> Dispatcher:
    def fixed_dispatcher(shapes: Mapping[str, Shape]) -> Intervals:
        cuts: Intervals = {}
        for name, axis in free_axes(shapes):
            cuts.setdefault(name, {})[axis] = intervals
        return cuts

    return fixed_dispatcher


def _read_buckets(rows: list[dict[str, list[object]]]) -> Dispatcher:
    buckets = [{name: _interval(ends) for name, ends in row.items()} for row in rows]
    return lambda _shapes: buckets


def _read_profiles(boxes: list[dict[str, Any]]) -> Dispatcher:
    return profiles(*(_profile(**box) for box in boxes))


def _profile(*, name: str = "", **corners: Mapping[str, list[int]]) -> Profile:
    shapes = {
        corner: {tensor: tuple(map(_whole, shape)) for tensor, shape in by_input.items()}
        for corner, by_input in corners.items()
    }
    return Profile(name=name, **shapes)


def _read_traffic(table: Mapping[str, Mapping[object, object]], *, count: object = 8) -> Dispatcher:
    requests = {
        s: {_whole(size): _whole(n) for size, n in seen.items()} for s, seen in table.items()
    }
    return from_traffic(requests, count=_whole(count))


READERS: dict[str, Callable[..., Dispatcher]] = {
    "intervals": _read_intervals,
    "buckets": _read_buckets,
    "profiles": _read_profiles,
    "traffic": _read_traffic,
}
OPTIONS = {"traffic": {"count"}}
EXAMPLES = {
    "intervals": "intervals: {N: [[1, 8], [8, null]]}",
    "buckets": "buckets: [{H: [64, 128]}, {H: [128, null], W: [64, 512]}]",
    "profiles": "profiles: [{min: {data: [1, 3]}, opt: {data: [4, 3]}, max: {data: [8, 3]}}]",
    "traffic": "{traffic: {N: {1: 900, 8: 80}}, count: 4}",
}
