"""The calibration of a machine: its speed as it was measured, kept beside the compiled kernels.

Processors of one name differ by clock, cache and neighbours from one cloud to the next, so a file
is named by all that the system tells of the machine.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bucketize.errors import KernelError
from bucketize.machine.directory import cache_directory
from bucketize.machine.file import put
from bucketize.machine.speed import FAMILIES, Speed, speed_of
from bucketize.table import json_text

VARIABLE = "BUCKETIZE_CALIBRATE"
LOGGER = logging.getLogger("bucketize")
PROCESSORS = Path("/proc/cpuinfo")
BOARD = Path("/sys/class/dmi/id")
PROBES = 5  # what figures mean: those of other probes are measured anew
TOLD = "sys_vendor", "product_name"
"""Files that name a board: clouds name themselves there, and the kind of instance."""


KINDS = {"machine": str, "when": str, "cores": int, "spread": int | float}
"""What the fields are, beside speeds and the family."""


@dataclass(frozen=True)
class Calibration:
    """What was measured on a machine."""

    machine: str
    """The machine, by the system: processor, board, caches and the vectors that may be used."""
    alone: Speed
    """The speed of a core when the others idle."""
    beside: Speed
    """The speed of a core when all work."""
    family: str
    """The family of the cores: of `FAMILIES`."""
    cores: int
    spread: float
    """The largest share by which half of the rounds of a probe were apart: noise."""
    when: str
    """In UTC."""
    refined: Speed | None = None
    """The speed of a core alone by trials of kernels on this machine; None: as it was measured."""

    @property
    def speed(self) -> Speed:
        """What models of cost go by for a core alone."""
        return self.refined or self.alone


def is_wanted() -> bool:
    """Whether a machine is measured without being asked: not with BUCKETIZE_CALIBRATE=0."""
    return os.environ.get(VARIABLE, "") != "0"


def machine_name(target: str, caches: tuple[int, ...], cores: int) -> str:
    """What the system tells of this machine that its speed may depend on."""
    board = [_line(BOARD / name) for name in TOLD]
    sizes = "/".join(f"{size >> 10}" for size in caches)
    words = [_model(), *board, f"{cores} cores", f"caches of {sizes} KiB", target]
    return ", ".join(dict.fromkeys(word for word in words if word))


def _model() -> str:
    try:
        lines = PROCESSORS.read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def calibration_path(machine: str) -> Path:
    """Where the calibration of a machine is kept."""
    digest = hashlib.sha256(f"{PROBES} {machine}".encode()).hexdigest()[:16]
    return cache_directory() / f"speed_{digest}.json"


def stored(machine: str) -> Calibration | None:
    """The calibration of a machine; None where there is none that this version can read."""
    path = calibration_path(machine)
    try:
        return read(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as e:
        LOGGER.warning("%s is not used: %s", path, e)
        return None


def read(text: str) -> Calibration:
    """The calibration of a file's text; a `ValueError` where it is none."""
    values: Any = json.loads(text)
    names = {f.name for f in fields(Calibration)}
    if not isinstance(values, dict) or {"refined", *values} != names:
        raise ValueError("it is no calibration of this version")
    for name, kind in KINDS.items():
        if not isinstance(values[name], kind):
            raise ValueError(f"{name} is {values[name]!r}")
    speeds = {name: speed_of(values[name]) for name in ("alone", "beside")}
    if values.get("refined") is not None:
        speeds["refined"] = speed_of(values["refined"])
    if values["family"] not in FAMILIES:
        raise ValueError(f"family is {values['family']!r}, not of {', '.join(FAMILIES)}")
    return Calibration(**{**values, **speeds})


def write(calibration: Calibration) -> Path:
    """Keep a calibration: the file is there whole, or as it was before.

    Raises KernelError where the cache cannot be written.
    """
    path = calibration_path(calibration.machine)
    text = json_text(asdict(calibration), indent=1) + "\n"
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        put(path, [(0, text.encode())])
    except OSError as e:
        raise KernelError(f"cannot keep a calibration in {path.parent}: {e}") from e
    return path
