"""A partition: buckets chosen by what clones are expected to take and to be worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from bucketize.dispatch.bucket import Bucket, show_bucket
from bucketize.errors import DispatchError
from bucketize.kernel.build import BUILD_S
from bucketize.machine.speed import Floats
from bucketize.types import Shape

OF = {"mean": "time", "p99": "time at the 99th percentile", "worst": "time where it loses most"}


@dataclass(frozen=True)
class Frontier:
    """The best partition of so many clones, and what it comes to."""

    buckets: tuple[Bucket, ...]
    seconds: float
    """Seconds of the kernels of a call in the mean, by the models."""
    p99_s: float
    """What 99 % of the calls do not exceed."""
    worst: float
    """What a call takes by the best kernels for its size, where that is most."""
    kernels: int
    """Distinct ones of all clones: what is compiled."""
    weight_bytes: int
    """Bytes of the weights, each in every layout that a kernel reads."""

    @property
    def clones(self) -> int:
        """How many there are."""
        return len(self.buckets)

    @property
    def compile_s(self) -> float:
        """About what compiling takes on one core, from an empty cache."""
        return self.kernels * BUILD_S

    def value(self, objective: str) -> float:
        """By which partitions are compared."""
        return {"mean": self.seconds, "p99": self.p99_s, "worst": self.worst}[objective]


@dataclass(frozen=True)
class Partition:
    """Buckets by evidence: a dispatcher, and what its clones are expected to buy.

    Called as dispatchers are, `dispatch(mod, partition)`, it gives its buckets.
    """

    chosen: Frontier
    frontier: tuple[Frontier, ...]
    """For 1, 2, ... clones the best; without those that more clones make no better."""
    oracle: float
    """What the objective comes to if the best kernel of all serves each size: no partition is
    better."""
    requests: float
    """How many calls it was chosen by; 0 where all sizes count alike."""
    objective: str = "mean"
    by_size: Mapping[str, Floats] = field(default_factory=dict, repr=False, compare=False)
    """What calls are expected to take: columns, for `pandas.DataFrame`, of the sizes by symbol,
    `share` (of the requests), and seconds: `one_clone_s`, `chosen_s`, `oracle_s`."""

    def __call__(self, shapes: Mapping[str, Shape]) -> list[Bucket]:
        """The buckets: what `dispatch` asks for."""
        del shapes  # symbols have names of their own
        return list(self.chosen.buckets)

    @property
    def loss(self) -> float:
        """What is lost by the oracle, as a share of its value: the most that others can gain."""
        return self.above(self.chosen)

    def above(self, its: Frontier) -> float:
        """What a choice of clones loses by the oracle, as a share of its value."""
        return max(its.value(self.objective) / self.oracle - 1, 0.0) if self.oracle else 0.0

    @property
    def saved(self) -> float:
        """The share of the objective that the chosen clones save beside a single one."""
        single = self.frontier[0].value(self.objective)
        return 1 - self.chosen.value(self.objective) / single if single else 0.0

    def __str__(self) -> str:
        """One sentence: the clones, what they save, and what is left."""
        n, more = self.chosen.clones, [f for f in self.frontier if f.clones > self.chosen.clones]
        what = OF[self.objective]
        head = (
            "1 clone is enough" if n == 1 else f"{n} clones save {self.saved:.1%} of one's {what}"
        )
        rest = f", {self.loss:.1%} above the best kernels for each size"
        if more:
            value = self.chosen.value(self.objective)
            gain = 1 - more[-1].value(self.objective) / value if value else 0.0
            rest += f", of which {more[-1].clones} clones would save {gain:.1%}"
        return f"{head}{rest} ({show_buckets(self.chosen.buckets)}{self._judged()})"

    def _judged(self) -> str:
        """Which sizes it was judged at, where buckets have no end and no requests say which."""
        open_ends = {n for b in self.chosen.buckets for n, (_, end) in b.items() if end is None}
        tried = {n: self.by_size[n] for n in sorted(open_ends) if n in self.by_size}
        if self.requests or not tried:
            return ""
        return "; judged at " + ", ".join(
            f"{n}={s.min():.0f}..{s.max():.0f}" for n, s in tried.items()
        )

    def write(self, path: str | Path) -> None:
        """Write the buckets as a file that `-d FILE` and `dispatchers.from_file` read.

        Raises:
            DispatchError: it cannot be written, or would be read as a traffic.

        """
        if (suffix := Path(path).suffix) in (".csv", ".parquet"):
            raise DispatchError(
                f"cannot write {path}: buckets are YAML, "
                f"and what ends in {suffix} is read as requests"
            )
        table = [{name: list(ends) for name, ends in b.items()} for b in self.chosen.buckets]
        text = f"# {self}\n" + yaml.safe_dump({"buckets": table}, default_flow_style=None)
        try:
            Path(path).write_text(text)
        except OSError as e:
            raise DispatchError(f"cannot write {path}: {e.strerror}") from e


def show_buckets(buckets: Iterable[Bucket]) -> str:
    """The buckets, one after the other: `N=1..16, N=17..64`."""
    return ", ".join(map(show_bucket, buckets))
