"""A table run by several threads: the caller, and helpers that watch for runs.

A thread takes its own part of a kernel, then those that nobody has begun, and waits until all are
done. It waits for what has been begun only: a thread that comes late, or never, costs its help, and
nothing hangs.
"""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address, changed, exchanged, give_way, pause, seen, told
from bucketize.link.block import COUNT, SHARE, WATCH, WORD

FREE, BEGUN, DONE = 0, 1, 2  # a part of a kernel
LINE = 64  # bytes: words that different threads write lie apart
LOOKS = 400  # at a word, before a waiting thread offers its core to others: some 20 us


def rest(looks):
    """Between two looks at a word."""
    if looks < LOOKS:
        pause()
    else:
        give_way()


def run_part(run: SHARE, first, last, part):
    """Call the kernels from place `first` of the order on, each on the block of the same part."""
    kernels, order = run.kernels, run.order + WORD
    for k in range(first, last):
        i = order[k]
        call_address(kernels[i], run.table + (i * run.threads + part) * run.stride)


def take_part(run: SHARE, me):
    """Run what is not begun. The states of a thread's parts lie on lines of their own."""
    n, order, chunks = run.order[COUNT], run.order + WORD, run.chunks
    first = n if me >= run.threads else 0
    while first < n:
        last, parts = first + 1, chunks[order[first]]
        while parts == 1 and last < n and chunks[order[last]] == 1:
            last += 1  # what cannot be shared is one part together
        for i in range(parts):
            part = (me + i) % parts
            state = run.states + part * run.apart + WORD * first
            if seen(state) == FREE and changed(state, FREE, BEGUN):
                run_part(run, first, last, part)
                told(state, DONE)
        for part in range(parts):
            state, looks = run.states + part * run.apart + WORD * first, 0
            while seen(state) != DONE:
                rest(looks)
                looks += 1
        first = last


def watch(helper: WATCH):
    """Take part in all runs that this helper hears of, until it heard of none for some time.

    What it is at stands in a word of its own, so that nobody takes that memory away.
    """
    me, called, job = helper.me, helper.board, helper.board + LINE
    mine, heard, looks = helper.board + (1 + me) * LINE, helper.known, 0
    while looks < helper.patience:
        if seen(called) == heard:
            rest(looks)
            looks += 1
        else:
            heard, looks = seen(called), 0
            run = seen(job)
            exchanged(mine, run)
            if run != 0 and seen(job) == run:  # it is not over, and will be kept
                take_part(run, me)
            told(mine, 0)
    helper.known = heard


@entry
def kernel(run: SHARE):
    """Take part in a run, as its first thread or, if it has no board, alone; or watch for runs."""
    if run.what == 0:
        watch(run)
        return
    job = run.board
    if job != 0:
        exchanged(job, run.place)
        told(job - LINE, seen(job - LINE) + 1)
    take_part(run, 0)
    if job != 0:  # from here on no helper begins
        exchanged(job, 0)
