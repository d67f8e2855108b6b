"""`bucketize calibrate`: measure how fast this machine is, or show what was measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from bucketize.cli.echo import echo
from bucketize.cli.parameter import json_option
from bucketize.errors import KernelError
from bucketize.table import json_text

if TYPE_CHECKING:
    from bucketize.machine.calibration import Calibration

UNITS = {
    "ghz": "GHz",
    "fma": "multiply-adds of vectors in a cycle",
    "loads": "vectors from the first cache in a cycle",
    "latency": "cycles of a multiply-add that the next one waits for",
    "exp": "cycles of an exponential of a vector",
    "root": "cycles of a square root of a vector",
    "l2": "bytes in a cycle from the second cache",
    "l3": "bytes in a cycle from the third cache",
    "l3_share": "of the last cache holds what is read again and again",
    "memory": "bytes in a cycle from memory",
    "prefetch": "times that speed where a product of few rows prefetches",
}


@click.command(short_help="Measure how fast this machine is: what default choices go by.")
@click.option("--show", is_flag=True, help="Show what was measured; measure nothing.")
@json_option
def calibrate(show: bool, as_json: bool) -> None:
    """Measure this machine's speed in two or three seconds; keep it beside the compiled kernels.

    Which kernel is chosen where nothing was tuned goes by it. The first compile on a machine does
    the same; measure again after a move to another one, or if it was busy then. With
    BUCKETIZE_CALIBRATE=0 in the environment nothing is measured or read: the machine is taken for
    a typical server.

    Trials of `tune` may refine what was measured of a core alone: that is another column, and
    measuring again drops it.

    \b
    Examples:
      bucketize calibrate
      bucketize calibrate --show
    """
    from bucketize.inspect.calibrate import calibrate as measured
    from bucketize.machine.calibration import stored, write
    from bucketize.machine.host import host, machine_of

    if show:
        calibration = stored(machine_of(host()))
        if calibration is None:
            raise KernelError(f"no calibration of {machine_of(host())}; run `bucketize calibrate`")
    else:
        calibration = measured(host())
        write(calibration)
    echo(json_text(asdict(calibration)) if as_json else shown(calibration))


def shown(its: Calibration) -> str:
    """A calibration as a person reads it."""
    alone, beside = asdict(its.alone), asdict(its.beside)
    columns = {"alone": alone, f"all {its.cores}": beside}
    if its.refined is not None:
        columns["refined"] = asdict(its.refined)
    lines = [
        f"{its.machine}",
        f"measured {its.when}; half of the rounds within {its.spread:.0%} of the best; "
        f"cores like {its.family}'s",
        f"{'':8}{''.join(f'{title:>9}' for title in columns)}",
    ]
    for name, unit in UNITS.items():
        lines.append(f"{name:8}{''.join(f'{its[name]:>9g}' for its in columns.values())}  {unit}")
    return "\n".join(lines)
