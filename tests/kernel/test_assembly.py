"""The machine code of register tiles, for processors that need not be this one: no sum leaves them.

It is emitted as text and read, never run. LLVM's comments tell what is a loop within no other.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import pytest
from test_attention import FULL as MASKED
from test_kernel_bfloat16 import ABLE
from test_kernel_bfloat16 import KINDS as IN_PAIRS
from test_vector_templates import Case, N, S, convolution, dense, inner_products, product, scores

from bucketize.inspect import roofline
from bucketize.kernel.attention import template as attention
from bucketize.kernel.codegen import machine
from bucketize.kernel.depthwise import template as depthwise
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import cost, matmul
from bucketize.kernel.gemm.macrokernel import CHUNK
from bucketize.kernel.gemm.schedule import HIGH, LOW, Tiling, tiles
from bucketize.kernel.inner import template as inner
from bucketize.kernel.product import Product
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.winograd import template as winograd
from bucketize.machine.named import X86_LINUX, named
from bucketize.machine.speed import AMD, INTEL
from bucketize.machine.target import LINE, Processor, Target, target_of

WIDE = Processor(X86_LINUX, "skylake-avx512", "", "avx512f", is_restricted=False)
NARROW = Processor(X86_LINUX, "haswell", "", "avx2", is_restricted=False)
ZEN = Processor(X86_LINUX, "znver5", "", "avx512f", is_restricted=False)
NARROW_ZEN = Processor(X86_LINUX, "znver3", "", "avx2", is_restricted=False)
ARMS = [named("neoverse-n1").processor, named("neoverse-v1").processor]
PROCESSORS = [WIDE, NARROW, ZEN, NARROW_ZEN, *ARMS]
ALL = pytest.mark.parametrize("processor", PROCESSORS, ids=lambda its: its.cpu)

# Of x86-64 and of 64-bit Arm.
VECTOR = re.compile(r"%[xyz]mm|\b[qdv]\d")
STACK = re.compile(r"\(%rsp|\[sp")
SUM = re.compile(r"\tv(?:fmadd|dpbf16ps).*, (%\w+)(?:\s|$)|\t(?:fmla|bfdot)\t(v\d+)")
FETCH = re.compile(r"prefetcht0|prfm\s+pldl1keep")
BEGIN = re.compile(r"(\S+):\s+(?:#|//) @")
BLOCK = re.compile(r"(?:\.LBB(?P<label>\d+_\d+)|(?:#|//) %bb\.\d+):")
WITHIN = re.compile(r"(?:#|//)\s+in Loop: Header=BB(\d+_\d+)")


@dataclass(frozen=True)
class Loop:
    """The instructions of an innermost loop, and the function that it is in."""

    function: str
    lines: tuple[str, ...]

    @property
    def sums(self) -> int:
        """Of vectors, in a turn."""
        return sum(bool(SUM.search(line)) for line in self.lines)

    @property
    def destinations(self) -> set[str]:
        """The registers of these sums."""
        return {found[1] or found[2] for found in map(SUM.search, self.lines) if found}

    @property
    def fetched(self) -> int:
        """Lines of what is about to be read that are asked for, in a turn."""
        return sum(bool(FETCH.search(line)) for line in self.lines)

    @property
    def on_stack(self) -> list[str]:
        """What reads the stack or writes to it."""
        return [line for line in self.lines if STACK.search(line)]

    @property
    def spilled(self) -> list[str]:
        """The same, of vectors."""
        return [line for line in self.on_stack if VECTOR.search(line)]


def innermost(assembly: str) -> list[Loop]:
    """The innermost loops that sum vectors up."""
    return [loop for loop in inner_loops(assembly) if loop.sums]


def inner_loops(assembly: str) -> list[Loop]:
    """All loops that hold no other.

    The header of one says that it is one, every other block of it which header it belongs to.
    """
    lines: dict[tuple[str, str], list[str]] = defaultdict(list)
    headers: set[tuple[str, str]] = set()
    function = label = header = ""
    for line in assembly.splitlines():
        if begins := BEGIN.match(line):
            function = begins[1]
        if block := BLOCK.match(line):
            label, header = block["label"] or "", ""
        elif "This Inner Loop Header" in line:
            header = label
            headers.add((function, header))
        elif within := WITHIN.search(line):
            header = header or within[1]
        elif line.startswith("\t") and not line.startswith(("\t.", "\t//")):
            lines[function, header].append(line)
    return [Loop(f, tuple(lines[f, h])) for f, h in sorted(headers)]


def assembly(case: Case, schedule: Schedule, target: Target, processor: Processor) -> str:
    """The text of a kernel's machine code."""
    return emitted(case.template.source(case.workload(), schedule, target), processor)


def emitted(text: str, processor: Processor) -> str:
    """The machine code of a kernel's file."""
    source = ModuleType("k_emitted")
    exec(text, source.__dict__)
    module, _ = source.kernel(processor)
    emits = machine(processor)
    emits.set_asm_verbosity(True)
    found: str = emits.emit_assembly(module)
    return found


@ALL
def test_what_measures_the_peak_does_all_that_it_counts(processor: Processor) -> None:
    """LLVM drops sums that nobody reads."""
    lanes = target_of(processor).lanes
    parameters = {"lanes": lanes, "chains": roofline.CHAINS}
    text = roofline.SOURCE.format(name="multiply", parameters=parameters)
    loops = innermost(emitted(text, processor))
    assert loops
    for loop in loops:
        assert len(loop.destinations) == roofline.CHAINS
        assert not loop.on_stack


PRODUCTS = {
    "dense": Case(matmul.TEMPLATE, dense, ((N, 64), (64, 256), (256,), (N, 256)), (), (1, 2)),
    "scores": Case(matmul.TEMPLATE, scores, ((N, 3, S, 64), (N, 3, 64, S), (N, 1, 1, S)), ()),
    "weighted": Case(matmul.TEMPLATE, product, ((N, 3, S, S), (N, 3, S, 64)), ()),
    "conv": convolution((64, 32, 3, 3), (1, 9, 9)),
    "winograd": replace(convolution((64, 32, 3, 3), (1, 9, 9)), template=winograd.TEMPLATE),
}


def schedules(kind: str, target: Target) -> dict[tuple[int, int], Schedule]:
    """By tile, of so many vectors the one of most rows: its kernel has all lower ones, too."""
    of_width = {vectors: rows for rows, vectors in sorted(tiles(target))}
    found = {
        (rows, vectors): scheduled(kind, rows, vectors * target.lanes)
        for vectors, rows in of_width.items()
    }
    case = PRODUCTS[kind]
    legal = case.template.valid
    return {tile: s for tile, s in found.items() if not legal(case.workload(), s, target)}


def scheduled(kind: str, rows: int, width: int) -> Schedule:
    if kind == "winograd":
        return {"m": 4, "nr": width}
    copied = {"copy": "yes"} if kind in ("scores", "weighted") else {}
    return {"mr": rows, "nr": width, "kc": 0, **copied}


def product_loops(kind: str, schedule: Schedule, target: Target, on: Processor) -> list[Loop]:
    return of_tiles(assembly(PRODUCTS[kind], schedule, target, on))


def of_tiles(text: str) -> list[Loop]:
    return [loop for loop in innermost(text) if ".tile" in loop.function]


@pytest.mark.sweep
@pytest.mark.slow
@ALL
@pytest.mark.parametrize("kind", PRODUCTS)
def test_sums_of_products_stay_in_registers(kind: str, processor: Processor) -> None:
    """At every height of a legal tile, in the turns of several steps and in single ones.

    Widths take turns: each is seen with each kind, and on each processor.
    Addresses of rows do as long as there are no more of them than general registers; the one from
    which on the next part of B is fetched may be read again, as it is not in each turn.
    """
    target, image = target_of(processor), kind == "conv"
    found = sorted(schedules(kind, target).items())
    assert found
    turn = list(PRODUCTS).index(kind) + PROCESSORS.index(processor)
    (rows, vectors), schedule = found[turn % len(found)]
    loops = product_loops(kind, schedule, target, processor)
    for height in range(1, rows + 1):
        mine = [loop for loop in loops if loop.function.endswith(f".tile{height}")]
        assert {loop.sums % (height * vectors) for loop in mine} == {0}, f"{rows} x {vectors}"
        for loop in mine:
            where = f"{height} of {rows} x {vectors}: {loop.on_stack}"
            assert not loop.spilled, where
            assert height > 6 or len(loop.on_stack) <= (3 if image else 1), where


@pytest.mark.sweep
@pytest.mark.parametrize("processor", [WIDE, NARROW, ZEN, NARROW_ZEN], ids=lambda its: its.cpu)
def test_sums_of_several_panels_stay_in_registers(processor: Processor) -> None:
    """Tiles that are higher than those which cover several are not in these kernels."""
    target = target_of(processor)
    for (_, vectors), highest in sorted(schedules("dense", target).items()):
        schedule = {**highest, "mr": min(int(highest["mr"]), LOW)}
        loops = product_loops("dense", schedule, target, processor)
        wide = [(x, re.search(r"tile(\d+)x([2-9])$", x.function)) for x in loops]
        mine = [(loop, int(m[1]) * int(m[2]) * vectors) for loop, m in wide if m]
        assert mine
        for loop, sums in mine:
            assert len(loop.destinations) == sums
            assert not loop.on_stack, f"{loop.function} of {vectors} vectors: {loop.on_stack}"


@pytest.mark.sweep
@ALL
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_sums_of_depthwise_convolutions_stay_in_registers(
    strides: tuple[int, int], processor: Processor
) -> None:
    """At the default's widths; but for one vector, which may be read again, of up to 63 sums."""
    target = target_of(processor)
    case = convolution((64, 1, 3, 3), (1, 9, 9), groups=64, strides=strides)
    schedule = depthwise.TEMPLATE.default(case.workload(), target)
    loops = innermost(assembly(case, schedule, target, processor))
    most = int(schedule["columns"])
    vectors = int(schedule["channels"]) // target.lanes
    for width in range(1, most + 1):
        (loop,) = (x for x in loops if x.function.endswith(f".run{width}"))
        assert loop.sums % (9 * width * vectors) == 0  # LLVM unrolls some
        assert len([line for line in loop.spilled if "Spill" in line]) <= 1, width
        assert len(loop.spilled) <= 2, width


@pytest.mark.sweep
@ALL
@pytest.mark.parametrize("outs", range(1, 13))
def test_inner_products_stay_in_registers(outs: int, processor: Processor) -> None:
    """At the default's width; but for those that are more than there are registers."""
    target = target_of(processor)
    case = inner_products((outs, 64, 3, 3), (1, 9, 29), pads=(1, 1, 1, 1))
    schedule = inner.TEMPLATE.default(case.workload(), target)
    sums = int(schedule["columns"]) * outs
    loops = innermost(assembly(case, schedule, target, processor))
    (loop,) = (x for x in loops if x.function.endswith(f".tile{schedule['columns']}"))
    assert loop.sums == sums
    assert not loop.spilled


@pytest.mark.sweep
@ALL
def test_sums_of_attention_stay_in_registers(processor: Processor) -> None:
    """Of both products, at every height of their tiles; of the softmax, where there are 32."""
    target = target_of(processor)
    schedule = attention.TEMPLATE.default(MASKED.workload(), target)
    loops = innermost(assembly(MASKED, schedule, target, processor))
    tiles_, others = (
        [x for x in loops if (".tile" in x.function) == is_tile] for is_tile in (1, 0)
    )
    assert len(tiles_) > 12
    assert others
    assert not [x.function for x in tiles_ if x.spilled]
    assert target.registers == 16 or not [x.function for x in others if x.spilled]


@ALL
def test_low_tiles_wait_for_no_sum_and_fetch_all_that_they_read(processor: Processor) -> None:
    """Sums that wait for themselves alone are as many as fill the pipeline, where there is room."""
    target = target_of(processor)
    schedule = scheduled("dense", 4, 2 * target.lanes)
    loops = product_loops("dense", schedule, target, processor)
    for height in (1, 2, 4):
        (turn,) = (x for x in loops if x.function.endswith(f".tile{height}") and x.fetched)
        assert len(turn.destinations) == 8
        steps = turn.sums // (2 * height)
        assert turn.fetched * LINE == steps * 2 * target.lanes * FLOAT_BYTES


@pytest.mark.sweep
@ALL
def test_a_tile_of_six_rows_that_is_alone_fetches_all_that_it_reads(processor: Processor) -> None:
    target = target_of(processor)
    loops = product_loops("dense", scheduled("dense", 6, 2 * target.lanes), target, processor)
    read = [2 * target.lanes * FLOAT_BYTES * loop.sums // 12 for loop in loops]
    mine = zip(loops, read, strict=True)
    assert any(x.function.endswith(".tile6") and x.fetched * LINE == bytes_ for x, bytes_ in mine)


@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_a_tile_of_twelve_rows_that_is_alone_does_too_and_a_higher_one_is_not(kind: str) -> None:
    its = target_of(ZEN)
    schedule = scheduled(kind, 14, 2 * its.lanes)
    loops = product_loops(kind, schedule, replace(its, family=INTEL), ZEN)
    for height in (9, 10, 12, 13, 14):
        asking = [x for x in loops if x.function.endswith(f".tile{height}") and x.fetched]
        assert len(asking) == (height <= HIGH)
        for turn in asking:
            steps = turn.sums // (2 * height)
            assert turn.fetched * LINE == steps * 2 * its.lanes * FLOAT_BYTES


def test_where_fetching_ahead_makes_a_machine_slower_a_tile_that_is_alone_does_not() -> None:
    its = target_of(ZEN)
    schedule = scheduled("dense", 6, 4 * its.lanes)
    for prefetch, asks in ((1.1, True), (0.7, False)):
        target = replace(its, speed=replace(its.speed, prefetch=prefetch))
        assert any(loop.fetched for loop in product_loops("dense", schedule, target, ZEN)) is asks


@pytest.mark.parametrize(("family", "level"), [(INTEL, "prefetcht1"), (AMD, "prefetcht0")])
def test_what_comes_next_is_asked_for_into_the_cache_that_suits_a_family(
    family: str, level: str
) -> None:
    """By tiles that share a panel, the products of minimal filtering among them."""
    its = target_of(ZEN)
    target = replace(its, family=family, speed=replace(its.speed, prefetch=0.7))
    for kind in ("dense", "winograd"):
        *_, (_, schedule) = sorted(schedules(kind, target).items())
        text = assembly(PRODUCTS[kind], schedule, target, ZEN)
        assert set(re.findall(r"prefetcht\d", text)) == {level}


@pytest.mark.parametrize("processor", ARMS, ids=lambda its: its.cpu)
def test_arm_multiplies_by_an_element(processor: Processor) -> None:
    """It loads elements of A by vectors, and spends no instruction on their copies.

    Widths take turns: the tiles of both processors are the same.
    """
    target = target_of(processor)
    assert {tile for arm in ARMS for tile in schedules("dense", target_of(arm))} == schedules(
        "dense", target
    ).keys()
    found = sorted(schedules("dense", target).items())
    for _, schedule in found[ARMS.index(processor) :: len(ARMS)]:
        turns = [x for x in product_loops("dense", schedule, target, processor) if x.fetched]
        assert turns
        for loop in turns:
            assert all(re.search(r"\.s\[\d\]", line) for line in loop.lines if SUM.search(line))
            assert not any(re.search(r"\t(?:ld1r|dup)\s", line) for line in loop.lines)


@cache
def large_product(name: str) -> tuple[Tiling, str]:
    """The tiles of 256 x 768 x 768, on the default of a processor, and its machine code."""
    target = named(name)
    schedule = cost.best(Product((256,), 768, 768), target)
    text = assembly(PRODUCTS["dense"], schedule, target, target.processor)
    return Tiling.of(schedule), text


@pytest.mark.parametrize("name", ["neoverse-n1", "neoverse-v1"])
def test_arm_spends_little_on_what_is_no_multiply_add(name: str) -> None:
    """Instructions of the loops of 256 x 768 x 768, each as often as it turns, on the default.

    The tiles of a chunk ask for the next part of B together, a line in each step of a turn.
    """
    rows, (tiling, text) = 256, large_product(name)
    loops = of_tiles(text)
    count = -(-rows // tiling.mr)
    assert tiling.nr * FLOAT_BYTES == LINE
    fetches = -(-count // CHUNK) / count  # of all turns
    total = 0.0
    for height, times in Counter((rows + i) // count for i in range(count)).items():
        mine = [loop for loop in loops if loop.function.endswith(f".tile{height}")]
        (fetching,) = (loop for loop in mine if any("pldl2keep" in line for line in loop.lines))
        plain = min(mine, key=lambda loop: len(loop.lines) / loop.sums)
        turn = fetches * len(fetching.lines) + (1 - fetches) * len(plain.lines)
        total += times * height * turn / plain.sums
    assert total <= 1.15 * rows


@pytest.mark.parametrize("name", ["neoverse-n1", "neoverse-v1"])
def test_arm_spends_little_on_the_way_to_a_tile(name: str) -> None:
    """The loop over the tiles of a panel holds no other: rows that lie evenly are told in a row.

    In all, 256 x 768 x 768 has 1.149 instructions for each multiply-add of a vector, by these.
    """
    tiling, text = large_product(name)
    called = f"tile{tiling.mr}"
    (loop,) = (x for x in inner_loops(text) if any(called in line for line in x.lines))
    assert len(loop.lines) <= 72


@pytest.mark.sweep
@pytest.mark.parametrize("kind", IN_PAIRS)
@pytest.mark.parametrize("name", ["neoverse-v1", "neoverse-n2", "cooperlake"])
def test_a_turn_multiplies_pairs_and_keeps_sums_in_registers(kind: str, name: str) -> None:
    """On Arm by an element, but for the steps that are left over."""
    target = target_of(ABLE) if name == ABLE.cpu else named(name)
    template, load = IN_PAIRS[kind]
    schedule = template.default(load, target)
    text = emitted(template.source(load, schedule, target), target.processor)
    loops = [x for x in innermost(text) if ".tile" in x.function]
    tiles = {x.function: x.function.rpartition(".tile")[2] for x in loops}
    assert {its for its in tiles.values() if "x" not in its} == set(
        map(str, range(1, schedule["mr"] + 1))
    )
    assert not [x.function for x in loops if x.spilled and not x.function.endswith("tile14")]
    vectors = schedule["nr"] // target.lanes
    for loop in loops:
        dots = [x for x in loop.lines if re.search(r"\t(?:bfdot|vdpbf16ps)\s", x)]
        least = math.prod(map(int, tiles[loop.function].split("x"))) * vectors
        assert len(dots) == loop.sums >= least
        if target.lanes == 4 and len(dots) > least:
            assert all(re.search(r"\.2h\[\d\]", x) for x in dots)
            assert not [x for x in loop.lines if re.search(r"\tdup\s", x)]


def test_a_tile_that_does_not_fit_is_noticed() -> None:
    """One for 32 registers, on a processor that has 16."""
    target = replace(target_of(NARROW), registers=32)
    loops = product_loops("dense", scheduled("dense", 14, 2 * target.lanes), target, NARROW)
    high = [loop for loop in loops if loop.function.endswith(".tile14")]
    assert high
    assert all(loop.spilled for loop in high)
    assert not any(loop.spilled for loop in loops if loop.function.endswith(".tile4"))
