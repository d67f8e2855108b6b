"""The header of a library: what C calls, with names, dtypes, symbols and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

from bucketize.ir import Atom
from bucketize.program.program import Program
from bucketize.release import release
from bucketize.types import Symbol

C_TYPES: Mapping[str, str] = {
    "bool": "bool (1 byte)",
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

HEADER = Template("""\
/* $name: a model that bucketize $release compiled for $processor.

   Inputs:
$inputs
   Outputs:
$outputs
   Symbols:
$symbols
   All arrays are contiguous, in the order of C.
*/
#ifndef BUCKETIZE_${guard}_H
#define BUCKETIZE_${guard}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions answer. */
enum {
    BUCKETIZE_${guard}_OK = 0,
    BUCKETIZE_${guard}_SHAPE = 1, /* sizes that the model is not legal at, an index out of range */
    BUCKETIZE_${guard}_MEMORY = 2,
    BUCKETIZE_${guard}_ARRAY = 3, /* an array or a shape is missing, or an output is too short */
};

/* What calls need of their own: one call at a time, so one for each thread. */
typedef struct $prefix $prefix;

int64_t ${prefix}_open($prefix **context);
void ${prefix}_close($prefix *context);

/* What was wrong with the last call of a context that failed. */
const char *${prefix}_error(const $prefix *context);

/* How many there are, and of each what it is, as "name: dtype[shape]"; NULL beyond the last. */
int64_t ${prefix}_inputs(void);
int64_t ${prefix}_outputs(void);
const char *${prefix}_input(int64_t number);
const char *${prefix}_output(int64_t number);

/* Write the shapes of the outputs for inputs of some shapes; one that is NULL is left out. What
   only values tell is -1. Without shapes (NULL): those that the outputs of the last run have. */
int64_t ${prefix}_shape($prefix *context, const int64_t *const *shapes, int64_t *const *results);

/* Compute the outputs: into arrays of at least as many bytes as they need, of so many each. An
   output whose array is NULL stays in the context, until its next call. */
int64_t ${prefix}_run($prefix *context, const void *const *inputs, const int64_t *const *shapes,
${spaces}void *const *outputs, const int64_t *output_bytes);

/* Where the last run left an output, by its number; NULL if it failed, or there is none. */
const void *${prefix}_result(const $prefix *context, int64_t number);

#ifdef __cplusplus
}
#endif
#endif
""")


def header(name: str, prefix: str, program: Program) -> str:
    """The text of the header of a library, whose functions have this prefix."""
    main = program.routines["main"]
    params = main.params
    outputs = zip(program.outputs, main.code.results, strict=True)
    symbols = {s.name: s for p in params for s in p.type.symbols()}
    return HEADER.substitute(
        name=name,
        prefix=prefix,
        guard=prefix.removeprefix("bucketize_").upper(),
        release=release(),
        processor=program.target.name,
        inputs="\n".join(_line(i, p.name, p) for i, p in enumerate(params)),
        outputs="\n".join(_line(i, n, a) for i, (n, a) in enumerate(outputs)),
        symbols="\n".join(map(_bounds, symbols.values())) or "     none",
        spaces=" " * len(f"int64_t {prefix}_run("),
    )


def _line(number: int, name: str, atom: Atom) -> str:
    type_ = atom.type
    of = C_TYPES.get(type_.dtype.name, f"{type_.dtype.itemsize} bytes each")
    return f"     {number}  {name}: {type_}, {of}".replace("*/", "* /").replace("/*", "/ *")


def _bounds(symbol: Symbol) -> str:
    most = "no greatest" if symbol.hi is None else f"at most {symbol.hi}"
    multiple = f", a multiple of {symbol.step}" if symbol.step > 1 else ""
    return f"     {symbol.name}: at least {symbol.lo}, {most}{multiple}"
