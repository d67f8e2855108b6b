"""Rounds of a loop that one segment computes: from one to the next only addresses change.

The words of the block, and of a row for each input and result whose place changes, are those of
`link.plan.ROUNDS` and `link.plan.PLACE`.
"""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address

PLACE = 6  # words
WORD = 8  # bytes


@entry
def kernel(block):
    """Walk a filled table again and again, until a kernel finds a bad index."""
    walk, number, bases = block[3], block[5], block[6]
    r = 0
    while r < block[0]:
        number[0] = r
        for i in range(block[2]):
            place = block[1] + PLACE * WORD * i
            at = r - place[1]
            bases[place[0]] = place[2] if at < 0 else place[3] + at % place[5] * place[4]
        call_address(block[4], walk)
        walk[1] = block[7]  # what lies in arena and table stays there
        r += 1
        if walk[2] != 0:
            r = block[0]
