"""Calls of loop kernels in parts, into poisoned memory with a rim, compared with the reference."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bucketize.interpret import run_function
from bucketize.ir import Atom, Builder, Const, Var, specialise
from bucketize.kernel.build import build
from bucketize.kernel.schedule import Knob
from bucketize.kernel.template import Launch, Template
from bucketize.kernel.templates import LOOP
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.op import Array, Op
from bucketize.types import ANY, Symbol, TensorType

RIM, POISON = 192, 0xFF  # bytes; all ones is a NaN
N, M, C = Symbol("N"), Symbol("M"), Symbol("C", 2)
F32 = np.dtype("float32")
TOLERANCES = {"float16": (2e-3, 2e-3), "bfloat16": (1e-2, 1e-2)}


def workload(op: Op, *types: TensorType, **attrs: Any) -> Workload:
    """The workload of one op."""
    params = [Var(f"x{i}", t) for i, t in enumerate(types)]
    body = Builder()
    outs = body.emit_all(op, *params, **attrs)
    return Workload(body.function("", params, outs), (False,) * len(params))


def loop_template(load: Workload) -> Template | None:
    return next((t for t in LOOP if t.accepts(load)), None)


def run(
    template: Template,
    load: Workload,
    schedule: Mapping[str, Knob],
    args: Sequence[Array],
    env: Mapping[str, int],
    likes: Sequence[Array],
    parts: int,
) -> list[Array]:
    """What the kernel makes of `args`, in parts, each a call with its own block."""
    kernel = build(template.source(load, schedule, host()), name_hint=template.name)
    asked = [name for name in (b"NRT_", b"numba_") if name in kernel.code]
    assert not asked, "a process that did not compile it may lack numba"
    shapes = tuple(a.shape for a in (*args, *likes))
    launch = launch_at(template, load, schedule, shapes, env, host())
    memories = [np.full(like.nbytes + 2 * RIM, POISON, np.uint8) for like in likes]
    results = [
        m[RIM:-RIM].view(n.dtype).reshape(n.shape) for m, n in zip(memories, likes, strict=True)
    ]
    packed = [
        template.pack(load, schedule, i, a) if fixed else None
        for i, (a, fixed) in enumerate(zip(args, load.constant, strict=True))
    ]
    pairs = zip(args, packed, strict=True)
    held = [np.ascontiguousarray(a if p is None else p) for a, p in pairs]
    workspace = np.full(launch.workspace, POISON, np.uint8)
    arrays = [*results, *held, workspace]
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.address)
    steps = -(-launch.extent // launch.grain)
    cuts = [min(steps * p // parts * launch.grain, launch.extent) for p in range(parts + 1)]
    for begin, end in itertools.pairwise(cuts):
        block = np.array([*(a.ctypes.data for a in arrays), begin, end, *launch.dims], np.int64)
        call(block.ctypes.data)
        assert not launch.checked or workspace.view(np.int64)[0] == 0, "an index out of range"
    rims = np.concatenate([rim for m in memories for rim in (m[:RIM], m[-RIM:])])
    assert (rims == POISON).all(), "written outside of the result"
    return results


def launch_at(
    template: Template,
    load: Workload,
    schedule: Mapping[str, Knob],
    shapes: tuple[tuple[int, ...], ...],
    env: Mapping[str, int],
    target: Target,
) -> Launch:
    """The launch rule read over the types, then evaluated; over `shapes` where types have `?`."""
    types = (*(p.type for p in load.body.params), *(r.type for r in load.body.results))
    if any(ANY in t.shape for t in types):
        concrete = Workload(specialise(load.body, env), load.constant)
        return template.launch(concrete, schedule, shapes, target)
    return template.launch(load, schedule, tuple(t.shape for t in types), target).at(env)


def check(
    load: Workload,
    args: Sequence[Array],
    env: Mapping[str, int],
    schedule: Mapping[str, Knob] | None = None,
    template: Template | None = None,
) -> None:
    """The kernel equals the reference, whether it works in one part, two or three."""
    template = template or loop_template(load)
    assert template is not None, load.key
    schedule = template.default(load, host()) if schedule is None else schedule
    expected = run_function(specialise(load.body, env), args)
    whole = run(template, load, schedule, args, env, expected, 1)
    for got, want in zip(map(readable, whole), map(readable, expected), strict=True):
        scale = np.abs(want[np.isfinite(want)]).max(initial=1) if want.size else 1
        rtol, atol = TOLERANCES.get(expected[0].dtype.name, (1e-5, 2e-6))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol * float(scale))
    for parts in (2, 3):
        split = run(template, load, schedule, args, env, expected, parts)
        for got, want in zip(map(readable, split), map(readable, whole), strict=True):
            np.testing.assert_array_equal(got, want)


def readable(x: Array) -> Array:
    """Short numbers, a NaN among them, as numpy knows them."""
    return x if x.dtype.isbuiltin == 1 else x.astype(np.float32)


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Group:
    """A fused group under construction."""

    def __init__(self, *types: TensorType) -> None:
        self.params = [Var(f"x{i}", t) for i, t in enumerate(types)]
        self.body = Builder()

    def __call__(self, op: Op, *args: Atom, **attrs: Any) -> Var:
        return self.body.emit(op, *args, **attrs)

    def returns(self, result: Var) -> Workload:
        return Workload(self.body.function("", self.params, [result]), (False,) * len(self.params))


def number(value: float, dtype: Any = np.float32) -> Const:
    return Const(np.asarray(value, dtype))
