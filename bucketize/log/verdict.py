"""The choice among measured implementations: which ones a clone should run.

A clone runs what was *confirmed* in it, by the rows that tell so in its own name; everything else
in the log, its own unconfirmed trials included, changes nothing. What was confirmed stays until
another configuration beats it or it is shown to be slower than the defaults: by the order of the
rows in the log, whatever their clocks said.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bucketize.dispatch.bucket import show_bucket
from bucketize.errors import LogError
from bucketize.ir import CALL, Function, Module, all_bindings
from bucketize.log.confidence import Interval
from bucketize.log.trial import CLONE, Trial
from bucketize.program.configuration import Configuration
from bucketize.text import show

# --- what belongs to a clone ----------------------------------------------------------------------


class Digests:
    """The identities of a module's functions: what they compute, in which bucket, how."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._texts: dict[int, str] = {}
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        """The identity of a function; constants count by their types."""
        if name not in self._known:
            clone = self.module.clones.get(name)
            if clone is None or clone.origin is None:
                fn = self.module.functions[name]
                # what only calls has nothing to tune, and may call a hundred thousand clones
                words = [] if any(b.op is CALL for b in all_bindings(fn)) else [self._text(fn)]
            else:
                words = [self._text(clone.origin), show_bucket(clone.bucket), clone.policy]
            self._known[name] = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
        return self._known[name]

    def _text(self, fn: Function) -> str:
        if id(fn) not in self._texts:
            self._texts[id(fn)] = show(fn)
        return self._texts[id(fn)]


@dataclass(frozen=True)
class Verdict:
    """A configuration timed in a clone as a whole beside the defaults; untimed, these alone."""

    rows: tuple[Trial, ...]
    """One for each point at which it was judged; their weights are shares of 1."""

    @property
    def timed(self) -> str:
        """The configuration that was timed, whether it pays or not."""
        return self.rows[-1].schedule

    @cached_property
    def configuration(self) -> Configuration:
        """What runs in place of the defaults."""
        if not self.pays:
            return Configuration()
        try:
            return Configuration.of(json.loads(self.timed))
        except ValueError as e:
            raise LogError(f"a row of run {self.rows[-1].run_id} confirms what is none: {e}") from e

    @property
    def shapes(self) -> set[str]:
        """Shapes of the inputs at which the clone was judged."""
        return {row.shape for row in self.rows}

    @property
    def pays(self) -> bool:
        """Whether it is faster by it beyond the noise, and at no point shown to be slower."""
        interval = self.interval
        slower = any(row.ratio_low is None or row.ratio_low > 1 for row in self.rows)
        return interval is not None and interval.high < 1 and not slower

    @property
    def loses(self) -> bool:
        """Whether the clone is slower by it beyond the noise."""
        interval = self.interval
        return interval is not None and interval.low > 1

    def beats(self, other: Verdict) -> bool:
        """Whether it pays, and more than the other beyond the noise, if that was timed there."""
        mine, its = self.interval, other.interval
        if not self.pays or mine is None:
            return False
        return self.shapes != other.shapes or (its is not None and mine.high < its.low)

    @cached_property
    def interval(self) -> Interval | None:
        """Latency by that on defaults: the weighted geometric mean over the points."""
        ends = [(r.weight, r.ratio_low, r.ratio_high) for r in self.rows]
        whole = [(w, low, high) for w, low, high in ends if low is not None and high is not None]
        if len(whole) < len(ends) or not whole:
            return None
        total = sum(weight for weight, _, _ in whole)
        mean = sum(w * math.log(low * high) / 2 for w, low, high in whole) / total
        half = math.hypot(*(w * math.log(high / low) / 2 for w, low, high in whole)) / total
        return Interval(*(math.exp(mean + h) for h in (0, -half, half)))


def histories(trials: Iterable[Trial]) -> dict[str, list[Verdict]]:
    """The verdicts on each clone, by its identity, in the order in which they were told.

    A verdict that lacks rows is none: the session was killed while it wrote them.
    """
    by_clone: dict[str, list[Verdict]] = defaultdict(list)
    partial: dict[tuple[str, str, str], dict[str, Trial]] = defaultdict(dict)
    for trial in trials:
        if trial.op == CLONE:
            key = trial.clone, trial.run_id, trial.schedule
            partial[key][trial.shape] = trial
            if math.isclose(sum(row.weight for row in partial[key].values()), 1.0):
                by_clone[trial.clone].append(Verdict(tuple(partial.pop(key).values())))
    return by_clone


def standing(history: Iterable[Verdict]) -> Verdict | None:
    """What stands of the verdicts on a clone, one after the other; None if there is none.

    What pays stays until another beats it or it is shown to lose. Noise shows neither.
    """
    stands: Verdict | None = None
    again: Verdict | None = None  # the last time that the same configuration was timed
    for new in history:
        if stands is None or again is None or not stands.pays:
            stands = again = new
        elif new.timed == stands.timed:
            again = new
            stands = new if new.pays or new.loses else stands
        elif new.beats(again):
            stands = again = new
    return stands


def verdicts(trials: Iterable[Trial], threads: int) -> dict[str, Verdict]:
    """What stands of the verdicts on each clone, by its identity."""
    return all_standing(histories(trial for trial in trials if trial.threads == threads))


def all_standing(histories: Mapping[str, Iterable[Verdict]]) -> dict[str, Verdict]:
    """The verdict on each clone that stands, where one does."""
    stands = {clone: standing(history) for clone, history in histories.items()}
    return {clone: verdict for clone, verdict in stands.items() if verdict is not None}


def geometric_mean(trials: Sequence[Trial]) -> float:
    """The weighted geometric mean of latency relative to the baseline (1 s where there is none)."""
    total = sum(trial.weight for trial in trials)
    logs = (
        trial.weight * math.log((trial.latency_median_s or math.inf) / (trial.baseline_s or 1.0))
        for trial in trials
    )
    return math.exp(sum(logs) / total)
