"""Sizes to a filled table: dims evaluated, words gathered, parts cut, strips and memory planned.

The words of the block are those of `link.plan.FILL`. The first failure ends it: the words
`status` and `index` say which, as `link.plan.FAILURES` does.
"""

from bucketize.kernel.emit.integer import chosen, entry
from bucketize.kernel.emit.word import call_address, greatest, least
from bucketize.types import FUNCTIONS

LINE = 64  # bytes: a cache line, and the widest vector; arena blocks begin at multiples
WORD = 8  # bytes
GROUP, MEMBER = 5, 13  # words, as `strip` has them
ROOMY = 2  # so many times as long as it must be is a buffer: lines are moved less often
HUGE = 4e18  # no product of extents may come near the end of int64
VALUES = ("a + b", "a * b", *(f.code for f in FUNCTIONS.values()))
FAULTS = (
    "2 if abs(float(a) + float(b)) > HUGE else 0",
    "2 if abs(float(a) * float(b)) > HUGE else 0",
    *(f.fault for f in FUNCTIONS.values()),
)


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


def gather(block, regs):
    """Put dims where the table holds them: rows of (word, register)."""
    table, words = block[7], block[8]
    for i in range(block[9]):
        table[words[2 * i]] = regs[words[2 * i + 1]]


def cut(block, regs):
    """Cut each kernel into the parts of the threads: rows of (begin, extent, grain, work)."""
    table, parts, chunks = block[7], block[10], block[14]
    threads, width, worth = block[12], block[13], block[15]
    for i in range(block[11]):
        extent, grain = regs[parts[4 * i + 1]], parts[4 * i + 2]
        count = threads if regs[parts[4 * i + 3]] >= worth else 1
        chunks[i] = count
        grains = (extent + grain - 1) // grain
        for t in range(count):
            word = parts[4 * i] + t * width
            table[word] = least(grains * t // count * grain, extent)
            table[word + 1] = least(grains * (t + 1) // count * grain, extent)


def is_stripped(block, group):
    """Whether a group, by its number, is run in strips; -1 is none."""
    groups, chunks = block[25], block[14]
    return group >= 0 and chunks[groups[5 * group + 2]] > 0


def measure(block, first, words, count):
    """Run a group for its measures alone: the bytes of each buffer follow."""
    table = block[7]
    members = words + GROUP
    for i in range(table[words]):
        table[members + MEMBER * i + 11] = 0
    table[words + 4] = 1
    for t in range(count):
        call_address(block[27], block[7] + WORD * (first + t * block[13]))
    table[words + 4] = 0
    for i in range(table[words]):
        m = members + MEMBER * i
        places = table[m] * table[m + 1] + table[m + 2]
        lines = places // table[m + 3] // table[m + 4] * table[m + 6]  # of the whole tensor
        table[m + 11] = least(ROOMY * table[m + 11], lines)
        table[m + 12] = table[m + 11] * table[m + 10]


def strip(block, regs):
    """Choose what is run in strips, and the order of rows.

    Groups are rows of (first step, last step, their own step, words, number of strips).
    """
    groups, chunks, order = block[25], block[14], block[29]
    step, left, group = 0, 0, 0
    calls = block[11] - block[26]
    while step < calls:
        if group < block[26] and groups[5 * group] == step:
            own = groups[5 * group + 2]
            if block[28] != 0 and regs[groups[5 * group + 4]] > 1:
                row = own * block[12] * block[13]
                measure(block, row, groups[5 * group + 3], chunks[own])
                step = groups[5 * group + 1]
            else:
                chunks[own] = 0
                own = step
            group += 1
        else:
            own = step
        left += 1
        order[left] = own
        step += 1
    order[0] = left


def live_from(block, regs, i):
    """From which step on a tensor lives; the bytes of a copy, and the copies.

    What is first written in a group that is run in strips lives from its first step on: so it
    shares no memory with whatever lives at any step of the group.
    """
    tensors, groups = block[16], block[25]
    strides, sizes = block[19], block[30]
    t = 6 * i
    first, sizes[i] = tensors[t + 1], tensors[t + 3]
    bytes_ = regs[tensors[t]]
    if is_stripped(block, tensors[t + 4]):
        first = groups[5 * tensors[t + 4]]
        if tensors[t + 5] >= 0:
            bytes_, sizes[i] = block[7][tensors[t + 5]], block[12]
    strides[i] = (bytes_ + LINE - 1) // LINE * LINE
    return first


def place(block, regs):
    """Best fit among what lives: rows of (bytes, first step, last step, copies, group, short).

    The group is that of the first step, short the word of the table that holds the bytes of a
    buffer; -1, none. The total; -1 if no memory could hold it.
    """
    tensors, offsets = block[16], block[18]
    strides, live, sizes = block[19], block[20], block[30]
    alive, total = 0, 0
    for i in range(block[17]):
        first = live_from(block, regs, i)
        kept = 0
        for k in range(alive):
            if tensors[6 * live[k] + 2] >= first:
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


def point(block, regs):
    """How far pointers lie behind their bases: rows of (word, base, tensor, copy, before)."""
    offsets, strides = block[18], block[19]
    pointers, behind = block[22], block[24]
    for i in range(block[23]):
        tensor = pointers[5 * i + 2]
        behind[i] = regs[pointers[5 * i + 4]]
        if tensor >= 0:
            behind[i] += offsets[tensor] + pointers[5 * i + 3] * strides[tensor]


@entry
def kernel(block):
    """Fill the table of a plan."""
    regs, code = block[0], block[3]
    block[1] = 0
    for i in range(block[4]):  # every distinct dim once: rows of (result, function, a, b)
        fn, a, b = code[4 * i + 1], regs[code[4 * i + 2]], regs[code[4 * i + 3]]
        wrong = dim_failure(fn, a, b)
        if wrong != 0:
            block[1], block[2] = wrong, -1
            return
        regs[code[4 * i]] = dim(fn, a, b)
    checks = block[5]
    for i in range(block[6]):  # rows of (relation, a, b)
        if not holds(checks[3 * i], regs[checks[3 * i + 1]], regs[checks[3 * i + 2]]):
            block[1], block[2] = 1, i
            return
    gather(block, regs)
    cut(block, regs)
    strip(block, regs)
    block[21] = place(block, regs)
    if block[21] < 0:
        block[1], block[2] = 2, -1
        return
    point(block, regs)
