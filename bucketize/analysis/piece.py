"""Work in pieces of several kinds: stopped when time is up, with an estimate of what is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bucketize.errors import LateError
from bucketize.progress import TellMore


@dataclass(frozen=True)
class Piece:
    """A piece of work; those of one kind take as long as one another, by their weights."""

    kind: str
    what: str
    work: Callable[[], object]
    weight: float = 1.0


@dataclass(eq=False)
class Pieces:
    """Pieces that are worked on one after the other."""

    pieces: Sequence[Piece]
    tell: TellMore
    seconds: float = math.inf
    """After which no piece begins."""
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    spent: dict[str, list[float]] = field(default_factory=dict)
    """By kind, the seconds of the pieces that are done, and their weight."""

    def __post_init__(self) -> None:
        """The time runs from now on."""
        self.begin = self.start = self.clock()

    def work(self) -> None:
        """Do all of them, as far as there is time."""
        try:
            for piece in self.pieces[self.done :]:
                self.start = self.clock()
                self.say(piece.what)
                piece.work()
                seconds, weight = self.spent.setdefault(piece.kind, [0.0, 0.0])
                self.spent[piece.kind] = [
                    seconds + self.clock() - self.start,
                    weight + piece.weight,
                ]
                self.done += 1
        except LateError:
            return

    @property
    def left_s(self) -> float:
        """Seconds until time is up."""
        return self.begin + self.seconds - self.clock()

    @property
    def expected_s(self) -> float:
        """Seconds that all that is left is expected to take; infinite while that is unknown."""
        waiting = self.pieces[self.done :]
        if any(piece.kind not in self.spent for piece in waiting):
            return math.inf
        expected = [self._expected(piece) for piece in waiting]
        begun = self.clock() - self.start
        return max(expected[0] - begun, 0.0) + sum(expected[1:]) if expected else 0.0

    def _expected(self, piece: Piece) -> float:
        seconds, weight = self.spent[piece.kind]
        return piece.weight * seconds / weight

    def say(self, what: str) -> None:
        """Tell what is being done.

        Raises:
            LateError: time is up.

        """
        if self.left_s <= 0:
            raise LateError("time is up")
        limit = self.left_s if self.seconds < math.inf else None
        self.tell(what, self.done, len(self.pieces), left_s=limit, expected_s=self.expected_s)
