"""The IR: functions are lists of typed bindings, each variable made once (A-normal form).

`Builder.emit` is the only maker of bindings and infers their types, so IR without types cannot
exist. `If` holds its branches as functions without parameters that see the variables around them,
a loop its body, whose parameters are what it carries; `fused` holds its group as a closed function.
"""

from bucketize.ir.build import (
    ROUND,
    Builder,
    Env,
    blocks_of,
    copy_binding,
    copy_block,
    illegal,
    infer,
    rank_only,
    refine,
    rounds_of,
    settle,
    show_attr,
    specialise,
    splice,
    substitute_attr,
    taken_block,
    without_value,
)
from bucketize.ir.call import check_fit
from bucketize.ir.core import Atom, Binding, Const, Function, Var, mentioned
from bucketize.ir.module import Clone, Functions, Module, Recipe, check_module, refusing
from bucketize.ir.rewrite import Atoms, all_bindings, functions_of, map_blocks, rewrite
from bucketize.ir.structure import CALL, FUSED, IF, ILLEGAL, LOOP, NO_BUCKET, STRUCTURAL
from bucketize.ir.tree import TESTS, Gap, Leaf, Side, decisions, left_out, tree_lines

__all__ = ["CALL", "FUSED", "IF", "ILLEGAL", "LOOP", "NO_BUCKET", "ROUND", "STRUCTURAL", "TESTS"]
__all__ += ["Atom", "Atoms", "Binding", "Builder", "Clone", "Const", "Env", "Function", "Functions"]
__all__ += ["Gap", "Leaf", "Module", "Recipe", "Side", "Var"]
__all__ += ["all_bindings", "blocks_of", "check_fit", "check_module", "copy_binding", "copy_block"]
__all__ += ["decisions", "functions_of", "illegal", "infer", "left_out", "map_blocks", "mentioned"]
__all__ += ["rank_only", "refine", "refusing", "rewrite", "rounds_of", "settle", "show_attr"]
__all__ += ["specialise", "splice", "substitute_attr", "taken_block", "tree_lines", "without_value"]
