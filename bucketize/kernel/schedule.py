"""What is chosen of a workload: a template and its schedule, as a value and as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

Knob: TypeAlias = int | str
Schedule: TypeAlias = Mapping[str, Knob]


@dataclass(frozen=True)
class Implementation:
    """One way to compute a workload: a template, and a value for each of its knobs."""

    template: str
    schedule: Schedule

    def __str__(self) -> str:
        return " ".join([self.template, *(f"{k}={_word(v)}" for k, v in self.schedule.items())])

    @classmethod
    def parse(cls, text: str) -> Implementation:
        """The inverse of `str`; raises ValueError."""
        template = text.partition(" ")[0]
        try:
            parsed = cls(template, {name: _value(word) for name, word in KNOB.findall(text)})
        except ValueError:
            parsed = None
        if parsed is None or str(parsed) != text or not WORD.fullmatch(template):
            raise ValueError(f"{text!r} is no implementation, which is 'template knob=value ...'")
        return parsed

    @cached_property
    def key(self) -> tuple[str, frozenset[tuple[str, Knob]]]:
        """Equal for equal ones, whatever the order of the knobs."""
        return self.template, frozenset(self.schedule.items())


WORD = re.compile(r"[A-Za-z_]\w*")
KNOB = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|[^ "]+)')


def _word(value: Knob) -> str:
    """The text of a knob's value; quoted where it could be taken for something else."""
    plain = isinstance(value, int) or WORD.fullmatch(value)
    return str(value) if plain else json.dumps(value)


def _value(word: str) -> Knob:
    """The inverse of `_word`, of all that it gives."""
    if WORD.fullmatch(word):
        return word
    return str(json.loads(word)) if word.startswith('"') else int(word)
