"""The table of all templates, in the order in which they are asked.

A template is a value in a module of its family's folder. Vector code comes before loops; families
and modules come in the order of their names.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from bucketize.kernel.template import Template
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Target

KERNEL = "bucketize.kernel"
OTHERS = ("emit", "loops")  # the writers, and what is asked last


def _declared(family: str) -> Iterator[Template]:
    package = import_module(f"{KERNEL}.{family}")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        values = vars(import_module(module.name)).values()
        yield from (v for v in values if isinstance(v, Template))


_folders = [m.name for m in iter_modules(import_module(KERNEL).__path__) if m.ispkg]
VECTOR = tuple(t for f in _folders if f not in OTHERS for t in _declared(f))
LOOP = tuple(_declared("loops"))
TEMPLATES = {t.name: t for t in (*VECTOR, *LOOP)}
"""By name, in order of preference: the first that accepts a workload is its default."""


def candidates(workload: Workload, target: Target | None = None) -> list[Template]:
    """All templates that can compute the workload, on a target or on some, the default one first.

    Where a target has the instruction that one is made for, loops never paid. Where it sums in one
    order one is left: templates differ in their sums.
    """
    able = [t for t in TEMPLATES.values() if t.accepts(workload)]
    if target is None:
        return able
    dots = [t for t in able if t.dot in target.processor.dots]
    able = dots or [t for t in able if not t.dot]
    if target.in_order:
        minimal = [t for t in able if t.minimal and all(t.knobs(workload, target).values())]
        return (minimal or able)[:1]
    return able
