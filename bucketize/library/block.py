"""The words of a library's data and of its contexts, each named once, for Python and native code.

Data has no addresses: "x_at" is how far behind its beginning something lies, "n_x" how many rows it
has. It begins with MODEL. `inputs_at` and `outputs_at` lead to places of texts.
"""

from __future__ import annotations

from enum import IntEnum

MODEL = IntEnum(
    "MODEL",
    "n_sizes n_inputs inputs_at n_outputs outputs_at n_slots slots_at n_dims n_plans plans_at "
    "steps_at shapes core_at no_memory_at no_array_at no_shape_at too_short_at too_large_at",
    start=0,
)
"""`shapes` is the step from which on the shapes of outputs are told, and nothing is run."""
CORE = IntEnum("CORE", "fill walk strip", start=0)
"""The kernels that all plans need."""
SLOT = IntEnum("SLOT", "rank itemsize dims constant shape", start=0)
"""What holds a tensor: the first word of its shape; where the array of a constant is, and its
shape, or 0. The inputs come first, then the outputs."""
STEP = IntEnum("STEP", "kind a b c d", start=0)
KIND = IntEnum(
    "KIND",
    "end bind sizes shaped run read decide test less jump fail copy swap begin next append",
    start=0,
)
"""What `native.step` does, in the order of its functions there."""
DIM = IntEnum("DIM", "slot axis size first least most step text_at range_at", start=0)
"""What an axis must be: a size, -1 if it is a number, and its bounds. The first of a symbol tells
its size. The texts are of errors: of what was wanted and what came, and of what is beyond."""
NODE = IntEnum("NODE", "size bound below other", start=0)
"""A node of a tree of decisions, as `program.decision_table` has it."""

PLAN = IntEnum(
    "PLAN",
    "n_symbols initial_at n_registers "
    "code_at n_code checks_at n_checks words_at n_words parts_at n_parts tensors_at n_tensors "
    "pointers_at n_pointers groups_at n_groups reports_at n_reports links_at n_links "
    "constants_at n_constants kernels_at n_rows steps threads width size fixed "
    "n_inputs n_results results_at failures_at reports_text_at",
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

CONTEXT = IntEnum(
    "CONTEXT",
    "message sizes held dims states arena arena_bytes outputs lengths at word done",
    start=0,
)
"""What a caller has: one call at a time. `at` is the next step, -1 at the end."""
HELD = IntEnum("HELD", "at memory room", start=0)
"""A slot's tensor in a context: where it is; its own memory, and how many bytes that has."""
STATE = IntEnum(
    "STATE",
    "filled pointed sizes registers table behind chunks order offsets strides live lengths bases "
    "kernels fill walk",
    start=0,
)
"""A plan's memory in a context."""

UNKNOWN = 0
"""The size that stands for all that no input's shape tells: it is -1."""
MESSAGE = 512  # bytes of an error's text
OK, SHAPE, MEMORY, ARRAY = range(4)
"""What functions answer: all is well, or which kind of error `error` tells of."""
