"""What integer code can do with words beside arithmetic: `integer.py` writes calls of these.

Each writes its code by the writer that comes first, which a call leaves out. Addresses are words.
The last ones are for memory that threads share.
"""

from __future__ import annotations

from llvmlite import ir

from bucketize.kernel.emit.writer import BIT, INT, POINTER, VOID, WORD, WORD_BYTES, WordWriter
from bucketize.machine.present import ARM, system_of

YIELD = ir.Constant(INT, 1)
"""The hint of Arm that this thread waits."""
MONOTONIC = {"linux": 1, "darwin": 6}
"""The number of the clock that only goes on, by operating system."""
SECOND_NS = 1_000_000_000


def least(w: WordWriter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The smaller of two."""
    return w.word(w.least(x, y))


def greatest(w: WordWriter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The greater of two."""
    return w.word(w.greatest(x, y))


def quotient(w: WordWriter, x: ir.Value, y: ir.Value) -> ir.Value:
    """The quotient x // y, rounded down; 0 where y is."""
    b = w.builder
    is_usual = b.and_(w.compare(x, ">=", 0), w.compare(y, ">", 0))
    with b.if_else(is_usual, likely=True) as (then, otherwise):
        with then:
            usual = b.udiv(x, y), b.block
        with otherwise:
            other = _signed_quotient(w, x, y), b.block
    return w.phi(usual, other)


def _signed_quotient(w: WordWriter, x: ir.Value, y: ir.Value) -> ir.Value:
    b, by_zero = w.builder, w.compare(y, "==", 0)
    divisor = b.select(by_zero, w.word(1), y)
    towards_zero = b.sdiv(x, divisor)
    rest = b.sub(x, b.mul(towards_zero, divisor))
    is_off = b.and_(w.compare(rest, "!=", 0), w.compare(b.xor(rest, divisor), "<", 0))
    return b.select(by_zero, w.word(0), b.sub(towards_zero, b.zext(is_off, WORD)))


def move(w: WordWriter, there: ir.Value, here: ir.Value, count: ir.Value) -> None:
    """Copy so many bytes from `here`; the two places may overlap."""
    places = [w.pointer(there), w.pointer(here)]
    kinds = [*(p.type for p in places), WORD, BIT]
    copy = w.declare("llvm.memmove.p0.p0.i64", VOID, kinds)
    w.builder.call(copy, [*places, count, ir.Constant(BIT, 0)])


def call_address(w: WordWriter, address: ir.Value, block: ir.Value) -> None:
    """A call of the kernel at `address` with the argument block at the address `block`."""
    kernel = ir.FunctionType(VOID, [WORD])
    w.builder.call(w.builder.inttoptr(address, kernel.as_pointer()), [block])


# --- the C library -------------------------------------------------------------------------------

DATA = "bucketize_data"
"""The symbol where the data of a library begins; its linker knows it."""


def base(w: WordWriter) -> ir.Value:
    """The address of the data of the library."""
    data = w.declare(DATA, VOID, [])  # as a function: llvmlite gives hidden variables a value
    data.linkage = "hidden"  # it is in the same file: no table leads to it
    return w.builder.ptrtoint(data, WORD)


def allocated(w: WordWriter, size: ir.Value) -> ir.Value:
    """The address of so many bytes of zeros; 0 if there is no memory."""
    place = w.declare("calloc", POINTER, [WORD, WORD])
    return w.builder.ptrtoint(w.builder.call(place, [w.word(1), size]), WORD)


def aligned(w: WordWriter, alignment: ir.Value, size: ir.Value) -> ir.Value:
    """The address of so many bytes, a multiple of the alignment; 0 if there is no memory."""
    place = w.declare("aligned_alloc", POINTER, [WORD, WORD])
    return w.builder.ptrtoint(w.builder.call(place, [alignment, size]), WORD)


def released(w: WordWriter, address: ir.Value) -> None:
    """Give memory back; nothing at 0."""
    w.builder.call(w.declare("free", VOID, [POINTER]), [w.pointer(address)])


def formatted(
    w: WordWriter, place: ir.Value, size: ir.Value, text: ir.Value, *numbers: ir.Value
) -> None:
    """Write a text, with numbers in the places that it has for them, of at most so many bytes."""
    print_ = w.module.globals.get("snprintf")
    if print_ is None:
        kind = ir.FunctionType(INT, [POINTER, WORD, POINTER], var_arg=True)
        print_ = ir.Function(w.module, kind, "snprintf")
    w.builder.call(print_, [w.pointer(place), size, w.pointer(text), *numbers])


# --- threads -------------------------------------------------------------------------------------


def changed(w: WordWriter, place: ir.Value, expected: ir.Value, value: ir.Value) -> ir.Value:
    """Whether the word at an address was `known`; it is `value` then, in one step."""
    pair = w.builder.cmpxchg(_word(w, place), expected, value, "acq_rel", "acquire")
    return w.builder.extract_value(pair, 1)


def exchanged(w: WordWriter, place: ir.Value, value: ir.Value) -> ir.Value:
    """What the word at an address was before it became `value`; nothing moves across it."""
    return w.builder.atomic_rmw("xchg", _word(w, place), value, "seq_cst")


def seen(w: WordWriter, place: ir.Value) -> ir.Value:
    """The word at an address; what its writer wrote before is seen from here on."""
    return w.builder.load_atomic(_word(w, place), "seq_cst", WORD_BYTES)


def told(w: WordWriter, place: ir.Value, value: ir.Value) -> None:
    """Store a word; who sees it sees what was written before."""
    w.builder.store_atomic(value, _word(w, place), "release", WORD_BYTES)


def pause(w: WordWriter) -> None:
    """Tell the processor that this thread waits."""
    architecture, _ = system_of(w.module.triple)
    if architecture == "x86_64":
        w.builder.call(w.declare("llvm.x86.sse2.pause", VOID, []), [])
    elif architecture == ARM:
        w.builder.call(w.declare("llvm.aarch64.hint", VOID, [INT]), [YIELD])


def give_way(w: WordWriter) -> None:
    """Let another thread have the core, if one waits for it."""
    w.builder.call(w.declare("sched_yield", INT, []), [])


def now_ns(w: WordWriter) -> ir.Value:
    """Nanoseconds of a clock that only goes on."""
    b, (_, system) = w.builder, system_of(w.module.triple)
    with b.goto_entry_block():
        time = b.alloca(ir.ArrayType(WORD, 2))
    clock = ir.Constant(INT, MONOTONIC.get(system, MONOTONIC["linux"]))
    b.call(w.declare("clock_gettime", INT, [INT, POINTER]), [clock, time])
    seconds, rest = (b.load(w.item(time, w.word(i), WORD_BYTES), typ=WORD) for i in range(2))
    return b.add(b.mul(seconds, w.word(SECOND_NS)), rest)


def _word(w: WordWriter, address: ir.Value) -> ir.Value:
    return w.builder.inttoptr(address, WORD.as_pointer())
