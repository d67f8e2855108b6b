"""Configurations: all that is decided for a clone, its arrangement and its implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.kernel.select import Select
from bucketize.lower.arrangement import USUAL, Arrangement

ARRANGEMENT = "arrangement"  # what stands in a row beside the workloads, if it is not the usual one


@dataclass(frozen=True)
class Configuration:
    """What a clone runs in place of its defaults; nothing, they are what it runs."""

    implementations: Mapping[str, Select] = field(default_factory=dict)
    """By the hash of the workload."""
    arrangement: Arrangement = USUAL

    def __bool__(self) -> bool:
        return self != Configuration()

    @property
    def words(self) -> dict[str, str]:
        """The configuration as plain words."""
        words = {workload: str(select) for workload, select in self.implementations.items()}
        usual = self.arrangement == USUAL
        return words if usual else {ARRANGEMENT: str(self.arrangement), **words}

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Configuration:
        """The inverse of `words`; raises ValueError."""
        implementations = {w: Select.parse(text) for w, text in words.items() if w != ARRANGEMENT}
        return cls(implementations, Arrangement.parse(words.get(ARRANGEMENT, str(USUAL))))


Configurations: TypeAlias = Callable[[str], Configuration | None]
"""For a function, by its name: its configuration, or None where nothing is known."""


def defaults(_: str) -> Configuration | None:
    """Nothing is known."""
    return None
