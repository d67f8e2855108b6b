"""A plan's memory in a context: its table, filled for sizes, and the arena of all plans."""

from bucketize.kernel.emit.word import (
    aligned,
    allocated,
    base,
    call_address,
    formatted,
    move,
    released,
)
from bucketize.library.block import (
    CONSTANT,
    CONTEXT,
    CORE,
    MEMORY,
    MESSAGE,
    MODEL,
    OK,
    PLAN,
    SHAPE,
    STATE,
)
from bucketize.link.block import BASE, FILL, INSIDE, ORIGIN, POINT, REPORT, RUN, WALK, WORD
from bucketize.machine.target import LINE

UNSHARED = 4611686018427387904  # operations of a kernel that threads begin to share: none


def failed(context: CONTEXT, kind, text_at, a, b):
    """Tell an error of a call."""
    formatted(context.message, MESSAGE, base() + text_at, a, b)
    return kind


def core(number):
    """The address of one of `CORE`."""
    model: MODEL = base()
    places = base() + model.core_at
    return base() + places[number]


def new_state(plan: PLAN):
    """The memory of a plan, in one piece; 0 if there is none."""
    registers = len(STATE)
    table = registers + plan.n_registers
    behind = table + plan.size + 1
    chunks = behind + plan.n_pointers
    order = chunks + plan.n_rows
    scratch = order + plan.n_rows + 1
    bases = scratch + 4 * plan.n_tensors
    kernels = bases + len(BASE) + plan.n_inputs + plan.n_results
    fill = kernels + plan.n_rows
    walk = fill + len(FILL)
    sizes = walk + len(WALK)
    at = allocated(WORD * (sizes + plan.n_symbols))
    if at == 0:
        return 0
    state: STATE = at
    state.registers, state.table, state.behind = (
        at + WORD * registers,
        at + WORD * table,
        at + WORD * behind,
    )
    state.chunks, state.order, state.bases = (
        at + WORD * chunks,
        at + WORD * order,
        at + WORD * bases,
    )
    state.offsets = at + WORD * scratch
    state.strides = state.offsets + WORD * plan.n_tensors
    state.live = state.strides + WORD * plan.n_tensors
    state.lengths = state.live + WORD * plan.n_tensors
    state.kernels, state.fill, state.walk = at + WORD * kernels, at + WORD * fill, at + WORD * walk
    state.sizes = at + WORD * sizes
    return at


def begin(plan: PLAN, state: STATE):
    """Put in what never changes: addresses, and the words of both blocks."""
    move(state.registers, base() + plan.initial_at, WORD * plan.n_registers)
    kernels, places = state.kernels, base() + plan.kernels_at
    for i in range(plan.n_rows):
        kernels[i] = base() + places[i]
        state.chunks[i] = 1
    table = state.table
    constants: CONSTANT = base() + plan.constants_at
    for i in range(plan.n_constants):
        table[constants[i].word] = base() + constants[i].at
    links: INSIDE = base() + plan.links_at
    for i in range(plan.n_links):
        origin = state.table if links[i].base == ORIGIN.table else state.kernels
        table[links[i].word] = origin + WORD * links[i].words
    state.bases[BASE.table] = state.table
    begin_fill(plan, state, state.fill)
    begin_walk(plan, state, state.walk)
    state.fill[FILL.strip] = core(CORE.strip)


def begin_fill(plan: PLAN, state: STATE, fill: FILL):
    """The words of a fill."""
    fill.registers, fill.table = state.registers, state.table
    fill.code, fill.n_code = base() + plan.code_at, plan.n_code
    fill.checks, fill.n_checks = base() + plan.checks_at, plan.n_checks
    fill.words, fill.n_words = base() + plan.words_at, plan.n_words
    fill.parts, fill.n_parts = base() + plan.parts_at, plan.n_parts
    fill.tensors, fill.n_tensors = base() + plan.tensors_at, plan.n_tensors
    fill.pointers, fill.n_pointers = base() + plan.pointers_at, plan.n_pointers
    fill.groups, fill.n_groups = base() + plan.groups_at, plan.n_groups
    fill.steps, fill.threads, fill.width = plan.steps, plan.threads, plan.width
    fill.chunks, fill.order, fill.behind = state.chunks, state.order, state.behind
    fill.offsets, fill.strides = state.offsets, state.strides
    fill.live, fill.sizes = state.live, state.lengths
    fill.fork, fill.in_strips = UNSHARED, 1


def begin_walk(plan: PLAN, state: STATE, walk: WALK):
    """The words of a walk."""
    walk.what = POINT + RUN + REPORT
    walk.table, walk.bases, walk.behind = state.table, state.bases, state.behind
    walk.pointers, walk.n_pointers = base() + plan.pointers_at, plan.n_pointers
    walk.reports, walk.n_reports = base() + plan.reports_at, plan.n_reports
    walk.kernels, walk.order, walk.chunks = state.kernels, state.order, state.chunks
    walk.stride = plan.threads * plan.width * WORD


def plan_of(number):
    """The address of a plan, by its number."""
    model: MODEL = base()
    plans = base() + model.plans_at
    return base() + plans[number]


def prepared(context: CONTEXT, number, symbols):
    """Have the table of a plan filled for the sizes of its symbols; what is wrong with them."""
    model: MODEL = base()
    plan: PLAN = plan_of(number)
    if context.states[number] == 0:
        at = new_state(plan)
        if at == 0:
            return failed(context, MEMORY, model.no_memory_at, WORD * plan.size, 0)
        begin(plan, at)
        context.states[number] = at
    state: STATE = context.states[number]
    same = state.filled
    for i in range(plan.n_symbols):
        if state.sizes[i] != context.sizes[symbols[i]]:
            same = 0
    if same != 0:
        return OK
    state.filled, state.pointed = 0, 0
    for i in range(plan.n_symbols):
        size = context.sizes[symbols[i]]
        state.sizes[i], state.registers[i] = size, size
    call_address(core(CORE.fill), state.fill)
    fill: FILL = state.fill
    if fill.status != 0:
        texts = base() + plan.failures_at
        return failed(context, SHAPE, texts[fill.status], 0, 0)
    state.filled = 1
    return OK


def roomy(context: CONTEXT, bytes_):
    """Have an arena of so many bytes; whether there is one."""
    if bytes_ > context.arena_bytes:
        released(context.arena)
        context.arena_bytes = 0
        context.arena = aligned(LINE, (bytes_ + LINE - 1) // LINE * LINE)
        if context.arena == 0:
            return 0
        context.arena_bytes = bytes_
    return 1
