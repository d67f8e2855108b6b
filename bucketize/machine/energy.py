"""The energy that a machine has taken, by the counters of its processors, where it tells them.

Linux lists them as https://docs.kernel.org/power/powercap/powercap.html says: for each package, and
for its memory where that is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bucketize.errors import EnergyError

POWERCAP = Path("/sys/class/powercap")
COUNTED = ("package", "dram")  # others are parts of a package, or hold it, as `psys` does


@dataclass(frozen=True)
class Energy:
    """The counters of a machine: all that it does counts, idle cores and other processes too."""

    zones: Sequence[Path]

    @property
    def names(self) -> str:
        """What is counted."""
        return ", ".join(_text(zone / "name") for zone in self.zones)

    def read(self) -> list[int]:
        """Microjoules by counter, from some beginning."""
        return [int(_text(zone / "energy_uj")) for zone in self.zones]

    def joules(self, begin: Sequence[int], end: Sequence[int]) -> float:
        """What was taken between two readings: a counter that begins anew has done so once."""
        ranges = [int(_text(zone / "max_energy_range_uj")) for zone in self.zones]
        between = zip(begin, end, ranges, strict=True)
        return sum(b - a + (most if b < a else 0) for a, b, most in between) * 1e-6


def energy(powercap: Path = POWERCAP) -> Energy:
    """The counters of this machine.

    Raises EnergyError with the reason where there are none, or they may not be read.
    """
    zones = [zone for zone in sorted(powercap.glob("intel-rapl:*")) if _is_counted(zone)]
    if not zones:
        raise EnergyError(
            f"{powercap} has no RAPL counter of a package; virtual machines mostly have none"
        )
    counters = Energy(zones)
    try:
        counters.joules(counters.read(), counters.read())
    except (OSError, ValueError) as e:
        raise EnergyError(f"the energy counters cannot be read: {e}; root may read them") from e
    return counters


def _is_counted(zone: Path) -> bool:
    return (zone / "name").is_file() and _text(zone / "name").startswith(COUNTED)


def _text(path: Path) -> str:
    return path.read_text().strip()
