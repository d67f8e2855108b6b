"""The machine that this process runs on, in LLVM's words."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import llvmlite.binding as llvm

from bucketize.machine.calibration import Calibration, is_wanted, machine_name, stored
from bucketize.machine.present import ARM, present, system_of
from bucketize.machine.target import VARIABLE, Processor, Target, described, target_of


@cache
def host() -> Target:
    """The machine that this runs on, as fast as it was measured, if it was.

    Raises UnknownNameError as `processor` does.
    """
    its = target_of(processor())
    its_own = calibration_of(its)
    if its_own is None:
        return its
    return replace(its, speed=its_own.speed, beside=its_own.beside, family=its_own.family)


def calibration_of(its: Target) -> Calibration | None:
    """What was measured here, and what trials made of it; None with BUCKETIZE_CALIBRATE=0."""
    return stored(machine_of(its)) if is_wanted() else None


def machine_of(its: Target) -> str:
    """What tells this machine from others, as calibrations have it."""
    return machine_name(its.name, (its.l1, its.l2, its.l3), os.cpu_count() or 1)


@cache
def processor() -> Processor:
    """The processor of this machine, as far as the environment's BUCKETIZE_TARGET lets it.

    Raises UnknownNameError where it has no such vectors.
    """
    most = os.environ.get(VARIABLE, "")
    triple = llvm.get_process_triple()
    features: dict[str, bool] = dict(llvm.get_host_cpu_features())
    if system_of(triple)[0] == ARM:  # of these LLVM is told too little
        features |= dict.fromkeys(present(), True)
    return described(triple, llvm.get_host_cpu_name(), features, most)
