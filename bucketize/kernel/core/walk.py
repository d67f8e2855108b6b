"""A filled table run: pointers put in, each kernel called on its block, reports read.

The words of the block are those of `program.plan.WALK`.
"""

from numba import int64, njit

from bucketize.kernel.emit.entry import entry
from bucketize.kernel.emit.native import call_address, pointer

POINT, RUN, REPORT = 1, 2, 4  # what is asked for, in the first word

inlined = njit(inline="always", error_model="numpy")


@inlined
def point(block):
    """Put in the pointers from `first` on: rows of (word, base, tensor, copy, before)."""
    table, bases = pointer(block[3], int64), pointer(block[4], int64)
    pointers, behind = pointer(block[5], int64), pointer(block[7], int64)
    for i in range(block[1], block[6]):
        table[pointers[5 * i]] = bases[pointers[5 * i + 1]] + behind[i]


@inlined
def report(block):
    """The first step with a bad index: rows of (word of its workspace, step, copy)."""
    block[2] = 0
    table, chunks = pointer(block[3], int64), pointer(block[11], int64)
    reports = pointer(block[12], int64)
    for i in range(block[13]):
        step, copy = reports[3 * i + 1], reports[3 * i + 2]
        said = pointer(table[reports[3 * i]], int64)
        if block[2] == 0 and copy < chunks[step] and said[0] != 0:
            block[2], block[14], block[15] = step + 1, said[1], said[2]


@entry
def kernel(block):
    """Run the kernels of a table, as many as `order` begins with, in its order."""
    if block[0] & POINT:
        point(block)
    if block[0] & RUN:
        kernels, order = pointer(block[8], int64), pointer(block[9], int64)
        for i in range(order[0]):
            step = order[i + 1]
            call_address(kernels[step], block[3] + step * block[10])
    if block[0] & REPORT:
        report(block)
