"""A table run by several threads: the caller, and helpers that watch for calls.

A thread takes its own part of a kernel, then those that nobody has begun, and waits until all are
done. It waits for what has been begun only: a thread that comes late, or never, costs its help, and
nothing hangs.
"""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import (
    call_address,
    changed,
    exchanged,
    give_way,
    now_ns,
    pause,
    seen,
    told,
)
from bucketize.link.block import CALL, COUNT, SHARE, WATCH, WORD
from bucketize.machine.target import LINE

FREE, BEGUN, DONE = 0, 1, 2  # a part of a kernel
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
    first = 0
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
    """Take part in all runs that this helper is called to, until it was not for some time.

    What it is at stands in a word of its own, so that nobody takes that memory away.
    """
    line, at = helper.line, helper.line + LINE
    call, me = line + WORD * CALL.run, line + WORD * CALL.me
    end, looks = now_ns() + helper.patience_ns, 0
    while looks < LOOKS or now_ns() < end:
        run = seen(call)
        if run == 0:
            rest(looks)
            looks += 1
        else:
            exchanged(at, run)
            if seen(call) == run:  # it is not over, and will be kept
                take_part(run, seen(me))
                changed(call, run, 0)
            told(at, 0)
            end, looks = now_ns() + helper.patience_ns, 0


@entry
def kernel(run: SHARE):
    """Take part in a run, as its first thread, with the helpers that it has; or watch for calls."""
    if run.what == 0:
        watch(run)
        return
    lines, place = run.lines, run.place
    for i in range(run.helpers):
        told(lines[i] + WORD * CALL.me, i + 1)
        told(lines[i] + WORD * CALL.run, place)
    take_part(run, 0)
    for i in range(run.helpers):  # from here on none begins
        changed(lines[i] + WORD * CALL.run, place, 0)
