"""What a call takes of memory, told before."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops, zoo
from bucketize.errors import NoBucketError, ShapeError
from bucketize.executable import Executable
from bucketize.ir import Builder, Module, Var
from bucketize.link.memory import ARENAS
from bucketize.runtime.memory import Memory
from bucketize.types import Symbol, tensor
from dispatchers import uniform_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")


def mlp() -> Executable:
    return bucketize.compile(bucketize.from_onnx(zoo.build("mlp")))


def test_it_is_what_the_context_then_takes() -> None:
    exe = mlp()
    told = exe.memory(N=100)
    assert (told.between, told.results, told.unknown) == (0, 100 * 10 * 4, ())
    assert told.weights == exe.constant_bytes()
    assert told.of_call == told.arena + told.results
    run = exe.context()
    run(np.zeros((100, 784), np.float32))
    arena = run.__closure__  # the context is in the closure
    contexts = [c.cell_contents for c in arena or () if hasattr(c.cell_contents, "lent")]
    assert contexts[0].lent.arena.nbytes == told.arena
    assert exe.memory(data=(100, 784)) == told
    assert exe.memory(N=200).arena > told.arena


def test_nothing_is_taken() -> None:
    exe = mlp()
    exe.memory(N=1_000_000)
    assert [context.lent.arena.nbytes for context in exe._serving.idle] == [0]
    x = np.ones((3, 784), np.float32)
    before = exe.run(x)
    exe.memory(N=77)  # fills the table of the context that runs next
    np.testing.assert_array_equal(exe.run(x)[0], before[0])


def test_what_the_host_hands_on_is_counted_and_what_nobody_knows_is_named() -> None:
    x, b = Var("x", tensor("float32", Symbol("N"))), Builder()
    y = b.emit(ops.nonzero, b.emit(ops.neg, x))
    exe = bucketize.compile(Module({"main": b.function("main", [x], [y])}))
    told = exe.memory(N=50)
    assert told.between >= 200
    assert told.unknown
    assert "not counted: " in str(told)


def test_of_what_is_loaded_and_of_clones(tmp_path) -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 16)})
    exe = bucketize.compile(bucketize.dispatch(mod, uniform_dispatcher.with_options(step=8)))
    exe.save(tmp_path / "m.bkt")
    assert bucketize.load(tmp_path / "m.bkt").memory(N=9).of_call == exe.memory(N=9).of_call
    with pytest.raises(ShapeError, match="N"):
        exe.memory(N=17)
    with pytest.raises(ShapeError, match="the size of N is missing"):
        exe.memory()


def test_sizes_that_nothing_serves() -> None:
    model = parse("(float[N, 4] x) => (y) { y = Relu(x) }")
    mod = bucketize.dispatch(
        bucketize.from_onnx(model), lambda shapes: {"x": {0: [(1, 5)]}}, fallback=False
    )
    with pytest.raises(NoBucketError):
        bucketize.compile(mod).memory(N=9)


def test_of_branches_the_larger_counts() -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(zoo.build("bert-mini"))))
    told = exe.memory(B=1, S=300)
    ids = np.ones((1, 300), np.int64)
    ARENAS.trim()
    exe.run(ids, np.ones_like(ids))
    assert ARENAS._idle[0].most <= told.arena
    assert set(told.unknown) <= {"call", "nonzero", "run"}


def test_as_text() -> None:
    told = Memory(3 << 19, 1 << 20, 0, 1 << 19, ("nonzero", "loop"))
    assert str(told) == (
        "weights 1.5 MiB, arena 1.0 MiB, between 0.0 MiB, results 0.5 MiB; not counted: nonzero, "
        "loop"
    )
    assert told.of_call == 3 << 19
