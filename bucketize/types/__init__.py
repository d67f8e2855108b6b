"""Dims, how they relate, and types: everybody imports them from here."""

import bucketize.types.function  # noqa: F401  fills the table of functions
from bucketize.types.algebra import maximum, minimum, total
from bucketize.types.dim import (
    ANY,
    FUNCTIONS,
    HUGE,
    MOST_EXTENT,
    AnyDim,
    Dim,
    Expr,
    Interval,
    Range,
    Shape,
    Sizes,
    Symbol,
    Symbolic,
    Term,
    lone_term,
    show_interval,
)
from bucketize.types.extent import LONGEST, bounds, extremes, followed, symbols, terms_of
from bucketize.types.points import Column, Points
from bucketize.types.ratio import Ratio, ratio_of
from bucketize.types.relation import (
    Assumption,
    assumptions,
    broadcast,
    broadcast_shapes,
    ceil_div,
    evaluate,
    join,
    meet,
    positive,
    product,
    rely_on_least,
    substitute,
)
from bucketize.types.tensor import (
    OptionalType,
    Profile,
    SequenceType,
    TensorType,
    Type,
    UnrankedType,
    join_types,
    meet_types,
    tensor,
)

__all__ = ["ANY", "FUNCTIONS", "HUGE", "LONGEST", "MOST_EXTENT"]
__all__ += ["AnyDim", "Assumption", "Column", "Dim", "Expr", "Interval", "OptionalType"]
__all__ += [
    "Points",
    "Profile",
    "Range",
    "Ratio",
    "SequenceType",
    "Shape",
    "Sizes",
    "Symbol",
    "Symbolic",
]
__all__ += ["TensorType", "Term", "Type", "UnrankedType"]
__all__ += ["assumptions", "bounds", "broadcast", "broadcast_shapes", "ceil_div", "evaluate"]
__all__ += ["extremes", "followed", "join", "join_types", "lone_term", "maximum", "meet"]
__all__ += ["meet_types", "minimum", "positive", "product", "ratio_of", "rely_on_least"]
__all__ += ["show_interval", "substitute", "symbols", "tensor", "terms_of", "total"]
