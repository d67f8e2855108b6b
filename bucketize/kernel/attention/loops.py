"""The loops of attention: softmax(Q K^T, scaled and masked) V, over a part of the rows of Q.

For each entry of the batch, a head, keys and values are laid out in panels in the workspace. Then a
block of rows at a time: its scores beside all keys, their softmax in place, their product with the
values. So no more scores are in memory than those of a block. The exponentials are divided by their
sum where the product is stored (as in Dao et al. 2022, arXiv:2205.14135).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from bucketize.kernel.attention.column import JOB, Column
from bucketize.kernel.attention.form import COPIED, HeadForm, widths
from bucketize.kernel.attention.mask import hiding_of
from bucketize.kernel.attention.softmax import Weights, clear
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import BIT, FLOAT_BYTES, POINTER, WORD, WORD_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import TRUTHS, Epilogue, Operand
from bucketize.kernel.gemm.level import offsets
from bucketize.kernel.gemm.macrokernel import Bases
from bucketize.kernel.gemm.store import Words

RAW = Epilogue()
TIMES_ROW = Epilogue((Operand(0, "row"),), (("x0 * x1", (0, 1), ()),))


def emit(w: Writer, block: ir.Value, /, *, epilogue: tuple[Any, Any], **form: Any) -> None:
    """Write the body of a kernel of this form."""
    head = HeadForm(lanes=w.lanes, epilogue=Epilogue.of_plain(*epilogue), **form)
    _AttentionLoops(w, block, head).write()


class _Panel(NamedTuple):
    """A panel of keys or of values."""

    first: Size
    """The first of its columns."""
    left: Size
    """Columns from there on."""
    columns: ir.Value
    """Columns of the panel; more than are left, if it is the last one."""
    copied: ir.Value
    """Whether it was copied."""
    at: ir.Value
    """Where it is read, in its own place or in the copy."""
    step: ir.Value
    """Bytes between its rows there."""


class _AttentionLoops:
    def __init__(self, w: Writer, block: ir.Value, form: HeadForm) -> None:
        self.w, self.form, self.memory = w, form, block
        self.block = Words(w, block, form.block_names)
        self.d = {name: self.block.word(name) for name in form.dims}
        space = self.block.pointer("workspace")
        self.scores = space
        self.inverses, self.key_panels, self.value_panels = (
            w.at(space, self.d[name]) for name in ("inverses", "key_panels", "value_panels")
        )
        self.job = Words.new(w, JOB)
        column = partial(Column, w, in_order=form.in_order)
        self.columns = {v: column(f"scores{v}", form.rows, v, RAW) for v in widths(form.vectors)}
        self.sums = column("sums", form.value_rows, form.value_vectors, TIMES_ROW)
        operands = [POINTER] * len(form.epilogue.operands)
        weights = Weights(form.epilogue, form.clean, form.in_order)
        self.softmax = w.define("softmax", [POINTER, WORD, POINTER, *operands], weights.write)
        self.hiding = hiding_of(form.epilogue) if form.limit is None else None

    def write(self) -> None:
        if self.form.segments is not None:
            self.write_segments(self.form.segments)
            return
        w, blocks = self.w, self.d["blocks"]
        begin, end = self.block.word("begin"), self.block.word("end")

        def entry(e: ir.Value, before: Values) -> Values:
            bases = self.bases(e)
            at = [w.builder.ptrtoint(bases[name], WORD) for name in "kv"]
            others = [w.compare(a, "!=", b) for a, b in zip(at, before, strict=True)]
            w.when(w.builder.or_(*others), lambda: self.lay_out(bases))
            lo = w.greatest(w.sub(begin, w.mul(e, blocks)), 0)
            hi = w.least(w.sub(end, w.mul(e, blocks)), blocks)
            w.loop(lo, hi, lambda i, _: self.rows(bases, i))
            return at

        nothing = [w.word(0), w.word(0)]
        w.loop(w.div(begin, blocks), w.ceildiv(end, blocks), entry, nothing)

    def write_segments(self, place: int) -> None:
        """All heads of a segment, then those of the next: each is attention of its own."""
        w, whole, heads = self.w, dict(self.d), self.d["heads"]
        ends = self.block.pointer(f"in{place}")

        def entry(e: ir.Value, _: Values) -> None:
            segment = w.div(e, heads)
            count, before = whole["keys"], w.greatest(w.sub(segment, 1), 0)
            first = w.builder.select(
                w.compare(segment, ">", 0), w.load_word(ends, before), w.word(0)
            )
            # within the array, whatever they say
            first = w.greatest(w.least(first, count), 0)
            rows = w.greatest(w.sub(w.least(w.load_word(ends, segment), count), first), 0)
            blocks = w.ceildiv(rows, whole["height"])
            low = w.div(rows, w.greatest(blocks, 1))
            tall, copied = w.sub(rows, w.mul(low, blocks)), w.div(rows, COPIED)
            self.d = whole | {"keys": rows, "low": low, "tall": tall, "copied": copied}
            bases = self.moved(self.bases(w.sub(e, w.mul(segment, heads))), first)
            w.when(w.compare(rows, ">", 0), lambda: self.lay_out(bases))
            w.loop(0, blocks, lambda i, _: self.rows(bases, i))

        w.loop(self.block.word("begin"), self.block.word("end"), entry)

    def moved(self, bases: Bases, first: Size) -> Bases:
        """The arrays at a segment that begins with this row."""
        w, d = self.w, self.d
        along = w.mul(first, d["k_step"]) if self.form.by_key else w.mul(first, FLOAT_BYTES)
        by = {"q": w.mul(first, d["q_step"]), "k": along}
        by |= {"v": w.mul(first, d["v_step"]), "c": w.mul(first, d["c_step"])}
        for i, kind in enumerate(self.form.epilogue.operands):
            row = w.mul(first, d[f"e{i}_step"]) if kind.rows else 0
            size = 1 if kind.held == TRUTHS else FLOAT_BYTES
            column = w.mul(first, size) if kind.columns else 0
            by[f"e{i}"] = w.add(row, column)
        return {name: w.at(at, by[name]) for name, at in bases.items()}

    def lay_out(self, bases: Bases) -> None:
        """Keys and values in panels; heads of Q that share them follow each other."""
        self.lay_out_keys(bases["k"])
        self.lay_out_values(bases["v"])

    def bases(self, entry: Size) -> Bases:
        """The arrays at one entry of the batch."""
        w, form = self.w, self.form
        arrays = {"q": f"in{form.query}", "k": f"in{form.key}", "v": f"in{form.value}", "c": "out"}
        arrays |= {f"e{i}": f"in{o.place}" for i, o in enumerate(form.epilogue.operands)}
        rows = w.item(self.memory, len(form.block_names), WORD_BYTES)
        moved = offsets(w, rows, self.d["levels"], len(arrays), entry)
        pairs = zip(arrays.items(), moved, strict=True)
        return {name: w.at(self.block.pointer(word), o) for (name, word), o in pairs}

    # --- keys and values in panels --------------------------------------------------------------

    @property
    def width(self) -> int:
        """Keys in a panel."""
        return self.form.lanes * self.form.vectors

    def panel_bytes(self) -> Size:
        """Bytes of a panel of keys, whose depth is that of whole squares."""
        w, lanes = self.w, self.form.lanes
        whole = w.mul(w.ceildiv(self.d["depth"], lanes), lanes)
        return w.mul(whole, self.width * FLOAT_BYTES)

    def panel_vectors(self, left: Size) -> Size:
        """The vectors of a panel where so many keys are left."""
        w = self.w
        *lower, vectors = map(w.word, widths(self.form.vectors))
        for fits in reversed(lower):
            enough = w.compare(left, "<=", w.mul(fits, w.lanes))
            vectors = w.builder.select(enough, fits, vectors)
        return vectors

    def is_copied(self, columns: Size, left: Size) -> ir.Value:
        """Whether a panel of so many columns is read from a copy.

        There are enough rows for one to pay, or the panel is wider than what is left.
        """
        enough = self.w.compare(self.d["copied"], "!=", 0)
        return self.w.builder.or_(enough, self.w.compare(columns, ">", left))

    def panel_of_keys(self, k: ir.Value, p: ir.Value) -> _Panel:
        """Where a panel of keys is read."""
        w, form, select = self.w, self.form, self.w.builder.select
        first = w.mul(p, self.width)
        left = w.sub(self.d["keys"], first)
        columns = w.word(w.mul(self.panel_vectors(left), w.lanes))
        place, step = w.item(k, first), self.d["k_step"]
        copy = w.at(self.key_panels, w.mul(p, self.panel_bytes()))
        copied = ir.Constant(BIT, 1) if form.by_key else self.is_copied(columns, left)
        at = select(copied, copy, place), select(copied, w.word(w.mul(columns, FLOAT_BYTES)), step)
        return _Panel(first, left, columns, copied, *at)

    def lay_out_keys(self, k: ir.Value) -> None:
        """K as [panel][depth][keys of a panel]; what is behind the last key may be anything."""
        w = self.w

        def each(p: ir.Value, _: Values) -> None:
            panel = self.panel_of_keys(k, p)

            def vector(v: ir.Value, _: Values) -> None:
                begin = w.mul(v, w.lanes)
                lay_out = self.square if self.form.by_key else self.copy
                lay_out(k, w.add(panel.first, begin), w.item(panel.at, begin), panel.step)

            def vectors() -> None:
                w.loop(0, w.ceildiv(w.least(panel.left, self.width), w.lanes), vector)

            w.when(panel.copied, vectors)

        w.loop(0, w.ceildiv(self.d["keys"], self.width), each)

    def copy(self, k: ir.Value, first: Size, to: ir.Value, step: Size) -> None:
        """A vector of keys that are neighbours, at each depth."""
        w = self.w
        mask = w.mask(w.sub(self.d["keys"], first))
        source = w.item(k, first)

        def row(i: ir.Value, _: Values) -> None:
            value = w.load(w.at(source, w.mul(i, self.d["k_step"])), mask)
            w.store(value, w.at(to, w.mul(i, step)))

        w.loop(0, self.d["depth"], row)

    def square(self, k: ir.Value, first: Size, to: ir.Value, step: Size) -> None:
        """A vector of keys that lie apart; the last one stands for those behind it."""
        w, d = self.w, self.d
        last = w.sub(d["keys"], 1)
        places = [w.least(w.add(first, j), last) for j in range(w.lanes)]
        rows = [w.at(k, w.mul(place, d["k_step"])) for place in places]
        whole = w.mul(w.div(d["depth"], w.lanes), w.lanes)

        def part(i: ir.Value, mask: ir.Value | None) -> None:
            vectors = transposed(w, [w.load(w.item(row, i), mask) for row in rows])
            for j, vector in enumerate(vectors):
                w.store(vector, w.at(to, w.mul(w.add(i, j), step)))

        w.loop(0, whole, lambda i, _: part(i, None), step=w.lanes)
        w.loop(whole, d["depth"], lambda i, _: part(i, w.mask(w.sub(d["depth"], i))), step=w.lanes)

    def panel_of_values(self, v: ir.Value, p: ir.Value) -> _Panel:
        """Where a panel of values is read."""
        w, d, select = self.w, self.d, self.w.builder.select
        width = self.form.value_vectors * w.lanes
        first = w.mul(p, width)
        left = w.sub(d["features"], first)
        copied = self.is_copied(width, left)
        copy = w.item(self.value_panels, w.mul(first, d["keys"]))
        at = select(copied, copy, w.item(v, first))
        step = select(copied, w.word(width * FLOAT_BYTES), d["v_step"])
        return _Panel(first, left, w.word(width), copied, at, step)

    def lay_out_values(self, v: ir.Value) -> None:
        """V as [panel][key][features of a panel], filled up with zeros."""
        w, d = self.w, self.d
        starts = [n * w.lanes for n in range(self.form.value_vectors)]

        def each(p: ir.Value, _: Values) -> None:
            panel = self.panel_of_values(v, p)
            masks = [w.mask(w.sub(panel.left, s)) for s in starts]

            def key(t: ir.Value, _: Values) -> None:
                source = w.item(w.at(v, w.mul(t, d["v_step"])), panel.first)
                row = w.at(panel.at, w.mul(t, panel.step))
                for start, mask in zip(starts, masks, strict=True):
                    w.store(w.load(w.item(source, start), mask), w.item(row, start))

            def keys() -> None:
                w.loop(0, d["keys"], key)

            w.when(panel.copied, keys)

        w.loop(0, w.ceildiv(d["features"], self.form.value_vectors * w.lanes), each)

    # --- a block of rows ------------------------------------------------------------------------

    def rows(self, bases: Bases, block: ir.Value) -> None:
        """The results of one block: `tall` blocks have one row more than `low`."""
        w, d = self.w, self.d
        first = w.add(w.mul(block, d["low"]), w.least(block, d["tall"]))
        taller = w.builder.zext(w.compare(block, "<", d["tall"]), WORD)
        rows = w.add(d["low"], taller)
        keys = self.reach(bases, first, rows)
        self.job.put("rows", rows)
        self.score(w.at(bases["q"], w.mul(first, d["q_step"])), bases["k"], keys)
        self.normalise(bases, first, rows, keys)
        self.sum(w.at(bases["c"], w.mul(first, d["c_step"])), bases["v"], keys)

    def reach(self, bases: Bases, first: Size, rows: Size) -> Size:
        """The keys that a block of rows is computed with: those behind them weigh nothing.

        A row that sees none is one of numbers that are all as low, so that each of them weighs.
        """
        w, keys, hiding = self.w, self.d["keys"], self.hiding
        if hiding is None:
            return keys
        name, each = f"e{hiding.operand}", self.form.epilogue.operands[hiding.operand].rows

        def row(m: ir.Value, furthest: Values) -> Values:
            index = w.add(first, m) if each else 0
            at = w.at(bases[name], w.mul(index, self.d[f"{name}_step"]))
            last = hiding.last(w, at, keys)
            none = w.compare(last, "==", 0)
            return [w.word(w.greatest(furthest[0], w.builder.select(none, w.word(keys), last)))]

        (furthest,) = w.loop(0, rows if each else 1, row, [w.word(0)])
        return w.least(furthest, keys)

    def tell(self, **words: Size) -> None:
        for name, value in words.items():
            self.job.put(name, value)

    def score(self, q: ir.Value, k: ir.Value, keys: Size) -> None:
        """Q K^T, in whole vectors."""
        w, d = self.w, self.d
        self.tell(a=q, a_step=d["q_step"], c_step=d["score_step"], units=d["depth"])

        def panel(p: ir.Value, _: Values) -> None:
            b = self.panel_of_keys(k, p)
            self.tell(b=b.at, b_step=b.step, c=w.item(self.scores, b.first), columns=b.columns)
            with w.cases(w.word(w.div(b.columns, w.lanes))) as case:
                for n, column in self.columns.items():
                    with case(n):
                        w.call(column.function, [self.job.memory])

        w.loop(0, w.ceildiv(keys, self.width), panel)

    def seen(self, keys: Size) -> Size:
        """How many of them are no padding."""
        w = self.w
        if self.form.limit is None:
            return keys
        count = w.load_word(self.block.pointer(f"in{self.form.limit}"), 0)
        return w.greatest(w.least(count, keys), 0)

    def normalise(self, bases: Bases, first: Size, rows: Size, keys: Size) -> None:
        """Each row of scores through the epilogue and the exponential."""
        w, d = self.w, self.d
        kinds = self.form.epilogue.operands

        def row(m: ir.Value, _: Values) -> None:
            at = w.at(self.scores, w.mul(m, d["score_step"]))
            index = w.add(first, m)
            operands = [
                w.at(bases[f"e{i}"], w.mul(index, d[f"e{i}_step"]) if kind.rows else 0)
                for i, kind in enumerate(kinds)
            ]
            w.call(self.softmax, [at, self.seen(keys), w.item(self.inverses, m), *operands])
            if self.form.limit is not None:
                whole = w.mul(w.ceildiv(self.seen(keys), w.lanes), w.lanes)
                clear(w, at, whole, keys)

        w.loop(0, rows, row)

    def sum(self, c: ir.Value, v: ir.Value, keys: Size) -> None:
        """The values, each by its weight."""
        w, d = self.w, self.d
        self.tell(a=self.scores, a_step=d["score_step"], units=keys)
        self.tell(c_step=d["c_step"], e0=self.inverses, e0_step=FLOAT_BYTES)

        def panel(p: ir.Value, _: Values) -> None:
            b = self.panel_of_values(v, p)
            self.tell(b=b.at, b_step=b.step, c=w.item(c, b.first), columns=b.left)
            w.call(self.sums.function, [self.job.memory])

        w.loop(0, w.ceildiv(d["features"], self.form.value_vectors * w.lanes), panel)


def transposed(w: Writer, rows: Sequence[ir.Value]) -> Values:
    """The columns of a square of vectors, by exchanging the halves of ever larger squares."""
    count, step = len(rows), 1
    while step < count:
        new = list(rows)
        for i in (i for i in range(count) if not i & step):
            pair = rows[i], rows[i + step]
            low = [count + n - step if n & step else n for n in range(count)]
            high = [count + n if n & step else n + step for n in range(count)]
            new[i], new[i + step] = w.shuffle(*pair, low), w.shuffle(*pair, high)
        rows, step = new, 2 * step
    return list(rows)
