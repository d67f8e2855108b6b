"""Sizes to a filled table: dims evaluated, words gathered, threads' parts cut, memory planned.

The words of the block are those of `program.plan.FILL`. The first failure ends it: the words
`status` and `index` say which, as `program.plan.FAILURES` does.
"""

from numba import int64, njit

from bucketize.kernel.emit.accumulate import greatest, least
from bucketize.kernel.emit.entry import entry
from bucketize.kernel.emit.native import pointer

LINE = 64  # bytes: a cache line, and the widest vector; arena blocks begin at multiples
HUGE = 4e18  # no product of extents may come near the end of int64

inlined = njit(inline="always", error_model="numpy")


@inlined
def dim(fn, a, b):  # noqa: PLR0911
    """The value of a dim function, by its code in `types.dim.FUNCTIONS`; divisors are not 0."""
    if fn == 0:
        return a + b
    if fn == 1:
        return a * b
    if fn == 2:
        return a // b
    if fn == 3:
        return a - a // b * b
    if fn == 4:
        return least(a, b)
    if fn == 5:
        return greatest(a, b)
    return b if a == 1 else a


@inlined
def dim_failure(fn, a, b):
    """Why a dim function has no value: 1 a relation, 2 too large, 3 division by 0; 0 it has one."""
    if fn == 0 and abs(float(a) + float(b)) > HUGE:
        return 2
    if fn == 1 and abs(float(a) * float(b)) > HUGE:
        return 2
    if (fn == 2 or fn == 3) and b == 0:  # noqa: PLR1714  (numba has no sets of this kind)
        return 3
    if fn == 6 and a != b and a != 1 and b != 1:  # noqa: PLR1714
        return 1
    return 0


@inlined
def holds(relation, a, b):
    """Whether two extents are as the types said: equal, broadcast, or no smaller."""
    if relation == 2:
        return a >= b
    return a == b or (relation == 1 and b == 1)


@inlined
def gather(block, regs):
    """Put dims where the table holds them: rows of (word, register)."""
    table, words = pointer(block[7], int64), pointer(block[8], int64)
    for i in range(block[9]):
        table[words[2 * i]] = regs[words[2 * i + 1]]


@inlined
def cut(block, regs):
    """Cut each kernel into the parts of the threads: rows of (begin, extent, grain, work)."""
    table, parts, chunks = (
        pointer(block[7], int64),
        pointer(block[10], int64),
        pointer(block[14], int64),
    )
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


@inlined
def place(block, regs):
    """Best fit among what lives: rows of (bytes, first step, last step, copies).

    The total; -1 if no memory could hold it.
    """
    tensors, offsets = pointer(block[16], int64), pointer(block[18], int64)
    strides, live = pointer(block[19], int64), pointer(block[20], int64)
    alive, total = 0, 0
    for i in range(block[17]):
        kept = 0
        for k in range(alive):
            if tensors[4 * live[k] + 2] >= tensors[4 * i + 1]:
                live[kept] = live[k]
                kept += 1
        alive = kept
        strides[i] = (regs[tensors[4 * i]] + LINE - 1) // LINE * LINE
        if float(strides[i]) * float(tensors[4 * i + 3]) + float(total) > HUGE:
            return -1
        size = strides[i] * tensors[4 * i + 3]
        end, at, best, gap = 0, alive, -1, 0
        for k in range(alive):  # they are kept in the order of their offsets
            hole = offsets[live[k]] - end
            if hole >= size and (best < 0 or hole < gap):
                best, gap, at = end, hole, k
            end = offsets[live[k]] + strides[live[k]] * tensors[4 * live[k] + 3]
        offsets[i] = best if best >= 0 else end
        for k in range(alive - at):
            live[alive - k] = live[alive - k - 1]
        live[at] = i
        alive += 1
        total = greatest(total, offsets[i] + size)
    return total


@inlined
def point(block, regs):
    """How far pointers lie behind their bases: rows of (word, base, tensor, copy, before)."""
    offsets, strides = pointer(block[18], int64), pointer(block[19], int64)
    pointers, behind = pointer(block[22], int64), pointer(block[24], int64)
    for i in range(block[23]):
        tensor = pointers[5 * i + 2]
        behind[i] = regs[pointers[5 * i + 4]]
        if tensor >= 0:
            behind[i] += offsets[tensor] + pointers[5 * i + 3] * strides[tensor]


@entry
def kernel(block):
    """Fill the table of a plan."""
    regs, code = pointer(block[0], int64), pointer(block[3], int64)
    block[1] = 0
    for i in range(block[4]):  # every distinct dim once: rows of (result, function, a, b)
        fn, a, b = code[4 * i + 1], regs[code[4 * i + 2]], regs[code[4 * i + 3]]
        wrong = dim_failure(fn, a, b)
        if wrong != 0:
            block[1], block[2] = wrong, -1
            return
        regs[code[4 * i]] = dim(fn, a, b)
    checks = pointer(block[5], int64)
    for i in range(block[6]):  # rows of (relation, a, b)
        if not holds(checks[3 * i], regs[checks[3 * i + 1]], regs[checks[3 * i + 2]]):
            block[1], block[2] = 1, i
            return
    gather(block, regs)
    cut(block, regs)
    block[21] = place(block, regs)
    if block[21] < 0:
        block[1], block[2] = 2, -1
        return
    point(block, regs)
