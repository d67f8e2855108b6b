"""The arrangement of a function before its kernels: where layouts change, and what is not fused."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = "default"
MANY = re.compile(r"((?:\d+,){4})[\d,]+")
TEXT = re.compile(r"(?:planar=(\d+(?:,\d+)*))?(?: ?apart=(\d+(?:,\d+)*))?")


@dataclass(frozen=True)
class Arrangement:
    """By default convolutions and pools run in NHWC, and all is fused that a template takes."""

    planar: frozenset[int] = frozenset()
    """Ops that stay in NCHW: their places in the body of the simplified function."""
    apart: frozenset[int] = frozenset()
    """Ops that join no kernel before them: their places in the body as laid out."""

    def __str__(self) -> str:
        fields = (("planar", self.planar), ("apart", self.apart))
        words = [f"{name}={','.join(map(str, sorted(at)))}" for name, at in fields if at]
        return " ".join(words) or NAME

    @property
    def brief(self) -> str:
        """The text, of many places the first only."""
        return MANY.sub(r"\1...", str(self))

    @classmethod
    def parse(cls, text: str) -> Arrangement:
        """The inverse of `str`; raises ValueError."""
        match = TEXT.fullmatch("" if text == NAME else text)
        parsed = cls(*map(_places, match.groups())) if match else None
        if parsed is None or str(parsed) != text:
            raise ValueError(f"{text!r} is no arrangement, which is 'planar=0,... apart=0,...'")
        return parsed


USUAL = Arrangement()


def _places(text: str | None) -> frozenset[int]:
    return frozenset(map(int, text.split(","))) if text else frozenset()
