"""Strips: groups of kernels that are run on some lines of their images at a time.

Where tensors are larger than a cache, what one kernel writes has left it when the next one reads.
A group is a chain of kernels that run down the lines of their results (`Launch.lines`), and whose
tensors nobody else reads, but for the last. At a chain's narrowest tensors one group ends and the
next begins. Whether a group is run in strips, and in how many, follows from the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from bucketize.errors import TypeRelError
from bucketize.ir import Atom, Const
from bucketize.kernel.template import Lines, LineWindow
from bucketize.kernel.work import work
from bucketize.link.block import ARGUMENTS, GROUP, LINK, MEMBER, STATE
from bucketize.link.table import row
from bucketize.program.instruction import KernelCall, Segment
from bucketize.types import AnyDim, Dim, Shape, ceil_div, evaluate, maximum, positive, product

RANK = 4
SHARE = 0.25
"""The share of the second cache that a strip may move, beside constants."""
LEAST = 3  # strips: below that tensors stay in the cache as they are
COPIED = 4  # bytes, of the words that are copied in a buffer
CONSTANT = 1.0
"""Bytes of constants that a strip may read, too, by those that it moves."""
MOST = 8  # members of a group: each has a buffer
SIZE = 256  # of symbols, where tensors are compared


@dataclass(frozen=True)
class Link:
    """A member that reads what another one makes; both are steps."""

    reader: int
    argument: int
    maker: int
    window: LineWindow
    image: Dim
    """Lines of the image that is read."""
    result: Dim
    """Lines of the reader's result."""


@dataclass(frozen=True)
class StripGroup:
    """Kernels that may be run in strips, one step after the other."""

    first: int
    last: int
    calls: tuple[KernelCall, ...]
    lines: tuple[Lines, ...]
    rows: tuple[Dim, ...]
    """The row of the table that each runs."""
    links: tuple[Link, ...]
    strip_bytes: int

    @cached_property
    def shapes(self) -> list[Shape]:
        """Shapes of the members' results."""
        return [c.binding.outs[0].type.shape for c in self.calls]

    @cached_property
    def strips(self) -> Dim:
        """How many there should be; less than two: the kernels are run one by one."""
        each = [work(c.workload) for c in self.calls]
        moved = sum((w.moved - w.constant for w in each), start=0)
        some = product(positive(product(s)) for s in self.shapes)
        count = moved // self.strip_bytes
        return count * positive(count // LEAST) * some

    @cached_property
    def height(self) -> Dim:
        """Lines of a strip of the last member's result."""
        batch, height, *_ = self.shapes[-1]
        return ceil_div(batch * height, maximum(self.strips, 1))

    def words(self, stride: int) -> list[Dim]:
        """Words of GROUP, MEMBER and LINK, with so many bytes between the rows of members."""
        counts = {"members": len(self.calls), "links": len(self.links)}
        words: list[Dim] = row(GROUP, stride=stride, lines=self.height, **counts)
        members = zip(self.calls, self.lines, self.rows, self.shapes, strict=True)
        for call, lines, at, shape in members:
            tiles = {name: value for name, value in vars(lines).items() if name != "windows"}
            begin = ARGUMENTS + len(call.args) + 1
            line_bytes = product(shape[2:]) * call.binding.outs[0].type.dtype.itemsize
            words += row(
                MEMBER, row=at, height=shape[1], begin=begin, line_bytes=line_bytes, **tiles
            )
        for n in self.links:
            reader, maker = n.reader - self.first, n.maker - self.first
            images = {"image": n.image, "result": n.result, **vars(n.window)}
            words += row(LINK, reader=reader, word=ARGUMENTS + n.argument, maker=maker, **images)
        return words

    def buffer_bytes(self, step: int) -> int:
        """Where the bytes of a member's buffer lie behind the first word of the group."""
        return len(GROUP) + (step - self.first) * len(MEMBER) + MEMBER.bytes

    def buffer(self, step: int) -> int:
        """Where its address lies behind the first word of a thread's states."""
        return (step - self.first) * len(STATE) + STATE.buffer


def groups_of(
    segment: Segment, lines: Sequence[Lines | None], rows: Sequence[Dim], l2: int
) -> list[StripGroup]:
    """The groups of a segment, for a second cache of so many bytes.

    `lines` are how each call runs down the lines of its result, `rows` which row of the table it
    runs.
    """
    strip_bytes = int(SHARE * l2)
    return list(_Grouping(segment, lines, rows, strip_bytes).groups()) if strip_bytes else []


class _Grouping:
    """Looks for the groups of one segment."""

    def __init__(
        self, segment: Segment, lines: Sequence[Lines | None], rows: Sequence[Dim], strip_bytes: int
    ) -> None:
        self.segment, self.lines, self.rows, self.strip_bytes = segment, lines, rows, strip_bytes
        self.calls = segment.calls
        self.makers: dict[Atom, int] = {
            o: i for i, c in enumerate(self.calls) for o in c.binding.outs
        }
        self.last = {segment.root(a): i for i, c in enumerate(self.calls) for a in c.args}
        self.last |= {segment.root(r): len(self.calls) for r in segment.fn.results}
        self.sizes = dict.fromkeys(segment.symbols, SIZE)
        symbols = (s for p in segment.fn.params for s in p.type.symbols())
        for s in symbols:
            self.sizes[s.name] = max(s.lo, SIZE if s.hi is None else min(SIZE, s.hi))

    def groups(self) -> Iterator[StripGroup]:
        """One after the other."""
        first = 0
        while first < len(self.calls):
            group = self.from_(first)
            if group is not None and self.is_worth(group):
                yield group
            first = first + 1 if group is None else group.last + 1

    def is_worth(self, group: StripGroup) -> bool:
        """Whether its constants leave room for a strip, which reads them, and sizes tell its words.

        Words become `?` where windows of windows have pads that hang on sizes.
        """
        if any(isinstance(w, AnyDim) for w in group.words(0)):
            return False
        args = (a for c in group.calls for a in c.args if isinstance(a, Const))
        sizes = {id(a.value): a.value.nbytes for a in args}
        return sum(sizes.values()) <= self.strip_bytes * CONSTANT

    def from_(self, first: int) -> StripGroup | None:
        """The group that begins with a step: up to where it is narrow."""
        links: list[Link] = []
        ends: list[tuple[int, int]] = []
        for step in range(first, min(first + MOST, len(self.calls))):
            more = self.links(first, step)
            if more is None:
                break
            links += more
            if step > first and self.is_closed(first, step):
                ends.append((step, len(links)))
                if self.widens(step):
                    break
        if not ends:
            return None
        last, count = ends[-1]
        steps = slice(first, last + 1)
        lines = tuple(line for line in self.lines[steps] if line is not None)
        calls, rows = self.calls[steps], tuple(self.rows[steps])
        return StripGroup(first, last, calls, lines, rows, tuple(links[:count]), self.strip_bytes)

    def links(self, first: int, step: int) -> list[Link] | None:
        """What a step reads of the group that begins with `first`; None if it cannot be in it."""
        call, lines = self.calls[step], self.lines[step]
        shape = call.binding.outs[0].type.shape
        if lines is None or not self.is_image(call):
            return None
        links = []
        for k, atom in enumerate(call.args):
            maker = self.makers.get(self.segment.root(atom), -1)
            if maker < first:
                continue
            image = atom.type.shape
            if atom not in self.makers or image[0] != shape[0]:
                return None
            if k not in lines.windows and image[1] != shape[1]:
                return None
            window = lines.windows.get(k, LineWindow())
            links.append(Link(step, k, maker, window, image[1], shape[1]))
        return links

    def is_image(self, call: KernelCall) -> bool:
        """Whether a call makes one image, of whole words."""
        outs = [o.type for o in call.binding.outs]
        if len(outs) != 1 or len(outs[0].shape) != RANK:
            return False
        return outs[0].dtype.itemsize % COPIED == 0

    def is_closed(self, first: int, last: int) -> bool:
        """Whether nobody else reads what a group makes, but for the last of it."""
        return all(i < self.last.get(self.out(i), -1) <= last for i in range(first, last))

    def widens(self, step: int) -> bool:
        """Whether what the next one makes is larger."""
        if step + 1 == len(self.calls):
            return True
        here, there = (self.size(self.out(i)) for i in (step, step + 1))
        return here is None or there is None or there > here

    def out(self, step: int) -> Atom:
        return self.calls[step].binding.outs[0]

    def size(self, atom: Atom) -> int | None:
        """Bytes at likely sizes; None where the types do not hold at those."""
        try:
            return evaluate(product(atom.type.shape), self.sizes) * atom.type.dtype.itemsize
        except TypeRelError:
            return None
