"""The words of a library's data and of its contexts, each named once, for Python and native code.

Data has no addresses: "x_at" is how far behind its beginning something lies, "n_x" how many rows it
has. It begins with MODEL. `inputs_at` and `outputs_at` lead to places of texts.
"""

from __future__ import annotations

from enum import IntEnum

MODEL = IntEnum(
    "MODEL",
    "n_symbols n_inputs inputs_at n_dims dims_at nodes_at n_nodes leaves_at plans_at n_plans "
    "n_outputs outputs_at core_at no_memory_at no_array_at no_shape_at too_short_at",
    start=0,
)
CORE = IntEnum("CORE", "fill walk strip", start=0)
"""The kernels that all plans need."""
DIM = IntEnum("DIM", "input axis symbol first least most step text_at range_at", start=0)
"""An axis of an input: a symbol, -1 if the axis is fixed, and what it may be. The first of a symbol
tells its size. The texts are of errors: of what was wanted and what came, and of what is beyond."""
NODE = IntEnum("NODE", "symbol bound below other", start=0)
"""As `program.decision_table` has them."""
LEAF = IntEnum("LEAF", "plan text_at", start=0)
"""A plan by its number; -1, an error."""

PLAN = IntEnum(
    "PLAN",
    "symbols_at n_symbols initial_at n_registers "
    "code_at n_code checks_at n_checks words_at n_words parts_at n_parts tensors_at n_tensors "
    "pointers_at n_pointers groups_at n_groups reports_at n_reports links_at n_links "
    "constants_at n_constants kernels_at n_rows steps threads width size fixed "
    "inputs_at n_inputs results_at n_results outputs_at failures_at reports_text_at",
    start=0,
)
CONSTANT = IntEnum("CONSTANT", "word at", start=0)
RESULT = IntEnum("RESULT", "shape_at rank itemsize source index", start=0)
"""`shape_at` are the registers of its shape. What no kernel writes is a copy: of what, SOURCE says;
`index` is of an input or a result, a word of the table, or how far a constant lies behind."""
OWN, OF_INPUT, OF_RESULT, OF_CONSTANT, OF_DIMS = range(5)
SOURCES = {
    "own": OWN,
    "input": OF_INPUT,
    "result": OF_RESULT,
    "constant": OF_CONSTANT,
    "dims": OF_DIMS,
}

CONTEXT = IntEnum("CONTEXT", "message sizes states arena arena_bytes plan state", start=0)
"""What a caller has: one call at a time; the last words are of the plan that this one runs."""
STATE = IntEnum(
    "STATE",
    "filled pointed sizes registers table behind chunks order offsets strides live lengths bases "
    "kernels fill walk",
    start=0,
)
"""A plan's memory in a context."""

MESSAGE = 512  # bytes of an error's text
OK, SHAPE, MEMORY, ARRAY = range(4)
"""What functions answer: all is well, or which kind of error `error` tells of."""
