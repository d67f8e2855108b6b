"""The text form of the IR: documentation, golden tests and error messages at once.

    def @main(%x: float32[N, 4]) -> float32[N, 4] where N in [1, 32] {
      %0 = add(%x, float32[4](0.0, 1.0, 2.0, 3.0)) : float32[N, 4]
      %1 = softmax(%0, axis=1) : float32[N, 4]
      return %1
    }

Variables are numbered in order of appearance, attributes at their defaults are left out, and a
constant of more than a few elements is an entry of a table that travels beside the text. Types
may be left out of hand-written text. A clone's head ends in a clause that says what it serves:
`clone(bucket N=2..3, policy pad)`. `parse(show(m), constants(m))` shows as the same text.
"""

from bucketize.text.parser import parse, parse_function
from bucketize.text.printer import constants, show, show_binding
from bucketize.text.reader import parse_type

__all__ = ["constants", "parse", "parse_function", "parse_type", "show", "show_binding"]
