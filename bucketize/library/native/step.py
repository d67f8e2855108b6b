"""The steps of a library, one after the other: what `library.flow` made of a program.

A function for each of `KIND`, of a context and the step, which answers what is wrong.
"""

from bucketize.kernel.emit.integer import chosen
from bucketize.kernel.emit.word import aligned, base, call_address, move, released
from bucketize.library.block import (
    ARRAY,
    CONTEXT,
    CORE,
    DIM,
    HELD,
    MEMORY,
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
    SLOT,
    STATE,
    STEP,
)
from bucketize.library.native.state import core, failed, plan_of, prepared, roomy
from bucketize.link.block import BASE, FILL, WALK, WORD
from bucketize.machine.target import LINE
from bucketize.types import HUGE, MOST_EXTENT

DOES = (
    "ended(context)",
    *(
        f"{name}(context, step)"
        for name in (
            *("bound", "sized", "shaped", "ran", "sizes_read", "decided", "tested", "compared"),
            *("jumped", "refused", "copied", "swapped", "begun", "counted", "appended"),
        )
    ),
)


def stepped(context: CONTEXT, first):
    """Take the steps from one on; what is wrong."""
    model: MODEL = base()
    context.at = first
    wrong = OK
    while context.at >= 0 and wrong == OK:
        step: STEP = base() + model.steps_at + WORD * len(STEP) * context.at
        context.at += 1
        wrong = chosen(step.kind, DOES, context, step)
    return wrong


def ended(context: CONTEXT):
    """All is done."""
    context.at = -1
    return OK


# --- tensors -------------------------------------------------------------------------------------


def dims_of(context: CONTEXT, slot):
    """Where the shape of a slot's tensor is."""
    model: MODEL = base()
    slots: SLOT = base() + model.slots_at
    return context.dims + WORD * slots[slot].dims


def bytes_of(context: CONTEXT, slot):
    """The bytes of a slot's tensor; -1 if no memory could hold it."""
    model: MODEL = base()
    slots: SLOT = base() + model.slots_at
    dims, size = dims_of(context, slot), slots[slot].itemsize
    for axis in range(slots[slot].rank):
        if float(size) * float(dims[axis]) > HUGE:
            return -1
        size = size * dims[axis]
    return size


def reshaped(context: CONTEXT, slot, shape):
    """Give a slot's tensor the shape that is at an address."""
    model: MODEL = base()
    slots: SLOT = base() + model.slots_at
    move(dims_of(context, slot), shape, WORD * slots[slot].rank)


def grown(context: CONTEXT, slot, size, kept):
    """Have memory for a slot's tensor, and keep its first bytes; what is wrong."""
    model: MODEL = base()
    tensors: HELD = context.held + WORD * len(HELD) * slot
    if tensors.room < size:
        room = (size + LINE - 1) // LINE * LINE
        memory = aligned(LINE, room)
        if memory == 0:
            return failed(context, MEMORY, model.no_memory_at, size, 0)
        move(memory, tensors.memory, kept)
        released(tensors.memory)
        tensors.memory, tensors.room = memory, room
    tensors.at = tensors.memory
    return OK


def given(context: CONTEXT, slot):
    """Have a place for a slot's tensor of its shape: where the caller wants an output; or wrong."""
    model: MODEL = base()
    tensors: HELD = context.held + WORD * len(HELD) * slot
    size, k = bytes_of(context, slot), slot - model.n_inputs
    if size < 0:
        return failed(context, SHAPE, model.too_large_at, 0, 0)
    if k >= 0 and k < model.n_outputs:
        outputs, lengths = context.outputs, context.lengths
        if outputs[k] != 0:
            tensors.at = outputs[k]
            if lengths[k] < size:
                return failed(context, ARRAY, model.too_short_at, size, lengths[k])
            return OK
    return grown(context, slot, size, 0)


def copied(context: CONTEXT, step: STEP):
    """Copy a tensor."""
    tensors: HELD = context.held
    reshaped(context, step.b, dims_of(context, step.a))
    wrong = given(context, step.b)
    if wrong == OK:
        move(tensors[step.b].at, tensors[step.a].at, bytes_of(context, step.b))
    return wrong


def swapped(context: CONTEXT, step: STEP):
    """Move a tensor, whose slot gets the memory of the other: nobody reads it before it is new."""
    one: HELD = context.held + WORD * len(HELD) * step.a
    other: HELD = context.held + WORD * len(HELD) * step.b
    reshaped(context, step.b, dims_of(context, step.a))
    one.memory, other.memory = other.memory, one.memory
    one.room, other.room = other.room, one.room
    one.at, other.at = one.memory, other.memory
    return OK


# --- sizes ---------------------------------------------------------------------------------------


def bound(context: CONTEXT, step: STEP):
    """Hold the axes of tensors against rows of `DIM`; note the sizes that they tell."""
    rows: DIM = base() + step.a
    sizes = context.sizes
    for i in range(step.b):
        shape = dims_of(context, rows[i].slot)
        size, wanted = shape[rows[i].axis], rows[i].least
        if rows[i].size >= 0:
            if rows[i].first != 0:
                sizes[rows[i].size] = size
            wanted = sizes[rows[i].size]
        if size != wanted:
            return failed(context, SHAPE, rows[i].text_at, wanted, size)
        if size < rows[i].least or size > rows[i].most or size % rows[i].step != 0:
            return failed(context, SHAPE, rows[i].range_at, size, 0)
    return OK


def sized(context: CONTEXT, step: STEP):
    """Compute dims, the shape of a plan's result, into sizes from one on."""
    plan: PLAN = plan_of(step.a)
    wrong = prepared(context, step.a, base() + step.c)
    state: STATE = context.states[step.a]
    results: RESULT = base() + plan.results_at
    registers, sizes = base() + results[0].shape_at, context.sizes + WORD * step.b
    if wrong == OK:
        for i in range(results[0].rank):
            sizes[i] = state.registers[registers[i]]
    return wrong


def shaped(context: CONTEXT, step: STEP):
    """Give a tensor the shape that sizes from one on tell."""
    reshaped(context, step.a, context.sizes + WORD * step.b)
    return OK


def sizes_read(context: CONTEXT, step: STEP):
    """Learn sizes from the elements of a tensor; with a text for it, none that is no extent."""
    tensors: HELD = context.held + WORD * len(HELD) * step.a
    numbers, elements, sizes = base() + step.b, tensors.at, context.sizes
    for i in range(step.c):
        if step.d != 0 and (elements[i] < 0 or elements[i] >= MOST_EXTENT):
            return failed(context, SHAPE, step.d, elements[i], 0)
        sizes[numbers[i]] = elements[i]
    return OK


# --- where to go on ------------------------------------------------------------------------------


def decided(context: CONTEXT, step: STEP):
    """Go where the sizes lead to."""
    nodes, targets, sizes = base() + step.a, base() + step.b, context.sizes
    at = 0
    while at >= 0:
        node: NODE = nodes + WORD * at
        at = node.below if sizes[node.size] < node.bound else node.other
    context.at = targets[-1 - at]
    return OK


def tested(context: CONTEXT, step: STEP):
    """Go somewhere else if the element of a tensor is 0."""
    model: MODEL = base()
    slots: SLOT = base() + model.slots_at
    tensors: HELD = context.held + WORD * len(HELD) * step.a
    context.word = 0
    move(context + WORD * CONTEXT.word, tensors.at, slots[step.a].itemsize)
    if context.word == 0:
        context.at = step.b
    return OK


def compared(context: CONTEXT, step: STEP):
    """Go somewhere else unless a number is less than another."""
    tensors: HELD = context.held
    a, b = tensors[step.a].at, tensors[step.b].at
    if a[0] >= b[0]:
        context.at = step.c
    return OK


def jumped(context: CONTEXT, step: STEP):
    """Go somewhere else."""
    context.at = step.a
    return OK


def refused(context: CONTEXT, step: STEP):
    """End with an error."""
    return failed(context, SHAPE, step.a, 0, 0)


# --- rounds --------------------------------------------------------------------------------------


def begun(context: CONTEXT, step: STEP):
    """The number of the round is 0."""
    tensors: HELD = context.held + WORD * len(HELD) * step.a
    wrong = grown(context, step.a, WORD, 0)
    number = tensors.at
    if wrong == OK:
        number[0] = 0
    return wrong


def counted(context: CONTEXT, step: STEP):
    """Go to the next round."""
    tensors: HELD = context.held + WORD * len(HELD) * step.a
    number = tensors.at
    number[0] += 1
    context.at = step.b
    return OK


def appended(context: CONTEXT, step: STEP):
    """Add a row to those of the rounds before; what is wrong with its shape."""
    model: MODEL = base()
    slots: SLOT = base() + model.slots_at
    tensors: HELD = context.held
    row, rows, number = dims_of(context, step.a), dims_of(context, step.b), tensors[step.c].at
    if number[0] == 0:
        move(rows + WORD, row, WORD * slots[step.a].rank)
    for axis in range(slots[step.a].rank):
        if rows[axis + 1] != row[axis]:
            return failed(context, SHAPE, step.d, rows[axis + 1], row[axis])
    rows[0] = number[0] + 1
    size, kept = bytes_of(context, step.b), number[0] * bytes_of(context, step.a)
    if size < 0:
        return failed(context, SHAPE, model.too_large_at, 0, 0)
    wrong = grown(context, step.b, size if size <= tensors[step.b].room else 2 * size, kept)
    if wrong == OK:
        move(tensors[step.b].at + kept, tensors[step.a].at, size - kept)
    return wrong


# --- segments ------------------------------------------------------------------------------------


def ran(context: CONTEXT, step: STEP):
    """Run a segment; what is wrong with sizes, places or indices."""
    model: MODEL = base()
    plan: PLAN = plan_of(step.a)
    wrong = prepared(context, step.a, base() + step.d)
    if wrong == OK:
        wrong = placed(context, step)
    if wrong != OK:
        return wrong
    state: STATE = context.states[step.a]
    fill: FILL = state.fill
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
    made_up(context, step)
    return OK


def placed(context: CONTEXT, step: STEP):
    """Put addresses where the walk finds them; what is wrong with the places of results."""
    plan: PLAN = plan_of(step.a)
    state: STATE = context.states[step.a]
    tensors: HELD = context.held
    results: RESULT = base() + plan.results_at
    first, args, outs = len(BASE), base() + step.b, base() + step.c
    for i in range(plan.n_inputs):
        state.bases[first + i] = tensors[args[i]].at
    for i in range(plan.n_results):
        dims, registers = dims_of(context, outs[i]), base() + results[i].shape_at
        for axis in range(results[i].rank):
            dims[axis] = state.registers[registers[axis]]
        wrong = given(context, outs[i])
        if wrong != OK:
            return wrong
        state.bases[first + plan.n_inputs + i] = tensors[outs[i]].at
    return OK


def made_up(context: CONTEXT, step: STEP):
    """Write the results that no kernel writes."""
    plan: PLAN = plan_of(step.a)
    state: STATE = context.states[step.a]
    results: RESULT = base() + plan.results_at
    first, outs = len(BASE), base() + step.c
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
            move(state.bases[first + plan.n_inputs + i], here, bytes_of(context, outs[i]))
