"""What calls are expected to take, each asked for once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bucketize.errors import BucketizeError
from bucketize.program.program import Program
from bucketize.release import rest
from bucketize.types import Sizes

MOST = 65_536  # that are remembered
OVERHEAD_S = 1.5e-4
"""Seconds of a call in which rows are put together and parted after: of a small encoder 0.09 ms
with 4 rows, 0.11 with 16, 0.23 with 40 (Zen 4)."""
WAITING = 1.1
"""By how much longer calls take that threads share, where each kernel waits for the last of them:
1.0 to 1.16 on two busy cores (Zen 4)."""

Key: TypeAlias = tuple[str, int, Hashable]


@dataclass(frozen=True, eq=False)
class Costs:
    """The models of a program's kernels."""

    program: Program
    are_told: bool
    """Whether there are any: a program that was loaded does without the templates they need."""
    _known: dict[Key, float] = field(default_factory=dict)

    def seconds(self, function: str, points: Sequence[Sizes], lanes: int) -> list[float]:
        """What calls of a function take where so many run at once; infinite what is refused."""
        asked = {(function, lanes, _key(sizes)): sizes for sizes in points}
        answers = {key: self._known.get(key) for key in asked}
        missing = [key for key, seconds in answers.items() if seconds is None]
        if missing:
            expected = self._expected(function, [asked[key] for key in missing], lanes)
            answers.update(zip(missing, expected, strict=True))
            if len(self._known) + len(missing) > MOST:
                self._known.clear()
            self._known.update(zip(missing, expected, strict=True))
        return [answers[function, lanes, _key(sizes)] or 0.0 for sizes in points]

    def _expected(self, function: str, points: Sequence[Sizes], lanes: int) -> list[float]:
        predict = rest("bucketize.inspect.predict")
        program, threads = self.program, self.program.threads
        if lanes > 1:  # a thread each, all of whose cores are busy
            program, threads = replace(program, target=program.target.crowded), 1
        try:
            each = predict.predictions(program, points, function, threads)
        except BucketizeError:
            if len(points) == 1:
                return [math.inf]
            return [s for sizes in points for s in self._expected(function, [sizes], lanes)]
        waiting = WAITING if threads > 1 else 1.0
        return [waiting * prediction.seconds for prediction in each]


def _key(sizes: Sizes) -> Hashable:
    return tuple(sorted(sizes.items()))
