"""Traffics by name: public ones as counts or quantiles, and synthetic ones.

The histograms in `requests/` restate facts of public data sets; times and texts are not in them.

- prompts: tokens of prompts of a conversation service in an hour. Azure public dataset, LLM
  inference trace 2023, CC-BY.
- images: heights and widths of photographs. COCO val2017, annotations CC-BY 4.0.
- queries: words and marks of short queries, plus 2. Captions of COCO val2017, CC-BY 4.0.
- chunks: tokens of chunks of documents by bge-small, capped at 512; known by quantiles that are
  told in huggingface/funes, issue 167.
- recommender: samples of a query, log-normal and at most 1024, as DeepRecSys (Gupta et al., 2020)
  describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import NormalDist

import numpy as np

from bucketize.errors import unknown_name
from bucketize.traffic.value import Traffic

HALF_HOUR = 1800.0
DRAWN = 10_000  # requests of a synthetic traffic
LARGEST = 512  # of their sizes
QUANTILES = {0: 5, 0.1: 68, 0.25: 193, 0.5: 314, 0.75: 400, 0.9: 465, 0.955: 512, 1: 512}
CHUNKS = 12_971


def traffic(name: str) -> Traffic:
    """A traffic by its name; the same at every call.

    Args:
        name: one of `TRAFFICS`.

    Returns:
        The traffic.

    Raises:
        UnknownNameError: there is no such traffic.

    """
    if name not in _MAKERS:
        raise unknown_name("zoo traffic", name, TRAFFICS)
    return _MAKERS[name]()


def _stored(name: str) -> Traffic:
    return Traffic.read(Path(__file__).parent / "requests" / f"{name}.csv")


def _prompts() -> Traffic:
    """The two halves of the hour: the first has the time 0, the second 1800 s."""
    first, second = _stored("prompts-first"), _stored("prompts-second")
    return _at(first, 0.0).merged(_at(second, HALF_HOUR))


def _at(half: Traffic, time: float) -> Traffic:
    return Traffic(half.symbols, half.sizes, half.requests, np.full(len(half.sizes), time))


def _of(symbol: str, sizes: Iterable[float], most: int = LARGEST) -> Traffic:
    """Sizes rounded, from 1 to `most`."""
    histogram = Counter(min(max(round(size), 1), most) for size in sizes)
    return Traffic((symbol,), np.array([[s] for s in histogram]), np.array([*histogram.values()]))


def _middles(number: int) -> list[float]:
    """Shares in the middles of so many equal parts of 1."""
    return [(i + 0.5) / number for i in range(number)]


def _chunks() -> Traffic:
    """Quantiles, interpolated."""
    sizes = np.interp(_middles(CHUNKS), list(QUANTILES), list(QUANTILES.values()))
    return _of("S", sizes.tolist())


def _log_normal(mu: float, sigma: float, most: int) -> Traffic:
    normal = NormalDist(mu, sigma)
    return _of("N", [np.exp(normal.inv_cdf(share)) for share in _middles(DRAWN)], most)


def _uniform() -> Traffic:
    """Each size from 1 to 512 20 times."""
    sizes = np.arange(1, LARGEST + 1)
    return Traffic(("N",), sizes, np.full(LARGEST, 20))


def _zipf() -> Traffic:
    """Sizes from 1 to 512, requests as size to the power of -1.1."""
    sizes = np.arange(1, LARGEST + 1)
    weights = sizes**-1.1
    return Traffic(("N",), sizes, np.ceil(DRAWN * weights / weights.sum()).astype(np.int64))


def _bimodal() -> Traffic:
    """Three in ten about 16 (deviation 4), the others about 256 (32)."""
    short = [NormalDist(16, 4).inv_cdf(share) for share in _middles(3 * DRAWN // 10)]
    long = [NormalDist(256, 32).inv_cdf(share) for share in _middles(7 * DRAWN // 10)]
    return _of("N", short + long)


def _queue() -> Traffic:
    """Batches of a server that takes all who wait, at most 32.

    Of Poisson arrivals 0.8 come in a unit of time; a batch of n takes 4 + n / 4 units, seed 0.
    """
    random, waiting, batches = np.random.default_rng(0), 1, []
    for _ in range(DRAWN):
        batch = min(max(waiting, 1), 32)
        batches.append(batch)
        waiting = max(waiting - batch, 0) + int(random.poisson(0.8 * (4 + batch / 4)))
    return _of("N", batches)


_MAKERS: dict[str, Callable[[], Traffic]] = {
    "prompts": _prompts,
    **{name: partial(_stored, name) for name in ("prompts-first", "prompts-second")},
    **{name: partial(_stored, name) for name in ("images", "queries")},
    "chunks": _chunks,
    "recommender": partial(_log_normal, 5.1, 0.2, 1024),
    "uniform": _uniform,
    "zipf": _zipf,
    "log-normal": partial(_log_normal, 4.2, 0.8, LARGEST),  # of a median of 67
    "bimodal": _bimodal,
    "queue": _queue,
}
TRAFFICS = tuple(_MAKERS)
