"""All templates, in the order in which they are asked; importing this fills `TEMPLATES`.

A template is a value in a module of its family's folder. Vector code comes before loops; families
and modules come in the order of their names.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from bucketize.kernel.template import TEMPLATES, Template, candidates

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
TEMPLATES.update({t.name: t for t in (*VECTOR, *LOOP)})

__all__ = ["TEMPLATES", "candidates"]
