"""Rounds of a loop that one segment computes: from one to the next only addresses change."""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address
from bucketize.link.block import COUNTER, PLACE, ROUNDS, WALK, WORD


@entry
def kernel(loop: ROUNDS):
    """Walk a filled table again and again, until a kernel finds a bad index."""
    walk: WALK = loop.walking
    counter: COUNTER = loop.number
    bases, r = loop.bases, 0
    while r < loop.rounds:
        counter.round = r
        for i in range(loop.n_places):
            place: PLACE = loop.places + WORD * len(PLACE) * i
            at = r - place.lag
            bases[place.place] = (
                place.first if at < 0 else place.begin + at % place.period * place.stride
            )
        call_address(loop.walk, walk)
        walk.first = loop.fixed  # what lies in arena and table stays there
        r += 1
        if walk.wrong != 0:
            r = loop.rounds
