"""Measurement of schedules in a child process that may crash, hang or be wrong.

The parent sends one job a line and reads events; each stage of a job has a time limit, after which
the child is killed. The next job starts a new one. A child whose parent is gone ends by itself.
"""

from __future__ import annotations

import base64
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import IO, Any, Self

import numpy as np

from bucketize.errors import TuneError
from bucketize.op import Array
from bucketize.tune.log import ErrorKind, Schedule, Source, Trial, schedule_hash

START_LIMIT_S = 120.0
LAST_WORDS = 500  # characters of what a dead child said that are kept


@dataclass(frozen=True, kw_only=True)
class Job:
    """One schedule of one workload at one shape, as it is sent to the worker."""

    workload: str  # hash
    shape: str  # of the parameters, as in the log
    body: str  # the workload's function as text
    table: tuple[Array, ...] = ()  # the constants that the text refers to
    constant: tuple[bool, ...]
    template: str
    schedule: Schedule
    sizes: Mapping[str, int]  # of the symbols in the body
    threads: int = 1
    weight_bytes: int = 0  # of the whole graph: what else goes through the caches between two runs

    def encode(self) -> str:
        """The job as a line of JSON."""
        plain = {**vars(self), "schedule": dict(self.schedule), "sizes": dict(self.sizes)}
        return json.dumps({**plain, "table": [_encode_array(a) for a in self.table]})

    @staticmethod
    def decode(line: str) -> Job:
        """The job of a line."""
        plain = json.loads(line)
        return Job(
            **{
                **plain,
                "table": tuple(_decode_array(text) for text in plain["table"]),
                "constant": tuple(plain["constant"]),
            }
        )


def _encode_array(array: Array) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _decode_array(text: str) -> Array:
    loaded: Array = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    return loaded


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a job; its fields are columns of the log."""

    error_kind: ErrorKind = "none"
    error: str = ""
    compile_s: float | None = None
    repeats: int = 0
    latency_median_s: float | None = None
    latency_min_s: float | None = None
    latency_std_s: float | None = None
    max_rel_err: float | None = None


@dataclass(frozen=True)
class Limits:
    """Seconds that each stage of a measurement may take."""

    prepare_s: float = 300.0  # parse, make inputs, evaluate the reference: no schedule's fault
    compile_s: float = 60.0
    run_s: float = 20.0

    def of(self, stage: str) -> float:
        """The limit of a stage, by its name."""
        return float(getattr(self, f"{stage}_s"))


TIMEOUTS: dict[str, ErrorKind] = {
    "prepare": "run_timeout",
    "compile": "compile_timeout",
    "run": "run_timeout",
}


@dataclass
class Worker:
    """The parent's end of the child process; a context manager that leaves no child behind.

    `plugins` are modules that the child imports first, by name: the way to bring own templates,
    which such a module puts into `bucketize.kernel.template.TEMPLATES`.
    """

    limits: Limits = field(default_factory=Limits)
    plugins: Sequence[str] = ()
    source: Source | None = None
    _child: subprocess.Popen[bytes] | None = None
    _said: IO[bytes] | None = None  # the child's stderr: why it died
    _unread: bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def measure(self, job: Job) -> Outcome:
        """The outcome of `job`; whatever the kernel does is an outcome, too."""
        child = self._started()
        stage, outcome = "prepare", Outcome()
        try:
            self._send(child, job.encode())
            while True:
                event = self._receive(child, self.limits.of(stage))
                if "refused" in event:
                    raise TuneError(f"cannot measure {job.workload}: {event['refused']}")
                if "outcome" in event:
                    return replace(outcome, **event["outcome"])
                stage, outcome = event["stage"], replace(outcome, **event["so_far"])
        except TimeoutError:
            limit = self.limits.of(stage)
            self.close()
            error = f"still in {stage} after {limit:g} s"
            return replace(outcome, error_kind=TIMEOUTS[stage], error=error)
        except (EOFError, BrokenPipeError):
            return replace(outcome, error_kind="crash", error=f"{self._death()} in {stage}")
        except BaseException:  # an interrupt: the child may be in the midst of a job
            self.close()
            raise

    def close(self) -> None:
        """End the child, whatever it is doing."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout, self._said):
                _close(pipe)
        self._child, self._said, self._unread = None, None, b""

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.close()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the child)
        self._child = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
        try:
            self._receive(self._child, START_LIMIT_S)
        except (TimeoutError, EOFError):
            raise TuneError(f"the measuring process did not start: {self._death()}") from None
        except BaseException:
            self.close()
            raise
        return self._child

    def _command(self) -> list[str]:
        limits = json.dumps(asdict(self.limits))
        plugins = [word for name in self.plugins for word in ("--import", name)]
        return [sys.executable, "-m", "bucketize.tune.worker", "--limits", limits, *plugins]

    def _send(self, child: subprocess.Popen[bytes], line: str) -> None:
        assert child.stdin is not None
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()

    def _receive(self, child: subprocess.Popen[bytes], limit_s: float) -> dict[str, Any]:
        """The next event of the child."""
        assert child.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(child.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def _death(self) -> str:
        """How the child ended, and the last thing it said; leaves no child."""
        assert self._child is not None
        assert self._said is not None
        try:
            code = self._child.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            code = 0
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()[-LAST_WORDS:]
        self.close()
        ending = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"{ending} ({said})" if said else ending


class Replay:
    """A measurer that looks outcomes up in the rows of a log; needs neither clock nor child."""

    source: Source | None = "replay"

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._recorded = {
            (t.workload, t.template, t.schedule_hash, t.shape, t.threads): t for t in trials
        }

    def measure(self, job: Job) -> Outcome:
        """The recorded outcome of the same schedule at the same shape; of several the last."""
        key = (
            *(job.workload, job.template, schedule_hash(job.schedule)),
            *(job.shape, job.threads),
        )
        if key not in self._recorded:
            raise TuneError(
                f"the replayed log has no trial of {dict(job.schedule)} for workload"
                f" {job.workload} at {job.shape} with {job.threads} thread(s)"
            )
        trial = self._recorded[key]
        return Outcome(**{f.name: getattr(trial, f.name) for f in fields(Outcome)})


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        try:
            pipe.close()
        except BrokenPipeError:  # what could not be sent to a dead child
            return
