"""The words of blocks and of the rows of tables, each named once, for Python and native code.

Blocks are what kernels are called on, and what these lead to. In Python `FILL.status` is the place
of a word. Native code says which words lie at an address, `fill: FILL` or `code: CODE`; from there
on `fill.status` is a word, and `code[i].result` one of row i.
"""

from __future__ import annotations

from enum import IntEnum

WORD = 8  # bytes

# The blocks of the kernels in `link.native`. "x" is the address of an array, "n_x" its rows.
FILL = IntEnum(
    "FILL",
    "registers status index code n_code checks n_checks "
    "table words n_words parts n_parts steps threads width chunks fork "
    "tensors n_tensors offsets strides live arena_bytes pointers n_pointers behind "
    "groups n_groups strip in_strips order sizes",
    start=0,
)
WALK = IntEnum(
    "WALK",
    "what first wrong table bases pointers n_pointers behind "
    "kernels order stride chunks reports n_reports wrong_index extent",
    start=0,
)
POINT, RUN, REPORT = 1, 2, 4
"""What a walk is asked for."""
STRIP = IntEnum("STRIP", "group states rows kernels", start=0)
"""RANGE lies behind these words."""
ROUNDS = IntEnum("ROUNDS", "rounds places n_places walking walk number bases fixed", start=0)
SHARE = IntEnum(
    "SHARE",
    "what threads kernels order table stride chunks states apart place lines helpers",
    start=0,
)
"""A run; `apart` are the bytes between the states of the parts of two threads, `place` the address
of these words, `lines` that of the addresses of the lines of the helpers that take part."""
WATCH = IntEnum("WATCH", "what line patience_ns", start=0)
"""A helper of a run, for the same kernel: the first word tells which of the two a block is. A
helper has two lines of a cache: a CALL, which others write, and the address of its run."""
CALL = IntEnum("CALL", "run me", start=0)
"""The address of the run that a helper is to take part in, or 0; its number there."""

# The rows of a plan's tables.
CODE = IntEnum("CODE", "result function a b", start=0)
CHECK = IntEnum("CHECK", "relation a b", start=0)
GATHER = IntEnum("GATHER", "word register", start=0)
PART = IntEnum("PART", "word extent grain work runs", start=0)
"""`word` is that of the table where the RANGE of the first thread is, `runs` the register of the
row that runs where this one might."""
TENSOR = IntEnum("TENSOR", "bytes first last copies group short", start=0)
"""Its first and last step, the group of the first, and the word of the table that holds the bytes
of a buffer; -1, none."""
POINTER = IntEnum("POINTER", "word base tensor copy before", start=0)
"""`before` is the register of the bytes before it in a copy of the tensor; -1, no tensor."""
REPORTER = IntEnum("REPORTER", "word step copy", start=0)
"""A kernel that checks indices: the word of its workspace."""
GROUPED = IntEnum("GROUPED", "first last step words strips", start=0)
"""A group: its first and last call, its own step, its words in the table, the number of strips."""
INSIDE = IntEnum("INSIDE", "word base words", start=0)
"""An address so many words behind one of ORIGIN."""
ORIGIN = IntEnum("ORIGIN", "table kernels", start=0)
BASE = IntEnum("BASE", "arena table", start=0)
"""What pointers are relative to; the inputs follow, then the results."""

# A group that is run in strips has GROUP, MEMBER for each of its kernels, LINK for each that reads
# what another one makes; and for each thread STATE for each member.
GROUP = IntEnum("GROUP", "members stride lines links measuring", start=0)
MEMBER = IntEnum(
    "MEMBER",
    "row tiles low tall across down high height step spans begin line_bytes capacity bytes",
    start=0,
)
LINK = IntEnum("LINK", "reader word maker stride reach before image result", start=0)
STATE = IntEnum("STATE", "done next wanted first buffer", start=0)
"""Tiles done, tiles that this strip does, lines wanted, the first line and where it is."""

PLACE = IntEnum("PLACE", "place lag first begin stride period", start=0)
"""A base that changes with rounds: `begin + (round - lag) % period * stride`, or `first` before."""
COUNT = 0  # the word of an order that tells how many rows are run; behind it, which

# What the program's own kernels read and write.
RESULT, ARGUMENTS = 0, 1  # words of the block of a kernel that has one result
RANGE = IntEnum("RANGE", "begin end", start=0)
"""What a kernel is to do of its extent, behind its workspace."""
FOUND = IntEnum("FOUND", "wrong index extent", start=0)
"""What a kernel that checks indices says in its workspace."""
COUNTER = IntEnum("COUNTER", "round", start=0)
"""The tensor that is the number of a round."""
