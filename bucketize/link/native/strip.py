"""A group of kernels run in strips: some lines of the images pass all of them, then the next.

A kernel's range is cut into tiles, and a strip takes of each kernel the tiles that make the lines
which the next ones want. What lives inside the group has a short buffer: kernels are told where its
first line would lie, and at the end of the buffer the lines that are still wanted go to its front.
"""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address, greatest, least, move
from bucketize.link.block import GROUP, LINK, MEMBER, RANGE, RESULT, STATE, STRIP, WORD

NEVER = 1 << 62


def member(strip: STRIP, i) -> MEMBER:
    """Member i of the group."""
    return strip.group + WORD * (len(GROUP) + len(MEMBER) * i)


def link(strip: STRIP, i) -> LINK:
    """Link i of the group."""
    group: GROUP = strip.group
    return group + WORD * (len(GROUP) + len(MEMBER) * group.members + len(LINK) * i)


def state(strip: STRIP, i) -> STATE:
    """The state of member i."""
    return strip.states + WORD * len(STATE) * i


def block_of(strip: STRIP, stride, i):
    """The block of the kernel that member i runs."""
    return strip.rows + stride * member(strip, i).row


def asked(strip: STRIP) -> RANGE:
    """The tiles of the last member that are to be done."""
    return strip + WORD * len(STRIP)


# --- lines and tiles -----------------------------------------------------------------------------


def up(a, b):
    """The quotient of numbers that are not negative, rounded up."""
    return (a + b - 1) // b


def lines_before(m: MEMBER, row):
    """Lines of the result before a row of places."""
    image = row // m.down
    return image * m.height + least((row - image * m.down) * m.high, m.height)


def places_before(m: MEMBER, tile):
    """Places before a tile: `tall` tiles hold one more than `low`."""
    return m.low * tile + least(tile, m.tall)


def whole(m: MEMBER, tile):
    """Lines that are whole when the tiles before `tile` are done."""
    return lines_before(m, places_before(m, tile) // m.across)


def touched(m: MEMBER, tile):
    """Lines that the tiles before `tile` write to."""
    return lines_before(m, up(places_before(m, tile), m.across))


def tile_behind(m: MEMBER, line):
    """The first tile that begins behind the lines before `line`."""
    image = line // m.height
    place = (image * m.down + up(line - image * m.height, m.high)) * m.across
    taller = m.tall * (m.low + 1)
    tile = up(place, m.low + 1) if place <= taller else m.tall + up(place - taller, m.low)
    return least(tile, m.tiles)


def tile_at(m: MEMBER, line):
    """The last tile that begins no later than `line`."""
    image = line // m.height
    place = (image * m.down + (line - image * m.height) // m.high) * m.across
    taller = m.tall * (m.low + 1)
    return place // (m.low + 1) if place < taller else m.tall + (place - taller) // m.low


def first_read(n: LINK, line):
    """The first line that `line` of the result is made from."""
    image = line // n.result
    y = (line - image * n.result) * n.stride - n.before
    return image * n.image + least(greatest(y, 0), n.image)


def read_before(n: LINK, line):
    """Behind the last line that the lines before `line` of the result are made from."""
    image = (line - 1) // n.result
    y = (line - 1 - image * n.result) * n.stride - n.before + n.reach
    return image * n.image + least(greatest(y, 0), n.image)


def wanted_from(strip: STRIP, links, i):
    """The first line of member i's result that will be read from now on."""
    first = NEVER
    for k in range(links):
        n = link(strip, k)
        if n.maker == i:
            done = whole(member(strip, n.reader), state(strip, n.reader).done)
            first = least(first, first_read(n, done))
    return first


# --- buffers -------------------------------------------------------------------------------------


def point(strip: STRIP, links, stride, i):
    """Tell the kernels where the first line of member i's result would lie."""
    s = state(strip, i)
    address = s.buffer - s.first * member(strip, i).line_bytes
    block_of(strip, stride, i)[RESULT] = address
    for k in range(links):
        n = link(strip, k)
        if n.maker == i:
            block_of(strip, stride, n.reader)[n.word] = address


def make_room(strip: STRIP, group: GROUP, i):
    """Let the lines of this strip fit into the buffer of member i's result."""
    m, s = member(strip, i), state(strip, i)
    end = touched(m, s.next)
    if group.measuring == 0 and end - s.first <= m.capacity:
        return
    first = least(wanted_from(strip, group.links, i), whole(m, s.done))
    if group.measuring != 0:
        m.capacity = greatest(m.capacity, end - first)
    else:
        kept = touched(m, s.done) - first
        move(s.buffer, s.buffer + (first - s.first) * m.line_bytes, kept * m.line_bytes)
    s.first = first
    if group.measuring == 0:
        point(strip, group.links, group.stride, i)


# --- strips --------------------------------------------------------------------------------------


def begin(strip: STRIP, group: GROUP):
    """Find the tiles that each member begins with."""
    last = group.members - 1
    for back in range(group.members):
        i = last - back
        m, s = member(strip, i), state(strip, i)
        s.done = asked(strip).begin if i == last else tile_at(m, wanted_from(strip, group.links, i))
        s.wanted, s.first = 0, whole(m, s.done)
        if i < last and group.measuring == 0:
            point(strip, group.links, group.stride, i)


def choose(strip: STRIP, group: GROUP):
    """The tiles of the next strip, from the last member to the first."""
    last = group.members - 1
    for back in range(group.members):
        i = last - back
        m, s = member(strip, i), state(strip, i)
        if i == last:
            behind = tile_behind(m, whole(m, s.done) + group.lines)
            s.next = least(greatest(behind, s.done + 1), asked(strip).end)
        else:
            s.next, s.wanted = greatest(s.done, tile_behind(m, s.wanted)), 0
        if s.next > s.done:
            lines = touched(m, s.next)
            for k in range(group.links):
                n = link(strip, k)
                if n.reader == i:
                    maker = state(strip, n.maker)
                    maker.wanted = greatest(maker.wanted, read_before(n, lines))


def run(strip: STRIP, stride, i):
    """The tiles of this strip of member i, span by span; all spans at once, if they are all."""
    m, s = member(strip, i), state(strip, i)
    row, kernel = block_of(strip, stride, i), strip.kernels[m.row]
    spans, tiles, first, behind = m.spans, m.tiles, s.done, s.next
    if first == 0 and behind == tiles:
        spans, behind = 1, tiles * spans
    for k in range(spans):
        row[m.begin + RANGE.begin] = (k * tiles + first) * m.step
        row[m.begin + RANGE.end] = (k * tiles + behind) * m.step
        call_address(kernel, row)


@entry
def kernel(strip: STRIP):
    """Run a group over a range of its last member's tiles, or measure what lines are held."""
    group: GROUP = strip.group
    if asked(strip).begin >= asked(strip).end:
        return
    begin(strip, group)
    last = group.members - 1
    while state(strip, last).done < asked(strip).end:
        choose(strip, group)
        for i in range(group.members):
            s = state(strip, i)
            if s.next > s.done:
                if i < last:
                    make_room(strip, group, i)
                if group.measuring == 0:
                    run(strip, group.stride, i)
                s.done = s.next
