"""Sizes to a filled table: dims evaluated, words gathered, parts cut, strips and memory planned.

The first failure ends it: the words `status` and `index` say which, as `link.plan.FAILURES` does.
"""

from bucketize.kernel.emit.integer import chosen, entry
from bucketize.kernel.emit.word import call_address, greatest, least
from bucketize.link.block import (
    CHECK,
    CODE,
    COUNT,
    FILL,
    GATHER,
    GROUP,
    GROUPED,
    MEMBER,
    PART,
    POINTER,
    RANGE,
    TENSOR,
    WORD,
)
from bucketize.machine.target import LINE
from bucketize.types import FUNCTIONS, HUGE

ROOMY = 2  # so many times as long as it must be is a buffer: lines are moved less often
VALUES = tuple(f.code for f in FUNCTIONS.values())
FAULTS = tuple(f.fault for f in FUNCTIONS.values())


def dim(fn, a, b):
    """The value of a dim function, by its number; divisors are not 0."""
    return chosen(fn, VALUES, a, b)


def dim_failure(fn, a, b):
    """Why a dim function has no value: 1 a relation, 2 too large, 3 division by 0; 0 it has one."""
    return chosen(fn, FAULTS, a, b)


def holds(relation, a, b):
    """Whether two extents are as the types said: equal, broadcast, or no smaller."""
    if relation == 2:
        return a >= b
    return a == b or (relation == 1 and b == 1)


def gather(fill: FILL, regs):
    """Put dims where the table holds them."""
    table = fill.table
    words: GATHER = fill.words
    for i in range(fill.n_words):
        table[words[i].word] = regs[words[i].register]


def cut(fill: FILL, regs):
    """Cut each kernel that runs into the parts of the threads."""
    table = fill.table
    parts: PART = fill.parts
    chunks, threads, width, worth = fill.chunks, fill.threads, fill.width, fill.fork
    for i in range(fill.n_parts):
        extent, grain = regs[parts[i].extent], parts[i].grain
        count = threads if regs[parts[i].work] >= worth else 1
        if regs[parts[i].runs] != i:
            count = 0  # another implementation runs
        chunks[i] = count
        grains = (extent + grain - 1) // grain
        for t in range(count):
            word = parts[i].word + t * width
            table[word + RANGE.begin] = least(grains * t // count * grain, extent)
            table[word + RANGE.end] = least(grains * (t + 1) // count * grain, extent)


def is_stripped(fill: FILL, group):
    """Whether a group, by its number, is run in strips; -1 is none."""
    groups: GROUPED = fill.groups
    return group >= 0 and fill.chunks[groups[group].step] > 0


def measure(fill: FILL, first, words, count):
    """Run a group for its measures alone: the bytes of each buffer follow."""
    table = fill.table
    members = words + len(GROUP)
    for i in range(table[words + GROUP.members]):
        table[members + len(MEMBER) * i + MEMBER.capacity] = 0
    table[words + GROUP.measuring] = 1
    for t in range(count):
        call_address(fill.strip, fill.table + WORD * (first + t * fill.width))
    table[words + GROUP.measuring] = 0
    for i in range(table[words + GROUP.members]):
        m = members + len(MEMBER) * i
        places = table[m + MEMBER.tiles] * table[m + MEMBER.low] + table[m + MEMBER.tall]
        images = places // table[m + MEMBER.across] // table[m + MEMBER.down]
        lines = images * table[m + MEMBER.height]  # of the whole tensor
        capacity = least(ROOMY * table[m + MEMBER.capacity], lines)
        table[m + MEMBER.capacity] = capacity
        table[m + MEMBER.bytes] = capacity * table[m + MEMBER.line_bytes]


def strip(fill: FILL, regs):
    """Choose what is run in strips, and the order of rows."""
    groups: GROUPED = fill.groups
    parts: PART = fill.parts
    chunks, order = fill.chunks, fill.order
    step, left, group = 0, 0, 0
    while step < fill.steps:
        if group < fill.n_groups and groups[group].first == step:
            own = groups[group].step
            if fill.in_strips != 0 and regs[groups[group].strips] > 1:
                row = own * fill.threads * fill.width
                measure(fill, row, groups[group].words, chunks[own])
                step = groups[group].last
            else:
                chunks[own] = 0
                own = regs[parts[step].runs]
            group += 1
        else:
            own = regs[parts[step].runs]
        left += 1
        order[left] = own
        step += 1
    order[COUNT] = left


def live_from(fill: FILL, regs, i):
    """From which step on a tensor lives; the bytes of a copy, and the copies.

    What is first written in a group that is run in strips lives from its first step on: so it
    shares no memory with whatever lives at any step of the group.
    """
    tensors: TENSOR = fill.tensors
    groups: GROUPED = fill.groups
    strides, sizes = fill.strides, fill.sizes
    first, sizes[i] = tensors[i].first, tensors[i].copies
    bytes_ = regs[tensors[i].bytes]
    if is_stripped(fill, tensors[i].group):
        first = groups[tensors[i].group].first
        if tensors[i].short >= 0:
            bytes_, sizes[i] = fill.table[tensors[i].short], fill.threads
    strides[i] = (bytes_ + LINE - 1) // LINE * LINE
    return first


def place(fill: FILL, regs):
    """Best fit among what lives. The total; -1 if no memory could hold it."""
    tensors: TENSOR = fill.tensors
    offsets, strides, live, sizes = fill.offsets, fill.strides, fill.live, fill.sizes
    alive, total = 0, 0
    for i in range(fill.n_tensors):
        first = live_from(fill, regs, i)
        kept = 0
        for k in range(alive):
            if tensors[live[k]].last >= first:
                live[kept] = live[k]
                kept += 1
        alive = kept
        if float(strides[i]) * float(sizes[i]) + float(total) > HUGE:
            return -1
        sizes[i] *= strides[i]
        size = sizes[i]
        end, at, best, gap = 0, alive, -1, 0
        for k in range(alive):  # they are kept in the order of their offsets
            hole = offsets[live[k]] - end
            if hole >= size and (best < 0 or hole < gap):
                best, gap, at = end, hole, k
            end = offsets[live[k]] + sizes[live[k]]
        offsets[i] = best if best >= 0 else end
        for k in range(alive - at):
            live[alive - k] = live[alive - k - 1]
        live[at] = i
        alive += 1
        total = greatest(total, offsets[i] + size)
    return total


def point(fill: FILL, regs):
    """How far pointers lie behind their bases."""
    offsets, strides = fill.offsets, fill.strides
    pointers: POINTER = fill.pointers
    behind = fill.behind
    for i in range(fill.n_pointers):
        tensor = pointers[i].tensor
        behind[i] = regs[pointers[i].before]
        if tensor >= 0:
            behind[i] += offsets[tensor] + pointers[i].copy * strides[tensor]


@entry
def kernel(fill: FILL):
    """Fill the table of a plan."""
    regs = fill.registers
    code: CODE = fill.code
    fill.status = 0
    for i in range(fill.n_code):  # every distinct dim once
        fn, a, b = code[i].function, regs[code[i].a], regs[code[i].b]
        wrong = dim_failure(fn, a, b)
        if wrong != 0:
            fill.status, fill.index = wrong, -1
            return
        regs[code[i].result] = dim(fn, a, b)
    checks: CHECK = fill.checks
    for i in range(fill.n_checks):
        if not holds(checks[i].relation, regs[checks[i].a], regs[checks[i].b]):
            fill.status, fill.index = 1, i
            return
    gather(fill, regs)
    cut(fill, regs)
    strip(fill, regs)
    fill.arena_bytes = place(fill, regs)
    if fill.arena_bytes < 0:
        fill.status, fill.index = 2, -1
        return
    point(fill, regs)
