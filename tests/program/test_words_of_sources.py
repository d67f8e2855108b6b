"""What attributes may be made of: sources of kernels are made of them, and are run."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from bucketize import ops
from bucketize.errors import KernelError
from bucketize.ir import Binding, Function, Var
from bucketize.kernel.workload import Workload
from bucketize.program.decide import check_words
from bucketize.types import Symbol, tensor

N = Symbol("N")


def workload(value: object) -> Workload:
    x = Var("x", tensor("float32", N))
    binding = Binding((Var("y", x.type),), ops.relu, (x,), MappingProxyType({"a": value}))
    return Workload(Function("", (x,), (binding,), binding.outs), (False,))


PLAIN = [
    1,
    0.5,
    True,
    None,
    np.dtype("float32"),
    tensor("float32"),
    N,
    N + 1,
    "word",
    "",
    ((1, None), ("NCHW", N)),
]


@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_numbers_dims_dtypes_and_words_are_taken(value: Any) -> None:
    check_words(workload(value))


EVIL = "0); open('planted', 'w'"


@pytest.mark.parametrize("value", [EVIL, (EVIL,), (1, (2, (EVIL, 3)))], ids=["", "in", "deep"])
def test_text_that_is_no_word_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(KernelError, match=r"relu: expected a word as a, got .0\); open"):
        check_words(workload(value))


@pytest.mark.parametrize("value", [b"0", [1], {"a": 1}, 1j, (1, {2})], ids=str)
def test_what_is_none_of_them_is_refused(value: Any) -> None:
    with pytest.raises(KernelError, match="relu: expected numbers or words as a, got "):
        check_words(workload(value))
