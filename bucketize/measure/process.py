"""The parent's end of a measuring process, which may crash, hang or lie.

The parent sends a line, which is a pickle, and reads events, lines of JSON; each stage of what was
asked has a time limit, after which the child is killed. The next question starts a new one. A child
whose parent is gone ends by itself.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from bucketize.errors import TuneError
from bucketize.log.outcome import ErrorKind

START_LIMIT_S = 600.0  # imports take a while, on a busy machine long
DYING_S = 60.0  # between a child's last words and its end
LAST_WORDS = 500  # characters of what a dead child said that are kept

Event = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """Seconds that each stage of a measurement may take."""

    prepare_s: float = 300.0  # parse, make inputs, evaluate the reference: no schedule's fault
    compile_s: float = 60.0
    run_s: float = 20.0

    def of(self, stage: str) -> float:
        """The limit of a stage, by its name."""
        return float(getattr(self, f"{stage}_s"))


TIMEOUTS: Mapping[str, ErrorKind] = {
    "prepare": "run_timeout",
    "compile": "compile_timeout",
    "run": "run_timeout",
}


class DeathError(Exception):
    """The child did not live to answer."""

    def __init__(self, kind: ErrorKind, error: str, last: Event) -> None:
        super().__init__(error)
        self.kind = kind
        self.error = error
        self.last = last
        """The event that told the stage."""


def import_plugins(names: Sequence[str]) -> None:
    """Import the modules that bring templates of their own."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as e:
            raise TuneError(f"cannot import the plugin {name}: {e}") from e


@dataclass
class Child:
    """One measuring process, started when it is needed."""

    limits: Limits
    plugins: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = None
    _said: IO[bytes] | None = None  # its stderr: why it died
    _starts: bool = False  # it has not said yet that it is ready
    _unread: bytes = field(default=b"", repr=False)

    def ask(self, what: Event) -> Event:
        """The answer to `what`.

        Raises:
            DeathError: it ended, or was ended at the limit of a stage.
            TuneError: it does not start, or refuses.

        """
        last: Event = {"stage": "prepare"}
        try:
            process = self._started()
            self._send(process, what)
            while "stage" in (event := self._receive(process, self.limits.of(last["stage"]))):
                last = event
        except TimeoutError:
            stage = last["stage"]
            self.close()
            error = f"still in {stage} after {self.limits.of(stage):g} s"
            raise DeathError(TIMEOUTS[stage], error, last) from None
        except (EOFError, BrokenPipeError):
            raise DeathError("crash", f"{self._death()} in {last['stage']}", last) from None
        except BaseException:  # an interrupt: the child may be in the midst of a job
            self.close()
            raise
        if "refused" in event:
            raise TuneError(event["refused"])
        return event

    def begin(self) -> None:
        """Start it, if it does not live; not wait until it is ready."""
        if self._process is not None and (self._starts or self._process.poll() is None):
            return
        self.close()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
        self._starts = True

    def close(self) -> None:
        """End the child, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in filter(None, (self._process.stdin, self._process.stdout, self._said)):
                with suppress(BrokenPipeError):  # what could not be sent to a dead child
                    pipe.close()
        self._process, self._said, self._unread, self._starts = None, None, b"", False

    def _started(self) -> subprocess.Popen[bytes]:
        """The child, when it is ready."""
        self.begin()
        assert self._process is not None
        if self._starts:
            try:
                self._receive(self._process, START_LIMIT_S)
            except TimeoutError:
                self.close()
                limit = f"{START_LIMIT_S:g} s"
                raise TuneError(f"the measuring process is not ready after {limit}") from None
            except EOFError:
                raise TuneError(f"the measuring process did not start: {self._death()}") from None
            self._starts = False
        return self._process

    def _command(self) -> list[str]:
        arguments = json.dumps([asdict(self.limits), list(self.plugins)])
        return [sys.executable, "-m", "bucketize.measure.worker", arguments]

    def _send(self, process: subprocess.Popen[bytes], what: Event) -> None:
        assert process.stdin is not None
        process.stdin.write(base64.b64encode(pickle.dumps(what)) + b"\n")
        process.stdin.flush()

    def _receive(self, process: subprocess.Popen[bytes], limit_s: float) -> Event:
        """The next event of the child."""
        assert process.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        event: Event = json.loads(line)
        return event

    def _death(self) -> str:
        """How the child ended, and the last thing it said; leaves no child."""
        assert self._process is not None
        assert self._said is not None
        try:
            code = self._process.wait(DYING_S)
        except subprocess.TimeoutExpired:  # it says no more, and lives on
            self._process.kill()
            code = self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()[-LAST_WORDS:]
        self.close()
        ending = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"{ending} ({said})" if said else ending
