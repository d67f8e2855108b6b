"""Warming up in the background: clones are compiled beside requests, which the original serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread

from bucketize.dispatch.bucket import fallback_name
from bucketize.kernel.build import Builders, is_built
from bucketize.link.image import Image
from bucketize.link.link import sources
from bucketize.op import Value
from bucketize.program.program import Program, Routine
from bucketize.warm_up import warm


class WarmUp:
    """Clones on their way, beside requests: see `Executable.warm_up_in_background`."""

    def __init__(
        self,
        image: Image,
        names: Sequence[str],
        seconds: float,
        run: Callable[[str, Sequence[Value]], object],
        go_on: Callable[[], bool],
    ) -> None:
        """Begin; what stands in for the clones is decided and run first.

        `run` runs a routine; `go_on` has calls ask again what serves them, and says whether it is
        still the image that does.
        """
        self._image, self._run, self._go_on = image, run, go_on
        self._end = time.monotonic() + seconds
        self._cold = list(names)
        routines = image.program.routines
        decided = routines.made()
        standby = {name: original(image.program, name) for name in names if name not in decided}
        for routine in {id(r): r for r in standby.values() if r}.values():
            warm(routine, run)
        routines.standby.update({name: r for name, r in standby.items() if r})
        go_on()
        self._stopped = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._work, name="bucketize warm-up", daemon=True)
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
            KernelError: a clone cannot be compiled; those behind it are cold, too.

        """
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self.cold

    def stop(self) -> list[str]:
        """Begin no other clone, and wait for the one that is on its way; as `wait`."""
        self._stopped.set()
        return self.wait()

    def _work(self) -> None:
        routines = self._image.program.routines
        try:
            with Builders(self._image.program.target.processor) as builders:
                for name in self.cold:
                    if self._stopped.is_set() or time.monotonic() >= self._end:
                        break
                    self._make(name, builders)
                    self._cold.remove(name)
                    routines.standby.pop(name, None)
                    if not self._go_on():
                        break
        except BaseException as e:  # told to who waits
            self._error = e
        finally:
            if not routines.is_closed:
                routines.standby.clear()
                self._go_on()

    def _make(self, name: str, builders: Builders) -> None:
        """Decide a clone, have its kernels built elsewhere, link it and run it."""
        program = self._image.program
        program.routines.admitted.add(name)
        routine = program.decide(name)
        compiled = bool(program.sources)  # a file has its kernels, and no source
        needed = sources(program, routine.segments()) if compiled else {}
        for source, hint in needed.items():
            if not is_built(source, hint, program.target.processor):
                builders.build(source, hint)
        warm(routine, self._run)


def original(program: Program, name: str) -> Routine | None:
    """What a clone specialises, decided; None where nobody knows it."""
    clone = program.clones.get(name)
    if clone is None or clone.origin is None:
        return None
    whole = fallback_name(clone.origin.name)
    program.routines.admitted.add(whole)
    return program.decide(whole)
