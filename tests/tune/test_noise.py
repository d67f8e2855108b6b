"""Sessions on a noisy machine: whatever the noise, no session makes a clone slower."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from choosing import implementations_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_confirm import model

from bucketize.compiler import logged
from bucketize.kernel.schedule import Implementation
from bucketize.log.outcome import Outcome
from bucketize.lower.cost import Weighted
from bucketize.measure import runner as site
from bucketize.measure.job import Job
from bucketize.measure.race import Pair
from bucketize.program.configuration import Configuration
from bucketize.tune.api import tune
from bucketize.tune.task import tasks_of

SESSIONS = 6
ROUNDS = 21
EVEN = [i / (ROUNDS - 1) - 0.5 for i in range(ROUNDS)]
"""Logarithms of a noise that is as often above as below: no median of it is off."""


@dataclass
class Machine:
    """A measurer and a racer: implementations take what chance says, and others beside them."""

    load = None

    seed: int
    noise: float
    """Of the logarithm of a ratio, how far its rounds are apart; the default's are as slow."""
    gain: float = 0.3
    """Of the logarithm of a ratio, how far implementations are apart."""
    source = None
    has_clock = True
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def true(self, workload: str, made: Implementation) -> float:
        """The logarithm of latency by the default's; about as many are slower as are faster."""
        return random.Random(f"{self.seed} {workload} {made}").uniform(-self.gain, self.gain)

    def together(self, configuration: Configuration) -> float:
        """That of the clone: half of it is each workload's, and some go ill with others."""
        if not configuration:
            return 0.0
        made = implementations_of(configuration)
        ill = random.Random(f"{self.seed} {sorted(configuration.words.items())}")
        return sum(self.true(w, one) for w, one in made.items()) / 2 + ill.uniform(-0.1, 0.2)

    def pair(self, log: float) -> Pair:
        """Rounds in which others keep the machine busy, now and then: both sides alike."""
        even = self.dice.sample(EVEN, ROUNDS)
        busy = [1e-3 * math.exp(self.dice.uniform(0, self.noise)) for _ in even]
        ours = [b * math.exp(log + self.noise * x) for b, x in zip(busy, even, strict=True)]
        return ours, busy

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        for job in jobs:
            _, busy = self.pair(0.0)
            found = [Outcome(seconds=tuple(busy))]
            for made in job.implementations[1:]:
                even = self.dice.sample(EVEN, ROUNDS)
                log = self.true(job.workload.hash, made)
                rounds = zip(busy, even, strict=True)
                taken = tuple(b * math.exp(log + self.noise * x) for b, x in rounds)
                found.append(Outcome(seconds=taken))
            yield found

    def __call__(self, *_: object) -> Machine:
        return self

    def places(self, configuration: Configuration, judged: Weighted) -> list[dict[str, Pair]]:
        made = implementations_of(configuration).items()
        return [{w: self.pair(self.true(w, one)) for w, one in made} for _ in judged]

    def whole(self, configuration: Configuration, judged: Weighted) -> list[Pair]:
        return [self.pair(self.together(configuration)) for _ in judged]


def course(log: Path, machine: Machine, noises: Sequence[float]) -> list[float]:
    """What the clone truly takes by the default's, after each session of these noises."""
    taken = []
    options = {"search": "random", "sizes": "middle", "measurer": machine}
    for number, noise in enumerate(noises, 2):
        machine.noise = noise
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(site, "Race", machine)
            tune(model(), log=log, trials=number, **options)
        (task, *_) = tasks_of(model())
        configuration = logged(model(), log, 1)(task.function)
        assert configuration is not None
        taken.append(math.exp(machine.together(configuration)))
    return taken


NOISES = st.sampled_from([0.0, 0.01, 0.03]) | st.floats(0.0, 0.2) | st.floats(0.0, 3.0)


@settings(max_examples=8)
@given(st.integers(0, 999), st.lists(NOISES, min_size=SESSIONS, max_size=SESSIONS))
def test_sessions_in_a_row_never_make_a_clone_slower(
    tmp_path_factory: pytest.TempPathFactory, seed: int, noises: list[float]
) -> None:
    taken = course(tmp_path_factory.mktemp("logs") / "t.csv", Machine(seed, 0.0), noises)
    assert taken == sorted(taken, reverse=True)
    assert taken[0] <= 1


def test_on_a_quiet_machine_sessions_make_a_clone_faster(tmp_path: Path) -> None:
    """Else there is nothing to keep; what few trials find hangs on how many schedules there are."""
    courses = [
        course(tmp_path / f"{seed}.csv", Machine(seed, 0.0), [0.01] * SESSIONS)
        for seed in range(8, 12)
    ]
    assert all(taken[-1] <= taken[1] <= 1 for taken in courses)
    assert any(taken[-1] < taken[1] < 1 for taken in courses)


@settings(max_examples=8)
@given(st.integers(0, 999), NOISES, st.floats(0.0, 0.3))
def test_noise_of_any_size_chooses_nothing_rather_than_what_is_worse(
    tmp_path_factory: pytest.TempPathFactory, seed: int, noise: float, gain: float
) -> None:
    log = tmp_path_factory.mktemp("logs") / "t.csv"
    assert course(log, Machine(seed, 0.0, gain), [noise]) <= [1.0]
