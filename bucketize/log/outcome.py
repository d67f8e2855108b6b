"""Outcomes of measurements: a latency in each round, or an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bucketize.log.confidence import of_median, ratios

ERROR_LENGTH = 500  # characters of an error's message that a row keeps
COMPILED, CACHED = "compiled", "cached"
ErrorKind = Literal[
    "none", "invalid", "compile", "compile_timeout", "run", "run_timeout", "wrong_answer", "crash"
]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of measuring an implementation, or a clone under a configuration."""

    error_kind: ErrorKind = "none"
    error: str = ""
    compile_s: float | None = None
    max_rel_err: float | None = None
    build: str = ""
    """Whether the kernel was COMPILED or CACHED, if there is one."""
    packed_bytes: int | None = None
    """Bytes of the constants as the kernel has them laid out."""
    load: float | None = None
    """The load of the machine while it was timed."""
    seconds: tuple[float, ...] = ()
    """Seconds of its turns, one a round: those of a job's implementations are pairs."""

    @property
    def failed(self) -> bool:
        """Whether there is no latency."""
        return self.error_kind != "none"

    def beside(self, default: Outcome) -> dict[str, Any]:
        """The columns of a row about it, and about the default in the same rounds."""
        columns = {name: value for name, value in vars(self).items() if name != "seconds"}
        columns |= {"status": "failed" if self.failed else "ok", "error": self.error[:ERROR_LENGTH]}
        if self.seconds:
            columns |= {
                "repeats": len(self.seconds),
                "latency_min_s": min(self.seconds),
                "latency_std_s": float(np.std(self.seconds)),
                **_quartiles(self.seconds, "latency_q1_s", "latency_median_s", "latency_q3_s"),
            }
        if default.seconds:
            columns |= _quartiles(default.seconds, "baseline_q1_s", "baseline_s", "baseline_q3_s")
        if self.seconds and default.seconds:
            interval = of_median(ratios([(self.seconds, default.seconds)], [1.0]))
            columns |= {"ratio_low": interval.low, "ratio_high": interval.high} if interval else {}
        return columns


def _quartiles(seconds: tuple[float, ...], *columns: str) -> dict[str, float]:
    """The first, the median and the third, in columns of these names."""
    return dict(zip(columns, np.quantile(seconds, [0.25, 0.5, 0.75]).tolist(), strict=True))
