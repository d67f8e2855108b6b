"""Families: what clones decide alone, and all at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import bucketize
from bucketize import zoo
from bucketize.ir import Module
from bucketize.machine.host import host
from bucketize.program import sharing
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.program.program import Program
from dispatchers import log_dispatcher

BOUNDS = {"N": (1, 64), "H": (60, 128), "W": (60, 128)}


@pytest.fixture(scope="module")
def mod() -> Module:
    model = bucketize.from_onnx(zoo.build("resnet18"), bounds=BOUNDS)
    return bucketize.dispatch(model, log_dispatcher)


def decided(mod: Module, *, together: bool) -> Program:
    """The program of all clones."""
    options = {"target": host(), "threads": 1, "executor": "auto"}
    program = decide(mod, defaults, together=together, **options)
    for name in mod.functions:
        program.decide(name)
    return program


def test_what_is_judged_together_is_what_each_clone_chooses_alone(
    mod: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes: list[int] = []

    def counted(judge: Callable[..., object]) -> Callable[..., object]:
        def judged(*args: object) -> object:
            boxes.append(len(args[3]))  # type: ignore[arg-type]
            return judge(*args)

        return judged

    monkeypatch.setattr(sharing, "selects_of", counted(sharing.selects_of))
    together = decided(mod, together=True)
    assert set(boxes) - {1}
    judged_together = len(boxes)
    boxes.clear()
    assert str(decided(mod, together=False)) == str(together)
    assert set(boxes) == {1}
    assert 8 * judged_together < len(boxes)
    chosen = {str(c.implementation) for r in together.routines.made().values() for c in r.calls()}
    assert len({one for one in chosen if one.startswith("winograd")}) > 1
