"""A plugin for the tuner: a template for `relu` with a knob for what is wrong with the kernel."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Template, everywhere
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.workload import Workload
from bucketize.measure.process import Child, Event

POSITIVE = "(x[i] if x[i] > 0 else float32(0))"
"""Not `max`, whose code calls Python's: a process that loads it and compiled nothing has none."""
RELU = f"out[i] = {POSITIVE}"
LOOPS = {
    "none": RELU,
    "wrong": f"{RELU} + float32(1e-3)",
    "unfinished": f"if i + 1 < block[4]: {RELU}",
    "rim": f"{RELU}; out[block[4]] = float32(0)",
    "crash": "pointer(block[0] - block[0] + 8, float32)[i] = float32(1)",
    "hang": "while block[0] != 0: out[i] = out[i] + float32(1)",
    "broken": "out[i] = there_is_no_such_name",
    # not in their first run, which finds no result yet: while they are timed
    "tires": f"pointer(block[0] if out[i] != out[i] else i + 8, float32)[i] = {POSITIVE}",
    "stalls": f"while out[i] == out[i]: out[i] = out[i] + float32(1)\n        {RELU}",
}
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
from numba import float32
from bucketize.kernel.emit.entry import entry
from bucketize.kernel.emit.native import pointer
{IMPORTS.get(fault, "")}

@entry
def kernel(block):
    out, x = pointer(block[0], float32), pointer(block[1], float32)
    for i in range(block[3], block[4]):
        {LOOPS.get(fault, RELU)}
"""


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
