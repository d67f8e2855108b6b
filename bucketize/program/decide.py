"""Deciding: a module becomes a program, function by function, each when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.dispatch.decision import Tree, tree_of
from bucketize.errors import BucketizeError, CompileError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    NO_BUCKET,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    Module,
    Var,
    all_bindings,
    copy_binding,
    refine,
)
from bucketize.kernel.build import kernel_name
from bucketize.kernel.target import Target
from bucketize.kernel.template import TEMPLATES, Implementation, Workload
from bucketize.lower.fuse import group_function
from bucketize.lower.pipeline import lower
from bucketize.ops.dim import dim_less, dims_within, from_dims
from bucketize.ops.dyn import EXTENTS
from bucketize.program.program import (
    VIEWS,
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    Instruction,
    KernelCall,
    Leaves,
    Program,
    ReadSizes,
    Refuse,
    Routine,
    Routines,
    RunSegment,
    Segment,
)
from bucketize.transform.dead_code import used_atoms
from bucketize.types import AnyDim, Symbol, TensorType

Choose: TypeAlias = Callable[[Workload], tuple[Implementation, str] | None]
"""An implementation of a workload and where it comes from; None if no template takes it."""
Typed: TypeAlias = list[tuple[Binding, bool]]  # whether sizes are known once it is run

TESTS = (dim_less, dims_within)
