"""A model's functions: what `link.native` does for Python, for callers of C."""

from bucketize.kernel.emit.word import (
    aligned,
    allocated,
    base,
    call_address,
    formatted,
    greatest,
    move,
    released,
)
from bucketize.library.block import (
    ARRAY,
    CONSTANT,
    CONTEXT,
    CORE,
    DIM,
    LEAF,
    MEMORY,
    MESSAGE,
    MODEL,
    NODE,
    OF_CONSTANT,
    OF_DIMS,
    OF_INPUT,
    OF_RESULT,
    OK,
    OWN,
    PLAN,
    RESULT,
    SHAPE,
    STATE,
)
from bucketize.link.block import BASE, FILL, INSIDE, ORIGIN, POINT, REPORT, RUN, WALK, WORD

UNSHARED = 4611686018427387904  # operations of a kernel that threads begin to share: none
LINE = 64


def failed(context: CONTEXT, kind, text_at, a, b):
    """Tell an error of a call."""
    formatted(context.message, MESSAGE, base() + text_at, a, b)
    return kind


def core(number):
    """The address of one of `CORE`."""
    model: MODEL = base()
    places = base() + model.core_at
    return base() + places[number]


# --- what a call is of ---------------------------------------------------------------------------


def missing(arrays, count):
    """The number of the first array that is not there; -1, none."""
    if arrays == 0:
        return 0
    for i in range(count):
        if arrays[i] == 0:
            return i
    return -1


def bound(context: CONTEXT, shapes):
    """Note the size of each symbol; what is wrong with shapes."""
    model: MODEL = base()
    dims: DIM = base() + model.dims_at
    sizes = context.sizes
    absent = missing(shapes, model.n_inputs)
    if absent >= 0:
        return failed(context, ARRAY, model.no_shape_at, absent, 0)
    for i in range(model.n_dims):
        shape = shapes[dims[i].input]
        size, wanted = shape[dims[i].axis], dims[i].least
        if dims[i].symbol >= 0:
            if dims[i].first != 0:
                sizes[dims[i].symbol] = size
            wanted = sizes[dims[i].symbol]
        if size != wanted:
            return failed(context, SHAPE, dims[i].text_at, wanted, size)
        if size < dims[i].least or size > dims[i].most or size % dims[i].step != 0:
            return failed(context, SHAPE, dims[i].range_at, size, 0)
    return OK


def leaf_of(context: CONTEXT):
    """The number of the leaf that the sizes lead to."""
    model: MODEL = base()
    nodes = base() + model.nodes_at
    if model.n_nodes == 0:
        return 0
    at = 0
    while at >= 0:
        node: NODE = nodes + WORD * at
        at = node.below if context.sizes[node.symbol] < node.bound else node.other
    return -1 - at


# --- a plan's memory -----------------------------------------------------------------------------


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


def prepared(context: CONTEXT, plan: PLAN, number):
    """Have the table of a plan filled for the sizes; what is wrong with them."""
    model: MODEL = base()
    if context.states[number] == 0:
        at = new_state(plan)
        if at == 0:
            return failed(context, MEMORY, model.no_memory_at, WORD * plan.size, 0)
        begin(plan, at)
        context.states[number] = at
    state: STATE = context.states[number]
    symbols = base() + plan.symbols_at
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


# --- results -------------------------------------------------------------------------------------


def bytes_of(state: STATE, results: RESULT, i):
    """The bytes of a result, at the sizes."""
    shape = base() + results[i].shape_at
    size = results[i].itemsize
    for k in range(results[i].rank):
        size = size * state.registers[shape[k]]
    return size


def copied(plan: PLAN, state: STATE):
    """Write the results that no kernel writes."""
    results: RESULT = base() + plan.results_at
    first = len(BASE)
    for i in range(plan.n_results):
        source, index = results[i].source, results[i].index
        here = 0
        if source == OF_INPUT:
            here = state.bases[first + index]
        if source == OF_RESULT:
            here = state.bases[first + plan.n_inputs + index]
        if source == OF_CONSTANT:
            here = base() + index
        if source == OF_DIMS:
            here = state.table + WORD * index
        if source != OWN:
            move(state.bases[first + plan.n_inputs + i], here, bytes_of(state, results, i))


def placed(context: CONTEXT, plan: PLAN, state: STATE, inputs, outputs, lengths):
    """Put addresses where the walk finds them; what is wrong with the arrays."""
    model: MODEL = base()
    results: RESULT = base() + plan.results_at
    bases, first = state.bases, len(BASE)
    numbers = base() + plan.inputs_at
    absent = missing(inputs, model.n_inputs)
    if absent >= 0 or outputs == 0 or lengths == 0:
        return failed(context, ARRAY, model.no_array_at, greatest(absent, 0), 0)
    for i in range(plan.n_inputs):
        bases[first + i] = inputs[numbers[i]]
    ours = base() + plan.outputs_at
    for k in range(model.n_outputs):
        needs = bytes_of(state, results, ours[k])
        if outputs[k] == 0 and needs > 0:
            return failed(context, ARRAY, model.no_array_at, k, 0)
        if lengths[k] < needs:
            return failed(context, ARRAY, model.too_short_at, needs, lengths[k])
        bases[first + plan.n_inputs + ours[k]] = outputs[k]
    return OK


def repeated(plan: PLAN, state: STATE, outputs):
    """Copy a result that is several outputs."""
    model: MODEL = base()
    results: RESULT = base() + plan.results_at
    ours = base() + plan.outputs_at
    for k in range(model.n_outputs):
        there = state.bases[len(BASE) + plan.n_inputs + ours[k]]
        if there != outputs[k]:
            move(outputs[k], there, bytes_of(state, results, ours[k]))


# --- what C calls --------------------------------------------------------------------------------


def opened(place):
    """A context."""
    model: MODEL = base()
    if place == 0:
        return ARRAY
    words = len(CONTEXT) + model.n_symbols + model.n_plans
    at = allocated(WORD * words + MESSAGE)
    place[0] = at
    if at == 0:
        return MEMORY
    context: CONTEXT = at
    context.sizes = at + WORD * len(CONTEXT)
    context.states = context.sizes + WORD * model.n_symbols
    context.message = at + WORD * words
    return OK


def closed(context: CONTEXT):
    """Give everything back."""
    model: MODEL = base()
    if context != 0:
        for i in range(model.n_plans):
            released(context.states[i])
        released(context.arena)
        released(context)


def error(context: CONTEXT):
    """The text of the last error."""
    return context.message if context != 0 else 0


def inputs():
    """How many there are."""
    model: MODEL = base()
    return model.n_inputs


def outputs():
    """How many there are."""
    model: MODEL = base()
    return model.n_outputs


def text_of(places, count, i):
    """A text, by its number; 0 if there is none."""
    return base() + places[i] if i >= 0 and i < count else 0


def input_text(i):
    """What an input is."""
    model: MODEL = base()
    return text_of(base() + model.inputs_at, model.n_inputs, i)


def output_text(i):
    """What an output is."""
    model: MODEL = base()
    return text_of(base() + model.outputs_at, model.n_outputs, i)


def chosen_plan(context: CONTEXT, shapes):
    """Note the plan that runs at some shapes, and its state, filled; what is wrong with them."""
    model: MODEL = base()
    if context == 0:
        return ARRAY
    wrong = bound(context, shapes)
    if wrong != OK:
        return wrong
    leaves: LEAF = base() + model.leaves_at
    leaf = leaf_of(context)
    number = leaves[leaf].plan
    if number < 0:
        return failed(context, SHAPE, leaves[leaf].text_at, 0, 0)
    plans = base() + model.plans_at
    context.plan = base() + plans[number]
    wrong = prepared(context, context.plan, number)
    context.state = context.states[number]
    return wrong


def shape(context: CONTEXT, shapes, results_shapes):
    """Write the shapes of results."""
    model: MODEL = base()
    wrong = chosen_plan(context, shapes)
    if wrong != OK:
        return wrong
    if results_shapes == 0:
        return failed(context, ARRAY, model.no_shape_at, 0, 0)
    plan: PLAN = context.plan
    state: STATE = context.state
    results: RESULT = base() + plan.results_at
    ours = base() + plan.outputs_at
    for k in range(model.n_outputs):
        there, registers = results_shapes[k], base() + results[ours[k]].shape_at
        if there != 0:
            for axis in range(results[ours[k]].rank):
                there[axis] = state.registers[registers[axis]]
    return OK


def run(context: CONTEXT, inputs, shapes, outputs, lengths):
    """Compute the results."""
    model: MODEL = base()
    wrong = chosen_plan(context, shapes)
    if wrong != OK:
        return wrong
    plan: PLAN = context.plan
    state: STATE = context.state
    fill: FILL = state.fill
    wrong = placed(context, plan, state, inputs, outputs, lengths)
    if wrong != OK:
        return wrong
    if roomy(context, fill.arena_bytes) == 0:
        return failed(context, MEMORY, model.no_memory_at, fill.arena_bytes, 0)
    walk: WALK = state.walk
    state.bases[BASE.arena] = context.arena
    walk.first = plan.fixed if state.pointed == context.arena and context.arena != 0 else 0
    call_address(core(CORE.walk), state.walk)
    state.pointed = context.arena
    if walk.wrong != 0:
        texts = base() + plan.reports_text_at
        return failed(context, SHAPE, texts[walk.wrong - 1], walk.wrong_index, walk.extent)
    copied(plan, state)
    repeated(plan, state, outputs)
    return OK
