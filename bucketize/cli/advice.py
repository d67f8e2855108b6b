"""What a comparison comes to, in three sentences: what was gained, what it cost, what to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bucketize.cli.compare import ends, verdict
from bucketize.cli.table import fitting, records

if TYPE_CHECKING:
    import pandas as pd

BUSY, CLEAR = 0.05, 2.0
"""Half the distance of the quartiles of a ratio beyond which nothing is claimed, unless the
ratio is so many times as far from 1."""
WORTH = 0.02
"""The share of the time that another way has to save at least to be advised."""
LIMIT = "a program for each size"
"""A yardstick: who knows all sizes beforehand needs no buckets. It is never advised."""
Row = Mapping[Any, Any]


def judged(row: Row) -> str:
    """The verdict on a way, or `noisy` where the machine was too busy for any."""
    half = (row["mean_slowdown_q3"] - row["mean_slowdown_q1"]) / 2
    is_clear = abs(row["mean_slowdown"] - 1) > CLEAR * half
    return verdict(row) if half <= BUSY or is_clear else "noisy"


@dataclass(frozen=True)
class Finding:
    """The first way of a model, and what the others took beside it."""

    model: str
    first: Row
    others: Sequence[Row]

    @property
    def gain(self) -> str:
        """What the first way buys, in words, whatever that is."""
        return f"{self.model}: {self.first['dispatcher']} {'; '.join(self._clauses())}"

    def _clauses(self) -> Iterator[str]:
        for word, (clause, piece) in CLAUSES.items():
            rows = [row for row in self.others if judged(row) == word]
            if rows:
                yield clause.format(listed([piece.format_map(_words(row)) for row in rows]))

    @property
    def taken(self) -> Row | None:
        """The cheapest of the fastest; None where the machine was too busy to tell."""
        rivals = [row for row in self.others if row["dispatcher"] != LIMIT]
        faster = [r for r in rivals if judged(r) == "faster" and 1 - r["mean_slowdown"] > WORTH]
        if not faster:
            return None if all(judged(row) == "noisy" for row in rivals) else self.first
        best = min(faster, key=lambda row: float(row["mean_slowdown"]))
        return next(r for r in faster if r["mean_slowdown_q1"] <= best["mean_slowdown_q3"])


CLAUSES = {
    "slower": ("takes {}", "{less} % less time than {way} ({low} to {high} %)"),
    "same": ("is as fast as {}, within 2 %", "{way}"),
    "faster": (
        "is slower than {}",
        "{way}, which takes {ratio:.2f} of its time ({fast:.2f} to {slow:.2f})",
    ),
    "unclear": ("is not told apart from {}", "{way} ({fast:.2f} to {slow:.2f})"),
    "noisy": (
        "cannot be told from {} in half of the rounds: the machine was too busy",
        "{way} ({q1:.2f} to {q3:.2f})",
    ),
}
"""By verdict on the others what is said of the first, and of each of them."""


def _words(row: Row) -> dict[str, Any]:
    """What is told of a way: its time by that of the first, and what the first saves, in %."""
    ratio, (fast, slow) = row["mean_slowdown"], ends(row)
    less, low, high = (f"{100 * (1 - 1 / r):.0f}" for r in (ratio, fast, slow))
    spread = {"q1": row["mean_slowdown_q1"], "q3": row["mean_slowdown_q3"]}
    ends_of = {"fast": fast, "slow": slow, "less": less, "low": low, "high": high}
    return {"way": row["dispatcher"], "ratio": ratio, **spread, **ends_of}


def listed(pieces: Sequence[str]) -> str:
    """`a, b and c`."""
    *most, last = pieces
    return f"{', '.join(most)} and {last}" if most else last


def findings(trade: pd.DataFrame) -> list[Finding]:
    """One for each model of a trade-off beside its first way."""
    every = []
    for model, of in trade.groupby("model", sort=False):
        first, *others = records(of)
        every.append(Finding(str(model), first, others))
    return every


def advice(trade: pd.DataFrame, tuning_s: Mapping[str, float]) -> str:
    """The three sentences; `tuning_s` are the seconds of tuning, by model."""
    every = findings(trade)
    costs = [cost for f in every if (cost := _cost(f, tuning_s.get(f.model, 0.0)))]
    parts = {"Gained": [f.gain for f in every], "Cost": costs, "Take": [_take(f) for f in every]}
    return "\n".join(fitting(f"{head}: {'. '.join(part)}.") for head, part in parts.items() if part)


def _cost(finding: Finding, tuning_s: float) -> str:
    """What is taken, or would be, where that was compiled by itself."""
    row = finding.taken or finding.first
    if row["clones"] is None:
        return ""
    tuned = f", after {tuning_s:g} s of tuning, once" if row["searched"] and tuning_s else ""
    clones = f"{row['clones']:.0f} clone{'s' * (row['clones'] != 1)}"
    compiled = f"compiled in {row['compile_s']:.1f} s, {row['weight_mib']:.0f} MiB of weights"
    return f"{finding.model}: {row['dispatcher']} is {clones}, {compiled}{tuned}"


def _take(finding: Finding) -> str:
    row = finding.taken
    name = "nothing before this ran on a quiet machine" if row is None else row["dispatcher"]
    return f"{finding.model}: {name}"
