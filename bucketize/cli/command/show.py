"""`bucketize show`: a module before and after, its decisions, its clones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import dispatched_at, hints, load_model
from bucketize.errors import RaggedError, ShapeError, TypeRelError, unknown_name
from bucketize.table import json_text, pairs

if TYPE_CHECKING:
    from bucketize.ir import Function, Module
    from bucketize.transform.stayed import Stayed

NOTHING = "every operator is static, every extent has a name or a size"
SECTIONS = ("before", "decisions", "clones", "after", "arrangements")
OF_CLONES = ("decisions", "clones")  # empty where there are none
OF_ONE = {"after", "arrangements"}
FORMS = ("ir", "asm", "source")
NOT_AFTER = dict.fromkeys(
    ("sections", "explain_dynamic", "explain_ragged", "as_json"), "prints something else"
)
NOT_KERNEL = NOT_AFTER | {"wanted": "prints something else"}
NOT_EXPLAINED = dict.fromkeys(
    ("dispatcher", "policy", "fallback", "limit", "points", "function", "sections"),
    "is of what is dispatched",
)
NOT_DYNAMIC = NOT_EXPLAINED | {"explain_ragged": "prints something else"}
OF_KERNEL = dict.fromkeys(("form", "log"), "is for the code of a kernel")


@click.command(short_help="Print MODEL before and after dispatch, decisions, clones.")
@parameter.model_options
@parameter.dispatch_options
@parameter.oracle_at_option
@click.option(
    "--section",
    "sections",
    type=click.Choice(SECTIONS),
    multiple=True,
    help="Print only this; may be repeated.",
)
@click.option(
    "--explain-dynamic",
    is_flag=True,
    help="Print only what a run alone can tell: op, node, operand, why, and the axes.",
)
@click.option(
    "--explain-ragged",
    is_flag=True,
    help="Print only whether --ragged takes MODEL, or which operator, of which node, forbids it.",
)
@click.option(
    "--mask",
    metavar="INPUT",
    help="With --explain-ragged: what hides tokens, if not the one input that is called a mask.",
)
@click.option(
    "--after",
    "wanted",
    metavar="PASS",
    help="Print only a function after this pass, of dynamic_to_static, ..., fuse.",
)
@click.option(
    "--kernel",
    metavar="NAME",
    help="Print only the code of a kernel, by a name of `run --explain` or `profile`.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    help="With --kernel: LLVM IR (the default), assembly, or the source that writes the IR.",
)
@parameter.log_option
@click.option("--function", help="The one shown after; default: the first clone, or main.")
@parameter.json_option
def show(
    model: str,
    bounds: list[parameter.Bound],
    function: str | None,
    wanted: str | None,
    kernel: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the IR of MODEL before, the decisions and clones of dispatch, and a clone after.

    "After" is what the kernels are made of: types under the bucket's bounds, constants folded,
    channels last, elementwise ops fused. "Arrangements" are the ways that may be best, of which
    tuning may choose another than the usual one: "planar" convolutions stay in NCHW, ops "apart"
    begin a kernel of their own.

    \b
    Examples:
      bucketize show zoo:mlp
      bucketize show zoo:bert-mini -d log --section decisions
      bucketize show zoo:mlp -d log --section after --function "main[N=4..7]"
      bucketize show zoo:mlp --after layout
      bucketize show zoo:mlp --kernel "/layers.0/Gemm +1" --as asm
      bucketize show model.onnx --explain-dynamic
      bucketize show encoder.onnx --explain-ragged
    """
    check_alone(kernel, wanted, options)
    loaded = load_model(model, bounds)
    if options["explain_dynamic"] or options["explain_ragged"]:
        facts, text = explanation(loaded.module, options)
        echo(json_text(facts, indent=2) if as_json else text)
        return
    after = dispatched_at(loaded, options)
    if as_json:
        echo(json_text(summary(after), indent=2))
        return
    shown = function or next((name for name in after.functions if name != "main"), "main")
    if kernel is not None:
        print_kernel(after, shown, kernel, options)
        return
    if wanted is not None:
        print_after(after, shown, wanted)
        return
    usual = [s for s in SECTIONS if after.clones or s not in OF_CLONES]
    sections = options["sections"] or usual
    texts = [
        "\n".join([f"# {section}", *lines(section, loaded.module, after, shown)])
        for section in sections
    ]
    left = others(after) if function is None and OF_ONE.intersection(sections) else []
    echo("\n\n".join([*texts, *left]))


def check_alone(kernel: str | None, wanted: str | None, options: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for options that do not go with what prints one thing, or without."""
    if kernel is not None:
        parameter.refuse("--kernel prints nothing else", NOT_KERNEL)
    else:
        parameter.refuse("there is no --kernel", OF_KERNEL)
    if wanted is not None:
        parameter.refuse("--after prints nothing else", NOT_AFTER)
    if options["explain_dynamic"]:
        parameter.refuse("--explain-dynamic is of MODEL as it is", NOT_DYNAMIC)
    if options["explain_ragged"]:
        parameter.refuse("--explain-ragged is of MODEL as it is", NOT_EXPLAINED)
    elif options["mask"] is not None:
        raise click.UsageError("--mask is for --explain-ragged, which is not given")


def others(mod: Module) -> list[str]:
    """The line of which of several clones is the one that is shown."""
    names = clones(mod)
    if len(names) < 2:
        return []
    return [f"{names[0]} is 1 of {len(names):,} clones; --function NAME shows another"]


def explanation(mod: Module, options: Mapping[str, Any]) -> tuple[Any, str]:
    """What --explain-dynamic or --explain-ragged says of a module: for scripts, and to read."""
    if options["explain_ragged"]:
        is_ragged, why = packable(mod, options["mask"])
        return {"ragged": is_ragged, "because": why}, f"{'' if is_ragged else 'not '}ragged: {why}"
    stayed = explained(mod)
    facts = [s._asdict() for s in stayed]
    return facts, "\n".join([*map(str, stayed), *hints(mod.main)]) or NOTHING


def explained(mod: Module) -> list[Stayed]:
    """What stays dynamic in `main` once all is static that can be."""
    from bucketize.transform.simplify import simplify
    from bucketize.transform.stayed import stayed_dynamic

    return list(stayed_dynamic(simplify(mod.main)))


def packable(mod: Module, mask: str | None) -> tuple[bool, str]:
    """Whether rows of unequal lengths can be packed, and as what, or what forbids it."""
    from bucketize.ragged.name import ragged_name
    from bucketize.ragged.ragged import packed_of, ragged

    try:
        packed = (
            packed_of(mod) if mask is None else ragged(mod, mask=mask).function(ragged_name("main"))
        )
    except RaggedError as e:
        return False, str(e)
    return True, repr(packed)


def lines(section: str, mod: Module, after: Module, function: str) -> Iterator[str]:
    """The text of one section."""
    from bucketize.ir import tree_lines
    from bucketize.text import show as text

    if section == "before":
        yield text(mod.main)
    elif section == "decisions":
        yield from tree_lines(after.main, abridged=True)
        if whole := left_whole(after):
            yield f"left whole: {', '.join(whole)}"
    elif section == "clones":
        yield from abridged(clones(after))
    elif section == "after":
        yield text(lowered(after, function))
    else:
        yield from arranged(after, function)


def arranged(mod: Module, name: str) -> Iterator[str]:
    """The arrangements of a clone's kernels, the best first, priced in the middle of its bucket."""
    from bucketize.kernel.typical import between
    from bucketize.lower.alternative import arrangements

    symbols = mod.function(name).symbols().values()
    sizes = {s.name: s.rounded(between(s.lo, s.hi, 0.5)) for s in symbols}
    ranked = arrangements(mod, name, sizes)
    best = ranked[0].price or 1.0
    yield f"{name} at {pairs(sizes)}, as predicted:" if sizes else f"{name}:"
    for each in ranked:
        more = 100 * (each.price / best - 1) if each.price else 0.0
        yield f"  {more:+7.1f} %  {each.arrangement}"


def lowered(mod: Module, name: str) -> Function:
    """The function that kernels are made of; a clone that is not legal as one that says why."""
    from bucketize.ir import refusing
    from bucketize.lower.pipeline import lower
    from bucketize.machine.host import host

    try:
        return lower(mod.function(name), target=host())
    except (TypeRelError, ShapeError) as e:
        refused = refusing(mod, name, e)
        if refused is None:
            raise
        return refused


def print_after(mod: Module, name: str, wanted: str) -> None:
    """Print a function each time that a pass has run, as far as nothing refuses it."""
    from bucketize.lower.pipeline import lower
    from bucketize.machine.host import host
    from bucketize.text import show as text

    seen: list[str] = []

    def observe(ran: str, fn: Function) -> None:
        seen.append(ran)
        if ran == wanted:
            echo(f"# after {ran}, run {seen.count(ran)}\n{text(fn)}\n")

    lower(mod.function(name), observe=observe, target=host())
    if wanted not in seen:
        raise unknown_name("pass", wanted, set(seen))


def print_kernel(mod: Module, name: str, kernel: str, options: Mapping[str, Any]) -> None:
    """Print the code of a kernel of a function, of this machine."""
    from bucketize.compiler import logged
    from bucketize.inspect.calibrate import calibrated
    from bucketize.inspect.code import CodeForm, kernel_texts
    from bucketize.program.configuration import defaults
    from bucketize.program.decide import decide

    log, form = options["log"], CodeForm(options["form"] or FORMS[0])
    configurations = defaults if log is None else logged(mod, log, 1)
    program = decide(mod, configurations, target=calibrated(), threads=1, executor="auto")
    for text in kernel_texts(program, name, kernel, form):
        echo(text)


def clones(mod: Module) -> list[str]:
    """The names of the functions that `main` decides between."""
    return [name for name in mod.functions if name != "main"]


def abridged(names: list[str]) -> list[str]:
    """The first and last of very many names, and how many are between them."""
    from bucketize.ir.tree import ENDS, MOST

    if len(names) <= MOST:
        return names
    return [*names[:ENDS], f"... (clones left out: {len(names) - 2 * ENDS:,})", *names[-ENDS:]]


def left_whole(mod: Module) -> list[str]:
    """The symbols that no clone has an interval of, if there are clones."""
    from bucketize.dispatch.limit import undecided

    return [s.name for s in undecided(mod)] if mod.clones else []


def summary(mod: Module) -> dict[str, object]:
    """What a script may ask of a dispatched module."""
    from bucketize.ir import tree_lines

    return {
        "inputs": {p.name: str(p.type) for p in mod.main.params},
        "outputs": [str(r.type) for r in mod.main.results],
        "symbols": {name: list(s.bounds) for name, s in mod.main.symbols().items()},
        "whole": left_whole(mod),
        "clones": clones(mod),
        "decisions": list(tree_lines(mod.main)),
    }
