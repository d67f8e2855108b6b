"""A plugin for the tuner: a template for `relu` with a knob for what is wrong with the kernel."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from llvmlite.ir import Value

from bucketize.kernel.emit.vector import FLOAT, Writer
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Template, everywhere
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.workload import Workload
from bucketize.measure.process import Child, Event

LOOPS = ("none", "wrong", "unfinished", "rim", "crash", "hang", "broken", "tires", "stalls")
"""The last two not in their first run, which finds no result yet: while they are timed."""
IMPORTS = {
    "die": "import os; os.abort()",
    "endless": "import time; time.sleep(1000)",
    "chatter": "print('{}')",
}
REFUSES = "refuses"


def source(_: Workload, schedule: Schedule, *_args: Any) -> str:
    fault = str(schedule["fault"])
    if fault == REFUSES:
        raise ArithmeticError("no text for this")
    return f"""\
from faulty import emit
from bucketize.kernel.emit.module import vector_kernel
{IMPORTS.get(fault, "")}

kernel = vector_kernel(__name__, emit, {{"lanes": 1, "fault": {fault!r}}})
"""


def emit(w: Writer, block: Value, fault: str) -> None:
    """`relu`, but for the fault; without numba, whose import would take each process longest."""
    b, out, x = w.builder, w.load_pointer(block, 0), w.load_pointer(block, 1)
    begin, end = w.load_word(block, 3), w.load_word(block, 4)

    def element(i: Value, _: object) -> None:
        at, value = w.item(out, i), b.load(w.item(x, i), typ=FLOAT)
        last = b.load(at, typ=FLOAT)  # no number in the first run
        is_first = b.fcmp_unordered("uno", last, last)
        positive = b.select(b.fcmp_ordered(">", value, FLOAT(0)), value, FLOAT(0))
        nowhere = w.item(w.pointer(w.word(8)), i)
        does: dict[str, Callable[[], object]] = {
            "wrong": lambda: b.store(b.fadd(positive, FLOAT(1e-3)), at),
            "unfinished": lambda: w.when(
                w.compare(w.add(i, 1), "<", end), lambda: b.store(positive, at)
            ),
            "rim": lambda: [b.store(positive, at), b.store(FLOAT(0), w.item(out, end))],
            "crash": lambda: b.store(FLOAT(1), nowhere),
            "hang": lambda: count(at, w.compare(w.load_word(block, 0), "!=", 0)),
            "broken": lambda: there_is_no_such_name,  # type: ignore[name-defined]  # noqa: F821
            "tires": lambda: b.store(positive, b.select(is_first, at, nowhere)),
            "stalls": lambda: [count(at, b.not_(is_first)), b.store(positive, at)],
        }
        does.get(fault, lambda: b.store(positive, at))()

    def count(at: Value, goes_on: Value) -> None:
        around, after = b.append_basic_block("around"), b.append_basic_block("after")
        b.cbranch(goes_on, around, after)
        b.position_at_end(around)
        b.store(b.fadd(b.load(at, typ=FLOAT), FLOAT(1)), at)
        b.cbranch(goes_on, around, after)
        b.position_at_end(after)

    w.loop(begin, end, element)


def reason(_: Workload, schedule: Schedule, *_args: Any) -> str | None:
    alike = schedule["copy"] == 2 and schedule["fault"] != "none"
    return "one of each fault is enough" if alike else None


FAULTY = Template(
    name="faulty",
    accepts=lambda workload: [b.op.name for b in workload.body.body] == ["relu"],
    knobs=lambda *_: {"fault": (*LOOPS, *IMPORTS, REFUSES), "copy": (1, 2)},
    defaults=everywhere(lambda *_: {"fault": "none", "copy": 1}),
    legal=reason,
    source=source,
    launch=lambda _, __, shapes, ___: Launch(dims=(), extent=math.prod(shapes[-1])),
)

SOON_S = 0.5


class Impatient(Child):
    """Waits long for whatever ends, however slow the machine is, and not for what hangs."""

    asked: Event
    heard: Event

    def ask(self, what: Event) -> Event:
        self.asked, self.heard = what, {}
        return super().ask(what)

    def _receive(self, process: subprocess.Popen[bytes], limit_s: float) -> Event:
        self.heard = super()._receive(process, SOON_S if self._hangs() else limit_s)
        return self.heard

    def _hangs(self) -> bool:
        """Whether the child is at what does not end; of several that are timed, if any is."""
        stage, number = self.heard.get("stage"), self.heard.get("implementation")
        if "build" in self.asked:
            return stage == "compile" and IMPORTS["endless"] in self.asked["build"][0]
        faults = [one.schedule.get("fault") for one in self.asked["job"].implementations]
        hangs = "stalls" in faults if number is None else faults[number] == "hang"
        return hangs and stage == "run"


_runner: Any = sys.modules.get("bucketize.measure.runner")
if _runner is not None:  # what measures has it; its children need none, and start sooner without
    _runner.Child = Impatient

_others = dict(TEMPLATES)
TEMPLATES.clear()
TEMPLATES.update({FAULTY.name: FAULTY, **_others})
