"""Dispatchers kept in a YAML or JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from bucketize.errors import DispatchError
from bucketize.types import Interval, Profile, Shape
from dispatchers.axis import Dispatcher
from dispatchers.profile import profiles
from dispatchers.symbol import free_axes, per_symbol
from dispatchers.traffic import from_traffic


def from_file(path: str | Path) -> Dispatcher:
    """The dispatcher that a YAML or JSON file holds, under exactly one of these keys.

    `intervals: {N: [[1, 8], [8, null]]}` by symbol, `data_2` where the model names none;
    `profiles: [{name: small, min: {data: [1, 3]}, opt: {data: [4, 3]}, max: {data: [8, 3]}}]`;
    `traffic: {N: {1: 900, 8: 80}}`, requests by size, with `count: 4` beside it if need be.
    """
    try:
        content = yaml.safe_load(Path(path).read_text())
        return _read(content)
    except OSError as e:
        raise DispatchError(f"cannot read {path}: {e.strerror}") from e
    except yaml.YAMLError as e:
        raise DispatchError(f"{path} is neither YAML nor JSON: {e}") from e
    except DispatchError as e:
        e.add_note(f"in {path}")
        raise


def _read(content: object) -> Dispatcher:
    kinds = {key for key in READERS if isinstance(content, dict) and key in content}
    if len(kinds) != 1 or not isinstance(content, dict):
        found = list(content) if isinstance(content, dict) else type(content).__name__
        raise DispatchError(f"expected exactly one of {', '.join(READERS)}, got {found}")
    (kind,) = kinds
    options = {key: value for key, value in content.items() if key != kind}
    try:
        return READERS[kind](content[kind], **options)
    except (TypeError, ValueError, KeyError, AttributeError) as e:
        raise DispatchError(f"{kind} do not follow the schema: {e!r}") from e


def _read_intervals(table: Mapping[str, list[Interval]]) -> Dispatcher:
    return per_symbol(
        {symbol: _fixed([_interval(*i) for i in cuts]) for symbol, cuts in table.items()}
    )


def _interval(lo: int, hi: int | None) -> Interval:
    return int(lo), None if hi is None else int(hi)


def _fixed(intervals: list[Interval]) -> Dispatcher:
    def fixed_dispatcher(shapes: Mapping[str, Shape]) -> dict[str, dict[int, list[Interval]]]:
        cuts: dict[str, dict[int, list[Interval]]] = {}
        for name, axis in free_axes(shapes):
            cuts.setdefault(name, {})[axis] = intervals
        return cuts

    return fixed_dispatcher


def _read_profiles(boxes: list[dict[str, Any]]) -> Dispatcher:
    return profiles(*(_profile(**box) for box in boxes))


def _profile(*, name: str = "", **corners: Mapping[str, list[int]]) -> Profile:
    shapes = {
        corner: {tensor: tuple(map(int, shape)) for tensor, shape in by_input.items()}
        for corner, by_input in corners.items()
    }
    return Profile(name=name, **shapes)


def _read_traffic(table: Mapping[str, Mapping[int | str, int]], *, count: int = 8) -> Dispatcher:
    requests = {s: {int(size): int(n) for size, n in seen.items()} for s, seen in table.items()}
    return from_traffic(requests, count=count)


READERS: dict[str, Callable[..., Dispatcher]] = {
    "intervals": _read_intervals,
    "profiles": _read_profiles,
    "traffic": _read_traffic,
}
