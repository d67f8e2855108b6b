"""Warming up in the background: clones are compiled beside requests, which the original serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Thread
from typing import TypeAlias

from bucketize.dispatch.bucket import fallback_name
from bucketize.kernel.build import Builders, Building, is_built
from bucketize.link.image import Image
from bucketize.link.link import sources
from bucketize.op import Value
from bucketize.program.program import Program, Routine
from bucketize.runtime.vm import Context
from bucketize.warm_up import warm

LOGGER = logging.getLogger("bucketize")
Run: TypeAlias = Callable[[Routine, Sequence[Value]], object]
"""Runs a routine on inputs."""


class WarmUp:
    """Clones on their way, beside requests: see `Executable.warm_up_in_background`."""

    def __init__(
        self, image: Image, names: Sequence[str], seconds: float, refresh: Callable[[], bool]
    ) -> None:
        """Begin: what stands in for the clones is compiled and run first.

        `refresh` has calls ask again what serves them; it says whether that is still the image.
        """
        self._end = time.monotonic() + seconds
        program, standby, run = image.program, dict[str, Routine](), Context(image).enter
        for name in names:
            original = None if _is_ready(image, name) else _original(program, name)
            if original is not None:
                standby[name] = original
            elif name not in program.clones:  # a tree of decisions, or what clones call
                _admitted(program, name)
        originals = {routine.name: routine for routine in standby.values()}
        self._compile(program, originals.values(), run)
        self._cold = [name for name in names if name not in originals]
        program.routines.stand_in(standby)
        refresh()
        self._stopped = Event()
        self._error: BaseException | None = None
        work = program, run, refresh  # the thread's, and gone with it: the program may be replaced
        self._thread = Thread(target=self._work, args=work, name="bucketize warm-up", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "on its way" if self._thread.is_alive() else "over"
        return f"<warm-up, {state}: {len(self._cold)} clones are cold>"

    @property
    def cold(self) -> list[str]:
        """The clones that are not ready, in the order in which they come."""
        return list(self._cold)

    def wait(self, timeout: float | None = None) -> list[str]:
        """Wait until it is over, or for so many seconds.

        Args:
            timeout: None: as long as it takes.

        Returns:
            The clones that are cold.

        Raises:
            BaseException: what ended it, as a KernelError where a clone cannot be compiled. Those
                behind it are cold, too; the logger `bucketize` has it as an error.

        """
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self.cold

    def stop(self) -> list[str]:
        """Begin no other clone, and wait for the one that is on its way; as `wait`."""
        self.give_way()
        return self.wait()

    def give_way(self) -> None:
        """Begin no other clone, and wait, whatever went wrong: another warm-up begins."""
        self._stopped.set()
        self._thread.join()

    def _compile(self, program: Program, originals: Iterable[Routine], run: Run) -> None:
        """Have the kernels of what stands in, with other processes, and run each once."""
        with Building(program.target.processor) as building:
            for routine in originals:
                building.want(sources(program, routine.segments()))
            building.finish()
        for routine in originals:
            warm(routine, run)

    def _work(self, program: Program, run: Run, refresh: Callable[[], bool]) -> None:
        routines = program.routines
        try:
            with Builders(program.target.processor) as builders:
                for name in self.cold:
                    late = self._stopped.is_set() or time.monotonic() >= self._end
                    if late or not refresh():
                        break
                    self._make(name, program, builders, run)
                    self._cold.remove(name)
                    routines.take_over([name])
        except BaseException as e:  # raised to who waits, if anybody does
            self._error = e
            LOGGER.error("warming up ended with %d clones cold: %s", len(self._cold), e)
        finally:
            if not routines.is_closed:
                routines.take_over(self._cold)
            refresh()

    def _make(self, name: str, program: Program, builders: Builders, run: Run) -> None:
        """Decide a clone, have its kernels built elsewhere, link it and run it."""
        routine = _admitted(program, name)
        compiled = bool(program.sources)  # a file has its kernels, and no source
        needed = sources(program, routine.segments()) if compiled else {}
        for source, hint in needed.items():
            if not is_built(source, hint, program.target.processor):
                builders.build(source, hint)
        warm(routine, run)


def _is_ready(image: Image, name: str) -> bool:
    """Whether a routine is decided and linked."""
    routine = image.program.routines.made().get(name)
    return routine is not None and all(map(image.is_linked, routine.segments()))


def _original(program: Program, name: str) -> Routine | None:
    """What a clone specialises; None where nobody knows it, or where it takes other inputs.

    A padded clone's takes extents, too. One that is legal at no sizes stands in for nobody.
    """
    clone = program.clones.get(name)
    if clone is None or clone.origin is None or clone.policy != "exact":
        return None
    routine = _admitted(program, fallback_name(clone.origin.name))
    return None if routine.refusal else routine


def _admitted(program: Program, name: str) -> Routine:
    """A routine, decided whether or not that is over for calls."""
    program.routines.admitted.add(name)
    try:
        return program.decide(name)
    finally:
        program.routines.admitted.discard(name)
