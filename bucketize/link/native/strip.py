"""A group of kernels run in strips: some lines of the images pass all of them, then the next.

A kernel's range is cut into tiles, and a strip takes of each kernel the tiles that make the lines
which the next ones want. What lives inside the group has a short buffer: kernels are told where its
first line would lie, and at the end of the buffer the lines that are still wanted go to its front.

The block: the group, the states of its members, the row of the first, the kernels, and begin and
end, a range of the tiles of the last one. The words of the group are those of `link.plan`.
"""

from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address, greatest, least, move

GROUP, MEMBER, LINK, STATE = 5, 13, 8, 5  # words of each
WORD = 8  # bytes
NEVER = 1 << 62


def member(block, i):
    """The words of member i of the group."""
    return block[0] + WORD * (GROUP + MEMBER * i)


def link(block, i):
    """The words of link i: who reads what of whom."""
    return block[0] + WORD * (GROUP + MEMBER * block[0][0] + LINK * i)


def state(block, i):
    """Of member i: tiles done, tiles that this strip does, lines wanted, first line, buffer."""
    return block[1] + WORD * STATE * i


# --- lines and tiles: m are the words of a member, n those of a link -----------------------------


def up(a, b):
    """The quotient of numbers that are not negative, rounded up."""
    return (a + b - 1) // b


def lines_before(m, row):
    """Lines of the result before a row of places."""
    image = row // m[4]
    return image * m[6] + least((row - image * m[4]) * m[5], m[6])


def places_before(m, tile):
    """Places before a tile: `tall` tiles hold one more than `low`."""
    return m[1] * tile + least(tile, m[2])


def whole(m, tile):
    """Lines that are whole when the tiles before `tile` are done."""
    return lines_before(m, places_before(m, tile) // m[3])


def touched(m, tile):
    """Lines that the tiles before `tile` write to."""
    return lines_before(m, up(places_before(m, tile), m[3]))


def tile_behind(m, line):
    """The first tile that begins behind the lines before `line`."""
    image = line // m[6]
    place = (image * m[4] + up(line - image * m[6], m[5])) * m[3]
    taller = m[2] * (m[1] + 1)
    tile = up(place, m[1] + 1) if place <= taller else m[2] + up(place - taller, m[1])
    return least(tile, m[0])


def tile_at(m, line):
    """The last tile that begins no later than `line`."""
    image = line // m[6]
    place = (image * m[4] + (line - image * m[6]) // m[5]) * m[3]
    taller = m[2] * (m[1] + 1)
    return place // (m[1] + 1) if place < taller else m[2] + (place - taller) // m[1]


def first_read(n, line):
    """The first line that `line` of the result is made from."""
    image = line // n[7]
    y = (line - image * n[7]) * n[3] - n[5]
    return image * n[6] + least(greatest(y, 0), n[6])


def read_before(n, line):
    """Behind the last line that the lines before `line` of the result are made from."""
    image = (line - 1) // n[7]
    y = (line - 1 - image * n[7]) * n[3] - n[5] + n[4]
    return image * n[6] + least(greatest(y, 0), n[6])


def wanted_from(block, links, i):
    """The first line of member i's result that will be read from now on."""
    first = NEVER
    for k in range(links):
        n = link(block, k)
        if n[2] == i:
            done = whole(member(block, n[0]), state(block, n[0])[0])
            first = least(first, first_read(n, done))
    return first


# --- buffers -------------------------------------------------------------------------------------


def point(block, links, stride, i):
    """Tell the kernels where the first line of member i's result would lie."""
    s = state(block, i)
    address = s[4] - s[3] * member(block, i)[10]
    (block[2] + stride * i)[0] = address
    for k in range(links):
        n = link(block, k)
        if n[2] == i:
            (block[2] + stride * n[0])[n[1]] = address


def make_room(block, group, i):
    """Let the lines of this strip fit into the buffer of member i's result."""
    m, s = member(block, i), state(block, i)
    end = touched(m, s[1])
    if group[4] == 0 and end - s[3] <= m[11]:
        return
    first = least(wanted_from(block, group[3], i), whole(m, s[0]))
    if group[4] != 0:
        m[11] = greatest(m[11], end - first)
    else:
        kept = touched(m, s[0]) - first
        move(s[4], s[4] + (first - s[3]) * m[10], kept * m[10])
    s[3] = first
    if group[4] == 0:
        point(block, group[3], group[1], i)


# --- strips --------------------------------------------------------------------------------------


def begin(block, group):
    """Find the tiles that each member begins with."""
    last = group[0] - 1
    for back in range(group[0]):
        i = last - back
        m, s = member(block, i), state(block, i)
        s[0] = block[4] if i == last else tile_at(m, wanted_from(block, group[3], i))
        s[2], s[3] = 0, whole(m, s[0])
        if i < last and group[4] == 0:
            point(block, group[3], group[1], i)


def choose(block, group):
    """The tiles of the next strip, from the last member to the first."""
    last = group[0] - 1
    for back in range(group[0]):
        i = last - back
        m, s = member(block, i), state(block, i)
        if i == last:
            behind = tile_behind(m, whole(m, s[0]) + group[2])
            s[1] = least(greatest(behind, s[0] + 1), block[5])
        else:
            s[1], s[2] = greatest(s[0], tile_behind(m, s[2])), 0
        if s[1] > s[0]:
            lines = touched(m, s[1])
            for k in range(group[3]):
                n = link(block, k)
                if n[0] == i:
                    made = state(block, n[2])
                    made[2] = greatest(made[2], read_before(n, lines))


def run(block, stride, i):
    """The tiles of this strip of member i, span by span; all spans at once, if they are all."""
    m, s = member(block, i), state(block, i)
    row, kernel = block[2] + stride * i, block[3][i]
    spans, tiles, first, behind = m[8], m[0], s[0], s[1]
    if first == 0 and behind == tiles:
        spans, behind = 1, tiles * spans
    for k in range(spans):
        row[m[9]] = (k * tiles + first) * m[7]
        row[m[9] + 1] = (k * tiles + behind) * m[7]
        call_address(kernel, row)


@entry
def kernel(block):
    """Run a group over a range of its last member's tiles, or measure what lines are held."""
    group = block[0]
    if block[4] >= block[5]:
        return
    begin(block, group)
    last = group[0] - 1
    while state(block, last)[0] < block[5]:
        choose(block, group)
        for i in range(group[0]):
            s = state(block, i)
            if s[1] > s[0]:
                if i < last:
                    make_room(block, group, i)
                if group[4] == 0:
                    run(block, group[1], i)
                s[0] = s[1]
