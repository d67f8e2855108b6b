"""What a comparison comes to, in three sentences: what was gained, what it cost, what to take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bucketize.cli.compare import verdict
from bucketize.cli.table import fitting, records

if TYPE_CHECKING:
    import pandas as pd

PLAIN = "no buckets"
"""The module for all sizes, by which others are told."""
BUSY = 0.05
"""Half the distance of the quartiles of a ratio beyond which nothing is claimed."""


def judged(row: Mapping[str, Any]) -> str:
    """`faster` or `slower` beyond the noise, `same`, or `unclear` where that is too great."""
    half = (row["mean_slowdown_q3"] - row["mean_slowdown_q1"]) / 2
    return "unclear" if half > BUSY else verdict(row)


@dataclass(frozen=True)
class Finding:
    """What modules came to beside the one without buckets."""

    model: str
    plain: Mapping[str, Any]
    other: Mapping[str, Any]
    """The one to speak of: the cheapest of the fastest, or what is nearest to it."""

    @property
    def name(self) -> str:
        """The module to speak of."""
        return str(self.other["dispatcher"])

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Its time by that of the other: the median over the rounds, and the quartiles."""
        of = self.other
        return of["mean_slowdown"], of["mean_slowdown_q1"], of["mean_slowdown_q3"]

    @property
    def gain(self) -> str:
        """What it buys, in words."""
        ratio, low, high = self.ratios
        less, least, most = (f"{100 * (1 - r):.0f}" for r in (ratio, high, low))
        of_time = f"({low:.2f} to {high:.2f} of its time)"
        gains = {
            "faster": f"{self.model} takes {less} % less time behind {self.name} ({least} to "
            f"{most} % in half of the rounds)",
            "same": f"{self.model} nothing beyond the noise {of_time}",
            "slower": f"{self.model} nothing, it is slower behind {self.name} {of_time}",
            "unclear": f"for {self.model} this machine was too busy to tell {of_time}",
        }
        return gains[judged(self.other)]


def findings(trade: pd.DataFrame) -> list[Finding]:
    """One for each model of a trade-off beside `PLAIN`, which is the first row of each."""
    every = []
    for model, of in trade.groupby("model", sort=False):
        plain, *others = records(of)
        every.append(Finding(str(model), plain, _cheapest(others)))
    return every


def _cheapest(others: list[dict[Any, Any]]) -> dict[Any, Any]:
    """The first of those that are faster which the fastest does not beat beyond the noise."""
    best = min(others, key=lambda row: float(row["mean_slowdown"]))
    for row in others:
        if judged(row) == "faster" and row["mean_slowdown_q1"] <= best["mean_slowdown_q3"]:
            return row
    return best


def advice(trade: pd.DataFrame, tuning_s: Mapping[str, float]) -> str:
    """The three sentences; `tuning_s` are the seconds of tuning, by model."""
    every = findings(trade)
    paid = [f for f in every if judged(f.other) == "faster"] or every
    lines = (
        f"Gained: {'; '.join(f.gain for f in every)}.",
        f"Cost: {'; '.join(_cost(f, tuning_s) for f in paid)}.",
        f"Take: {'; '.join(_take(every))}.",
    )
    return "\n".join(map(fitting, lines))


def _cost(finding: Finding, tuning_s: Mapping[str, float]) -> str:
    plain, other = finding.plain, finding.other
    cost = (
        f"{finding.model} has {other['clones']} clones instead of {plain['clones']}, compiles in "
        f"{other['compile_s']:.1f} s instead of {plain['compile_s']:.1f}, and keeps "
        f"{other['weight_mib']:.0f} MiB of weights instead of {plain['weight_mib']:.0f}"
    )
    seconds = tuning_s.get(finding.model) if other["searched"] else None
    return f"{cost}, after {seconds:g} s of tuning, once" if seconds else cost


def _take(every: Iterable[Finding]) -> Iterator[str]:
    """What to take, each once, and for which models."""
    models: dict[str, list[str]] = {}
    for f in every:
        models.setdefault(TAKEN.get(judged(f.other), f"{f.name} for {{}}"), []).append(f.model)
    return (what.format(" and ".join(names)) for what, names in models.items())


TAKEN = {
    "same": f"{PLAIN} for {{}}",
    "slower": f"{PLAIN} for {{}}",
    "unclear": "nothing for {} before this ran on a quiet machine",
}
