"""Integer code computes what Python does with the same text, and refuses what it does not know."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketize.errors import KernelError
from bucketize.kernel.build import build
from bucketize.kernel.emit.integer import chosen
from bucketize.link.ffi import Native, function_at
from bucketize.link.memory import address

HEAD = """
from bucketize.kernel.emit.integer import chosen, entry
from bucketize.kernel.emit.word import call_address, greatest, least, move
"""
SPAN = 1 << 40


def native(text: str) -> Native:
    return function_at(build(HEAD + text, name_hint="integer").address)


def words(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


# Each is a function of a and b in Python, and in integer code, which knows no `bool`.
EXPRESSIONS = (
    *(
        "a + b",
        "a - b",
        "a * b",
        "-a",
        "a & b",
        "a // b if b != 0 else 0",
        "a % b if b != 0 else 0",
    ),
    *("a < b", "a <= b", "a > b", "a >= b", "a == b", "a != b", "not a", "not a < b"),
    *("a > 0 and b > 0", "a > 0 or b > 0", "a == 1 and b == 2 or a > b and not b", "a if b else 7"),
    *("float(a) * float(b) > 1e20", "abs(float(a) + float(b)) < 1e3", "float(a) - float(b) == 0.0"),
    *("least(a, b)", "greatest(a, b) - least(a, b)", "SEVEN * a"),
)
EVALUATED = f"""
SEVEN = 7

{
    "".join(
        f'''
def f{i}(a, b):
    return {text}
'''
        for i, text in enumerate(EXPRESSIONS)
    )
}

@entry
def kernel(block):
    a, b = block[0], block[1]
{"".join(f"    block[{2 + i}] = f{i}(a, b)" + chr(10) for i in range(len(EXPRESSIONS)))}
"""
EDGES = (0, 1, -1, 2, 7, -7, SPAN, -SPAN)
integers = st.integers(-SPAN, SPAN) | st.integers(-9, 9)


def wrapped(value: int) -> int:
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


def check(a: int, b: int) -> None:
    block = words(a, b, *[99] * len(EXPRESSIONS))
    native(EVALUATED)(address(block))
    known = {"a": a, "b": b, "least": min, "greatest": max, "SEVEN": 7}
    for text, got in zip(EXPRESSIONS, block[2:].tolist(), strict=True):
        assert got == wrapped(eval(text, known)), f"{text} of {a} and {b}"


@given(integers, integers)
def test_expressions_have_the_values_that_they_have_in_python(a: int, b: int) -> None:
    check(a, b)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(EDGES, EDGES)))
def test_expressions_at_edges(a: int, b: int) -> None:
    check(a, b)


def test_a_quotient_by_zero_is_zero() -> None:
    block = words(5, 0)
    native("@entry\ndef kernel(block):\n    block[1] = block[0] // block[1]\n")(address(block))
    assert block[1] == 0


PRIMES = """
def is_prime(n):
    if n < 2:
        return 0
    for i in range(2, n):
        if n % i == 0:
            return False
        if i * i > n:
            return True
    return True

def put(place, count):
    n, found = 0, 0
    while found < count:
        if is_prime(n):
            place[found], found = n, found + 1
        n += 1
    place[found] = -1

@entry
def kernel(block):
    \"\"\"The first primes, then -1.\"\"\"
    put(block[0], block[1])
    block[1] -= 3
"""


def test_statements_loops_and_functions_that_return_early() -> None:
    primes = np.zeros(6, np.int64)
    block = words(address(primes), 5)
    native(PRIMES)(address(block))
    assert primes.tolist() == [2, 3, 5, 7, 11, -1]
    assert block[1] == 2


CHOICE = """TEXTS = ("a + b", "a // b", "7 if a == b else least(a, b)")
def value(fn, a, b):
    return chosen(fn, TEXTS, a, b)
@entry
def kernel(block):
    block[3] = value(block[0], block[1], block[2])
"""


@pytest.mark.parametrize(("number", "b", "want"), [(0, 3, 13), (1, 3, 3), (2, 3, 3), (2, 10, 7)])
def test_one_of_several_expressions_is_chosen(number: int, b: int, want: int) -> None:
    block = words(number, 10, b, 0)
    native(CHOICE)(address(block))
    assert block[3] == want


def test_only_integer_code_chooses() -> None:
    with pytest.raises(KernelError, match=r"a // b of .10, 3.: only integer code computes it"):
        chosen(1, ("a + b", "a // b"), 10, 3)


NAMED = """
from enum import IntEnum

BLOCK = IntEnum("BLOCK", "pairs n_pairs sum last", start=0)
PAIR = IntEnum("PAIR", "first second", start=0)

def pair(block: BLOCK, i) -> PAIR:
    return block.pairs + 8 * len(PAIR) * i

@entry
def kernel(block: BLOCK):
    pairs: PAIR = block.pairs
    for i in range(block.n_pairs):
        block.sum += pairs[i].first * pairs[i].second
        pairs[i].first, pairs[i].second = pairs[i].second, pairs[i].first
    one, last = pair(block, 0), pair(block, block.n_pairs - 1)
    block.last = last.second
    one.first, one.second = -1, block.pairs[len(PAIR) + PAIR.second]
"""


def test_words_by_their_names() -> None:
    pairs = np.array([(2, 3), (5, 7), (11, 13)])
    block = words(address(pairs), 3, 100, 0)
    native(NAMED)(address(block))
    assert block[2:].tolist() == [100 + 6 + 35 + 143, 11]
    assert pairs.tolist() == [[-1, 5], [7, 5], [13, 11]]


@pytest.mark.parametrize("shift", [-3, 0, 3])
def test_moved_bytes_may_overlap(shift: int) -> None:
    memory = np.arange(64, dtype=np.uint8)
    want = memory.copy()
    want[16 + shift : 48 + shift] = memory[16:48]
    block = words(address(memory) + 16 + shift, address(memory) + 16, 32)
    native("@entry\ndef kernel(block):\n    move(block[0], block[1], block[2])\n")(address(block))
    np.testing.assert_array_equal(memory, want)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("block[0] = block[1] ** 2", r"Pow as '\*\*'|Pow as 'Pow'"),
        ("block[0] = ~block[1]", "Invert as"),
        ("block[0] = 1 < block[1] < 3", "Compare as '1 < block.1. < 3'"),
        ("block[0] = block[1] in block", "Compare as"),
        ("block[0] = unheard_of", "Name as 'unheard_of'"),
        ("block[0] = unheard_of(1)", "Name as 'unheard_of'"),
        ("block[0] = float(block[1])", "Call as 'float.block.1..'"),
        ("block.x = 1", "Attribute as 'block.x'"),
        ("block[0] = [1]", "List as"),
        ("block[0] = 'text'", "Constant as"),
        ("for i in block: block[i] = 0", "Name as 'block'"),
        ("del block[0]", "Delete as"),
    ],
)
def test_what_it_does_not_know_is_refused(line: str, what: str) -> None:
    with pytest.raises(KernelError, match=rf"line 6: integer code has no ({what})"):
        native(f"@entry\ndef kernel(block):\n    {line}\n")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("block.third = 1", "line 8: PAIR has first, second, not 'third'"),
        ("block.first = PAIR.third", "line 8: PAIR has first, second, not 'third'"),
        ("block[0].third = 1", "line 8: PAIR has first, second, not 'third'"),
        ("block[0] = 1", r"line 8: integer code has no Subscript as 'block\[0\]'"),
        ("a: HERE = block.first", "line 8: integer code has no AnnAssign as"),
        ("a: PAIR", "line 8: integer code has no AnnAssign as"),
        ("block.first.second = 1", "line 8: integer code has no Attribute as"),
        ("block.first = len(block)", "line 8: integer code has no Name as 'len'"),
    ],
)
def test_words_that_have_no_such_name_are_refused(line: str, what: str) -> None:
    pair = 'from enum import IntEnum\nPAIR = IntEnum("PAIR", "first second", start=0)\n'
    with pytest.raises(KernelError, match=what):
        native(f"{pair}@entry\ndef kernel(block: PAIR):\n    {line}\n")
