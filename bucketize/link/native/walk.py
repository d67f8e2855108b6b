"""A filled table run: pointers put in, each kernel called on its block, reports read.

The words of the block are those of `link.plan.WALK`.
"""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address

POINT, RUN, REPORT = 1, 2, 4  # what is asked for, in the first word


def point(block):
    """Put in the pointers from `first` on: rows of (word, base, tensor, copy, before)."""
    table, bases = block[3], block[4]
    pointers, behind = block[5], block[7]
    for i in range(block[1], block[6]):
        table[pointers[5 * i]] = bases[pointers[5 * i + 1]] + behind[i]


def report(block):
    """The first step with a bad index: rows of (word of its workspace, step, copy)."""
    block[2] = 0
    table, chunks, reports = block[3], block[11], block[12]
    for i in range(block[13]):
        step, copy = reports[3 * i + 1], reports[3 * i + 2]
        said = table[reports[3 * i]]
        if block[2] == 0 and copy < chunks[step] and said[0] != 0:
            block[2], block[14], block[15] = step + 1, said[1], said[2]


@entry
def kernel(block):
    """Run the kernels of a table, as many as `order` begins with, in its order."""
    if block[0] & POINT:
        point(block)
    if block[0] & RUN:
        kernels, order = block[8], block[9]
        for i in range(order[0]):
            step = order[i + 1]
            call_address(kernels[step], block[3] + step * block[10])
    if block[0] & REPORT:
        report(block)
