"""A filled table run: pointers put in, each kernel called on its block, reports read."""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address
from bucketize.link.block import COUNT, FOUND, POINT, POINTER, REPORT, REPORTER, RUN, WALK


def point(walk: WALK):
    """Put in the pointers from `first` on."""
    table, bases = walk.table, walk.bases
    pointers: POINTER = walk.pointers
    behind = walk.behind
    for i in range(walk.first, walk.n_pointers):
        table[pointers[i].word] = bases[pointers[i].base] + behind[i]


def report(walk: WALK):
    """The first step with a bad index."""
    walk.wrong = 0
    table, chunks = walk.table, walk.chunks
    reports: REPORTER = walk.reports
    for i in range(walk.n_reports):
        step, copy = reports[i].step, reports[i].copy
        said: FOUND = table[reports[i].word]
        if walk.wrong == 0 and copy < chunks[step] and said.wrong != 0:
            walk.wrong, walk.wrong_index, walk.extent = step + 1, said.index, said.extent


@entry
def kernel(walk: WALK):
    """Run the kernels of a table, as many as `order` begins with, in its order."""
    if walk.what & POINT:
        point(walk)
    if walk.what & RUN:
        kernels, order = walk.kernels, walk.order
        for i in range(order[COUNT]):
            step = order[i + 1]
            call_address(kernels[step], walk.table + step * walk.stride)
    if walk.what & REPORT:
        report(walk)
