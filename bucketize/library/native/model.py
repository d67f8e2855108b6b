"""A model's functions: what callers of C have."""

from bucketize.kernel.emit.word import allocated, base, released
from bucketize.library.block import ARRAY, CONTEXT, HELD, MEMORY, MESSAGE, MODEL, OK, SLOT, UNKNOWN
from bucketize.library.native.state import failed
from bucketize.library.native.step import bytes_of, dims_of, reshaped, stepped
from bucketize.link.block import WORD


def opened(place):
    """A context."""
    model: MODEL = base()
    if place == 0:
        return ARRAY
    rows = len(HELD) * model.n_slots
    words = len(CONTEXT) + model.n_sizes + rows + model.n_dims + model.n_plans
    at = allocated(WORD * words + MESSAGE)
    place[0] = at
    if at == 0:
        return MEMORY
    context: CONTEXT = at
    context.sizes = at + WORD * len(CONTEXT)
    context.held = context.sizes + WORD * model.n_sizes
    context.dims = context.held + WORD * rows
    context.states = context.dims + WORD * model.n_dims
    context.message = at + WORD * words
    context.sizes[UNKNOWN] = -1
    hold_constants(context)
    return OK


def hold_constants(context: CONTEXT):
    """Note where constants are, once for all calls."""
    model: MODEL = base()
    slots: SLOT = base() + model.slots_at
    tensors: HELD = context.held
    for i in range(model.n_slots):
        if slots[i].constant != 0:
            tensors[i].at = base() + slots[i].constant
            reshaped(context, i, base() + slots[i].shape)


def closed(context: CONTEXT):
    """Give everything back."""
    model: MODEL = base()
    if context != 0:
        tensors: HELD = context.held
        for i in range(model.n_plans):
            released(context.states[i])
        for i in range(model.n_slots):
            released(tensors[i].memory)
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


def entered(context: CONTEXT, shapes):
    """Begin a call, with inputs of some shapes; what is wrong."""
    model: MODEL = base()
    context.done = 0
    if shapes == 0:
        return failed(context, ARRAY, model.no_shape_at, 0, 0)
    for i in range(model.n_inputs):
        if shapes[i] == 0:
            return failed(context, ARRAY, model.no_shape_at, i, 0)
        reshaped(context, i, shapes[i])
    return OK


def arranged(context: CONTEXT, inputs, outputs, lengths):
    """Note the arrays of a call; what is wrong. One of no bytes need not be there."""
    model: MODEL = base()
    tensors: HELD = context.held
    if inputs == 0 or outputs == 0 or lengths == 0:
        return failed(context, ARRAY, model.no_array_at, 0, 0)
    for i in range(model.n_inputs):
        if inputs[i] == 0 and bytes_of(context, i) != 0:
            return failed(context, ARRAY, model.no_array_at, i, 0)
        tensors[i].at = inputs[i]
    context.outputs, context.lengths = outputs, lengths
    return OK


def foreseen(context: CONTEXT, shapes):
    """Tell the shapes of outputs by those of inputs; what is wrong."""
    model: MODEL = base()
    wrong = entered(context, shapes)
    return stepped(context, model.shapes) if wrong == OK else wrong


def shape(context: CONTEXT, shapes, results):
    """Write the shapes of results; without those of inputs, as the last run had them."""
    model: MODEL = base()
    if context == 0:
        return ARRAY
    if results == 0 or (shapes == 0 and context.done == 0):
        return failed(context, ARRAY, model.no_shape_at, 0, 0)
    wrong = foreseen(context, shapes) if shapes != 0 else OK
    if wrong != OK:
        return wrong
    slots: SLOT = base() + model.slots_at
    for k in range(model.n_outputs):
        there, slot = results[k], model.n_inputs + k
        dims = dims_of(context, slot)
        if there != 0:
            for axis in range(slots[slot].rank):
                there[axis] = dims[axis]
    return OK


def run(context: CONTEXT, inputs, shapes, outputs, lengths):
    """Compute the results."""
    if context == 0:
        return ARRAY
    wrong = entered(context, shapes)
    if wrong == OK:
        wrong = arranged(context, inputs, outputs, lengths)
    if wrong == OK:
        wrong = stepped(context, 0)
    context.done = 1 if wrong == OK else 0
    return wrong


def result(context: CONTEXT, k):
    """Where the last run left an output; 0 if nowhere."""
    model: MODEL = base()
    if context == 0:
        return 0
    tensors: HELD = context.held
    there = context.done != 0 and k >= 0 and k < model.n_outputs
    return tensors[model.n_inputs + k].at if there else 0
